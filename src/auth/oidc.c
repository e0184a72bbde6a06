#include "auth/oidc.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/mailbox.h"
#include "os/thread.h"

#include <openssl/sha.h>
#include <stdatomic.h>
#include <stdio.h>

enum { MSG_STOP, MSG_REFETCH, MSG_FETCHED };
enum { FETCH_MS = 10000, REFRESH_S_MIN = 10, BACKOFF_S_MAX = 60, DOCUMENT_BYTES_MAX = 64 * 1024 };

struct oidc {
    const struct oidc_options *options;
    struct http_client *client;
    void (*publish)(void *ctx, const struct oidc_result *r);
    void *ctx;
    struct mailbox *mailbox;
    pthread_t thread;
    bool has_thread;
    struct msg stop, refetch; /* each is in the mailbox at most once */
    /* Time from which oidc_refetch starts a fetch (clock_ns); 0 = a fetch is running. */
    _Atomic uint64_t refetch_from_ns;
    _Atomic uint64_t n_results;
    /* fields of the thread */
    struct http_fetch fetch;
    bool is_fetching, is_discovery, is_stopping;
    char url[FETCH_URL_MAX + 1];      /* URL of the running fetch */
    char keys_url[FETCH_URL_MAX + 1]; /* "" = not known */
    struct oidc_endpoints endpoints;
    bool has_endpoints;
    uint64_t due_ns;   /* next fetch */
    uint64_t limit_ns; /* no further fetch by oidc_refetch before this time */
    uint32_t backoff_s;
    struct jwks *keys;
    uint8_t digest[SHA256_DIGEST_LENGTH]; /* digest of the text of `keys` */
};

/* ---- URLs */

static bool is_loopback_url(struct str url)
{
    static const char *const starts[] = { "http://127.0.0.1", "http://localhost", "http://[::1]" };

    for (size_t i = 0; i < ARRAY_LEN(starts); i++)
        if (str_starts(url, str_of(starts[i]))) {
            struct str rest = str_skip(url, strlen(starts[i]));
            return !rest.n || *rest.p == ':' || *rest.p == '/';
        }
    return false;
}

/* Keys that arrive unencrypted from the network could be those of anyone. */
int oidc_check_url(struct str url, const char *what, struct err *e)
{
    if (url.n > FETCH_URL_MAX - 64 || memchr(url.p, '\0', url.n) ||
        !(str_starts(url, STR("https://")) || is_loopback_url(url)))
        return err_set(e, ERR_INVALID, "%s '%.*s' is not an https URL (http only for loopback)",
            what, (int)MIN(url.n, (size_t)200), url.p);
    return 0;
}

/* ---- fetching */

static void fetch(struct oidc *o, bool is_discovery)
{
    o->is_discovery = is_discovery;
    o->is_fetching = true;
    o->fetch = (struct http_fetch){ .msg = { .kind = MSG_FETCHED },
        .reply_to = o->mailbox,
        .policy = FETCH_CONFIGURED,
        .url = o->url,
        .fields = { "Accept: application/json" },
        .max_bytes = is_discovery ? DOCUMENT_BYTES_MAX : JWKS_BYTES_MAX,
        .timeout_ms = FETCH_MS,
        .max_redirects = FETCH_REDIRECTS_MAX };
    http_client_post(o->client, &o->fetch);
}

static void fetch_keys(struct oidc *o)
{
    memcpy(o->url, o->keys_url, sizeof(o->url));
    fetch(o, false);
}

static void set_url_of_issuer(struct oidc *o, const char *path)
{
    struct str issuer = str_of(o->options->issuer);

    while (issuer.n && issuer.p[issuer.n - 1] == '/')
        issuer.n--;
    snprintf(o->url, sizeof(o->url), STR_FMT "%s", STR_ARG(issuer), path);
}

static void begin(struct oidc *o)
{
    if (*o->options->jwks_url)
        snprintf(o->keys_url, sizeof(o->keys_url), "%s", o->options->jwks_url);
    if (*o->keys_url && (o->has_endpoints || !o->options->want_endpoints)) {
        fetch_keys(o);
        return;
    }
    set_url_of_issuer(o, "/.well-known/openid-configuration");
    fetch(o, true);
}

/* ---- results */

