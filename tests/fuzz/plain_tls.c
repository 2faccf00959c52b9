// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * plain_tls.c - what donors and hosts call of GnuTLS, without a cipher
 *
 * Bytes are not encrypted. In a handshake the host sends a record of one byte, which
 * names its tenant: 'z' has no key that fits. With a capital letter the handshake has
 * two steps: the donor answers, and one more byte has to come. The donor's answer is
 * one byte: 'y' is a good one, 'n' an alert, anything else is not understood.
 *
 * A host's session is as awkward as GnuTLS may be: it takes more from its socket
 * than it is asked for, and a record that could be sent only in part is to be
 * gone on with, and reported when all of it is gone.
 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "input.h"
#include "plain_tls.h"

#define RECORD 16384u
#define AHEAD 256u

/**
 * struct gnutls_session_int - a session
 * @push: a donor's; a host's bytes go to @fd
 * @name: of a donor's session: the host's tenant
 * @answered: the first step of a donor's handshake is done
 * @held: bytes of @record, of which @sent are gone
 * @ahead: bytes read and not asked for yet
 */
struct gnutls_session_int {
	void *ptr;
	bool host;
	int fd;
	gnutls_transport_ptr_t transport;
	gnutls_pull_func pull;
	gnutls_vec_push_func push;
	char name[8];
	bool answered;
	size_t held;
	size_t sent;
	size_t nr_ahead;
	u8 ahead[AHEAD];
	u8 record[RECORD];
};

static void *plain_malloc(size_t n)
{
	return malloc(n);
}

gnutls_alloc_function gnutls_malloc = plain_malloc;
u64 plain_tls_whole;

static ssize_t fd_pull(gnutls_transport_ptr_t ptr, void *to, size_t room)
{
	return recv((int)(intptr_t)ptr, to, room, MSG_DONTWAIT);
}

int gnutls_global_init(void)
{
	return 0;
}

int gnutls_init(gnutls_session_t *s, unsigned int flags)
{
	*s = malloc(sizeof(**s));
	if (!*s)
		return GNUTLS_E_MEMORY_ERROR;
	memset(*s, 0, offsetof(struct gnutls_session_int, ahead));
	(*s)->host = flags & GNUTLS_CLIENT;
	(*s)->pull = fd_pull;
	return 0;
}

void gnutls_deinit(gnutls_session_t s)
{
	free(s);
}

void gnutls_session_set_ptr(gnutls_session_t s, void *ptr)
{
	s->ptr = ptr;
}

void *gnutls_session_get_ptr(gnutls_session_t s)
{
	return s->ptr;
}

void gnutls_transport_set_ptr(gnutls_session_t s, gnutls_transport_ptr_t ptr)
{
	s->transport = ptr;
}

void gnutls_transport_set_ptr2(gnutls_session_t s, gnutls_transport_ptr_t pull,
			       gnutls_transport_ptr_t push)
{
	s->transport = pull;
	s->fd = (int)(intptr_t)push;
}

void gnutls_transport_set_int2(gnutls_session_t s, int pull, int push)
{
	s->transport = (void *)(intptr_t)pull;
	s->fd = push;
}

void gnutls_transport_set_pull_function(gnutls_session_t s, gnutls_pull_func f)
{
	s->pull = f;
}

void gnutls_transport_set_pull_timeout_function(gnutls_session_t s,
						gnutls_pull_timeout_func f)
{
	(void)s;
	(void)f;
}

int gnutls_system_recv_timeout(gnutls_transport_ptr_t ptr, unsigned int ms)
{
	(void)ptr;
	(void)ms;
	return 0;
}

void gnutls_transport_set_vec_push_function(gnutls_session_t s,
					    gnutls_vec_push_func f)
{
	s->push = f;
}

void gnutls_transport_set_errno(gnutls_session_t s, int err)
{
	(void)s;
	(void)err;
}

void gnutls_handshake_set_timeout(gnutls_session_t s, unsigned int ms)
{
	(void)s;
	(void)ms;
}

void gnutls_handshake_set_hook_function(gnutls_session_t s, unsigned int type,
					int when, gnutls_handshake_hook_func f)
{
	(void)s;
	(void)type;
	(void)when;
	(void)f;
}

int gnutls_priority_init(gnutls_priority_t *p, const char *text,
			 const char **where)
{
	(void)text;
	(void)where;
	*p = NULL;
	return 0;
}

void gnutls_priority_deinit(gnutls_priority_t p)
{
	(void)p;
}

int gnutls_priority_set(gnutls_session_t s, gnutls_priority_t p)
{
	(void)s;
	(void)p;
	return 0;
}

int gnutls_psk_allocate_server_credentials(gnutls_psk_server_credentials_t *c)
{
	*c = NULL;
	return 0;
}

void gnutls_psk_free_server_credentials(gnutls_psk_server_credentials_t c)
{
	(void)c;
}

void gnutls_psk_set_server_credentials_function2(
	gnutls_psk_server_credentials_t c,
	gnutls_psk_server_credentials_function2 *f)
{
	(void)c;
	(void)f;
}

int gnutls_psk_allocate_client_credentials(gnutls_psk_client_credentials_t *c)
{
	*c = NULL;
	return 0;
}

void gnutls_psk_free_client_credentials(gnutls_psk_client_credentials_t c)
{
	(void)c;
}

