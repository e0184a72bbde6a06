#include "base/hash.h"
#include "base/mem.h"
#include "constrain/json/json_acceptor_in.h"
#include "constrain/json/json_space.h"

#include <stdlib.h>

enum {
    AUTOMATON_MIN = 2 * 1024 * 1024,
    AUTOMATON_MAX = 5 * 1024 * 1024,
    STACK_MIN = 1024 * 1024, /* positions and what they refer to */
    STEP_WORK_MAX = 2 * 1000 * 1000,
    MAY_KEYS_MAX = 64 /* keys whose next bytes are listed */
};

static struct json_acceptor *self(struct acceptor *a)
{
    return (struct json_acceptor *)a;
}
static const struct pos *pos_of(struct json_acceptor *a, pos_id p)
{
    return &a->s.pos[p.i];
}

/* ---- the end of a value */

/* The value satisfies what the branches of the enclosing frame require. `digest`: of the value in
 * an array whose items are unique, with its text, if it is a scalar. */
static bool end_value(struct json_acceptor *a, struct pos *q, uint64_t branches, uint64_t digest)
{
    const struct frame *f = frame_at(a, q->frame);
    uint32_t text = q->text;

    q->space = 0;
    q->states = q->n_states = q->aux = q->lanes = q->text = 0;
    if (!f) {
        q->lex = LEX_END;
        return true;
    }
    q->lex = LEX_AFTER;
    bool is_all =
        branches == (f->n_branches == 64 ? UINT64_MAX : ((uint64_t)1 << f->n_branches) - 1);
    if (is_all && !f->is_unique && !f->is_canonical)
        return true;
    uint32_t seen = f->seen;
    if (f->is_unique) {
        if (json_seen_has(a, seen, digest))
            return false;
        seen = json_seen_add(a, seen, text, digest);
        if (!seen)
            return false;
    }
    q->frame = json_frame_filter(a, f, branches);
    if (!q->frame)
        return false;
    struct frame *g = json_at(&a->s, q->frame);
    g->seen = seen;
    if (f->is_canonical)
        g->digest = f->kind == KIND_ARRAY ? hash_fold(f->digest + 1, digest)
                                          : f->digest + hash_fold(f->key_digest, digest);
    json_frame_end(a, g);
    return true;
}

/* ---- scalars */

/* After a step: ends the value if nothing can follow, and drops states that have only texts which
 * are already items. */
static bool settle_scalar(struct json_acceptor *a, struct pos *q)
{
    const struct frame *f = frame_at(a, q->frame);
    struct lanes *lanes = json_at(&a->s, q->aux);
    uint64_t branches = 0;
    bool has_prefix, is_end = true;

    for (uint32_t k = 0; k < q->n_states && is_end; k++) {
        branches |= lanes->branches[k];
        is_end = automaton_is_final(a->a, a->s.states[q->states + k]);
    }
    if (is_end)
        return end_value(a, q, branches,
            f && (f->is_unique || f->is_canonical) ? json_text_hash(a, q->text) : 0);
    if (!f || !f->is_unique)
        return true;
    for (uint32_t k = 0; k < q->n_states; k++)
        if (json_other_text(a, q, a->s.states[q->states + k], NULL, f->seen, &has_prefix))
            return true;
    return false;
}

/* Adds the state and the branches, to an equal state if there is one. */
static bool add_lane(
    struct json_acceptor *a, struct pos *q, struct lanes *lanes, state_id s, uint64_t branches)
{
    for (uint32_t k = 0; k < q->n_states; k++)
        if (a->s.states[q->states + k].i == s.i) {
            lanes->branches[k] |= branches;
            return true;
        }
    lanes->branches[q->n_states++] = branches;
    return json_push_state(&a->s, s);
}

