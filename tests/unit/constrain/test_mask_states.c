/* Masks of random positions compared with their definition: each token alone, byte by byte. The
 * constraints are those of requests, and the positions are reached by random permitted bytes. The
 * vocabularies have two tokens, a sample of the tokens of a model file, or all of its tokens.
 *
 * MASK_STATES is the number of positions; the definition is computed for all tokens of a model
 * file at one position in FULL_EVERY. */
#include "constrain/constraint_in.h"
#include "constrain/mask.h"
#include "support/schema_random.h"
#include "support/text_kit.h"
#include "support/token_kit.h"

enum {
    STATES = 10000,
    FULL_EVERY = 1000,
    WALK_STATES = 40, /* positions of a walk */
    SAMPLE = 60,      /* tokens of a sample */
    FILES = 4
};

struct language_case {
    enum constraint_kind kind;
    const char *text;
};

static const struct language_case languages[] = {
    { CONSTRAINT_JSON, "" },
    { CONSTRAINT_JSON_SCHEMA, "true" },
    { CONSTRAINT_JSON_SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
        "\"age\":{\"type\":\"integer\",\"minimum\":-3,\"maximum\":1250},\"tags\":{\"type\":"
        "\"array\","
        "\"items\":{\"enum\":[\"a\",\"ab\",\"abc\",1,null]},\"uniqueItems\":true}},"
        "\"required\":[\"name\",\"age\"]}" },
    { CONSTRAINT_JSON_SCHEMA,
        "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":"
        "\"number\",\"multipleOf\":0.25}},\"propertyNames\":{\"maxLength\":3},"
        "\"additionalProperties\":{\"format\":\"date-time\"},"
        "\"minProperties\":2}" },
    { CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(?!.*aa)[ab\\u00e9 ]{2,9}$\"}" },
    { CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":4,\"maxLength\":2000}" },
    { CONSTRAINT_JSON_SCHEMA,
        "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"string\",\"format\":\"email\"},"
        "{\"type\":\"number\",\"exclusiveMinimum\":1e-3},{\"$ref\":\"#\"}]},\"maxItems\":4}" },
    { CONSTRAINT_JSON_SCHEMA,
        "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"x\"}},\"required\":"
        "[\"k\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\",\"minLength\":2}}"
        ","
        "\"required\":[\"k\"],\"unevaluatedProperties\":false}]}" },
    { CONSTRAINT_REGEX, "[ab]*\\{\"?[^}]{0,40}\\}|(?:the |a |an )+[a-z]{3,9}[.!?]" },
    { CONSTRAINT_REGEX, "(?:[0-9]{1,3}\\.){3}[0-9]{1,3}(?:/[0-9]{1,2})?|[^]*" },
    { CONSTRAINT_REGEX, "(?!.*  )[a-z ]{5,400}" },
    { CONSTRAINT_CHOICE, "[\"yes\",\"no\",\"not sure\",\"nothing\",\"\xC3\xA9t\xC3\xA9\"]" },
    { CONSTRAINT_GBNF, "root ::= \"[\" (root (\",\" root)*)? \"]\" | [a-z]{1,9} | \"\\\"\" [^\"]* "
                       "\"\\\"\"" },
    { CONSTRAINT_GBNF, "root ::= root \"+\" root | num\nnum ::= [0-9]+ (\".\" [0-9]{2})?" },
    { CONSTRAINT_LARK, "start: \"if \" WORD \" then \" start | WORD \"=\" /[0-9]{1,12}/ \"\\n\"\n"
                       "WORD: /[a-z_]+/" },
};

/* ---- vocabularies */

struct vocabulary {
    struct token_kit kit;
    struct token_source src;
    struct vocab_tables *t;
};

static void vocabulary_open(struct vocabulary *v)
{
    v->src = token_kit_source(&v->kit);
    v->t = token_kit_tables(&v->src);
}

static void vocabulary_close(struct vocabulary *v)
{
    vocab_tables_free(v->t);
    mem_free(v->kit.tokens);
    *v = (struct vocabulary){ 0 };
}

/* `n` tokens and the end token; the texts are borrowed. vocabulary_open follows, in the place where
 * the vocabulary stays. */
static struct vocabulary vocabulary_of(int32_t n)
{
    struct vocabulary v = { .kit = { .n = n + 1, .end = n } };

    v.kit.tokens = xcalloc((size_t)n + 1, sizeof(*v.kit.tokens));
    return v;
}

/* Vocabularies of model files; those without shared data are absent. */
struct files {
    struct vocab *vocabs[FILES];
    struct token_source src[FILES];
    struct vocab_tables *t[FILES];
    int n;
};

