/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hostd.h - shared by the files of dcm-hostd
 *
 *	hostd.c		options, configuration, signals, the main loop
 *	watch.c		finds the files on each dcmfs
 *	file.c		one file: its client, its thread, its end
 *	slab_worker.c	a file's slabs: given to the kernel, moved, lost
 *	link.c		its data connections: made here, used by the kernel
 *	adopt.c		takes over from an earlier dcm-hostd
 *	donor.c		donors added and removed
 *	status.c	the status, for dcmctl
 *	gc.c		garbage collection of a file by its donors
 *
 * Threads: the main one (hostd.c, watch.c); for each file one for its ioctls,
 * and libdcm's client thread, which calls back; for a file with a virtio-gc
 * device two more.
 */
#ifndef DCM_HOSTD_H
#define DCM_HOSTD_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "../include/dcmfs.h"
#include "../client/config.h"
#include "../client/client.h"
#include "../client/rebuild_pace.h"
#include "../lib/log.h"
#include "../client/slab_worker.h"

#define HOSTD_FILES_MAX 1024u
#define HOSTD_PATH_MAX 4096u
#define HOSTD_CHOICES "/run/dcm-hostd/donors"
/* Room to name each donor and each group once. */
#define HOSTD_CHOICE_MAX (2 * DCM_CONFIG_DONORS_MAX * (DCM_NAME_MAX + 2) + 64)

/**
 * struct hostd_file - one file on a dcmfs: one VM's memory
 * @dev: identifies the file, with @ino
 * @path: where it was found
 * @fd: open for reading only, or -1; the thread's while that runs
 * @info: as it was at the start; @info.lost_pages: as last seen
 * @donor: its donors, by the client's numbers
 * @number: the kernel's numbers of these donors
 * @session: their sessions, to be resumed at the start
 * @nr_donors: number of donors
 * @redundancy: on which donors each page should be
 * @sealed: the kernel encrypts its pages before they leave
 * @client: its sessions with donors
 * @slice: timer whose signal ends @thread's DETACH
 * @event: wakes @thread
 * @links: epoll: a data connection has ended
 * @ended: the main thread's eventfd, written when @thread has ended
 * @stop: @thread is to end
 * @gone: no process has the file any more; read after @thread has ended
 * @over: @thread has ended
 * @inherited: all slabs of an earlier daemon were taken over, or marked lost
 * @used: another process has the file open
 * @gc: the connection of the virtio-gc device on it; the main thread's
 * @ask_ns: donors are not asked for slabs before; @thread's
 * @rebuild: how fast copies are made again; @thread's
 * @filling: @rebuild knows how much was copied before; @thread's
 * @slabs: its slabs; the argument of the client's callbacks
 */
struct hostd_file {
	struct hostd_file *next;
	dev_t dev;
	ino_t ino;
	char *path;
	int fd;
	struct dcmfs_info info;
	struct dcm_host_donor donor[DCMFS_DONORS_MAX];
	u32 number[DCMFS_DONORS_MAX];
	struct dcm_client_session session[DCMFS_DONORS_MAX];
	u32 nr_donors;
	enum dcm_host_redundancy redundancy;
	bool sealed;
	struct dcm_client *client;
	pthread_t thread;
	timer_t slice;
	int event;
	int links;
	int ended;
	bool stop;
	bool gone;
	bool over;
	bool inherited;
	bool used;
	struct dcm_slab_worker slabs;
	struct hostd_caller *gc;
	u64 ask_ns;
	struct dcm_rebuild_pace rebuild;
	bool filling;
	struct dcm_log_rate refused;
	struct dcm_log_rate no_tls; /* the client thread's */
};

/* The file of a client's callback, whose argument is the file's @slabs. */
static inline struct hostd_file *hostd_file_of(void *slabs)
{
	return container_of(slabs, struct hostd_file, slabs);
}

/* How many donors should have each page of the file. */
static inline u32 hostd_file_copies(const struct hostd_file *f)
{
	return dcm_redundancies[f->redundancy].copies;
}

#define HOSTD_CALLERS_MAX 64u

