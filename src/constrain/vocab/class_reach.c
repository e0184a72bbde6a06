#include "constrain/vocab/class_reach.h"

#include "base/hash.h"
#include "base/mem.h"

enum {
    MEMO_SLOTS = 1024,
    TAIL_MAX = 3, /* continuation bytes of a character */
    CLOSURE_MAX = 64,
};

/* Values of memo.next that are not states. */
#define MIXED UINT32_MAX       /* characters of the class lead to several states */
#define OPEN  (UINT32_MAX - 1) /* every text of characters of the class is permitted */

/* States that are kept when the automaton is flushed. */
enum held {
    HELD_CURRENT,
    HELD_TARGET,
    HELD_TAIL, /* a state inside a character, by number of missing bytes */
    HELD_VERIFIED = HELD_TAIL + TAIL_MAX, /* a state whose 64 continuation bytes were examined */
    HELD_CLOSURE = HELD_VERIFIED + TAIL_MAX,
    N_HELD = HELD_CLOSURE + CLOSURE_MAX
};

struct memo {
    uint64_t generation;
    uint32_t state; /* 0: unused */
    uint32_t next;  /* state, 0: no character of the class is permitted, MIXED or OPEN */
    uint32_t class;
};

struct class_reach {
    struct automaton *a;
    struct automaton_roots roots;
    state_id held[N_HELD];
    bool has_target, is_mixed, has_dead;
    bool is_closure;    /* targets are added to the closure and may differ */
    uint32_t n_closure; /* states that characters of the class lead to; CLOSURE_MAX + 1: too many */
    uint64_t steps;
    struct memo memo[MEMO_SLOTS]; /* direct-mapped */
};

struct class_reach *class_reach_new(struct automaton *a)
{
    struct class_reach *r = try_calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->a = a;
    r->roots = (struct automaton_roots){ .ids = r->held, .n = N_HELD };
    automaton_add_roots(a, &r->roots);
    return r;
}

void class_reach_free(struct class_reach *r)
{
    if (!r)
        return;
    automaton_remove_roots(r->a, &r->roots);
    mem_free(r);
}

size_t class_reach_bytes(void)
{
    return sizeof(struct class_reach);
}

static void add_to_closure(struct class_reach *r, state_id to)
{
    state_id *all = r->held + HELD_CLOSURE;

    for (uint32_t k = 0; k < r->n_closure; k++)
        if (all[k].i == to.i)
            return;
    if (r->n_closure < CLOSURE_MAX)
        all[r->n_closure] = to;
    r->n_closure++;
}

/* Outside of a closure all characters of the class must lead to the same state. */
static void add_target(struct class_reach *r, state_id to)
{
    r->has_dead = r->has_dead || !to.i;
    if (r->is_closure) {
        if (to.i)
            add_to_closure(r, to);
        r->is_mixed = r->has_dead || r->n_closure > CLOSURE_MAX; /* ends the search */
        return;
    }
    if (!r->has_target) {
        r->has_target = true;
        r->held[HELD_TARGET] = to;
    }
    r->is_mixed = r->is_mixed || r->held[HELD_TARGET].i != to.i;
}

/* The continuation bytes from..to of a character with n_tail missing bytes. The recursion ends
 * after TAIL_MAX calls. */
static void examine_tail(struct class_reach *r, state_id s, unsigned from, unsigned to, int n_tail)
{
    bool is_full = from == 0x80 && to == 0xBF;

    if (is_full && r->held[HELD_VERIFIED + n_tail - 1].i == s.i)
        return;
    r->held[HELD_TAIL + n_tail - 1] = s;
    for (unsigned b = from; b <= to && !r->is_mixed; b++) {
        state_id next = automaton_step(r->a, s, (uint8_t)b);
        r->steps++;
        if (next.i && n_tail > 1)
            examine_tail(r, next, 0x80, 0xBF, n_tail - 1);
        else
            add_target(r, next);
    }
    if (is_full)
        r->held[HELD_VERIFIED + n_tail - 1] = s;
}

static void examine(struct class_reach *r, state_id s, enum token_class class)
{
    memset(r->held, 0, HELD_CLOSURE * sizeof(*r->held));
    r->held[HELD_CURRENT] = s;
    r->has_target = r->is_mixed = r->has_dead = false;
    for (size_t k = class_rows[class]; k < class_rows[class + 1] && !r->is_mixed; k++) {
        const struct class_bytes *row = &class_bytes[k];
        for (unsigned b = row->from; b <= row->to && !r->is_mixed; b++) {
            state_id next = automaton_step(r->a, s, (uint8_t)b);
            r->steps++;
            if (next.i && row->n_tail)
                examine_tail(r, next, row->tail_from, row->tail_to, row->n_tail);
            else
                add_target(r, next);
        }
    }
}

/* True if characters of the class lead from the state to few states, none of which is dead, as in
 * the search for a pattern that may begin anywhere. */
static bool is_open(struct class_reach *r, state_id s, enum token_class class)
{
    r->is_closure = true;
    r->is_mixed = false;
    r->n_closure = 0;
    add_to_closure(r, s);
    for (uint32_t k = 0; k < r->n_closure && !r->is_mixed; k++)
        examine(r, r->held[HELD_CLOSURE + k], class);
    r->is_closure = false;
    return !r->is_mixed;
}

/* The state after each character of the class, 0, MIXED or OPEN. */
static uint32_t next_of(struct class_reach *r, state_id s, enum token_class class)
{
    examine(r, s, class);
    if (!r->is_mixed)
        return r->held[HELD_TARGET].i;
    return class == CLASS_STRING && !r->has_dead && is_open(r, s, class) ? OPEN : MIXED;
}

static struct memo *memo_of(struct class_reach *r, state_id s, enum token_class class)
{
    return &r->memo[hash_mix((uint64_t)s.i * N_TOKEN_CLASSES + class) % MEMO_SLOTS];
}

static uint32_t next_of_stored(struct class_reach *r, state_id s, enum token_class class)
{
    struct memo *m = memo_of(r, s, class);

    if (m->state != s.i || m->class != class || m->generation != automaton_generation(r->a)) {
        uint32_t next = next_of(r, s, class);
        /* `s` and `next` are roots: they survive a flush. */
        *m = (struct memo){ automaton_generation(r->a), s.i, next, class };
    } else {
        r->held[HELD_TARGET].i = m->next >= OPEN ? 0 : m->next;
    }
    if (m->next == OPEN)
        for (uint32_t k = 0; k < r->n_closure; k++) {
            state_id one = r->held[HELD_CLOSURE + k];
            *memo_of(r, one, class) =
                (struct memo){ automaton_generation(r->a), one.i, OPEN, class };
        }
    r->n_closure = 0;
    return m->next;
}

uint32_t class_reach_get(
    struct class_reach *r, state_id s, enum token_class class, uint32_t n_max, uint64_t *steps)
{
    uint32_t n = 0;

    r->steps = 0;
    while (n < n_max) {
        uint32_t next = next_of_stored(r, s, class);
        r->steps++;
        if (next == MIXED)
            n_max = n = 0;
        else if (next == OPEN)
            n = n_max;
        else if (!next)
            n_max = n;
        else
            n = next == s.i ? n_max : n + 1;
        s.i = next;
    }
    memset(r->held, 0, sizeof(r->held));
    *steps += r->steps;
    return n;
}
