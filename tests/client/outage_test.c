// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * outage_test.c - donors and hosts that are killed, stopped and continued
 *
 * A donor that dies is lost at once, but for its slabs of shm; one that is silent
 * after the host's patience. A pause that is shorter loses nothing; the time in which a host
 * itself was stopped does not count.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "two.h"
#include "../framework/orphan.h"
#include "../framework/thread.h"

/* the same, with a patience of 3 s */
static const char *const hasty[] = { DONOR_SMALL, "--set", "limits.patience=3s",
				     NULL };

static void test_killed_tcp(void **state)
{
	static u8 buf[PAGE];
	struct two t;
	u32 e, mine;
	u64 since;

	(void)state;
	two_start(&t, false);
	two_fill(&t, 6);
	mine = on_donor(&t.h, 6, 0);
	assert_in_range(mine, 1, 5);
	since = now_ms();
	donor_signal(&t.d[0], SIGKILL);
	WAIT(get(&t.h, &t.h.losts) == mine);
	printf("a donor that died was lost after %llu ms\n",
	       (unsigned long long)(now_ms() - since));
	assert_int_equal(logged(&t.h, "nothing listens at its address"), 1);
	for (e = 0; e < 6; e++) {
		if (t.h.slab[e]->donor) {
			assert_int_equal(t.h.lost_of[e], 0);
			check_slab(&t.h, t.h.slab[e], e, 1);
			continue;
		}
		assert_int_equal(t.h.lost_of[e], 1);
		assert_string_equal(t.h.lost_name[e], "a");
		assert_int_equal(io(&t.h, t.h.slab[e], DCM_IO_READ, 0, PAGE,
				    buf),
				 -ESTALE);
	}
	assert_int_equal(logged(&t.h, "is lost"), 1);
	assert_int_equal(logged(&t.h, "silent for"), 0);
	WAIT(status(&t.h, 0).state == DCM_DONOR_LOST);
	/* lost extents get new slabs, from the other */
	for (e = 0; e < 6; e++)
		if (!t.h.slab[e]->donor) {
			dcm_client_release(t.h.client, t.h.slab[e]);
			t.h.slab[e] = NULL;
		}
	want(&t.h, 0, 6);
	WAIT(get(&t.h, &t.h.attached) == 6 + mine);
	assert_int_equal(on_donor(&t.h, 6, 1), 6);
	assert_int_equal(get(&t.h, &t.h.losts), mine);
	two_end(&t);
}

/* Slabs of shm are memory of this host: they outlive their donor, and move. */
static void test_killed_shm(void **state)
{
	struct two t;
	u32 e, mine;

	(void)state;
	two_start(&t, true);
	two_fill(&t, 8);
	mine = on_donor(&t.h, 8, 0);
	assert_in_range(mine, 1, 7);
	t.h.other = true;
	donor_signal(&t.d[0], SIGKILL);
	WAIT(status(&t.h, 0).state == DCM_DONOR_LOST);
	assert_int_equal(logged(&t.h, "nothing is lost"), 1);
	while (status(&t.h, 0).slabs) {
		moved_release(&t.h, 8);
		usleep(20000);
	}
	assert_int_equal(get(&t.h, &t.h.evicts), mine);
	assert_int_equal(get(&t.h, &t.h.losts), 0);
	assert_int_equal(on_donor(&t.h, 8, 1), 8);
	for (e = 0; e < 8; e++)
		check_slab(&t.h, t.h.slab[e], e, 1);
	two_end(&t);
}

/* A donor listens at @path alone, and lends a host @nr slabs. */
static void only_start(struct host *h, struct donor *d, const char *path,
		       u32 nr)
{
	char address[108];

	snprintf(address, sizeof(address), "unix:%s", path);
	donor_start(d, path, -1, host_keys, donor_small);
	host_donor(h, "only", address);
	host_start(h);
	want(h, 0, nr);
	WAIT(get(h, &h->attached) == nr);
}

