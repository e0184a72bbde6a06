#include "http/client/transfer.h"

#include "base/mem.h"
#include "http/client/address.h"

enum { CONNECT_MS_MAX = 10000, WIRE_SLACK = 64 * 1024 };

/* ---- callbacks of curl */

/* The address of a connection, after DNS. The socket is connected to it and to no other. */
static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct transfer *t = ctx;
    bool (*is_public)(const struct sockaddr *) = t->options->is_public;

    if (t->fetch->policy == FETCH_PUBLIC &&
        !(is_public ? is_public(&a->addr) : address_is_public(&a->addr))) {
        t->is_address_refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    struct buf *b = &t->fetch->response;

    if (t->is_redirected)
        return n;
    if (n > b->max - b->n) {
        t->is_too_large = true;
        return 0;
    }
    buf_put(b, p, n);
    return buf_ok(b) ? n : 0;
}

static size_t on_head(char *p, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    long status = 0;

    t->head_bytes += n;
    if (t->head_bytes > FETCH_HEAD_BYTES_MAX) {
        t->is_too_large = true;
        return 0;
    }
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    t->is_redirected = status >= 300 && status < 400;
    return n;
}

/* Bytes as received: compressed data that decompresses to nothing has no other limit. */
static int on_progress(
    void *ctx, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    struct transfer *t = ctx;

    if (now >= 0 && (uint64_t)now <= t->fetch->max_bytes + WIRE_SLACK)
        return 0;
    t->is_too_large = true;
    return 1;
}

/* ---- URLs */

static void clear_origin(struct transfer_origin *o)
{
    curl_free(o->scheme);
    curl_free(o->host);
    curl_free(o->port);
    *o = (struct transfer_origin){ NULL };
}

static int read_origin(struct transfer_origin *o, const char *url, struct err *e)
{
    CURLU *u = curl_url();
    CURLUcode failed;

    if (!u)
        return err_set(e, ERR_MEMORY, "no memory for a URL");
    if (strlen(url) > FETCH_URL_MAX) {
        curl_url_cleanup(u);
        return err_set(e, ERR_INVALID, "the URL is longer than %d bytes", FETCH_URL_MAX);
    }
    failed = curl_url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER);
    if (!failed)
        failed = curl_url_get(u, CURLUPART_SCHEME, &o->scheme, 0);
    if (!failed)
        failed = curl_url_get(u, CURLUPART_HOST, &o->host, 0);
    if (!failed)
        failed = curl_url_get(u, CURLUPART_PORT, &o->port, CURLU_DEFAULT_PORT);
    curl_url_cleanup(u);
    if (failed)
        return err_set(e, ERR_INVALID, "'%.200s' is not a URL that can be fetched: %s", url,
            curl_url_strerror(failed));
    if (strcmp(o->scheme, "http") && strcmp(o->scheme, "https"))
        return err_set(e, ERR_INVALID, "'%.200s' is neither an http nor an https URL", url);
    return 0;
}

static bool is_same_origin(const struct transfer_origin *a, const struct transfer_origin *b)
{
    return !strcmp(a->scheme, b->scheme) && str_eq_nocase(str_of(a->host), str_of(b->host)) &&
           !strcmp(a->port, b->port);
}

/* ---- life */

/* The fields change when a redirect leaves the host. */
static int set_fields(struct transfer *t, bool with_authorization)
{
    struct curl_slist *all = NULL;
    struct buf line;

    buf_init(&line, 64 * KB);
    if (with_authorization && t->fetch->authorization) {
        buf_printf(&line, "Authorization: %s", t->fetch->authorization);
        buf_putc(&line, '\0');
        if (buf_ok(&line))
            all = curl_slist_append(all, line.p);
        buf_clear(&line);
        if (!all)
            return -1;
    }
    for (int i = 0; i < FETCH_FIELDS_MAX && t->fetch->fields[i]; i++) {
        struct curl_slist *more = curl_slist_append(all, t->fetch->fields[i]);
        if (!more) {
            curl_slist_free_all(all);
            return -1;
        }
        all = more;
    }
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, all);
    curl_slist_free_all(t->fields);
    t->fields = all;
    return 0;
}

/* Until the deadline of the fetch, in milliseconds, at least 1. */
static void set_times(struct transfer *t, uint64_t now_ns)
{
    uint64_t ns = t->deadline_ns > now_ns ? t->deadline_ns - now_ns : 0;
    long ms = (long)MAX(ns / NS_PER_MS, (uint64_t)1);

    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, ms);
    curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, MIN(ms, (long)CONNECT_MS_MAX));
}

static void set_options(struct transfer *t)
{
    CURL *h = t->easy;

    curl_easy_setopt(h, CURLOPT_PRIVATE, t);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_QUICK_EXIT, 1L); /* does not wait for the thread of the resolver */
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(h, CURLOPT_PROXY, "");
    curl_easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "inferflux/" INFERFLUX_VERSION);
    curl_easy_setopt(h, CURLOPT_ACCEPT_ENCODING, "");
    curl_easy_setopt(h, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    curl_easy_setopt(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (t->options->ca_file && *t->options->ca_file)
        curl_easy_setopt(h, CURLOPT_CAINFO, t->options->ca_file);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, t);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(h, CURLOPT_XFERINFODATA, t);
    if (t->fetch->body.p) {
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, t->fetch->body.p);
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->fetch->body.n);
    }
}

struct transfer *transfer_new(
    struct http_fetch *f, const struct http_client_options *o, uint64_t now_ns)
{
    struct transfer *t = try_calloc(1, sizeof(*t));

