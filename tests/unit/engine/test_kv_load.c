/* Evicted KV pages are loaded from the offload tier, in the same process and in a later one.
 * Damage of any byte at any time is a cache miss: the output equals that of an engine without a
 * tier. */
#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "testing/fake.h"
#include "support/tmpdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static uint32_t n_states; /* state slots of the models below; 0: no recurrent layers */
static int window;        /* 0: no windowed layers */

enum { VOCAB = 50, N_PROMPT = 4 * PAGE_TOKENS + 3, OUT = 6, N_PAGES = 12, TEXTS = 8 };

static const uint8_t digest[32] = "the fake";
static char dir[TMPDIR_NAME];

/* Calls fn for each file that contains pages. */
static void each_segment(const char *in, void (*fn)(const char *path))
{
    DIR *d = opendir(in);
    struct dirent *f;

    EXPECT(d);
    while ((f = readdir(d))) {
        char path[600];
        snprintf(path, sizeof(path), "%s/%s", in, f->d_name);
        if (strstr(f->d_name, ".seg"))
            fn(path);
        else if (strlen(f->d_name) > 12)
            each_segment(path, fn);
    }
    closedir(d);
}

static struct engine *engine_with(struct engine_options o, const char *disk, uint64_t bytes)
{
    struct fake_options f = { .n_vocab = VOCAB,
        .n_ctx_train = N_PAGES * PAGE_TOKENS,
        .max_rows = 64,
        .n_pages = N_PAGES,
        .n_layers = n_states ? 3 : 0,
        .n_states = n_states,
        .window = window,
        .seed = 1 };
    const struct kernels *k;
    struct engine *en;
    struct lm *lm;
    struct err e;

    o.model_digest = digest;
    o.kv_disk = disk;
    o.kv_disk_bytes = bytes;
    o.kv_disk_always = true;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_fake(&lm, &f, &e), 0);
    EXPECT_EQ(engine_open(&en, lm, k, &o, &e), 0);
    return en;
}

static struct engine *engine_of(const char *disk, uint64_t bytes)
{
    return engine_with(engine_options_default, disk, bytes);
}

struct result {
    int32_t tokens[OUT];
    float logprobs[OUT];
    int n, n_cached;
};

static void write_prompt(int32_t *prompt, int text)
{
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (i < PAGE_TOKENS ? i : i * i + text * 7) % VOCAB; /* common prefix */
}

static struct result generate(struct engine *en, int text)
{
    int32_t prompt[N_PROMPT];
    struct gen_input in = { .cache_prompt = true,
        .prompt = prompt,
        .n_prompt = N_PROMPT,
        .max_tokens = OUT,
        .n_choices = 1,
        .sample = sample_params_default };
    struct result t = { 0 };
    struct mailbox *box;
    struct gen *g;
    struct err e;

    write_prompt(prompt, text);
    in.sample.want_logprobs = true;
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    EXPECT_EQ(gen_new(&g, &in, box, NULL, &e), 0);
    EXPECT_EQ(engine_submit(en, g, &e), 0);
    for (bool is_over = false; !is_over;) {
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(box), *next; m; m = next) {
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            next = m->next;
            is_over |= m->kind == GEN_END;
            if (m->kind == GEN_TOKEN) {
                t.logprobs[t.n] = ev->token.logprob;
                t.tokens[t.n++] = ev->token.id;
            }
            gen_event_done(ev);
        }
    }
    EXPECT(gen_result(g)->err.code == ERR_NONE);
    t.n_cached = gen_result(g)->n_cached;
    gen_free(g);
    mailbox_close(box);
    return t;
}

static struct result expected[TEXTS];

static void compute_expected(void)
{
    struct engine *en = engine_of(NULL, 0);

    for (int i = 0; i < TEXTS; i++)
        expected[i] = generate(en, i);
    engine_close(en);
}

