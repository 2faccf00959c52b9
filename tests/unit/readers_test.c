// SPDX-License-Identifier: GPL-2.0-or-later
/* readers_test.c - the lines, values, names and keys that all daemons read */
/* links: kvm-dcm/lib/file.c kvm-dcm/lib/ini.c kvm-dcm/lib/keyfile.c kvm-dcm/lib/value.c donor-daemon/config.c donor-daemon/tenant.c kvm-dcm/client/config.c kvm-dcm/client/redundancy.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../donor-daemon/tenant.h"
#include "../../kvm-dcm/client/config.h"

#define KEY "00112233445566778899aabbccddeeff"
#define NR(a) (sizeof(a) / sizeof((a)[0]))

static char err[DCM_ERR_MAX];

static const struct {
	const char *name;
	bool good;
} names[] = {
#define GOOD(s) { s, true },
#define BAD(s) { s, false },
#include "tenant_names.h"
};

static void test_tenant_names(void **state)
{
	(void)state;
	for (size_t i = 0; i < NR(names); i++)
		if (dcm_tenant_valid(names[i].name, strlen(names[i].name)) !=
		    names[i].good)
			fail_msg("'%s'", names[i].name);
	assert_false(dcm_tenant_valid("a\0b", 3));
	assert_true(dcm_tenant_valid("a b", 1));
}

/* Both daemons refuse a name in the same words, with the file and the line. */
static void test_tenant_refused(void **state)
{
	static const char keys[] = "# keys\nlab:" KEY "\na@b:" KEY "\n";
	static const char host[] = "[key]\ntenant = a@b\n";
	static const char donor[] = "[donor]\n\n[tenant a@b]\nbytes = 1G\n";
	static struct dcm_host_config h;
	char path[] = "/tmp/dcm-keys-XXXXXX", want[160];
	struct dcm_tenants ts;
	struct dcm_config d;
	struct dcm_key key;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, keys, strlen(keys)), strlen(keys));
	close(fd);
	snprintf(want, sizeof(want), "key file %s: line 3: " DCM_TENANT_RULE,
		 path);
	assert_int_equal(dcm_key_load(path, "lab", &key, err), -EINVAL);
	assert_string_equal(err, want);
	dcm_tenants_init(&ts);
	assert_int_equal(dcm_tenants_load(&ts, path, err, sizeof(err)),
			 -EINVAL);
	assert_string_equal(err, want);
	assert_true(dcm_list_empty(&ts.list));
	unlink(path);

	assert_int_equal(dcm_host_config_parse(host, strlen(host), &h, err),
			 -EINVAL);
	assert_string_equal(err, "line 2: tenant = a@b: " DCM_TENANT_RULE);
	dcm_config_init(&d);
	assert_int_equal(dcm_config_parse(&d, "FILE", donor, strlen(donor), err,
					  sizeof(err)),
			 -EINVAL);
	assert_string_equal(err,
			    "FILE: line 4: [tenant a@b]: " DCM_TENANT_RULE);
	dcm_config_free(&d);
}

static void test_keys_twice(void **state)
{
	static const char twice[] = "lab:" KEY "\nx:" KEY "\nlab:" KEY "\n";
	static const char other[] = "lab:" KEY "\nla:" KEY "\nlab2:" KEY "\n";
	struct dcm_key key;

	(void)state;
	assert_int_equal(dcm_key_parse(twice, strlen(twice), "x", &key, err),
			 -EINVAL);
	assert_string_equal(err, "line 3: the tenant has a line already");
	assert_int_equal(dcm_key_parse(other, strlen(other), "la", &key, err),
			 0);
}

static char read_out[512];

static int on_key(void *arg, const char *section, const char *key,
		  const char *value, char *why)
{
	size_t len = strlen(read_out);

	(void)arg;
	if (!strcmp(key, "no")) {
		snprintf(why, DCM_ERR_MAX, "no is not for %s", section);
		return -EINVAL;
	}
	snprintf(read_out + len, sizeof(read_out) - len, "[%s]%s=%s|", section,
		 key, value);
	return 0;
}

