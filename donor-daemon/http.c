// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * http.c - /metrics, /status and /healthz
 *
 * libmicrohttpd without threads of its own: its epoll descriptor is one handle
 * of the event loop, and MHD_run() handles what is ready. It has no access
 * control, so it stays on loopback unless "allow-remote" is set, and there
 * answers only requests whose Host names loopback: a web page in the operator's
 * browser can't read it by a name that resolves to 127.0.0.1.
 *
 * No client waits for a seat: when all are taken, the oldest connection of the
 * address that has most of them is ended (admission.c). Each connection gets one
 * answer, and is ended %LIFE_S seconds after it was opened, however slowly its
 * client sends or reads. To end a connection its socket is shut down, and
 * libmicrohttpd closes it later, so libmicrohttpd is allowed more connections
 * than there are seats. An ended connection is in no list.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "donor.h"
#include "admission.h"
#include "log_limit.h"

#define CONNECTIONS	64u
#define LEAVING		64u	/* shut down, and not closed yet */
#define TIMEOUT_S	10u	/* idle */
#define LIFE_S		20u

struct dcm_http {
	struct MHD_Daemon *mhd;
	uv_poll_t poll;
	uv_timer_t timer;
	struct dcm_donor *donor;
	struct dcm_admission admission;
	struct dcm_list clients;	/* the oldest is first */
	int handles;
};

struct http_client {
	struct dcm_list node;
	struct dcm_seat seat;
	u64 ends_at;
	int fd;
};

static enum MHD_Result answer_send(struct MHD_Connection *c, unsigned int code,
			      const char *type, char *text, size_t len,
			      enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(len, text, mode);
	enum MHD_Result ret;

	if (!r) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	MHD_add_response_header(r, "Content-Type", type);
	MHD_add_response_header(r, "Cache-Control", "no-store");
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	ret = MHD_queue_response(c, code, r);
	MHD_destroy_response(r);
	return ret;
}

static enum MHD_Result answer_send_line(struct MHD_Connection *c,
					unsigned int code, const char *line)
{
	return answer_send(c, code, "text/plain; charset=utf-8", (char *)line,
		      strlen(line), MHD_RESPMEM_PERSISTENT);
}

static bool host_is_loopback(const char *host)
{
	char name[64];
	size_t n;

	if (!host)
		return true;	/* no Host: HTTP/1.0, so not from a browser */
	n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	if (n >= sizeof(name))
		return false;
	memcpy(name, host, n);
	name[n] = 0;
	return !strcmp(name, "localhost") || !strcmp(name, "[::1]") ||
	       (!strncmp(name, "127.", 4) &&
		strspn(name, "0123456789.") == strlen(name));
}

