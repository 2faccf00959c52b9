// SPDX-License-Identifier: GPL-2.0-or-later
/* hostconf_test.c - libdcm's configuration and key files */
/* links: kvm-dcm/client/config.c kvm-dcm/lib/file.c kvm-dcm/lib/ini.c kvm-dcm/lib/keyfile.c kvm-dcm/lib/value.c kvm-dcm/client/redundancy.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../kvm-dcm/client/config.h"

#define GOOD                                                               \
	"[vm]\nname = web1\nbudget = 256M\nsize=8G ; what it may grow to\n" \
	"mode=program\nlanes=3\non-loss=sigbus\ndata-encryption=no\n"       \
	"redundancy=replica:2\nseal=yes\n"                                   \
	"[donor a]\naddress = tcp:127.0.0.1:7000\n"                        \
	"[donor b.2]\naddress=unix:/run/b.sock\n"                          \
	"[key]\ntenant=lab\nfile=/etc/k\n"                                 \
	"[tunables]\nepsilon=100\nlargest_block=64K\nelastic=no\n"

static struct dcm_host_config cfg;
static char err[DCM_ERR_MAX];

static int parse(const char *text)
{
	return dcm_host_config_parse(text, strlen(text), &cfg, err);
}

/* RDMA is not encrypted: transport = verbs alone does not turn it on. */
static void test_transport(void **state)
{
	static const char rest[] =
		"[donor a]\naddress=tcp:h:1\n[key]\nfile=k\n";
	static const struct {
		const char *lines;
		int want;	/* -1: refused */
	} cases[] = {
		{ "", DCM_TRANSPORT_AUTO },
		{ "transport=auto\n", DCM_TRANSPORT_AUTO },
		{ "transport=tcp\n", DCM_TRANSPORT_TCP },
		{ "transport=verbs\n", -1 },
		{ "transport=verbs\ndata-encryption=yes\n", -1 },
		{ "transport=verbs\nseal=no\n", -1 },
		{ "transport=verbs\nseal=yes\n", DCM_TRANSPORT_VERBS },
		{ "transport=verbs\ndata-encryption=no\n",
		  DCM_TRANSPORT_VERBS },
		{ "data-encryption=no\ntransport=verbs\n",
		  DCM_TRANSPORT_VERBS },
		{ "transport=\n", -1 },
		{ "transport=verb\n", -1 },
		{ "transport=verbss\n", -1 },
		{ "transport=auto|tcp\n", -1 },
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "[vm]\nname=x\nbudget=1M\n%s%s",
			 cases[i].lines, rest);
		assert_int_equal(parse(text), cases[i].want < 0 ? -EINVAL : 0);
		if (cases[i].want >= 0)
			assert_int_equal(cfg.transport, cases[i].want);
	}
}

static void test_patience(void **state)
{
	static const struct {
		const char *line;
		uint64_t want;	/* 0: refused */
	} cases[] = {
		{ "", 60000 },
		{ "patience=1s\n", 1000 },
		{ "patience=1500ms\n", 1500 },
		{ "patience=2min\n", 120000 },
		{ "patience=1440min\n", 86400000 },
		{ "patience=1441min\n", 0 },
		{ "patience=999ms\n", 0 },
		{ "patience=60\n", 0 },
		{ "patience=s\n", 0 },
		{ "patience=\n", 0 },
		{ "patience=1h\n", 0 },
		{ "patience=-1s\n", 0 },
		{ "patience=1 s\n", 0 },
		{ "patience=18446744073709551615min\n", 0 },
		{ "patience=307445734561825861min\n", 0 },
		{ "patience=1s\npatience=1s\n", 0 },
	};
	static const char rest[] =
		"[donor a]\naddress=tcp:h:1\n[key]\nfile=k\n";
	char text[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "[vm]\nname=x\nbudget=1M\n%s%s",
			 cases[i].line, rest);
		assert_int_equal(parse(text), cases[i].want ? 0 : -EINVAL);
		if (cases[i].want)
			assert_int_equal(cfg.patience_ms, cases[i].want);
	}
}

