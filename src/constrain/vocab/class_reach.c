#include "constrain/vocab/class_reach.h"

#include "base/hash.h"
#include "base/mem.h"

enum {
    MEMO_SLOTS = 1024,
    TAIL_MAX = 3, /* continuation bytes of a character */
    MIXED = UINT32_MAX
};

/* States that are kept when the automaton is flushed. */
enum held {
    HELD_CURRENT,
    HELD_TARGET,
    HELD_TAIL, /* a state inside a character, by number of missing bytes */
    HELD_VERIFIED = HELD_TAIL + TAIL_MAX, /* a state whose 64 continuation bytes were examined */
    N_HELD = HELD_VERIFIED + TAIL_MAX
};

struct memo {
    uint64_t generation;
    uint32_t state; /* 0: unused */
    uint32_t next;  /* state, 0: no character of the class is permitted, or MIXED */
    uint32_t class;
};

struct class_reach {
    struct automaton *a;
    struct automaton_roots roots;
    state_id held[N_HELD];
    bool has_target, is_mixed;
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

/* All characters of the class must lead to the same state. */
static void add_target(struct class_reach *r, state_id to)
{
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

/* The state after each character of the class; 0: none is permitted; MIXED: there are several. */
static uint32_t next_of(struct class_reach *r, state_id s, enum token_class class)
{
    memset(r->held, 0, sizeof(r->held));
    r->held[HELD_CURRENT] = s;
    r->has_target = r->is_mixed = false;
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
    return r->is_mixed ? MIXED : r->held[HELD_TARGET].i;
}

static uint32_t next_of_stored(struct class_reach *r, state_id s, enum token_class class)
{
    struct memo *m = &r->memo[hash_mix((uint64_t)s.i * N_TOKEN_CLASSES + class) % MEMO_SLOTS];

    if (m->state != s.i || m->class != class || m->generation != automaton_generation(r->a)) {
        uint32_t next = next_of(r, s, class);
        /* `s` and `next` are roots: they survive a flush. */
        *m = (struct memo){ automaton_generation(r->a), s.i, next, class };
    } else {
        r->held[HELD_TARGET].i = m->next == MIXED ? 0 : m->next;
    }
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
