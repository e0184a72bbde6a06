#include "constrain/compile_cache.h"

#include "support/token_kit.h"

#include <pthread.h>
#include <stdio.h>

static struct str bytes_of(const void *ctx, int32_t id)
{
    static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789";

    return id < 36 ? (struct str){ all + id, 1 } : STR_NONE;
}

static bool is_end(const void *ctx, int32_t id)
{
    return id == 36;
}

static struct vocab_tables *tables(void)
{
    struct token_source src = { NULL, 37, bytes_of, is_end };

    return token_kit_tables(&src);
}

/* The constraint of a pattern, without a reference. */
static const struct constraint *get(
    struct compile_cache *c, const struct vocab_tables *t, const char *pattern, const char *tenant)
{
    struct constraint_source src = { .kind = CONSTRAINT_REGEX, .text = str_of(pattern) };
    struct constraint *out = NULL;
    struct err e = { 0 };

    if (compile_cache_get(c, &out, &src, t, str_of(tenant), &e))
        return NULL;
    constraint_unref(out);
    return out;
}

static void an_entry_is_found_by_all_parts_of_its_key(void)
{
    struct compile_cache *c = compile_cache_new(COMPILE_CACHE_BYTES_DEFAULT);
    struct vocab_tables *t = tables(), *u = tables();
    struct constraint_source closed = { .kind = CONSTRAINT_REGEX, .text = STR("abc") };
    struct constraint *out;
    struct err e = { 0 };
    const struct constraint *first = get(c, t, "abc", "one");

    EXPECT(first != NULL && get(c, t, "abc", "one") == first);
    EXPECT_EQ(compile_cache_stats(c).n_hits, 1u);
    EXPECT(get(c, t, "abd", "one") != first && get(c, t, "abc", "two") != first);
    EXPECT(get(c, u, "abc", "one") != first && get(c, t, "abc", "") != first);
    closed.closed_objects = true;
    EXPECT_EQ(compile_cache_get(c, &out, &closed, t, STR("one"), &e), 0);
    EXPECT(out != first);
    constraint_unref(out);
    EXPECT_EQ(compile_cache_stats(c).n_misses, 6u);
    EXPECT_EQ(compile_cache_stats(c).n_entries, 6u);
    compile_cache_drop(c, t);
    EXPECT_EQ(compile_cache_stats(c).n_entries, 1u);
    get(c, u, "abc", "one");
    EXPECT_EQ(compile_cache_stats(c).n_hits, 2u);
    compile_cache_free(c);
    vocab_tables_free(t);
    vocab_tables_free(u);
}

static void kept_states_are_counted_from_the_second_use_on(void)
{
    struct compile_cache *c = compile_cache_new(COMPILE_CACHE_BYTES_DEFAULT);
    struct compile_cache *small = compile_cache_new(COMPILE_CACHE_SHARES * CONSTRAINT_IDLE_BYTES);
    struct vocab_tables *t = tables();

    get(c, t, "abc", "one");
    size_t once = compile_cache_stats(c).bytes;
    EXPECT(once < CONSTRAINT_IDLE_BYTES);
    for (int k = 0; k < 3; k++) {
        EXPECT(get(c, t, "abc", "one") != NULL);
        EXPECT_EQ(compile_cache_stats(c).bytes, once + CONSTRAINT_IDLE_BYTES);
        EXPECT_EQ(compile_cache_stats(c).n_entries, 1u);
    }
    /* they do not fit into the share of the tenant */
    for (int k = 0; k < 3; k++)
        EXPECT(get(small, t, "abc", "one") != NULL);
    EXPECT_EQ(compile_cache_stats(small).bytes, once);
    compile_cache_free(c);
    compile_cache_free(small);
    vocab_tables_free(t);
}

static void an_error_is_returned_and_not_stored(void)
{
    struct compile_cache *c = compile_cache_new(COMPILE_CACHE_BYTES_DEFAULT);
    struct vocab_tables *t = tables();
    struct constraint_source src = { .kind = CONSTRAINT_REGEX, .text = STR("(a") };
    struct constraint *out = NULL;

    for (int n = 0; n < 2; n++) {
        struct err e = { 0 };
        EXPECT_EQ(compile_cache_get(c, &out, &src, t, STR_NONE, &e), -1);
        EXPECT(e.code != ERR_NONE && e.msg[0]);
    }
    EXPECT_EQ(compile_cache_stats(c).n_misses, 2u);
    EXPECT_EQ(compile_cache_stats(c).n_entries, 0u);
    compile_cache_free(c);
    vocab_tables_free(t);
}

