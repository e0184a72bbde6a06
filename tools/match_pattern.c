/* match_pattern.c: compares texts with patterns, for tests against other implementations.
 *
 * Each line of the input is a request, each line of the output its result: one digit 0 or 1 per
 * text, or `error MESSAGE`. PATTERN and TEXT are hexadecimal.
 *
 *     search|full|json PATTERN TEXT...   texts of `json` are contents of JSON strings
 *     sample PATTERN SEED                a text that matches as a whole, from a random walk
 *
 * The bytes of a sample are chosen from those that can be completed; the program aborts if the
 * walk reaches a dead end. */
#include "base/rng.h"
#include "constrain/automaton.h"
#include "constrain/pattern.h"

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

static int compile(const char *kind, struct str pattern, struct automaton **a, struct err *e)
{
    struct exprs *x = exprs_new((struct expr_limits){ 32 * MB, 4000000 });
    enum text_mode mode = strcmp(kind, "json") ? TEXT_UTF8 : TEXT_JSON;
    bool is_full = !strcmp(kind, "full") || !strcmp(kind, "sample");
    struct automaton_limits limits = { 32 * MB, 4000000 };
    expr_id root;
    int rc =
        x ? pattern_compile(x, pattern, mode, is_full ? PATTERN_FULL : PATTERN_SEARCH, &root, e)
          : -1;

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

static void respond(char *line)
{
    char *rest = NULL, *kind = strtok_r(line, " \n", &rest), *word = strtok_r(NULL, " \n", &rest);
    struct automaton *a = NULL;
    struct err e = { 0 };

    if (!kind || compile(kind, word ? from_hex(word) : STR(""), &a, &e)) {
        printf("error %s\n", e.msg);
        return;
    }
    word = strtok_r(NULL, " \n", &rest);
    if (!strcmp(kind, "sample")) {
        sample(a, word ? strtoull(word, NULL, 10) : 0);
    } else {
        for (; word; word = strtok_r(NULL, " \n", &rest)) {
            struct str text = strcmp(word, "-") ? from_hex(word) : STR("");
            putchar('0' + automaton_accepts(a, automaton_run(a, automaton_start(a), text)));
        }
        printf(automaton_check(a, &e) ? " error %s\n" : "\n", e.msg);
    }
    automaton_free(a);
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;

    while (getline(&line, &cap, stdin) > 0) {
        respond(line);
        fflush(stdout);
    }
    free(line);
    return 0;
}
