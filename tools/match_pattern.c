/* match_pattern.c: compares texts with patterns, for tests against other implementations.
 *
 * Each line of the input is a request, each line of the output its result: one digit 0 or 1 per
 * text, or `error MESSAGE`. WHAT and TEXT are hexadecimal; `-` is the empty text.
 *
 *     search|full|json PATTERN TEXT...   texts of `json` are contents of JSON strings
 *     flags-FLAGS PATTERN TEXT...        search with the flags i, m, s
 *     format NAME TEXT...                string_format.h
 *     number OPTIONS TEXT...             min=N, xmin=N, max=N, xmax=N, mult=N, frac, exp, commas
 *     sample-KIND WHAT SEED              a text of the language, from a random walk
 *
 * The bytes of a sample are chosen from those that can be completed; the program aborts if the
 * walk reaches a dead end. */
#include "base/rng.h"
#include "constrain/regular/automaton.h"
#include "constrain/regular/number.h"
#include "constrain/regular/pattern.h"
#include "constrain/regular/string_format.h"
#include "support/lines.h"

#include <stdio.h>
#include <stdlib.h>

enum { WALK_MAX = 40, FINISH_MAX = 3000 };

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c - 'a' + 10;
}

static struct str from_hex(char *word) /* decodes in place */
{
    size_t n = strlen(word) / 2;

    for (size_t k = 0; k < n; k++)
        word[k] = (char)(hex_digit(word[2 * k]) * 16 + hex_digit(word[2 * k + 1]));
    return (struct str){ word, n };
}

/* Reads one option of a number. */
static int number_option(struct number_range *r, struct str option, struct err *e)
{
    ptrdiff_t equals = str_find(option, STR("="));
    struct str key = { option.p, equals < 0 ? option.n : (size_t)equals };
    struct decimal d = { 0 };

    if (equals >= 0 && decimal_parse(&d, str_skip(option, (size_t)equals + 1), e))
        return -1;
    r->allows_fraction |= str_is(key, "frac");
    r->allows_exponent |= str_is(key, "exp");
    if (str_ends(key, STR("min"))) {
        r->has_min = true;
        r->is_min_exclusive = key.n > 3;
        r->min = d;
    } else if (str_ends(key, STR("max"))) {
        r->has_max = true;
        r->is_max_exclusive = key.n > 3;
        r->max = d;
    } else if (str_is(key, "mult")) {
        r->has_multiple = true;
        r->multiple = d;
    }
    return 0;
}

static int compile_number(struct exprs *x, struct str options, expr_id *root, struct err *e)
{
    struct number_range r = { 0 };

    while (options.n) {
        ptrdiff_t comma = str_find(options, STR(","));
        size_t n = comma < 0 ? options.n : (size_t)comma;
        if (number_option(&r, (struct str){ options.p, n }, e))
            return -1;
        options = str_skip(options, n + 1);
    }
    return expr_number(x, &r, root, e);
}

/* `flags-ims`: a search with these flags */
static int compile_with_flags(
    struct exprs *x, const char *flags, struct str pattern, expr_id *root, struct err *e)
{
    struct pattern_options o = { TEXT_UTF8, PATTERN_SEARCH, 0 };

    o.flags |= strchr(flags, 'i') ? PATTERN_IGNORE_CASE : 0;
    o.flags |= strchr(flags, 'm') ? PATTERN_LINES : 0;
    o.flags |= strchr(flags, 's') ? PATTERN_DOT_ALL : 0;
    return pattern_compile_with(x, pattern, &o, root, e);
}

static int compile_kind(
    struct exprs *x, const char *kind, struct str what, expr_id *root, struct err *e)
{
    enum text_mode mode = strcmp(kind, "json") ? TEXT_UTF8 : TEXT_JSON;

    if (!strncmp(kind, "flags-", 6))
        return compile_with_flags(x, kind + 6, what, root, e);
    if (!strcmp(kind, "number"))
        return compile_number(x, what, root, e);
    if (!strcmp(kind, "format") && !string_format_is_known(what))
        return err_set(e, ERR_NOT_FOUND, "unknown format");
    if (!strcmp(kind, "format"))
        return string_format_compile(x, what, TEXT_UTF8, root, e);
    return pattern_compile(
        x, what, mode, strcmp(kind, "full") ? PATTERN_SEARCH : PATTERN_FULL, root, e);
}

static int compile(const char *kind, struct str what, struct automaton **a, struct err *e)
{
    struct exprs *x = exprs_new((struct expr_limits){ 32 * MB, 4000000 });
    struct automaton_limits limits = { 32 * MB, 4000000 };
    expr_id root;
    int rc = x ? compile_kind(x, kind, what, &root, e) : -1;

    if (!rc)
        rc = automaton_new(a, x, root, limits, e);
    exprs_free(x);
    return rc;
}

/* A random byte that can follow; -1 if there is none. */
static int random_byte(struct automaton *a, state_id s, struct rng *r)
{
    struct byte_set next = automaton_next_bytes(a, s);
    uint8_t allowed[256];
    size_t n = 0;

    for (unsigned b = 0; b < 256; b++)
        if (byte_set_has(&next, (uint8_t)b))
            allowed[n++] = (uint8_t)b;
    return n ? allowed[rng_below(r, n)] : -1;
}

static void sample(struct automaton *a, uint64_t seed)
{
    struct rng r = { .key = seed };
    state_id s = automaton_start(a);
    uint64_t length = rng_below(&r, WALK_MAX);

    for (uint64_t k = 0; s.i && k < FINISH_MAX; k++) {
        if (automaton_accepts(a, s) && k >= length)
            break;
        int byte = random_byte(a, s, &r);
        CHECK(byte >= 0 || automaton_accepts(a, s)); /* otherwise it is a dead end */
        if (byte < 0)
            break;
        printf("%02x", (unsigned)byte);
        s = automaton_step(a, s, (uint8_t)byte);
    }
    printf(automaton_accepts(a, s) ? " accepted\n" : " unfinished\n");
}

static void respond(char *line, size_t n, void *ctx)
{
    char *rest = NULL, *kind = strtok_r(line, " ", &rest), *word = strtok_r(NULL, " ", &rest);
    struct automaton *a = NULL;
    struct err e = { 0 };
    bool is_sample = kind && !strncmp(kind, "sample-", 7);

    kind += is_sample ? 7 : 0;
    if (!kind || compile(kind, word ? from_hex(word) : STR(""), &a, &e)) {
        printf("error %s\n", e.msg);
        return;
    }
    word = strtok_r(NULL, " ", &rest);
    if (is_sample) {
        sample(a, word ? strtoull(word, NULL, 10) : 0);
    } else {
        for (; word; word = strtok_r(NULL, " ", &rest)) {
            struct str text = strcmp(word, "-") ? from_hex(word) : STR("");
            putchar('0' + automaton_accepts(a, automaton_run(a, automaton_start(a), text)));
        }
        printf(automaton_check(a, &e) ? " error %s\n" : "\n", e.msg);
    }
    automaton_free(a);
}

int main(void)
{
    lines_each(respond, NULL);
    return 0;
}