/* Returns the number of prompt tokens found in the cache. */
static int expect_outputs(struct engine *en)
{
    struct engine_audit a;
    int n_cached = 0;

    for (int i = 0; i < TEXTS; i++) {
        struct result t = generate(en, i);
        EXPECT_EQ(t.n, OUT);
        EXPECT(!memcmp(t.tokens, expected[i].tokens, sizeof(t.tokens)));
        EXPECT(!memcmp(t.logprobs, expected[i].logprobs, sizeof(t.logprobs)));
        n_cached += t.n_cached;
    }
    engine_audit(en, &a);
    EXPECT(a.ok && a.pages_owned == 0);
    return n_cached;
}

static void evicted_pages_are_loaded_also_after_a_restart(void)
{
    tmpdir_make(dir);
    compute_expected();
    struct engine *en = engine_of(dir, 1 << 24);

    /* The time until a page is on disk is not specified: repeat until a page is loaded. */
    for (int i = 0; !engine_stats(en)->prefix.disk_pages_read; i++) {
        expect_outputs(en);
        EXPECT(i < 1000);
    }
    EXPECT(engine_stats(en)->prefix.disk_written > 0);
    engine_close(en); /* writes the pages that are still queued */
    en = engine_of(dir, 1 << 24);
    /* A checkpoint need not be at the end of a page. */
    EXPECT_EQ(generate(en, TEXTS - 1).n_cached,
        n_states ? N_PROMPT - 1 : (N_PROMPT - 1) / PAGE_TOKENS * PAGE_TOKENS);
    expect_outputs(en);
    EXPECT_EQ(engine_stats(en)->prefix.disk_failed, 0u);
    EXPECT_EQ(engine_stats(en)->prefix.disk_checkpoints_read > 0, n_states > 0);
    engine_close(en);
    tmpdir_remove(dir);
}

enum { MANY = 3, LONG_OUT = 3 * PAGE_TOKENS };

/* Submits more requests at once than the pool has pages for, so that some are preempted and
 * resumed. The prompts are used in this round only. Returns a checksum over all outputs. */
static uint64_t generate_many(struct engine *en, int round)
{
    struct gen *gens[MANY];
    struct mailbox *box;
    struct err e;
    uint64_t sum = 0;
    int n_ended = 0;

    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (int i = 0; i < MANY; i++) {
        int32_t prompt[N_PROMPT];
        struct gen_input in = { .cache_prompt = true,
            .prompt = prompt,
            .n_prompt = N_PROMPT,
            .max_tokens = LONG_OUT,
            .n_choices = 1,
            .sample = sample_params_default };
        write_prompt(prompt, i);
        for (int j = 0, n = round * MANY + i; j < 4; j++, n /= VOCAB)
            prompt[j] = n % VOCAB;
        EXPECT_EQ(gen_new(&gens[i], &in, box, NULL, &e), 0);
        EXPECT_EQ(engine_submit(en, gens[i], &e), 0);
    }
    while (n_ended < MANY) {
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(box), *next; m; m = next) {
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            next = m->next;
            n_ended += m->kind == GEN_END;
            if (m->kind == GEN_TOKEN)
                sum += (uint64_t)(ev->token.id + 1) * (uint64_t)(ev->index + 1);
            gen_event_done(ev);
        }
    }
    for (int i = 0; i < MANY; i++) {
        EXPECT(gen_result(gens[i])->err.code == ERR_NONE);
        gen_free(gens[i]);
    }
    mailbox_close(box);
    return sum;
}

/* None of these prompts is on disk when submitted: every page that is loaded was evicted during
 * the round. */
static void preempted_sequence_loads_its_pages_from_disk(void)
{
    tmpdir_make(dir);
    struct engine *en = engine_of(dir, 1 << 24), *plain = engine_of(NULL, 0);
    int round = 0;

    for (; !engine_stats(en)->prefix.disk_pages_read; round++) {
        EXPECT(round < 1000);
        EXPECT_EQ(generate_many(en, round), generate_many(plain, round));
    }
    printf("     in round %d\n", round);
    EXPECT(engine_stats(en)->preemptions > 0);
    engine_close(plain);
    engine_close(en);
    tmpdir_remove(dir);
}