/* A donor dies, no other has room: its slabs stay in use; then it is replaced. */
static void test_orphans_wait_for_room(void **state)
{
	struct dcm_client_donor_status st;
	struct host h = { .other = true };
	struct donor d;
	char path[100];
	u32 e;

	(void)state;
	snprintf(path, sizeof(path), "%s/only.sock", host_dir);
	only_start(&h, &d, path, 6);
	for (e = 0; e < 6; e++)
		write_extent(&h, e, 1);
	donor_signal(&d, SIGKILL);
	WAIT(status(&h, 0).orphans == 6);
	st = status(&h, 0);
	assert_int_equal(st.state, DCM_DONOR_LOST);
	assert_int_equal(st.orphans_waiting, 6);
	for (e = 0; e < 6; e++) {
		check_slab(&h, h.slab[e], e, 1);
		write_extent(&h, e, 1);
	}
	assert_int_equal(get(&h, &h.evicts), 0);
	/* one that was cut is lost, and only that one */
	assert_int_equal(ftruncate(h.slab[5]->ref.fd, 0), 0);
	assert_int_equal(io(&h, h.slab[5], DCM_IO_WRITE, 0, PAGE,
			    (u8[PAGE]){ 0 }),
			 -ESTALE);
	WAIT(get(&h, &h.losts) == 1);
	assert_int_equal(h.lost_of[5], 1);
	dcm_client_release(h.client, h.slab[5]);
	h.slab[5] = NULL;
	/* another process at that address knows nothing of them: ids come again */
	donor_start(&d, path, -1, host_keys, donor_small);
	WAIT(status(&h, 0).state == DCM_DONOR_UP);
	while (status(&h, 0).orphans) {
		moved_release(&h, 5);
		usleep(20000);
	}
	for (e = 0; e < 5; e++)
		check_slab(&h, h.slab[e], e, 1);
	assert_int_equal(status(&h, 0).slabs, 5);
	assert_int_equal(get(&h, &h.losts), 1);
	host_stop(&h);
	donor_end(&d);
}

/* Close each connection after its first bytes, as a donor that ends meanwhile. */
static void *handshakes_cut(void *arg)
{
	int fd, sock = *(int *)arg;
	char buf[256];

	while ((fd = accept(sock, NULL, NULL)) >= 0) {
		if (read(fd, buf, sizeof(buf)) < 0)
			perror("read");
		close(fd);
	}
	return NULL;
}

static void
test_a_donor_that_ends_in_a_handshake_is_not_a_wrong_key(void **state)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct host h = { 0 };
	struct donor d;
	char path[100];
	pthread_t thread;
	int sock;

	(void)state;
	snprintf(path, sizeof(path), "%s/cut.sock", host_dir);
	only_start(&h, &d, path, 1);
	donor_signal(&d, SIGKILL);
	unlink(path);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(sock, (struct sockaddr *)&sun, sizeof(sun)), 0);
	assert_int_equal(listen(sock, 8), 0);
	assert_int_equal(pthread_create(&thread, NULL, handshakes_cut, &sock),
			 0);
	WAIT(strstr(status(&h, 0).why, "no longer knows the key"));
	assert_int_equal(logged(&h, "compare our key file"), 0);
	host_stop(&h);
	shutdown(sock, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(sock);
	donor_end(&d);
}

static void test_restarted(void **state)
{
	struct donor d;
	struct host h = { 0 };
	int port;

	(void)state;
	donor_start(&d, NULL, 0, host_keys, donor_small);
	port = atoi(strrchr(d.tcp, ':') + 1);
	host_donor(&h, "a", d.tcp);
	host_start(&h);
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 2);
	write_extent(&h, 0, 1);
	donor_signal(&d, SIGKILL);
	donor_start(&d, NULL, port, host_keys, donor_small);
	WAIT(get(&h, &h.losts) == 2);
	assert_int_equal(logged(&h, "not heard of"), 0);
	dcm_client_release(h.client, h.slab[0]);
	dcm_client_release(h.client, h.slab[1]);
	h.slab[0] = h.slab[1] = NULL;
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 4);
	write_extent(&h, 0, 5);
	check_slab(&h, h.slab[0], 0, 5);
	assert_int_equal(get(&h, &h.losts), 2);
	host_stop(&h);
	donor_end(&d);
}

static void test_stopped_short(void **state)
{
	struct two t;
	u32 e;

	(void)state;
	two_start(&t, false);
	two_fill(&t, 4);
	donor_signal(&t.d[0], SIGSTOP);
	usleep(3000000);
	/* operations that wait for this donor get through */
	donor_signal(&t.d[0], SIGCONT);
	for (e = 0; e < 4; e++) {
		write_extent(&t.h, e, 2);
		check_slab(&t.h, t.h.slab[e], e, 2);
	}
	/* and nothing is declared later on */
	usleep(3000000);
	assert_int_equal(get(&t.h, &t.h.losts), 0);
	assert_int_equal(status(&t.h, 0).state, DCM_DONOR_UP);
	two_end(&t);
}

