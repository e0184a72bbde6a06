#include "http/tls.h"
#include "base/mem.h"
#include "base/str.h"
#include "os/files.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct tls {
    SSL_CTX *ctx; /* context of the first certificate; owns the others (struct certificates) */
    atomic_int n_refs;
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

static int require_client_cert(SSL_CTX *ctx, const char *path, struct err *e)
{
    static const unsigned char context[] = "inferflux";
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path);

    /* The names are sent to the client, which may have several certificates. */
    if (!names || SSL_CTX_load_verify_locations(ctx, path, NULL) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return set_reason(e, "TLS client authorities", path);
    }
    SSL_CTX_set_client_CA_list(ctx, names);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    /* A ticket that was issued before keeps the result of the check for its session. */
    if (SSL_CTX_set_session_id_context(ctx, context, sizeof(context) - 1) != 1)
        return set_reason(e, "TLS", "session context");
    return 0;
}

/* ---- several certificates */

struct certificates { /* certificates of a struct tls; belongs to its first context */
    int n;
    SSL_CTX *all[TLS_CERTIFICATES_MAX]; /* all[0] is the owner, which has no reference here */
};

static int certificates_index;

static void free_certificates(
    void *parent, void *p, CRYPTO_EX_DATA *data, int index, long argl, void *argp)
{
    struct certificates *c = p;

    for (int i = 1; c && i < c->n; i++)
        SSL_CTX_free(c->all[i]);
    mem_free(c);
}

static void make_index(void)
{
    certificates_index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, free_certificates);
    CHECK(certificates_index >= 0);
}

static struct certificates *certificates_of(const SSL_CTX *ctx)
{
    return SSL_CTX_get_ex_data(ctx, certificates_index);
}

/* Chooses the certificate by the name that the client requests. */
static int choose_certificate(SSL *ssl, int *alert, void *arg)
{
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    const struct certificates *c = certificates_of(SSL_get_SSL_CTX(ssl));

    for (int i = 0; name && c && i < c->n; i++)
        if (X509_check_host(SSL_CTX_get0_certificate(c->all[i]), name, 0, 0, NULL) == 1) {
            if (i)
                SSL_set_SSL_CTX(ssl, c->all[i]);
            break;
        }
    return SSL_TLSEXT_ERR_OK;
}

/* ---- contexts */

static SSL_CTX *new_context(const char *cert, const char *key, const char *client_ca, struct err *e)
{
    SSL_CTX *ctx;

    ERR_clear_error();
    if (check_file("certificate", cert, e) || check_file("key", key, e) ||
        (client_ca && check_file("client authorities", client_ca, e)))
        return NULL;
    ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx) {
        set_reason(e, "TLS", "context");
        return NULL;
    }
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    /* OpenSSL by default keeps read and write buffers for every idle connection: 34 kB. */
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    /* tickets need no memory on the server */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(ctx, no_password);
    SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, NULL);
    SSL_CTX_set_tlsext_servername_callback(ctx, choose_certificate);
    /* TLS 1.2: only forward secrecy and authenticated encryption. TLS 1.3 has no others. */
    if (SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20:!PSK:!aNULL") != 1)
        set_reason(e, "TLS", "ciphers");
    else if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
        set_reason(e, "TLS certificate", cert);
    else if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        set_reason(e, "TLS key", key);
    else if (SSL_CTX_check_private_key(ctx) != 1)
        set_reason(e, "TLS key does not belong to the certificate:", key);
    else if (!client_ca || !require_client_cert(ctx, client_ca, e))
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

/* Copies the next entry of a comma list to `path`. Returns 0 at the end, -1 if it is too long. */
static int next_path(struct str *list, char path[PATH_MAX])
{
    if (!list->n)
        return 0;
    ptrdiff_t comma = str_find(*list, STR(","));
    struct str entry = str_trim((struct str){ list->p, comma < 0 ? list->n : (size_t)comma });
    *list = comma < 0 ? STR_NONE : str_skip(*list, (size_t)comma + 1);
    return snprintf(path, PATH_MAX, STR_FMT, STR_ARG(entry)) < PATH_MAX ? 1 : -1;
}

static int open_certificates(struct certificates *c, const struct tls_files *f, struct err *e)
{
    struct str certs = str_of(f->certs), keys = str_of(f->keys);
    char cert[PATH_MAX], key[PATH_MAX];

    while (c->n < TLS_CERTIFICATES_MAX) {
        int has_cert = next_path(&certs, cert), has_key = next_path(&keys, key);
        if (has_cert < 0 || has_key < 0)
            return err_set(e, ERR_INVALID, "TLS: a path is longer than %d bytes", PATH_MAX - 1);
        if (has_cert != has_key)
            return err_set(e, ERR_INVALID, "TLS: the numbers of certificates and keys differ");
        if (!has_cert)
            return c->n ? 0 : err_set(e, ERR_INVALID, "TLS: no certificate");
        c->all[c->n] = new_context(cert, key, f->client_ca, e);
        if (!c->all[c->n])
            return -1;
        c->n++;
    }
    return certs.n || keys.n
               ? err_set(e, ERR_INVALID, "TLS: more than %d certificates", TLS_CERTIFICATES_MAX)
               : 0;
}

int tls_open(struct tls **out, const struct tls_files *files, struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct certificates *c = xcalloc(1, sizeof(*c));

    pthread_once(&once, make_index);
    int failed = open_certificates(c, files, e);
    if (!failed && SSL_CTX_set_ex_data(c->all[0], certificates_index, c) != 1)
        failed = err_set(e, ERR_MEMORY, "no memory for TLS");
    if (failed) {
        for (int i = 0; i < c->n; i++)
            SSL_CTX_free(c->all[i]);
        mem_free(c);
        return -1;
    }
    struct tls *t = xcalloc(1, sizeof(*t));
    t->ctx = c->all[0];
    atomic_init(&t->n_refs, 1);
    ignore_sigpipe();
    *out = t;
    return 0;
}

struct tls *tls_ref(struct tls *t)
{
    atomic_fetch_add(&t->n_refs, 1);
    return t;
}

void tls_close(struct tls *t)
{
    if (!t || atomic_fetch_sub(&t->n_refs, 1) > 1)
        return;
    SSL_CTX_free(t->ctx);
    mem_free(t);
}

int tls_count(const struct tls *t)
{
    return certificates_of(t->ctx)->n;
}

static uint64_t add_to_stamp(uint64_t stamp, struct str list)
{
    char path[PATH_MAX];
    struct stat st;

    while (next_path(&list, path) > 0) {
        if (stat(path, &st))
            st = (struct stat){ 0 };
        const uint64_t parts[] = { st.st_ino, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
            (uint64_t)st.st_mtim.tv_nsec };
        for (size_t i = 0; i < ARRAY_LEN(parts); i++)
            stamp = (stamp ^ parts[i]) * 0x100000001b3u + 1;
    }
    return stamp;
}

uint64_t tls_files_stamp(const struct tls_files *files)
{
    uint64_t stamp = add_to_stamp(add_to_stamp(0, str_of(files->certs)), str_of(files->keys));

    return files->client_ca ? add_to_stamp(stamp, str_of(files->client_ca)) : stamp;
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
