// SPDX-License-Identifier: GPL-2.0-only
/*
 * super.c - dcmfs: mounting, directories, the module
 *
 * A tree of directories and regular files in memory, like ramfs, except for the
 * content of regular files. Mount options apply to all files:
 *
 *	budget=BYTES	direct budget of a file; K, M, G
 *	share=PERCENT	or as a part of its size (50)
 *	extent=BYTES	size of a slab: a power of two from 2M (64M)
 *	metadata=BYTES	most that all files together take besides frames and
 *			links (a sixteenth of the host's memory)
 *	lanes=N		threads that fault in a file at once (by the CPUs)
 *	on-loss=WHAT	an access to lost memory: pause (default), or sigbus
 *	mode= uid= gid=	of the root directory
 *
 * A remount can't change them.
 *
 * Only for the initial user namespace's root: its files take kernel memory.
 */
#include <linux/ctype.h>
#include <linux/debugfs.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/module.h>
#include <linux/namei.h>
#include <linux/pagemap.h>
#include <linux/seq_file.h>
#include <linux/statfs.h>

#include "compat.h"
#include "dcmfs.h"

#define BYTES_MAX (1ull << 44) /* a frame's handle has 32 bits */

static struct dentry *debug_root;

enum {
	OPT_BUDGET,
	OPT_SHARE,
	OPT_EXTENT,
	OPT_METADATA,
	OPT_LANES,
	OPT_ON_LOSS,
	OPT_MODE,
	OPT_UID,
	OPT_GID
};

static const struct constant_table on_loss_values[] = { { "sigbus", 0 },
	{ "pause", 1 },
							{} };

static const struct fs_parameter_spec dcmfs_parameters[] = {
	fsparam_string("budget", OPT_BUDGET),
	fsparam_u32("share", OPT_SHARE),
	fsparam_string("extent", OPT_EXTENT),
	fsparam_string("metadata", OPT_METADATA),
	fsparam_u32("lanes", OPT_LANES),
	fsparam_enum("on-loss", OPT_ON_LOSS, on_loss_values),
	fsparam_u32oct("mode", OPT_MODE),
	fsparam_uid("uid", OPT_UID),
	fsparam_gid("gid", OPT_GID),
	{}
};

static const struct super_operations dcmfs_super_ops;
static const struct inode_operations dir_inode_ops;

static struct inode *inode_make(struct super_block *sb, const struct inode *dir,
				umode_t mode)
{
	struct inode *inode = new_inode(sb);

	if (!inode)
		return NULL;
	inode->i_ino = get_next_ino();
	inode_init_owner(&nop_mnt_idmap, inode, dir, mode);
	inode->i_mapping->a_ops = &dcmfs_aops;
	mapping_set_unevictable(inode->i_mapping);
	simple_inode_init_ts(inode);
	if (S_ISDIR(mode)) {
		inode->i_op = &dir_inode_ops;
		inode->i_fop = &simple_dir_operations;
		inc_nlink(inode);
	} else {
		inode->i_op = &dcmfs_file_inode_ops;
		inode->i_fop = &dcmfs_file_ops;
	}
	return inode;
}

static int dir_add(struct inode *dir, struct dentry *dentry, umode_t mode)
{
	struct inode *inode = inode_make(dir->i_sb, dir, mode);

	if (!inode)
		return -ENOSPC;
	d_make_persistent(dentry, inode);
	inode_set_mtime_to_ts(dir, inode_set_ctime_current(dir));
	return 0;
}

static int dir_create(struct mnt_idmap *idmap, struct inode *dir,
		      struct dentry *dentry, umode_t mode)
{
	return dir_add(dir, dentry, (mode & S_IALLUGO) | S_IFREG);
}

static struct dentry *dir_mkdir(struct mnt_idmap *idmap, struct inode *dir,
				struct dentry *dentry, umode_t mode)
{
	int err = dir_add(dir, dentry, mode | S_IFDIR);

	if (err)
		return ERR_PTR(err);
	inc_nlink(dir);
	return NULL;
}

/* The types of 6.12. */
static int __maybe_unused dir_create_excl(struct mnt_idmap *idmap,
					  struct inode *dir,
					  struct dentry *dentry, umode_t mode,
					  bool excl)
{
	return dir_create(idmap, dir, dentry, mode);
}

