/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * options.h - libdcm's and dcm-hostd's options: name, kind, bounds, default
 *
 * config.c makes the parser, the bounds and the defaults from these lists. A new
 * option is a line here, a field in struct dcm_host_config, and its entries in the
 * manual page, in configs/, and in dcmctl's pager/settings.py, all of which
 * scripts/check-options demands. libdcm's file has sections [vm], [key], [donor
 * NAME] and [tunables]; in dcm-hostd's [host] replaces [vm].
 */
#ifndef DCM_CLIENT_OPTIONS_H
#define DCM_CLIENT_OPTIONS_H

/*
 * X(section, key, kind, field, min, max, default, choices)
 *
 * min, max: in bytes, milliseconds or the number itself; text fills its field.
 * default: as in a file; "": none.
 */
/* clang-format off */
#define DCM_HOST_OPTIONS(X)                                                    \
	X("vm", "name", NAME, name, 0, 0, "", NULL)                            \
	X("vm", "budget", SIZE, budget, 1 << 20, 1ull << 44, "", NULL)         \
	X("vm", "size", SIZE, size, 1 << 20, 1ull << 44, "64G", NULL)          \
	X("vm", "threshold", SIZE, threshold, 4096, 1ull << 44, "16M", NULL)   \
	X("vm", "mode", CHOICE, mode, 0, 0, "qemu", "qemu|program")            \
	X("vm", "lanes", COUNT, lanes, 1, 64, "2", NULL)                       \
	X("vm", "on-loss", CHOICE, on_loss, 0, 0, "pause", "pause|sigbus")     \
	X("vm", "redundancy", CHOICE, redundancy, 0, 0, "none",                \
	  "none|replica:2|replica:3|disk|disk:lazy|replica:2+disk")            \
	X("vm", "rebuild-rate", SIZE, rebuild_rate, 0, 1ull << 40, "200M", NULL) \
	X("vm", "scatter", COUNT, scatter, 1, 63, "4", NULL)                \
	X("vm", "disk-lag", SIZE, disk_lag, 0, 1ull << 40, "256M", NULL)       \
	X("vm", "cold-after", TIME, cold_after_ms, 1000, 86400000, "10min", NULL) \
	X("vm", "extent", SIZE, extent, 0, 1ull << 40, "0", NULL)              \
	X("vm", "data-encryption", BOOL, data_encryption, 0, 0, "yes", NULL)   \
	X("vm", "seal", BOOL, seal, 0, 0, "no", NULL)                          \
	X("vm", "transport", CHOICE, transport, 0, 0, "auto", "auto|tcp|verbs") \
	X("vm", "patience", TIME, patience_ms, 1000, 86400000, "60s", NULL)    \
	X("vm", "donors", TEXT, donors_file, 0, 0, "", NULL)                   \
	X("host", "mount", MOUNT, mount, 0, 0, "", NULL)                       \
	X("host", "redundancy", CHOICE, redundancy, 0, 0, "none",              \
	  "none|replica:2|replica:3|disk|disk:lazy|replica:2+disk")            \
	X("host", "rebuild-rate", SIZE, rebuild_rate, 0, 1ull << 40, "200M", NULL) \
	X("host", "scatter", COUNT, scatter, 1, 63, "4", NULL)              \
	X("host", "disk-lag", SIZE, disk_lag, 0, 1ull << 40, "256M", NULL)     \
	X("host", "cold-after", TIME, cold_after_ms, 1000, 86400000, "10min", NULL) \
	X("host", "data-encryption", BOOL, data_encryption, 0, 0, "yes", NULL) \
	X("host", "seal", BOOL, seal, 0, 0, "no", NULL)                        \
	X("host", "transport", CHOICE, transport, 0, 0, "auto", "auto|tcp|verbs") \
	X("host", "patience", TIME, patience_ms, 1000, 86400000, "60s", NULL)  \
	X("host", "donors", TEXT, donors_file, 0, 0, "", NULL)                 \
	X("key", "tenant", TENANT, tenant, 0, 0, "", NULL)                     \
	X("key", "file", TEXT, key_file, 0, 0, "", NULL)

/* X(key, function): of [donor NAME]; the function checks and stores the value */
#define DCM_DONOR_OPTIONS(X)                                                   \
	X("address", donor_address_set)                                        \
	X("status", donor_status_set)                                          \
	X("drain", donor_drain_set)                                            \
	X("group", donor_group_set)
/* clang-format on */

#endif /* DCM_CLIENT_OPTIONS_H */
