#include "guardrails/output_guard.h"

#include "base/mem.h"
#include "guardrails/json_guard.h"

enum { ARGUMENTS_MAX = 64 * 1024 * 1024, TOKENS_MAX = 16 * 1024 * 1024 };

enum text_kind { TEXT_NONE, TEXT_CONTENT, TEXT_REASONING, TEXT_ARGUMENTS, TEXT_NAME };

struct guard_token { /* a token whose text is not decided */
    struct sampled t;
    size_t begin, end; /* its text, in bytes of the text of all tokens */
    bool is_hidden;
};

struct token_guard { /* of the tokens of a choice */
    struct guard_scan scan;
    struct buf queue; /* struct guard_token */
    size_t n_text;    /* bytes of all tokens so far */
    int choice;
    struct output_guard *guard;
};

struct guard_choice {
    struct output_guard *guard;
    int number;
    enum text_kind kind;
    int call;
    struct guard_scan scan;
    struct json_guard json;
    struct buf name;
    struct token_guard *tokens; /* NULL: not wanted */
    bool is_redacted, is_blocked, is_taken;
};

struct output_guard {
    struct output_guard_setup s;
    bool has_failed;
    struct guard_choice choices[];
};

/* ---- life */

static int choice_init(struct output_guard *g, int i, struct err *e)
{
    struct guard_choice *c = &g->choices[i];

    c->guard = g;
    c->number = i;
    buf_init(&c->name, KB);
    if (guard_scan_init(&c->scan, g->s.g, g->s.sets, e))
        return -1;
    json_guard_init(&c->json, &c->scan, ARGUMENTS_MAX);
    if (!g->s.want_tokens)
        return 0;
    c->tokens = try_calloc(1, sizeof(*c->tokens));
    if (!c->tokens)
        return err_set(e, ERR_MEMORY, "no memory for the guardrails");
    c->tokens->choice = i;
    c->tokens->guard = g;
    buf_init(&c->tokens->queue, TOKENS_MAX);
    return guard_scan_init(&c->tokens->scan, g->s.g, g->s.sets, e);
}

int output_guard_new(struct output_guard **out, const struct output_guard_setup *s, struct err *e)
{
    struct output_guard *g =
        try_calloc(1, sizeof(*g) + (size_t)s->n_choices * sizeof(g->choices[0]));

    if (!g)
        return err_set(e, ERR_MEMORY, "no memory for the guardrails");
    g->s = *s;
    for (int i = 0; i < s->n_choices; i++)
        if (choice_init(g, i, e)) {
            output_guard_free(g);
            return -1;
        }
    *out = g;
    return 0;
}

void output_guard_free(struct output_guard *g)
{
    for (int i = 0; g && i < g->s.n_choices; i++) {
        struct guard_choice *c = &g->choices[i];
        guard_scan_clear(&c->scan);
        json_guard_clear(&c->json);
        buf_clear(&c->name);
        if (c->tokens) {
            guard_scan_clear(&c->tokens->scan);
            buf_clear(&c->tokens->queue);
        }
        mem_free(c->tokens);
    }
    mem_free(g);
}

/* ---- callbacks of the scan of a choice */

static void on_hit(struct guard_choice *c, const struct guard_hit *hit)
{
    guard_record_add(c->guard->s.record, c->guard->s.g, GUARD_OUTPUT, hit);
}

static void on_text_hit(void *ctx, const struct guard_hit *hit)
{
    on_hit(ctx, hit);
}

static void on_json_hit(void *ctx, const struct guard_hit *hit)
{
    struct json_guard *j = ctx;

    on_hit(container_of(j, struct guard_choice, json), hit);
}

static void on_text(void *ctx, struct str raw)
{
    struct guard_choice *c = ctx;
    const struct output_guard_setup *s = &c->guard->s;

    if (c->kind == TEXT_CONTENT && s->next->content)
        s->next->content(s->next_ctx, c->number, raw);
    else if (c->kind == TEXT_REASONING && s->next->reasoning)
        s->next->reasoning(s->next_ctx, c->number, raw);
    else if (c->kind == TEXT_NAME)
        buf_puts(&c->name, raw);
}

static void after_scan(struct guard_choice *c)
{
    c->is_redacted |= c->scan.is_redacted;
    c->is_blocked |= c->scan.is_blocked;
    c->guard->has_failed |= c->scan.has_failed || !buf_ok(&c->name);
}

static void use_scan(struct guard_choice *c)
{
    c->scan.on_text = on_text;
    c->scan.on_hit = on_text_hit;
    c->scan.ctx = c;
}

/* Ends the text that is open, if it is of another kind. False: the choice has ended. */
static bool begin_text(struct guard_choice *c, enum text_kind kind)
{
    if (c->is_blocked || c->guard->has_failed)
        return false;
    if (c->kind != kind && (c->kind == TEXT_CONTENT || c->kind == TEXT_REASONING)) {
        guard_scan_end(&c->scan);
        after_scan(c);
    }
    c->kind = kind;
    use_scan(c);
    return !c->is_blocked && !c->guard->has_failed;
}

/* ---- output events */

static void put_text(void *ctx, int choice, enum text_kind kind, struct str text)
{
    struct output_guard *g = ctx;
    struct guard_choice *c = &g->choices[choice];

    if (!begin_text(c, kind))
        return;
    guard_scan_put(&c->scan, text);
    after_scan(c);
}

static void put_content(void *ctx, int choice, struct str text)
{
    put_text(ctx, choice, TEXT_CONTENT, text);
}