static void test_good(void **state)
{
	(void)state;
	assert_int_equal(parse(GOOD), 0);
	assert_string_equal(cfg.name, "web1");
	assert_int_equal(cfg.budget, 256 << 20);
	assert_int_equal(cfg.size, 8ull << 30);
	assert_int_equal(cfg.mode, DCM_MODE_PROGRAM);
	assert_int_equal(cfg.lanes, 3);
	assert_int_equal(cfg.on_loss, DCM_ON_LOSS_SIGBUS);
	assert_int_equal(cfg.redundancy, DCM_REDUNDANCY_REPLICA_2);
	assert_false(cfg.data_encryption);
	assert_true(cfg.seal);
	assert_int_equal(cfg.transport, DCM_TRANSPORT_AUTO);
	assert_int_equal(cfg.extent, 0);
	assert_int_equal(cfg.nr_donors, 2);
	assert_string_equal(cfg.donor[1].name, "b.2");
	assert_string_equal(cfg.donor[1].address, "unix:/run/b.sock");
	assert_string_equal(cfg.tenant, "lab");
	assert_string_equal(cfg.key_file, "/etc/k");
	assert_int_equal(cfg.nr_tunables, 3);
	assert_string_equal(cfg.tunable[1].name, "largest_block");
	assert_int_equal(cfg.tunable[1].value, 65536);
	assert_int_equal(cfg.tunable[2].value, 0);
	/* defaults */
	assert_int_equal(parse("[vm]\nname=x\nbudget=1M\n[donor a]\n"
			       "address=tcp:h:1\n[key]\nfile=k\n"),
			 0);
	assert_int_equal(cfg.mode, DCM_MODE_QEMU);
	assert_int_equal(cfg.redundancy, DCM_REDUNDANCY_NONE);
	assert_int_equal(cfg.lanes, 2);
	assert_true(cfg.data_encryption);
	assert_false(cfg.seal);
	assert_int_equal(cfg.size, 64ull << 30);
}

static void test_bad(void **state)
{
	static const struct {
		const char *text;
		const char *says;
	} bad[] = {
		{ "", "budget= is missing" },
		{ "[vm]\nnme=x\n", "line 2: unknown key 'nme' in [vm]" },
		{ "[vm]\nname=x\n\n[dnor a]\naddress=tcp:a:1\n",
		  "line 5: unknown section [dnor a]" },
		{ "name=x\n", "line 1: unknown section []" },
		{ "[vm]\nname=../x\n", "line 2: name" },
		{ "[vm]\nname=.x\n", "line 2: name" },
		{ "[vm]\nname=x\nname=y\n", "line 3: name is there twice" },
		{ "[vm]\nbudget=1Q\n", "line 2: budget" },
		{ "[vm]\nbudget=-1\n", "line 2: budget" },
		{ "[vm]\nbudget=99999999999999999999\n", "line 2: budget" },
		{ "[vm]\nbudget=16777216T\n", "line 2: budget" },
		{ "[vm]\nbudget=0\n", "line 2: budget" },
		{ "[vm]\nlanes=65\n", "line 2: lanes" },
		{ "[vm]\nmode=qemux\n", "line 2: mode: must be one of" },
		{ "[vm]\nmode\n", "line 2: neither" },
		{ "[vm\nname=x\n", "line 1: neither" },
		{ "[vm]\n name=x\n", "line 2: begins with white space" },
		{ "[vm]\nname=x\001\n", "line 2: has a byte" },
		{ "[donor a]\naddress=udp:h:1\n", "line 2: address" },
		{ "[donor a]\naddress=tcp:h:0\n", "line 2: address" },
		{ "[donor a]\naddress=tcp::1\n", "line 2: address" },
		{ "[donor a]\naddress=tcp:h:65536\n", "line 2: address" },
		{ "[donor a]\naddress=unix:rel\n", "line 2: address" },
		{ "[donor a]\nadress=tcp:h:1\n", "line 2: unknown key" },
		{ "[donor ]\naddress=tcp:h:1\n", "line 2:" },
		/* tests/dcmctl/test_dcmctl_values.py has the next five too */
		{ " [donor a]\naddress=tcp:h:1\n", "line 1: begins with" },
		{ "[ donor a ]\naddress=tcp:h:1\n", "line 2: unknown section" },
		{ "[donor a ]\naddress=tcp:h:1\n", "line 2: [donor a ]" },
		{ "[donor\ta]\naddress=tcp:h:1\n", "line 2: unknown section" },
		{ "[donor a];b\naddress=tcp:h:1\n", "line 1: neither" },
		{ "[donor a]\naddress=tcp:h:1\naddress=tcp:h:2\n",
		  "line 3: a second address" },
		{ "[tunables]\nx=y\n", "line 2: x: not a number" },
		{ "[tunables]\nx=1\nx=1\n", "line 3: x is there twice" },
		{ "[vm]\nname=x\nbudget=1M\nextent=3M\n[donor a]\n"
		  "address=tcp:h:1\n[key]\nfile=k\n",
		  "power of two" },
		{ "[vm]\nname=x\nbudget=1M\n[key]\nfile=k\n", "no [donor" },
		{ "[vm]\nname=x\nbudget=1M\n[donor a]\naddress=tcp:h:1\n",
		  "[key] file= is missing" },
	};
	char text[400];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parse(bad[i].text), -EINVAL);
		if (!strstr(err, bad[i].says))
			fail_msg("%s: said '%s', not '%s'", bad[i].text, err,
				 bad[i].says);
	}
	/* longer than a line may be */
	memset(text, 'a', sizeof(text));
	memcpy(text, "[key]\nfile=", 11);
	text[390] = 0;
	assert_int_equal(parse(text), -EINVAL);
	assert_non_null(strstr(err, "line 2: longer"));
}