    f->err = (struct err){ .code = ERR_NONE };
    f->status = f->n_redirects = 0;
    f->max_age_s = -1;
    *f->content_type = '\0';
    buf_init(&f->response, f->max_bytes);
    if (!t) {
        err_set(&f->err, ERR_MEMORY, "no memory for a request");
        return NULL;
    }
    t->fetch = f;
    t->options = o;
    t->deadline_ns = now_ns + f->timeout_ms * NS_PER_MS;
    t->easy = curl_easy_init();
    if (read_origin(&t->origin, f->url, &f->err))
        goto fail;
    if (!t->easy || set_fields(t, true)) {
        err_set(&f->err, ERR_MEMORY, "no memory for a request");
        goto fail;
    }
    set_options(t);
    set_times(t, now_ns);
    curl_easy_setopt(t->easy, CURLOPT_URL, f->url);
    return t;

fail:
    transfer_free(t);
    return NULL;
}

void transfer_free(struct transfer *t)
{
    curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->fields);
    clear_origin(&t->origin);
    mem_free(t);
}

/* ---- redirects */

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static int check_redirect(
    const struct transfer *t, const struct transfer_origin *next, bool is_same, struct err *e)
{
    const struct http_fetch *f = t->fetch;

    if (f->n_redirects >= MIN(f->max_redirects, (int)FETCH_REDIRECTS_MAX))
        return err_set(e, ERR_FORBIDDEN, "more than %d redirects", f->n_redirects);
    if (!strcmp(t->origin.scheme, "https") && strcmp(next->scheme, "https"))
        return err_set(e, ERR_FORBIDDEN, "a redirect from https to http");
    if (f->body.p && (f->status < 307 || !is_same))
        return err_set(e, ERR_FORBIDDEN, "a redirect of a request with a body to another host");
    return 0;
}

static int follow(struct transfer *t, const char *url, struct err *e)
{
    struct transfer_origin next = { NULL };
    size_t n = strlen(url) + 1;
    char *copy = NULL;
    bool is_same = false;
    int failed = read_origin(&next, url, e);

    if (!failed) {
        is_same = is_same_origin(&t->origin, &next);
        failed = check_redirect(t, &next, is_same, e);
    }
    if (!failed && (!(copy = try_malloc(n)) || (!is_same && set_fields(t, false))))
        failed = err_set(e, ERR_MEMORY, "no memory for a redirect");
    if (failed) {
        clear_origin(&next);
        mem_free(copy);
        return -1;
    }
    memcpy(copy, url, n);
    curl_easy_setopt(t->easy, CURLOPT_URL, copy); /* curl copies it */
    mem_free(copy);
    clear_origin(&t->origin);
    t->origin = next;
    t->fetch->n_redirects++;
    t->head_bytes = 0;
    t->is_redirected = false;
    buf_reset(&t->fetch->response);
    return 0;
}

/* ---- result */

static void describe_failure(struct transfer *t, CURLcode result)
{
    struct err *e = &t->fetch->err;

    if (t->is_too_large)
        err_set(e, ERR_TOO_LARGE, "the response has more than %zu bytes", t->fetch->max_bytes);
    else if (t->is_address_refused)
        err_set(e, ERR_FORBIDDEN, "the host has no public address");
    else if (result == CURLE_OPERATION_TIMEDOUT)
        err_set(e, ERR_TIMEOUT, "no complete response in %u ms", t->fetch->timeout_ms);
    else if (result == CURLE_OUT_OF_MEMORY || !buf_ok(&t->fetch->response))
        err_set(e, ERR_MEMORY, "no memory for a response");
    else
        err_set(e, ERR_IO, "%s", *t->error ? t->error : curl_easy_strerror(result));
}

/* The max-age directive of Cache-Control (RFC 9111, section 5.2.2.1). */
static int64_t max_age_of(CURL *easy)
{
    struct curl_header *h;
    uint64_t age;

    if (curl_easy_header(easy, "Cache-Control", 0, CURLH_HEADER, -1, &h))
        return -1;
    for (struct str rest = str_of(h->value); rest.n;) {
        ptrdiff_t comma = str_find(rest, STR(","));
        struct str item = str_trim((struct str){ rest.p, comma < 0 ? rest.n : (size_t)comma });
        struct str name = { item.p, MIN(item.n, (size_t)8) };
        if (str_eq_nocase(name, STR("max-age=")) && str_to_u64(str_skip(item, 8), &age))
            return (int64_t)MIN(age, (uint64_t)INT32_MAX);
        rest = str_skip(rest, comma < 0 ? rest.n : (size_t)comma + 1);
    }
    return -1;
}

static void set_result(struct transfer *t)
{
    const char *type = NULL;

    curl_easy_getinfo(t->easy, CURLINFO_CONTENT_TYPE, &type);
    for (size_t i = 0; type && type[i] && i + 1 < sizeof(t->fetch->content_type); i++) {
        t->fetch->content_type[i] = type[i];
        t->fetch->content_type[i + 1] = '\0';
    }
    t->fetch->max_age_s = max_age_of(t->easy);
}

bool transfer_next(struct transfer *t, CURLcode result, uint64_t now_ns)
{
    struct http_fetch *f = t->fetch;
    const char *url = NULL;
    long status = 0;

    if (result) {
        describe_failure(t, result);
        return false;
    }
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &url);
    f->status = (int)status;
    if (is_redirect(f->status) && url) {
        if (now_ns >= t->deadline_ns)
            describe_failure(t, CURLE_OPERATION_TIMEDOUT);
        else if (!follow(t, url, &f->err)) {
            set_times(t, now_ns);
            return true;
        }
        return false;
    }
    set_result(t);
    return false;
}
