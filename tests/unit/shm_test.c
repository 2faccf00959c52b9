// SPDX-License-Identifier: GPL-2.0-or-later
/* shm_test.c - the shm transport, and a slab revoked under its hands */
/* links: kvm-dcm/transport/shm.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kvm-dcm/transport/shm.h"

#define PAGE 4096u
#define SLAB (2u << 20)

static void slab_open(struct dcm_slab_ref *s)
{
	memset(s, 0, sizeof(*s));
	s->id = 1;
	s->bytes = SLAB;
	s->fd = memfd_create("slab", MFD_ALLOW_SEALING);
	assert_true(s->fd >= 0);
	assert_int_equal(ftruncate(s->fd, SLAB), 0);
	assert_int_equal(fcntl(s->fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL),
			 0);
	s->map = mmap(NULL, SLAB, PROT_READ, MAP_SHARED, s->fd, 0);
	assert_ptr_not_equal(s->map, MAP_FAILED);
}

static void slab_close(struct dcm_slab_ref *s)
{
	munmap(s->map, s->bytes);
	close(s->fd);
}

static int one(struct dcm_endpoint *ep, struct dcm_io *io)
{
	struct dcm_io *done;
	int ret = ep->ops->post(ep, io);

	if (ret)
		return ret;
	ep->ops->flush(ep);
	assert_int_equal(ep->ops->in_flight(ep), 1);
	assert_int_equal(ep->ops->poll(ep, &done, 1), 1);
	assert_ptr_equal(done, io);
	assert_int_equal(ep->ops->in_flight(ep), 0);
	return io->status;
}

static void test_rw(void **state)
{
	struct dcm_slab_ref s;
	struct dcm_shm_args args = { .depth = 4 };
	struct dcm_endpoint *ep;
	struct dcm_io io[5] = { 0 }, *done;
	static u8 buf[65536];
	int err, i;

	(void)state;
	slab_open(&s);
	ep = dcm_transport_shm.open(&args, &err);
	assert_non_null(ep);
	memset(buf, 0x5a, sizeof(buf));
	io[0] = (struct dcm_io){ .slab = &s,
				 .offset = SLAB - 65536,
				 .bytes = 65536,
				 .op = DCM_IO_WRITE,
				 .data = buf };
	assert_int_equal(one(ep, &io[0]), 0);
	io[0].op = DCM_IO_READ;
	io[0].data = NULL;
	assert_int_equal(one(ep, &io[0]), 0);
	assert_ptr_equal(io[0].data, (char *)s.map + SLAB - 65536);
	assert_memory_equal(io[0].data, buf, 65536);
	/* outside */
	io[0].offset = SLAB - PAGE;
	assert_int_equal(one(ep, &io[0]), -ERANGE);
	io[0].offset = U64_MAX - PAGE;
	assert_int_equal(one(ep, &io[0]), -ERANGE);
	/* full, and in order */
	for (i = 0; i < 5; i++) {
		io[i] = (struct dcm_io){ .slab = &s,
					 .bytes = PAGE,
					 .op = DCM_IO_READ };
		assert_int_equal(ep->ops->post(ep, &io[i]),
				 i < 4 ? 0 : -EAGAIN);
	}
	assert_int_equal(ep->ops->poll(ep, &done, 3), 3);
	assert_ptr_equal(done, &io[0]);
	assert_ptr_equal(done->next->next, &io[2]);
	assert_null(done->next->next->next);
	assert_int_equal(ep->ops->post(ep, &io[4]), 0);
	assert_int_equal(ep->ops->poll(ep, &done, 9), 2);
	assert_ptr_equal(done, &io[3]);
	assert_int_equal(ep->ops->poll(ep, &done, 9), 0);
	ep->ops->close(ep);
	slab_close(&s);
}

