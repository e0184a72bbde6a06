#include "chat/reasoning_gate.h"

#include "base/aho_corasick.h"
#include "base/mem.h"
#include "base/sorted_ids.h"

enum {
    GAP_TOKENS_MAX = 4, /* tokens of blanks before the constrained output */
    OPEN_TOKENS_MAX = 16,
    HISTORY = 2 * CONSTRAINT_POP_MAX,
    ARENA_BYTES_MAX = 16 * 1024 * 1024
};

enum phase { START, OPENING, REASONING, HEADER, GAP, OPEN };

struct gate_state {
    uint8_t phase;    /* enum phase */
    uint8_t n;        /* GAP: tokens of blanks; OPENING: tokens of the marker */
    uint32_t matched; /* REASONING: state of the matcher */
};

/* Tokens that complete an end marker, in one state of the matcher, and go on with other bytes than
 * blanks. */
struct banned {
    int32_t *ids;
    int n;
};

struct reasoning_gates {
    struct arena *arena;
    const struct vocab *vocab;
    const struct parser_format *format;
    const struct aho_corasick *ends; /* end markers */
    struct banned *banned;           /* [ends->n_nodes] */
    size_t n_words;                  /* size of a mask */
    uint32_t *free_text;             /* [n_words]: all tokens but end tokens */
    int32_t *blanks;                 /* tokens of blanks, ascending */
    int n_blanks;
    int32_t opening[OPEN_TOKENS_MAX]; /* tokens of the marker that opens reasoning */
    struct str opening_text;
    int n_opening;
    int32_t end[OPEN_TOKENS_MAX]; /* tokens of the first end marker */
    int n_end;                    /* 0: it has too many tokens */
    int32_t header;               /* TOKEN_NONE: the output follows the end marker directly */
    bool begins_inside;           /* with PARSER_START_DEFAULT the output begins inside reasoning */
};

struct reasoning_gate {
    const struct reasoning_gates *tables;
    struct constraint_state *state;
    struct sample_constraint inner;
    struct gate_state first, history[HISTORY]; /* after n tokens: history[n % HISTORY] */
    int n_opening; /* number of tables; 0: the model may not open reasoning */
    bool is_limited;
    int tokens_max;       /* if is_limited */
    uint32_t inner_least; /* if is_limited: tokens of the constrained output */
    uint64_t n_tokens;
    bool has_mask;
    struct token_mask mask;
    int32_t one;
    uint32_t *bits; /* [n_words] */
};

/* ---- tables */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_blank_text(struct str s)
{
    bool all = true;

    for (size_t i = 0; i < s.n; i++)
        all = all && is_blank(s.p[i]);
    return all;
}

/* Bytes of a token as the output parser receives them: control tokens that are no markers are
 * dropped. */
static struct str parsed_bytes(const struct reasoning_gates *g, int32_t id)
{
    struct str text = vocab_bytes(g->vocab, id);

    if (vocab_attr(g->vocab, id) == TOKEN_CONTROL && !parser_format_has_marker(g->format, text))
        return STR_NONE;
    return text;
}

/* Reads a token inside reasoning. False: it contains an end marker and other text after it. */
static bool read_token(
    const struct reasoning_gates *g, struct str text, uint32_t *matched, bool *has_ended)
{
    int hit;
    size_t n = aho_corasick_find(g->ends, matched, text, &hit);

    *has_ended = hit >= 0;
    return hit < 0 || is_blank_text(str_skip(text, n));
}

static bool ends_marker(const struct reasoning_gates *g, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        for (unsigned k = 1; k < g->ends->n_nodes; k++)
            if (g->ends->nodes[k].hit >= 0 && g->ends->nodes[k].byte == text.p[i])
                return true;
    return false;
}

static int ban_token(struct reasoning_gates *g, int32_t id, struct err *e)
{
    struct str text = parsed_bytes(g, id);

    if (!ends_marker(g, text))
        return 0;
    for (unsigned k = 0; k < g->ends->n_nodes; k++) {
        struct banned *b = &g->banned[k];
        uint32_t matched = k;
        bool has_ended;
        if (read_token(g, text, &matched, &has_ended))
            continue;
        if ((b->n & (b->n - 1)) == 0) { /* full: the capacity is a power of two */
            int32_t *more = arena_alloc(g->arena, sizeof(*more) * (size_t)MAX(2 * b->n, 1));
            if (!more)
                return err_set(e, ERR_MEMORY, "no memory for the markers of reasoning");
            if (b->n)
                memcpy(more, b->ids, sizeof(*more) * (size_t)b->n);
            b->ids = more;
        }
        b->ids[b->n++] = id;
    }
    return 0;
}

