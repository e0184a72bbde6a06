/* How many characters of a token class a position of a grammar permits; compare class_reach.c.
 *
 * Equal positions have one number, so a position is uniform for a class if all characters of the
 * class lead to one number. */
#include "base/hash.h"
#include "constrain/grammar/grammar_acceptor_in.h"

enum reach_next { NEXT_MIXED, NEXT_NONE, NEXT_UNIFORM };
enum { TAIL_MAX = 3 /* continuation bytes of a character */ };

/* A character of each class, to continue from a uniform position. */
static const uint8_t sample[N_TOKEN_CLASSES] = {
    [CLASS_STRING] = 'a', [CLASS_DIGITS] = '0', [CLASS_BLANKS] = ' '
};

struct examination {
    struct acceptor *a;
    bool has_target, is_mixed;
    pos_id target;
    pos_id verified[TAIL_MAX]; /* all continuation bytes were examined */
};

static void add_target(struct examination *x, pos_id to)
{
    x->is_mixed = x->is_mixed || (x->has_target && x->target.i != to.i);
    x->has_target = true;
    x->target = to;
}

/* The continuation bytes from..to of a character with n_tail missing bytes. The recursion ends
 * after TAIL_MAX calls. */
static void examine_tail(struct examination *x, pos_id p, unsigned from, unsigned to, int n_tail)
{
    bool is_full = from == 0x80 && to == 0xBF;

    if (is_full && x->verified[n_tail - 1].i == p.i)
        return;
    for (unsigned b = from; b <= to && !x->is_mixed; b++) {
        pos_id next = x->a->ops->step(x->a, p, (uint8_t)b);
        if (next.i && n_tail > 1)
            examine_tail(x, next, 0x80, 0xBF, n_tail - 1);
        else
            add_target(x, next);
    }
    if (is_full)
        x->verified[n_tail - 1] = p;
}

static enum reach_next examine(struct acceptor *a, pos_id p, enum token_class class)
{
    struct examination x = { .a = a };
    uint32_t mark = a->ops->mark(a);

    for (size_t k = class_rows[class]; k < class_rows[class + 1] && !x.is_mixed; k++) {
        const struct class_bytes *row = &class_bytes[k];
        for (unsigned b = row->from; b <= row->to && !x.is_mixed; b++) {
            pos_id next = a->ops->step(a, p, (uint8_t)b);
            if (next.i && row->n_tail)
                examine_tail(&x, next, row->tail_from, row->tail_to, row->n_tail);
            else
                add_target(&x, next);
        }
    }
    a->ops->release(a, mark);
    return x.is_mixed ? NEXT_MIXED : x.target.i ? NEXT_UNIFORM : NEXT_NONE;
}

static enum reach_next next_of(struct acceptor *base, pos_id p, enum token_class class)
{
    struct grammar_acceptor *a = container_of(base, struct grammar_acceptor, base);
    uint64_t key = base->ops->key(base, p), generation = base->ops->generation(base);
    struct reach_entry *e = &a->reach[hash_fold(key, (uint64_t) class) % REACH_SLOTS];

    if (!key)
        return NEXT_MIXED;
    if (e->key != key || e->class != class || e->generation != generation) {
        enum reach_next next = examine(base, p, class);
        generation = base->ops->generation(base);
        key = base->ops->key(base, p);
        *e = (struct reach_entry){ key, generation, (uint8_t) class, (uint8_t)next };
    }
    return e->next;
}

/* A position inside of one string of a JSON value: the value does not end with a character. */
static uint32_t reach_of_json(
    struct grammar_acceptor *a, const struct item *i, enum token_class class, uint32_t n_max)
{
    struct acceptor *sub = a->subs[a->g->t.slots[i->slot].value];

    if (class != CLASS_STRING || !sub->ops->reach)
        return 0;
    return sub->ops->reach(sub, (pos_id){ i->pos }, class, n_max);
}

uint32_t grammar_acceptor_reach(
    struct acceptor *base, pos_id p, enum token_class class, uint32_t n_max)
{
    struct grammar_acceptor *a = container_of(base, struct grammar_acceptor, base);
    const struct row *r = &a->p.rows[p.i];
    uint32_t mark = base->ops->mark(base), n = 0;

    if (!p.i)
        return 0;
    if (r->n == 1 && !r->accepts && a->g->t.slots[a->p.items[r->first].slot].kind == SYMBOL_JSON)
        return reach_of_json(a, &a->p.items[r->first], class, n_max);
    while (n < n_max && !a->is_failed) {
        enum reach_next next = next_of(base, p, class);
        if (next == NEXT_NONE)
            break;
        pos_id to = next == NEXT_UNIFORM ? base->ops->step(base, p, sample[class]) : POS_DEAD;
        n = !to.i ? 0 : to.i == p.i ? n_max : n + 1;
        if (!to.i)
            break;
        p = to;
    }
    base->ops->release(base, mark);
    return a->is_failed ? 0 : n;
}
