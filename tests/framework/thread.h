/* SPDX-License-Identifier: GPL-2.0-or-later */
/* thread.h - find a thread of this process by the name that the library gave it */
#ifndef TEST_THREAD_H
#define TEST_THREAD_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Return the id of the thread with this name, or 0 if there is none. */
static inline pid_t test_thread_find(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	pid_t tid = 0;

	while (dir && !tid && (entry = readdir(dir))) {
		char path[300], comm[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm",
			 entry->d_name);
		f = fopen(path, "r");
		if (!f)
			continue; /* it has ended */
		if (fgets(comm, sizeof(comm), f)) {
			comm[strcspn(comm, "\n")] = 0;
			if (!strcmp(comm, name))
				tid = (pid_t)atoi(entry->d_name);
		}
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return tid;
}

#endif /* TEST_THREAD_H */
