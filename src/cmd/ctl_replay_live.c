/* ctl_replay_live.c: a trace of arrivals against a server, over HTTP. One thread, as many requests
 * at once as the trace brings: libcurl's multi interface.
 *
 * Prompts are token ids, so that they are as long as the trace says; answers end with their last
 * token and not before. The first frame with a token is the time to the first token, whatever was
 * between the request's time and its connection counts. */
#include "base/mem.h"
#include "base/rng.h"
#include "cmd/ctl_replay.h"
#include "os/clock.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

enum { FRAME_MAX = 1 << 20, WORDS_MAX = 256, KEY_MAX = 256 };

struct flight {
    struct live *live;
    const struct replay_row *row;
    CURL *curl;
    struct curl_slist *fields;
    struct buf body, line;
    uint64_t came_ns, first_ns, last_ns;
    int n_out, n_cached; /* as the server counts */
    enum { OPEN, DONE, TOO_LATE, DROPPED, BROKEN } end;
    struct flight *next; /* free ones */
};

struct live {
    struct ctl *ctl;
    const struct live_setup *setup;
    const struct replay_row *rows;
    int n, n_arrived, n_open;
    CURLM *multi;
    struct flight *flights, *free; /* [max_open] */
    char url[2048];
    int32_t words[WORDS_MAX]; /* tokens that prompts are made of */
    int n_words;
    uint64_t began_ns, last_end_ns;
    double prompt_tokens, cached_tokens, out_tokens;
    struct replay_samples first, between, refused;
    struct live_result *out;
};

/* ---- what comes back */

static int number_in(const struct json *of, const char *key)
{
    int64_t v = 0;

    json_i64(json_get(of, key), &v);
    return (int)v;
}

static void note_token(struct flight *f)
{
    uint64_t now = clock_ns();

    if (!f->first_ns)
        f->first_ns = now;
    else
        replay_add(&f->live->between, (double)(now - f->last_ns) * 1e-9);
    f->last_ns = now;
}

static void note_error(struct flight *f, const struct json *error)
{
    const struct json *code = json_get(error, "code");
    struct str s = code && code->kind == JSON_STRING ? code->s : STR_NONE;

    f->end = str_is(s, "timeout") ? TOO_LATE : str_is(s, "queue_full") ? DROPPED : BROKEN;
}