static bool step_scalar(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    const struct lanes *old = json_at(&a->s, q->aux);
    uint32_t from = q->states, n = q->n_states;
    const struct frame *f = frame_at(a, q->frame);
    bool is_tracked = f && (f->is_unique || f->is_canonical);

    if (n == 1) {
        state_id s = automaton_step(a->a, a->s.states[from], byte);
        if (!s.i || !json_push_state(&a->s, s))
            return false;
        q->states = (uint32_t)a->s.held.n - 1;
    } else {
        struct lanes *lanes =
            json_blob(&a->s, BLOB_LANES, sizeof(*lanes) + n * sizeof(uint64_t), 0);
        if (!lanes)
            return false;
        q->states = (uint32_t)a->s.held.n;
        q->n_states = 0;
        for (uint32_t k = 0; k < n; k++) {
            state_id s = automaton_step(a->a, a->s.states[from + k], byte);
            if (s.i && !add_lane(a, q, lanes, s, old->branches[k]))
                return false;
        }
        q->aux = json_offset(&a->s, lanes);
    }
    if (!q->n_states || (is_tracked && !json_text_add(a, q, byte)))
        return false;
    return settle_scalar(a, q);
}

/* Branches that continue if the scalar ends here. */
static uint64_t accepted(struct json_acceptor *a, const struct pos *q)
{
    const struct lanes *lanes = json_at(&a->s, q->aux);
    uint64_t branches = 0;

    for (uint32_t k = 0; k < q->n_states; k++)
        if (automaton_accepts(a->a, a->s.states[q->states + k]))
            branches |= lanes->branches[k];
    return branches;
}

static bool begin_scalar(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    const struct values *v = json_at(&a->s, q->aux);
    const struct frame *f = frame_at(a, v->blob.link);
    bool is_tracked = f && (f->is_unique || f->is_canonical);
    struct lanes *lanes = json_blob(&a->s, BLOB_LANES, sizeof(*lanes) + v->n * sizeof(uint64_t), 0);

    if (!lanes)
        return false;
    q->states = (uint32_t)a->s.held.n;
    q->n_states = 0;
    for (uint32_t k = 0; k < v->n; k++) {
        const struct conj *c = a->p->conjs[v->all[k].child];
        uint32_t root = is_tracked ? c->canonical_root : c->root;
        state_id s = root == NO_ITEM ? STATE_DEAD : automaton_step(a->a, a->starts[root], byte);
        if (s.i && !add_lane(a, q, lanes, s, v->all[k].branches))
            return false;
    }
    if (!q->n_states)
        return false;
    q->frame = v->blob.link;
    q->aux = json_offset(&a->s, lanes);
    q->lex = LEX_SCALAR;
    q->text = 0;
    if (is_tracked && !json_text_add(a, q, byte))
        return false;
    return settle_scalar(a, q);
}

/* ---- values */

static bool begin_value(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    if (q->lex == LEX_START && a->p->options.object_only && byte != '{')
        return false;
    if (byte != '{' && byte != '[')
        return begin_scalar(a, q, byte);
    if (!json_open(a, q, byte == '{' ? KIND_OBJECT : KIND_ARRAY))
        return false;
    q->space = 0;
    q->lex = byte == '{' ? LEX_OBJECT_OPEN : LEX_ARRAY_OPEN;
    /* The first member may be impossible; then the branches can close. */
    q->aux = q->lanes = q->states = q->n_states = q->lo = q->hi = q->at = q->text = 0;
    if (byte == '{' ? !json_next_keys(a, q) : !json_next_item(a, q))
        q->aux = q->lanes = 0;
    return !a->error && !a->s.is_full;
}

static bool close_value(struct json_acceptor *a, struct pos *q)
{
    const struct frame *f = frame_at(a, q->frame);
    uint64_t parents = json_close(a, f);
    uint64_t digest = hash_fold(f->digest, f->kind);

    if (!parents)
        return false;
    q->frame = f->blob.link;
    q->text = 0;
    return end_value(a, q, parents, digest);
}

static bool after_value(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    bool is_object = frame_at(a, q->frame)->kind == KIND_OBJECT;

    q->space = 0;
    if (byte == (is_object ? '}' : ']'))
        return close_value(a, q);
    if (byte != ',')
        return false;
    if (frame_at(a, q->frame)->is_partial) {
        q->lex = LEX_UNSURE;
        return true;
    }
    q->lex = is_object ? LEX_NEXT_KEY : LEX_VALUE;
    return is_object ? json_next_keys(a, q) : json_next_item(a, q);
}

static bool begin_key(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    q->lex = LEX_KEY;
    return q->aux && json_key_step(a, q, byte);
}

