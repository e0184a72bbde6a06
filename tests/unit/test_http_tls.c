/* TLS with a certificate made here: server and client in one thread, the client on OpenSSL too. */
#include "../wire/http_peer.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <stdlib.h>

static char dir[] = "/tmp/inferflux-tls-XXXXXX";
static char cert_path[64], key_path[64], other_key_path[64];

static EVP_PKEY *write_key(const char *path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    FILE *f = fopen(path, "w");

    EXPECT(key && f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
    fclose(f);
    return key;
}

static void remove_files(void)
{
    unlink(cert_path);
    unlink(key_path);
    unlink(other_key_path);
    rmdir(dir);
}

static void make_files(void)
{
    if (cert_path[0])
        return;
    EXPECT(mkdtemp(dir));
    atexit(remove_files);
    snprintf(cert_path, sizeof(cert_path), "%s/cert.pem", dir);
    snprintf(key_path, sizeof(key_path), "%s/key.pem", dir);
    snprintf(other_key_path, sizeof(other_key_path), "%s/other.pem", dir);
    EVP_PKEY_free(write_key(other_key_path));
    EVP_PKEY *key = write_key(key_path);
    X509 *x = X509_new();
    X509_NAME *name = X509_get_subject_name(x);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(
        name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, name);
    EXPECT(X509_sign(x, key, EVP_sha256()));
    FILE *f = fopen(cert_path, "w");
    EXPECT(f && PEM_write_X509(f, x));
    fclose(f);
    X509_free(x);
    EVP_PKEY_free(key);
}

static void open_tls(struct kit *k)
{
    make_files();
    kit_init(k);
    k->o.tls_cert = cert_path;
    k->o.tls_key = key_path;
    kit_open(k);
}

struct client {
    struct kit *k;
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};

static void client_open(struct client *c, struct kit *k)
{
    *c = (struct client){ .k = k, .ctx = SSL_CTX_new(TLS_client_method()), .fd = kit_connect(k) };
    c->ssl = SSL_new(c->ctx);
    SSL_set_fd(c->ssl, c->fd);
    SSL_set_connect_state(c->ssl);
}

static void client_close(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    close(c->fd);
}

/* 1, or what SSL_get_error says that is not "again". */
static int client_handshake(struct client *c)
{
    uint64_t end = clock_ns() + 20000000000u;

    while (clock_ns() < end) {
        int n = SSL_do_handshake(c->ssl);
        if (n == 1)
            return 1;
        int why = SSL_get_error(c->ssl, n);
        ERR_clear_error();
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
            return -why;
        loop_once(c->k->loop, 1);
    }
    return 0;
}

static void client_send(struct client *c, struct str s)
{
    uint64_t end = clock_ns() + 20000000000u;

    while (s.n && clock_ns() < end) {
        int n = SSL_write(c->ssl, s.p, (int)s.n);
        s = str_skip(s, (size_t)MAX(n, 0));
        loop_once(c->k->loop, 0);
    }
    EXPECT_EQ(s.n, 0u);
}

/* Reads until b holds n bytes; false when the server has ended properly before. */
static bool client_read(struct client *c, struct buf *b, size_t n)
{
    uint64_t end = clock_ns() + 20000000000u;
    char piece[16384];

    while (b->n < n && clock_ns() < end) {
        int got = SSL_read(c->ssl, piece, sizeof(piece));
        if (got > 0) {
            buf_put(b, piece, (size_t)got);
            continue;
        }
        int why = SSL_get_error(c->ssl, got);
        ERR_clear_error();
        if (why == SSL_ERROR_ZERO_RETURN)
            return false; /* close_notify: not a truncation */
        EXPECT_EQ(why, SSL_ERROR_WANT_READ);
        loop_once(c->k->loop, 1);
    }
    return b->n >= n;
}

static void expect_in_time(struct client *c, struct buf *b, const char *what)
{
    while (str_find(buf_str(b), str_of(what)) < 0)
        EXPECT(client_read(c, b, b->n + 1));
}

static void requests_are_answered_one_after_the_other(void)
{
    struct client c;
    struct kit k;
    struct buf b;

    buf_init(&b, MB);
    open_tls(&k);
    client_open(&c, &k);
    EXPECT_EQ(client_handshake(&c), 1);
    EXPECT(SSL_version(c.ssl) >= TLS1_2_VERSION);
    for (int i = 0; i < 3; i++) {
        buf_reset(&b);
        client_send(&c, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
        expect_in_time(&c, &b, "POST /echo\nhi");
    }
    /* Two requests in one record, the first answered late: the second is in OpenSSL's buffer,
     * where epoll does not see it. */
    buf_reset(&b);
    client_send(&c, STR("GET /later HTTP/1.1\r\nHost: a\r\n\r\n"
                        "GET /echo?2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    expect_in_time(&c, &b, "GET /later");
    expect_in_time(&c, &b, "GET /echo?2");
    EXPECT(!client_read(&c, &b, SIZE_MAX));
    client_close(&c);
    buf_clear(&b);
    kit_turn(&k, 3);
    kit_close(&k);
}

static void a_request_may_come_a_record_per_byte(void)
{
    struct str all = STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    struct client c;
    struct kit k;
    struct buf b;

    buf_init(&b, MB);
    open_tls(&k);
    client_open(&c, &k);
    EXPECT_EQ(client_handshake(&c), 1);
    for (size_t i = 0; i < all.n; i++)
        client_send(&c, (struct str){ all.p + i, 1 });
    expect_in_time(&c, &b, "POST /echo\nhi");
    client_close(&c);
    buf_clear(&b);
    kit_turn(&k, 3);
    kit_close(&k);
}

static void large_bodies_go_both_ways(void)
{
    enum { N = 900000 };
    struct client c;
    struct kit k;
    struct buf b;
    char head[100];
    char *body = xmalloc(N);

    memset(body, 'x', N);
    buf_init(&b, 2 * MB);
    open_tls(&k);
    client_open(&c, &k);
    EXPECT_EQ(client_handshake(&c), 1);
    snprintf(head, sizeof(head), "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", N);
    client_send(&c, str_of(head));
    client_send(&c, (struct str){ body, N });
    expect_in_time(&c, &b, "POST /echo\n");
    size_t start = (size_t)str_find(buf_str(&b), STR("POST /echo\n")) + 11;
    EXPECT(client_read(&c, &b, start + N));
    EXPECT(!memcmp(b.p + start, body, N));
    client_close(&c);
    buf_clear(&b);
    mem_free(body);
    kit_turn(&k, 3);
    kit_close(&k);
}

static void a_client_that_leaves_is_noticed(void)
{
    struct client c;
    struct kit k;
    struct buf b;

    buf_init(&b, MB);
    open_tls(&k);
    for (int in_stream = 0; in_stream < 2; in_stream++) {
        client_open(&c, &k);
        EXPECT_EQ(client_handshake(&c), 1);
        client_send(&c, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"));
        EXPECT(kit_wait(&k, &k.n_requests, in_stream + 1));
        EXPECT(k.held->req->is_tls);
        if (in_stream) {
            sink_begin(&k.held->sink, 200, "text/plain", -1, NULL, 0);
            sink_write(&k.held->sink, STR("token"));
            expect_in_time(&c, &b, "token");
        }
        client_close(&c);
        EXPECT(kit_wait(&k, &k.n_gone, in_stream + 1));
    }
    kit_turn(&k, 3);
    EXPECT_EQ(http_server_stats(k.server)->open, 0u);
    buf_clear(&b);
    kit_close(&k);
}

static void only_http_1_1_is_negotiated(void)
{
    static const unsigned char both[] = "\x02h2\x08http/1.1", h2[] = "\x02h2";
    const unsigned char *chosen;
    unsigned n;
    struct client c;
    struct kit k;

    open_tls(&k);
    client_open(&c, &k);
    SSL_set_alpn_protos(c.ssl, both, sizeof(both) - 1);
    EXPECT_EQ(client_handshake(&c), 1);
    SSL_get0_alpn_selected(c.ssl, &chosen, &n);
    EXPECT(n == 8 && !memcmp(chosen, "http/1.1", 8));
    client_close(&c);
    client_open(&c, &k);
    SSL_set_alpn_protos(c.ssl, h2, sizeof(h2) - 1);
    EXPECT(client_handshake(&c) < 0);
    client_close(&c);
    kit_turn(&k, 3);
    kit_close(&k);
}

static void old_versions_and_plain_text_are_refused(void)
{
    struct client c;
    struct kit k;
    struct buf b;

    buf_init(&b, MB);
    open_tls(&k);
    client_open(&c, &k);
    SSL_set_max_proto_version(c.ssl, TLS1_1_VERSION);
    SSL_set_cipher_list(c.ssl, "ALL:@SECLEVEL=0");
    EXPECT(client_handshake(&c) < 0);
    client_close(&c);
    int fd = kit_connect(&k);
    EXPECT(kit_send(&k, fd, STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n")));
    EXPECT(kit_read(&k, fd, &b, SIZE_MAX) != KIT_OPEN);
    close(fd);
    kit_turn(&k, 3);
    EXPECT_EQ(k.n_heads, 0);
    EXPECT_EQ(http_server_stats(k.server)->open, 0u);
    buf_clear(&b);
    kit_close(&k);
}

static void a_handshake_that_does_not_come_is_cut(void)
{
    struct kit k;
    struct buf b;

    buf_init(&b, MB);
    make_files();
    kit_init(&k);
    k.o.tls_cert = cert_path;
    k.o.tls_key = key_path;
    k.o.head_ms = 20;
    kit_open(&k);
    int fd = kit_connect(&k);
    EXPECT(kit_send(&k, fd, STR("\x16\x03")));
    EXPECT(kit_read(&k, fd, &b, SIZE_MAX) != KIT_OPEN);
    close(fd);
    kit_turn(&k, 3);
    buf_clear(&b);
    kit_close(&k);
}

static void expect_refused(const char *cert, const char *key, const char *why)
{
    struct http_app app = { .on_request = kit_on_request };
    struct http_options o = http_options_default;
    struct http_server *s = NULL;
    struct loop *l = NULL;
    struct err e = { 0 };

    o.port = 0;
    o.tls_cert = cert;
    o.tls_key = key;
    EXPECT_EQ(loop_open(&l, &e), 0);
    EXPECT_EQ(http_server_open(&s, l, &o, &app, &e), -1);
    if (!strstr(e.msg, why))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(strstr(e.msg, why));
    loop_close(l);
}

static void errors_in_the_files_are_named(void)
{
    make_files();
    expect_refused("/nonexistent/cert.pem", key_path, "TLS certificate /nonexistent/cert.pem");
    expect_refused(cert_path, "/nonexistent/key.pem", "TLS key /nonexistent/key.pem");
    expect_refused(key_path, key_path, "TLS certificate");
    expect_refused(cert_path, other_key_path, "key values mismatch");
    expect_refused(cert_path, NULL, "both a certificate and a key");
}

TESTS(TEST(requests_are_answered_one_after_the_other), TEST(a_request_may_come_a_record_per_byte),
    TEST(large_bodies_go_both_ways), TEST(a_client_that_leaves_is_noticed),
    TEST(only_http_1_1_is_negotiated), TEST(old_versions_and_plain_text_are_refused),
    TEST(a_handshake_that_does_not_come_is_cut), TEST(errors_in_the_files_are_named))