/* For longer than any connection is waited for: a pause, and nothing is lost. */
static void test_stopped_long(void **state)
{
	struct two t;
	u32 e;

	(void)state;
	two_start(&t, false);
	two_fill(&t, 4);
	donor_signal(&t.d[0], SIGSTOP);
	WAIT(status(&t.h, 0).state == DCM_DONOR_SILENT);
	assert_in_range(status(&t.h, 0).silent_ms, 4900, 60000);
	assert_int_equal(status(&t.h, 0).patience_ms, 60000);
	usleep(4000000);
	donor_signal(&t.d[0], SIGCONT);
	for (e = 0; e < 4; e++) {
		check_slab(&t.h, t.h.slab[e], e, 1);
		write_extent(&t.h, e, 2);
		check_slab(&t.h, t.h.slab[e], e, 2);
	}
	WAIT(status(&t.h, 0).state == DCM_DONOR_UP);
	assert_int_equal(get(&t.h, &t.h.losts), 0);
	assert_int_equal(get(&t.h, &t.h.evicts), 0);
	assert_int_equal(logged(&t.h, "silent for 5 s"), 1);
	assert_int_equal(logged(&t.h, "reached again after"), 1);
	two_end(&t);
}

/* A stopped donor's shm slabs can still be read: they are moved, never given up. */
static void test_stopped_shm(void **state)
{
	struct two t;
	u32 e, mine;

	(void)state;
	two_start_cfg(&t, true, 6000);
	two_fill(&t, 4);
	mine = on_donor(&t.h, 4, 0);
	assert_in_range(mine, 1, 3);
	t.h.other = true;
	donor_signal(&t.d[0], SIGSTOP);
	WAIT(get(&t.h, &t.h.attached) == 4 + mine);
	assert_int_equal(get(&t.h, &t.h.evicts), mine);
	assert_int_equal(status(&t.h, 0).state, DCM_DONOR_SILENT);
	usleep(3000000);
	assert_int_equal(get(&t.h, &t.h.losts), 0);
	two_move(&t, 0, 1);
	donor_signal(&t.d[0], SIGCONT);
	WAIT(status(&t.h, 0).state == DCM_DONOR_UP && !status(&t.h, 0).slabs);
	for (e = 0; e < 4; e++)
		check_slab(&t.h, t.h.slab[e], e, 1);
	two_end(&t);
}

/* Longer than our patience. */
static void test_patience_is_over(void **state)
{
	struct two t;
	u32 e, mine;

	(void)state;
	two_start_cfg(&t, false, 6000);
	two_fill(&t, 4);
	mine = on_donor(&t.h, 4, 1);
	donor_signal(&t.d[1], SIGSTOP);
	WAIT(get(&t.h, &t.h.losts) == mine);
	assert_int_equal(logged(&t.h, "is lost: not heard of for 6 s"), 1);
	usleep(3000000);
	donor_signal(&t.d[1], SIGCONT);
	for (e = 0; e < 4; e++)
		if (t.h.slab[e]->donor == 1) {
			assert_string_equal(t.h.lost_name[e], "b");
			assert_int_equal(t.h.lost_of[e], 1);
			dcm_client_release(t.h.client, t.h.slab[e]);
			t.h.slab[e] = NULL;
		} else {
			check_slab(&t.h, t.h.slab[e], e, 1);
		}
	/* the donor is used again, for new slabs: unused donors come first */
	WAIT(status(&t.h, 1).state == DCM_DONOR_UP);
	want(&t.h, 0, 4);
	WAIT(get(&t.h, &t.h.attached) == 4 + mine);
	for (e = 4; !on_donor(&t.h, EXTENTS, 1) && e < 30; e++) {
		want(&t.h, e, e + 1);
		WAIT(get(&t.h, &t.h.attached) == 5 + mine + e - 4);
	}
	assert_true(on_donor(&t.h, EXTENTS, 1) >= 1);
	for (e = 0; e < 4; e++) {
		write_extent(&t.h, e, 3);
		check_slab(&t.h, t.h.slab[e], e, 3);
	}
	assert_int_equal(get(&t.h, &t.h.losts), mine);
	two_end(&t);
}

/* A host process that is stopped for a while; runs in a child. */
static int stopped_host(struct donor *d, int to, bool lose, u32 patience_ms)
{
	struct dcm_client_config cfg = { .extent = SLAB,
					 .data_encryption = true,
					 .patience_ms = patience_ms };
	struct host h = { 0 };
	char c = 'x';
	u32 e;

	host_donor(&h, "a", d->tcp);
	host_start_cfg(&h, cfg);
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 2);
	for (e = 0; e < 2; e++)
		write_extent(&h, e, 1);
	if (write(to, &c, 1) != 1)
		return 1;
	if (lose) {
		WAIT(get(&h, &h.losts) == 2);
		for (e = 0; e < 2; e++) {
			dcm_client_release(h.client, h.slab[e]);
			h.slab[e] = NULL;
		}
		want(&h, 0, 2);
		WAIT(get(&h, &h.attached) == 4);
		write_extent(&h, 0, 2);
		check_slab(&h, h.slab[0], 0, 2);
	} else {
		u64 end = now_ms() + 6000;

		/* over the stop, and long enough to regret */
		while (now_ms() < end)
			for (e = 0; e < 2; e++)
				check_slab(&h, h.slab[e], e, 1);
		assert_int_equal(get(&h, &h.losts), 0);
	}
	host_stop(&h);
	return 0;
}

