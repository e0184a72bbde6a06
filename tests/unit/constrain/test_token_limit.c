/* Outputs that are completed within a limit of tokens: random walks under the masks, masks compared
 * with each token tried alone, and failed allocations. */
#include "base/mem.h"
#include "base/rng.h"
#include "constrain/constraint_in.h"
#include "support/compiled_constraints.h"
#include "support/schema_random.h"

enum {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    WALKS = 12,
    SCHEMAS = 60,
#else
    WALKS = 60,
    SCHEMAS = 100,
#endif
    COST_MAX = 400,
    FULL_EVERY = 7 /* steps of a walk at which each token is tried alone */
};

static const struct cc_source more[] = {
    { CONSTRAINT_JSON_SCHEMA, "true" },
    { CONSTRAINT_JSON_SCHEMA, "{\"type\": \"string\", \"minLength\": 30, \"maxLength\": 40}" },
    { CONSTRAINT_JSON_SCHEMA,
        "{\"type\": \"array\", \"contains\": {\"const\": \"abc\"}, \"minContains\": 2}" },
    { CONSTRAINT_JSON_SCHEMA,
        "{\"type\": \"object\", \"minProperties\": 3, \"patternProperties\": {\"^a\": {\"type\": "
        "\"boolean\"}}, \"additionalProperties\": {\"enum\": [\"x\", \"yy\"]}}" },
    { CONSTRAINT_JSON_SCHEMA,
        "{\"$defs\": {\"t\": {\"type\": \"object\", \"properties\": {\"v\": {\"type\": "
        "\"integer\"}, \"l\": {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": \"#/$defs/t\"}]}}, "
        "\"required\": [\"v\", \"l\"]}}, \"$ref\": \"#/$defs/t\"}" },
    { CONSTRAINT_JSON_SCHEMA,
        "{\"type\": \"object\", \"properties\": {\"kind\": {\"const\": \"file\"}, \"path\": "
        "{\"type\": \"string\", \"pattern\": \"^/[a-z]{3,}/(?!x)[a-z]+$\"}, \"mode\": {\"type\": "
        "\"number\", \"minimum\": 100, \"multipleOf\": 7}, \"opt\": {\"type\": \"object\", "
        "\"properties\": {\"long\": {\"const\": \"a long text that does not always fit\"}}, "
        "\"required\": [\"long\"]}}, \"required\": [\"kind\", \"path\", \"mode\"], "
        "\"dependentRequired\": {\"opt\": [\"mode\"]}, \"not\": {\"required\": [\"z\"]}}" },
    { CONSTRAINT_REGEX, "a*" },
    { CONSTRAINT_REGEX, "(ab|c){3,9}(?!c)[a-z]{5}" },
    { CONSTRAINT_GBNF, "root ::= root \"+\" root | \"(\" root \")\" | [0-9]+" },
    { CONSTRAINT_LARK, "start: \"x\" start \"yyy\" | %json {\"type\": \"object\"}" },
};

struct walk {
    const struct vocab_tables *t;
    struct sample_constraint k;
    struct constraint_state *s;
    struct rng *r;
    int limit, n_tokens, n_steps;
};

static bool has_token(const struct token_mask *m, int32_t id)
{
    bool has = m->form == MASK_FORM_ALL;

    if (m->form == MASK_FORM_BITS)
        return token_set_has(m->bits, id);
    for (int i = 0; i < m->n_ids && !has; i++)
        has = m->ids[i] == id;
    return has;
}

static struct token_mask mask_of(const struct walk *w)
{
    struct token_mask m = { 0 };
    struct err e = { 0 };
    uint64_t steps = rng_below(w->r, 3) ? UINT64_MAX : 1 + rng_below(w->r, 100);
    enum mask_progress progress;

    while ((progress = w->k.ops->mask(w->k.self, steps, &m, &e)) == MASK_MORE)
        continue;
    if (progress == MASK_ERROR)
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(progress == MASK_DONE);
    return m;
}

/* Copies the permitted tokens, since a push ends the mask. */
static int list_tokens(const struct walk *w, int32_t *ids)
{
    struct token_mask m = mask_of(w);
    int n = 0;

    for (int32_t id = 0; id < CC_VOCAB; id++)
        if (has_token(&m, id))
            ids[n++] = id;
    return n;
}

static void check_mask(const struct walk *w, const int32_t *ids, int n)
{
    int at = 0;

    for (int32_t id = 0; id < CC_END; id++) {
        bool is_listed = at < n && ids[at] == id;
        at += is_listed;
        bool is_pushed = w->k.ops->push(w->k.self, id);
        if (is_pushed)
            w->k.ops->pop(w->k.self, 1);
        if (is_pushed != is_listed)
            fail_msg("token %d '" STR_FMT "': %s by the mask after %d tokens of %d", id,
                STR_ARG(w->t->source.bytes(w->t->source.ctx, id)),
                is_listed ? "permitted" : "not permitted", w->n_tokens, w->limit);
    }
}