int gnutls_psk_set_client_credentials(gnutls_psk_client_credentials_t c,
				      const char *name,
				      const gnutls_datum_t *key,
				      gnutls_psk_key_flags how)
{
	(void)c;
	(void)name;
	(void)key;
	(void)how;
	return 0;
}

int gnutls_credentials_set(gnutls_session_t s, gnutls_credentials_type_t type,
			   void *c)
{
	(void)s;
	(void)type;
	(void)c;
	return 0;
}

const char *gnutls_strerror(int error)
{
	(void)error;
	return "";
}

gnutls_alert_description_t gnutls_alert_get(gnutls_session_t s)
{
	(void)s;
	return GNUTLS_A_CLOSE_NOTIFY;
}

const char *gnutls_alert_get_name(gnutls_alert_description_t alert)
{
	(void)alert;
	return "";
}

static int donor_handshake(gnutls_session_t s)
{
	giovec_t answer = { (void *)"s", 1 };
	char record[6], more;
	ssize_t n;

	if (!*s->name) {
		/* a channel starts no handshake before the record is whole */
		EXPECT(s->pull(s->transport, record, 6) == 6 &&
		       record[0] == 22);
		*s->name = record[5];
	}
	if ((*s->name | 0x20) == 'z')
		return GNUTLS_E_DECRYPTION_FAILED;
	if (*s->name < 'A' || *s->name > 'Y')
		return 0;
	if (!s->answered && s->push(s->transport, &answer, 1) != 1)
		return GNUTLS_E_PUSH_ERROR;
	s->answered = true;
	n = s->pull(s->transport, &more, 1);
	if (n != 1)
		return n < 0 ? GNUTLS_E_AGAIN : GNUTLS_E_PREMATURE_TERMINATION;
	*s->name |= 0x20;
	return 0;
}

static int host_handshake(gnutls_session_t s)
{
	char donor;
	ssize_t n = s->pull(s->transport, &donor, 1);

	if (n < 0)
		return errno == EAGAIN ? GNUTLS_E_AGAIN : GNUTLS_E_PULL_ERROR;
	if (!n)
		return GNUTLS_E_PREMATURE_TERMINATION;
	return donor == 'y' ? 0 :
	       donor == 'n' ? GNUTLS_E_FATAL_ALERT_RECEIVED :
			      GNUTLS_E_DECRYPTION_FAILED;
}

int gnutls_handshake(gnutls_session_t s)
{
	return s->host ? host_handshake(s) : donor_handshake(s);
}

int gnutls_psk_server_get_username2(gnutls_session_t s, gnutls_datum_t *name)
{
	name->data = (unsigned char *)s->name;
	name->size = 1;
	return 0;
}

/* More than is asked for, if it is there. */
static ssize_t ahead_recv(gnutls_session_t s, void *to, size_t room)
{
	size_t n;

	if (!s->nr_ahead) {
		ssize_t got = s->pull(s->transport, s->ahead, AHEAD);

		if (got < 0)
			return errno == EAGAIN ? GNUTLS_E_AGAIN :
						 GNUTLS_E_PULL_ERROR;
		s->nr_ahead = (size_t)got;
	}
	n = min(room, s->nr_ahead);
	memcpy(to, s->ahead, n);
	s->nr_ahead -= n;
	memmove(s->ahead, s->ahead + n, s->nr_ahead);
	return (ssize_t)n;
}

ssize_t gnutls_record_recv(gnutls_session_t s, void *to, size_t room)
{
	ssize_t n;

	if (s->host)
		return ahead_recv(s, to, room);
	n = s->pull(s->transport, to, room);
	return n < 0 ? GNUTLS_E_AGAIN : n;
}

static ssize_t record_send(gnutls_session_t s, const void *from, size_t n)
{
	if (!s->held) {
		EXPECT(from && n);
		s->held = min(n, (size_t)RECORD);
		memcpy(s->record, from, s->held);
		s->sent = 0;
	} else {
		EXPECT(!from && !n);
	}
	while (s->sent < s->held) {
		ssize_t ret = send(s->fd, s->record + s->sent,
				   s->held - s->sent,
				   MSG_NOSIGNAL | MSG_DONTWAIT);

		if (ret < 0)
			return errno == EAGAIN ? GNUTLS_E_AGAIN :
						 GNUTLS_E_PUSH_ERROR;
		s->sent += (size_t)ret;
	}
	n = s->held;
	s->held = 0;
	plain_tls_whole += n;
	return (ssize_t)n;
}

ssize_t gnutls_record_send(gnutls_session_t s, const void *from, size_t n)
{
	giovec_t v = { (void *)from, n };
	ssize_t ret;

	if (s->host)
		return record_send(s, from, n);
	ret = s->push(s->transport, &v, 1);
	return ret < 0 ? GNUTLS_E_PUSH_ERROR : ret;
}

int gnutls_record_get_direction(gnutls_session_t s)
{
	(void)s;
	return 0;
}

size_t gnutls_record_check_pending(gnutls_session_t s)
{
	return s->nr_ahead;
}

int gnutls_error_is_fatal(int error)
{
	return error != GNUTLS_E_AGAIN;
}

int gnutls_bye(gnutls_session_t s, gnutls_close_request_t how)
{
	EXPECT(s);
	(void)how;
	return 0;
}
