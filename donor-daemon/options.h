/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * options.h - dcm-donord's options: name, kind, bounds, default, help
 *
 * The two lists make the parser, the bounds, the defaults, the command line,
 * --help, and what a reload keeps. A new option is a line here, a field in struct
 * dcm_config, and its entries in dcm-donord.8 and configs/donor.conf, which
 * scripts/check-options demands.
 */
#ifndef DCM_OPTIONS_H
#define DCM_OPTIONS_H

#define DCM_BYTES_MAX	(1ull << 50)
#define DCM_PATIENCE_MIN_MS	1000u /* hosts send something every second */
#define DCM_PATIENCE_MAX_MS	86400000u

/*
 * X(section, key, kind, field, min, max, default, argument, flag, when, help)
 *
 * min, max: in bytes, milliseconds or the number itself; of text, bytes of it.
 * default: as in a file; "": none. flag: --flag sets the option too; "": only
 * --set does. when: RELOAD, or RESTART if the running donor keeps the old value.
 */
/* clang-format off */
#define DCM_OPTIONS(X)                                                         \
	X("donor", "listen", LISTEN, listen, 0, 0, "",                         \
	  "HOST:PORT", "listen", RESTART,                                      \
	  "Listen on this TCP address; port 0 picks one; repeatable, replaces the file's") \
	X("donor", "unix", TEXT, unix_path, 0, 107, "",                        \
	  "PATH", "unix", RESTART, "Listen on this UNIX socket")               \
	X("donor", "unix-mode", OCTAL, unix_mode, 0, 0777, "0660",             \
	  "MODE", "", RELOAD, "Mode of the UNIX socket")                       \
	X("donor", "keys", TEXT, keys, 0, DCM_CONFIG_PATH_MAX - 1,             \
	  "/etc/kvm-dcm/donor.keys", "FILE", "keys", RELOAD,                   \
	  "Tenants' keys: lines tenant:hexkey, 32 to 128 digits each, mode 0600") \
	X("donor", "medium", MEDIUM, medium, 0, 0, "memory",                   \
	  "memory|file", "medium", RESTART,                                    \
	  "Lend memory, or files on a disk of this host")                      \
	X("donor", "path", TEXT, path, 0, DCM_CONFIG_PATH_MAX - 1, "",         \
	  "DIR", "path", RESTART, "The directory of the files")                \
	X("donor", "capacity", SIZE, capacity, 0, DCM_BYTES_MAX, "75%",        \
	  "SIZE", "capacity", RELOAD, "Lend at most this much memory")         \
	X("donor", "head-room", SIZE, head_room, 0, DCM_BYTES_MAX, "12%",      \
	  "SIZE", "head-room", RELOAD,                                         \
	  "Leave this much memory of the host free")                           \
	X("donor", "slab-size", BYTES, slab_bytes, DCM_WIRE_SLAB_MIN,          \
	  DCM_WIRE_SLAB_MAX, "1G", "SIZE", "slab-size", RESTART,               \
	  "Unit of lending, a power of two from 2M")                           \
	X("donor", "spare-slabs", COUNT, spare_slabs, 0, 1024, "1",            \
	  "N", "spare-slabs", RELOAD, "Keep this many slabs allocated ahead")  \
	X("donor", "hugepages", HUGE, huge_bytes, 0, 0, "no",                  \
	  "no|yes|SIZE", "hugepages", RESTART, "Make slabs of huge pages")     \
	X("donor", "threads", COUNT, threads, 0, 64, "0",                      \
	  "N", "threads", RESTART,                                             \
	  "Threads that serve data; 0: one for each CPU")                      \
	X("donor", "poll-us", POLL, poll_us, 0, 1000, "auto",                  \
	  "auto|N", "poll-us", RESTART,                                        \
	  "Poll this many microseconds for the next request before sleeping, while requests come that densely; auto: 100") \
	X("donor", "data-encryption", BOOL, data_encryption, 0, 0, "yes",      \
	  "yes|no", "data-encryption", RELOAD,                                 \
	  "no: hosts may use data connections unencrypted, once they have proven their key") \
	X("donor", "rdma", RDMA, rdma, 0, 0, "auto",                           \
	  "no|auto|yes", "rdma", RESTART,                                      \
	  "Lend over RDMA too; needs --data-encryption=no")                    \
	X("donor", "rdma-listen", TEXT, rdma_listen, 0,                        \
	  DCM_CONFIG_PATH_MAX - 1, "", "HOST:PORT", "rdma-listen", RESTART,    \
	  "Take RDMA connections at this address")                             \
	X("donor", "drain-timeout", TIME, drain_ms, 0, 86400000, "60s",        \
	  "TIME", "drain-timeout", RELOAD,                                     \
	  "Wait this long for slabs to come back at SIGTERM")                  \
	X("limits", "connections", COUNT, connections, 1, 65536, "4096",       \
	  "N", "", RELOAD, "Connections of tenants, of all kinds")             \
	X("limits", "handshakes", COUNT, handshakes, 1, 65536, "1024",         \
	  "N", "", RELOAD, "Connections at each address without a key proven") \
	X("limits", "handshake-timeout", TIME, handshake_ms, 100, 60000, "5s", \
	  "TIME", "", RELOAD, "Time to prove a key and send HELLO")            \
	X("limits", "sessions", COUNT, sessions, 1, 65536, "4096",             \
	  "N", "", RELOAD, "Sessions of all tenants")                          \
	X("limits", "tenant-bytes", SIZE, tenant_bytes, 0, DCM_BYTES_MAX,      \
	  "100%", "SIZE", "", RELOAD, "Memory lent to each tenant")            \
	X("limits", "tenant-connections", COUNT, tenant_connections, 1, 65536, \
	  "2048", "N", "", RELOAD, "Connections, and sessions, of each tenant") \
	X("limits", "patience", TIME, patience_ms, DCM_PATIENCE_MIN_MS,        \
	  DCM_PATIENCE_MAX_MS, "60s", "TIME", "", RELOAD,                      \
	  "Keep the memory of a silent host this long")                        \
	X("eviction", "extra", COUNT, evict_extra, 0, 100, "100",              \
	  "PERCENT", "", RELOAD,                                               \
	  "Ask the hosts of this many more slabs how active they are")         \
	X("eviction", "activity-timeout", TIME, activity_ms, 10, 60000,        \
	  "500ms", "TIME", "", RELOAD, "Wait this long for their answers")     \
	X("eviction", "evict-timeout", TIME, evict_ms, 100, 3600000, "30s",    \
	  "TIME", "", RELOAD, "Take a slab that was asked back after this time") \
	X("gc", "workers", COUNT, gc_workers, 0, 1024, "16",                   \
	  "N", "", RELOAD, "GC workers of all tenants; 0: none")               \
	X("gc", "tenant-workers", COUNT, gc_tenant_workers, 0, 1024, "0",      \
	  "N", "", RELOAD, "GC workers of each tenant; 0: a fair share")       \
	X("gc", "threads", COUNT, gc_threads, 0, 64, "0",                      \
	  "N", "", RELOAD, "Threads of each GC worker; 0: half the CPUs")      \
	X("gc", "memory", SIZE, gc_memory, 0, DCM_BYTES_MAX, "5%",             \
	  "SIZE", "", RELOAD, "Memory of each GC worker beside the slabs")     \
	X("gc", "worker", TEXT, gc_worker, 0, DCM_CONFIG_PATH_MAX - 1, "",     \
	  "FILE", "", RELOAD, "The GC worker's program")                       \
	X("http", "listen", TEXT, http, 0, DCM_CONFIG_PATH_MAX - 1, "off",     \
	  "ADDRESS:PORT|off", "http", RESTART,                                 \
	  "Serve /metrics, /status and /healthz at this address")              \
	X("http", "allow-remote", BOOL, http_allow_remote, 0, 0, "no",         \
	  "yes|no", "", RELOAD, "Allow an HTTP address other than loopback")

/* X(key, kind, field, min, max): of [tenant NAME]; without it that of [limits] or [gc] */
#define DCM_TENANT_OPTIONS(X)                                                  \
	X("bytes", SIZE, bytes, 0, DCM_BYTES_MAX)                              \
	X("connections", COUNT, connections, 1, 65536)                         \
	X("workers", COUNT, workers, 0, 1024)                                  \
	X("patience", TIME, patience_ms, DCM_PATIENCE_MIN_MS, DCM_PATIENCE_MAX_MS)
/* clang-format on */

#endif /* DCM_OPTIONS_H */
