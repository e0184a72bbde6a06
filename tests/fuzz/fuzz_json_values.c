/* Fuzzes the acceptor of JSON values. The mask at each position equals each token tried alone,
 * whole and in parts; each position has a continuation, except with uniqueItems; a kept position
 * equals the one it was made from; a text that is accepted is JSON and satisfies the schema; work
 * and memory stay within their bounds.
 *
 * The input is a schema, a zero byte, a byte with the options, and a text. The text is divided into
 * tokens at random: they are the vocabulary, with other tokens that differ from them. A token that
 * is not permitted is skipped. At the end of the text, permitted bytes complete it. */
#include "base/mem.h"
#include "base/rng.h"
#include "constrain/json/json_program.h"
#include "constrain/mask.h"
#include "support/schema_small.h"
#include "support/token_kit.h"
#include "testing/schema_validate.h"

enum {
    SCHEMA_MAX = 1000,
    TEXT_MAX = 80,
    TOKEN_MAX = 8,       /* bytes of a token */
    CHUNKS_MAX = 16,     /* tokens of the text */
    FINISH_MAX = 100,    /* bytes that complete the text */
    PROGRAM_MAX = 70,    /* MB: two arenas of 32 MB and their tables */
    WORK_MAX = 31000000, /* limits in json_program.c: 20 M for expressions, 10 M for conjunctions */
    MASK_STEPS = 200000
};

