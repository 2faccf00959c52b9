// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * log_test.c - lines to a log that nobody reads, or that is full
 *
 * Each test sets standard error; cmocka's messages go to standard output. A thread that waits for the log makes a test hang, which alarm() ends.
 */
/* links: kvm-dcm/lib/log.c kvm-dcm/lib/thread.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kvm-dcm/lib/log.h"

#define MANY	5000
#define THREADS	4

static int old_stderr;

static void to(int fd)
{
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	close(fd);
}

static int setup(void **state)
{
	(void)state;
	old_stderr = dup(STDERR_FILENO);
	alarm(60);
	return old_stderr < 0;
}

static int teardown(void **state)
{
	(void)state;
	alarm(0);
	dup2(old_stderr, STDERR_FILENO);
	return close(old_stderr);
}

/* A pipe or a socket that takes a page or so, as standard error. */
static int stuck(bool is_socket)
{
	char page[4096];
	int end[2], room = 4096, more;

	if (is_socket) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, end), 0);
		setsockopt(end[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	} else {
		assert_int_equal(pipe(end), 0);
		assert_int_equal(fcntl(end[1], F_SETPIPE_SZ, 4096), 4096);
	}
	/* full, without O_NONBLOCK on what will be standard error */
	memset(page, '\n', sizeof(page));
	if (is_socket) {
		while (send(end[1], page, sizeof(page), MSG_DONTWAIT) > 0)
			;
	} else {
		char path[32];

		snprintf(path, sizeof(path), "/proc/self/fd/%d", end[1]);
		more = open(path, O_WRONLY | O_NONBLOCK);
		assert_true(more >= 0);
		while (write(more, page, sizeof(page)) > 0)
			;
		close(more);
	}
	to(end[1]);
	return end[0];
}

struct found {
	unsigned int lines;
	unsigned int dropped;
	int last[THREADS];
};

/* Reads up to the line "end", and checks that each thread's are in order. */
static void read_log(FILE *in, struct found *f)
{
	char line[2048];
	unsigned int n;
	int who, nr;

	memset(f, 0, sizeof(*f));
	memset(f->last, -1, sizeof(f->last));
	while (fgets(line, sizeof(line), in) && !strstr(line, ": end\n")) {
		if (sscanf(line, "libdcm: line %d of %d", &nr, &who) == 2) {
			assert_true(nr > f->last[who]);
			f->last[who] = nr;
			f->lines++;
		} else if (sscanf(line, "libdcm: %u lines were dropped", &n) ==
			   1) {
			assert_non_null(
				strstr(line,
				       "the log's reader did not keep up"));
			f->dropped += n;
		} else {
			assert_string_equal(line, "\n");
		}
	}
}

static void *say_many(void *arg)
{
	int i;

	for (i = 0; i < MANY; i++)
		dcm_log(DCM_LOG_INFO, "line %d of %d", i, *(int *)arg);
	return NULL;
}

/* The last line takes its place as the reader makes room. */
static void *say_end(void *arg)
{
	(void)arg;
	for (;;) {
		dcm_log(DCM_LOG_INFO, "end");
		dcm_log_flush(1);
		pthread_testcancel();
	}
	return NULL;
}

static void reader_that_stalls(bool is_socket)
{
	int fd = stuck(is_socket), id[THREADS], flags, i;
	pthread_t t[THREADS], end;
	FILE *in = fdopen(fd, "r");
	struct found f;

	assert_non_null(in);
	for (i = 0; i < THREADS; i++) {
		id[i] = i;
		assert_int_equal(pthread_create(&t[i], NULL, say_many, &id[i]),
				 0);
	}
	/* nobody reads the log, and all threads end */
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	flags = fcntl(STDERR_FILENO, F_GETFL);
	assert_int_equal(flags & O_NONBLOCK, 0);
	assert_int_equal(pthread_create(&end, NULL, say_end, NULL), 0);
	read_log(in, &f);
	pthread_cancel(end);
	pthread_join(end, NULL);
	/* write out the lines left in the ring: later tests must not see them */
	to(open("/dev/null", O_WRONLY));
	fclose(in);
	dcm_log(DCM_LOG_INFO, "nobody sees this");
	dcm_log_flush(30000);
	printf("# %u lines came, %u were dropped\n", f.lines, f.dropped);
	assert_true(f.dropped);
	/* each of them, and some "end" */
	assert_true(f.lines + f.dropped >= THREADS * MANY);
	assert_true(f.lines >= 64);
}