static int __maybe_unused dir_mkdir_int(struct mnt_idmap *idmap,
					struct inode *dir,
					struct dentry *dentry, umode_t mode)
{
	return PTR_ERR_OR_ZERO(dir_mkdir(idmap, dir, dentry, mode));
}

static int dir_tmpfile(struct mnt_idmap *idmap, struct inode *dir,
		       struct file *file, umode_t mode)
{
	struct inode *inode =
		inode_make(dir->i_sb, dir, (mode & S_IALLUGO) | S_IFREG);

	if (inode)
		d_tmpfile(file, inode);
	return finish_open_simple(file, inode ? 0 : -ENOSPC);
}

static const struct inode_operations dir_inode_ops = {
	.create = dcmfs_op(create, dir_create, dir_create_excl),
	.lookup = simple_lookup,
	.link = simple_link,
	.unlink = simple_unlink,
	.mkdir = dcmfs_op(mkdir, dir_mkdir, dir_mkdir_int),
	.rmdir = simple_rmdir,
	.rename = simple_rename,
	.tmpfile = dir_tmpfile,
};

static void evict_inode(struct inode *inode)
{
	struct dcmfs_vm *vm = dcmfs_vm_of(inode);

	truncate_inode_pages_final(&inode->i_data);
	if (vm) {
		inode->i_private = NULL;
		dcmfs_vm_destroy(vm);
	}
	clear_inode(inode);
}

static int show_options(struct seq_file *m, struct dentry *root)
{
	const struct dcmfs_sb *sb = root->d_sb->s_fs_info;
	const struct dcmfs_options *opt = &sb->opt;

	if (opt->budget)
		seq_printf(m, ",budget=%llu", opt->budget);
	else
		seq_printf(m, ",share=%u", opt->share);
	seq_printf(m, ",extent=%llu,lanes=%u,on-loss=%s,metadata=%llu",
		   opt->extent, opt->lanes, opt->pause ? "pause" : "sigbus",
		   opt->metadata);
	return 0;
}

static const struct super_operations dcmfs_super_ops = {
	.statfs = simple_statfs,
	.drop_inode = inode_just_drop,
	.evict_inode = evict_inode,
	.show_options = show_options,
};

/* Parse a size. memparse() would silently wrap a number that is too large. */
static int parse_bytes(struct fs_context *fc, const char *key, const char *text,
		       u64 *bytes)
{
	static const char units[] = "KMGT";
	size_t len = strlen(text);
	const char *unit = len ? strchr(units, toupper(text[len - 1])) : NULL;
	unsigned int shift = unit ? 10 * (unsigned int)(unit - units + 1) : 0;
	char digits[24];

	if (unit)
		len--;
	if (len >= sizeof(digits))
		return invalf(fc, "dcmfs: %s: that is no size", key);
	memcpy(digits, text, len);
	digits[len] = 0;
	if (kstrtou64(digits, 0, bytes) || *bytes > BYTES_MAX >> shift)
		return invalf(fc, "dcmfs: %s=%s is no size", key, text);
	*bytes <<= shift;
	return 0;
}

static int parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	struct dcmfs_sb *sb = fc->s_fs_info;
	struct dcmfs_options *opt = &sb->opt;
	struct fs_parse_result result;
	int which = fs_parse(fc, dcmfs_parameters, param, &result);

	switch (which) {
	case OPT_BUDGET:
		return parse_bytes(fc, "budget", param->string, &opt->budget);
	case OPT_SHARE:
		if (!result.uint_32 || result.uint_32 > 100)
			return invalf(fc, "dcmfs: share is 1 to 100");
		opt->share = result.uint_32;
		return 0;
	case OPT_EXTENT:
		if (parse_bytes(fc, "extent", param->string, &opt->extent))
			return -EINVAL;
		if (!is_power_of_2(opt->extent) || opt->extent < SZ_2M ||
		    opt->extent > 1ull << 40)
			return invalf(
				fc,
				"dcmfs: extent is a power of two from 2M to 1T");
		return 0;
	case OPT_METADATA:
		if (parse_bytes(fc, "metadata", param->string, &opt->metadata))
			return -EINVAL;
		if (!opt->metadata)
			return invalf(fc, "dcmfs: metadata is more than 0");
		return 0;
	case OPT_LANES:
		if (!result.uint_32 || result.uint_32 > DCMFS_LANES_MAX)
			return invalf(fc, "dcmfs: lanes is 1 to %u",
				      DCMFS_LANES_MAX);
		opt->lanes = result.uint_32;
		return 0;
	case OPT_ON_LOSS:
		opt->pause = result.uint_32;
		return 0;
	case OPT_MODE:
		opt->mode = result.uint_32 & S_IALLUGO;
		return 0;
	case OPT_UID:
		opt->uid = result.uid;
		return 0;
	case OPT_GID:
		opt->gid = result.gid;
		return 0;
	default:
		return which;
	}
}

