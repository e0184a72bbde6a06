#include "constrain/vocab/class_reach.h"

#include "base/mem.h"
#include "support/language_kit.h"

static uint32_t reach(struct automaton *a, const char *text, enum token_class class, uint32_t n_max)
{
    struct class_reach *r = class_reach_new(a);
    state_id s = automaton_run(a, automaton_start(a), str_of(text));
    struct automaton_roots roots = { .ids = &s, .n = 1 };
    uint64_t steps = 0;

    EXPECT(r != NULL);
    automaton_add_roots(a, &roots);
    uint32_t n = class_reach_get(r, s, class, n_max, &steps);
    EXPECT_EQ(class_reach_get(r, s, class, n_max, &steps), n); /* stored */
    automaton_remove_roots(a, &roots);
    class_reach_free(r);
    return n;
}

static void the_reach_is_the_number_of_characters_left(void)
{
    static const struct {
        const char *pattern, *text;
        enum token_class class;
        uint32_t n_max, n;
    } rows[] = { { "^[^\"\\\\\\x00-\\x1f]{0,9}\"$", "ab", CLASS_STRING, 32, 7 },
        { "^[^\"\\\\\\x00-\\x1f]{0,9}\"$", "ab", CLASS_STRING, 5, 5 },
        { "^[^\"\\\\\\x00-\\x1f]{0,9}\"$", "abcabcabc", CLASS_STRING, 32, 0 },
        { "^[^\"\\\\\\x00-\\x1f]{4,9}\"$", "", CLASS_STRING, 32, 9 },
        { "^[^\"\\\\\\x00-\\x1f]*\"$", "ab", CLASS_STRING, 32, 32 },
        { "^[^]*$", "ab", CLASS_STRING, 32, 32 }, { "^[^]*$", "ab", CLASS_DIGITS, 8, 8 },
        /* one character is not permitted, or leads to another state */
        { "^[^\"\\\\\\x00-\\x1fx]*$", "", CLASS_STRING, 32, 0 },
        { "^[^\"\\\\\\x00-\\x1f\\ud7ff]*$", "", CLASS_STRING, 32, 0 },
        /* several states, none of which is dead */
        { "^(?:[^]|\\u20acz)*y$", "", CLASS_STRING, 32, 32 },
        { "[0-9a-f]{24}", "xy0123", CLASS_STRING, 32, 32 },
        { "^[^]{2}[0-9]{4}|[0-9]-[0-9]$", "", CLASS_STRING, 32, 32 },
        { "^[^]{2}[0-9]{4}$", "", CLASS_STRING, 32, 0 },
        { "^(?:a[^]{30}|[^a][^]{20})$", "", CLASS_STRING, 40, 0 },
        { "^[^]{3}[a-z]*$", "", CLASS_STRING, 32, 0 }, { "^[^]{3}[a-z]*$", "", CLASS_STRING, 3, 3 },
        { "^[0-9]{1,4}$", "1", CLASS_DIGITS, 32, 3 }, { "^[0-9]{1,4}x$", "1", CLASS_STRING, 32, 0 },
        { "^-?(?:0|[1-9][0-9]{0,5})$", "-", CLASS_DIGITS, 32, 0 },
        { "^-?(?:0|[1-9][0-9]{0,5})$", "-7", CLASS_DIGITS, 32, 5 },
        { "^[0-9]+[05]$", "1", CLASS_DIGITS, 32, 0 },
        { "^\\n[ \\t]{0,6}x$", "\n ", CLASS_BLANKS, 32, 5 },
        { "^\\n {0,6}x$", "\n ", CLASS_BLANKS, 32, 0 }, { "^abc$", "a", CLASS_STRING, 32, 0 } };

    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        struct language l;
        EXPECT_EQ(language_of_pattern(&l, rows[k].pattern, TEXT_UTF8), 0);
        uint32_t n = reach(l.a, rows[k].text, rows[k].class, rows[k].n_max);
        if (n != rows[k].n)
            printf("%s after '%s': %u\n", rows[k].pattern, rows[k].text, n);
        EXPECT_EQ(n, rows[k].n);
        language_end(&l);
    }
}

static struct automaton *automaton_of(const char *pattern, size_t bytes_max)
{
    struct language l;
    struct automaton *a = NULL;
    expr_id root;

    language_begin(&l);
    EXPECT_EQ(pattern_compile(l.x, str_of(pattern), TEXT_UTF8, PATTERN_SEARCH, &root, &l.e), 0);
    EXPECT_EQ(
        automaton_new(&a, l.x, root, (struct automaton_limits){ bytes_max, 1000000 }, &l.e), 0);
    language_end(&l);
    return a;
}

/* The reach of an automaton that is flushed in the middle equals that of a large one, also where
 * other states take the ids of dropped ones. */
static void compare_with_small_automaton(size_t bytes_max)
{
    static const char pattern[] = "^(?:[^]{0,3000}|[^x]{0,40}x?[^]{0,3000})$";
    struct automaton *small = automaton_of(pattern, bytes_max),
                     *large = automaton_of(pattern, 64 * MB);
    struct class_reach *r[2] = { class_reach_new(small), class_reach_new(large) };
    state_id s[2] = { STATE_START, STATE_START };
    struct automaton_roots roots = { .ids = s, .n = 1 };
    uint64_t steps = 0;

    automaton_add_roots(small, &roots);
    for (int k = 0; k < 400; k++) {
        for (enum token_class c = 0; c < N_TOKEN_CLASSES; c++)
            EXPECT_EQ(class_reach_get(r[0], s[0], c, 32, &steps),
                class_reach_get(r[1], s[1], c, 32, &steps));
        uint8_t byte = (uint8_t) "123abcx d"[k % 9];
        s[0] = automaton_step(small, s[0], byte);
        s[1] = automaton_step(large, s[1], byte);
    }
    EXPECT(s[0].i != 0 && automaton_generation(small) > 10 && !automaton_generation(large));
    for (int k = 0; k < 2; k++)
        class_reach_free(r[k]);
    automaton_remove_roots(small, &roots);
    automaton_free(small);
    automaton_free(large);
}

static void flushes_do_not_change_the_reach(void)
{
    for (size_t kb = 120; kb < 180; kb += 5)
        compare_with_small_automaton(kb * KB);
}

TESTS(TEST(the_reach_is_the_number_of_characters_left), TEST(flushes_do_not_change_the_reach))
