/* constrain_engine: the InferFlux side of bench/constrain.py.
 *
 *     constrain_engine VOCABULARY
 *
 * VOCABULARY is a binary file of little-endian u32: number of tokens, id of the end token; then for
 * each token its length and its bytes (length 0: the token is not matched by bytes). Each line of
 * the input is a JSON object, each line of the output its result:
 *
 *     {"schema": S, "tests": [{"valid": BOOL, "ids": [TOKEN, ..]}, ..]}
 *     {"compile_us": T, "error": MESSAGE or null, "accepted": [BOOL, ..], "mask_us": [T, ..]}
 *
 * `compile_us` includes the first state. A sample of `mask_us` is one mask and the push of the next
 * token, in the valid instances; the mask after the last token is one more sample. */
#include "base/json.h"
#include "base/mem.h"
#include "constrain/constraint.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct token_file {
    struct str *tokens;
    uint32_t n, end;
};

struct session {
    const struct vocab_tables *tables;
    struct jw *masks; /* samples of the file */
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "constrain_engine: %s: %s\n", what, why);
    exit(1);
}

/* ---- vocabulary */

static struct str token_bytes(const void *ctx, int32_t id)
{
    return ((const struct token_file *)ctx)->tokens[id];
}

static bool token_is_end(const void *ctx, int32_t id)
{
    return (uint32_t)id == ((const struct token_file *)ctx)->end;
}