/* A JSON token, after whitespace. */
static bool step_token(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    switch ((enum lex)q->lex) {
    case LEX_START:
    case LEX_VALUE:
        return begin_value(a, q, byte);
    case LEX_ARRAY_OPEN:
        return byte == ']' ? close_value(a, q) : q->aux && begin_value(a, q, byte);
    case LEX_OBJECT_OPEN:
        return byte == '}' ? close_value(a, q) : byte == '"' && begin_key(a, q, byte);
    case LEX_NEXT_KEY:
        return byte == '"' && begin_key(a, q, byte);
    case LEX_COLON:
        q->lex = LEX_VALUE;
        q->space = 0;
        return byte == ':';
    case LEX_AFTER:
        return after_value(a, q, byte);
    case LEX_END:
    case LEX_SCALAR:
    case LEX_KEY:
    case LEX_UNSURE:
    case N_LEX:
        break;
    }
    return false;
}

static bool end_number(struct json_acceptor *a, struct pos *q)
{
    uint64_t branches = accepted(a, q);
    const struct frame *f = frame_at(a, q->frame);
    bool is_tracked = f && (f->is_unique || f->is_canonical);

    return branches && end_value(a, q, branches, is_tracked ? json_text_hash(a, q->text) : 0);
}

static bool advance(struct json_acceptor *a, struct pos *q, uint8_t byte)
{
    enum json_whitespace policy = a->p->options.whitespace;

    if (q->lex == LEX_KEY || q->lex == LEX_UNSURE)
        return q->lex == LEX_KEY && json_key_step(a, q, byte);
    if (q->lex == LEX_SCALAR) {
        struct pos number = *q;
        uint32_t blobs = a->s.blobs_end;
        size_t states = a->s.held.n;
        if (step_scalar(a, q, byte))
            return true;
        *q = number;
        a->s.blobs_end = blobs;
        a->s.held.n = states;
        if (!(is_space(byte) || byte == ',' || byte == ']' || byte == '}') || !end_number(a, q))
            return false;
    }
    if (is_space(byte)) {
        if (q->lex == LEX_END)
            return policy == JSON_WS_ANY;
        return space_step(policy, q->lex == LEX_START, &q->space, byte);
    }
    if (q->lex != LEX_START && !space_may_end(q->space))
        return false;
    return step_token(a, q, byte);
}

static pos_id step(struct acceptor *base, pos_id p, uint8_t byte)
{
    struct json_acceptor *a = self(base);
    uint32_t blobs = a->s.blobs_end;
    size_t states = a->s.held.n;
    pos_id next = POS_DEAD;

    if (!p.i || a->error)
        return POS_DEAD;
    struct pos q = a->s.pos[p.i];
    if (advance(a, &q, byte) && !a->error)
        next = json_push_pos(&a->s, &q);
    if (!next.i) {
        a->s.blobs_end = blobs;
        a->s.held.n = states;
    }
    struct err e;
    if (a->s.is_full && !a->error)
        a->error = "the positions of a JSON value need more memory than a choice has";
    if (!a->error && !next.i && automaton_check(a->a, &e))
        a->error = "a step needs too much work";
    return a->error ? POS_DEAD : next;
}

/* ---- queries */

static bool accepts(struct acceptor *base, pos_id p)
{
    struct json_acceptor *a = self(base);
    const struct pos *q = pos_of(a, p);

    if (!p.i)
        return false;
    return q->lex == LEX_END || (q->lex == LEX_SCALAR && !q->frame && accepted(a, q));
}

static struct byte_set next_bytes(struct acceptor *base, pos_id p)
{
    static const char structural[] = " \t\r\n,:[]{}\"-0123456789tfn";
    struct json_acceptor *a = self(base);
    struct byte_set all = { 0 };
    uint32_t mark = a->s.n_pos;
    unsigned lex = pos_of(a, p)->lex;
    bool is_text = lex == LEX_SCALAR || lex == LEX_KEY;

    for (unsigned k = 0; p.i && k < (is_text ? 256 : sizeof(structural) - 1); k++) {
        uint8_t byte = is_text ? (uint8_t)k : (uint8_t)structural[k];
        if (step(base, p, byte).i) {
            byte_set_add(&all, byte);
            json_stack_release(&a->s, mark);
        }
    }
    return all;
}

/* The next bytes of the keys lo..hi. */
static void add_key_bytes(const struct json_acceptor *a, const struct pos *q, struct byte_set *all)
{
    const struct keys *keys = json_at(&a->s, q->aux);

    for (uint32_t k = q->lo; k < q->hi; k++) {
        struct str s = a->p->keys[keys->all[k]].spelled;
        if (q->at < s.n)
            byte_set_add(all, (uint8_t)s.p[q->at]);
    }
}