static void test_ini(void **state)
{
	static const struct {
		const char *text;
		const char *want; /* settings, or an error */
	} cases[] = {
		{ "", "" },
		{ "a=1", "[]a=1|" },
		{ "[s]\na = 1\r\nb\t=\t2 3 \n", "[s]a=1|[s]b=2 3|" },
		{ "[donor a b] ; x\na==\nb=", "[donor a b]a==|[donor a b]b=|" },
		{ "a=1 ; x\nb=1;x\nc= ;x\n", "[]a=1|[]b=1;x|[]c=|" },
		{ "# a=1\n;a=1\n  # x\n\t; x\n \t\r\n\na=#1\n", "[]a=#1|" },
		{ "a:1\n", "line 1: neither [section] nor key = value" },
		{ "a\n", "line 1: neither [section] nor key = value" },
		{ "=1\n", "line 1: neither [section] nor key = value" },
		{ "[a\nb=1\n", "line 1: neither [section] nor key = value" },
		{ "[a]b=1\n", "line 1: neither [section] nor key = value" },
		{ "a=1\n b=1\n", "line 2: begins with white space" },
		{ "a=1\n\v\n", "line 2: has a byte that is not text" },
		{ "[s]\nno=1\na\n", "line 2: no is not for s" },
		{ "\xef\xbb\xbf[s]\n",
		  "line 1: neither [section] nor key = value" },
	};
	char line[DCM_INI_LINE_MAX + 8];

	(void)state;
	for (size_t i = 0; i < NR(cases); i++) {
		size_t len = strlen(cases[i].text);
		char *exact = malloc(len ? len : 1);
		int ret;

		assert_non_null(exact);
		memcpy(exact, cases[i].text, len);
		read_out[0] = 0;
		ret = dcm_ini_parse(exact, len, on_key, NULL, err);
		free(exact);
		assert_int_equal(ret, strncmp(cases[i].want, "line ", 5) ?
					      0 :
					      -EINVAL);
		assert_string_equal(ret ? err : read_out, cases[i].want);
	}
	assert_int_equal(dcm_ini_parse("a\0=1", 4, on_key, NULL, err), -EINVAL);
	assert_string_equal(err, "line 1: has a byte that is not text");
	memset(line, 'x', sizeof(line));
	line[0] = '[';
	line[DCM_INI_LINE_MAX - 1] = ']';
	assert_int_equal(dcm_ini_parse(line, DCM_INI_LINE_MAX, on_key, NULL,
				       err),
			 0);
	assert_int_equal(dcm_ini_parse(line, DCM_INI_LINE_MAX + 1, on_key, NULL,
				       err),
			 -EINVAL);
	assert_string_equal(err, "line 1: longer than 190 bytes");
}

/* A long name is used whole, or refused: 43 characters were its first ones once. */
static void test_long_names(void **state)
{
	static const char format[] =
		"[donor %s]\naddress = tcp:h:1\n[donor %s2]\naddress = tcp:h:2\n";
	static struct dcm_host_config cfg;
	char name[80], text[300];

	(void)state;
	for (unsigned int len = 43; len <= DCM_NAME_MAX; len++) {
		bool fits = len < DCM_NAME_MAX;

		memset(name, 'n', len);
		name[len] = 0;
		snprintf(text, sizeof(text), format, name, name);
		memset(&cfg, 0, sizeof(cfg));
		assert_int_equal(dcm_host_donors_parse(text, strlen(text), &cfg,
						       err),
				 fits ? 0 : -EINVAL);
		if (fits) {
			assert_int_equal(cfg.nr_donors, 2);
			assert_string_equal(cfg.donor[0].name, name);
		} else {
			assert_non_null(strstr(err, "line 4: [donor nnn"));
			assert_non_null(strstr(err, DCM_NAME_RULE));
		}
	}
}

static void test_values(void **state)
{
	static const struct {
		const char *text;
		int64_t want; /* -1: refused */
	} sizes[] = {
		{ "0", 0 },
		{ "4096", 4096 },
		{ "64K", 65536 },
		{ "64k", 65536 },
		{ "1G", 1 << 30 },
		{ "1GiB", 1 << 30 },
		{ "2miB", 2 << 20 },
		{ "1T", 1ll << 40 },
		{ "", -1 },
		{ "K", -1 },
		{ "1KB", -1 },
		{ "1iB", -1 },
		{ "1Gi", -1 },
		{ "1GiBx", -1 },
		{ "1 G", -1 },
		{ " 1", -1 },
		{ "-1", -1 },
		{ "+1", -1 },
		{ "0x10", -1 },
		{ "1.5G", -1 },
		{ "1@", -1 },
		{ "16777216T", -1 },
		{ "18446744073709551616", -1 },
	};
	static const struct {
		const char *text;
		int want; /* -1: refused */
	} bools[] = {
		{ "yes", 1 }, { "true", 1 }, { "on", 1 },  { "1", 1 },
		{ "no", 0 },  { "false", 0 }, { "off", 0 }, { "0", 0 },
		{ "", -1 },   { "2", -1 },   { "y", -1 },  { "01", -1 },
	};
	uint64_t v;
	bool b;

	(void)state;
	for (size_t i = 0; i < NR(sizes); i++) {
		int ret = dcm_size_parse(sizes[i].text, &v);

		if (ret != (sizes[i].want < 0 ? -EINVAL : 0) ||
		    (!ret && v != (uint64_t)sizes[i].want))
			fail_msg("'%s': %d", sizes[i].text, ret);
	}
	for (size_t i = 0; i < NR(bools); i++) {
		int ret = dcm_bool_parse(bools[i].text, &b);

		if (ret != (bools[i].want < 0 ? -EINVAL : 0) ||
		    (!ret && b != bools[i].want))
			fail_msg("'%s': %d", bools[i].text, ret);
	}
	assert_int_equal(dcm_count_parse("64K", &v), -EINVAL);
	assert_int_equal(dcm_time_parse("2min", &v), 0);
	assert_int_equal(v, 120000);
	assert_int_equal(dcm_time_parse("2", &v), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tenant_names),
		cmocka_unit_test(test_tenant_refused),
		cmocka_unit_test(test_keys_twice),
		cmocka_unit_test(test_ini),
		cmocka_unit_test(test_long_names),
		cmocka_unit_test(test_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
