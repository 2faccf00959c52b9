// SPDX-License-Identifier: GPL-2.0-only
/*
 * fixture.c - what the tests inside the kernel stand on
 *
 * kvm-dcm-kunit.ko is all of kvm-dcm.ko with these tests beside it, so that they
 * reach what no other module can, without a symbol exported for them. They run
 * when it is loaded, each in a thread of its own, which maps files as a process
 * does; their results are in the kernel's log and in debugfs.
 *
 * Memory fails for the one thread that asks for it, by the kernel's own fault
 * injection, which tests/vm/test_kunit.py sets up: without it those tests are
 * skipped, and that fails the run.
 */
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs_context.h>
#include <linux/mman.h>
#include <linux/mount.h>
#include <linux/shmem_fs.h>
#include <linux/uaccess.h>

#include "kunit.h"

static void file_close(void *file)
{
	__fput_sync(file);
	flush_delayed_fput();
}

static void mem_end(void *arg)
{
	struct kunit_mem *mem = arg;

	if (mem->file)
		file_close(mem->file);
	kern_unmount(mem->mnt);
}

/** kunit_tmpfile() - another file of the same mount, to be closed; or %NULL */
struct file *kunit_tmpfile(struct kunit_mem *mem)
{
	struct path root = { .mnt = mem->mnt, .dentry = mem->mnt->mnt_root };
	struct file *file = kernel_tmpfile_open(&nop_mnt_idmap, &root,
						S_IFREG | 0600, O_RDWR,
						current_cred());

	return IS_ERR(file) ? NULL : file;
}

/**
 * kunit_mem() - a file system and a file, until the test's end
 * @test: whose
 * @options: mount options
 * @bytes: the file's size; 0: none yet
 *
 * Return: it; the test ends where that can't be had.
 */
struct kunit_mem *kunit_mem(struct kunit *test, const char *options, u64 bytes)
{
	struct kunit_mem *mem = kunit_kzalloc(test, sizeof(*mem), GFP_KERNEL);
	struct file_system_type *type = get_fs_type("dcmfs");
	char *text = kstrdup(options, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, mem);
	KUNIT_ASSERT_NOT_NULL(test, type);
	KUNIT_ASSERT_NOT_NULL(test, text);
	mem->mnt = vfs_kern_mount(type, SB_KERNMOUNT, "dcm", text);
	kfree(text);
	module_put(type->owner);
	KUNIT_ASSERT_FALSE(test, IS_ERR(mem->mnt));
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, mem_end, mem), 0);
	mem->file = kunit_tmpfile(mem);
	KUNIT_ASSERT_NOT_NULL(test, mem->file);
	if (bytes) {
		KUNIT_ASSERT_EQ(test, vfs_truncate(&mem->file->f_path, bytes),
				0);
		mem->vm = dcmfs_vm_of(file_inode(mem->file));
		KUNIT_ASSERT_NOT_NULL(test, mem->vm);
	}
	return mem;
}

/** kunit_memfd() - memory of a donor on this host, until the test's end */
struct file *kunit_memfd(struct kunit *test, u64 bytes)
{
	struct file *file = shmem_file_setup("slab", (loff_t)bytes, 0);

	KUNIT_ASSERT_FALSE(test, IS_ERR(file));
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, file_close, file),
			0);
	/* It is there, as a donor's is that has locked it. */
	KUNIT_ASSERT_EQ(test, vfs_fallocate(file, 0, 0, (loff_t)bytes), 0);
	return file;
}

/** kunit_fd() - a number for a file, as user space has them; to be closed */
int kunit_fd(struct file *file)
{
	int fd = get_unused_fd_flags(O_CLOEXEC);

	if (fd >= 0)
		fd_install(fd, get_file(file));
	return fd;
}

/** kunit_attach() - an extent's slab is a memfd from now on; errno */
int kunit_attach(struct dcmfs_vm *vm, struct file *memfd, u64 id, u32 extent)
{
	struct dcmfs_slab arg = { .extent = extent, .id = id };
	int err;

	arg.fd = kunit_fd(memfd);
	if (arg.fd < 0)
		return arg.fd;
	err = dcmfs_slab_attach(vm, &arg);
	close_fd((unsigned int)arg.fd);
	return err;
}