/* @both: the donor too, and before; @lose: for longer than that waits. */
static void stop_host(unsigned int seconds, bool both, bool lose)
{
	struct donor d;
	int fds[2], st;
	pid_t pid;
	char c;

	donor_start(&d, NULL, 0, host_keys, lose ? hasty : donor_small);
	assert_int_equal(pipe(fds), 0);
	pid = fork_no_orphan();
	assert_true(pid >= 0);
	if (!pid)
		_exit(stopped_host(&d, fds[1], lose, both ? 6000 : 0));
	assert_int_equal(read(fds[0], &c, 1), 1);
	if (both) {
		donor_signal(&d, SIGSTOP);
		sleep(4);
	}
	kill(pid, SIGSTOP);
	sleep(seconds);
	if (both)
		donor_signal(&d, SIGCONT);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	assert_int_equal(WEXITSTATUS(st), 0);
	close(fds[0]);
	close(fds[1]);
	donor_end(&d);
}

/*
 * The donor is stopped, then the host that waits for the donor: the time in which
 * the host itself was stopped does not count as patience. Both go on at once.
 */
static void test_both_stopped(void **state)
{
	(void)state;
	stop_host(7, true, false);
}

/* The donor spoke to deaf ears, and has not given up: neither does the host. */
static void test_host_stopped(void **state)
{
	(void)state;
	stop_host(8, false, false);
}

/* The donor has freed everything; the host must find out and say so. */
static void test_host_stopped_too_long(void **state)
{
	(void)state;
	stop_host(8, false, true);
}

/*
 * Stop one thread for so long, by a child that traces the thread. Returns the
 * child; the child closes @stopped when the thread is stopped, or ends.
 */
static pid_t stop_thread(pid_t tid, unsigned int ms, int stopped)
{
	pid_t pid = fork_no_orphan();
	int st;

	assert_true(pid >= 0);
	if (pid) {
		prctl(PR_SET_PTRACER, pid);
		return pid;
	}
	for (unsigned int i = 0; ptrace(PTRACE_SEIZE, tid, NULL, NULL); i++) {
		if (i == 100)
			_exit(1);
		usleep(10000);
	}
	if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) ||
	    waitpid(tid, &st, __WALL) != tid)
		_exit(2);
	close(stopped);
	usleep(ms * 1000);
	_exit(ptrace(PTRACE_DETACH, tid, NULL, NULL) ? 3 : 0);
}

/*
 * The machine with the host and its donors stands still for less time than a
 * donor may be silent, but longer together with the time since the donors' last
 * messages. The host goes on first. Each extent gets a slab, and no complaint.
 */
static void test_no_donor_can_lend_after_a_short_stop(void **state)
{
	struct two t;
	int fds[2], st, i;
	pid_t pid, tid;
	char c;
	u32 e;

	(void)state;
	two_start(&t, false);
	tid = test_thread_find("dcm-client");
	assert_true(tid);
	for (e = 0; e < 4; e++) {
		assert_int_equal(pipe(fds), 0);
		for (i = 0; i < 2; i++)
			donor_signal(&t.d[i], SIGSTOP);
		pid = stop_thread(tid, 1900, fds[1]);
		close(fds[1]);
		assert_int_equal(read(fds[0], &c, 1), 0);
		close(fds[0]);
		want(&t.h, e, e + 1);
		assert_int_equal(waitpid(pid, &st, 0), pid);
		assert_true(WIFEXITED(st));
		assert_int_equal(WEXITSTATUS(st), 0);
		usleep(20000);
		for (i = 0; i < 2; i++)
			donor_signal(&t.d[i], SIGCONT);
		WAIT(get(&t.h, &t.h.attached) == e + 1);
	}
	assert_int_equal(get(&t.h, &t.h.starved), 0);
	assert_int_equal(logged(&t.h, "no donor can lend"), 0);
	two_end(&t);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_tcp),
		cmocka_unit_test(test_killed_shm),
		cmocka_unit_test(test_orphans_wait_for_room),
		cmocka_unit_test(
			test_a_donor_that_ends_in_a_handshake_is_not_a_wrong_key),
		cmocka_unit_test(test_restarted),
		cmocka_unit_test(test_stopped_short),
		cmocka_unit_test(test_stopped_long),
		cmocka_unit_test(test_stopped_shm),
		cmocka_unit_test(test_patience_is_over),
		cmocka_unit_test(test_both_stopped),
		cmocka_unit_test(test_host_stopped),
		cmocka_unit_test(test_host_stopped_too_long),
		cmocka_unit_test(test_no_donor_can_lend_after_a_short_stop),
	};

	return host_run("outage", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}