static enum MHD_Result request_handle(void *arg, struct MHD_Connection *c,
			      const char *url, const char *method,
			      const char *version, const char *upload,
			      size_t *upload_len, void **state)
{
	struct dcm_http *h = arg;
	struct dcm_donor *donor = h->donor;
	size_t len;
	char *text;

	(void)version;
	(void)upload;
	(void)state;
	if (*upload_len) {
		*upload_len = 0;
		return MHD_YES;
	}
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return answer_send_line(c, MHD_HTTP_METHOD_NOT_ALLOWED,
				   "GET only\n");
	if (!donor->cfg.http_allow_remote &&
	    !host_is_loopback(
		    MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host")))
		return answer_send_line(c, MHD_HTTP_FORBIDDEN,
				   "ask by a loopback address\n");
	if (!strcmp(url, "/healthz")) {
		if (donor->draining || donor->stopping)
			return answer_send_line(c, MHD_HTTP_SERVICE_UNAVAILABLE,
					   "draining\n");
		return answer_send_line(c, MHD_HTTP_OK, "ok\n");
	}
	if (!strcmp(url, "/metrics")) {
		text = dcm_metrics_text(donor, &len);
		if (!text)
			return MHD_NO;
		return answer_send(c, MHD_HTTP_OK,
				   "text/plain; version=0.0.4; charset=utf-8",
				   text, len, MHD_RESPMEM_MUST_FREE);
	}
	if (!strcmp(url, "/status")) {
		text = dcm_status_json(donor, &len);
		if (!text)
			return MHD_NO;
		return answer_send(c, MHD_HTTP_OK, "application/json", text,
				   len, MHD_RESPMEM_MUST_FREE);
	}
	return answer_send_line(c, MHD_HTTP_NOT_FOUND,
			   "/metrics, /status or /healthz\n");
}

/* End a connection: shut it down. libmicrohttpd closes the descriptor later. */
static void client_end(struct http_client *cl)
{
	dcm_admission_leave(&cl->seat);
	dcm_list_del(&cl->node);
	shutdown(cl->fd, SHUT_RDWR);
}

static void client_add(struct dcm_http *h, struct MHD_Connection *c,
			void **context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	int fd = info ? info->connect_fd : -1;
	struct http_client *cl = calloc(1, sizeof(*cl));
	struct sockaddr_storage peer = { 0 };
	socklen_t len = sizeof(peer);
	struct dcm_origin origin;

	if (!cl || getpeername(fd, (struct sockaddr *)&peer, &len))
		goto refuse;
	dcm_origin_of(&origin, &peer);
	if (dcm_admission_enter(&h->admission, &cl->seat, &origin))
		goto refuse;
	cl->fd = fd;
	cl->ends_at = dcm_now(h->donor) + LIFE_S * 1000;
	dcm_list_add_tail(&cl->node, &h->clients);
	*context = cl;
	if (h->admission.nr_seats > CONNECTIONS)
		client_end(dcm_list_entry(dcm_admission_victim(&h->admission),
					 struct http_client, seat));
	return;
refuse:
	free(cl);
	shutdown(fd, SHUT_RDWR);
}

static void client_notify(void *arg, struct MHD_Connection *c, void **context,
			 enum MHD_ConnectionNotificationCode what)
{
	struct http_client *cl = *context;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		client_add(arg, c, context);
	} else if (cl) {
		dcm_admission_leave(&cl->seat);
		dcm_list_del(&cl->node);
		free(cl);
		*context = NULL;
	}
}

static void http_run(struct dcm_http *h);

static void http_timer(uv_timer_t *timer)
{
	http_run(timer->data);
}

static void http_run(struct dcm_http *h)
{
	u64 now = dcm_now(h->donor), wait = ~0ull;
	MHD_UNSIGNED_LONG_LONG ms;
	struct http_client *cl, *tmp;

	dcm_list_for_each_safe(cl, tmp, &h->clients, struct http_client, node) {
		if (cl->ends_at > now)
			break;
		client_end(cl);
	}
	MHD_run(h->mhd);
	if (!dcm_list_empty(&h->clients)) {
		cl = dcm_list_first(&h->clients, struct http_client, node);
		wait = cl->ends_at > now ? cl->ends_at - now : 0;
	}
	if (MHD_get_timeout(h->mhd, &ms) == MHD_YES && ms < wait)
		wait = ms;
	if (wait != ~0ull)
		uv_timer_start(&h->timer, http_timer, wait, 0);
	else
		uv_timer_stop(&h->timer);
}

static void http_ready(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	http_run(poll->data);
}

static bool address_is_loopback(const struct sockaddr_storage *ss)
{
	const struct sockaddr_in *in4 = (const void *)ss;
	const struct sockaddr_in6 *in6 = (const void *)ss;

	if (ss->ss_family == AF_INET)
		return ntohl(in4->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/*
 * Parse an address, which must be numeric: no name service may decide what is loopback.
 */
static int address_parse(const char *text, struct sockaddr_storage *ss)
{
	struct sockaddr_in *in4 = (void *)ss;
	struct sockaddr_in6 *in6 = (void *)ss;
	char host[64], *port, *end, *h = host;
	unsigned long nr;

	memset(ss, 0, sizeof(*ss));
	if (strlen(text) >= sizeof(host))
		return -EINVAL;
	strcpy(host, text);
	port = strrchr(host, ':');
	if (!port || !port[1])
		return -EINVAL;
	*port++ = 0;
	nr = strtoul(port, &end, 10);
	if (*end || nr > 65535)
		return -EINVAL;
	if (*h == '[' && h[strlen(h) - 1] == ']') {
		h[strlen(h) - 1] = 0;
		ss->ss_family = AF_INET6;
		in6->sin6_port = htons((u16)nr);
		return inet_pton(AF_INET6, h + 1, &in6->sin6_addr) == 1 ?
			       0 :
			       -EINVAL;
	}
	ss->ss_family = AF_INET;
	in4->sin_port = htons((u16)nr);
	if (!strcmp(h, "localhost"))
		h = (char *)"127.0.0.1";
	return inet_pton(AF_INET, h, &in4->sin_addr) == 1 ? 0 : -EINVAL;
}

static __attribute__((format(printf, 2, 0))) void
http_log(void *arg, const char *fmt, va_list ap)
{
	char line[256];

	(void)arg;
	vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = 0;
	dcm_log_limited(DCM_LOG_INFO, "http: %s", line);
}

int dcm_http_start(struct dcm_donor *donor, char *err, size_t err_len)
{
	const char *addr = donor->cfg.http;
	unsigned int flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG;
	const union MHD_DaemonInfo *info;
	struct sockaddr_storage ss;
	struct dcm_http *h;
	int ret;

	snprintf(donor->http_name, sizeof(donor->http_name), "off");
	if (!strcmp(addr, "off") || !*addr)
		return 0;
	ret = address_parse(addr, &ss);
	if (ret) {
		snprintf(err, err_len,
			 "[http] listen = %.60s: write ADDRESS:PORT, with a numeric address, or off",
			 addr);
		return ret;
	}
	if (!address_is_loopback(&ss) && !donor->cfg.http_allow_remote) {
		snprintf(err, err_len,
			 "[http] listen = %.60s: not loopback, and anybody who reaches it sees every tenant; set allow-remote = yes if that is wanted",
			 addr);
		return -EINVAL;
	}
	h = calloc(1, sizeof(*h));
	if (!h) {
		snprintf(err, err_len, "out of memory");
		return -ENOMEM;
	}
	h->donor = donor;
	dcm_list_init(&h->clients);
	dcm_admission_init(&h->admission, donor->donor_id);
	if (ss.ss_family == AF_INET6)
		flags |= MHD_USE_IPv6;
	errno = 0;
	h->mhd = MHD_start_daemon(flags, 0, NULL, NULL, request_handle, h,
				  MHD_OPTION_EXTERNAL_LOGGER, http_log, NULL,
				  MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&ss,
				  MHD_OPTION_CONNECTION_LIMIT,
				  CONNECTIONS + LEAVING,
				  MHD_OPTION_NOTIFY_CONNECTION, client_notify,
				  h, MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S,
				  MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u,
				  MHD_OPTION_END);
	if (!h->mhd) {
		/* libmicrohttpd sets no errno for some failures */
		ret = errno ? -errno : -EINVAL;
		snprintf(err, err_len, "[http] listen = %.60s: %s", addr,
			 strerror(-ret));
		free(h);
		return ret;
	}
	info = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_BIND_PORT);
	snprintf(donor->http_name, sizeof(donor->http_name), "%.*s:%u",
		 (int)(strrchr(addr, ':') - addr), addr, info ? info->port : 0);
	info = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	ret = info ? uv_poll_init(&donor->loop, &h->poll, info->epoll_fd) :
		     -EBADF;
	if (ret) {
		snprintf(err, err_len, "[http]: no epoll descriptor");
		MHD_stop_daemon(h->mhd);
		free(h);
		return ret;
	}
	h->poll.data = h;
	h->timer.data = h;
	uv_timer_init(&donor->loop, &h->timer);
	uv_poll_start(&h->poll, UV_READABLE, http_ready);
	donor->http = h;
	dcm_info("http on %s: /metrics /status /healthz", donor->http_name);
	return 0;
}

static void http_freed(uv_handle_t *handle)
{
	struct dcm_http *h = handle->data;

	if (!--h->handles)
		free(h);
}

void dcm_http_stop(struct dcm_donor *donor)
{
	struct dcm_http *h = donor->http;

	if (!h)
		return;
	donor->http = NULL;
	h->handles = 2;
	uv_close((uv_handle_t *)&h->poll, http_freed);
	uv_close((uv_handle_t *)&h->timer, http_freed);
	MHD_stop_daemon(h->mhd);
}
