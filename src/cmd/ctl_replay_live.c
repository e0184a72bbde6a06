/* ctl_replay_live.c: replays a trace of arrivals against a server, over HTTP. One thread sends all
 * concurrent requests with libcurl's multi interface.
 *
 * Prompts are token ids, so they have exactly the length of the trace; ignore_eos gives the output
 * its exact length. The time to the first token is measured from the scheduled arrival to the first
 * frame with a token, including the connection. */
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cmd/ctl_replay.h"
#include "os/clock.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

enum { FRAME_MAX = 1 << 20, TOKEN_POOL_MAX = 256, KEY_MAX = 256 };

struct live_request {
    struct live *live;
    const struct replay_request *row;
    CURL *curl;
    struct curl_slist *fields;
    struct buf body, line;
    uint64_t arrival_ns, first_ns, last_ns;
    int n_out, n_cached; /* counts reported by the server */
    enum { OPEN, DONE, TOO_LATE, DROPPED, BROKEN } end;
    struct live_request *next; /* link in the free list */
};

struct live {
    struct ctl *ctl;
    const struct live_setup *setup;
    const struct replay_request *rows;
    int n, n_arrived, n_open;
    CURLM *multi;
    struct live_request *flights, *free; /* array of max_open elements */
    char url[2048];
    int32_t token_pool[TOKEN_POOL_MAX]; /* token ids that prompts consist of */
    int n_token_pool;
    uint64_t began_ns, last_end_ns;
    double prompt_tokens, cached_tokens, out_tokens;
    struct replay_samples ttft, itl, refused;
    struct live_result *out;
};

/* ---- responses */

static int int_member(const struct json *of, const char *key)
{
    int64_t v = 0;

    json_i64(json_get(of, key), &v);
    return (int)v;
}

static void record_token(struct live_request *f)
{
    uint64_t now = clock_ns();

    if (!f->first_ns)
        f->first_ns = now;
    else
        replay_samples_add(&f->live->itl, (double)(now - f->last_ns) * 1e-9);
    f->last_ns = now;
}

static void record_error(struct live_request *f, const struct json *error)
{
    const struct json *code = json_get(error, "code");
    struct str s = code && code->kind == JSON_STRING ? code->s : STR_NONE;

    f->end = str_is(s, "timeout") ? TOO_LATE : str_is(s, "queue_full") ? DROPPED : BROKEN;
}