static int list_tokens(struct reasoning_gates *g, struct err *e)
{
    int32_t n = vocab_n_tokens(g->vocab);

    g->n_words = ((size_t)n + 31) / 32;
    g->free_text = arena_zalloc(g->arena, g->n_words, sizeof(*g->free_text));
    g->blanks = arena_zalloc(g->arena, (size_t)n, sizeof(*g->blanks));
    g->banned = arena_zalloc(g->arena, g->ends->n_nodes, sizeof(*g->banned));
    if (!g->free_text || !g->blanks || !g->banned)
        return err_set(e, ERR_MEMORY, "no memory for the markers of reasoning");
    for (int32_t id = 0; id < n; id++) {
        struct str text = vocab_bytes(g->vocab, id);
        bool is_control = vocab_attr(g->vocab, id) == TOKEN_CONTROL;
        if (!vocab_is_end(g->vocab, id))
            g->free_text[id / 32] |= 1u << id % 32;
        if (text.n && !is_control && is_blank_text(text) && !vocab_is_end(g->vocab, id))
            g->blanks[g->n_blanks++] = id;
        if (ban_token(g, id, e))
            return -1;
    }
    return 0;
}

/* Lists the texts of the markers of a kind. Returns their number. */
static int list_markers(const struct reasoning_format *r, enum marker_kind kind, struct str *out)
{
    int n = 0;

    for (int i = 0; i < r->n_marks && n < AHO_CORASICK_MAX_STRINGS; i++)
        if (r->marks[i].kind == kind)
            out[n++] = r->marks[i].text;
    return n;
}

/* Tokens of the first opening marker. Without a token for its beginning, the vocabulary is not that
 * of a model that opens reasoning: under a constraint that forbids the model's usual words, such a
 * marker would be probable although the model does not use it. */
static int find_opening(struct reasoning_gates *g, const struct reasoning_format *r, struct err *e)
{
    struct str texts[AHO_CORASICK_MAX_STRINGS];
    struct tokens t = { .arena = g->arena };

    if (!list_markers(r, MARK_REASONING, texts))
        return 0;
    struct span span = { texts[0], true };
    if (vocab_encode(g->vocab, &span, 1, false, &t, e))
        return -1;
    g->opening_text = texts[0];
    enum token_attr attr = t.n ? vocab_attr(g->vocab, t.ids[0]) : TOKEN_NORMAL;
    if (t.n <= OPEN_TOKENS_MAX && (attr == TOKEN_CONTROL || attr == TOKEN_USER_DEFINED)) {
        memcpy(g->opening, t.ids, t.n * sizeof(*t.ids));
        g->n_opening = (int)t.n;
    }
    return 0;
}

static int find_end_tokens(struct reasoning_gates *g, struct str marker, struct err *e)
{
    struct tokens t = { .arena = g->arena };
    struct span span = { marker, true };

    if (vocab_encode(g->vocab, &span, 1, false, &t, e))
        return -1;
    if (t.n > OPEN_TOKENS_MAX)
        return 0;
    memcpy(g->end, t.ids, t.n * sizeof(*t.ids));
    g->n_end = (int)t.n;
    return 0;
}

static int find_ends(struct reasoning_gates *g, const struct reasoning_format *r, struct err *e)
{
    static const struct str channel = { "<|channel|>final", 16 };
    struct str *texts = arena_zalloc(g->arena, AHO_CORASICK_MAX_STRINGS, sizeof(*texts));
    int n = 1;

    if (!texts)
        return err_set(e, ERR_MEMORY, "no memory for the markers of reasoning");
    g->header = TOKEN_NONE;
    if (r->flags & REASONING_IS_CHANNEL) {
        texts[0] = channel;
        g->header = vocab_find(g->vocab, STR("<|message|>"));
    } else {
        n = list_markers(r, MARK_REASONING_END, texts);
    }
    g->ends = aho_corasick_new(g->arena, texts, n);
    if (n && find_end_tokens(g, texts[0], e))
        return -1;
    return g->ends ? 0 : err_set(e, ERR_MEMORY, "no memory for the markers of reasoning");
}

static bool has_reasoning(const struct reasoning_format *r)
{
    struct str texts[AHO_CORASICK_MAX_STRINGS];

    return r && (r->flags & REASONING_IS_CHANNEL || list_markers(r, MARK_REASONING_END, texts));
}

