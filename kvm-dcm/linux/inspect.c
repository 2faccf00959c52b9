// SPDX-License-Identifier: GPL-2.0-only
/*
 * inspect.c - a VM's figures and descriptors in debugfs
 *
 * One directory for each file, kvm-dcm/SUPERBLOCK-INODE: "stats" has every
 * counter, a line each, and percentiles of latencies in ns since the file was
 * made; "page" shows the descriptor of the page whose number was written to it.
 * Root only, as debugfs is.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "dcmfs.h"

/* Names as in libdcm's status. */
static void latencies_show(struct seq_file *m, const struct dcm_vm *core,
		      struct dcm_hist *h)
{
	static const struct {
		const char *name;
		unsigned int bp;
	} shares[] = {
		{ "p50", 5000 },
		{ "p90", 9000 },
		{ "p99", 9900 },
		{ "p999", 9990 },
	};
	unsigned int i, k;

	for (i = 0; i < DCM_H_NR; i++) {
		dcm_vm_hist(core, i, h);
		for (k = 0; k < ARRAY_SIZE(shares); k++)
			seq_printf(m, "latency %s %s %llu\n", dcm_hist_names[i],
				   shares[k].name,
				   dcm_hist_quantile(h, shares[k].bp));
		seq_printf(m, "latency %s count %llu\n", dcm_hist_names[i],
			   dcm_hist_count(h));
	}
}

/* dcm_vm_away(): pages fetched, by how many pages were evicted after them. */
static void away_show(struct seq_file *m, const struct dcm_vm *core,
		      struct dcm_hist *h)
{
	unsigned int i;

	dcm_vm_away(core, h);
	for (i = 0; i < DCM_HIST_BUCKETS; i++)
		if (h->bucket[i])
			seq_printf(m, "away %llu %llu\n", dcm_hist_floor(i),
				   h->bucket[i]);
}

/* dcm_vm_reuse(): touches, by how many other pages were touched in between. */
static void reuse_show(struct seq_file *m, const struct dcm_vm *core,
		       struct dcm_reuse_stats *st)
{
	unsigned int i;

	dcm_vm_reuse(core, st);
	seq_printf(m, "reuse_watched %llu\nreuse_pages %llu\n", st->watched,
		   st->pages);
	seq_printf(m, "reuse_blind %llu\nreuse_unknown %llu\n", st->blind,
		   st->unknown);
	seq_printf(m, "reuse_rested_ms %llu\n", st->rested_ms);
	for (i = 0; i < DCM_HIST_BUCKETS; i++)
		if (st->distance.bucket[i])
			seq_printf(m, "reuse %llu %llu\n", dcm_hist_floor(i),
				   st->distance.bucket[i]);
}

static int stats_show(struct seq_file *m, void *v)
{
	struct dcmfs_vm *vm = m->private;
	struct dcm_stats *st = kvmalloc(sizeof(*st), GFP_KERNEL);
	struct dcm_hist *h = kvmalloc(sizeof(*h), GFP_KERNEL);
	struct dcm_reuse_stats *reuse = kvmalloc(sizeof(*reuse), GFP_KERNEL);
	unsigned int i;

	if (!st || !h || !reuse) {
		kvfree(st);
		kvfree(h);
		kvfree(reuse);
		return -ENOMEM;
	}
	dcm_vm_stats(vm->core, st);
	seq_printf(m,
		   "budget %llu\ndirect %llu\ninactive %llu\nwriteback %llu\n",
		   st->budget, st->direct, st->inactive, st->in_writeback);
	seq_printf(m, "frames %lld\nin_flight_max %llu\nahead %llu\n",
		   atomic64_read(&vm->frames), st->in_flight_max, st->ahead);
	seq_printf(m, "huge %u\nhuge_apart %lld\n", dcmfs_huge_count(vm),
		   atomic64_read(&vm->huge_split));
	for (i = 0; i < DCM_C_NR; i++)
		seq_printf(m, "%s %llu\n", dcm_counter_names[i], st->count[i]);
	for (i = 0; i < DCM_T_NR; i++)
		seq_printf(m, "tunable %s %llu\n", dcm_tunables[i].name,
			   dcm_tunable_get(vm->core, i));
	latencies_show(m, vm->core, h);
	seq_printf(m, "evicted_pages %llu\n", st->evicted);
	away_show(m, vm->core, h);
	reuse_show(m, vm->core, reuse);
	kvfree(st);
	kvfree(h);
	kvfree(reuse);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

/* Each open file has its own page to show. */
struct look {
	struct dcmfs_vm *vm;
	u64 gfn;
};

static int page_show(struct seq_file *m, void *v)
{
	struct look *look = m->private;
	struct dcmfs_lane *lane;
	char line[256];

	/* While a lane is held, no descriptors are freed. */
	lane = dcmfs_control_try(look->vm);
	if (!lane)
		return -EINTR;
	dcm_pd_text(look->vm->core, look->gfn, line, sizeof(line));
	dcmfs_lane_put(look->vm, lane);
	seq_printf(m, "%s\n", line);
	return 0;
}

static int page_open(struct inode *inode, struct file *file)
{
	struct look *look = kzalloc(sizeof(*look), GFP_KERNEL);
	int err;

	if (!look)
		return -ENOMEM;
	look->vm = inode->i_private;
	err = single_open(file, page_show, look);
	if (err)
		kfree(look);
	return err;
}

static ssize_t page_write(struct file *file, const char __user *buf, size_t len,
			  loff_t *pos)
{
	struct look *look = ((struct seq_file *)file->private_data)->private;
	u64 gfn;
	int err = kstrtou64_from_user(buf, len, 0, &gfn);

	if (err)
		return err;
	if (gfn >= look->vm->core->nr_pages)
		return -ERANGE;
	look->gfn = gfn;
	return (ssize_t)len;
}

static int page_release(struct inode *inode, struct file *file)
{
	kfree(((struct seq_file *)file->private_data)->private);
	return single_release(inode, file);
}

static const struct file_operations page_fops = {
	.owner = THIS_MODULE,
	.open = page_open,
	.read = seq_read,
	.write = page_write,
	.llseek = seq_lseek,
	.release = page_release,
};

/** dcmfs_inspect_add() - show a VM; harmless without debugfs */
void dcmfs_inspect_add(struct dcmfs_vm *vm)
{
	const struct super_block *super = vm->inode->i_sb;
	const struct dcmfs_sb *sb = super->s_fs_info;
	char name[48];

	snprintf(name, sizeof(name), "%u:%u-%lu", MAJOR(super->s_dev),
		 MINOR(super->s_dev), dcmfs_ino(vm->inode));
	vm->debug = debugfs_create_dir(name, sb->debug);
	debugfs_create_file("stats", 0400, vm->debug, vm, &stats_fops);
	debugfs_create_file("page", 0600, vm->debug, vm, &page_fops);
}

/** dcmfs_inspect_remove() - remove a VM's files; waits for readers */
void dcmfs_inspect_remove(struct dcmfs_vm *vm)
{
	debugfs_remove(vm->debug);
}