static void read_json(struct flight *f, const struct json *j)
{
    const struct json *choices = json_get(j, "choices"), *usage = json_get(j, "usage");
    if (json_get(j, "error"))
        note_error(f, json_get(j, "error"));
    if (choices && choices->child)
        note_token(f);
    if (usage && usage->kind == JSON_OBJECT) {
        f->n_out = number_in(usage, "completion_tokens");
        f->n_cached = number_in(json_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
}

static void read_frame(struct flight *f, struct str data)
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
    struct flight *f = arg;
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

static void land(struct flight *f)
{
    struct live *l = f->live;
    struct replay_result *out = &l->out->all;
    uint64_t now = clock_ns();
    long status = 0;

    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 503) {
        out->n_refused++;
        replay_add(&l->refused, (double)(now - f->came_ns) * 1e-9);
    } else if (f->end == DONE && f->first_ns) {
        out->n_done++;
        l->prompt_tokens += f->row->n_prompt;
        l->cached_tokens += f->n_cached;
        l->out_tokens += f->n_out;
        replay_add(&l->first, (double)(f->first_ns - f->came_ns) * 1e-9);
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

/* ---- what is sent */

/* The key of a tenant: 1 is the first of the list; 0 has the one that all have. */
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

static void write_body(struct flight *f, int index)
{
    const struct live *l = f->live;
    const struct replay_row *row = f->row;
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
        uint64_t x = (key ^ (uint64_t)i << 40) * 0x9e3779b97f4a7c15u;
        jw_i64(&w, l->words[(x ^ x >> 29) % (uint64_t)l->n_words]);
    }
    jw_end_array(&w);
    jw_end_object(&w);
}

static void set_fields(struct flight *f)
{
    struct live *l = f->live;
    struct str key = key_of(l, f->row->tenant);
    char field[KEY_MAX + 64];

    f->fields = curl_slist_append(NULL, "Content-Type: application/json");
    f->fields = curl_slist_append(f->fields, "Expect:"); /* no question before the body */
    if (key.n) {
        snprintf(
            field, sizeof(field), "Authorization: Bearer %.*s", (int)MIN(key.n, KEY_MAX), key.p);
        f->fields = curl_slist_append(f->fields, field);
    }
    if (l->setup->deadline_s > 0) { /* it began when it should have come */
        double left = l->setup->deadline_s - (double)(clock_ns() - f->came_ns) * 1e-9;
        snprintf(field, sizeof(field), "X-Request-Timeout-Ms: %.0f", MAX(left * 1e3, 1));
        f->fields = curl_slist_append(f->fields, field);
    }
}

static void take_off(struct live *l, uint64_t came_ns)
{
    struct flight *f = l->free;
    int index = l->n_arrived++;

    l->free = f->next;
    l->n_open++;
    *f = (struct flight){ .live = l, .row = &l->rows[index], .came_ns = came_ns };
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

static void land_all(struct live *l)
{
    int n_left;

    for (CURLMsg *m; (m = curl_multi_info_read(l->multi, &n_left)) != NULL;) {
        struct flight *f;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &f);
        land(f);
    }
}

static void fly(struct live *l)
{
    l->began_ns = clock_ns();
    while (l->n_arrived < l->n || l->n_open > 0) {
        uint64_t now = clock_ns();
        int n_running, wait_ms = 1000;
        while (l->n_arrived < l->n && l->free && due_ns(l, l->n_arrived) <= now)
            take_off(l, due_ns(l, l->n_arrived));
        curl_multi_perform(l->multi, &n_running);
        land_all(l);
        if (l->n_arrived < l->n && l->free) {
            uint64_t due = due_ns(l, l->n_arrived);
            now = clock_ns();
            wait_ms = due > now ? (int)MIN((due - now) / 1000000, 1000u) : 0;
        }
        if (wait_ms > 0)
            curl_multi_poll(l->multi, NULL, 0, wait_ms, NULL);
    }
}

/* Words of the model itself, whatever its vocabulary. */
static int find_words(struct live *l, struct err *e)
{
    struct arena *a = arena_new(MB);
    struct ctl_reply r;
    struct json *j;
    struct str ask =
        STR("{\"content\":\"one two three four five six seven eight nine ten and of the "
            "to in is it for on with as at by from or we you he she they what when how "
            "all can had her was one our out day get has him his how man new now old\"}");

    ctl_request(l->ctl, "/tokenize", &ask, &r);
    if (a && r.status == 200 && !json_parse(&j, buf_str(&r.body), a, &json_limits_default, e))
        for (const struct json *t = json_get(j, "tokens") ? json_get(j, "tokens")->child : NULL;
             t && l->n_words < WORDS_MAX; t = t->next) {
            int64_t id = 0;
            json_i64(t->kind == JSON_OBJECT ? json_get(t, "id") : t, &id);
            l->words[l->n_words++] = (int32_t)id;
        }
    if (!l->n_words)
        err_set(e, ERR_IO, "%s/tokenize answers %ld: " STR_FMT, l->ctl->url, r.status,
            STR_ARG(a ? ctl_error_text(&r, a) : STR("")));
    buf_clear(&r.body);
    arena_free(a);
    return l->n_words ? 0 : -1;
}

static void sum_up(struct live *l)
{
    struct replay_result *out = &l->out->all;

    out->n = l->n;
    out->span_s = (double)(l->last_end_ns - l->began_ns) * 1e-9;
    if (out->span_s > 0) {
        out->requests_s = out->n_done / out->span_s;
        out->tokens_s = l->out_tokens / out->span_s;
    }
    out->hit_rate = l->prompt_tokens > 0 ? l->cached_tokens / l->prompt_tokens : 0;
    out->first = replay_times_of(&l->first);
    out->between = replay_times_of(&l->between);
    l->out->refused = replay_times_of(&l->refused);
}

int live_run(struct live_result *out, struct ctl *c, const struct replay_row *rows, int n,
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
        failed = find_words(&l, e);
    if (!failed) {
        snprintf(l.url, sizeof(l.url), "%s/v1/completions", c->url);
        for (int i = 0; i < s->max_open; i++) {
            l.flights[i].next = l.free;
            l.free = &l.flights[i];
        }
        fly(&l);
        sum_up(&l);
    }
    curl_multi_cleanup(l.multi);
    mem_free(l.flights);
    replay_samples_clear(&l.first);
    replay_samples_clear(&l.between);
    replay_samples_clear(&l.refused);
    return failed ? -1 : 0;
}

/* ---- what it says of itself */

/* Of the only series of a gauge, or the first. */
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

void live_ask(struct live_server *out, struct ctl *c)
{
    struct arena *a = arena_new(64 * MB);
    struct ctl_reply r;
    struct json *j;
    struct err e;

    ctl_request(c, "/props", NULL, &r);
    if (a && r.status == 200 && !json_parse(&j, buf_str(&r.body), a, &json_limits_default, &e)) {
        int n_slots = number_in(j, "total_slots"),
            n_ctx = number_in(json_get(j, "default_generation_settings"), "n_ctx");
        out->n_slots = n_slots > 0 ? n_slots : out->n_slots;
        out->n_ctx = n_ctx > 0 ? n_ctx : out->n_ctx;
    }
    buf_clear(&r.body);
    ctl_request(c, "/metrics", NULL, &r);
    struct str text = r.status == 200 ? buf_str(&r.body) : STR_NONE;
    double fixed = gauge_in(text, "inferflux_step_cost_fixed_nanoseconds{");
    double row = gauge_in(text, "inferflux_step_cost_token_nanoseconds{");
    if (fixed + row > 0) {
        out->law.fixed = fixed;
        out->law.per_row = row;
        out->law.per_key = gauge_in(text, "inferflux_step_cost_key_picoseconds{") * 1e-3;
    }
    buf_clear(&r.body);
    arena_free(a);
}