static void test_pipe_that_stalls(void **state)
{
	(void)state;
	assert_int_equal(dcm_log_start(), 0);
	reader_that_stalls(false);
}

static void test_socket_that_stalls(void **state)
{
	(void)state;
	assert_int_equal(dcm_log_start(), 0);
	reader_that_stalls(true);
}

static void test_disk_that_is_full(void **state)
{
	FILE *file = tmpfile();
	char text[4096];
	size_t n;
	int i;

	(void)state;
	assert_int_equal(dcm_log_start(), 0);
	to(open("/dev/full", O_WRONLY));
	for (i = 0; i < 10; i++)
		dcm_log(DCM_LOG_INFO, "nobody sees this");
	dcm_log_flush(30000);
	assert_non_null(file);
	to(dup(fileno(file)));
	dcm_log(DCM_LOG_INFO, "after it");
	dcm_log_flush(30000);
	rewind(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = 0;
	assert_string_equal(
		text,
		"libdcm: 10 lines were dropped: the log could not be written: No space left on device\n"
		"libdcm: after it\n");
	fclose(file);
}

static void test_one_line_of_printable_bytes(void **state)
{
	FILE *file = tmpfile();
	char text[4096], long_one[3000];
	size_t n;

	(void)state;
	assert_int_equal(dcm_log_start(), 0);
	assert_non_null(file);
	to(dup(fileno(file)));
	memset(long_one, 'x', sizeof(long_one) - 1);
	long_one[sizeof(long_one) - 1] = 0;
	dcm_log(DCM_LOG_INFO, "a\nb\033c");
	dcm_log(DCM_LOG_INFO, "%s", long_one);
	dcm_log(DCM_LOG_DEBUG, "not said");
	dcm_log_flush(30000);
	rewind(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = 0;
	assert_memory_equal(text, "libdcm: a?b?c\nlibdcm: xxx", 25);
	assert_int_equal(strcspn(text + 14, "\n"), 1022);
	assert_int_equal(n, 14 + 1023);
	fclose(file);
}

/* A child has no writer thread: it never waits, and logs if the log is ready. */
static void test_child_of_fork(void **state)
{
	char text[4096];
	int end[2], fd, st, i;
	ssize_t n;
	pid_t pid;

	(void)state;
	assert_int_equal(dcm_log_start(), 0);
	fd = stuck(false);
	pid = fork();
	if (!pid) {
		alarm(60);
		for (i = 0; i < MANY; i++)
			dcm_log(DCM_LOG_INFO, "line %d", i);
		_exit(7);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 7);
	close(fd);

	assert_int_equal(pipe(end), 0);
	to(end[1]);
	pid = fork();
	if (!pid) {
		dcm_log(DCM_LOG_INFO, "a child");
		_exit(7);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	n = read(end[0], text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = 0;
	assert_string_equal(text, "libdcm: a child\n");
	close(end[0]);
}

/* exit() does not wait for a reader that is stuck, and loses no line else. */
static void test_end_of_process(void **state)
{
	char text[8192];
	int end[2], fd, st, i;
	size_t have = 0;
	ssize_t n;
	pid_t pid;

	(void)state;
	fd = stuck(false);
	pid = fork();
	if (!pid) {
		if (dcm_log_start())
			_exit(1);
		for (i = 0; i < MANY; i++)
			dcm_log(DCM_LOG_INFO, "line %d", i);
		exit(7);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 7);
	close(fd);

	assert_int_equal(pipe(end), 0);
	to(end[1]);
	pid = fork();
	if (!pid) {
		if (dcm_log_start())
			_exit(1);
		for (i = 0; i < 100; i++)
			dcm_log(DCM_LOG_INFO, "line %d", i);
		exit(7);
	}
	assert_int_equal(dup2(old_stderr, STDERR_FILENO), STDERR_FILENO);
	while ((n = read(end[0], text + have, sizeof(text) - 1 - have)) > 0)
		have += (size_t)n;
	text[have] = 0;
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_non_null(strstr(text, "libdcm: line 99\n"));
	close(end[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* before any thread is there */
		cmocka_unit_test_setup_teardown(test_end_of_process, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_pipe_that_stalls, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_socket_that_stalls, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_disk_that_is_full, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_one_line_of_printable_bytes,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_child_of_fork, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