static uint32_t read_u32(FILE *f, const char *path)
{
    uint8_t b[4];

    if (fread(b, 1, sizeof(b), f) != sizeof(b))
        fail(path, "ends before its last token");
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* The file is small, and lives as long as the process. */
static void read_tokens(struct token_file *v, const char *path)
{
    enum { BYTES_MAX = 1 << 16 };
    FILE *f = fopen(path, "rb");

    if (!f)
        fail(path, "cannot be read");
    v->n = read_u32(f, path);
    v->end = read_u32(f, path);
    if (v->n == 0 || v->n > TOKEN_IDS_MAX || v->end >= v->n)
        fail(path, "the number of tokens or the end token is out of range");
    v->tokens = xcalloc(v->n, sizeof(*v->tokens));
    for (uint32_t k = 0; k < v->n; k++) {
        uint32_t length = read_u32(f, path);
        if (length > BYTES_MAX)
            fail(path, "a token is longer than 65,536 bytes");
        char *bytes = xcalloc(length + 1u, 1);
        if (fread(bytes, 1, length, f) != length)
            fail(path, "ends inside a token");
        v->tokens[k] = (struct str){ bytes, length };
    }
    fclose(f);
}

/* ---- one file */

/* One mask and the push of `id`, or with TOKEN_NONE the mask alone. Returns whether the token was
 * permitted; -1: error. */
static int measure_token(struct session *x, struct sample_constraint k, int32_t id, struct err *e)
{
    struct token_mask m;
    uint64_t start = clock_ns();
    bool is_permitted = true;

    if (k.ops->mask(k.self, UINT64_MAX, &m, e) != MASK_DONE)
        return -1;
    if (id != TOKEN_NONE)
        is_permitted = k.ops->push(k.self, id);
    jw_f64(x->masks, (double)(clock_ns() - start) / 1e3);
    return is_permitted;
}

/* 1: the tokens are permitted and the text is complete after them; 0: not; -1: error. */
static int run_test(
    struct session *x, struct constraint_state *s, const struct json *test, struct err *e)
{
    const struct json *valid = json_get(test, "valid"), *ids = json_get(test, "ids");
    struct sample_constraint k = constraint_state_ops(s);
    int rc = 1;

    if (!valid || !ids)
        return err_set(e, ERR_SYNTAX, "a test needs `valid` and `ids`");
    k.ops->reset(k.self);
    for (const struct json *m = ids->child; m && rc == 1; m = m->next) {
        int64_t id;
        if (!json_i64(m, &id) || id < 0 || id >= x->tables->n_tokens)
            return err_set(e, ERR_SYNTAX, "token " STR_FMT " is out of range", STR_ARG(m->raw));
        rc = valid->b ? measure_token(x, k, (int32_t)id, e) : k.ops->push(k.self, (int32_t)id);
    }
    if (rc == 1 && valid->b)
        rc = measure_token(x, k, TOKEN_NONE, e);
    return rc == 1 ? k.ops->accepts(k.self) : rc;
}

/* Each test has a state of its own, as each choice of a request. */
static int run_tests(struct session *x, struct constraint *c, struct constraint_state *first,
    const struct json *tests, struct jw *w, struct err *e)
{
    struct constraint_state *s = first;

    for (const struct json *t = tests ? tests->child : NULL; t; t = t->next) {
        if (!s && constraint_state_new(&s, c, e))
            return -1;
        int rc = run_test(x, s, t, e);
        constraint_state_free(s);
        s = NULL;
        if (rc < 0)
            return -1;
        jw_bool(w, rc == 1);
    }
    constraint_state_free(s);
    return 0;
}

static void run_file(struct session *x, const struct json *request, struct jw *w)
{
    const struct json *schema = json_get(request, "schema");
    struct constraint_source src = { .kind = CONSTRAINT_JSON_SCHEMA, .bytes_max = 1 * MB };
    struct constraint_state *s = NULL;
    struct constraint *c = NULL;
    struct err e = { 0 };

    if (!schema)
        fail("request", "`schema` is absent");
    src.text = schema->raw;
    uint64_t start = clock_ns();
    int rc = constraint_new(&c, &src, x->tables, &e);
    if (!rc)
        constraint_keep_states(c); /* as the compile cache of the server */
    rc = rc || constraint_state_new(&s, c, &e);
    jw_key(w, "compile_us");
    jw_f64(w, (double)(clock_ns() - start) / 1e3);
    jw_key(w, "accepted");
    jw_array(w);
    rc = rc || run_tests(x, c, s, json_get(request, "tests"), w, &e);
    jw_end_array(w);
    jw_key(w, "error");
    jw_z(w, rc ? e.msg : NULL);
    constraint_unref(c);
}

static void run_line(const struct vocab_tables *tables, struct str line)
{
    struct arena *a = arena_new(GB);
    struct json *request;
    struct buf out, samples;
    struct jw w, masks;
    struct session x = { tables, &masks };
    struct err e = { 0 };

    if (!a || json_parse(&request, line, a, &json_limits_default, &e))
        fail("request", a ? e.msg : "no memory");
    buf_init(&out, 64 * MB);
    buf_init(&samples, 256 * MB);
    jw_init(&w, &out);
    jw_init(&masks, &samples);
    jw_object(&w);
    jw_array(&masks);
    run_file(&x, request, &w);
    jw_end_array(&masks);
    jw_key(&w, "mask_us");
    jw_raw(&w, buf_str(&samples));
    jw_end_object(&w);
    printf(STR_FMT "\n", STR_ARG(buf_str(&out)));
    fflush(stdout);
    buf_clear(&out);
    buf_clear(&samples);
    arena_free(a);
}

int main(int argc, char **argv)
{
    struct token_file v = { 0 };
    struct vocab_tables *t = NULL;
    struct err e = { 0 };
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    if (argc != 2)
        fail("usage", "constrain_engine VOCABULARY");
    read_tokens(&v, argv[1]);
    struct token_source src = { &v, (int32_t)v.n, token_bytes, token_is_end, NULL };
    if (vocab_tables_new(&t, &src, &e))
        fail(argv[1], e.msg);
    while ((n = getline(&line, &cap, stdin)) > 0)
        run_line(t, (struct str){ line, (size_t)n });
    free(line); /* NOLINT: of getline */
    vocab_tables_free(t);
    return 0;
}