/* A URL of the document. An issuer with https names no http URL. */
static int read_url(const struct oidc *o, const struct json *document, const char *name,
    char out[FETCH_URL_MAX + 1], struct err *e)
{
    const struct json *url = json_get(document, name);

    if (!url || url->kind != JSON_STRING)
        return err_set(e, ERR_INVALID, "the document has no %s", name);
    if (!str_starts(str_of(o->options->issuer), STR("http:")) && str_starts(url->s, STR("http:")))
        return err_set(e, ERR_INVALID, "%s is not an https URL", name);
    if (oidc_check_url(url->s, name, e))
        return -1;
    snprintf(out, FETCH_URL_MAX + 1, STR_FMT, STR_ARG(url->s));
    return 0;
}

static int read_endpoints(struct oidc *o, const struct json *document, struct err *e)
{
    const struct json *sends = json_get(document, "authorization_response_iss_parameter_supported");
    struct oidc_endpoints *p = &o->endpoints;
    struct err ignored;

    if (read_url(o, document, "authorization_endpoint", p->authorization, e) ||
        read_url(o, document, "token_endpoint", p->token, e))
        return -1;
    if (read_url(o, document, "end_session_endpoint", p->end_session, &ignored))
        *p->end_session = '\0';
    p->sends_issuer = sends && sends->kind == JSON_BOOL && sends->b;
    o->has_endpoints = true;
    return 0;
}

static int read_document(struct oidc *o, struct str text, struct err *e)
{
    struct json_limits limits = { .max_depth = 16, .max_nodes = 4096 };
    struct arena *a = arena_new(2 * MB);
    struct json *j;
    int failed = a ? json_parse(&j, text, a, &limits, e) : err_set(e, ERR_MEMORY, "no memory");

    if (!failed) {
        const struct json *issuer = json_get(j, "issuer");
        if (!issuer || issuer->kind != JSON_STRING || !str_is(issuer->s, o->options->issuer))
            failed = err_set(e, ERR_INVALID, "the document names another issuer");
        else if (o->options->want_endpoints && read_endpoints(o, j, e))
            failed = -1;
        else if (!*o->options->jwks_url)
            failed = read_url(o, j, "jwks_uri", o->keys_url, e);
    }
    arena_free(a);
    return failed;
}

/* A set without a usable key does not replace one that has keys. */
static int read_keys(struct oidc *o, struct str text, struct err *e)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    struct jwks *keys;

    SHA256((const unsigned char *)text.p, text.n, digest);
    if (o->keys && !memcmp(digest, o->digest, sizeof(digest)))
        return 0;
    if (jwks_parse(&keys, text, e))
        return -1;
    if (!jwks_count(keys)) {
        jwks_unref(keys);
        return err_set(e, ERR_INVALID, "the key set has no usable key");
    }
    jwks_unref(o->keys);
    o->keys = keys;
    memcpy(o->digest, digest, sizeof(digest));
    log_info("auth", "issuer_keys", "url=\"%s\" keys=%d", o->url, jwks_count(keys));
    return 0;
}

static void finish(struct oidc *o, const struct err *e)
{
    uint64_t s = o->options->refresh_s;

    if (e) {
        log_warn("auth", "issuer_failed", "url=\"%s\" error=\"%s\" keys=%s", o->url, e->msg,
            o->keys ? "kept" : "none");
        *o->keys_url = '\0'; /* the document may name another URL by now */
        o->backoff_s = o->backoff_s ? MIN(2 * o->backoff_s, (uint32_t)BACKOFF_S_MAX) : 1;
        s = o->backoff_s;
    } else {
        o->backoff_s = 0;
        if (o->fetch.max_age_s >= 0)
            s = MIN(s, (uint64_t)MAX(o->fetch.max_age_s, (int64_t)REFRESH_S_MIN));
    }
    o->due_ns = clock_ns() + s * NS_PER_S;
    /* In this order: a caller of oidc_refetch that has seen 0, or another number, gets a result. */
    struct oidc_result r = { o->keys, atomic_fetch_add(&o->n_results, 1) + 1,
        o->has_endpoints ? &o->endpoints : NULL };
    atomic_store(&o->refetch_from_ns, MAX(o->limit_ns, (uint64_t)1));
    o->publish(o->ctx, &r);
}

