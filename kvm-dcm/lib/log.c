// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * log.c - lines to standard error; no thread that logs waits for their reader
 *
 * Standard error is a pipe, a socket of journald's, a terminal or a file, and
 * each of them can stall: its reader is stopped, its disk hangs. A write() then
 * sleeps, and a thread that sleeps there answers no fault and no heartbeat. The
 * open file may be shared with other processes, so O_NONBLOCK, which is the
 * open file's, is not ours to set; and it does nothing for a file on a disk.
 * Hence one thread writes, and all others hand their lines to it in a ring:
 *
 *	dcm_log() --> [ slot | slot | ... ] --> writer thread --> write(2)
 *
 * A line that finds the ring full is dropped and counted, and so is one that
 * can't be written, because the disk is full for example. The count is logged as
 * soon as lines can be written again.
 *
 * Without the thread (before dcm_log_start(), in a child after fork()) a line
 * is written at once if poll() finds standard error ready, else dropped.
 * Each write is smaller than PIPE_BUF: a pipe that is ready takes that in one piece.
 *
 * libdcm lives inside someone else's process and logs from threads that may not
 * touch paged memory and may not wait for stdio's locks, which another thread
 * can hold while it faults. So nothing here allocates or takes a lock. Whoever
 * owns a slot copies from its own stack, which may be paged; other threads can
 * log meanwhile, into other slots.
 *
 * Slot @i is free for line number n (n % %LINES == i) while its @seq is n, holds
 * that line when it is n + 1, and is free for the next round at n + %LINES.
 *
 * Locking: none; @start_lock is for dcm_log_start() alone. Signals are blocked
 * while a slot is owned: a handler might never return to it.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "thread.h"
#include "log.h"

#define LINE_BYTES	1024u
#define LINES		256u	/* a power of two */
#define EXIT_MS		1000u	/* at exit(): time to write what is in the ring */
#define RETRY_MS	10

struct slot {
	uint32_t seq;
	uint32_t len;
	char text[LINE_BYTES];
};

static int log_max = DCM_LOG_INFO;
static int log_fd = STDERR_FILENO;
static int log_journal = -1;
static bool log_stamp;
static const char *log_name = "libdcm";

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot ring[LINES];
static pid_t owner;		/* the process that has the thread */
static uint32_t taken;		/* slots that were ever owned */
static uint32_t ready;		/* lines that were ever handed over */
static uint32_t done;		/* of those, written or given up */
static uint32_t dropped;	/* lines since the last that was taken */

void dcm_log_setup(enum dcm_log_level max, int fd)
{
	__atomic_store_n(&log_max, (int)max, __ATOMIC_RELAXED);
	if (fd >= 0)
		__atomic_store_n(&log_fd, fd, __ATOMIC_RELEASE);
}

void dcm_log_name(const char *name, bool stamp)
{
	__atomic_store_n(&log_stamp, stamp, __ATOMIC_RELAXED);
	__atomic_store_n(&log_name, name, __ATOMIC_RELAXED);
}

/* ---- a line ---- */

static const char *level_word(enum dcm_log_level level)
{
	switch (level) {
	case DCM_LOG_ERR:
		return "error";
	case DCM_LOG_WARNING:
		return "warning";
	case DCM_LOG_NOTICE:
		return "notice";
	case DCM_LOG_INFO:
		return "info";
	default:
		return "debug";
	}
}

/*
 * Write the part before the text. For the journal that is a priority, "<N>"; it adds
 * the time itself.
 */
static size_t prefix(char *buf, size_t room, enum dcm_log_level level)
{
	const char *name = __atomic_load_n(&log_name, __ATOMIC_RELAXED);
	bool stamp = __atomic_load_n(&log_stamp, __ATOMIC_RELAXED);
	int journal = __atomic_load_n(&log_journal, __ATOMIC_RELAXED);
	struct timespec ts;
	struct tm tm;
	size_t n;

	if (journal < 0) {
		journal = getenv("JOURNAL_STREAM") != NULL;
		__atomic_store_n(&log_journal, journal, __ATOMIC_RELAXED);
	}
	if (journal && stamp)
		return (size_t)snprintf(buf, room, "<%d>", (int)level);
	if (journal)
		return (size_t)snprintf(buf, room, "<%d>%.20s: ", (int)level,
					name);
	if (!stamp)
		return (size_t)snprintf(buf, room, "%.20s: ", name);
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(buf, room, "%Y-%m-%dT%H:%M:%S", &tm);
	return n + (size_t)snprintf(buf + n, room - n,
				    ".%03ldZ %.20s %s: ", ts.tv_nsec / 1000000,
				    name, level_word(level));
}

