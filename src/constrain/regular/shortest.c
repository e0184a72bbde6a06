#include "constrain/regular/shortest.h"

#include "base/mem.h"

enum {
    SLOTS = 2048, /* stored results, direct-mapped */
    FAILED_SLOTS = 4096,
    STEPS_MAX = 4096, /* live transitions of one search */
    FLUSHES_MAX = 2   /* after which a search fails */
};

struct result {
    uint32_t state, length;
    uint8_t first;
};

struct failure { /* no text of at most `room` bytes was found */
    uint32_t state, room;
};

struct shortest {
    struct automaton *a;
    uint64_t generation;         /* of `results` and `failed` */
    struct automaton_roots root; /* path[0]: more roots could fill the automaton */
    state_id path[SHORTEST_MAX + 1];
    uint16_t next[SHORTEST_MAX + 1]; /* rank of the next byte to be tried */
    uint64_t steps;
    struct result results[SLOTS];
    struct failure failed[FAILED_SLOTS];
};

/* ---- the order of bytes */

static const struct {
    uint8_t first, last;
} byte_order[] = { { '0', '9' }, { 'a', 'z' }, { 'A', 'Z' }, { ' ', '/' }, { ':', '@' },
    { '[', '`' }, { '{', '~' }, { 0, 0x1F }, { 0x7F, 0xFF } };

uint8_t byte_rank(uint8_t byte)
{
    unsigned before = 0;

    for (size_t k = 0; k < ARRAY_LEN(byte_order); k++) {
        if (byte >= byte_order[k].first && byte <= byte_order[k].last)
            return (uint8_t)(before + byte - byte_order[k].first);
        before += byte_order[k].last - byte_order[k].first + 1u;
    }
    return 0; /* not reached: the ranges contain all bytes */
}

uint8_t byte_of_rank(uint8_t rank)
{
    unsigned left = rank;

    for (size_t k = 0; k < ARRAY_LEN(byte_order); k++) {
        unsigned n = byte_order[k].last - byte_order[k].first + 1u;
        if (left < n)
            return (uint8_t)(byte_order[k].first + left);
        left -= n;
    }
    return 0; /* not reached */
}

/* ---- stored results */

static void follow_flush(struct shortest *q)
{
    if (q->generation == automaton_generation(q->a))
        return;
    q->generation = automaton_generation(q->a);
    memset(q->results, 0, sizeof(q->results));
    memset(q->failed, 0, sizeof(q->failed));
}

static const struct result *find(struct shortest *q, state_id s)
{
    const struct result *r = &q->results[s.i % SLOTS];

    follow_flush(q);
    return r->state == s.i ? r : NULL;
}

static bool has_failed(const struct shortest *q, state_id s, uint32_t room)
{
    const struct failure *f = &q->failed[(s.i * 31 + room) % FAILED_SLOTS];

    return f->state == s.i && f->room == room;
}

static void set_failed(struct shortest *q, state_id s, uint32_t room)
{
    q->failed[(s.i * 31 + room) % FAILED_SLOTS] = (struct failure){ s.i, room };
}

/* ---- the search */

/* The automaton was flushed: only the first state of the path is still valid. */
static bool has_flushed(const struct shortest *q)
{
    return q->generation != automaton_generation(q->a);
}

/* A text of exactly `room` bytes may lead from the state to an accepting one. */
static bool may_lead(struct shortest *q, state_id s, uint32_t room)
{
    const struct result *known = find(q, s);

    if (known)
        return known->length == room;
    if (!room)
        return automaton_accepts(q->a, s);
    return automaton_min_length(q->a, s) <= room && !has_failed(q, s, room);
}

/* The next state on the path to an accepting state that is `room` bytes away; STATE_DEAD: there is
 * none. */
static state_id descend(struct shortest *q, uint32_t depth, uint32_t room)
{
    state_id from = q->path[depth];

    for (; q->next[depth] < 256; q->next[depth]++) {
        state_id to = automaton_step(q->a, from, byte_of_rank((uint8_t)q->next[depth]));
        q->steps += to.i != 0;
        if (has_flushed(q) || (to.i && may_lead(q, to, room - 1)))
            return to;
    }
    return STATE_DEAD;
}

/* Stores the results of the states before the end of the path. */
static void store(struct shortest *q, uint32_t depth, uint32_t length)
{
    follow_flush(q);
    for (uint32_t k = 0; k < depth; k++)
        q->results[q->path[k].i % SLOTS] =
            (struct result){ q->path[k].i, length - k, byte_of_rank((uint8_t)q->next[k]) };
}

/* Searches a text of `length` bytes. The state at the end of the path accepts, or its result is
 * known. */
static bool search(struct shortest *q, state_id s, uint32_t length)
{
    uint32_t depth = 0;

    q->path[0] = s;
    q->next[0] = 0;
    q->root.n = 1;
    follow_flush(q);
    while (q->steps < STEPS_MAX) {
        uint32_t room = length - depth;
        const struct result *known = find(q, q->path[depth]);
        if (!room || known) {
            if (!depth)
                q->results[s.i % SLOTS] = (struct result){ .state = s.i };
            store(q, depth, length);
            return true;
        }
        state_id to = descend(q, depth, room);
        if (has_flushed(q)) {
            depth = q->next[0] = 0;
            follow_flush(q);
            q->steps += STEPS_MAX / FLUSHES_MAX;
            continue;
        }
        if (to.i) {
            q->path[++depth] = to;
            q->next[depth] = 0;
            continue;
        }
        set_failed(q, q->path[depth], room);
        if (!depth)
            return false;
        q->next[--depth]++;
    }
    return false;
}

static const struct result *result_of(struct shortest *q, state_id s)
{
    const struct result *r = s.i ? find(q, s) : NULL;
    uint32_t length = automaton_min_length(q->a, s);
    struct err ignored = { 0 };

    if (r || !s.i)
        return r;
    if (automaton_accepts(q->a, s))
        length = 0;
    q->steps = 0;
    bool is_found = false;
    for (; length <= SHORTEST_MAX && !is_found && q->steps < STEPS_MAX; length++)
        is_found = search(q, s, length);
    q->root.n = 0;
    if (automaton_check(q->a, &ignored))
        return NULL;
    if (!is_found) {
        follow_flush(q);
        q->results[s.i % SLOTS] = (struct result){ .state = s.i, .length = SHORTEST_NONE };
    }
    return find(q, s);
}

uint32_t shortest_length(struct shortest *q, state_id s)
{
    const struct result *r = result_of(q, s);

    return r ? r->length : SHORTEST_NONE;
}

uint8_t shortest_first(struct shortest *q, state_id s)
{
    const struct result *r = result_of(q, s);

    return r ? r->first : 0;
}

/* ---- creation */

int shortest_new(struct shortest **out, struct automaton *a, struct err *e)
{
    struct shortest *q = try_calloc(1, sizeof(*q));

    if (!q)
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    q->a = a;
    q->generation = automaton_generation(a);
    q->root.ids = q->path;
    automaton_add_roots(a, &q->root);
    *out = q;
    return 0;
}

void shortest_free(struct shortest *q)
{
    if (!q)
        return;
    automaton_remove_roots(q->a, &q->root);
    mem_free(q);
}

size_t shortest_bytes(void)
{
    return sizeof(struct shortest);
}
