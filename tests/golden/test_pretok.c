/* Pre-tokenizers compared with the splits of a regular expression engine for the published
 * expressions. tests/golden/test_pretok.py makes the vectors: a few of them are in pretok.txt;
 * the script makes new ones and passes their file in PRETOK_VECTORS.
 *
 * A line is: pre-tokenizer, text in hexadecimal, lengths of its words in bytes. */
#include "support/check.h"

#include "base/mem.h"
#include "tokenizer/pretok.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_LINE = 1 << 16 };

struct lengths {
    size_t at[MAX_LINE / 2];
    size_t n;
};

static int note_length(void *ctx, struct str word)
{
    struct lengths *l = ctx;

    l->at[l->n++] = word.n;
    return 0;
}

static size_t unhex(const char *hex, char *out)
{
    size_t n = 0;
    unsigned byte;

    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        out[n++] = (char)byte;
    return n;
}

static bool expect_lengths(const char *hex, char *lengths, const struct lengths *got)
{
    char *end = lengths;

    for (size_t i = 0; i < got->n; i++) {
        size_t want = strtoul(lengths, &end, 10);
        if (end == lengths || want != got->at[i]) {
            fprintf(
                stderr, "%s: word %zu has %zu bytes, should have %zu\n", hex, i, got->at[i], want);
            return false;
        }
        lengths = end;
    }
    return *end == '\n' || *end == '\0';
}

static void splits_equal_those_of_the_expressions(void)
{
    const char *path = getenv("PRETOK_VECTORS");
    FILE *f = fopen(path && *path ? path : "tests/golden/pretok.txt", "r");
    char *line = xmalloc(MAX_LINE), *text = xmalloc(MAX_LINE);
    struct lengths *got = xmalloc(sizeof(*got));
    size_t n_lines = 0, n_wrong = 0;

    EXPECT(f);
    for (; fgets(line, MAX_LINE, f); n_lines++) {
        char *hex = strchr(line, ' ');
        EXPECT(hex);
        *hex++ = '\0';
        char *lengths = strchr(hex, ' ');
        EXPECT(lengths);
        *lengths++ = '\0';
        const struct pretok *p = pretok_find(str_of(line));
        EXPECT(p);
        got->n = 0;
        EXPECT_EQ(pretok_split(p, (struct str){ text, unhex(hex, text) }, note_length, got), 0);
        if (!expect_lengths(hex, lengths, got) && n_wrong++ < 5)
            fprintf(stderr, "  by %s\n", line);
    }
    printf("%zu texts, %zu wrong\n", n_lines, n_wrong);
    fclose(f);
    mem_free(line);
    mem_free(text);
    mem_free(got);
    EXPECT(n_lines >= 200);
    EXPECT_EQ(n_wrong, 0ul);
}

static int stop_walk(void *ctx, struct str word)
{
    return ++*(int *)ctx == 2 ? 7 : 0;
}

static void walk_can_be_stopped(void)
{
    int n = 0;

    EXPECT_EQ(pretok_split(pretok_find(STR("gpt-2")), STR("a b c d"), stop_walk, &n), 7);
    EXPECT_EQ(n, 2);
    n = 0;
    EXPECT_EQ(pretok_split(pretok_find(STR("default")), STR("a b!c d"), stop_walk, &n), 7);
    EXPECT_EQ(n, 2);
    EXPECT(!pretok_find(STR("gpt-")) && !pretok_find(STR("")));
}

TESTS(TEST(splits_equal_those_of_the_expressions), TEST(walk_can_be_stopped))