/* ---- concurrent clients */

enum { N_CLIENTS = 12, N_REQUESTS = 600 };

struct client {
    struct gen *gen;
    /* number of tokens until it cancels; at OUT + 1 it never does, and the full output is
     * checked */
    int text, leaves_after;
    bool is_known;
    struct result result;
};

/* Submits a prompt with a common prefix, of random length and priority. */
static void submit_random(struct client *v, struct engine *en, struct mailbox *box, struct rng *r)
{
    int32_t prompt[N_PROMPT];
    struct gen_input in = { .cache_prompt = true,
        .prompt = prompt,
        .n_prompt = N_PROMPT,
        .max_tokens = OUT,
        .n_choices = 1,
        .priority = (int)rng_below(r, 3),
        .sample = sample_params_default };
    struct err e;

    *v = (struct client){ .text = (int)rng_below(r, TEXTS), .is_known = true };
    v->leaves_after = rng_below(r, 4) ? OUT + 1 : (int)rng_below(r, OUT);
    if (rng_below(r, 2)) {
        in.n_prompt = 1 + (int)rng_below(r, N_PROMPT);
        v->is_known = in.n_prompt == N_PROMPT;
    }
    write_prompt(prompt, v->text);
    in.sample.want_logprobs = true;
    EXPECT_EQ(gen_new(&v->gen, &in, box, v, &e), 0);
    EXPECT_EQ(engine_submit(en, v->gen, &e), 0);
    if (v->leaves_after == 0)
        engine_cancel(en, v->gen);
}

/* Handles an event; returns true if the request has ended. */
static bool handle_event(struct client *v, struct engine *en, struct gen_event *ev)
{
    if (ev->msg.kind == GEN_TOKEN) {
        v->result.logprobs[v->result.n] = ev->token.logprob;
        v->result.tokens[v->result.n++] = ev->token.id;
        if (v->result.n == v->leaves_after)
            engine_cancel(en, v->gen);
    }
    bool is_over = ev->msg.kind == GEN_END;
    gen_event_done(ev);
    if (!is_over)
        return false;
    const struct result *w = &expected[v->text];
    size_t n = (size_t)v->result.n;
    EXPECT(!v->is_known || v->leaves_after <= OUT || n == OUT);
    EXPECT(!v->is_known || !memcmp(v->result.tokens, w->tokens, n * sizeof(*w->tokens)));
    EXPECT(!v->is_known || !memcmp(v->result.logprobs, w->logprobs, n * sizeof(*w->logprobs)));
    gen_free(v->gen);
    v->gen = NULL;
    return true;
}

/* Clients submit and cancel while pages are evicted and loaded; a time slice has two tokens. */
static void concurrent_clients_get_correct_outputs(void)
{
    struct engine_options o = engine_options_default;
    static struct client clients[N_CLIENTS];
    struct rng r = { .key = 5 };
    struct engine_audit a;
    struct mailbox *box;
    struct err e;
    int n_came = 0, n_there = 0;

    tmpdir_make(dir);
    compute_expected();
    o.fairness = (struct fairness){ true, 2, 2 };
    o.max_batch = 5;
    o.mixed_step_percent = o.mixed_step_percent_short = 120;
    struct engine *en = engine_with(o, dir, 1 << 24);
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (; n_there < N_CLIENTS; n_there++, n_came++)
        submit_random(&clients[n_there], en, box, &r);
    while (n_there > 0) {
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(box), *next; m; m = next) {
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            struct client *v = gen_user(ev->gen);
            next = m->next;
            if (!handle_event(v, en, ev))
                continue;
            if (n_came++ < N_REQUESTS)
                submit_random(v, en, box, &r);
            else
                n_there--;
        }
    }
    engine_audit(en, &a);
    EXPECT(a.ok && a.pages_owned == 0);
    EXPECT(engine_stats(en)->prefix.disk_pages_read > 0);
    printf("     %llu fetched, %llu preempted\n",
        (unsigned long long)engine_stats(en)->prefix.disk_pages_read,
        (unsigned long long)engine_stats(en)->preemptions);
    engine_close(en);
    mailbox_close(box);
    tmpdir_remove(dir);
}