/* A slab that is not mapped is copied out of its file, and may be revoked just as well. */
static void test_a_slab_that_is_not_mapped(void **state)
{
	static u8 in[PAGE], out[PAGE];
	struct dcm_slab_ref s;
	struct dcm_endpoint *ep;
	struct dcm_io io = { .slab = &s, .offset = PAGE, .bytes = PAGE };
	void *map;
	int err;

	(void)state;
	slab_open(&s);
	map = s.map;
	s.map = NULL;
	ep = dcm_transport_shm.open(NULL, &err);
	assert_non_null(ep);
	memset(in, 0x5a, sizeof(in));
	io.op = DCM_IO_WRITE;
	io.data = in;
	assert_int_equal(one(ep, &io), 0);
	io.op = DCM_IO_READ;
	io.data = out;
	assert_int_equal(one(ep, &io), 0);
	assert_ptr_equal(io.data, out);
	assert_memory_equal(out, in, sizeof(in));
	assert_int_equal(ftruncate(s.fd, 0), 0);
	assert_int_equal(one(ep, &io), -ESTALE);
	ep->ops->close(ep);
	s.map = map;
	slab_close(&s);
}

static void test_revoked(void **state)
{
	struct dcm_slab_ref s;
	struct dcm_endpoint *ep;
	struct dcm_io io = { 0 };
	static u8 buf[PAGE];
	int pipefd[2], err;

	(void)state;
	slab_open(&s);
	ep = dcm_transport_shm.open(NULL, &err);
	assert_int_equal(ftruncate(s.fd, 0), 0);
	io = (struct dcm_io){
		.slab = &s, .bytes = PAGE, .op = DCM_IO_WRITE, .data = buf
	};
	assert_int_equal(one(ep, &io), -ESTALE);
	/* READ gives the address; the kernel's copy from there fails cleanly */
	io.op = DCM_IO_READ;
	assert_int_equal(one(ep, &io), 0);
	assert_int_equal(pipe(pipefd), 0);
	assert_int_equal(write(pipefd[1], io.data, PAGE), -1);
	assert_int_equal(errno, EFAULT);
	close(pipefd[0]);
	close(pipefd[1]);
	ep->ops->close(ep);
	slab_close(&s);
}

/* A write that can't be done now, to a slab that is there: not lost, and done. */
static void write_again(struct dcm_slab_ref *s, void (*mend)(void))
{
	struct dcm_endpoint *ep;
	static u8 buf[2 * PAGE];
	struct dcm_io io = {
		.slab = s,
		.offset = SLAB / 2,
		.bytes = sizeof(buf),
		.op = DCM_IO_WRITE,
		.data = buf,
	};
	int err;

	memset(buf, 0x5a, sizeof(buf));
	ep = dcm_transport_shm.open(NULL, &err);
	assert_int_equal(one(ep, &io), -EIO);
	mend();
	assert_int_equal(one(ep, &io), 0);
	assert_memory_equal((char *)s->map + SLAB / 2, buf, sizeof(buf));
	ep->ops->close(ep);
}

static struct rlimit fsize;

static void limit_lift(void)
{
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &fsize), 0);
}

static void test_write_over_a_limit_loses_no_slab(void **state)
{
	struct dcm_slab_ref s;
	struct rlimit low;

	(void)state;
	slab_open(&s);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &fsize), 0);
	low = fsize;
	low.rlim_cur = SLAB / 2 + PAGE;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	write_again(&s, limit_lift);
	slab_close(&s);
}

static void room_make(void)
{
	assert_int_equal(mount("none", "/tmp", "tmpfs", MS_REMOUNT, "size=4M"),
			 0);
}

/* A child's: 0 done, 77 no right to mount, else failed. */
static int without_memory(void)
{
	struct dcm_slab_ref s = { .id = 1, .bytes = SLAB };

	if (unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/tmp", "tmpfs", 0, "size=4k"))
		return 77;
	s.fd = open("/tmp/slab", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s.fd < 0 || ftruncate(s.fd, SLAB))
		return 1;
	s.map = mmap(NULL, SLAB, PROT_READ, MAP_SHARED, s.fd, 0);
	if (s.map == MAP_FAILED)
		return 1;
	write_again(&s, room_make);
	slab_close(&s);
	return 0;
}

static void test_write_without_memory_loses_no_slab(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(without_memory());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rw),
		cmocka_unit_test(test_a_slab_that_is_not_mapped),
		cmocka_unit_test(test_revoked),
		cmocka_unit_test(test_write_over_a_limit_loses_no_slab),
		cmocka_unit_test(test_write_without_memory_loses_no_slab),
	};

	return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
