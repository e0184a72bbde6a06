#include "chat/call_gate.h"

#include "base/aho_corasick.h"
#include "base/mem.h"
#include "constrain/tools/tool_triggers.h"

enum { HISTORY = 2 * CONSTRAINT_POP_MAX, ARENA_BYTES_MAX = 64 * 1024 * 1024 };

enum phase { START, TEXT, REASONING };

struct gate_state {
    uint8_t phase;      /* enum phase */
    bool was_read;      /* the constraint has read the token */
    bool has_call;      /* a trigger is complete: the constraint reads all further tokens */
    uint8_t n_more;     /* bytes that are missing in the last character of the text that was read */
    uint32_t trigger;   /* state of the matcher of triggers */
    uint32_t reasoning; /* START: of opening markers; REASONING: of end markers */
};

struct call_gates {
    struct arena *arena;
    const struct vocab *vocab;
    const struct parser_format *format;
    const struct aho_corasick *triggers;
    const struct aho_corasick *opens, *ends; /* markers of reasoning; NULL: calls end it, or none */
    bool begins_inside; /* with PARSER_START_DEFAULT the output begins inside reasoning */
    size_t n_words;     /* size of a mask */
    int32_t *begins;    /* tokens that may begin a call in a text */
    int n_begins;
    int32_t *mixed; /* tokens with the end of reasoning and the beginning of a call */
    int n_mixed;
};

struct call_gate {
    const struct call_gates *tables;
    struct sample_constraint inner;
    struct gate_state first, history[HISTORY]; /* after n tokens: history[n % HISTORY] */
    uint64_t n_tokens;
    bool has_banned; /* some token is not in `text` */
    uint32_t *text;  /* [n_words]: mask of TEXT */
    uint32_t *bits;  /* [n_words]: mask of REASONING */
};

/* ---- tables */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Bytes of a token as the output parser receives them. */
static struct str parsed_bytes(const struct call_gates *g, int32_t id)
{
    struct str text = vocab_bytes(g->vocab, id);

    if (vocab_attr(g->vocab, id) == TOKEN_CONTROL && !parser_format_has_marker(g->format, text))
        return STR_NONE;
    return text;
}

/* Reads text; true if it completes a trigger, or ends with the beginning of one. */
static bool read_triggers(
    const struct call_gates *g, struct str text, uint32_t *state, bool *has_call)
{
    while (text.n && !*has_call) {
        int hit;
        text = str_skip(text, aho_corasick_find(g->triggers, state, text, &hit));
        *has_call = hit >= 0;
    }
    return *has_call || *state != AHO_CORASICK_ROOT;
}

static bool begins_call(const struct call_gates *g, struct str text)
{
    uint32_t state = AHO_CORASICK_ROOT;
    bool has_call = false;

    return read_triggers(g, text, &state, &has_call);
}

/* The token can complete an end marker in some state, and begins a call after it. */
static bool is_mixed(const struct call_gates *g, struct str text)
{
    bool mixed = false;

    for (unsigned k = 0; g->ends && k < g->ends->n_nodes && !mixed; k++) {
        uint32_t state = k;
        int hit;
        size_t n = aho_corasick_find(g->ends, &state, text, &hit);
        mixed = hit >= 0 && begins_call(g, str_skip(text, n));
    }
    return mixed;
}

static int list_tokens(struct call_gates *g, struct err *e)
{
    int32_t n = vocab_n_tokens(g->vocab);

    g->n_words = ((size_t)n + 31) / 32;
    g->begins = arena_zalloc(g->arena, (size_t)n, sizeof(*g->begins));
    g->mixed = arena_zalloc(g->arena, (size_t)n, sizeof(*g->mixed));
    if (!g->begins || !g->mixed)
        return err_set(e, ERR_MEMORY, "no memory for the markers of tool calls");
    for (int32_t id = 0; id < n; id++) {
        struct str text = parsed_bytes(g, id);
        if (vocab_is_end(g->vocab, id) || !begins_call(g, text))
            continue;
        g->begins[g->n_begins++] = id;
        if (is_mixed(g, text))
            g->mixed[g->n_mixed++] = id;
    }
    return 0;
}