/* Ends only where the text is complete, in at most w->limit tokens. */
static void walk_once(struct walk *w, struct buf *text)
{
    int32_t ids[CC_VOCAB];

    w->n_tokens = 0;
    w->k.ops->reset(w->k.self);
    while (!w->k.ops->is_complete(w->k.self)) {
        EXPECT(w->n_tokens < w->limit);
        int n = list_tokens(w, ids);
        EXPECT(n > 0);
        if (w->n_steps++ % FULL_EVERY == 0)
            check_mask(w, ids, n);
        /* The end token is avoided, so that the limit is reached. */
        int32_t id = ids[rng_below(w->r, (uint64_t)n)];
        if (id == CC_END && n > 1 && rng_below(w->r, 8))
            id = ids[rng_below(w->r, (uint64_t)n)];
        w->n_tokens++;
        if (id == CC_END)
            return;
        struct str bytes = w->t->source.bytes(w->t->source.ctx, id);
        buf_put(text, bytes.p, bytes.n);
        EXPECT(w->k.ops->push(w->k.self, id));
        if (!rng_below(w->r, 5)) { /* as a draft token that is not accepted */
            w->k.ops->pop(w->k.self, 1);
            EXPECT(w->k.ops->push(w->k.self, id));
        }
    }
}

static int cost_of(struct constraint *c)
{
    struct constraint_state *s = NULL;
    struct err e = { 0 };

    EXPECT(!constraint_state_new(&s, c, &e));
    EXPECT(!constraint_state_limit(s, COST_MAX, &e));
    uint32_t cost = constraint_state_cost(s);
    constraint_state_free(s);
    return cost == UINT32_MAX ? -1 : (int)cost;
}

/* Walks with limits from the smallest possible one on. False: no completion is known. */
static bool walk_constraint(
    struct constraint *c, const struct vocab_tables *t, struct rng *r, int n)
{
    struct walk w = { .t = t, .r = r };
    struct err e = { 0 };
    int cost = cost_of(c);
    struct buf text;

    if (cost < 0)
        return false;
    buf_init(&text, 1 << 20);
    for (int k = 0; k < n; k++) {
        w.limit = cost + (int)(k ? rng_below(r, 1 + (uint64_t)k) : 0);
        EXPECT(!constraint_state_new(&w.s, c, &e));
        EXPECT(!constraint_state_limit(w.s, w.limit, &e));
        w.k = constraint_state_ops(w.s);
        buf_reset(&text);
        walk_once(&w, &text);
        constraint_state_free(w.s);
    }
    buf_clear(&text);
    return true;
}

static void outputs_of_every_kind_end_within_the_limit(void)
{
    struct compiled_constraints c;
    struct rng r = { .key = 3 };

    compiled_constraints_open(&c);
    for (int i = 0; i < c.n; i++) {
        if (!walk_constraint(c.all[i], c.tables, &r, WALKS))
            fail_msg("no completion: %s", cc_sources[i].text);
    }
    for (size_t i = 0; i < ARRAY_LEN(more); i++) {
        struct constraint_source src = { .kind = more[i].kind, .text = str_of(more[i].text) };
        struct constraint *one = NULL;
        struct err e = { 0 };
        EXPECT(!constraint_new(&one, &src, c.tables, &e));
        if (!walk_constraint(one, c.tables, &r, WALKS))
            fail_msg("no completion: %s", more[i].text);
        constraint_unref(one);
    }
    compiled_constraints_close(&c);
}

static void values_of_random_schemas_end_within_the_limit(void)
{
    struct compiled_constraints c;
    struct rng r = { .key = 5 };
    struct buf text;
    int n = 0, n_walked = 0;

    compiled_constraints_vocab(&c);
    buf_init(&text, 1 << 20);
    for (int i = 0; i < SCHEMAS; i++) {
        struct constraint_source src = { .kind = CONSTRAINT_JSON_SCHEMA };
        struct constraint *one = NULL;
        struct err e = { 0 };
        buf_reset(&text);
        random_schema(&text, &r, 3);
        src.text = buf_str(&text);
        src.any_order = rng_below(&r, 2);
        src.whitespace = (enum json_whitespace)rng_below(&r, 3);
        if (constraint_new(&one, &src, c.tables, &e))
            continue;
        n++;
        n_walked += walk_constraint(one, c.tables, &r, 4);
        constraint_unref(one);
    }
    EXPECT(n > SCHEMAS / 3);
    EXPECT(n_walked * 100 >= n * 97);
    buf_clear(&text);
    vocab_tables_free(c.tables);
}

static void a_failed_allocation_is_an_error(void)
{
    struct compiled_constraints c;

    compiled_constraints_open(&c);
    for (int i = 0; i < c.n; i++) {
        int n_failed = 0, rc = -1;
        for (uint64_t nth = 1; rc; nth++) {
            struct constraint_state *s = NULL;
            struct err e = { 0 };
            EXPECT(!constraint_state_new(&s, c.all[i], &e));
            mem_fail_after(nth);
            rc = constraint_state_limit(s, 50, &e);
            mem_fail_after(0);
            EXPECT(!rc || e.code == ERR_MEMORY);
            constraint_state_free(s);
            n_failed += rc != 0;
        }
        EXPECT(n_failed >= FAULTS_AT_LEAST(5));
    }
    compiled_constraints_close(&c);
}

TESTS(TEST(outputs_of_every_kind_end_within_the_limit),
    TEST(values_of_random_schemas_end_within_the_limit), TEST(a_failed_allocation_is_an_error))
