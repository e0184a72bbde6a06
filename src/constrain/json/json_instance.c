#include "constrain/json/json_instance.h"

#include "base/json.h"
#include "base/mem.h"
#include "constrain/json/json_acceptor_in.h"

#include <stdlib.h>

enum { TRIES_MAX = 4096 }; /* orders of properties that are tried for one value */

struct reader {
    struct acceptor *a;
    struct buf *text;
    uint32_t tries;
};

static pos_id put(struct reader *r, pos_id p, struct str s)
{
    for (size_t k = 0; k < s.n && p.i; k++) {
        p = r->a->ops->step(r->a, p, (uint8_t)s.p[k]);
        if (p.i)
            buf_putc(r->text, s.p[k]);
    }
    return p;
}

static pos_id put_string(struct reader *r, pos_id p, struct str s)
{
    struct buf b;

    buf_init(&b, s.n * 6 + 2);
    buf_putc(&b, '"');
    json_escape(&b, s);
    buf_putc(&b, '"');
    p = buf_ok(&b) ? put(r, p, buf_str(&b)) : POS_DEAD;
    buf_clear(&b);
    return p;
}

/* An integer such as 1.0 or 1e3 without fraction and exponent. */
static pos_id put_integer(struct reader *r, pos_id p, struct str s)
{
    struct decimal d;
    struct err e;
    char text[NUMBER_DIGITS_MAX + 2];
    size_t n = 0;

    if (decimal_parse(&d, s, &e) || d.exponent < d.n || d.exponent > NUMBER_DIGITS_MAX)
        return POS_DEAD;
    if (d.is_negative)
        text[n++] = '-';
    for (int32_t k = 0; k < d.exponent; k++)
        text[n++] = (char)('0' + (k < d.n ? d.digits[k] : 0));
    if (!d.n)
        text[n++] = '0';
    return put(r, p, (struct str){ text, n });
}

static bool can_end(struct reader *r, pos_id p)
{
    return p.i && (r->a->ops->accepts(r->a, p) || r->a->ops->step(r->a, p, ',').i ||
                      r->a->ops->step(r->a, p, ']').i || r->a->ops->step(r->a, p, '}').i);
}

static pos_id put_number(struct reader *r, pos_id p, struct str s)
{
    size_t n = r->text->n;
    pos_id next = put(r, p, s);

    if (can_end(r, next))
        return next;
    r->text->n = n;
    return put_integer(r, p, s);
}

/* ---- objects */

struct member {
    const struct json *value;
    uint32_t order, number;
};

static int by_order(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Order of the key in the branch of the innermost object. */
static uint32_t order_of(const struct json_program *p, const struct branch *b, struct str key)
{
    uint32_t number = 0;

    if (!str_map_get(p->key_of, key, &number))
        return ORDER_TAIL;
    uint32_t entry = json_entry(b->shape, p->ranks[number]);
    return entry == NO_ITEM ? ORDER_TAIL : b->shape->entries[entry].order;
}

static pos_id read_value(struct reader *r, pos_id p, const struct json *v);

static pos_id read_members(struct reader *r, pos_id p, const struct member *all, uint32_t n)
{
    for (uint32_t k = 0; k < n && p.i; k++) {
        if (k)
            p = put(r, p, STR(","));
        p = put_string(r, p, all[k].value->key);
        p = put(r, p, STR(":"));
        p = read_value(r, p, all[k].value);
    }
    return put(r, p, STR("}"));
}

static pos_id read_object(struct reader *r, pos_id p, const struct json *v)
{
    struct json_acceptor *a = (struct json_acceptor *)r->a;
    struct member *all = try_calloc(v->n + (size_t)1, sizeof(*all));
    size_t start;
    pos_id open = put(r, p, STR("{")), end = POS_DEAD;
    uint32_t n_branches = open.i ? frame_at(a, a->s.pos[open.i].frame)->n_branches : 0;

    start = r->text->n;
    for (uint32_t k = 0; k < n_branches && !end.i && all && ++r->tries < TRIES_MAX; k++) {
        const struct branch *b = first_branch(frame_at(a, a->s.pos[open.i].frame));
        uint32_t n = 0;
        for (uint32_t j = 0; j < k; j++)
            b = next_branch(b);
        for (const struct json *m = v->child; m; m = m->next, n++)
            all[n] = (struct member){ m, order_of(a->p, b, m->key), n };
        qsort(all, n, sizeof(*all), by_order);
        r->text->n = start;
        end = read_members(r, open, all, n);
    }
    mem_free(all);
    return end;
}

/* The recursion is bounded by the depth of the parsed value. */
static pos_id read_value(struct reader *r, pos_id p, const struct json *v)
{
    if (!p.i)
        return p;
    switch (v->kind) {
    case JSON_NULL:
        return put(r, p, STR("null"));
    case JSON_BOOL:
        return put(r, p, v->b ? STR("true") : STR("false"));
    case JSON_NUMBER:
        return put_number(r, p, v->s);
    case JSON_STRING:
        return put_string(r, p, v->s);
    case JSON_ARRAY:
        p = put(r, p, STR("["));
        for (const struct json *m = v->child; m && p.i; m = m->next) {
            if (m != v->child)
                p = put(r, p, STR(","));
            p = read_value(r, p, m);
        }
        return put(r, p, STR("]"));
    case JSON_OBJECT:
        return read_object(r, p, v);
    }
    return POS_DEAD;
}

pos_id json_instance_read(struct acceptor *a, pos_id p, const struct json *value, struct buf *text)
{
    struct reader r = { .a = a, .text = text };

    return read_value(&r, p, value);
}