/* One response; *is_complete: no further fetch is needed. */
static int take_response(struct oidc *o, bool *is_complete, struct err *e)
{
    struct http_fetch *f = &o->fetch;
    struct str text = buf_str(&f->response);

    if (f->err.code) {
        *e = f->err;
        return -1;
    }
    if (o->is_discovery && f->status == 404 && !o->options->want_endpoints) {
        set_url_of_issuer(o, "/.well-known/jwks.json");
        memcpy(o->keys_url, o->url, sizeof(o->keys_url));
    } else if (f->status != 200) {
        return err_set(e, ERR_IO, "status %d", f->status);
    } else if (!o->is_discovery) {
        *is_complete = true;
        return read_keys(o, text, e);
    } else if (read_document(o, text, e)) {
        return -1;
    }
    return 0;
}

static void on_fetched(struct oidc *o)
{
    bool is_complete = false;
    struct err e;
    int failed = take_response(o, &is_complete, &e);

    buf_clear(&o->fetch.response);
    o->is_fetching = false;
    if (failed)
        finish(o, &e);
    else if (is_complete)
        finish(o, NULL);
    else
        fetch_keys(o);
}

/* ---- thread */

static void on_message(struct oidc *o, const struct msg *m)
{
    switch (m->kind) {
    case MSG_STOP:
        o->is_stopping = true;
        break;
    case MSG_REFETCH:
        o->limit_ns = clock_ns() + o->options->refetch_ms * NS_PER_MS;
        begin(o);
        break;
    case MSG_FETCHED:
        on_fetched(o);
        break;
    }
}

/* If oidc_refetch has started a fetch at the same moment, its message is in the mailbox. */
static void begin_if_due(struct oidc *o)
{
    uint64_t from = atomic_load(&o->refetch_from_ns);

    if (!o->is_fetching && clock_ns() >= o->due_ns && from &&
        atomic_compare_exchange_strong(&o->refetch_from_ns, &from, 0))
        begin(o);
}

static void *run(void *arg)
{
    struct oidc *o = arg;

    begin(o);
    while (!o->is_stopping || o->is_fetching) {
        mailbox_wait(o->mailbox, o->is_fetching ? UINT64_MAX : o->due_ns);
        for (struct msg *m = mailbox_drain(o->mailbox), *next; m; m = next) {
            next = m->next;
            on_message(o, m);
        }
        if (!o->is_stopping)
            begin_if_due(o);
    }
    return NULL;
}

bool oidc_refetch(struct oidc *o, uint64_t seen)
{
    for (;;) {
        uint64_t from = atomic_load(&o->refetch_from_ns);
        if (!from || atomic_load(&o->n_results) != seen)
            return true;
        if (clock_ns() < from)
            return false;
        if (atomic_compare_exchange_strong(&o->refetch_from_ns, &from, 0)) {
            o->refetch.kind = MSG_REFETCH;
            mailbox_post(o->mailbox, &o->refetch);
            return true;
        }
    }
}

/* ---- life */

int oidc_open(struct oidc **out, const struct oidc_options *options, struct http_client *client,
    struct err *e)
{
    struct oidc *o;

    if (oidc_check_url(str_of(options->issuer), "the issuer", e) ||
        (*options->jwks_url && oidc_check_url(str_of(options->jwks_url), "the URL of the keys", e)))
        return -1;
    o = xcalloc(1, sizeof(*o));
    o->options = options;
    o->client = client;
    if (mailbox_open(&o->mailbox, e)) {
        mem_free(o);
        return -1;
    }
    *out = o;
    return 0;
}

int oidc_start(struct oidc *o, void (*publish)(void *ctx, const struct oidc_result *r), void *ctx,
    struct err *e)
{
    o->publish = publish;
    o->ctx = ctx;
    if (thread_start(&o->thread, "oidc", run, o, e))
        return -1;
    o->has_thread = true;
    return 0;
}

void oidc_close(struct oidc *o)
{
    if (!o)
        return;
    if (o->has_thread) {
        o->stop.kind = MSG_STOP;
        mailbox_post(o->mailbox, &o->stop);
        pthread_join(o->thread, NULL);
    }
    mailbox_drain(o->mailbox); /* a refetch that came after the end */
    mailbox_close(o->mailbox);
    jwks_unref(o->keys);
    mem_free(o);
}