static struct byte_set may_follow(struct acceptor *base, pos_id p)
{
    struct json_acceptor *a = self(base);
    const struct pos *q = pos_of(a, p);
    struct byte_set all = { 0 };

    if (q->lex == LEX_SCALAR ||
        (q->lex == LEX_KEY && (q->n_states || q->hi - q->lo > MAY_KEYS_MAX))) {
        memset(&all, 0xff, sizeof(all));
        return all;
    }
    if (q->lex == LEX_UNSURE)
        return all;
    if (q->lex != LEX_KEY)
        return a->token_bytes[q->lex];
    add_key_bytes(a, q, &all);
    return all;
}

static bool permits_all(struct acceptor *base, pos_id p)
{
    (void)base;
    (void)p;
    return false;
}

static uint32_t space_reach(const struct json_acceptor *a, const struct pos *q, uint32_t n_max)
{
    bool is_between = q->lex >= LEX_VALUE && q->lex != LEX_SCALAR && q->lex != LEX_KEY;

    if (a->p->options.whitespace == JSON_WS_ANY)
        return is_between || q->lex == LEX_START || q->lex == LEX_END ? n_max : 0;
    if (a->p->options.whitespace == JSON_WS_COMPACT || !is_between || q->lex == LEX_END)
        return 0;
    if (q->space == SPACE_NL)
        return MIN(n_max, (uint32_t)SPACE_INDENT_MAX);
    if (q->space >= SPACE_INDENT)
        return MIN(n_max, (uint32_t)(SPACE_INDENT_MAX - (q->space - SPACE_INDENT)));
    return 0;
}

/* The longest reach of the states, if it is exact for their union. */
static uint32_t lanes_reach(
    struct json_acceptor *a, const struct pos *q, enum token_class class, uint32_t n_max)
{
    uint32_t most = 0;
    bool has_unknown = false;
    uint64_t steps = 0;

    for (uint32_t k = 0; k < q->n_states && most < n_max; k++) {
        uint32_t one = class_reach_get(a->reach, a->s.states[q->states + k], class, n_max, &steps);
        most = MAX(most, one);
        has_unknown = has_unknown || !one;
    }
    return has_unknown && most < n_max ? 0 : most;
}

static uint32_t reach(struct acceptor *base, pos_id p, enum token_class class, uint32_t n_max)
{
    struct json_acceptor *a = self(base);
    const struct pos *q = pos_of(a, p);
    const struct frame *f = frame_at(a, q->frame);

    if (!p.i || a->error)
        return 0;
    if (class == CLASS_BLANKS && q->lex != LEX_SCALAR && q->lex != LEX_KEY)
        return space_reach(a, q, n_max);
    if ((q->lex != LEX_SCALAR && q->lex != LEX_KEY) || class == CLASS_BLANKS)
        return 0;
    uint32_t most = lanes_reach(a, q, class, n_max);
    bool is_exact = q->lex == LEX_SCALAR ? !(f && f->is_unique && f->seen) : false;
    return is_exact || (most == n_max && class == CLASS_STRING) ? most : 0;
}

static uint64_t key(struct acceptor *base, pos_id p)
{
    struct json_acceptor *a = self(base);
    const struct pos *q = pos_of(a, p);
    const struct frame *f = frame_at(a, q->frame);
    uint64_t h = hash_fold((uint64_t)q->lex << 8 | q->space, f ? f->hash : a->seed);

    if (!p.i)
        return 0;
    if (q->n_states)
        h = hash_fold(
            h, hash_bytes(a->seed, a->s.states + q->states, q->n_states * sizeof(state_id)));
    if (q->aux && q->lex == LEX_SCALAR)
        h = hash_fold(h, hash_bytes(a->seed, ((struct lanes *)json_at(&a->s, q->aux))->branches,
                             q->n_states * sizeof(uint64_t)));
    if (q->lex == LEX_KEY && q->aux)
        h = hash_fold(
            h ^ q->at, hash_bytes(a->seed, ((struct keys *)json_at(&a->s, q->aux))->all + q->lo,
                           (q->hi - q->lo) * sizeof(uint32_t)));
    if (q->lex == LEX_KEY && q->n_states)
        h = hash_fold(h, hash_bytes(a->seed, ((struct key_lanes *)json_at(&a->s, q->lanes))->all,
                             q->n_states * sizeof(struct key_lane)));
    if (q->text)
        h = hash_fold(h, json_text_hash(a, q->text));
    if (q->aux && (q->lex <= LEX_VALUE || q->lex == LEX_COLON || q->lex == LEX_ARRAY_OPEN)) {
        const struct values *v = json_at(&a->s, q->aux);
        const struct frame *g = frame_at(a, v->blob.link);
        h = hash_fold(
            h ^ (g ? g->hash : 0), hash_bytes(a->seed, v->all, v->n * sizeof(struct value_entry)));
    }
    return h ? h : 1;
}

