/* fairness.c: GET and PUT /v1/admin/fairness: reads and changes the scheduler's fairness options
 * and the weights of the keys (by the key id that logs contain). Owner: the io thread. */
#include "base/json.h"
#include "base/log.h"
#include "serve/audit_record.h"

static void put_weights(struct jw *w, const struct keys *keys)
{
    struct caller key;

    jw_key(w, "weights"), jw_object(w);
    for (int i = 0; keys && i < keys_count(keys); i++) {
        keys_at(keys, i, &key);
        jw_key(w, key.id), jw_f64(w, (double)key.weight);
    }
    jw_end_object(w);
}

static void put_fairness(const struct io *io, const struct fairness *f, struct buf *b)
{
    struct jw w;

    buf_init(b, 64 * KB);
    jw_init(&w, b);
    jw_object(&w);
    jw_key(&w, "enable_preemption"), jw_bool(&w, f->enable_preemption);
    jw_key(&w, "high_priority_threshold"), jw_i64(&w, f->high_priority_threshold);
    jw_key(&w, "max_timeslice_tokens"), jw_i64(&w, f->max_timeslice_tokens);
    put_weights(&w, io->o->keys);
    jw_end_object(&w);
}

void fairness_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct fairness f = io->o->fairness ? fairness_get(io->o->fairness) : fairness_default;
    struct buf b;

    put_fairness(io, &f, &b);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

static int parse_number(const struct json *v, int *out, struct err *e)
{
    int64_t n;

    if (!json_i64(v, &n) || n < INT32_MIN || n > INT32_MAX)
        return err_param(
            e, ERR_INVALID, "fairness", STR_FMT " must be an integer.", STR_ARG(v->key));
    *out = (int)n;
    return 0;
}

static int parse_field(const struct json *v, struct fairness *f, struct err *e)
{
    if (str_is(v->key, "enable_preemption")) {
        f->enable_preemption = v->b;
        return v->kind == JSON_BOOL ? 0
                                    : err_param(e, ERR_INVALID, "enable_preemption",
                                          "enable_preemption must be true or false.");
    }
    if (str_is(v->key, "high_priority_threshold"))
        return parse_number(v, &f->high_priority_threshold, e);
    if (str_is(v->key, "max_timeslice_tokens"))
        return parse_number(v, &f->max_timeslice_tokens, e);
    return err_param(e, ERR_INVALID, "fairness", "Unknown field '" STR_FMT "'.",
        (int)MIN(v->key.n, (size_t)80), v->key.p);
}

static int check_weights(const struct keys *keys, const struct json *weights, struct err *e)
{
    double v;

    if (weights->kind != JSON_OBJECT)
        return err_param(e, ERR_INVALID, "weights", "weights must be an object.");
    for (const struct json *w = weights->child; w; w = w->next) {
        if (!keys || keys_index(keys, w->key) < 0)
            return err_param(e, ERR_INVALID, "weights", "No key has the id '" STR_FMT "'.",
                (int)MIN(w->key.n, (size_t)80), w->key.p);
        if (!json_f64(w, &v) || !(v >= KEY_WEIGHT_MIN && v <= KEY_WEIGHT_MAX))
            return err_param(e, ERR_INVALID, "weights", "A weight must be from %g to %g.",
                (double)KEY_WEIGHT_MIN, (double)KEY_WEIGHT_MAX);
    }
    return 0;
}

static void set_weights(struct io *io, const struct route_call *c, const struct json *weights)
{
    double v = 1;

    for (const struct json *w = weights ? weights->child : NULL; w; w = w->next) {
        json_f64(w, &v);
        keys_set_weight(io->o->keys, keys_index(io->o->keys, w->key), (float)v);
        log_info("serve", "weight_set", "key=" STR_FMT " weight=%g caller=%s", STR_ARG(w->key), v,
            c->caller.id);
    }
}

/* Fields that the body does not contain are unchanged. *weights: NULL if the body has none. */
static int parse_body(const struct io *io, struct http_exchange *x, struct fairness *f,
    const struct json **weights, struct err *e)
{
    const struct json_limits limits = { 4, 64 + 2 * KEYS_MAX };
    struct json *root;

    if (json_parse(&root, x->req->body, x->arena, &limits, e))
        return -1;
    if (root->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "The body must be a JSON object.");
    *weights = json_get(root, "weights");
    for (const struct json *v = root->child; v; v = v->next)
        if (str_is(v->key, "weights") ? check_weights(io->o->keys, v, e) : parse_field(v, f, e))
            return -1;
    return fairness_check(f, e);
}

void fairness_change(struct io *io, struct http_exchange *x, struct route_call *c)
{
    const struct json *weights;
    struct fairness f;
    struct buf before, after;
    struct err e;

    if (!io->o->fairness) {
        err_set(&e, ERR_UNSUPPORTED, "The fairness settings of this server cannot be changed.");
        reply_error(x, c, &e, NULL);
        return;
    }
    f = fairness_get(io->o->fairness);
    put_fairness(io, &f, &before);
    if (parse_body(io, x, &f, &weights, &e) || audit_change_reserve(io, &e)) {
        reply_error(x, c, &e, NULL);
        buf_clear(&before);
        return;
    }
    fairness_set(io->o->fairness, &f);
    set_weights(io, c, weights);
    log_info("serve", "fairness_set", "preempt=%d high=%d slice=%d caller=%s", f.enable_preemption,
        f.high_priority_threshold, f.max_timeslice_tokens, c->caller.id);
    put_fairness(io, &f, &after);
    audit_change_write(c, "fairness.changed", &before, &after);
    reply_json(x, c, 200, &after);
    buf_clear(&before);
    buf_clear(&after);
}