static void test_hostd(void **state)
{
#define REST "[donor a]\naddress=unix:/a\n[key]\nfile=k\n"
	static const struct {
		const char *text;
		const char *says;
	} bad[] = {
		{ "[vm]\nbudget=1M\n",
		  "line 2: unknown section [vm]; there are [host]" },
		{ "[host]\nmount=mnt\n", "line 2: mount: must be a path" },
		{ "[host]\nmunt=/mnt\n",
		  "line 2: unknown key 'munt' in [host]" },
		{ "[host]\nmount=/mnt\n", "no [donor" },
		{ "[host]\ntransport=tcp\ntransport=tcp\n",
		  "line 3: transport is there twice" },
		{ "[host]\ntransport=verbs\n" REST,
		  "[host] transport = verbs: RDMA is not encrypted" },
		{ "[host]\nseal=aes\n", "line 2: seal: must be yes or no" },
		{ "[host]\nmount=/1\nmount=/2\nmount=/3\nmount=/4\nmount=/5\n"
		  "mount=/6\nmount=/7\nmount=/8\nmount=/9\n",
		  "line 10: more than 8 mounts" },
	};
	const char *good = "[host]\nmount = /mnt/dcm\nmount=/x\n"
			   "data-encryption = no\ntransport = verbs\n" REST
			   "[tunables]\nepsilon=7\n";
	const char *sealed = "[host]\nseal = yes\ntransport = verbs\n" REST;
	size_t i;

	(void)state;
	assert_int_equal(dcm_hostd_config_parse(sealed, strlen(sealed), &cfg,
						err),
			 0);
	assert_true(cfg.seal);
	assert_true(cfg.data_encryption);
	assert_int_equal(dcm_hostd_config_parse(good, strlen(good), &cfg, err),
			 0);
	assert_false(cfg.seal);
	assert_int_equal(cfg.nr_mounts, 2);
	assert_string_equal(cfg.mount[0], "/mnt/dcm");
	assert_string_equal(cfg.mount[1], "/x");
	assert_int_equal(cfg.nr_donors, 1);
	assert_int_equal(cfg.tunable[0].value, 7);
	assert_false(cfg.data_encryption);
	assert_int_equal(cfg.transport, DCM_TRANSPORT_VERBS);
	assert_int_equal(dcm_hostd_config_parse(REST, strlen(REST), &cfg, err),
			 0);
	assert_int_equal(cfg.nr_mounts, 0);
	assert_true(cfg.data_encryption);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(dcm_hostd_config_parse(bad[i].text,
							strlen(bad[i].text),
							&cfg, err),
				 -EINVAL);
		if (!strstr(err, bad[i].says))
			fail_msg("%s: said '%s', not '%s'", bad[i].text, err,
				 bad[i].says);
	}
	/* and libdcm refuses the section */
	assert_int_equal(parse(good), -EINVAL);
	assert_non_null(strstr(err, "line 2: unknown section [host]"));
}

static void test_more_donors(void **state)
{
	static const char first[] =
		"[host]\ndonors = /run/more\n[key]\nfile=k\n"
		"[donor a]\naddress=tcp:h:1\nstatus = h:2\ndrain = yes\n";
	static const char none[] =
		"[host]\ndonors = /run/more\n[key]\nfile=k\n";
	static const char more[] = "[donor a]\naddress=tcp:other:1\ndrain=no\n"
				   "group=x\n[donor b]\naddress=unix:/b\n"
				   "group = rack.2\n";
	static const struct {
		const char *text;
		const char *says;
	} bad[] = {
		{ "[key]\nfile=k\n", "line 2: only [donor NAME] sections" },
		{ "[donor b]\ndrain=yes\n", "line 2: drain: address=" },
		{ "[donor b]\naddress=unix:/b\ndrain=so\n",
		  "line 3: drain: must be yes or no" },
		{ "[donor b]\ngroup=g\n", "line 2: group: address=" },
		{ "[donor b]\naddress=unix:/b\ngroup=@g\n",
		  "line 3: group: must be 1 to 63 letters" },
		{ "[donor b]\naddress=unix:/b\naddress=unix:/b\n",
		  "line 3: a second address" },
	};
	size_t i;

	(void)state;
	assert_int_equal(dcm_hostd_config_parse(first, strlen(first), &cfg,
						err),
			 0);
	assert_int_equal(cfg.drained, 1);
	assert_string_equal(cfg.donors_file, "/run/more");
	/* none of its own: then that file may have some */
	assert_int_equal(dcm_hostd_config_parse(none, strlen(none), &cfg, err),
			 0);
	assert_int_equal(cfg.nr_donors, 0);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		dcm_hostd_config_parse(first, strlen(first), &cfg, err);
		assert_int_equal(dcm_host_donors_parse(bad[i].text,
						       strlen(bad[i].text),
						       &cfg, err),
				 -EINVAL);
		if (!strstr(err, bad[i].says))
			fail_msg("%s: said '%s', not '%s'", bad[i].text, err,
				 bad[i].says);
	}
	dcm_hostd_config_parse(first, strlen(first), &cfg, err);
	assert_int_equal(dcm_host_donors_parse(more, strlen(more), &cfg, err),
			 0);
	assert_int_equal(cfg.nr_donors, 2);
	assert_string_equal(cfg.donor[0].address, "tcp:h:1");
	assert_string_equal(cfg.donor[1].address, "unix:/b");
	assert_string_equal(cfg.donor[0].group, "");
	assert_string_equal(cfg.donor[1].group, "rack.2");
	assert_int_equal(cfg.drained, 1);
}