static struct aho_corasick *find_markers(
    struct call_gates *g, const struct reasoning_format *r, enum marker_kind kind)
{
    struct str *texts = arena_zalloc(g->arena, AHO_CORASICK_MAX_STRINGS, sizeof(*texts));
    int n = 0;

    for (int i = 0; texts && i < r->n_marks && n < AHO_CORASICK_MAX_STRINGS; i++)
        if (r->marks[i].kind == kind)
            texts[n++] = r->marks[i].text;
    return texts ? aho_corasick_new(g->arena, texts, n) : NULL;
}

/* A call counts inside reasoning that it ends, so such reasoning is read like text. */
static int find_reasoning(struct call_gates *g, const struct reasoning_format *r, struct err *e)
{
    if (!r || r->flags & (REASONING_IS_CHANNEL | REASONING_CALL_ENDS) || !r->n_marks)
        return 0;
    g->begins_inside = r->flags & REASONING_STARTS;
    g->opens = find_markers(g, r, MARK_REASONING);
    g->ends = find_markers(g, r, MARK_REASONING_END);
    return g->opens && g->ends ? 0
                               : err_set(e, ERR_MEMORY, "no memory for the markers of reasoning");
}

static int find_triggers(struct call_gates *g, const struct tool_format *f, struct err *e)
{
    struct tool_trigger triggers[TOOL_TRIGGERS_MAX];
    struct str *texts = arena_zalloc(g->arena, TOOL_TRIGGERS_MAX, sizeof(*texts));
    int n = tool_triggers(f, triggers);

    for (int i = 0; texts && i < n; i++)
        texts[i] = triggers[i].text;
    g->triggers = texts ? aho_corasick_new(g->arena, texts, n) : NULL;
    return g->triggers ? 0 : err_set(e, ERR_MEMORY, "no memory for the markers of tool calls");
}

/* A control token that is a part of a trigger also occurs in other text, which the constraint would
 * have to permit. */
static bool divides_trigger(const struct vocab *v, const struct tool_format *f)
{
    struct tool_trigger triggers[TOOL_TRIGGERS_MAX];
    int n = tool_triggers(f, triggers);
    bool divides = false;

    for (int32_t id = 0; id < vocab_n_tokens(v) && !divides; id++) {
        struct str text = vocab_bytes(v, id);
        bool is_control = vocab_attr(v, id) == TOKEN_CONTROL && text.n;
        for (int i = 0; i < n && is_control; i++)
            divides = divides ||
                      (str_find(triggers[i].text, text) >= 0 && !str_eq(triggers[i].text, text));
    }
    return divides;
}

int call_gates_new(struct call_gates **out, const struct parser_format *format,
    const struct vocab *v, struct err *e)
{
    struct tool_trigger triggers[TOOL_TRIGGERS_MAX];
    const struct tool_format *f =
        format ? tool_format_find(str_of(parser_format_tool(format))) : NULL;

    *out = NULL;
    if (!tool_triggers(f, triggers) || divides_trigger(v, f))
        return 0;
    struct arena *arena = arena_new(ARENA_BYTES_MAX);
    struct call_gates *g = arena ? arena_zalloc(arena, 1, sizeof(*g)) : NULL;
    if (!g) {
        arena_free(arena);
        return err_set(e, ERR_MEMORY, "no memory for the markers of tool calls");
    }
    g->arena = arena;
    g->vocab = v;
    g->format = format;
    const struct reasoning_format *r =
        reasoning_format_find(str_of(parser_format_reasoning(format)));
    if (find_triggers(g, f, e) || find_reasoning(g, r, e) || list_tokens(g, e)) {
        call_gates_free(g);
        return -1;
    }
    *out = g;
    return 0;
}

void call_gates_free(struct call_gates *g)
{
    if (g)
        arena_free(g->arena);
}

/* ---- tokens */

static struct gate_state *now(struct call_gate *g)
{
    return &g->history[g->n_tokens % HISTORY];
}

/* The constraint determines the next token. */
static bool is_inner(const struct gate_state *s)
{
    return s->has_call || s->n_more || s->trigger != AHO_CORASICK_ROOT;
}

