// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/client/config.c kvm-dcm/lib/file.c kvm-dcm/lib/ini.c kvm-dcm/lib/keyfile.c kvm-dcm/lib/value.c kvm-dcm/client/redundancy.c */
/*
 * hostconf_fuzz.c - libFuzzer on libdcm's configuration and key readers
 *
 * What is accepted must keep what config.h promises; what is refused must say
 * why in one line.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../kvm-dcm/client/config.h"
#include "../framework/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void one_line(const char *err)
{
	EXPECT(err[0] && strlen(err) < DCM_ERR_MAX && !strchr(err, '\n'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct dcm_host_config cfg;
	char err[DCM_ERR_MAX], *text;
	struct dcm_key key;
	uint32_t i;

	if (size > DCM_CONFIG_FILE_MAX)
		return 0;
	text = malloc(size + 1);
	EXPECT(text != NULL);
	memcpy(text, data, size);
	text[size] = 0;
	if (!dcm_host_config_parse(text, size, &cfg, err)) {
		EXPECT(cfg.name[0] && !strchr(cfg.name, '/') &&
		     cfg.name[0] != '.');
		EXPECT(cfg.budget && cfg.lanes >= 1 && cfg.lanes <= 64);
		EXPECT((cfg.nr_donors >= 1 || cfg.donors_file[0]) &&
		     cfg.nr_donors <= DCM_CONFIG_DONORS_MAX);
		EXPECT(cfg.nr_donors == 64 || !(cfg.drained >> cfg.nr_donors));
		for (i = 0; i < cfg.nr_donors; i++)
			EXPECT(!strncmp(cfg.donor[i].address, "tcp:", 4) ||
			     !strncmp(cfg.donor[i].address, "unix:/", 6));
		EXPECT(cfg.nr_tunables <= DCM_CONFIG_TUNABLES_MAX);
		EXPECT(!(cfg.extent & (cfg.extent - 1)));
		EXPECT(cfg.transport != DCM_TRANSPORT_VERBS ||
		     !cfg.data_encryption);
	} else {
		one_line(err);
	}
	if (!dcm_hostd_config_parse(text, size, &cfg, err)) {
		EXPECT((cfg.nr_donors || cfg.donors_file[0]) &&
		     cfg.nr_mounts <= DCM_CONFIG_MOUNTS_MAX);
		for (i = 0; i < cfg.nr_mounts; i++)
			EXPECT(cfg.mount[i][0] == '/');
	} else {
		one_line(err);
	}
	/* the same once more, behind what there is */
	i = cfg.nr_donors = size % 3 ? cfg.nr_donors : 0;
	if (!dcm_host_donors_parse(text, size, &cfg, err))
		EXPECT(cfg.nr_donors >= i &&
		     cfg.nr_donors <= DCM_CONFIG_DONORS_MAX);
	else
		one_line(err);
	/* exactly its bytes: no terminator to lean on */
	text = realloc(text, size ? size : 1);
	EXPECT(text != NULL);
	if (!dcm_key_parse(text, size, size % 2 ? "lab" : NULL, &key, err))
		EXPECT(key.len >= DCM_KEY_MIN && key.len <= DCM_KEY_MAX &&
		       key.tenant[0]);
	else
		one_line(err);
	free(text);
	return 0;
}