static void small_limit_is_respected_by_removing_old_pages(void)
{
    tmpdir_make(dir);
    compute_expected();
    struct engine *en = engine_of(dir, 4096);

    for (int i = 0; i < 4; i++) {
        expect_outputs(en);
        EXPECT(engine_stats(en)->prefix.disk_bytes <= 4096);
    }
    engine_close(en);
    tmpdir_remove(dir);
}

static void directory_is_locked_by_one_engine(void)
{
    struct fake_options f = {
        .n_vocab = VOCAB, .n_ctx_train = 99, .max_rows = 64, .n_pages = N_PAGES, .seed = 1
    };
    struct engine_options o = engine_options_default;
    struct engine *en, *second;
    const struct kernels *k;
    struct lm *lm;
    struct err e;

    tmpdir_make(dir);
    en = engine_of(dir, 1 << 20);
    o.model_digest = digest;
    o.kv_disk = dir;
    o.kv_disk_bytes = 1 << 20;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_fake(&lm, &f, &e), 0);
    EXPECT_EQ(engine_open(&second, lm, k, &o, &e), -1);
    EXPECT(e.code == ERR_IO);
    engine_close(en);
    tmpdir_remove(dir);
}

static void missing_memory_is_an_error(void)
{
#ifdef TESTING
    struct fake_options f = {
        .n_vocab = VOCAB, .n_ctx_train = 99, .max_rows = 64, .n_pages = N_PAGES, .seed = 1
    };
    struct engine_options o = engine_options_default;
    struct engine *en = NULL;
    const struct kernels *k;
    struct lm *lm;
    struct err e;
    uint64_t nth = 0;

    f.n_states = n_states;
    f.window = window;
    tmpdir_make(dir);
    o.model_digest = digest;
    o.kv_disk = dir;
    o.kv_disk_bytes = 1 << 20;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    for (int failed = -1; failed;) {
        EXPECT_EQ(lm_open_fake(&lm, &f, &e), 0);
        mem_fail_after(++nth);
        failed = engine_open(&en, lm, k, &o, &e);
        mem_fail_after(0);
        EXPECT(!failed || e.code == ERR_MEMORY);
    }
    EXPECT(nth > 40); /* one engine with a disk tier already makes this many allocations */
    engine_close(en);
    tmpdir_remove(dir);
#endif
}

/* ---- damage */

static struct rng damage_rng;
static long damaged_at;

static void flip_bit(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDWR);
    uint8_t byte;

    EXPECT(fd >= 0 && !fstat(fd, &st));
    if (st.st_size > damaged_at && pread(fd, &byte, 1, damaged_at) == 1) {
        byte ^= (uint8_t)(1 << rng_below(&damage_rng, 8));
        EXPECT_EQ(pwrite(fd, &byte, 1, damaged_at), 1);
    }
    close(fd);
}

static void truncate_file(const char *path)
{
    struct stat st;

    if (!stat(path, &st) && st.st_size > damaged_at)
        EXPECT_EQ(truncate(path, damaged_at), 0);
}

