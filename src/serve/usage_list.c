#include "serve/usage_list.h"

#include "base/json.h"
#include "serve/async.h"

#include <stdio.h>

enum { PAGE = 100, LIST_JSON_MAX = 4 * 1024 * 1024, HOUR_S = 3600, COST_UNIT = 1000000 };

struct usage_call {
    struct async async;
    struct usage_query query; /* belongs to the usage thread while it is posted */
};

/* A number of the query string; *out is unchanged if there is none. */
static int read_number(const struct http_exchange *x, const char *name, int64_t *out, struct err *e)
{
    struct str text = STR_NONE;
    int64_t n;

    if (query_get(x, name, &text, e))
        return -1;
    if (!text.n)
        return 0;
    if (!str_to_i64(text, &n) || n < 0)
        return err_param(e, ERR_INVALID, name, "%s must be a whole number of at least 0.", name);
    *out = n;
    return 0;
}

static int read_text(
    const struct http_exchange *x, const char *name, char *out, size_t n, struct err *e)
{
    struct str text = STR("");

    if (query_get(x, name, &text, e))
        return -1;
    if (text.n >= n || memchr(text.p, '\0', text.n))
        return err_param(e, ERR_INVALID, name, "%s has at most %zu bytes.", name, n - 1);
    snprintf(out, n, STR_FMT, STR_ARG(text));
    return 0;
}

static int read_query(struct usage_query *q, const struct http_exchange *x, struct err *e)
{
    int64_t from_s = 0, to_s = INT64_MAX - HOUR_S, n = PAGE;

    if (read_number(x, "from", &from_s, e) || read_number(x, "to", &to_s, e) ||
        read_number(x, "after", &q->after_id, e) || read_number(x, "limit", &n, e) ||
        read_text(x, "key", q->key, sizeof(q->key), e) ||
        read_text(x, "tenant", q->tenant, sizeof(q->tenant), e) ||
        read_text(x, "model", q->model, sizeof(q->model), e))
        return -1;
    if (n < 1 || n > USAGE_PAGE_MAX)
        return err_param(e, ERR_RANGE, "limit", "limit must be from 1 to %d.", USAGE_PAGE_MAX);
    q->from_hour = from_s / HOUR_S;
    q->to_hour = to_s / HOUR_S + (to_s % HOUR_S != 0);
    q->n_max = (int)n;
    return 0;
}

void usage_list(struct io *io, struct http_exchange *x, struct route_call *c)
{
    static const struct async_ops ops = { 0 };
    struct usage_call *k = async_new(sizeof(*k), &ops, io, x, c);
    struct err e;

    if (!k)
        return;
    struct usage_query *q = &k->query;
    int failed = !io->o->usage ? err_set(&e, ERR_DISABLED, "This server records no usage.")
                               : read_query(q, x, &e);
    if (!failed) {
        q->rows = arena_alloc(k->async.arena, (size_t)q->n_max * sizeof(*q->rows));
        failed = q->rows ? 0 : err_set(&e, ERR_MEMORY, "no memory for the request");
    }
    if (failed) {
        async_reply_error(&k->async, &e, NULL);
        return;
    }
    q->reply_to = loop_mailbox(io->loop);
    q->msg.kind = MSG_USAGE;
    async_hold(&k->async); /* until usage_list_message */
    usage_post(io->o->usage, q);
}

static void put_row(struct jw *w, const struct usage_row *r)
{
    jw_object(w);
    jw_key(w, "object"), jw_z(w, "usage");
    jw_member_i64(w, "id", r->id);
    jw_member_i64(w, "hour", r->hour * HOUR_S);
    jw_key(w, "key"), jw_z(w, *r->key ? r->key : NULL);
    jw_key(w, "tenant"), jw_z(w, *r->tenant ? r->tenant : NULL);
    jw_key(w, "model"), jw_z(w, r->model);
    jw_member_i64(w, "requests", r->requests);
    jw_member_i64(w, "prompt_tokens", r->prompt);
    jw_member_i64(w, "output_tokens", r->output);
    jw_member_i64(w, "cost", r->cost / COST_UNIT);
    jw_end_object(w);
}

static void reply_page(struct usage_call *k)
{
    const struct usage_query *q = &k->query;
    struct buf b;
    struct jw w;

    buf_init(&b, LIST_JSON_MAX);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "object"), jw_z(&w, "list");
    jw_key(&w, "data"), jw_array(&w);
    for (int i = 0; i < q->n; i++)
        put_row(&w, &q->rows[i]);
    jw_end_array(&w);
    jw_member_i64(&w, "last_id", q->n ? q->rows[q->n - 1].id : q->after_id);
    jw_member_bool(&w, "has_more", q->has_more);
    jw_end_object(&w);
    reply_json(k->async.x, k->async.call, 200, &b);
    buf_clear(&b);
}

void usage_list_message(struct io *io, struct msg *m)
{
    struct usage_call *k =
        container_of(container_of(m, struct usage_query, msg), struct usage_call, query);

    if (k->async.is_open && k->query.err.code) {
        async_reply_error(&k->async, &k->query.err, NULL);
    } else if (k->async.is_open) {
        reply_page(k);
        async_close(&k->async);
    }
    async_unhold(&k->async);
}