/* Format a line. Names may come from the network, so make it one line, printable. */
__attribute__((format(printf, 3, 0))) static size_t
line_make(char *buf, enum dcm_log_level level, const char *fmt, va_list ap)
{
	size_t start = prefix(buf, LINE_BYTES / 2, level), len = start, i;
	int n = vsnprintf(buf + len, LINE_BYTES - 1 - len, fmt, ap);

	if (n > 0)
		len += (size_t)n;
	if (len > LINE_BYTES - 2)
		len = LINE_BYTES - 2;
	for (i = start; i < len; i++)
		if ((unsigned char)buf[i] < ' ' || buf[i] == 127)
			buf[i] = '?';
	buf[len++] = '\n';
	return len;
}

__attribute__((format(printf, 2, 3))) static size_t
dropped_make(char *buf, const char *fmt, ...)
{
	va_list ap;
	size_t len;

	va_start(ap, fmt);
	len = line_make(buf, DCM_LOG_WARNING, fmt, ap);
	va_end(ap);
	return len;
}

static size_t not_kept_up(char *buf, uint32_t n)
{
	return dropped_make(
		buf, "%u lines were dropped: the log's reader did not keep up",
		n);
}

/* ---- without the thread ---- */

bool dcm_log_now(const char *text, size_t len)
{
	int fd = __atomic_load_n(&log_fd, __ATOMIC_ACQUIRE);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	ssize_t n = send(fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n >= 0)
		return true;
	if (errno != ENOTSOCK || poll(&p, 1, 0) != 1 ||
	    (p.revents & (POLLOUT | POLLERR)) != POLLOUT)
		return false;
	do {
		n = write(fd, text, len);
	} while (n < 0 && errno == EINTR);
	return n >= 0;
}

static void line_write(const char *text, size_t len)
{
	uint32_t n = __atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
	char more[LINE_BYTES];

	if ((!n || dcm_log_now(more, not_kept_up(more, n))) &&
	    dcm_log_now(text, len))
		return;
	__atomic_fetch_add(&dropped, n + 1, __ATOMIC_RELAXED);
}

/* ---- the ring ---- */

static void futex_wait(uint32_t *word, uint32_t seen, const struct timespec *ts)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, ts, NULL, 0);
}

