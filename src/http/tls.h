/* tls.h: server side of TLS (1.2 and newer) on a non-blocking descriptor, implemented with OpenSSL.
 *
 * A struct tls is immutable, counts its references, and may be shared by the servers of several
 * threads. A connection keeps the certificates with which it began: to replace them, a server uses
 * another struct tls for new connections.
 *
 * Owner: any thread for struct tls; the io thread for struct tls_conn. */
#pragma once

#include "base/err.h"

struct tls;
struct tls_conn;

enum { TLS_CERTIFICATES_MAX = 32 };

struct
    tls_files { /* PEM; several certificates and keys are separated by commas, in the same order */
    const char *certs; /* certificate chains, leaf first */
    const char *keys;  /* their private keys */
    /* Authorities of client certificates: a client without one of them is refused in the handshake.
     * NULL = clients need no certificate. */
    const char *client_ca;
};

/* A client receives the first certificate that has the name which it requests (SNI), else the first
 * of all. ERR_INVALID and others; the messages name the file. */
int tls_open(struct tls **out, const struct tls_files *files, struct err *e);
struct tls *tls_ref(struct tls *t);
void tls_close(struct tls *t);      /* drops a reference; accepts NULL */
int tls_count(const struct tls *t); /* certificates */
/* A number that changes when one of the files was replaced or changed. */
uint64_t tls_files_stamp(const struct tls_files *files);

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
