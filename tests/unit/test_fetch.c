/* Pages that were evicted come back from disk, in the same process and in a later one; and damage,
 * of any byte at any time, is a miss: the answer is the one of an engine without a disk. */
#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "testing/fake.h"
#include "../support/tmpdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { VOCAB = 50, N_PROMPT = 4 * PAGE_TOKENS + 3, OUT = 6, N_PAGES = 12, TEXTS = 8 };

static const uint8_t digest[32] = "the fake";
static char dir[TMPDIR_NAME];

/* Calls fn for each file that holds pages. */
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

struct told {
    int32_t tokens[OUT];
    float logprobs[OUT];
    int n, n_cached;
};

static void write_prompt(int32_t *prompt, int text)
{
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (i < PAGE_TOKENS ? i : i * i + text * 7) % VOCAB; /* they begin alike */
}

static struct told ask(struct engine *en, int text)
{
    int32_t prompt[N_PROMPT];
    struct gen_input in = { .prompt = prompt,
        .n_prompt = N_PROMPT,
        .max_tokens = OUT,
        .n_choices = 1,
        .sample = sample_params_default };
    struct told t = { 0 };
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

static struct told want[TEXTS];

static void compute_wants(void)
{
    struct engine *en = engine_of(NULL, 0);

    for (int i = 0; i < TEXTS; i++)
        want[i] = ask(en, i);
    engine_close(en);
}

/* Returns how many prompt tokens were found. */
static int expect_answers(struct engine *en)
{
    struct engine_audit a;
    int n_cached = 0;

    for (int i = 0; i < TEXTS; i++) {
        struct told t = ask(en, i);
        EXPECT_EQ(t.n, OUT);
        EXPECT(!memcmp(t.tokens, want[i].tokens, sizeof(t.tokens)));
        EXPECT(!memcmp(t.logprobs, want[i].logprobs, sizeof(t.logprobs)));
        n_cached += t.n_cached;
    }
    engine_audit(en, &a);
    EXPECT(a.ok && a.pages_owned == 0);
    return n_cached;
}

static void evicted_pages_come_back_also_after_a_restart(void)
{
    tmpdir_make(dir);
    compute_wants();
    struct engine *en = engine_of(dir, 1 << 24);

    /* How soon a page is on disk is not said: some round finds one there. */
    for (int i = 0; !engine_stats(en)->prefix.disk_fetched; i++) {
        expect_answers(en);
        EXPECT(i < 1000);
    }
    EXPECT(engine_stats(en)->prefix.disk_written > 0);
    engine_close(en); /* what it still had is written now */
    en = engine_of(dir, 1 << 24);
    EXPECT_EQ(ask(en, TEXTS - 1).n_cached, (N_PROMPT - 1) / PAGE_TOKENS * PAGE_TOKENS);
    expect_answers(en);
    EXPECT_EQ(engine_stats(en)->prefix.disk_failed, 0u);
    engine_close(en);
    tmpdir_remove(dir);
}

enum { MANY = 3, LONG_OUT = 3 * PAGE_TOKENS };

/* All at once, more than there are pages for: some are preempted, and come back. The prompts are of
 * this round alone. Returns a sum over all answers. */
static uint64_t ask_many(struct engine *en, int round)
{
    struct gen *gens[MANY];
    struct mailbox *box;
    struct err e;
    uint64_t sum = 0;
    int n_ended = 0;

    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (int i = 0; i < MANY; i++) {
        int32_t prompt[N_PROMPT];
        struct gen_input in = { .prompt = prompt,
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

/* Nothing of these prompts is on disk when they are submitted: what is read was lost meanwhile. */
static void who_was_preempted_finds_its_pages_on_disk(void)
{
    tmpdir_make(dir);
    struct engine *en = engine_of(dir, 1 << 24), *plain = engine_of(NULL, 0);
    int round = 0;

    for (; !engine_stats(en)->prefix.disk_fetched; round++) {
        EXPECT(round < 1000);
        EXPECT_EQ(ask_many(en, round), ask_many(plain, round));
    }
    printf("     in round %d\n", round);
    EXPECT(engine_stats(en)->preemptions > 0);
    engine_close(plain);
    engine_close(en);
    tmpdir_remove(dir);
}

/* ---- a crowd */

enum { CROWD = 12, VISITS = 600 };

struct visitor {
    struct gen *gen;
    int text, leaves_after; /* tokens; its answer is known when it stays */
    bool is_known;
    struct told told;
};

/* Prompts that begin alike, of any length, of any priority. */
static void visit(struct visitor *v, struct engine *en, struct mailbox *box, struct rng *r)
{
    int32_t prompt[N_PROMPT];
    struct gen_input in = { .prompt = prompt,
        .n_prompt = N_PROMPT,
        .max_tokens = OUT,
        .n_choices = 1,
        .priority = (int)rng_below(r, 3),
        .sample = sample_params_default };
    struct err e;

    *v = (struct visitor){ .text = (int)rng_below(r, TEXTS), .is_known = true };
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

/* True: it has gone. */
static bool hear(struct visitor *v, struct engine *en, struct gen_event *ev)
{
    if (ev->msg.kind == GEN_TOKEN) {
        v->told.logprobs[v->told.n] = ev->token.logprob;
        v->told.tokens[v->told.n++] = ev->token.id;
        if (v->told.n == v->leaves_after)
            engine_cancel(en, v->gen);
    }
    bool is_over = ev->msg.kind == GEN_END;
    gen_event_done(ev);
    if (!is_over)
        return false;
    const struct told *w = &want[v->text];
    size_t n = (size_t)v->told.n;
    EXPECT(!v->is_known || v->leaves_after <= OUT || n == OUT);
    EXPECT(!v->is_known || !memcmp(v->told.tokens, w->tokens, n * sizeof(*w->tokens)));
    EXPECT(!v->is_known || !memcmp(v->told.logprobs, w->logprobs, n * sizeof(*w->logprobs)));
    gen_free(v->gen);
    v->gen = NULL;
    return true;
}

/* They come and go while pages come and go; turns change hands after two tokens. */
static void a_crowd_gets_its_answers(void)
{
    struct engine_options o = engine_options_default;
    static struct visitor crowd[CROWD];
    struct rng r = { .key = 5 };
    struct engine_audit a;
    struct mailbox *box;
    struct err e;
    int n_came = 0, n_there = 0;

    tmpdir_make(dir);
    compute_wants();
    o.fairness = (struct fairness){ true, 2, 2 };
    o.max_batch = 5;
    o.stretch_percent = o.short_stretch_percent = 120;
    struct engine *en = engine_with(o, dir, 1 << 24);
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (; n_there < CROWD; n_there++, n_came++)
        visit(&crowd[n_there], en, box, &r);
    while (n_there > 0) {
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(box), *next; m; m = next) {
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            struct visitor *v = gen_user(ev->gen);
            next = m->next;
            if (!hear(v, en, ev))
                continue;
            if (n_came++ < VISITS)
                visit(v, en, box, &r);
            else
                n_there--;
        }
    }
    engine_audit(en, &a);
    EXPECT(a.ok && a.pages_owned == 0);
    EXPECT(engine_stats(en)->prefix.disk_fetched > 0);
    printf("     %llu fetched, %llu preempted\n",
        (unsigned long long)engine_stats(en)->prefix.disk_fetched,
        (unsigned long long)engine_stats(en)->preemptions);
    engine_close(en);
    mailbox_close(box);
    tmpdir_remove(dir);
}

static void a_small_limit_is_kept_and_old_pages_go(void)
{
    tmpdir_make(dir);
    compute_wants();
    struct engine *en = engine_of(dir, 4096);

    for (int i = 0; i < 4; i++) {
        expect_answers(en);
        EXPECT(engine_stats(en)->prefix.disk_bytes <= 4096);
    }
    engine_close(en);
    tmpdir_remove(dir);
}

static void a_directory_belongs_to_one_at_a_time(void)
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
    EXPECT(nth > 40); /* the cache on disk alone has as many */
    engine_close(en);
    tmpdir_remove(dir);
#endif
}

/* ---- damage */

static struct rng dice;
static long damaged_at;

static void flip_one(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDWR);
    uint8_t byte;

    EXPECT(fd >= 0 && !fstat(fd, &st));
    if (st.st_size > damaged_at && pread(fd, &byte, 1, damaged_at) == 1) {
        byte ^= (uint8_t)(1 << rng_below(&dice, 8));
        EXPECT_EQ(pwrite(fd, &byte, 1, damaged_at), 1);
    }
    close(fd);
}

static void cut_one(const char *path)
{
    struct stat st;

    if (!stat(path, &st) && st.st_size > damaged_at)
        EXPECT_EQ(truncate(path, damaged_at), 0);
}

/* Every few bytes over all of the files; what was damaged is written anew by each engine. */
static void damage(void (*fn)(const char *path))
{
    int n_rounds = 0;
    uint64_t n_failed = 0;

    tmpdir_make(dir);
    compute_wants();
    struct engine *en = engine_of(dir, 1 << 20);
    expect_answers(en);
    engine_close(en);
    for (damaged_at = 0; damaged_at < 1400; damaged_at += 1 + (long)rng_below(&dice, 12)) {
        each_segment(dir, fn);
        en = engine_of(dir, 1 << 20);
        expect_answers(en);
        n_failed += engine_stats(en)->prefix.disk_failed;
        engine_close(en);
        n_rounds++;
        if (n_rounds % 16 == 0) { /* else the directory only grows */
            tmpdir_remove(dir);
            EXPECT_EQ(mkdir(dir, 0700), 0);
            en = engine_of(dir, 1 << 20);
            expect_answers(en);
            engine_close(en);
        }
    }
    EXPECT(n_rounds > 100);
    EXPECT(n_failed > 0 || fn != flip_one); /* of a cut file the rest is not even listed */
    tmpdir_remove(dir);
}

static void a_changed_bit_is_a_miss(void)
{
    dice = (struct rng){ .key = 1 };
    damage(flip_one);
}

static void a_cut_file_is_a_miss(void)
{
    dice = (struct rng){ .key = 2 };
    damage(cut_one);
}

/* Reads and writes that fail, one after the other, while the engine works. */
static void a_broken_disk_is_slow_and_never_wrong(void)
{
#ifdef TESTING
    static const enum fault_site sites[] = { FAULT_DISK_READ, FAULT_DISK_WRITE, FAULT_DISK_SHORT };

    tmpdir_make(dir);
    compute_wants();
    struct engine *en = engine_of(dir, 1 << 24);
    for (int i = 0; i < 60; i++) {
        fault_arm(sites[i % 3], (uint64_t)(i % 7 + 1));
        expect_answers(en);
    }
    fault_arm(FAULT_DISK_READ, 0);
    fault_arm(FAULT_DISK_WRITE, 0);
    fault_arm(FAULT_DISK_SHORT, 0);
    EXPECT(engine_stats(en)->prefix.disk_lost > 0 || engine_stats(en)->prefix.disk_failed > 0);
    engine_close(en);
    en = engine_of(dir, 1 << 24);
    expect_answers(en);
    engine_close(en);
    tmpdir_remove(dir);
#endif
}

static void a_killed_process_loses_at_most_what_it_was_writing(void)
{
    struct rng r = { .key = 3 };
    int n_cached = 0;

    tmpdir_make(dir);
    compute_wants();
    for (int i = 0; i < 25; i++) {
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            struct engine *en = engine_of(dir, 1 << 16);
            for (;;)
                expect_answers(en);
        }
        poll(NULL, 0, 2 + (int)rng_below(&r, 30)); /* any time will do */
        kill(child, SIGKILL);
        EXPECT(waitpid(child, NULL, 0) == child);
        struct engine *en = engine_of(dir, 1 << 16);
        n_cached += expect_answers(en);
        engine_close(en);
    }
    EXPECT(n_cached > 0);
    tmpdir_remove(dir);
}

TESTS(TEST(evicted_pages_come_back_also_after_a_restart),
    TEST(who_was_preempted_finds_its_pages_on_disk), TEST(a_crowd_gets_its_answers),
    TEST(a_small_limit_is_kept_and_old_pages_go), TEST(a_directory_belongs_to_one_at_a_time),
    TEST(missing_memory_is_an_error), TEST(a_changed_bit_is_a_miss), TEST(a_cut_file_is_a_miss),
    TEST(a_broken_disk_is_slow_and_never_wrong),
    TEST(a_killed_process_loses_at_most_what_it_was_writing))