/**
 * struct hostd - the daemon; used by the main thread
 * @cfg: the configuration; only with donors that can be used
 * @files: the files that are served
 * @ended: eventfd: a file's thread has ended
 * @status: socket that serves the status; negative: none
 * @gc: socket for virtio-gc devices; -1: none
 * @callers: connections to @gc; @nr_callers: how many of them have no file
 */
struct hostd {
	struct dcm_host_config cfg;
	struct dcm_key key;
	struct hostd_file *files;
	u32 nr_files;
	int ended;
	int inotify;
	int mounts;
	int status;
	int gc;
	u32 nr_callers;
	struct hostd_caller *callers;
	struct dcm_log_rate crowded;
	struct hostd_dir *dirs;
	struct dcm_log_rate full;
};

/* watch.c */
int hostd_watch_start(struct hostd *h);
void hostd_watch_mounts(struct hostd *h);
void hostd_watch_read(struct hostd *h);
void hostd_watch_stop(struct hostd *h);

/* file.c */
void hostd_file_start(struct hostd *h, const char *path);
bool hostd_file_known(const struct hostd *h, dev_t dev, ino_t ino);
void hostd_files_reap(struct hostd *h);
void hostd_file_stop(struct hostd *h, struct hostd_file *f);
void hostd_file_kick(struct hostd_file *f);
u64 hostd_now_ns(void);

/* slab_worker.c */
#define HOSTD_ON_LOSS "raise SIGBUS or block (mount option on-loss)"
extern const struct dcm_slab_worker_ops hostd_slab_ops;
extern const struct dcm_client_ops hostd_client_ops;
bool hostd_slab_adopt(struct hostd_file *f, struct dcm_client_slab *slab,
		      const struct dcmfs_slab *a, bool old);
u64 hostd_slab_number(u32 extent, u32 n);
void hostd_slabs_count(struct hostd_file *f);
void hostd_slabs_inherit(struct hostd_file *f);
void hostd_slabs_leave(struct hostd_file *f);

/* adopt.c */
void hostd_donors_find(const struct hostd *h, struct hostd_file *f);
bool hostd_donor_same(const struct dcm_host_donor *a,
		      const struct dcm_host_donor *b);
u32 hostd_number_free(const struct hostd_file *f, u64 taken);
void hostd_adopt(void *arg, struct dcm_client *client);
void hostd_session(void *arg, u32 donor, const struct dcm_client_session *s);
void hostd_welcomed(void *arg, u32 donor, int fd);

/* donor.c */
void hostd_donors_read(struct hostd *h, const char *config);
void hostd_donors_apply(const struct hostd *h, struct hostd_file *f);
void hostd_donor_added(void *arg, u32 donor, const struct dcm_host_donor *d);

/**
 * struct hostd_choice - the choice for a file: its donors, redundancy, sealing
 * @any: all donors
 * @text: lines: a name or @GROUP each, * for all donors; "redundancy = VALUE";
 *	"seal = yes" or "seal = no"
 */
struct hostd_choice {
	bool any;
	char text[HOSTD_CHOICE_MAX + 1];
};

/* choice.c */
void hostd_choice_read(const struct hostd_file *f, struct hostd_choice *c);
bool hostd_choice_has(const struct hostd_choice *c, const struct hostd *h,
		      u32 donor);
enum dcm_host_redundancy hostd_choice_redundancy(const struct hostd_choice *c,
						 const struct hostd *h);
bool hostd_choice_seal(const struct hostd_choice *c, const struct hostd *h);

/* link.c */
extern const struct dcm_client_links hostd_links;
void hostd_links_look(struct hostd_file *f);

/* status.c */
void hostd_status_start(struct hostd *h, const char *path);
void hostd_status_tell(const struct hostd *h);
int hostd_listen(const char *path, int type, mode_t mode, u32 backlog);
void hostd_unlisten(int *fd, const char *path);

/* gc.c */
void hostd_gc_start(struct hostd *h, const char *path);
u32 hostd_gc_poll(const struct hostd *h, struct pollfd *p);
void hostd_gc_handle(struct hostd *h, const struct pollfd *p, u32 n);
void hostd_gc_stop(struct hostd_file *f);
void hostd_gc_reap(struct hostd *h);
bool hostd_gc_waits(const struct hostd *h);
void hostd_gc_end(struct hostd *h, const char *path);

#endif /* DCM_HOSTD_H */
