// SPDX-License-Identifier: GPL-2.0-or-later
/* links: donor-daemon/config.c donor-daemon/tenant.c kvm-dcm/lib/file.c kvm-dcm/lib/ini.c kvm-dcm/lib/keyfile.c kvm-dcm/lib/value.c kvm-dcm/proto/wire.c */
/*
 * config_fuzz.c - the donor's configuration and key file on any text
 *
 * The first byte chooses which. A refusal must name the file and be one
 * line; what is accepted must be within the bounds the rest relies on.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../donor-daemon/config.h"
#include "../../donor-daemon/tenant.h"
#include "../framework/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void error_good(const char *err, const char *file)
{
	EXPECT(!strncmp(err, file, strlen(file)) && strlen(err) > 16);
	EXPECT(!strchr(err, '\n'));
}

static void fuzz_keys(const uint8_t *data, size_t size)
{
	struct dcm_tenants ts;
	struct dcm_tenant *t;
	char err[512] = "";
	char *text = malloc(size + 1);
	unsigned int n = 0;

	EXPECT(text != NULL);
	memcpy(text, data, size);
	dcm_tenants_init(&ts);
	if (dcm_tenants_parse(&ts, "FILE", text, size, err, sizeof(err))) {
		error_good(err, "key file FILE: ");
		EXPECT(dcm_list_empty(&ts.list));
	}
	dcm_list_for_each(t, &ts.list, struct dcm_tenant, node) {
		n++;
		EXPECT(strlen(t->name) >= 1 &&
		     strlen(t->name) <= DCM_WIRE_TENANT_MAX);
		EXPECT(t->key_bytes >= DCM_WIRE_KEY_MIN &&
		     t->key_bytes <= DCM_WIRE_KEY_MAX);
		EXPECT(dcm_tenant_find(&ts, t->name, strlen(t->name)) == t);
	}
	EXPECT(n <= DCM_TENANTS_MAX);
	dcm_tenants_free(&ts);
	free(text);
}

static void fuzz_config(const uint8_t *data, size_t size)
{
	struct dcm_config cfg;
	char err[512] = "";
	char *text = malloc(size ? size : 1);

	EXPECT(text != NULL);
	memcpy(text, data, size);
	dcm_config_init(&cfg);
	if (dcm_config_parse(&cfg, "FILE", text, size, err, sizeof(err))) {
		error_good(err, "FILE: ");
	} else if (!dcm_config_check(&cfg, err, sizeof(err))) {
		EXPECT(cfg.nr_listen <= DCM_CONFIG_LISTEN_MAX);
		EXPECT(cfg.threads <= 64);
		EXPECT(cfg.handshakes >= 1 && cfg.connections >= 1);
		EXPECT(cfg.slab_bytes >= DCM_WIRE_SLAB_MIN);
		EXPECT(!(cfg.slab_bytes & (cfg.slab_bytes - 1)));
		EXPECT(strlen(cfg.unix_path) < 108);
		EXPECT(cfg.nr_tenants <= DCM_TENANTS_MAX);
		for (uint32_t i = 0; i < cfg.nr_tenants; i++)
			EXPECT(dcm_config_tenant(&cfg, cfg.tenants[i].name) ==
			     &cfg.tenants[i]);
		EXPECT(dcm_size_bytes(&cfg.capacity, 1ull << 40) <= 1ull << 50);
	}
	dcm_config_free(&cfg);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size || size > 1 << 16)
		return 0;
	if (data[0] == 'K')
		fuzz_keys(data + 1, size - 1);
	else
		fuzz_config(data + 1, size - 1);
	return 0;
}