int reasoning_gates_new(struct reasoning_gates **out, const struct parser_format *format,
    const struct vocab *v, struct err *e)
{
    const struct reasoning_format *r =
        format ? reasoning_format_find(str_of(parser_format_reasoning(format))) : NULL;

    *out = NULL;
    if (!has_reasoning(r))
        return 0;
    struct arena *arena = arena_new(ARENA_BYTES_MAX);
    struct reasoning_gates *g = arena ? arena_zalloc(arena, 1, sizeof(*g)) : NULL;
    if (!g) {
        arena_free(arena);
        return err_set(e, ERR_MEMORY, "no memory for the markers of reasoning");
    }
    g->arena = arena;
    g->vocab = v;
    g->format = format;
    g->begins_inside = r->flags & (REASONING_STARTS | REASONING_IS_CHANNEL);
    if (find_ends(g, r, e) || find_opening(g, r, e) || list_tokens(g, e)) {
        reasoning_gates_free(g);
        return -1;
    }
    *out = g;
    return 0;
}

void reasoning_gates_free(struct reasoning_gates *g)
{
    if (g)
        arena_free(g->arena);
}

/* ---- tokens */

static struct gate_state *now(struct reasoning_gate *g)
{
    return &g->history[g->n_tokens % HISTORY];
}

static struct gate_state after_end(const struct reasoning_gates *g)
{
    return (struct gate_state){ .phase = g->header == TOKEN_NONE ? GAP : HEADER };
}

static struct gate_state after_opening(const struct reasoning_gates *g, int n)
{
    return n == g->n_opening ? (struct gate_state){ .phase = REASONING }
                             : (struct gate_state){ .phase = OPENING, .n = (uint8_t)n };
}

/* ---- the limit of tokens */

static int64_t room_of(const struct reasoning_gate *g)
{
    return g->tokens_max - (int64_t)g->n_tokens;
}

/* Tokens that complete the output after tokens of the gate. */
static int64_t least_tokens(const struct reasoning_gate *g, const struct gate_state *s)
{
    const struct reasoning_gates *t = g->tables;
    int64_t n = g->inner_least, header = t->header != TOKEN_NONE;

    switch ((enum phase)s->phase) {
    case OPENING:
        return n + header + t->n_end + t->n_opening - s->n;
    case REASONING:
        return n + header + t->n_end;
    case HEADER:
        return n + 1;
    case START:
    case GAP:
    case OPEN:
        break;
    }
    return n;
}

/* After a token that leads to the state, the output can be completed. */
static bool leaves_room(const struct reasoning_gate *g, const struct gate_state *s)
{
    return !g->is_limited || least_tokens(g, s) < room_of(g);
}

/* The token of the end marker that has to follow in REASONING; TOKEN_NONE: any token may. The end
 * marker begins when only it and the shortest output fit. */
static int32_t end_token(const struct reasoning_gate *g, const struct gate_state *s)
{
    int64_t k = least_tokens(g, s) - room_of(g);

    return g->is_limited && k >= 0 && k < g->tables->n_end ? g->tables->end[k] : TOKEN_NONE;
}

/* The constraint may use the tokens that remain. */
static void limit_inner(struct reasoning_gate *g)
{
    if (g->is_limited)
        constraint_state_set_limit(g->state, (int)MAX(room_of(g), 0));
}

/* START and GAP: the constraint takes precedence. */
static bool push_before(struct reasoning_gate *g, int32_t token, struct gate_state *s)
{
    const struct reasoning_gates *t = g->tables;
    struct gate_state opening = after_opening(t, 1);

    limit_inner(g);
    if (g->inner.ops->push(g->inner.self, token)) {
        *s = (struct gate_state){ .phase = OPEN };
        return true;
    }
    if (s->phase == START && g->n_opening && token == t->opening[0]) {
        *s = opening;
        return leaves_room(g, s);
    }
    return s->phase == GAP && leaves_room(g, s) && s->n++ < GAP_TOKENS_MAX &&
           sorted_ids_has(t->blanks, (size_t)t->n_blanks, token);
}

static bool push_reasoning(struct reasoning_gate *g, int32_t token, struct gate_state *s)
{
    const struct reasoning_gates *t = g->tables;
    int32_t end = end_token(g, s);
    bool has_ended;

    if (end != TOKEN_NONE && token != end)
        return false;
    if (vocab_is_end(t->vocab, token) ||
        !read_token(t, parsed_bytes(t, token), &s->matched, &has_ended))
        return false;
    if (has_ended)
        *s = after_end(t);
    return true;
}