static void count_raise(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool line_hand_over(const char *text, size_t len)
{
	uint32_t at = __atomic_load_n(&taken, __ATOMIC_RELAXED), seq;
	struct slot *s;

	do {
		s = &ring[at % LINES];
		seq = __atomic_load_n(&s->seq, __ATOMIC_ACQUIRE);
		if ((int32_t)(seq - at) < 0)
			return false;
		if (seq != at) {
			at = __atomic_load_n(&taken, __ATOMIC_RELAXED);
			continue;
		}
		if (__atomic_compare_exchange_n(&taken, &at, at + 1, false,
						__ATOMIC_SEQ_CST,
						__ATOMIC_RELAXED))
			break;
	} while (true);
	memcpy(s->text, text, len);
	s->len = (uint32_t)len;
	__atomic_store_n(&s->seq, at + 1, __ATOMIC_RELEASE);
	count_raise(&ready);
	return true;
}

/* Queue a line; if lines were dropped before it, first one that says how many. */
static void line_queue(const char *text, size_t len)
{
	uint32_t n = __atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
	char more[LINE_BYTES];
	size_t more_len = n ? not_kept_up(more, n) : 0;
	sigset_t old;

	dcm_thread_enter(&old);
	if ((n && !line_hand_over(more, more_len)) ||
	    !line_hand_over(text, len))
		__atomic_fetch_add(&dropped, n + 1, __ATOMIC_RELAXED);
	dcm_thread_leave(&old);
}

/* ---- the thread ---- */

/* Write all of @text, however long that takes; 0 or an errno. */
static int text_write(const char *text, size_t len)
{
	static bool torn;
	int fd = __atomic_load_n(&log_fd, __ATOMIC_ACQUIRE);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	ssize_t n;

	if (torn && write(fd, "\n", 1) == 1)
		torn = false;
	while (len) {
		n = write(fd, text, len);
		if (n >= 0) {
			text += n;
			len -= (size_t)n;
			torn = len;
		} else if (errno == EAGAIN) {
			/* Another process has set O_NONBLOCK on the shared file. */
			if (poll(&p, 1, -1) == 1)
				poll(NULL, 0, RETRY_MS);
		} else if (errno != EINTR) {
			return errno;
		}
	}
	return 0;
}

static bool is_ready(uint32_t at)
{
	return __atomic_load_n(&ring[at % LINES].seq, __ATOMIC_ACQUIRE) ==
	       at + 1;
}

static void *writer(void *arg)
{
	char text[LINE_BYTES];
	uint32_t at = 0, failed = 0, seen, n;
	int why = 0;

	(void)arg;
	for (;;) {
		struct slot *s = &ring[at % LINES];

		seen = __atomic_load_n(&ready, __ATOMIC_SEQ_CST);
		if (!is_ready(at)) {
			futex_wait(&ready, seen, NULL);
			continue;
		}
		if (failed &&
		    !text_write(text,
				dropped_make(text,
				    "%u lines were dropped: the log could not be written: %s",
				    failed, strerror(why))))
			failed = 0;
		n = failed ? 1 : 0;
		if (!n) {
			why = text_write(s->text, s->len);
			n = !!why;
		}
		failed += n;
		__atomic_store_n(&s->seq, at + LINES, __ATOMIC_RELEASE);
		at++;
		/* Lines were dropped, and no later line may come: report them now. */
		n = is_ready(at) ?
			    0 :
			    __atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
		if (n && (failed || text_write(text, not_kept_up(text, n))))
			failed += n;
		count_raise(&done);
	}
	return NULL;
}

int dcm_log_start(void)
{
	pthread_t t;
	uint32_t i;
	int err = 0;

	pthread_mutex_lock(&start_lock);
	if (__atomic_load_n(&owner, __ATOMIC_ACQUIRE) != getpid()) {
		for (i = 0; i < LINES; i++)
			ring[i].seq = i;
		taken = ready = done = 0;
		err = dcm_thread_start(&t, writer, NULL);
		if (!err) {
			pthread_detach(t);
			__atomic_store_n(&owner, getpid(), __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&start_lock);
	return err;
}

void dcm_log_flush(unsigned int ms)
{
	uint32_t until = __atomic_load_n(&taken, __ATOMIC_SEQ_CST), seen;
	uint64_t end = dcm_clock_ms() + ms, now;
	struct timespec ts;

	if (__atomic_load_n(&owner, __ATOMIC_ACQUIRE) != getpid())
		return;
	for (;;) {
		seen = __atomic_load_n(&done, __ATOMIC_SEQ_CST);
		now = dcm_clock_ms();
		if ((int32_t)(seen - until) >= 0 || now >= end)
			return;
		ts.tv_sec = (time_t)((end - now) / 1000);
		ts.tv_nsec = (long)((end - now) % 1000 * 1000000);
		futex_wait(&done, seen, &ts);
	}
}

__attribute__((destructor)) static void log_end(void)
{
	dcm_log_flush(EXIT_MS);
}

/* ---- for everybody ---- */

void dcm_vlog(enum dcm_log_level level, const char *fmt, va_list ap)
{
	int saved = errno;
	char text[LINE_BYTES];
	size_t len;

	if ((int)level > __atomic_load_n(&log_max, __ATOMIC_RELAXED))
		return;
	len = line_make(text, level, fmt, ap);
	if (__atomic_load_n(&owner, __ATOMIC_ACQUIRE) == getpid())
		line_queue(text, len);
	else
		line_write(text, len);
	errno = saved;
}

void dcm_log(enum dcm_log_level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	dcm_vlog(level, fmt, ap);
	va_end(ap);
}

bool dcm_log_allow(struct dcm_log_rate *rate, uint64_t now, uint64_t every_ms)
{
	if (rate->last_ms && now - rate->last_ms < every_ms) {
		rate->held++;
		return false;
	}
	rate->last_ms = now ? now : 1;
	rate->held = 0;
	return true;
}