/* Applies fn at every few bytes of all files; each engine rewrites the damaged records. */
static void damage(void (*fn)(const char *path))
{
    const long n_bytes = window ? 2800 : 1400; /* with window pages the records are longer */
    int n_rounds = 0;
    uint64_t n_failed = 0;

    tmpdir_make(dir);
    compute_expected();
    struct engine *en = engine_of(dir, 1 << 20);
    expect_outputs(en);
    engine_close(en);
    for (damaged_at = 0; damaged_at < n_bytes;
         damaged_at += CHECK_STRIDE + (long)rng_below(&damage_rng, 12)) {
        each_segment(dir, fn);
        en = engine_of(dir, 1 << 20);
        expect_outputs(en);
        n_failed += engine_stats(en)->prefix.disk_failed;
        engine_close(en);
        n_rounds++;
        if (n_rounds % 16 == 0) { /* otherwise the directory only grows */
            tmpdir_remove(dir);
            EXPECT_EQ(mkdir(dir, 0700), 0);
            en = engine_of(dir, 1 << 20);
            expect_outputs(en);
            engine_close(en);
        }
    }
    EXPECT(n_rounds > 200 / (CHECK_STRIDE + 5));
    /* in a truncated file the remaining records are not even listed */
    EXPECT(n_failed > 0 || fn != flip_bit);
    tmpdir_remove(dir);
}

static void changed_bit_is_a_cache_miss(void)
{
    damage_rng = (struct rng){ .key = 1 };
    damage(flip_bit);
}

static void truncated_file_is_a_cache_miss(void)
{
    damage_rng = (struct rng){ .key = 2 };
    damage(truncate_file);
}

/* Injects read and write errors, one after the other, while the engine runs. */
static void disk_errors_never_change_the_output(void)
{
#ifdef TESTING
    static const enum fault_site sites[] = { FAULT_DISK_READ, FAULT_DISK_WRITE, FAULT_DISK_SHORT };

    tmpdir_make(dir);
    compute_expected();
    struct engine *en = engine_of(dir, 1 << 24);
    for (int i = 0; i < 60; i++) {
        fault_arm(sites[i % 3], (uint64_t)(i % 7 + 1));
        expect_outputs(en);
    }
    fault_arm(FAULT_DISK_READ, 0);
    fault_arm(FAULT_DISK_WRITE, 0);
    fault_arm(FAULT_DISK_SHORT, 0);
    EXPECT(engine_stats(en)->prefix.disk_lost > 0 || engine_stats(en)->prefix.disk_failed > 0);
    engine_close(en);
    en = engine_of(dir, 1 << 24);
    expect_outputs(en);
    engine_close(en);
    tmpdir_remove(dir);
#endif
}

static void killed_process_loses_only_unfinished_writes(void)
{
    struct rng r = { .key = 3 };
    int n_cached = 0;

    tmpdir_make(dir);
    compute_expected();
    for (int i = 0; i < 25; i++) {
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            struct engine *en = engine_of(dir, 1 << 16);
            for (;;)
                expect_outputs(en);
        }
        poll(NULL, 0, 2 + (int)rng_below(&r, 30)); /* kill at a random time */
        kill(child, SIGKILL);
        EXPECT(waitpid(child, NULL, 0) == child);
        struct engine *en = engine_of(dir, 1 << 16);
        n_cached += expect_outputs(en);
        engine_close(en);
    }
    EXPECT(n_cached > 0);
    tmpdir_remove(dir);
}

/* ---- the same with recurrent layers: checkpoints */

static void with_states(void (*test)(void))
{
    n_states = 8;
    test();
    n_states = 0;
}

static void checkpoints_are_loaded_also_after_a_restart(void)
{
    with_states(evicted_pages_are_loaded_also_after_a_restart);
}

static void preempted_sequence_resumes_at_a_checkpoint_from_disk(void)
{
    with_states(preempted_sequence_loads_its_pages_from_disk);
}

static void concurrent_clients_resume_at_checkpoints(void)
{
    with_states(concurrent_clients_get_correct_outputs);
}

static void small_limit_is_respected_with_checkpoints(void)
{
    with_states(small_limit_is_respected_by_removing_old_pages);
}

static void missing_memory_for_checkpoints_is_an_error(void)
{
    with_states(missing_memory_is_an_error);
}

