#include "constrain/regular/automaton.h"

#include "base/mem.h"
#include "base/rng.h"
#include "support/language_kit.h"

static const char email[] =
    "^(?!\\.)(?!.*\\.\\.)[a-z\\p{Lo}.]{1,640}@(?:[a-z\\p{Lo}]{1,20}\\.){1,50}[a-z]{2,}$";

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

static void a_full_table_is_flushed_without_changing_an_answer(void)
{
    struct automaton *small = automaton_of(email, 1200 * KB), *large = automaton_of(email, 64 * MB);
    struct rng r = { .key = 1 };
    struct err e = { 0 };
    static const char letters[] = "ababababab.@";

    for (int n = 0; n < 300; n++) {
        state_id s = automaton_start(small), t = automaton_start(large);
        for (int k = 0; k < 400; k++) {
            uint8_t byte = (uint8_t)letters[rng_below(&r, sizeof(letters) - 1)];
            state_id s_next = automaton_step(small, s, byte);
            state_id t_next = automaton_step(large, t, byte);
            EXPECT_EQ(s_next.i == 0, t_next.i == 0);
            EXPECT_EQ(automaton_accepts(small, s_next), automaton_accepts(large, t_next));
            s = s_next.i ? s_next : s;
            t = t_next.i ? t_next : t;
        }
        struct byte_set p = automaton_next_bytes(small, s), q = automaton_next_bytes(large, t);
        EXPECT(!memcmp(&p, &q, sizeof(p)));
        EXPECT(automaton_bytes(small) <= 1200 * KB);
    }
    EXPECT_EQ(automaton_check(small, &e), 0);
    EXPECT(automaton_generation(small) > 2);
    EXPECT(!automaton_generation(large));
    automaton_free(small);
    automaton_free(large);
}

static void roots_keep_their_ids_in_a_flush(void)
{
    struct automaton *a = automaton_of("^[ab]{0,100000}c?$", 300 * KB);
    state_id held[3];
    struct automaton_roots roots = { .ids = held, .n = 3 };
    state_id s = automaton_start(a);

    for (int k = 0; k < 3; k++)
        s = held[k] = automaton_step(a, s, 'a');
    automaton_add_roots(a, &roots);
    for (int k = 0; k < 20000; k++)
        s = automaton_step(a, s, "ab"[k % 2]);
    EXPECT(automaton_generation(a) > 0);
    for (int k = 0; k < 2; k++)
        EXPECT_EQ(automaton_step(a, held[k], 'b').i, held[k + 1].i);
    EXPECT_EQ(automaton_step(a, automaton_start(a), 'b').i, held[0].i);
    automaton_remove_roots(a, &roots);
    automaton_free(a);
}

static void counters_need_one_state_per_character_of_the_text(void)
{
    struct automaton *a = automaton_of("^.{0,100000}$", 64 * MB);
    state_id s = automaton_start(a);

    EXPECT(automaton_bytes(a) < 128 * KB);
    for (int k = 0; k < 100000; k++)
        s = automaton_step(a, s, 'x');
    EXPECT(automaton_accepts(a, s));
    EXPECT_EQ(automaton_step(a, s, 'x').i, STATE_DEAD.i);
    EXPECT(automaton_states(a) < 100010);
    automaton_free(a);
}

static void states_of_equal_languages_are_equal(void)
{
    struct automaton *a = automaton_of("^(?:ab|cd)*x$", 1 * MB);
    state_id s = automaton_start(a);

    EXPECT_EQ(automaton_run(a, s, STR("ab")).i, s.i);
    EXPECT_EQ(automaton_run(a, s, STR("abcdab")).i, s.i);
    EXPECT(automaton_step(a, s, 'a').i != automaton_step(a, s, 'c').i);
    automaton_free(a);
}

static void the_only_next_byte_is_forced(void)
{
    struct automaton *a = automaton_of("^(?:order|orange)(?!s).?\xC3\xA9$", 1 * MB);
    state_id s = automaton_start(a);

    EXPECT_EQ(automaton_forced_byte(a, s), 'o');
    s = automaton_step(a, s, 'o');
    EXPECT_EQ(automaton_forced_byte(a, s), 'r');
    s = automaton_step(a, s, 'r');
    EXPECT_EQ(automaton_forced_byte(a, s), -1);
    s = automaton_run(a, s, STR("der"));
    EXPECT_EQ(automaton_step(a, s, 's').i, STATE_DEAD.i);
    s = automaton_run(a, s, STR("x"));
    EXPECT_EQ(automaton_forced_byte(a, s), 0xC3);
    s = automaton_run(a, s, STR("\xC3\xA9"));
    EXPECT(automaton_accepts(a, s));
    EXPECT_EQ(automaton_forced_byte(a, s), -1);
    EXPECT(byte_set_is_empty(&(struct byte_set){ { automaton_next_bytes(a, s).w[0] } }));
    automaton_free(a);
}

static void an_empty_language_starts_dead(void)
{
    struct automaton *a = automaton_of("^(?=a)b", 1 * MB);

    EXPECT_EQ(automaton_start(a).i, STATE_DEAD.i);
    EXPECT_EQ(automaton_step(a, STATE_DEAD, 'a').i, STATE_DEAD.i);
    EXPECT(!automaton_accepts(a, STATE_DEAD));
    automaton_free(a);
}

static void a_step_above_the_work_budget_is_an_error_that_stays(void)
{
    struct language l;
    struct automaton *a = NULL;
    struct err e = { 0 };
    expr_id root;

    language_begin(&l);
    EXPECT_EQ(pattern_compile(l.x, STR("^(?:(?:a|b|ab){0,50}c?){0,50}$"), TEXT_UTF8, PATTERN_SEARCH,
                  &root, &l.e),
        0);
    EXPECT_EQ(automaton_new(&a, l.x, root, (struct automaton_limits){ 16 * MB, 400 }, &l.e), 0);
    state_id s = automaton_start(a);
    for (int k = 0; k < 100 && s.i; k++)
        s = automaton_step(a, s, "ab"[k % 2]);
    EXPECT_EQ(s.i, STATE_DEAD.i);
    EXPECT_EQ(automaton_check(a, &e), -1);
    EXPECT(strstr(e.msg, "400 steps") != NULL);
    EXPECT_EQ(automaton_step(a, automaton_start(a), 'c').i, STATE_DEAD.i);
    automaton_free(a);
    language_end(&l);
}

static void a_failed_allocation_is_an_error(void)
{
    int n_failed = 0;

    for (uint64_t nth = 1; nth < 60; nth++) {
        struct language l;
        struct err e = { 0 };
        expr_id root;
        language_begin(&l);
        EXPECT_EQ(pattern_compile(
                      l.x, STR("^(?!abc)[a-z]{3,9}$"), TEXT_UTF8, PATTERN_SEARCH, &root, &l.e),
            0);
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        if (!language_start(&l, root)) {
            bool has = language_has(&l, "abcd") || !language_has(&l, "bcd");
            EXPECT(!has || automaton_check(l.a, &e) || automaton_generation(l.a));
        }
        mem_fail_after(0);
        n_failed += mem_failures() > before;
        language_end(&l);
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(20));
}

TESTS(TEST(a_full_table_is_flushed_without_changing_an_answer),
    TEST(roots_keep_their_ids_in_a_flush), TEST(counters_need_one_state_per_character_of_the_text),
    TEST(states_of_equal_languages_are_equal), TEST(the_only_next_byte_is_forced),
    TEST(an_empty_language_starts_dead), TEST(a_step_above_the_work_budget_is_an_error_that_stays),
    TEST(a_failed_allocation_is_an_error))
