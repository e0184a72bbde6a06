/* guardrail_test.c: POST /v1/admin/guardrails/test: applies the guardrails of the policy to a text,
 * and returns the hits and what is left of the text. */
#include "base/json.h"
#include "guardrails/guard_record.h"
#include "serve/async.h"
#include "serve/object_routes.h"

enum { TEST_TEXT_MAX = 1 << 20, TEST_HITS_MAX = 1000 };

struct guardrail_test {
    struct async async;
    const struct guardrails *g; /* a reference */
    /* while it runs */
    struct jw *w;
    struct buf text;
    enum guard_action strongest;
    int n_hits;
};

static void on_text(void *ctx, struct str raw)
{
    struct guardrail_test *t = ctx;

    buf_puts(&t->text, raw);
}

static void on_hit(void *ctx, const struct guard_hit *hit)
{
    struct guardrail_test *t = ctx;
    const struct guard_set *set = guardrails_at(t->g, hit->set);
    struct buf entry;

    t->strongest = MAX(t->strongest, set->action);
    if (t->n_hits++ >= TEST_HITS_MAX)
        return;
    buf_init(&entry, 64);
    guard_entry_write(hit->kind, hit->entry, &entry);
    jw_object(t->w);
    jw_key(t->w, "set"), jw_z(t->w, set->name);
    jw_member_str(t->w, "entry", buf_str(&entry));
    jw_key(t->w, "action"), jw_z(t->w, guard_action_names[set->action]);
    jw_member_u64(t->w, "start", hit->begin);
    jw_member_u64(t->w, "end", hit->end);
    jw_end_object(t->w);
    buf_clear(&entry);
}

struct test_request {
    struct str text, model, tenant;
    bool in_place[N_GUARD_PLACES];
};

static int read_string(
    struct str *out, const struct json *body, const char *name, bool is_required, struct err *e)
{
    const struct json *v = json_get(body, name);

    if (json_is_null(v) && !is_required)
        return 0;
    if (json_is_null(v))
        return err_param(e, ERR_MISSING, name, "The field '%s' is missing.", name);
    if (v->kind != JSON_STRING || memchr(v->s.p, '\0', v->s.n))
        return err_param(e, ERR_INVALID, name, "%s must be a string.", name);
    *out = v->s;
    return 0;
}

static int read_request(struct test_request *out, struct async *a, struct err *e)
{
    const struct json_limits limits = { 4, 64 };
    struct str place = STR_NONE;
    struct json *body;

    if (json_parse(&body, a->body, a->arena, &limits, e))
        return -1;
    if (body->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "The body must be a JSON object.");
    if (read_string(&out->text, body, "text", true, e) ||
        read_string(&out->model, body, "model", false, e) ||
        read_string(&out->tenant, body, "tenant", false, e) ||
        read_string(&place, body, "place", false, e))
        return -1;
    if (out->text.n > TEST_TEXT_MAX)
        return err_param(e, ERR_TOO_LARGE, "text", "text has more than %d bytes.", TEST_TEXT_MAX);
    for (int i = 0; i < N_GUARD_PLACES; i++)
        out->in_place[i] = !place.p || str_is(place, guard_place_names[i]);
    if (!out->in_place[GUARD_PROMPT] && !out->in_place[GUARD_OUTPUT])
        return err_param(
            e, ERR_INVALID, "place", "place must be \"prompt\" or \"output\"; absent: both.");
    out->model = out->model.p ? arena_str(a->arena, out->model) : STR_NONE;
    out->tenant = out->tenant.p ? arena_str(a->arena, out->tenant) : STR_NONE;
    return 0;
}

static int search(struct guardrail_test *t, uint64_t sets, struct str text, struct err *e)
{
    struct guard_scan s;

    if (guard_scan_init(&s, t->g, sets, e))
        return -1;
    s.on_text = on_text;
    s.on_hit = on_hit;
    s.ctx = t;
    guard_scan_put(&s, text);
    guard_scan_end(&s);
    int failed = s.has_failed ? err_set(e, ERR_MEMORY, "no memory for the guardrails") : 0;
    guard_scan_clear(&s);
    return failed;
}

static int run_test(struct async *a)
{
    struct guardrail_test *t = container_of(a, struct guardrail_test, async);
    struct test_request q = { 0 };
    uint64_t sets = 0;
    struct jw w;

    if (read_request(&q, a, &a->err))
        return -1;
    for (int i = 0; i < N_GUARD_PLACES; i++)
        if (q.in_place[i])
            sets |= guardrails_select(t->g, (enum guard_place)i, q.model.p, q.tenant.p);
    t->w = &w;
    buf_init(&t->text, 16 * MB);
    jw_init(&w, &a->out);
    jw_object(&w);
    jw_key(&w, "object"), jw_z(&w, "guardrail_test");
    jw_key(&w, "hits"), jw_array(&w);
    int failed = t->g ? search(t, sets, q.text, &a->err) : 0;
    jw_end_array(&w);
    jw_member_i64(&w, "n_hits", t->n_hits);
    jw_key(&w, "action"), jw_z(&w, t->n_hits ? guard_action_names[t->strongest] : NULL);
    jw_member_str(&w, "text", t->g ? buf_str(&t->text) : q.text);
    jw_end_object(&w);
    if (!failed && !buf_ok(&t->text))
        failed = err_set(&a->err, ERR_MEMORY, "no memory for the guardrails");
    buf_clear(&t->text);
    return failed;
}

static void on_free(struct async *a)
{
    guardrails_unref(container_of(a, struct guardrail_test, async)->g);
}

void guardrails_test(struct io *io, struct http_exchange *x, struct route_call *c)
{
    static const struct async_ops ops = { .run = run_test, .free = on_free };
    struct guardrail_test *t = async_new(sizeof(*t), &ops, io, x, c);

    if (!t)
        return;
    t->g = guardrails_ref(policy_snapshot_guardrails(io->policy));
    async_start(&t->async, guardrails_have_patterns(t->g, UINT64_MAX));
}