static void files_add(struct files *f, const char *path)
{
    f->vocabs[f->n] = kit_open_vocab(path);
    f->src[f->n] = token_source_of_vocab(f->vocabs[f->n]);
    f->t[f->n] = token_kit_tables(&f->src[f->n]);
    f->n++;
}

static void files_open(struct files *f)
{
    static const char *const names[] = { "vocab/ggml-vocab-gpt-2.gguf",
        "vocab/ggml-vocab-llama-spm.gguf", "vocab/ggml-vocab-deepseek-llm.gguf" };
    char path[512];

    *f = (struct files){ 0 };
    files_add(f, "models/demo.gguf");
    for (size_t k = 0; k < ARRAY_LEN(names); k++)
        if (kit_data_path(path, names[k]))
            files_add(f, path);
}

static void files_close(struct files *f)
{
    for (int k = 0; k < f->n; k++) {
        vocab_tables_free(f->t[k]);
        vocab_close(f->vocabs[k]);
    }
}

/* A token of a file; two thirds of them begin with a character of JSON. */
static struct str random_token(const struct token_source *src, struct rng *r)
{
    bool want_json = rng_below(r, 3) > 0;

    for (int tries = 0; tries < 300; tries++) {
        int32_t id = (int32_t)rng_below(r, (uint64_t)src->n_tokens);
        struct str s = src->bytes(src->ctx, id);
        if (s.n && (!want_json || strchr("{}[]\":,0123456789-.\n aetn", s.p[0])))
            return s;
    }
    return STR("a");
}

static void vocabulary_sample(struct vocabulary *v, const struct files *f, int32_t n, struct rng *r)
{
    const struct token_source *src = &f->src[rng_below(r, (uint64_t)f->n)];

    *v = vocabulary_of(n);
    for (int32_t id = 0; id < n; id++)
        v->kit.tokens[id] = random_token(src, r);
    vocabulary_open(v);
}

/* ---- constraints */

/* Each byte is a token: no constraint is refused. */
static void vocabulary_of_bytes(struct vocabulary *v)
{
    static char bytes[256];

    *v = vocabulary_of(256);
    for (int b = 0; b < 256; b++) {
        bytes[b] = (char)b;
        v->kit.tokens[b] = (struct str){ &bytes[b], 1 };
    }
    vocabulary_open(v);
}

/* One of `languages`, or a random schema; NULL: it has no values, or too many alternatives. */
static struct constraint *random_constraint(
    const struct vocab_tables *t, struct rng *r, struct buf *text)
{
    struct constraint_source src = { .kind = CONSTRAINT_JSON_SCHEMA };
    struct constraint *c = NULL;
    struct err e = { 0 };

    bool is_listed = rng_below(r, 2);
    buf_reset(text);
    if (is_listed) {
        const struct language_case *l = &languages[rng_below(r, ARRAY_LEN(languages))];
        src.kind = l->kind;
        buf_putz(text, l->text);
    } else {
        random_schema(text, r, 3);
    }
    src.text = buf_str(text);
    src.any_order = rng_below(r, 2);
    src.whitespace = (enum json_whitespace)rng_below(r, 3);
    if (constraint_new(&c, &src, t, &e)) {
        if (is_listed)
            fail_msg(STR_FMT ": %s", STR_ARG(src.text), e.msg);
        return NULL;
    }
    return c;
}

/* ---- walks */

struct walk {
    const struct token_source *src;
    struct acceptor *a;
    struct mask *whole, *parts;
    struct str language;
    pos_id p;
    uint64_t n_states;
};

static const uint32_t *compute(struct mask *m, pos_id p, struct rng *parts)
{
    enum mask_progress status = MASK_MORE;
    struct err e = { 0 };

    mask_begin(m, p);
    while (status == MASK_MORE)
        status = mask_run(m, parts ? 1 + rng_below(parts, 400) : UINT64_MAX, &e);
    return status == MASK_DONE ? mask_tokens(m) : NULL;
}

/* False: a bound of the acceptor is exceeded. */
static bool compare_state(struct walk *w, struct rng *r)
{
    struct err e;
    const uint32_t *set = compute(w->whole, w->p, NULL);
    const uint32_t *same = compute(w->parts, w->p, r);

    if (!set || !same) {
        EXPECT_EQ(w->a->ops->check(w->a, &e), -1);
        return false;
    }
    for (int32_t id = 0; id < w->src->n_tokens; id++) {
        bool is_permitted = token_kit_permits(w->src, w->a, w->p, id);
        struct str b = w->src->bytes(w->src->ctx, id);
        if (token_set_has(set, id) != is_permitted || token_set_has(same, id) != is_permitted)
            fail_msg(STR_FMT ": token '" STR_FMT "' permitted: %d, in the masks: %d %d",
                STR_ARG(w->language), STR_ARG(b), is_permitted, token_set_has(set, id),
                token_set_has(same, id));
    }
    w->n_states++;
    return w->a->ops->check(w->a, &e) == 0;
}