static uint64_t generation(struct acceptor *base)
{
    return automaton_generation(self(base)->a);
}

/* ---- texts */

static struct automaton *texts(struct acceptor *base)
{
    return self(base)->a;
}

/* Keys with one state. */
static bool key_text(struct json_acceptor *a, const struct pos *q, struct byte_set *except)
{
    const struct frame *f = frame_at(a, q->frame);

    if (q->hi - q->lo > MAY_KEYS_MAX || f->is_canonical)
        return false;
    add_key_bytes(a, q, except);
    return json_key_exceptions(a, q, except);
}

/* A scalar whose text need not be compared with others, or a key. */
static bool text(struct acceptor *base, pos_id p, struct acceptor_text *out)
{
    struct json_acceptor *a = self(base);
    const struct pos *q = pos_of(a, p);

    if (a->error || q->n_states != 1)
        return false;
    *out = (struct acceptor_text){ .state = a->s.states[q->states] };
    if (q->lex == LEX_KEY)
        return key_text(a, q, &out->except);
    return q->lex == LEX_SCALAR && !q->text;
}

static pos_id text_end(struct acceptor *base, pos_id p)
{
    struct json_acceptor *a = self(base);
    struct pos q = *pos_of(a, p);
    uint32_t blobs = a->s.blobs_end;
    pos_id end = POS_DEAD;

    if (q.lex == LEX_KEY
            ? json_end_other_key(a, &q)
            : end_value(a, &q, ((struct lanes *)json_at(&a->s, q.aux))->branches[0], 0))
        end = json_push_pos(&a->s, &q);
    if (!end.i)
        a->s.blobs_end = blobs;
    return end;
}

static bool is_unsure(struct acceptor *base, pos_id p)
{
    return pos_of(self(base), p)->lex == LEX_UNSURE;
}

/* ---- memory */

static uint32_t mark(struct acceptor *base)
{
    return self(base)->s.n_pos;
}

static void release(struct acceptor *base, uint32_t n)
{
    json_stack_release(&self(base)->s, n);
}

static pos_id keep(struct acceptor *base, uint32_t n, pos_id p)
{
    return json_stack_keep(&self(base)->s, n, p);
}

static int check(const struct acceptor *base, struct err *e)
{
    const struct json_acceptor *a = (const struct json_acceptor *)base;

    if (automaton_check(a->a, e))
        return -1;
    return a->error ? err_set(e, ERR_TOO_LARGE, "%s", a->error) : 0;
}

/* A branch of the largest shape. */
static size_t branch_bytes_max(const struct json_program *p)
{
    size_t most = sizeof(struct branch);

    for (uint32_t k = 0; k < p->n_shapes; k++)
        most = MAX(most, branch_bytes(p->shapes[k]));
    return most;
}

/* Memory other than that of the stacks and the automaton. */
static size_t fixed_bytes(const struct json_program *p)
{
    return sizeof(struct json_acceptor) + class_reach_bytes() + branch_bytes_max(p) +
           (p->n_roots + (size_t)1) * sizeof(state_id);
}

static size_t bytes(const struct acceptor *base)
{
    const struct json_acceptor *a = (const struct json_acceptor *)base;

    return fixed_bytes(a->p) + json_stack_bytes(&a->s) + automaton_bytes(a->a) +
           a->search.n_most * sizeof(*a->search.all) + json_completion_bytes(a);
}