struct fuzz {
    struct schema *s;
    struct json_program *p;
    struct acceptor *a;
    struct schema_validator *v; /* NULL: validation is too expensive */
    struct token_kit kit;
    struct token_source src;
    struct vocab_tables *t;
    struct mask *whole, *parts;
    struct buf text; /* accepted bytes */
    struct rng r;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Divides the text into chunks; the tokens are the chunks, changed chunks, and an end token.
 * Returns the number of chunks. */
static int make_tokens(struct fuzz *f, struct str text)
{
    static struct str tokens[2 * CHUNKS_MAX + 1];
    static char changed[CHUNKS_MAX][TOKEN_MAX];
    int n = 0;

    for (; text.n && n < CHUNKS_MAX; n++) {
        size_t length = 1 + rng_below(&f->r, TOKEN_MAX);
        length = MIN(length, text.n);
        tokens[n] = (struct str){ text.p, length };
        memcpy(changed[n], text.p, length);
        changed[n][rng_below(&f->r, length)] = "\"{}[],:0 a\n\\\xC3"[rng_below(&f->r, 13)];
        text = str_skip(text, length);
    }
    for (int k = 0; k < n; k++)
        tokens[n + k] = (struct str){ changed[k], tokens[k].n };
    tokens[2 * n] = STR_NONE;
    f->kit = (struct token_kit){ .tokens = tokens, .n = 2 * n + 1, .end = 2 * n };
    f->src = token_kit_source(&f->kit);
    return n;
}

/* NULL: a bound of the acceptor is exceeded. */
static const uint32_t *compute(struct fuzz *f, struct mask *m, pos_id p, bool in_parts)
{
    enum mask_progress status = MASK_MORE;
    struct err e = { 0 };

    mask_begin(m, p);
    while (status == MASK_MORE)
        status = mask_run(m, in_parts ? 1 + rng_below(&f->r, 40) : UINT64_MAX, &e);
    CHECK(mask_steps(m) < MASK_STEPS);
    CHECK(status == MASK_DONE || e.msg[0]);
    return status == MASK_DONE ? mask_tokens(m) : NULL;
}

static void check_mask(struct fuzz *f, pos_id p)
{
    const uint32_t *whole = compute(f, f->whole, p, false);
    const uint32_t *parts = compute(f, f->parts, p, true);
    struct err e;

    for (int32_t id = 0; whole && parts && id < f->src.n_tokens; id++) {
        bool is_permitted = token_kit_permits(&f->src, f->a, p, id);
        if (f->a->ops->check(f->a, &e))
            return;
        CHECK(token_set_has(whole, id) == is_permitted);
        CHECK(token_set_has(parts, id) == is_permitted);
    }
}

static void check_text(struct fuzz *f)
{
    struct arena *arena = arena_new(16 * MB);
    struct json_limits limits = { 200, 100000 };
    struct json *value;
    struct err e = { 0 };

    CHECK(arena && !json_parse(&value, buf_str(&f->text), arena, &limits, &e));
    bool is_valid = !f->v || schema_validate(f->v, value, &e) != 0;
    if (!is_valid)
        fprintf(stderr, "not valid: " STR_FMT "\n", STR_ARG(buf_str(&f->text)));
    CHECK(is_valid);
    arena_free(arena);
}

/* A container in an array with uniqueItems can begin although each of its few values is used. */
static bool compares_items(const struct schema *s)
{
    for (uint32_t k = 0; k < schema_count(s); k++)
        if (schema_node(s, (node_id){ k })->has_unique_items)
            return true;
    return false;
}

static void check_position(struct fuzz *f, pos_id p)
{
    struct byte_set next = f->a->ops->next_bytes(f->a, p);
    bool accepts = f->a->ops->accepts(f->a, p);
    struct err e;

    if (f->a->ops->check(f->a, &e))
        return;
    bool is_live = accepts || !byte_set_is_empty(&next) || compares_items(f->s);
    if (!is_live)
        fprintf(stderr, "dead end after " STR_FMT "\n", STR_ARG(buf_str(&f->text)));
    CHECK(is_live);
    if (accepts)
        check_text(f);
}

/* The position after the bytes, which are added to the text; POS_DEAD: they are not permitted. */
static pos_id step_bytes(struct fuzz *f, pos_id p, struct str bytes)
{
    const struct acceptor_ops *ops = f->a->ops;
    uint32_t mark = ops->mark(f->a);

    for (size_t k = 0; k < bytes.n && p.i; k++)
        p = ops->step(f->a, p, (uint8_t)bytes.p[k]);
    if (!p.i) {
        ops->release(f->a, mark);
        return p;
    }
    uint64_t key = ops->key(f->a, p), generation = ops->generation(f->a);
    bool accepts = ops->accepts(f->a, p);
    p = ops->keep(f->a, mark, p);
    CHECK(ops->key(f->a, p) == key || ops->generation(f->a) != generation);
    CHECK(ops->accepts(f->a, p) == accepts);
    buf_put(&f->text, bytes.p, bytes.n);
    return p;
}

/* A byte that may follow: usually one that ends a string, array or object. -1: none */
static int finishing_byte(const struct byte_set *next, struct rng *r)
{
    static const char order[] = "\"}]";
    unsigned start = (unsigned)rng_below(r, 256);

    for (size_t k = 0; k < sizeof(order) - 1 && rng_below(r, 8); k++)
        if (byte_set_has(next, (uint8_t)order[k]))
            return order[k];
    for (unsigned k = 0; k < 256; k++)
        if (byte_set_has(next, (uint8_t)(start + k)))
            return (uint8_t)(start + k);
    return -1;
}

static void finish_text(struct fuzz *f, pos_id p)
{
    struct err e;

    for (int k = 0; k < FINISH_MAX && !f->a->ops->check(f->a, &e); k++) {
        struct byte_set next = f->a->ops->next_bytes(f->a, p);
        char byte = (char)finishing_byte(&next, &f->r);
        if (byte_set_is_empty(&next))
            break;
        p = step_bytes(f, p, (struct str){ &byte, 1 });
        CHECK(p.i || f->a->ops->check(f->a, &e));
        if (!p.i)
            return;
        check_position(f, p);
    }
    check_position(f, p);
}

static void read_text(struct fuzz *f, int n_chunks)
{
    pos_id p = POS_START;
    struct err e;

    check_position(f, p);
    for (int k = 0; k < n_chunks && !f->a->ops->check(f->a, &e); k++) {
        check_mask(f, p);
        pos_id to = step_bytes(f, p, f->kit.tokens[k]);
        if (!to.i)
            continue;
        p = to;
        check_position(f, p);
    }
    check_mask(f, p);
    finish_text(f, p);
    CHECK(f->a->ops->bytes(f->a) <= JSON_MEMORY_MAX);
}

/* -1: the schema is refused */
static int compile(struct fuzz *f, struct str schema, uint8_t options, struct err *e)
{
    struct schema_options so = { .bytes_max = SCHEMA_MAX, .nodes_max = 300 };
    struct json_program_options po = { options & 1, options & 2,
        (enum json_whitespace)((options >> 2) % 3) };

    so.closed_objects = options & 16;
    if (schema_new(&f->s, schema, &so, e) || json_program_new(&f->p, f->s, &po, e) ||
        json_acceptor_new(&f->a, f->p, e))
        return -1;
    CHECK(json_program_work(f->p) <= WORK_MAX);
    CHECK(json_program_bytes(f->p) <= (size_t)PROGRAM_MAX * MB);
    return 0;
}

static void fuzz_values(struct fuzz *f, struct str text)
{
    struct err e = { 0 };
    int n_chunks = make_tokens(f, text);

    if (schema_is_small(f->s) && schema_validator_new(&f->v, f->s, &e))
        f->v = NULL;
    CHECK(!vocab_tables_new(&f->t, &f->src, &e));
    CHECK(!mask_new(&f->whole, f->t, f->a, 4 * KB, &e));
    CHECK(!mask_new(&f->parts, f->t, f->a, 4 * KB, &e));
    read_text(f, n_chunks);
    mask_free(f->whole);
    mask_free(f->parts);
    vocab_tables_free(f->t);
    schema_validator_free(f->v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    struct str rest = str_skip((struct str){ (const char *)data, size }, n + 1);
    uint8_t options = rest.n ? (uint8_t)rest.p[0] : 0;
    struct fuzz f = { .r = { .key = options } };
    struct err e = { 0 };

    buf_init(&f.text, 1 * MB);
    if (compile(&f, (struct str){ (const char *)data, n }, options, &e)) {
        CHECK(e.msg[0]);
        CHECK(e.code == ERR_INVALID || e.code == ERR_TOO_LARGE || e.code == ERR_MEMORY);
    } else {
        rest = str_skip(rest, 1);
        fuzz_values(&f, (struct str){ rest.p, MIN(rest.n, (size_t)TEXT_MAX) });
    }
    if (f.a)
        f.a->ops->free(f.a);
    json_program_free(f.p);
    schema_free(f.s);
    buf_clear(&f.text);
    return 0;
}