static int fill_super(struct super_block *super, struct fs_context *fc)
{
	struct dcmfs_sb *sb = super->s_fs_info;
	struct inode *inode;

	super->s_maxbytes = MAX_LFS_FILESIZE;
	super->s_blocksize = PAGE_SIZE;
	super->s_blocksize_bits = PAGE_SHIFT;
	super->s_magic = DCMFS_MAGIC;
	super->s_op = &dcmfs_super_ops;
	super->s_time_gran = 1;
	sb->debug = debug_root;
	inode = inode_make(super, NULL, S_IFDIR | sb->opt.mode);
	if (!inode)
		return -ENOMEM;
	inode->i_uid = sb->opt.uid;
	inode->i_gid = sb->opt.gid;
	super->s_root = d_make_root(inode);
	return super->s_root ? 0 : -ENOMEM;
}

static int get_tree(struct fs_context *fc)
{
	return get_tree_nodev(fc, fill_super);
}

/* Refuse: files read the options at any time, so these can't change. */
static int reconfigure(struct fs_context *fc)
{
	const struct dcmfs_sb *now = fc->root->d_sb->s_fs_info;
	const struct dcmfs_sb *sb = fc->s_fs_info;
	const struct dcmfs_options *a = &now->opt, *b = &sb->opt;

	if (a->budget != b->budget || a->share != b->share ||
	    a->extent != b->extent || a->lanes != b->lanes ||
	    a->metadata != b->metadata || a->pause != b->pause)
		return invalf(fc,
			      "dcmfs: options hold for the whole life of a mount");
	return 0;
}

static void free_fc(struct fs_context *fc)
{
	kfree(fc->s_fs_info);
}

static const struct fs_context_operations context_ops = {
	.free = free_fc,
	.parse_param = parse_param,
	.get_tree = get_tree,
	.reconfigure = reconfigure,
};

static int init_fs_context(struct fs_context *fc)
{
	struct dcmfs_sb *sb = kzalloc(sizeof(*sb), GFP_KERNEL);

	if (!sb)
		return -ENOMEM;
	if (fc->purpose == FS_CONTEXT_FOR_RECONFIGURE)
		sb->opt = ((struct dcmfs_sb *)fc->root->d_sb->s_fs_info)->opt;
	else
		sb->opt = (struct dcmfs_options){
			.share = 50,
			.extent = SZ_64M,
			.metadata = ((u64)totalram_pages() << PAGE_SHIFT) / 16,
			.lanes = clamp(2 * num_online_cpus(), 4u,
				       DCMFS_LANES_MAX),
			.pause = true,
			.mode = 0755,
		};
	fc->s_fs_info = sb;
	fc->ops = &context_ops;
	return 0;
}

static void kill_sb(struct super_block *super)
{
	struct dcmfs_sb *sb = super->s_fs_info;

	dcmfs_kill_names(super);
	kfree(sb);
}

static struct file_system_type dcmfs_type = {
	.owner = THIS_MODULE,
	.name = "dcmfs",
	.init_fs_context = init_fs_context,
	.parameters = dcmfs_parameters,
	.kill_sb = kill_sb,
};

static int __init dcmfs_init(void)
{
	int err;

	debug_root = debugfs_create_dir("kvm-dcm", NULL);
	err = register_filesystem(&dcmfs_type);
	if (err)
		debugfs_remove(debug_root);
	return err;
}

static void __exit dcmfs_exit(void)
{
	unregister_filesystem(&dcmfs_type);
	debugfs_remove(debug_root);
}

module_init(dcmfs_init);
module_exit(dcmfs_exit);
MODULE_ALIAS_FS("dcmfs");
MODULE_DESCRIPTION("Disaggregated memory for VMs: the kernel pager");
MODULE_LICENSE("GPL");