/* Bytes that are missing in the last character of a UTF-8 text. */
static uint8_t count_missing(struct str text, uint8_t n_more)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c < 0x80)
            n_more = 0;
        else if (c < 0xC0)
            n_more -= n_more > 0;
        else
            n_more = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
    }
    return n_more;
}

static bool is_blank_text(struct str s)
{
    bool all = true;

    for (size_t i = 0; i < s.n; i++)
        all = all && is_blank(s.p[i]);
    return all;
}

/* Reads up to the end of a marker that opens reasoning, or to the first other text. Returns the
 * text that remains. */
static struct str read_start(const struct call_gates *t, struct str text, struct gate_state *s)
{
    while (text.n && s->phase == START) {
        s->reasoning = aho_corasick_step(t->opens, s->reasoning, text.p[0]);
        if (aho_corasick_hit(t->opens, s->reasoning) >= 0) {
            s->phase = REASONING;
            s->reasoning = AHO_CORASICK_ROOT;
        } else if (s->reasoning == AHO_CORASICK_ROOT && !is_blank(text.p[0])) {
            s->phase = TEXT;
        }
        text = str_skip(text, 1);
    }
    return text;
}

/* Reads a token in REASONING. True: it begins a call after the end marker. */
static bool read_reasoning(const struct call_gates *t, struct str text, struct gate_state *s)
{
    int hit;

    text = str_skip(text, aho_corasick_find(t->ends, &s->reasoning, text, &hit));
    if (hit < 0)
        return false;
    s->phase = TEXT;
    return read_triggers(t, text, &s->trigger, &s->has_call);
}

/* Reads a token in START. True: the constraint has to read it. If it has read the beginning of the
 * opening marker, it also reads the end, after which it permits any text again; a token with other
 * text after that end is text. */
static bool read_first(const struct call_gates *t, struct str text, struct gate_state *s)
{
    struct gate_state plain = *s;
    bool begins = read_triggers(t, text, &plain.trigger, &plain.has_call);
    bool was_inner = is_inner(s);
    struct str rest = read_start(t, text, s);
    bool is_mixed_end = was_inner && (begins || !is_blank_text(rest));

    if (s->phase == REASONING && !is_mixed_end) {
        s->trigger = AHO_CORASICK_ROOT;
        return read_reasoning(t, rest, s) || was_inner;
    }
    plain.phase = s->phase == START ? START : TEXT;
    plain.reasoning = s->reasoning;
    *s = plain;
    return begins || was_inner;
}

/* Reads a token before a call. True: the constraint has to read it, too. */
static bool read_token(const struct call_gates *t, struct str text, struct gate_state *s)
{
    bool was_inner = is_inner(s);

    if (s->phase == START)
        return read_first(t, text, s);
    if (s->phase == REASONING)
        return read_reasoning(t, text, s);
    return read_triggers(t, text, &s->trigger, &s->has_call) || was_inner;
}

static bool push_state(struct call_gate *g, int32_t token, struct gate_state *s)
{
    bool was_reasoning = s->phase == REASONING;
    struct str text = parsed_bytes(g->tables, token);

    s->was_read = s->has_call || read_token(g->tables, text, s);
    if (s->was_read)
        s->n_more = count_missing(text, s->n_more);
    return !s->was_read || (!was_reasoning && g->inner.ops->push(g->inner.self, token));
}

static bool push(void *self, int32_t token)
{
    struct call_gate *g = self;
    const struct vocab *v = g->tables->vocab;
    struct gate_state s = *now(g);

    if (token < 0 || token >= vocab_n_tokens(v) || vocab_is_end(v, token) ||
        !push_state(g, token, &s))
        return false;
    g->n_tokens++;
    *now(g) = s;
    return true;
}

static void pop(void *self, int n)
{
    struct call_gate *g = self;
    int n_inner = 0;

    CHECK(n >= 0 && n <= CONSTRAINT_POP_MAX && (uint64_t)n <= g->n_tokens);
    for (int i = 0; i < n; i++) {
        n_inner += now(g)->was_read;
        g->n_tokens--;
    }
    g->inner.ops->pop(g->inner.self, n_inner);
}