static void put_reasoning(void *ctx, int choice, struct str text)
{
    put_text(ctx, choice, TEXT_REASONING, text);
}

/* The name is complete, so it is searched as a whole. */
static void begin_call(void *ctx, int choice, int call, struct str name)
{
    struct output_guard *g = ctx;
    struct guard_choice *c = &g->choices[choice];

    if (!begin_text(c, TEXT_NAME))
        return;
    buf_reset(&c->name);
    guard_scan_put(&c->scan, name);
    guard_scan_end(&c->scan);
    after_scan(c);
    if (c->is_blocked || g->has_failed)
        return;
    c->kind = TEXT_ARGUMENTS;
    c->call = call;
    json_guard_begin(&c->json);
    if (g->s.next->call_begin)
        g->s.next->call_begin(g->s.next_ctx, choice, call, buf_str(&c->name));
}

static void send_arguments(struct guard_choice *c)
{
    const struct output_guard_setup *s = &c->guard->s;

    after_scan(c);
    if (!c->is_blocked && !c->guard->has_failed && c->json.out.n && s->next->call_args)
        s->next->call_args(s->next_ctx, c->number, c->call, buf_str(&c->json.out));
    buf_reset(&c->json.out);
}

/* False: the call was not begun, or the choice has ended. */
static bool is_in_call(const struct guard_choice *c)
{
    return c->kind == TEXT_ARGUMENTS && !c->is_blocked && !c->guard->has_failed;
}

static void put_arguments(void *ctx, int choice, int call, struct str json)
{
    struct output_guard *g = ctx;
    struct guard_choice *c = &g->choices[choice];

    if (!is_in_call(c))
        return;
    c->scan.on_hit = on_json_hit;
    json_guard_put(&c->json, json);
    send_arguments(c);
}

static void end_call(void *ctx, int choice, int call)
{
    struct output_guard *g = ctx;
    struct guard_choice *c = &g->choices[choice];

    if (!is_in_call(c))
        return;
    json_guard_end(&c->json);
    send_arguments(c);
    c->kind = TEXT_NONE;
    if (!c->is_blocked && !g->has_failed && g->s.next->call_end)
        g->s.next->call_end(g->s.next_ctx, choice, call);
}

/* The text of the call follows as content. */
static void break_call(void *ctx, int choice, int call)
{
    struct output_guard *g = ctx;
    struct guard_choice *c = &g->choices[choice];

    if (!is_in_call(c))
        return;
    json_guard_begin(&c->json);
    c->kind = TEXT_NONE;
    if (g->s.next->call_broken)
        g->s.next->call_broken(g->s.next_ctx, choice, call);
}

const struct output_ops output_guard_ops = { put_content, put_reasoning, begin_call, put_arguments,
    end_call, break_call };

/* ---- tokens */

static void hide_tokens(void *ctx, size_t begin, size_t end)
{
    struct token_guard *t = ctx;
    struct guard_token *q = (struct guard_token *)(void *)t->queue.p;

    for (size_t i = 0; i < t->queue.n / sizeof(*q); i++)
        q[i].is_hidden |= q[i].begin < end && q[i].end > begin;
}

/* Passes the tokens on whose text is decided; all: also the others, hidden. */
static void release_tokens(struct token_guard *t, bool all)
{
    const struct output_guard_setup *s = &t->guard->s;
    const struct guard_token *q = (const struct guard_token *)(const void *)t->queue.p;
    size_t n = t->queue.n / sizeof(*q), i = 0;

    for (; i < n && (all || q[i].end <= t->scan.held); i++)
        s->on_token(s->next_ctx, t->choice, &q[i].t, q[i].is_hidden || q[i].end > t->scan.held);
    buf_drop(&t->queue, i * sizeof(*q));
}

void output_guard_token(
    struct output_guard *g, int choice, const struct sampled *t, struct str text)
{
    struct token_guard *tokens = g->choices[choice].tokens;
    struct guard_token next = { .t = *t };

    CHECK(tokens);
    next.begin = tokens->n_text;
    next.end = tokens->n_text += text.n;
    buf_put(&tokens->queue, &next, sizeof(next));
    tokens->scan.on_cover = hide_tokens;
    tokens->scan.ctx = tokens;
    guard_scan_put(&tokens->scan, text);
    g->has_failed |= tokens->scan.has_failed || !buf_ok(&tokens->queue);
    if (!g->has_failed)
        release_tokens(tokens, false);
}

/* What is held is decided; positions of the scan begin again with another text. */
static void end_tokens(struct token_guard *t)
{
    guard_scan_end(&t->scan);
    if (!t->scan.is_blocked && !t->scan.has_failed)
        t->scan.held = t->n_text;
    release_tokens(t, true);
}

/* ---- end */

bool output_guard_end(struct output_guard *g, int choice)
{
    struct guard_choice *c = &g->choices[choice];

    if (c->tokens)
        end_tokens(c->tokens);
    begin_text(c, TEXT_NONE); /* an open call is incomplete: what is held of it is dropped */
    c->is_taken = true;
    return c->is_blocked;
}

int output_guard_take_blocked(struct output_guard *g)
{
    for (int i = 0; i < g->s.n_choices; i++)
        if (g->choices[i].is_blocked && !g->choices[i].is_taken) {
            g->choices[i].is_taken = true;
            return i;
        }
    return -1;
}

bool output_guard_is_redacted(const struct output_guard *g, int choice)
{
    return g->choices[choice].is_redacted;
}

bool output_guard_failed(const struct output_guard *g)
{
    return g->has_failed;
}
