#include "serve/audit_routes.h"

#include "audit/audit_index.h"
#include "base/json.h"
#include "base/rfc3339.h"
#include "serve/async.h"
#include "serve/query.h"

enum { PAGE = 100, LIST_JSON_MAX = 64 * 1024 * 1024 };

struct audit_request {
    struct async async;
    struct audit_query query; /* belongs to the index while it is posted */
};

/* ---- query parameters */

static int read_time(const char *name, struct str text, int64_t *out, struct err *e)
{
    if (str_to_i64(text, out) || rfc3339_read(text, out))
        return 0;
    return err_param(e, ERR_INVALID, name,
        "%s must be a Unix time in seconds, or a time such as 2026-11-24T08:00:00Z.", name);
}

static int read_number(
    const char *name, struct str text, int64_t min, int64_t max, int64_t *out, struct err *e)
{
    if (str_to_i64(text, out) && *out >= min && *out <= max)
        return 0;
    return err_param(
        e, ERR_RANGE, name, "%s must be from %lld to %lld.", name, (long long)min, (long long)max);
}

static int read_text(
    const char *name, struct str text, struct audit_filter_text *out, struct err *e)
{
    if (text.n >= sizeof(out->text) || (text.n && memchr(text.p, '\0', text.n)))
        return err_param(e, ERR_INVALID, name, "%s must have at most %zu bytes, without NUL.", name,
            sizeof(out->text) - 1);
    out->is_set = true;
    memcpy(out->text, text.p, text.n);
    out->text[text.n] = '\0';
    return 0;
}

static int read_parameters(const struct http_exchange *x, struct audit_filter *f, struct err *e)
{
    static const char *const names[] = { "from", "to", "key", "tenant", "model", "action", "status",
        "before", "limit" };
    enum { FROM, TO, KEY, TENANT, MODEL, ACTION, STATUS, BEFORE, LIMIT, N_NAMES };
    struct audit_filter_text *const texts[N_NAMES] = {
        [KEY] = &f->key, [TENANT] = &f->tenant, [MODEL] = &f->model, [ACTION] = &f->action
    };
    int64_t limit = PAGE, before = 0;

    if (query_check(x, names, N_NAMES, e))
        return -1;
    for (int i = 0; i < N_NAMES; i++) {
        struct str v = STR_NONE;
        int failed = query_get(x, names[i], &v, e);
        if (!failed && !v.p)
            continue;
        if (!failed && texts[i])
            failed = read_text(names[i], v, texts[i], e);
        else if (!failed && i == FROM)
            failed = read_time(names[i], v, &f->from_s, e), f->has_from = true;
        else if (!failed && i == TO)
            failed = read_time(names[i], v, &f->to_s, e), f->has_to = true;
        else if (!failed && i == STATUS)
            failed = read_number(names[i], v, 100, 599, &f->status, e), f->has_status = true;
        else if (!failed && i == BEFORE)
            failed = read_number(names[i], v, 0, INT64_MAX, &before, e), f->has_before = true;
        else if (!failed)
            failed = read_number(names[i], v, 1, AUDIT_PAGE_MAX, &limit, e);
        if (failed)
            return -1;
    }
    f->before = (uint64_t)before;
    f->limit = (int)limit;
    return 0;
}

/* ---- response */

static void write_page(struct audit_request *a, struct buf *b)
{
    const struct audit_query *q = &a->query;
    struct jw w;

    jw_init(&w, b);
    jw_object(&w);
    jw_key(&w, "object"), jw_z(&w, "list");
    jw_key(&w, "data");
    buf_putc(b, '[');
    buf_puts(b, buf_str(&q->lines));
    jw_raw(&w, STR("]"));
    jw_key(&w, "next_before");
    if (q->has_more)
        jw_u64(&w, q->last);
    else
        jw_null(&w);
    jw_member_bool(&w, "has_more", q->has_more);
    jw_member_bool(&w, "is_complete", q->is_complete);
    jw_end_object(&w);
}

static void on_free(struct async *s)
{
    buf_clear(&container_of(s, struct audit_request, async)->query.lines);
}

void audit_routes_message(struct msg *m)
{
    struct audit_query *q = container_of(m, struct audit_query, msg);
    struct audit_request *a = container_of(q, struct audit_request, query);

    if (a->async.is_open && q->err.code) {
        async_reply_error(&a->async, &q->err, NULL);
    } else if (a->async.is_open) {
        struct buf b;
        buf_init(&b, LIST_JSON_MAX);
        write_page(a, &b);
        reply_json(a->async.x, a->async.call, 200, &b);
        buf_clear(&b);
        async_close(&a->async);
    }
    async_unhold(&a->async);
}

void audit_routes_list(struct io *io, struct http_exchange *x, struct route_call *c)
{
    static const struct async_ops ops = { .free = on_free };
    struct audit_request *a = async_new(sizeof(*a), &ops, io, x, c);
    struct err e;

    if (!a)
        return;
    int failed = io->o->audit_index
                     ? read_parameters(x, &a->query.filter, &e)
                     : err_set(&e, ERR_DISABLED, "This server has no audit log: set audit.path.");
    if (failed) {
        async_reply_error(&a->async, &e, NULL);
        return;
    }
    a->query.reply_to = loop_mailbox(io->loop);
    a->query.msg.kind = MSG_AUDIT_LINES;
    async_hold(&a->async); /* until audit_routes_message */
    audit_index_post(io->o->audit_index, &a->query);
}
