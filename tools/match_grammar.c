/* Compiles grammars and compares texts with them, for tests/golden/test_lark.py.
 *
 * Input, one request per line, words in hexadecimal digits, `-` for an empty one:
 *
 *     KIND GRAMMAR TEXT..         KIND: gbnf, lark, structural_tag
 *
 * Output: `error MESSAGE`, or for each text `a` (accepted), `v` (a prefix of an accepted text) or
 * `-` (neither). */
#include "constrain/grammar/gbnf.h"
#include "constrain/grammar/grammar_acceptor.h"
#include "constrain/grammar/lark.h"
#include "constrain/grammar/structural_tag.h"
#include "support/lines.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int (*read)(struct grammar *g, struct str text, rule_id *root, struct err *e);
} kinds[] = {
    { "gbnf", gbnf_read },
    { "lark", lark_read },
    { "structural_tag", structural_tag_read },
};

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c - 'a' + 10;
}

static struct str from_hex(char *word) /* decodes in place */
{
    size_t n = strcmp(word, "-") ? strlen(word) / 2 : 0;

    for (size_t k = 0; k < n; k++)
        word[k] = (char)(hex_digit(word[2 * k]) * 16 + hex_digit(word[2 * k + 1]));
    return (struct str){ word, n };
}

static int compile(
    struct grammar *g, const char *kind, struct str text, struct acceptor **a, struct err *e)
{
    size_t k = 0;
    rule_id root;

    while (k < ARRAY_LEN(kinds) && strcmp(kind, kinds[k].name))
        k++;
    if (k == ARRAY_LEN(kinds))
        return err_set(e, ERR_INVALID, "unknown kind");
    if (kinds[k].read(g, text, &root, e) || grammar_finish(g, root, e))
        return -1;
    if (grammar_json_count(g))
        return err_set(e, ERR_UNSUPPORTED, "the grammar contains JSON values");
    return grammar_acceptor_new(a, g, &grammar_acceptor_limits_default, NULL, e);
}

static char result_of(struct acceptor *a, struct str text)
{
    pos_id p = POS_START;

    for (size_t k = 0; k < text.n && p.i; k++)
        p = a->ops->step(a, p, (uint8_t)text.p[k]);
    return a->ops->accepts(a, p) ? 'a' : p.i ? 'v' : '-';
}

static void respond(char *line, size_t n, void *ctx)
{
    char *rest = NULL, *kind = strtok_r(line, " ", &rest), *word = strtok_r(NULL, " ", &rest);
    struct grammar *g = grammar_new(&grammar_limits_default, NULL);
    struct acceptor *a = NULL;
    struct err e = { 0 };

    if (!g || !kind || !word || compile(g, kind, from_hex(word), &a, &e)) {
        printf("error %s\n", e.msg);
    } else {
        while ((word = strtok_r(NULL, " ", &rest))) {
            putchar(result_of(a, from_hex(word)));
            a->ops->release(a, 2); /* all positions but the start */
        }
        printf(a->ops->check(a, &e) ? " error %s\n" : "\n", e.msg);
    }
    if (a)
        a->ops->free(a);
    grammar_free(g);
}

int main(void)
{
    lines_each(respond, NULL);
    return 0;
}
