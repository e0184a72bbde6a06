#include "constrain/automaton_acceptor.h"

#include "base/mem.h"
#include "constrain/regular/shortest.h"
#include "constrain/vocab/class_reach.h"

struct automaton_acceptor {
    struct acceptor base;
    struct automaton *a;
    struct class_reach *reach;
    struct shortest *shortest;    /* NULL: completions are not needed */
    struct automaton_roots roots; /* ids: `states`, n: number of positions */
    bool is_full;
    state_id states[AUTOMATON_POSITIONS_MAX]; /* one state per position */
};

static struct automaton_acceptor *of(struct acceptor *a)
{
    return container_of(a, struct automaton_acceptor, base);
}

static const struct automaton_acceptor *of_const(const struct acceptor *a)
{
    return (const void *)a; /* `base` is the first member */
}

static state_id state_of(const struct automaton_acceptor *m, pos_id p)
{
    DCHECK(p.i < m->roots.n);
    return m->states[p.i];
}

static void free_acceptor(struct acceptor *a)
{
    struct automaton_acceptor *m = of(a);

    class_reach_free(m->reach);
    shortest_free(m->shortest);
    automaton_free(m->a);
    mem_free(m);
}

/* ---- steps */

static pos_id step(struct acceptor *a, pos_id p, uint8_t byte)
{
    struct automaton_acceptor *m = of(a);
    state_id before = state_of(m, p), s = automaton_step(m->a, before, byte);

    if (!s.i)
        return POS_DEAD;
    if (s.i == before.i)
        return p;
    if (m->roots.n == AUTOMATON_POSITIONS_MAX) {
        m->is_full = true;
        return POS_DEAD;
    }
    m->states[m->roots.n] = s;
    return (pos_id){ (uint32_t)m->roots.n++ };
}

static bool accepts(struct acceptor *a, pos_id p)
{
    return automaton_accepts(of(a)->a, state_of(of(a), p));
}

static struct byte_set next_bytes(struct acceptor *a, pos_id p)
{
    return automaton_next_bytes(of(a)->a, state_of(of(a), p));
}

static uint32_t reach(struct acceptor *a, pos_id p, enum token_class class, uint32_t n_max)
{
    uint64_t steps = 0;

    return class_reach_get(of(a)->reach, state_of(of(a), p), class, n_max, &steps);
}

static bool permits_all(struct acceptor *a, pos_id p)
{
    return automaton_permits_all(of(a)->a, state_of(of(a), p));
}

static uint64_t key(struct acceptor *a, pos_id p)
{
    return state_of(of(a), p).i;
}

static uint64_t generation(struct acceptor *a)
{
    return automaton_generation(of(a)->a);
}

/* The whole language is one text, after which nothing follows. */
static struct automaton *texts(struct acceptor *a)
{
    return of(a)->a;
}

static bool text(struct acceptor *a, pos_id p, struct acceptor_text *out)
{
    *out = (struct acceptor_text){ .state = state_of(of(a), p) };
    return true;
}

static pos_id text_end(struct acceptor *a, pos_id p)
{
    (void)a;
    (void)p;
    return POS_DEAD;
}

/* ---- completions */

static int completion_new(struct acceptor *a, struct err *e)
{
    return shortest_new(&of(a)->shortest, of(a)->a, e);
}

static int32_t completion(struct acceptor *a, pos_id p)
{
    state_id s = state_of(of(a), p);

    switch (shortest_length(of(a)->shortest, s)) {
    case 0:
        return COMPLETION_END;
    case SHORTEST_NONE:
        return COMPLETION_NONE;
    default:
        return shortest_first(of(a)->shortest, s);
    }
}

/* ---- memory of positions */

static uint32_t mark(struct acceptor *a)
{
    return (uint32_t)of(a)->roots.n;
}

static void release(struct acceptor *a, uint32_t at)
{
    of(a)->roots.n = at;
}

static pos_id keep(struct acceptor *a, uint32_t at, pos_id p)
{
    struct automaton_acceptor *m = of(a);

    if (p.i < at) {
        m->roots.n = at;
        return p;
    }
    m->states[at] = m->states[p.i];
    m->roots.n = at + 1;
    return (pos_id){ at };
}

static int check(const struct acceptor *a, struct err *e)
{
    if (of_const(a)->is_full)
        return err_set(e, ERR_TOO_LARGE, "the text has more than %d positions in use",
            AUTOMATON_POSITIONS_MAX);
    return automaton_check(of_const(a)->a, e);
}

static size_t bytes(const struct acceptor *a)
{
    return sizeof(struct automaton_acceptor) + class_reach_bytes() +
           automaton_bytes(of_const(a)->a) + (of_const(a)->shortest ? shortest_bytes() : 0);
}

static const struct acceptor_ops ops = {
    .free = free_acceptor,
    .step = step,
    .accepts = accepts,
    .next_bytes = next_bytes,
    .reach = reach,
    .permits_all = permits_all,
    .key = key,
    .generation = generation,
    .texts = texts,
    .text = text,
    .text_end = text_end,
    .completion_new = completion_new,
    .completion = completion,
    .mark = mark,
    .release = release,
    .keep = keep,
    .check = check,
    .bytes = bytes,
};

/* ---- creation */

int automaton_acceptor_new(struct acceptor **out, const struct exprs *x, expr_id root,
    struct automaton_limits limits, struct err *e)
{
    struct automaton_acceptor *m = try_malloc(sizeof(*m));

    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for the automaton of a constraint");
    m->base.ops = &ops;
    m->is_full = false;
    m->shortest = NULL;
    if (automaton_new(&m->a, x, root, limits, e)) {
        mem_free(m);
        return -1;
    }
    m->states[POS_DEAD.i] = STATE_DEAD;
    m->states[POS_START.i] = automaton_start(m->a);
    m->roots = (struct automaton_roots){ .ids = m->states, .n = POS_START.i + 1 };
    automaton_add_roots(m->a, &m->roots);
    m->reach = class_reach_new(m->a);
    if (!m->reach) {
        free_acceptor(&m->base);
        return err_set(e, ERR_MEMORY, "no memory for the automaton of a constraint");
    }
    *out = &m->base;
    return 0;
}
