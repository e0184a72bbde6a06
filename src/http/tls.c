#include "http/tls.h"
#include "base/mem.h"
#include "os/files.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

struct tls {
    SSL_CTX *ctx;
};

/* struct tls_conn is never defined: the pointer is an SSL object. */
static SSL *ssl_of(const struct tls_conn *c)
{
    return (SSL *)(uintptr_t)c;
}

static int set_reason(struct err *e, const char *what, const char *file)
{
    char io_result[160] = "unknown reason";
    unsigned long code = ERR_peek_last_error();

    if (code)
        ERR_error_string_n(code, io_result, sizeof(io_result));
    ERR_clear_error();
    return err_set(e, ERR_INVALID, "%s %s: %s", what, file, io_result);
}

/* ALPN: only HTTP/1.1; a client that offers other protocols only gets an alert. */
static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_n,
    const unsigned char *in, unsigned in_n, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;

    if (SSL_select_next_proto(&chosen, out_n, ours, sizeof(ours) - 1, in, in_n) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* OpenSSL uses write(2), which raises SIGPIPE after a disconnect of the peer. */
static void ignore_sigpipe(void)
{
    struct sigaction old;

    if (!sigaction(SIGPIPE, NULL, &old) && old.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

/* Without it, OpenSSL would read the password from the terminal. */
static int no_password(char *p, int n, int for_writing, void *arg)
{
    return -1;
}

/* OpenSSL opens the file itself, and would wait for the writer of a FIFO. */
static int check_file(const char *what, const char *path, struct err *e)
{
    struct err why;
    int fd;

    if (file_open_regular(path, O_RDONLY, &fd, &why))
        return err_set(e, why.code, "TLS %s %s", what, why.msg);
    close(fd);
    return 0;
}

int tls_open(struct tls **out, const char *cert, const char *key, struct err *e)
{
    struct tls *t = xcalloc(1, sizeof(*t));

    ERR_clear_error();
    if (check_file("certificate", cert, e) || check_file("key", key, e))
        goto fail;
    t->ctx = SSL_CTX_new(TLS_server_method());
    if (!t->ctx) {
        set_reason(e, "TLS", "context");
        goto fail;
    }
    SSL_CTX_set_min_proto_version(t->ctx, TLS1_2_VERSION);
    /* TLS 1.2: only forward secrecy and authenticated encryption. TLS 1.3 has no others. */
    if (SSL_CTX_set_cipher_list(t->ctx, "ECDHE+AESGCM:ECDHE+CHACHA20:!PSK:!aNULL") != 1) {
        set_reason(e, "TLS", "ciphers");
        goto fail;
    }
    /* OpenSSL by default keeps read and write buffers for every idle connection: 34 kB. */
    SSL_CTX_set_mode(t->ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                 SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(t->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                    SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    /* tickets need no memory on the server */
    SSL_CTX_set_session_cache_mode(t->ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(t->ctx, no_password);
    SSL_CTX_set_alpn_select_cb(t->ctx, choose_alpn, NULL);
    if (SSL_CTX_use_certificate_chain_file(t->ctx, cert) != 1) {
        set_reason(e, "TLS certificate", cert);
        goto fail;
    }
    if (SSL_CTX_use_PrivateKey_file(t->ctx, key, SSL_FILETYPE_PEM) != 1) {
        set_reason(e, "TLS key", key);
        goto fail;
    }
    if (SSL_CTX_check_private_key(t->ctx) != 1) {
        set_reason(e, "TLS key does not belong to the certificate:", key);
        goto fail;
    }
    ignore_sigpipe();
    *out = t;
    return 0;

fail:
    tls_close(t);
    return -1;
}

void tls_close(struct tls *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->ctx);
    mem_free(t);
}

struct tls_conn *tls_conn_new(struct tls *t, int fd)
{
    SSL *ssl = SSL_new(t->ctx);

    if (!ssl || !SSL_set_fd(ssl, fd)) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_accept_state(ssl);
    return (struct tls_conn *)ssl;
}

void tls_conn_free(struct tls_conn *c)
{
    SSL_free(ssl_of(c));
}

static int io_result(SSL *ssl, int n)
{
    int code = SSL_get_error(ssl, n);

    ERR_clear_error();
    switch (code) {
    case SSL_ERROR_WANT_READ:
        return IO_AGAIN_READ;
    case SSL_ERROR_WANT_WRITE:
        return IO_AGAIN_WRITE;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return IO_FAILED;
    }
}

int tls_handshake(struct tls_conn *c)
{
    ERR_clear_error();
    int n = SSL_do_handshake(ssl_of(c));
    if (n == 1)
        return 1;
    n = io_result(ssl_of(c), n);
    return n ? n : IO_FAILED;
}

ptrdiff_t tls_recv(struct tls_conn *c, void *p, size_t n)
{
    ERR_clear_error();
    int got = SSL_read(ssl_of(c), p, (int)MIN(n, (size_t)INT32_MAX));
    return got > 0 ? got : io_result(ssl_of(c), got);
}

ptrdiff_t tls_send(struct tls_conn *c, const void *p, size_t n)
{
    ERR_clear_error();
    int put = SSL_write(ssl_of(c), p, (int)MIN(n, (size_t)INT32_MAX));
    if (put > 0)
        return put;
    put = io_result(ssl_of(c), put);
    return put ? put : IO_FAILED;
}

void tls_shutdown(struct tls_conn *c)
{
    ERR_clear_error();
    if (SSL_is_init_finished(ssl_of(c)))
        SSL_shutdown(ssl_of(c));
    ERR_clear_error();
}

bool tls_has_pending(const struct tls_conn *c)
{
    return SSL_has_pending(ssl_of(c));
}