static void test_many_donors(void **state)
{
	char *text = malloc(65536);
	size_t len = 0;
	int i;

	(void)state;
	for (i = 0; i < 65; i++)
		len += (size_t)snprintf(text + len, 65536 - len,
					"[donor d%d]\naddress=tcp:h:1\n", i);
	assert_int_equal(parse(text), -EINVAL);
	assert_non_null(strstr(err, "more than 64 donors"));
	free(text);
}

static void test_key_text(void **state)
{
	static const char *const bad[] = {
		"lab",
		"lab:",
		"lab:zz",
		":00112233445566778899aabbccddeeff",
		"lab:00112233445566778899aabbccddee", /* 15 bytes */
		"lab:00112233445566778899aabbccddeef",
		"l b:00112233445566778899aabbccddeeff",
		("lab:00112233445566778899aabbccddeeff\n"
		 "lab:00112233445566778899aabbccddeeff"),
		"lab:00112233445566778899aabbccddeeff\njunk",
	};
	const char *two = "# keys\n\nlab:00112233445566778899AABBccddeeff\r\n"
			  "x:ffffffffffffffffffffffffffffffff";
	struct dcm_key k;
	size_t i;

	(void)state;
	assert_int_equal(dcm_key_parse(two, strlen(two), "lab", &k, err), 0);
	assert_string_equal(k.tenant, "lab");
	assert_int_equal(k.len, 16);
	assert_int_equal(k.key[15], 0xff);
	assert_int_equal(k.key[1], 0x11);
	assert_int_equal(dcm_key_parse(two, strlen(two), "x", &k, err), 0);
	assert_int_equal(dcm_key_parse(two, strlen(two), NULL, &k, err),
			 -EINVAL);
	assert_int_equal(dcm_key_parse(two, strlen(two), "y", &k, err),
			 -ENOENT);
	assert_int_equal(k.len, 0);
	assert_int_equal(dcm_key_parse("", 0, NULL, &k, err), -ENOENT);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(dcm_key_parse(bad[i], strlen(bad[i]), "lab",
					       &k, err),
				 -EINVAL);
	/* no byte behind the end is looked at */
	assert_int_equal(dcm_key_parse(two, 30, "lab", &k, err), -EINVAL);
}

static void test_key_file(void **state)
{
	char path[] = "/tmp/dcm-key-XXXXXX";
	int fd = mkstemp(path);
	struct dcm_key k;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "lab:00112233445566778899aabbccddeeff\n",
			       37),
			 37);
	assert_int_equal(fchmod(fd, 0640), 0);
	assert_int_equal(dcm_key_load(path, "lab", &k, err), -EACCES);
	assert_non_null(strstr(err, "chmod 600"));
	assert_int_equal(fchmod(fd, 0600), 0);
	assert_int_equal(dcm_key_load(path, "", &k, err), 0);
	assert_string_equal(k.tenant, "lab");
	dcm_key_wipe(&k);
	assert_int_equal(k.len, 0);
	close(fd);
	unlink(path);
	assert_int_equal(dcm_key_load(path, "lab", &k, err), -ENOENT);
	assert_non_null(strstr(err, path));
	assert_true(dcm_key_load("/", "lab", &k, err) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_transport),
		cmocka_unit_test(test_patience),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_hostd),
		cmocka_unit_test(test_more_donors),
		cmocka_unit_test(test_many_donors),
		cmocka_unit_test(test_key_text),
		cmocka_unit_test(test_key_file),
	};

	return cmocka_run_group_tests_name("hostconf", tests, NULL, NULL);
}
