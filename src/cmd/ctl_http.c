/* ctl_http.c: HTTP requests to the server with libcurl; splits a stream into SSE events. */
#include "cmd/ctl.h"

#include <curl/curl.h>
#include <stdio.h>

enum { BODY_MAX = 256 * 1024 * 1024, FRAME_MAX = 64 * 1024 * 1024 };

struct stream {
    CURL *curl;
    struct ctl_response *reply;
    struct buf line; /* incomplete line of the stream */
    bool (*fn)(void *ctx, struct str data);
    void *ctx;
    const volatile bool *interrupted;
    bool is_stopped;
};

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    struct ctl_response *r = arg;

    buf_put(&r->body, p, size * n);
    return buf_ok(&r->body) ? size * n : 0;
}

static void on_line(struct stream *s, struct str line)
{
    if (str_ends(line, STR("\r")))
        line.n--;
    if (!str_starts(line, STR("data:")) || s->is_stopped)
        return;
    line = str_skip(line, 5);
    if (str_starts(line, STR(" ")))
        line = str_skip(line, 1);
    if (!str_is(line, "[DONE]") && !s->fn(s->ctx, line))
        s->is_stopped = true;
}

static size_t on_chunk(char *p, size_t size, size_t n, void *arg)
{
    struct stream *s = arg;
    struct str rest = { p, size * n };
    long status = 0;

    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return on_body(p, size, n, s->reply);
    while (rest.n) {
        ptrdiff_t newline = str_find(rest, STR("\n"));
        if (newline < 0) {
            buf_puts(&s->line, rest);
            break;
        }
        buf_put(&s->line, rest.p, (size_t)newline);
        on_line(s, buf_str(&s->line));
        buf_reset(&s->line);
        rest = str_skip(rest, (size_t)newline + 1);
    }
    return s->is_stopped || !buf_ok(&s->line) ? 0 : size * n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct stream *s = arg;

    (void)a, (void)b, (void)c, (void)d;
    if (s->interrupted && *s->interrupted)
        s->is_stopped = true;
    return s->is_stopped;
}

static void perform_request(
    struct ctl *c, CURL *curl, const char *path, const struct str *body, struct ctl_response *r)
{
    char url[2048], key[1100], why[CURL_ERROR_SIZE] = "";
    struct curl_slist *fields = curl_slist_append(NULL, "Content-Type: application/json");

    snprintf(url, sizeof(url), "%s%s", c->url, path);
    snprintf(key, sizeof(key), "Authorization: Bearer %s", c->api_key);
    if (*c->api_key)
        fields = curl_slist_append(fields, key);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
    if (body) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body->p);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->n);
    }
    CURLcode rc = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &r->status);
    bool was_stopped = rc == CURLE_WRITE_ERROR || rc == CURLE_ABORTED_BY_CALLBACK;
    if (rc != CURLE_OK && !was_stopped) {
        r->status = 0;
        buf_reset(&r->body);
        buf_printf(&r->body, "%s: %s", c->url, *why ? why : curl_easy_strerror(rc));
    }
    curl_slist_free_all(fields);
}

void ctl_send(struct ctl *c, const char *method, const char *path, const struct str *body,
    struct ctl_response *r)
{
    CURL *curl = curl_easy_init();

    CHECK(curl);
    *r = (struct ctl_response){ 0 };
    buf_init(&r->body, BODY_MAX);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
    if (method)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    perform_request(c, curl, path, body, r);
    curl_easy_cleanup(curl);
}

void ctl_request(struct ctl *c, const char *path, const struct str *body, struct ctl_response *r)
{
    ctl_send(c, NULL, path, body, r);
}

void ctl_delete(struct ctl *c, const char *path, struct ctl_response *r)
{
    ctl_send(c, "DELETE", path, NULL, r);
}

/* check-size: ctl_stream parameters=7: a callback with its context, and a flag set by a signal */
void ctl_stream(struct ctl *c, const char *path, struct str body,
    bool (*fn)(void *ctx, struct str data), void *ctx, const volatile bool *interrupted,
    struct ctl_response *r)
{
    struct stream s = {
        .curl = curl_easy_init(), .reply = r, .fn = fn, .ctx = ctx, .interrupted = interrupted
    };

    CHECK(s.curl);
    *r = (struct ctl_response){ 0 };
    buf_init(&r->body, BODY_MAX);
    buf_init(&s.line, FRAME_MAX);
    curl_easy_setopt(s.curl, CURLOPT_WRITEFUNCTION, on_chunk);
    curl_easy_setopt(s.curl, CURLOPT_WRITEDATA, &s);
    curl_easy_setopt(s.curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(s.curl, CURLOPT_XFERINFODATA, &s);
    curl_easy_setopt(s.curl, CURLOPT_NOPROGRESS, 0L);
    perform_request(c, s.curl, path, &body, r);
    buf_clear(&s.line);
    curl_easy_cleanup(s.curl);
}

struct str ctl_error_text(const struct ctl_response *r, struct arena *a)
{
    struct json *j;
    struct err e;

    if (!r->status || json_parse(&j, buf_str(&r->body), a, &json_limits_default, &e))
        return buf_str(&r->body);
    const struct json *error = json_get(j, "error");
    const struct json *candidates[] = { json_get(error, "message"), error, json_get(j, "detail"),
        json_get(j, "title") };
    for (size_t i = 0; i < ARRAY_LEN(candidates); i++)
        if (candidates[i] && candidates[i]->kind == JSON_STRING)
            return candidates[i]->s;
    return buf_str(&r->body);
}

int ctl_check(const struct ctl_response *r)
{
    if (r->status == 200 || r->status == 201)
        return EXIT_OK;
    struct arena *a = arena_new(16 * MB);
    struct str text = a ? ctl_error_text(r, a) : STR("no memory");
    if (r->status)
        ctl_fail("the server responded with status %ld: " STR_FMT, r->status, STR_ARG(text));
    else
        ctl_fail(STR_FMT, STR_ARG(text));
    arena_free(a);
    return EXIT_FAILED;
}
