/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dcmfs_test.h - what the parts of dcmfs_test share
 */
#ifndef DCMFS_TEST_H
#define DCMFS_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dcmfs.h"

#define PAGE 4096u

void fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
uint64_t now_ns(void);
uint64_t rnd(uint64_t *state);
void expect(long ret, int err, const char *what);
void catch_bus(void);
bool readable(volatile const char *p);
long majors(void);
int file_make(const char *dir, off_t size);
/* Open the file once more, to read. */
int file_again(int fd);
/* A process of its own, with the file open once more, that is killed in the end. */
void by_killed(int fd, void (*run)(int other));
char *map_shared(int fd, size_t size);
int range_ask(int fd, unsigned long cmd, uint64_t first, uint64_t pages,
	  uint32_t flags, uint32_t limit_ms);
void no_error(int err, const char *what);

/**
 * struct control - a control plane for one file
 * @fd: the file
 * @info: as it was at the start
 * @slab: slab under each extent, 0: none; its id
 * @file: and its memfd, or its name at the donor
 * @link: each lane's connection to the donor; %NULL: slabs are memfds
 * @next_id: id of the next slab
 */
struct control {
	int fd;
	struct dcmfs_info info;
	uint64_t *slab;
	int *file;
	int *link;
	uint64_t next_id;
};

struct dcmfs_info info_of(int fd);
void control_open(struct control *c, int fd);
unsigned int control_serve(struct control *c, int wait_ms);
void control_provide(struct control *c, uint32_t extent);
void control_move(struct control *c, uint32_t extent);
void control_lose(struct control *c, uint32_t extent);
int control_link(struct control *c, uint32_t lane, int fd);
unsigned int control_mend(struct control *c);
int control_budget(struct control *c, uint64_t pages);
void control_tune(struct control *c, const char *name, uint64_t value);
void control_in_order(struct control *c);
void control_squeeze(struct control *c);
uint64_t control_used(const struct control *c);
void control_frames(struct control *c, uint64_t frames);
char *control_map(struct control *c, const char *dir, size_t size);
void control_unmap(struct control *c, char *m, size_t size);

int budget(int argc, char **argv);
int serve(int argc, char **argv);
/**
 * struct check - something that has to be so
 * @name: printed when it was
 */
struct check {
	const char *name;
	void (*run)(void);
};

void run_checks(const struct check *list, size_t nr);

int access_by_others(int argc, char **argv);
int basics(int argc, char **argv);
int chaos(int argc, char **argv);
int copies(int argc, char **argv);
int fsx(int argc, char **argv);
int freeze(int argc, char **argv);
int guest(int argc, char **argv);
int guest_in_spans(int argc, char **argv);
int huge(int argc, char **argv);
int links(int argc, char **argv);
int ioctls(int argc, char **argv);
int mapping(int argc, char **argv);
int mounts(int argc, char **argv);
int pairs(int argc, char **argv);
int silent(int argc, char **argv);
int sparse(int argc, char **argv);
int spread(int argc, char **argv);
int torture(int argc, char **argv);
int use(int argc, char **argv);
int vhost(int argc, char **argv);
int words(int argc, char **argv);

#endif /* DCMFS_TEST_H */
