// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_liar.c - a GC worker that moves objects and lies about it
 *
 * The real worker, but its answers to EVACUATE are false. The number of the
 * from-region chooses the lie: a worker lives for one lie only.
 */
#include <endian.h>

#include "../../donor-daemon/gc/gc.h"
#include "gc_liar.h"

u32 __real_dcm_gc_move(struct dcm_gc_space *s, u32 epoch,
		       const struct virtio_gc_move *le, u32 flags,
		       struct virtio_gc_moved *moved);
u32 __wrap_dcm_gc_move(struct dcm_gc_space *s, u32 epoch,
		       const struct virtio_gc_move *le, u32 flags,
		       struct virtio_gc_moved *moved);

u32 __wrap_dcm_gc_move(struct dcm_gc_space *s, u32 epoch,
		       const struct virtio_gc_move *le, u32 flags,
		       struct virtio_gc_moved *moved)
{
	u32 status = __real_dcm_gc_move(s, epoch, le, flags, moved);

	switch (le32toh(le->from) % GC_LIES) {
	case 0: /* another donor's region: they have them in turn */
		moved->from = htole32(le32toh(le->from) + 1);
		break;
	case 1: /* none of the space */
		moved->to = htole32(1u << 31);
		break;
	case 2:
		moved->end = htole64(le64toh(moved->end) + (1u << 30));
		break;
	case 3: /* far behind the space */
		moved->table = htole64(1ull << 60);
		break;
	case 4:
		moved->table_bytes = htole64(UINT64_MAX);
		break;
	}
	return status;
}
