/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plain_tls.h - what plain_tls.c tells of its hosts' sessions
 */
#ifndef FUZZ_PLAIN_TLS_H
#define FUZZ_PLAIN_TLS_H

#include "../../kvm-dcm/lib/dcm_context.h"

/*
 * Bytes that all of them have sent in whole records. A peer could make nothing of
 * what has come of a record yet.
 */
extern u64 plain_tls_whole;

#endif /* FUZZ_PLAIN_TLS_H */
