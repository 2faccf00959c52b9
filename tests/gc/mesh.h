/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mesh.h - several donors' engines in one process, and their messages
 *
 * Messages go through a thread that delivers them late and out of order, and
 * their acknowledgements later still. The host's part is here too: it starts
 * traces on all, polls their flags and finishes them.
 */
#ifndef GC_MESH_H
#define GC_MESH_H

#include "mutator.h"

struct mesh;

struct mesh *mesh_new(struct mut *m, u64 seed);
void mesh_free(struct mesh *x);
struct dcm_gc_space *mesh_space(struct mesh *x, u32 donor);

/* The donors refuse: the first status that is not OK. */
u32 mesh_start(struct mesh *x, u32 epoch, u32 flags, u32 threads,
	       const struct virtio_gc_region *regions, u32 n);
/* Addresses, to the donors that own them. */
u32 mesh_roots(struct mesh *x, u32 epoch, const __le64 *addresses, u32 n);
/* The runtime's own roots. */
u32 mesh_roots_all(struct mesh *x, u32 epoch);
/* @scan: take opaque objects and send their references. */
u32 mesh_finish(struct mesh *x, u32 epoch, bool scan);
/* Opaque objects that came; each must come once. */
u64 mesh_opaques(const struct mesh *x);
u64 mesh_messages(const struct mesh *x);
const struct dcm_gc_peers *mesh_peers(struct mesh *x, u32 donor);

#endif /* GC_MESH_H */