static bool push_state(struct reasoning_gate *g, int32_t token, struct gate_state *s)
{
    const struct reasoning_gates *t = g->tables;

    switch ((enum phase)s->phase) {
    case START:
    case GAP:
        return push_before(g, token, s);
    case OPENING:
        if (token != t->opening[s->n])
            return false;
        *s = after_opening(t, s->n + 1);
        return true;
    case REASONING:
        return push_reasoning(g, token, s);
    case HEADER:
        *s = (struct gate_state){ .phase = GAP };
        return token == t->header;
    case OPEN:
        return g->inner.ops->push(g->inner.self, token);
    }
    return false;
}

static bool push(void *self, int32_t token)
{
    struct reasoning_gate *g = self;
    struct gate_state s = *now(g);

    g->has_mask = false;
    if (token < 0 || token >= vocab_n_tokens(g->tables->vocab) || !push_state(g, token, &s))
        return false;
    g->n_tokens++;
    *now(g) = s;
    return true;
}

/* Each token after which the phase is OPEN was pushed to the constraint. */
static void pop(void *self, int n)
{
    struct reasoning_gate *g = self;
    int n_inner = 0;

    CHECK(n >= 0 && n <= CONSTRAINT_POP_MAX && (uint64_t)n <= g->n_tokens);
    g->has_mask = false;
    for (int i = 0; i < n; i++) {
        n_inner += now(g)->phase == OPEN;
        g->n_tokens--;
    }
    g->inner.ops->pop(g->inner.self, n_inner);
}

static void reset(void *self)
{
    struct reasoning_gate *g = self;

    g->has_mask = false;
    g->n_tokens = 0;
    g->history[0] = g->first;
    g->inner.ops->reset(g->inner.self);
}

/* ---- masks */

static void set_bit(uint32_t *bits, int32_t id)
{
    bits[id / 32] |= 1u << id % 32;
}

static void put_inner(struct reasoning_gate *g, const struct token_mask *m)
{
    size_t n_words = g->tables->n_words;

    memset(g->bits, m->form == MASK_FORM_ALL ? 0xff : 0, n_words * sizeof(*g->bits));
    if (m->form == MASK_FORM_BITS)
        memcpy(g->bits, m->bits, n_words * sizeof(*g->bits));
    for (int i = 0; m->form == MASK_FORM_IDS && i < m->n_ids; i++)
        set_bit(g->bits, m->ids[i]);
}

static enum mask_progress mask_before(
    struct reasoning_gate *g, uint64_t steps, const struct gate_state *s, struct err *e)
{
    const struct reasoning_gates *t = g->tables;
    const struct gate_state opening = after_opening(t, 1);
    struct token_mask m;

    limit_inner(g);
    enum mask_progress progress = g->inner.ops->mask(g->inner.self, steps, &m, e);

    if (progress != MASK_DONE)
        return progress;
    put_inner(g, &m);
    if (s->phase == START && g->n_opening && leaves_room(g, &opening))
        set_bit(g->bits, t->opening[0]);
    bool may_gap = s->phase == GAP && s->n < GAP_TOKENS_MAX && leaves_room(g, s);
    for (int i = 0; may_gap && i < t->n_blanks; i++)
        set_bit(g->bits, t->blanks[i]);
    g->mask = (struct token_mask){ .form = MASK_FORM_BITS, .bits = g->bits };
    return MASK_DONE;
}

static void mask_one(struct reasoning_gate *g, int32_t id)
{
    g->one = id;
    g->mask = (struct token_mask){ .form = MASK_FORM_IDS, .ids = &g->one, .n_ids = 1 };
}

static void mask_reasoning(struct reasoning_gate *g, const struct gate_state *s)
{
    const struct reasoning_gates *t = g->tables;
    const struct banned *b = &t->banned[s->matched];
    int32_t end = end_token(g, s);

    if (end != TOKEN_NONE) {
        mask_one(g, end);
        return;
    }
    memcpy(g->bits, t->free_text, t->n_words * sizeof(*g->bits));
    for (int i = 0; i < b->n; i++)
        g->bits[b->ids[i] / 32] &= ~(1u << b->ids[i] % 32);
    g->mask = (struct token_mask){ .form = MASK_FORM_BITS, .bits = g->bits };
}

static enum mask_progress compute_mask(
    void *self, uint64_t steps, struct token_mask *out, struct err *e)
{
    struct reasoning_gate *g = self;
    const struct gate_state *s = now(g);
    enum mask_progress progress = MASK_DONE;

    if (s->phase == OPEN)
        return g->inner.ops->mask(g->inner.self, steps, out, e);
    if (!g->has_mask) {
        switch ((enum phase)s->phase) {
        case START:
        case GAP:
            progress = mask_before(g, steps, s, e);
            break;
        case REASONING:
            mask_reasoning(g, s);
            break;
        case OPENING:
            mask_one(g, g->tables->opening[s->n]);
            break;
        case HEADER:
            mask_one(g, g->tables->header);
            break;
        case OPEN:
            break;
        }
    }
    g->has_mask = progress == MASK_DONE;
    if (g->has_mask)
        *out = g->mask;
    return progress;
}