static void changed_bit_of_a_checkpoint_is_a_cache_miss(void)
{
    with_states(changed_bit_is_a_cache_miss);
}

static void truncated_file_with_checkpoints_is_a_cache_miss(void)
{
    with_states(truncated_file_is_a_cache_miss);
}

static void disk_errors_with_checkpoints_never_change_the_output(void)
{
    with_states(disk_errors_never_change_the_output);
}

static void killed_process_loses_only_unfinished_checkpoints(void)
{
    with_states(killed_process_loses_only_unfinished_writes);
}

/* ---- the same with windowed layers, alone and with recurrent ones */

enum { WINDOW = PAGE_TOKENS + PAGE_TOKENS / 4 };

static void with_windows(void (*test)(void))
{
    window = WINDOW;
    test();
    with_states(test);
    window = 0;
}

static void window_pages_are_loaded_also_after_a_restart(void)
{
    with_windows(evicted_pages_are_loaded_also_after_a_restart);
}

static void preempted_sequence_loads_its_window_pages_from_disk(void)
{
    with_windows(preempted_sequence_loads_its_pages_from_disk);
}

static void concurrent_clients_resume_at_window_pages(void)
{
    with_windows(concurrent_clients_get_correct_outputs);
}

static void small_limit_is_respected_with_window_pages(void)
{
    with_windows(small_limit_is_respected_by_removing_old_pages);
}

static void missing_memory_for_window_pages_is_an_error(void)
{
    with_windows(missing_memory_is_an_error);
}

static void changed_bit_of_a_window_page_is_a_cache_miss(void)
{
    with_windows(changed_bit_is_a_cache_miss);
}

static void truncated_file_with_window_pages_is_a_cache_miss(void)
{
    with_windows(truncated_file_is_a_cache_miss);
}

static void disk_errors_with_window_pages_never_change_the_output(void)
{
    with_windows(disk_errors_never_change_the_output);
}

static void killed_process_loses_only_unfinished_window_pages(void)
{
    with_windows(killed_process_loses_only_unfinished_writes);
}

TESTS(TEST(evicted_pages_are_loaded_also_after_a_restart),
    TEST(preempted_sequence_loads_its_pages_from_disk),
    TEST(concurrent_clients_get_correct_outputs),
    TEST(small_limit_is_respected_by_removing_old_pages), TEST(directory_is_locked_by_one_engine),
    TEST(missing_memory_is_an_error), TEST(changed_bit_is_a_cache_miss),
    TEST(truncated_file_is_a_cache_miss), TEST(disk_errors_never_change_the_output),
    TEST(killed_process_loses_only_unfinished_writes),
    TEST(checkpoints_are_loaded_also_after_a_restart),
    TEST(preempted_sequence_resumes_at_a_checkpoint_from_disk),
    TEST(concurrent_clients_resume_at_checkpoints), TEST(small_limit_is_respected_with_checkpoints),
    TEST(missing_memory_for_checkpoints_is_an_error),
    TEST(changed_bit_of_a_checkpoint_is_a_cache_miss),
    TEST(truncated_file_with_checkpoints_is_a_cache_miss),
    TEST(disk_errors_with_checkpoints_never_change_the_output),
    TEST(killed_process_loses_only_unfinished_checkpoints),
    TEST(window_pages_are_loaded_also_after_a_restart),
    TEST(preempted_sequence_loads_its_window_pages_from_disk),
    TEST(concurrent_clients_resume_at_window_pages),
    TEST(small_limit_is_respected_with_window_pages),
    TEST(missing_memory_for_window_pages_is_an_error),
    TEST(changed_bit_of_a_window_page_is_a_cache_miss),
    TEST(truncated_file_with_window_pages_is_a_cache_miss),
    TEST(disk_errors_with_window_pages_never_change_the_output),
    TEST(killed_process_loses_only_unfinished_window_pages))
