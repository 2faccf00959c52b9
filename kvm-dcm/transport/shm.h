/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * shm.h - the shm transport's parameters
 *
 * dcm_transport_shm.open() takes a struct dcm_shm_args or %NULL. One endpoint
 * serves all slabs of a donor: each operation names its slab.
 */
#ifndef DCM_SHM_H
#define DCM_SHM_H

#include "transport.h"

/**
 * struct dcm_shm_args - parameters of an shm endpoint
 * @depth: completions it keeps for poll(); 0: 256
 */
struct dcm_shm_args {
	u32 depth;
};

#endif /* DCM_SHM_H */