/* A random permitted byte; quotation marks and brackets are frequent, so that walks leave
 * strings. -1: none. */
static int random_byte(const struct byte_set *next, struct rng *r)
{
    static const char frequent[] = "\"}],";
    uint8_t wanted = (uint8_t)frequent[rng_below(r, sizeof(frequent) - 1)];
    unsigned start = (unsigned)rng_below(r, 256);

    if (rng_below(r, 4) == 0 && byte_set_has(next, wanted))
        return wanted;
    if (rng_below(r, 3) && byte_set_has(next, 'a'))
        start = 'a' + start % 26;
    for (unsigned k = 0; k < 256; k++)
        if (byte_set_has(next, (uint8_t)(start + k)))
            return (uint8_t)(start + k);
    return -1;
}

/* Goes on by 1 to 6 bytes. False: the text is complete, or a bound is exceeded. */
static bool step_randomly(struct walk *w, struct rng *r)
{
    const struct acceptor_ops *ops = w->a->ops;
    uint32_t mark = ops->mark(w->a);
    pos_id p = w->p;

    for (uint64_t n = 1 + rng_below(r, 6); n > 0; n--) {
        struct byte_set next = ops->next_bytes(w->a, p);
        int byte = random_byte(&next, r);
        if (byte < 0)
            break;
        pos_id q = ops->step(w->a, p, (uint8_t)byte);
        if (!q.i)
            return false;
        p = q;
    }
    if (p.i == w->p.i)
        return false;
    w->p = ops->keep(w->a, mark, p);
    return true;
}

/* Compares the masks of one walk; returns the number of positions. */
static uint64_t compare_walk(const struct constraint *c, struct str language,
    const struct vocab_tables *t, int n_states, struct rng *r)
{
    struct walk w = { .src = &t->source, .language = language, .p = POS_START };
    struct err e = { 0 };

    if (constraint_acceptor(&w.a, c, &e))
        return 0;
    EXPECT_EQ(mask_new(&w.whole, t, w.a, 16 * KB, &e), 0);
    EXPECT_EQ(mask_new(&w.parts, t, w.a, 16 * KB, &e), 0);
    for (int k = 0; k < n_states; k++)
        if (!compare_state(&w, r) || !step_randomly(&w, r))
            break;
    mask_free(w.whole);
    mask_free(w.parts);
    w.a->ops->free(w.a);
    return w.n_states;
}

static uint64_t n_wanted(void)
{
    const char *n = getenv("MASK_STATES");

    return n ? strtoull(n, NULL, 10) : STATES;
}

static void masks_of_small_vocabularies_equal_the_definition(void)
{
    struct vocabulary bytes;
    struct files f;
    struct buf text;
    uint64_t n_states[2] = { 0 };

    vocabulary_of_bytes(&bytes);
    files_open(&f);
    buf_init(&text, 1 * MB);
    for (uint64_t seed = 0; n_states[0] + n_states[1] < n_wanted(); seed++) {
        struct rng r = { .key = seed };
        struct constraint *c = random_constraint(bytes.t, &r, &text);
        for (int k = 0; c && k < 6; k++) {
            struct vocabulary v;
            vocabulary_sample(&v, &f, k % 2 ? SAMPLE : 2, &r);
            n_states[k % 2] += compare_walk(c, buf_str(&text), v.t, WALK_STATES, &r);
            vocabulary_close(&v);
        }
        constraint_unref(c);
    }
    printf("%llu positions with two tokens, %llu with %d tokens\n", (unsigned long long)n_states[0],
        (unsigned long long)n_states[1], SAMPLE);
    buf_clear(&text);
    vocabulary_close(&bytes);
    files_close(&f);
}

static void masks_of_model_vocabularies_equal_the_definition(void)
{
    struct vocabulary bytes;
    struct files f;
    struct buf text;
    uint64_t n_states = 0, seed;

    vocabulary_of_bytes(&bytes);
    files_open(&f);
    buf_init(&text, 1 * MB);
    for (seed = 1u << 20; n_states < n_wanted() / FULL_EVERY; seed++) {
        struct rng r = { .key = seed };
        struct constraint *c = random_constraint(bytes.t, &r, &text);
        if (c)
            n_states += compare_walk(c, buf_str(&text), f.t[seed % (uint64_t)f.n], 4, &r);
        constraint_unref(c);
    }
    printf("%llu positions with all tokens\n", (unsigned long long)n_states);
    buf_clear(&text);
    vocabulary_close(&bytes);
    files_close(&f);
}

TESTS(TEST(masks_of_small_vocabularies_equal_the_definition),
    TEST(masks_of_model_vocabularies_equal_the_definition))
