/* check_json_values.c: reads JSON values with the acceptor of a schema, for tests against other
 * implementations.
 *
 * Each line of the input is a JSON object, each line of the output its result:
 *
 *     {"schema": S, "tests": [VALUE, ..], "documents": {URI: S, ..}, "any_order": BOOL, "walks": N,
 *      "texts": BOOL}
 *     ok 0110 COMPILE_NS STEP_NS N_STEPS BYTES N_WALKS N_INVALID N_DEAD N_ERRORS
 *     error MESSAGE
 *
 * One digit per value; `-` without values. A walk chooses random bytes that may follow until the
 * text is complete; N_INVALID texts do not satisfy the schema, N_DEAD walks ended in a position
 * without next byte. With "texts", the values of the finished walks follow as an array in a second
 * line. */
#include "base/mem.h"
#include "base/rng.h"
#include "constrain/json/json_instance.h"
#include "constrain/json/json_program.h"
#include "support/lines.h"
#include "testing/schema_validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WALK_MAX = 600, FINISH_MAX = 20000, TEXTS_MAX = 256 * MB };

struct counts {
    uint64_t compile_ns, step_ns, n_steps;
    size_t bytes;
    unsigned walks, invalid, dead, errors;
    struct buf texts; /* texts of finished walks */
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A byte that ends the text soon: brackets and quotation marks first. */
static int finishing_byte(const struct byte_set *next)
{
    static const char order[] = "}]\",:";

    if (byte_set_has(next, 'a') && byte_set_has(next, '"')) /* inside a string */
        return '"';
    for (size_t k = 0; k < sizeof(order) - 1; k++)
        if (byte_set_has(next, (uint8_t)order[k]))
            return order[k];
    for (int b = '!'; b < 256; b++)
        if (byte_set_has(next, (uint8_t)b))
            return b;
    return byte_set_has(next, '\n') ? '\n' : ' ';
}

static int random_byte(const struct byte_set *next, struct rng *r)
{
    unsigned n = 0, wanted;

    for (unsigned w = 0; w < 4; w++)
        n += (unsigned)__builtin_popcountll(next->w[w]);
    if (rng_below(r, 4) && byte_set_has(next, '"'))
        return '"';
    wanted = (unsigned)rng_below(r, n);
    for (int b = 0; b < 256; b++)
        if (byte_set_has(next, (uint8_t)b) && !wanted--)
            return b;
    return -1;
}

static void check_text(struct str text, struct schema_validator *v, struct counts *c)
{
    struct arena *a = arena_new(64 * MB);
    struct json *value;
    struct err e = { 0 };
    struct json_limits limits = { 1000, 4000000 };

    CHECK(a);
    if (json_parse(&value, text, a, &limits, &e) || schema_validate(v, value, &e) == 0) {
        c->invalid++;
        fprintf(stderr, "INVALID " STR_FMT "\n", STR_ARG(text));
    }
    arena_free(a);
}

/* Newlines are whitespace between JSON tokens: a string contains none. */
static void put_line(struct buf *b, struct str text)
{
    buf_putz(b, b->n ? "," : "");
    for (size_t k = 0; k < text.n; k++)
        buf_putc(b, text.p[k] == '\n' || text.p[k] == '\r' ? ' ' : text.p[k]);
}

static void walk(struct acceptor *a, struct schema_validator *v, struct rng *r, struct counts *c)
{
    struct buf text;
    pos_id p = POS_START;
    uint32_t mark = a->ops->mark(a);
    struct err e = { 0 };

    buf_init(&text, 1 * MB);
    c->walks++;
    for (int k = 0; k < FINISH_MAX; k++) {
        struct byte_set next = a->ops->next_bytes(a, p);
        bool accepts = a->ops->accepts(a, p);
        if (accepts && (byte_set_is_empty(&next) || k > WALK_MAX || !rng_below(r, 3))) {
            check_text(buf_str(&text), v, c);
            put_line(&c->texts, buf_str(&text));
            break;
        }
        if (byte_set_is_empty(&next)) {
            c->dead += !a->ops->check(a, &e);
            c->errors += a->ops->check(a, &e) != 0;
            fprintf(stderr, "DEAD END " STR_FMT "\n", STR_ARG(buf_str(&text)));
            break;
        }
        int byte = k < WALK_MAX ? random_byte(&next, r) : finishing_byte(&next);
        buf_putc(&text, (char)byte);
        p = a->ops->step(a, p, (uint8_t)byte);
        if (!p.i) {
            c->errors++;
            fprintf(stderr, "ERROR %s at byte %d\n", a->ops->check(a, &e) ? e.msg : "none", byte);
            break;
        }
        p = a->ops->keep(a, mark, p);
    }
    buf_clear(&text);
    a->ops->release(a, mark);
}

static bool accepts_value(struct acceptor *a, const struct json *m, struct counts *c)
{
    struct buf text;
    uint32_t mark = a->ops->mark(a);
    uint64_t start = now_ns();
    struct err e;

    buf_init(&text, 16 * MB);
    pos_id p = json_instance_read(a, POS_START, m, &text);
    bool accepts = p.i && a->ops->accepts(a, p);
    c->step_ns += now_ns() - start;
    c->n_steps += text.n;
    if (a->ops->check(a, &e)) {
        c->errors++;
        fprintf(stderr, "ERROR %s\n", e.msg);
    }
    buf_clear(&text);
    a->ops->release(a, mark);
    return accepts;
}

static int check_values(const struct json *request, const struct schema *s,
    const struct json_program *p, struct buf *digits, struct counts *c, struct err *e)
{
    const struct json *tests = json_get(request, "tests");
    int64_t n_walks = 0;
    struct acceptor *a = NULL;
    struct schema_validator *v = NULL;
    struct rng r = { .key = 1 };

    json_i64(json_get(request, "walks"), &n_walks);
    if (n_walks && schema_validator_new(&v, s, e))
        return -1;
    if (json_acceptor_new(&a, p, e)) {
        schema_validator_free(v);
        return -1;
    }
    for (const struct json *m = tests ? tests->child : NULL; m; m = m->next)
        buf_putc(digits, accepts_value(a, m, c) ? '1' : '0');
    for (int64_t k = 0; k < n_walks && !a->ops->check(a, e); k++)
        walk(a, v, &r, c);
    c->bytes = json_program_bytes(p);
    a->ops->free(a);
    schema_validator_free(v);
    return 0;
}

static void check_line(char *text, size_t n, void *ctx)
{
    struct str line = { text, n };
    struct arena *a = arena_new(1u << 30);
    struct json_limits limits = { 100000, 4000000 };
    struct schema_document documents[128];
    struct schema_options o = { .bytes_max = 1 * MB, .nodes_max = 500000, .documents = documents };
    struct json_program_options options = { 0 };
    struct buf digits;
    struct schema *s = NULL;
    struct json_program *p = NULL;
    struct json *request;
    struct counts c = { 0 };
    struct err e = { 0 };

    buf_init(&digits, 1 * MB);
    buf_init(&c.texts, TEXTS_MAX);
    CHECK(a && !json_parse(&request, line, a, &limits, &e));
    const struct json *schema = json_get(request, "schema");
    const struct json *known = json_get(request, "documents");
    const struct json *order = json_get(request, "any_order");
    const struct json *want_texts = json_get(request, "texts");
    CHECK(schema);
    options.any_order = order && order->b;
    for (const struct json *m = known ? known->child : NULL; m; m = m->next) {
        CHECK(o.n_documents < ARRAY_LEN(documents));
        documents[o.n_documents++] = (struct schema_document){ m->key, m->raw };
    }
    uint64_t start = now_ns();
    int rc = schema_new(&s, schema->raw, &o, &e);
    if (!rc)
        rc = json_program_new(&p, s, &options, &e);
    c.compile_ns = now_ns() - start;
    if (!rc)
        rc = check_values(request, s, p, &digits, &c, &e);
    if (rc)
        printf("error %s\n", e.msg);
    else
        printf("ok " STR_FMT " %llu %llu %llu %zu %u %u %u %u\n",
            STR_ARG(digits.n ? buf_str(&digits) : STR("-")), (unsigned long long)c.compile_ns,
            (unsigned long long)c.step_ns, (unsigned long long)c.n_steps, c.bytes, c.walks,
            c.invalid, c.dead, c.errors);
    if (!rc && want_texts && want_texts->b)
        printf("[" STR_FMT "]\n", STR_ARG(buf_str(&c.texts)));
    fflush(stdout);
    json_program_free(p);
    schema_free(s);
    buf_clear(&digits);
    buf_clear(&c.texts);
    arena_free(a);
}

int main(void)
{
    lines_each(check_line, NULL);
    return 0;
}
