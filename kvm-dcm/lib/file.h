/* SPDX-License-Identifier: GPL-2.0-or-later */
/* file.h - read a small file as a whole */
#ifndef DCM_FILE_H
#define DCM_FILE_H

#include <stddef.h>

/* Bytes of the one line that says what is wrong with a file. */
#define DCM_ERR_MAX 320u

/**
 * dcm_file_read() - read a whole file
 * @path: the file
 * @max: most bytes that it may have
 * @len: out: its length
 *
 * Return: the content, allocated, with a NUL at [@len]; %NULL with errno, EFBIG if the
 * file is larger.
 */
char *dcm_file_read(const char *path, size_t max, size_t *len);

/* As dcm_file_read(), for an open file; @fd stays open. */
char *dcm_fd_read(int fd, size_t max, size_t *len);

#endif /* DCM_FILE_H */