static int forced(void *self, int32_t *ids, int cap)
{
    struct reasoning_gate *g = self;
    const struct gate_state *s = now(g);

    if (s->phase == OPEN)
        return g->inner.ops->forced(g->inner.self, ids, cap);
    if (cap >= 1 && s->phase == REASONING) {
        ids[0] = end_token(g, s);
        return ids[0] != TOKEN_NONE;
    }
    if (cap < 1 || (s->phase != OPENING && s->phase != HEADER))
        return 0;
    ids[0] = s->phase == OPENING ? g->tables->opening[s->n] : g->tables->header;
    return 1;
}

static bool is_before(const struct gate_state *s)
{
    return s->phase == START || s->phase == GAP || s->phase == OPEN;
}

static bool is_complete(void *self)
{
    struct reasoning_gate *g = self;

    return now(g)->phase == OPEN && g->inner.ops->is_complete(g->inner.self);
}

static bool accepts(void *self)
{
    struct reasoning_gate *g = self;

    return is_before(now(g)) && g->inner.ops->accepts(g->inner.self);
}

static const struct constraint_ops gate_ops = {
    .mask = compute_mask,
    .push = push,
    .pop = pop,
    .forced = forced,
    .is_complete = is_complete,
    .accepts = accepts,
    .reset = reset,
};

/* ---- creation */

struct reasoning_gate *reasoning_gate_new(const struct reasoning_gates *g,
    struct constraint_state *inner, enum parser_start start, bool may_open)
{
    struct reasoning_gate *gate = try_calloc(1, sizeof(*gate));

    if (!gate)
        return NULL;
    gate->bits = try_calloc(g->n_words, sizeof(*gate->bits));
    if (!gate->bits) {
        mem_free(gate);
        return NULL;
    }
    gate->tables = g;
    gate->state = inner;
    gate->inner = constraint_state_ops(inner);
    bool is_inside =
        start == PARSER_START_REASONING || (start == PARSER_START_DEFAULT && g->begins_inside);
    gate->first.phase = is_inside ? REASONING : START;
    gate->history[0] = gate->first;
    gate->n_opening = may_open ? g->n_opening : 0;
    return gate;
}

void reasoning_gate_free(struct reasoning_gate *gate)
{
    if (!gate)
        return;
    mem_free(gate->bits);
    mem_free(gate);
}

int reasoning_gate_limit(struct reasoning_gate *gate, int tokens_max, struct err *e)
{
    if (!gate->tables->n_end)
        return err_set(e, ERR_UNSUPPORTED, "the reasoning of this model cannot be ended");
    if (constraint_state_limit(gate->state, tokens_max, e))
        return -1;
    gate->is_limited = true;
    gate->tokens_max = tokens_max;
    gate->inner_least = constraint_state_cost(gate->state);
    return 0;
}

int64_t reasoning_gate_cost(const struct reasoning_gate *gate)
{
    return least_tokens(gate, &gate->first);
}

/* The text after the blanks at its beginning. */
static struct str skip_blanks(struct str s)
{
    while (s.n && is_blank(s.p[0]))
        s = str_skip(s, 1);
    return s;
}

size_t reasoning_gate_read(struct reasoning_gate *gate, struct str text)
{
    const struct reasoning_gates *t = gate->tables;
    struct gate_state *s = &gate->first;
    struct str rest = text;
    int hit = -1;

    CHECK(!gate->n_tokens);
    if (s->phase == START && t->opening_text.n && str_starts(skip_blanks(rest), t->opening_text)) {
        rest = str_skip(skip_blanks(rest), t->opening_text.n);
        *s = (struct gate_state){ .phase = REASONING };
    }
    if (s->phase == REASONING) {
        rest = str_skip(rest, aho_corasick_find(t->ends, &s->matched, rest, &hit));
        if (hit >= 0)
            *s = after_end(t);
    }
    if (s->phase == GAP)
        rest = skip_blanks(rest);
    if (is_before(s) && rest.n) {
        rest = str_skip(rest, constraint_state_read(gate->state, rest));
        *s = (struct gate_state){ .phase = OPEN };
    }
    if (gate->is_limited)
        gate->inner_least = constraint_state_cost(gate->state);
    gate->history[0] = *s;
    return text.n - rest.n;
}

struct sample_constraint reasoning_gate_ops(struct reasoning_gate *gate)
{
    return (struct sample_constraint){ &gate_ops, gate };
}