/** kunit_served() - a file of KUNIT_PAGES with a slab for each extent, sealed or not */
struct kunit_mem *kunit_served(struct kunit *test, bool seal)
{
	struct kunit_mem *mem =
		kunit_mem(test, KUNIT_OPTIONS, 2 * KUNIT_EXTENT);
	u32 i;

	if (seal)
		KUNIT_ASSERT_EQ(test,
				dcmfs_seal(mem->vm, DCMFS_SEAL_AES_256_GCM), 0);
	for (i = 0; i < 2; i++) {
		struct file *slab = kunit_memfd(test, KUNIT_EXTENT);

		KUNIT_ASSERT_EQ(test, kunit_attach(mem->vm, slab, i + 1, i), 0);
	}
	return mem;
}

/** kunit_map() - map a file; what is still mapped goes with the test's thread */
u64 __user *kunit_map(struct kunit *test, struct file *file, u64 bytes)
{
	unsigned long flags = file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	unsigned long at = kunit_vm_mmap(test, file, 0, bytes,
					 PROT_READ | PROT_WRITE, flags, 0);

	KUNIT_ASSERT_NE(test, at, 0ul);
	KUNIT_ASSERT_FALSE(test, IS_ERR_VALUE(at));
	return (u64 __user *)at;
}

/* A kernel thread's fault is given up after a second: kvm-dcm/linux/fault.c. */
#define TRIES 60

/** kunit_poke() - write to mapped memory */
void kunit_poke(struct kunit *test, u64 __user *at, u64 value)
{
	int i;

	for (i = 0; i < TRIES; i++)
		if (!put_user(value, at))
			return;
	KUNIT_FAIL_AND_ABORT(test, "a page can't be written");
}

/** kunit_peek() - read mapped memory */
u64 kunit_peek(struct kunit *test, u64 __user *at)
{
	u64 value = 0;
	int i;

	for (i = 0; i < TRIES; i++)
		if (!get_user(value, at))
			return value;
	KUNIT_FAIL_AND_ABORT(test, "a page can't be read");
}

/** kunit_word() - what is in a page */
u64 kunit_word(unsigned long page)
{
	return page * 0x9e3779b97f4a7c15ull + 1;
}

#define WORDS (PAGE_SIZE / sizeof(u64))

/** kunit_pages_write() - write all pages of kunit_served(), mapped at @at */
void kunit_pages_write(struct kunit *test, u64 __user *at)
{
	unsigned long i;

	for (i = 0; i < KUNIT_PAGES; i++)
		kunit_poke(test, at + i * WORDS + i % WORDS, kunit_word(i));
}

/** kunit_pages_wrong() - read them; how many are not as they were written */
unsigned long kunit_pages_wrong(struct kunit *test, u64 __user *at)
{
	unsigned long i, wrong = 0;

	for (i = 0; i < KUNIT_PAGES; i++)
		wrong += kunit_peek(test, at + i * WORDS + i % WORDS) !=
			 kunit_word(i);
	return wrong;
}

/** kunit_memory() - this thread gets memory again */
void kunit_memory(void)
{
	current->make_it_fail = 0;
}

/** kunit_no_memory() - from now on no allocation of this thread's succeeds */
void kunit_no_memory(struct kunit *test)
{
	struct page *page;
	void *object;

	current->make_it_fail = 1;
	object = kmalloc(64, GFP_KERNEL);
	page = alloc_page(GFP_HIGHUSER);
	if (!object && !page)
		return;
	kunit_memory();
	kfree(object);
	if (page)
		__free_page(page);
	kunit_skip(test, "fault injection is not set up");
}

/**
 * kunit_fail_nth() - one allocation of this thread's is to fail, but no other
 * @nth: which, from 1 on; 0: none
 *
 * Return: whether that can be: fault injection is set up.
 */
bool kunit_fail_nth(unsigned int nth)
{
	void *object;

	current->fail_nth = 1;
	object = kmalloc(64, GFP_KERNEL);
	kfree(object);
	current->fail_nth = (int)nth;
	return !object;
}

/** kunit_failed() - did it come to that? And nothing fails any more. */
bool kunit_failed(void)
{
	bool failed = !current->fail_nth;

	current->fail_nth = 0;
	return failed;
}