/* The entries of one tenant are evicted within its share; those of another one stay. */
static void a_tenant_evicts_its_own_entries_first(void)
{
    struct compile_cache *c = compile_cache_new(512 * KB);
    struct vocab_tables *t = tables();
    char pattern[32];

    get(c, t, "zz", "two");
    for (int n = 0; n < 200; n++) {
        snprintf(pattern, sizeof(pattern), "a{%d}", n + 1);
        EXPECT(get(c, t, pattern, "one") != NULL);
        EXPECT(compile_cache_stats(c).bytes <= 512 * KB / COMPILE_CACHE_SHARES + 32 * KB);
    }
    struct compile_cache_stats before = compile_cache_stats(c);
    EXPECT(before.n_evictions > 100 && before.n_entries > 4);
    get(c, t, "zz", "two");
    get(c, t, pattern, "one");
    EXPECT_EQ(compile_cache_stats(c).n_hits, before.n_hits + 2);
    get(c, t, "a{1}", "one");
    EXPECT_EQ(compile_cache_stats(c).n_misses, before.n_misses + 1);
    for (int n = 0; n < 200; n++) { /* tenants without number share the memory */
        snprintf(pattern, sizeof(pattern), "%d", n);
        EXPECT(get(c, t, "abc", pattern) != NULL);
        EXPECT(compile_cache_stats(c).bytes <= 512 * KB);
    }
    compile_cache_free(c);
    vocab_tables_free(t);
}

static void without_memory_nothing_is_stored(void)
{
    struct compile_cache *c = compile_cache_new(0);
    struct vocab_tables *t = tables();

    EXPECT(get(c, t, "abc", "one") != NULL);
    EXPECT_EQ(compile_cache_stats(c).n_entries, 0u);
    compile_cache_free(c);
    vocab_tables_free(t);
}

static void a_reference_outlives_the_cache(void)
{
    struct compile_cache *c = compile_cache_new(1 * MB);
    struct vocab_tables *t = tables();
    struct constraint_source src = { .kind = CONSTRAINT_REGEX, .text = STR("abc") };
    struct constraint *out = NULL;
    struct constraint_state *s = NULL;
    struct err e = { 0 };

    EXPECT_EQ(compile_cache_get(c, &out, &src, t, STR_NONE, &e), 0);
    compile_cache_free(c);
    EXPECT_EQ(constraint_state_new(&s, out, &e), 0);
    constraint_unref(out);
    EXPECT_EQ(constraint_state_read(s, STR("abc")), 3u);
    constraint_state_free(s);
    vocab_tables_free(t);
}

struct user {
    pthread_t thread;
    struct compile_cache *c;
    const struct vocab_tables *t;
    pthread_barrier_t *start;
    uint64_t seed;
};

static void *run_user(void *arg)
{
    struct user *u = arg;
    struct rng r = { .key = u->seed };
    char pattern[64], tenant[2] = "0";

    for (int n = 0; n < 60; n++) {
        if (n % 10 == 0)
            pthread_barrier_wait(u->start); /* all threads need the same constraint */
        uint64_t which = n % 10 == 0 ? 1000 + (uint64_t)n : rng_below(&r, 40);
        tenant[0] = (char)('0' + (n % 10 == 0 ? 0 : rng_below(&r, 3)));
        const char *tail = which % 7 == 0 ? "(" : "";
        snprintf(pattern, sizeof(pattern), "(?!a{9})[a-z]{%u,3000}%s", (unsigned)which, tail);
        EXPECT_EQ(get(u->c, u->t, pattern, tenant) != NULL, which % 7 != 0);
    }
    return NULL;
}

static void threads_wait_for_one_compilation(void)
{
    struct compile_cache *c = compile_cache_new(128 * KB);
    struct vocab_tables *t = tables();
    struct user users[4];
    pthread_barrier_t start;

    EXPECT(!pthread_barrier_init(&start, NULL, ARRAY_LEN(users)));
    for (size_t n = 0; n < ARRAY_LEN(users); n++) {
        users[n] = (struct user){ .c = c, .t = t, .start = &start, .seed = n };
        EXPECT(!pthread_create(&users[n].thread, NULL, run_user, &users[n]));
    }
    for (size_t n = 0; n < ARRAY_LEN(users); n++)
        EXPECT(!pthread_join(users[n].thread, NULL));
    struct compile_cache_stats s = compile_cache_stats(c);
    EXPECT_EQ(s.n_hits + s.n_misses, 240u);
    EXPECT(s.n_hits > 0 && s.bytes <= 128 * KB);
    pthread_barrier_destroy(&start);
    compile_cache_free(c);
    vocab_tables_free(t);
}

static void a_failed_allocation_is_an_error(void)
{
    struct vocab_tables *t = tables();
    int n_failed = 0;

    for (uint64_t nth = 1; nth < 30; nth++) {
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        struct compile_cache *c = compile_cache_new(1 * MB);
        bool is_made = c && get(c, t, "abc", "one");
        mem_fail_after(0);
        EXPECT_EQ(is_made, mem_failures() == before);
        EXPECT(!c || get(c, t, "abc", "one"));
        n_failed += !is_made;
        compile_cache_free(c);
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(8));
    vocab_tables_free(t);
}

TESTS(TEST(kept_states_are_counted_from_the_second_use_on),
    TEST(an_entry_is_found_by_all_parts_of_its_key), TEST(an_error_is_returned_and_not_stored),
    TEST(a_tenant_evicts_its_own_entries_first), TEST(without_memory_nothing_is_stored),
    TEST(a_reference_outlives_the_cache), TEST(threads_wait_for_one_compilation),
    TEST(a_failed_allocation_is_an_error))