static void read_json(struct live_request *f, const struct json *j)
{
    const struct json *choices = json_get(j, "choices"), *usage = json_get(j, "usage");
    if (json_get(j, "error"))
        record_error(f, json_get(j, "error"));
    if (choices && choices->child)
        record_token(f);
    if (usage && usage->kind == JSON_OBJECT) {
        f->n_out = int_member(usage, "completion_tokens");
        f->n_cached = int_member(json_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
}

static void read_frame(struct live_request *f, struct str data)
{
    struct json *j;
    struct err e;

    if (str_is(data, "[DONE]")) {
        f->end = f->end == OPEN ? DONE : f->end;
        return;
    }
    struct arena *a = arena_new(FRAME_MAX);
    if (a && !json_parse(&j, data, a, &json_limits_default, &e))
        read_json(f, j);
    arena_free(a);
}

static size_t on_bytes(char *p, size_t size, size_t n, void *arg)
{
    struct live_request *f = arg;
    struct str rest = { p, size * n };
    long status = 0;

    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return size * n;
    for (ptrdiff_t newline; (newline = str_find(rest, STR("\n"))) >= 0;) {
        buf_put(&f->line, rest.p, (size_t)newline);
        struct str line = buf_str(&f->line);
        if (str_starts(line, STR("data: ")))
            read_frame(f, str_trim(str_skip(line, 6)));
        buf_reset(&f->line);
        rest = str_skip(rest, (size_t)newline + 1);
    }
    buf_puts(&f->line, rest);
    return buf_ok(&f->line) ? size * n : 0;
}

static void finish_request(struct live_request *f)
{
    struct live *l = f->live;
    struct replay_result *out = &l->out->all;
    uint64_t now = clock_ns();
    long status = 0;

    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 503) {
        out->n_refused++;
        replay_samples_add(&l->refused, (double)(now - f->arrival_ns) * 1e-9);
    } else if (f->end == DONE && f->first_ns) {
        out->n_done++;
        l->prompt_tokens += f->row->n_prompt;
        l->cached_tokens += f->n_cached;
        l->out_tokens += f->n_out;
        replay_samples_add(&l->ttft, (double)(f->first_ns - f->arrival_ns) * 1e-9);
    } else {
        *(status == 504 || f->end == TOO_LATE ? &out->n_late
            : f->end == DROPPED               ? &out->n_dropped
                                              : &out->n_failed) += 1;
    }
    l->last_end_ns = now;
    l->n_open--;
    curl_multi_remove_handle(l->multi, f->curl);
    curl_easy_cleanup(f->curl);
    curl_slist_free_all(f->fields);
    buf_clear(&f->body);
    buf_clear(&f->line);
    f->next = l->free;
    l->free = f;
}

/* ---- requests */

/* Returns the key of a tenant: tenant 1 has the first of the list, tenant 0 the global key. */
static struct str key_of(const struct live *l, uint64_t tenant)
{
    struct str rest = str_of(l->setup->keys), key = str_of(l->ctl->api_key);

    for (; tenant > 0; tenant--) {
        ptrdiff_t comma = str_find(rest, STR(","));
        key = str_trim((struct str){ rest.p, comma < 0 ? rest.n : (size_t)comma });
        rest = comma < 0 ? STR_NONE : str_skip(rest, (size_t)comma + 1);
    }
    return key;
}

uint64_t live_n_keys(const char *keys)
{
    uint64_t n = *keys != '\0';

    for (; *keys; keys++)
        n += *keys == ',';
    return n;
}

static void write_body(struct live_request *f, int index)
{
    const struct live *l = f->live;
    const struct replay_request *row = f->row;
    uint64_t key = row->prefix ? row->prefix : rng_entropy() ^ (uint64_t)index;
    struct jw w;

    jw_init(&w, &f->body);
    jw_object(&w);
    if (*l->ctl->model)
        jw_key(&w, "model"), jw_z(&w, l->ctl->model);
    jw_key(&w, "max_tokens"), jw_i64(&w, row->n_out);
    jw_key(&w, "ignore_eos"), jw_bool(&w, true);
    jw_key(&w, "stream"), jw_bool(&w, true);
    jw_key(&w, "priority"), jw_i64(&w, row->priority);
    jw_key(&w, "stream_options"), jw_object(&w);
    jw_key(&w, "include_usage"), jw_bool(&w, true);
    jw_end_object(&w);
    jw_key(&w, "prompt"), jw_array(&w);
    for (int i = 0; i < row->n_prompt; i++) {
        uint64_t x = hash_step(key, (uint64_t)i << 40);
        jw_i64(&w, l->token_pool[(x ^ x >> 29) % (uint64_t)l->n_token_pool]);
    }
    jw_end_array(&w);
    jw_end_object(&w);
}

static void set_fields(struct live_request *f)
{
    struct live *l = f->live;
    struct str key = key_of(l, f->row->tenant);
    char field[KEY_MAX + 64];

    f->fields = curl_slist_append(NULL, "Content-Type: application/json");
    f->fields = curl_slist_append(f->fields, "Expect:"); /* send the body without a 100-continue */
    if (key.n) {
        snprintf(
            field, sizeof(field), "Authorization: Bearer %.*s", (int)MIN(key.n, KEY_MAX), key.p);
        f->fields = curl_slist_append(f->fields, field);
    }
    if (l->setup->deadline_s > 0) { /* the deadline counts from the scheduled arrival */
        double left = l->setup->deadline_s - (double)(clock_ns() - f->arrival_ns) * 1e-9;
        snprintf(field, sizeof(field), "X-Request-Timeout-Ms: %.0f", MAX(left * 1e3, 1));
        f->fields = curl_slist_append(f->fields, field);
    }
}

static void send_request(struct live *l, uint64_t arrival_ns)
{
    struct live_request *f = l->free;
    int index = l->n_arrived++;

    l->free = f->next;
    l->n_open++;
    *f = (struct live_request){ .live = l, .row = &l->rows[index], .arrival_ns = arrival_ns };
    buf_init(&f->body, 256 * MB);
    buf_init(&f->line, FRAME_MAX);
    write_body(f, index);
    f->curl = curl_easy_init();
    CHECK(f->curl);
    set_fields(f);
    curl_easy_setopt(f->curl, CURLOPT_URL, l->url);
    curl_easy_setopt(f->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(f->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, f->fields);
    curl_easy_setopt(f->curl, CURLOPT_POSTFIELDS, f->body.p);
    curl_easy_setopt(f->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)f->body.n);
    curl_easy_setopt(f->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(f->curl, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(f->curl, CURLOPT_PRIVATE, f);
    curl_multi_add_handle(l->multi, f->curl);
}

/* ---- the run */

static uint64_t due_ns(const struct live *l, int i)
{
    return l->began_ns + (uint64_t)((l->rows[i].at_s - l->rows[0].at_s) * 1e9);
}

static void finish_completed(struct live *l)
{
    int n_left;

    for (CURLMsg *m; (m = curl_multi_info_read(l->multi, &n_left)) != NULL;) {
        struct live_request *f;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &f);
        finish_request(f);
    }
}

static void run_trace(struct live *l)
{
    l->began_ns = clock_ns();
    while (l->n_arrived < l->n || l->n_open > 0) {
        uint64_t now = clock_ns();
        int n_running, wait_ms = 1000;
        while (l->n_arrived < l->n && l->free && due_ns(l, l->n_arrived) <= now)
            send_request(l, due_ns(l, l->n_arrived));
        curl_multi_perform(l->multi, &n_running);
        finish_completed(l);
        if (l->n_arrived < l->n && l->free) {
            uint64_t due = due_ns(l, l->n_arrived);
            now = clock_ns();
            wait_ms = due > now ? (int)MIN((due - now) / NS_PER_MS, 1000u) : 0;
        }
        if (wait_ms > 0)
            curl_multi_poll(l->multi, NULL, 0, wait_ms, NULL);
    }
}

/* Tokenises a list of words, to get token ids that exist in any vocabulary. */
static int read_token_pool(struct live *l, struct err *e)
{
    struct arena *a = arena_new(MB);
    struct ctl_response r;
    struct json *j;
    struct str body =
        STR("{\"content\":\"one two three four five six seven eight nine ten and of the "
            "to in is it for on with as at by from or we you he she they what when how "
            "all can had her was one our out day get has him his how man new now old\"}");

    ctl_request(l->ctl, "/tokenize", &body, &r);
    if (a && r.status == 200 && !json_parse(&j, buf_str(&r.body), a, &json_limits_default, e))
        for (const struct json *t = json_get(j, "tokens") ? json_get(j, "tokens")->child : NULL;
             t && l->n_token_pool < TOKEN_POOL_MAX; t = t->next) {
            int64_t id = 0;
            json_i64(t->kind == JSON_OBJECT ? json_get(t, "id") : t, &id);
            l->token_pool[l->n_token_pool++] = (int32_t)id;
        }
    if (!l->n_token_pool)
        err_set(e, ERR_IO, "%s/tokenize responded with status %ld: " STR_FMT, l->ctl->url, r.status,
            STR_ARG(a ? ctl_error_text(&r, a) : STR("")));
    buf_clear(&r.body);
    arena_free(a);
    return l->n_token_pool ? 0 : -1;
}

static void summarise(struct live *l)
{
    struct replay_result *out = &l->out->all;

    out->n = l->n;
    out->span_s = (double)(l->last_end_ns - l->began_ns) * 1e-9;
    if (out->span_s > 0) {
        out->requests_s = out->n_done / out->span_s;
        out->tokens_s = l->out_tokens / out->span_s;
    }
    out->hit_rate = l->prompt_tokens > 0 ? l->cached_tokens / l->prompt_tokens : 0;
    out->ttft = replay_quantiles_of(&l->ttft);
    out->itl = replay_quantiles_of(&l->itl);
    l->out->refused = replay_quantiles_of(&l->refused);
}

int live_run(struct live_result *out, struct ctl *c, const struct replay_request *rows, int n,
    const struct live_setup *s, struct err *e)
{
    struct live l = { .ctl = c, .setup = s, .rows = rows, .n = n, .out = out };

    *out = (struct live_result){ 0 };
    l.multi = curl_multi_init();
    l.flights = try_calloc((size_t)s->max_open, sizeof(*l.flights));
    int failed = -1;
    if (!l.multi || !l.flights)
        err_set(e, ERR_MEMORY, "no memory for %d requests", s->max_open);
    else
        failed = read_token_pool(&l, e);
    if (!failed) {
        snprintf(l.url, sizeof(l.url), "%s/v1/completions", c->url);
        for (int i = 0; i < s->max_open; i++) {
            l.flights[i].next = l.free;
            l.free = &l.flights[i];
        }
        run_trace(&l);
        summarise(&l);
    }
    curl_multi_cleanup(l.multi);
    mem_free(l.flights);
    replay_samples_clear(&l.ttft);
    replay_samples_clear(&l.itl);
    replay_samples_clear(&l.refused);
    return failed ? -1 : 0;
}

/* ---- parameters of the server */

/* Returns the value of a gauge's first series, or 0. */
static double gauge_in(struct str metrics, const char *name)
{
    ptrdiff_t at = str_find(metrics, str_of(name));
    double v = 0;

    if (at < 0)
        return 0;
    metrics = str_skip(metrics, (size_t)at);
    ptrdiff_t brace = str_find(metrics, STR("} ")), end = str_find(metrics, STR("\n"));
    if (brace < 0 || end < brace)
        return 0;
    str_to_f64((struct str){ metrics.p + brace + 2, (size_t)(end - brace - 2) }, &v);
    return v;
}

void live_server_read(struct live_server *out, struct ctl *c)
{
    struct arena *a = arena_new(64 * MB);
    struct ctl_response r;
    struct json *j;
    struct err e;

    ctl_request(c, "/props", NULL, &r);
    if (a && r.status == 200 && !json_parse(&j, buf_str(&r.body), a, &json_limits_default, &e)) {
        int n_slots = int_member(j, "total_slots"),
            n_ctx = int_member(json_get(j, "default_generation_settings"), "n_ctx");
        out->n_slots = n_slots > 0 ? n_slots : out->n_slots;
        out->n_ctx = n_ctx > 0 ? n_ctx : out->n_ctx;
    }
    buf_clear(&r.body);
    ctl_request(c, "/metrics", NULL, &r);
    struct str text = r.status == 200 ? buf_str(&r.body) : STR_NONE;
    double fixed = gauge_in(text, "inferflux_step_cost_fixed_nanoseconds{");
    double row = gauge_in(text, "inferflux_step_cost_token_nanoseconds{");
    if (fixed + row > 0) {
        out->cost.fixed = fixed;
        out->cost.per_row = row;
        out->cost.per_key = gauge_in(text, "inferflux_step_cost_key_picoseconds{") * 1e-3;
    }
    buf_clear(&r.body);
    arena_free(a);
}