static void reset(void *self)
{
    struct call_gate *g = self;

    g->n_tokens = 0;
    g->history[0] = g->first;
    g->inner.ops->reset(g->inner.self);
}

/* ---- masks */

static void clear_bit(uint32_t *bits, int32_t id)
{
    bits[id / 32] &= ~(1u << id % 32);
}

/* All tokens but those that complete the end marker and begin a call. */
static void mask_reasoning(struct call_gate *g, const struct gate_state *s, struct token_mask *out)
{
    const struct call_gates *t = g->tables;

    memset(g->bits, 0xff, t->n_words * sizeof(*g->bits));
    for (int i = 0; i < t->n_mixed; i++) {
        struct gate_state after = *s;
        if (read_token(t, parsed_bytes(t, t->mixed[i]), &after))
            clear_bit(g->bits, t->mixed[i]);
    }
    *out = (struct token_mask){ .form = MASK_FORM_BITS, .bits = g->bits };
}

static enum mask_progress compute_mask(
    void *self, uint64_t steps, struct token_mask *out, struct err *e)
{
    struct call_gate *g = self;
    const struct gate_state *s = now(g);

    if (is_inner(s))
        return g->inner.ops->mask(g->inner.self, steps, out, e);
    *out = (struct token_mask){ .form = MASK_FORM_ALL };
    if (s->phase == REASONING && g->tables->n_mixed)
        mask_reasoning(g, s, out);
    else if (s->phase != REASONING && g->has_banned)
        *out = (struct token_mask){ .form = MASK_FORM_BITS, .bits = g->text };
    return MASK_DONE;
}

static int forced(void *self, int32_t *ids, int cap)
{
    struct call_gate *g = self;

    return is_inner(now(g)) ? g->inner.ops->forced(g->inner.self, ids, cap) : 0;
}

static bool is_complete(void *self)
{
    struct call_gate *g = self;

    return is_inner(now(g)) && g->inner.ops->is_complete(g->inner.self);
}

static bool accepts(void *self)
{
    struct call_gate *g = self;

    return !is_inner(now(g)) || g->inner.ops->accepts(g->inner.self);
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

/* The mask of TEXT: tries all tokens that may begin a call. */
static void make_text_mask(struct call_gate *g)
{
    const struct call_gates *t = g->tables;

    memset(g->text, 0xff, t->n_words * sizeof(*g->text));
    for (int i = 0; i < t->n_begins; i++) {
        if (g->inner.ops->push(g->inner.self, t->begins[i])) {
            g->inner.ops->pop(g->inner.self, 1);
            continue;
        }
        clear_bit(g->text, t->begins[i]);
        g->has_banned = true;
    }
}

struct call_gate *call_gate_new(const struct call_gates *t, struct constraint_state *inner,
    enum parser_start start, bool is_unparsed)
{
    struct call_gate *g = try_calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->tables = t;
    g->inner = constraint_state_ops(inner);
    g->text = try_calloc(2 * t->n_words, sizeof(*g->text));
    if (!g->text) {
        mem_free(g);
        return NULL;
    }
    g->bits = g->text + t->n_words;
    bool is_inside =
        start == PARSER_START_REASONING || (start == PARSER_START_DEFAULT && t->begins_inside);
    bool is_read = t->opens && !is_unparsed;
    g->first.phase = is_inside ? REASONING : START;
    if (!is_read || start == PARSER_START_CONTENT)
        g->first.phase = TEXT;
    g->history[0] = g->first;
    make_text_mask(g);
    return g;
}

void call_gate_free(struct call_gate *gate)
{
    if (!gate)
        return;
    mem_free(gate->text);
    mem_free(gate);
}

size_t call_gate_bytes(const struct call_gate *gate)
{
    return sizeof(*gate) + 2 * gate->tables->n_words * sizeof(*gate->text);
}

struct sample_constraint call_gate_ops(struct call_gate *gate)
{
    return (struct sample_constraint){ &gate_ops, gate };
}
