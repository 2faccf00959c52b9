// SPDX-License-Identifier: GPL-2.0-or-later
/* links: donor-daemon/buf.c donor-daemon/chan.c donor-daemon/gc_session.c donor-daemon/config.c donor-daemon/conn.c donor-daemon/control.c donor-daemon/data.c donor-daemon/data_file.c donor-daemon/data_poll.c donor-daemon/data_worker.c donor-daemon/admission.c donor-daemon/evict.c donor-daemon/fair.c donor-daemon/file.c donor-daemon/gc/child.c donor-daemon/hello.c donor-daemon/export.c donor-daemon/log_limit.c donor-daemon/pool.c donor-daemon/ring.c donor-daemon/session.c donor-daemon/slab.c donor-daemon/gc_cpu.c donor-daemon/tenant.c donor-daemon/tls_server.c kvm-dcm/proto/wire.c kvm-dcm/lib/file.c kvm-dcm/lib/ini.c kvm-dcm/lib/keyfile.c kvm-dcm/lib/value.c kvm-dcm/lib/thread.c kvm-dcm/lib/log.c tests/fuzz/data_fiber.c tests/fuzz/donor_world.c tests/fuzz/fake_hosts.c tests/fuzz/gc_children.c tests/fuzz/plain_tls.c */
/* libs: -Wl,--wrap=socketpair,--wrap=fork,--wrap=kill,--wrap=waitpid,--wrap=fallocate,--wrap=uv_queue_work,--wrap=pthread_create,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock,--wrap=epoll_wait,--wrap=dcm_slab_get,--wrap=dcm_slab_put */
/* pkg: libuv liburing */
/* donor_fuzz.c - libFuzzer on a donor that lends memory; see donor_world.c */
#include "donor_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

const struct donor_medium donor_medium = { .medium = DCM_MEDIUM_MEMORY };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return donor_world_run(data, size);
}
