// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * file.c - read a small file as a whole
 *
 * The buffer has the largest size that the caller allows, because the size of a
 * file in proc or sys is not known before it is read.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "file.h"

char *dcm_fd_read(int fd, size_t max, size_t *len)
{
	char *text = malloc(max + 1);
	size_t got = 0;
	int err;

	if (!text)
		return NULL;
	while (got <= max) {
		ssize_t n = read(fd, text + got, max + 1 - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			err = errno;
			free(text);
			errno = err;
			return NULL;
		}
		if (!n)
			break;
		got += (size_t)n;
	}
	if (got > max) {
		free(text);
		errno = EFBIG;
		return NULL;
	}
	text[got] = 0;
	*len = got;
	return text;
}

char *dcm_file_read(const char *path, size_t max, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	char *text;
	int err;

	if (fd < 0)
		return NULL;
	text = dcm_fd_read(fd, max, len);
	err = errno;
	close(fd);
	errno = err;
	return text;
}