static void free_acceptor(struct acceptor *base)
{
    struct json_acceptor *a = self(base);

    class_reach_free(a->reach);
    json_completion_free(a);
    automaton_free(a->a);
    json_stack_clear(&a->s);
    option_stack_clear(&a->search);
    mem_free(a->starts);
    mem_free(a->next);
    mem_free(a);
}

static const struct acceptor_ops ops = { .free = free_acceptor,
    .step = step,
    .accepts = accepts,
    .next_bytes = next_bytes,
    .may_follow = may_follow,
    .reach = reach,
    .permits_all = permits_all,
    .key = key,
    .generation = generation,
    .texts = texts,
    .text = text,
    .text_end = text_end,
    .is_unsure = is_unsure,
    .completion_new = json_completion_new,
    .completion = json_completion,
    .mark = mark,
    .release = release,
    .keep = keep,
    .check = check,
    .bytes = bytes };

/* ---- construction */

/* Whitespace and the bytes that a JSON token begins with. */
static void set_token_bytes(struct json_acceptor *a)
{
    static const char *const first[N_LEX] = {
        [LEX_START] = "[{\"-0123456789tfn",
        [LEX_VALUE] = "[{\"-0123456789tfn",
        [LEX_ARRAY_OPEN] = "][{\"-0123456789tfn",
        [LEX_OBJECT_OPEN] = "}\"",
        [LEX_NEXT_KEY] = "\"",
        [LEX_COLON] = ":",
        [LEX_AFTER] = ",]}",
    };

    for (int lex = 0; lex < N_LEX; lex++) {
        for (const char *c = " \t\r\n"; *c; c++)
            byte_set_add(&a->token_bytes[lex], (uint8_t)*c);
        for (const char *c = first[lex]; c && *c; c++)
            byte_set_add(&a->token_bytes[lex], (uint8_t)*c);
    }
}

static bool push_start(struct json_acceptor *a)
{
    struct pos none = { 0 }, start = { .lex = LEX_START };
    struct values *v;

    json_push_pos(&a->s, &none);
    v = json_blob(&a->s, BLOB_VALUES, sizeof(*v) + sizeof(struct value_entry), 0);
    if (!v)
        return false;
    v->n = 1;
    v->all[0] = (struct value_entry){ .branches = 1, .child = a->p->root };
    start.aux = json_offset(&a->s, v);
    return json_push_pos(&a->s, &start).i == POS_START.i;
}

int json_acceptor_new(struct acceptor **out, const struct json_program *p, struct err *e)
{
    struct json_acceptor *a = try_calloc(1, sizeof(*a));
    size_t fixed = fixed_bytes(p) + OPTION_STACK_MAX * sizeof(struct member_option);
    size_t limit = MIN(AUTOMATON_MIN + 4 * exprs_bytes(p->x), (size_t)AUTOMATON_MAX);

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    a->base.ops = &ops;
    set_token_bytes(a);
    a->p = (struct json_program *)(uintptr_t)p;
    a->seed = hash_mix((uintptr_t)a);
    a->next = try_calloc(1, branch_bytes_max(p));
    a->starts = try_calloc(p->n_roots + (size_t)1, sizeof(*a->starts));
    if (!a->next || !a->starts) {
        err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
        goto fail;
    }
    if (fixed > JSON_MEMORY_MAX - AUTOMATON_MAX - STACK_MIN) {
        err_set(e, ERR_TOO_LARGE, "the state of a constraint needs more than %d bytes",
            (int)JSON_MEMORY_MAX);
        goto fail;
    }
    if (option_stack_init(&a->search, e) ||
        json_stack_init(&a->s, JSON_MEMORY_MAX - fixed - limit, e) ||
        automaton_new_many(&a->a, p->x, p->roots, p->n_roots,
            (struct automaton_limits){ limit, STEP_WORK_MAX }, e))
        goto fail;
    for (uint32_t k = 0; k < p->n_roots; k++)
        a->starts[k] = (state_id){ STATE_START.i + k };
    a->start_roots = (struct automaton_roots){ .ids = a->starts, .n = p->n_roots };
    automaton_add_roots(a->a, &a->start_roots);
    automaton_add_roots(a->a, &a->s.held);
    a->reach = class_reach_new(a->a);
    if (!a->reach || !push_start(a)) {
        err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
        goto fail;
    }
    *out = &a->base;
    return 0;
fail:
    free_acceptor(&a->base);
    return -1;
}
