/* tls.h: server side of TLS (1.2 and newer) on a non-blocking descriptor, implemented with OpenSSL.
 *
 * Owner: the io thread; a struct tls is shared by the connections of one server only. */
#pragma once

#include "base/err.h"

struct tls;
struct tls_conn;

/* PEM files: the certificate chain, leaf first, and its private key. */
int tls_open(struct tls **out, const char *cert, const char *key, struct err *e);
void tls_close(struct tls *t);

struct tls_conn *tls_conn_new(struct tls *t, int fd) MUST_CHECK; /* NULL: out of memory */
void tls_conn_free(struct tls_conn *c);                          /* accepts NULL */

/* Results of conn_recv and conn_send other than a byte count; 0 = the peer has closed. */
enum { IO_AGAIN_READ = -1, IO_AGAIN_WRITE = -2, IO_FAILED = -3 };

int tls_handshake(struct tls_conn *c); /* 1 = done, or IO_* */
ptrdiff_t tls_recv(struct tls_conn *c, void *p, size_t n);
ptrdiff_t tls_send(struct tls_conn *c, const void *p, size_t n);
void tls_shutdown(struct tls_conn *c); /* sends close_notify if possible without waiting */
/* bytes buffered in OpenSSL, which epoll does not report */
bool tls_has_pending(const struct tls_conn *c);
