/* SPDX-License-Identifier: GPL-2.0-or-later */
/* window.h - the window of a virtio-gc device, used by gc.c */
#ifndef DCM_HOSTD_WINDOW_H
#define DCM_HOSTD_WINDOW_H

#include "../gc/backend.h"
#include "hostd.h"

struct hostd_window;

/**
 * hostd_window_new() - make the window of a file
 * @f: the file
 * @sock: the device's connection; the caller closes it
 * @knows: DCM_GC_IPC_KNOWS_* of the device
 * @why: filled in on failure: the reason, of at most @len bytes
 */
struct hostd_window *hostd_window_new(struct hostd_file *f, int sock, u32 knows,
				      char *why, size_t len);

/** hostd_window_run() - serve the device until it, or the file, is gone */
void hostd_window_run(struct hostd_window *w);

void hostd_window_free(struct hostd_window *w);

/* Stop serving a window, without changing the content of pages. Any thread. */
void hostd_window_end(struct hostd_window *w);
bool hostd_window_ending(const struct hostd_window *w);

#endif /* DCM_HOSTD_WINDOW_H */
