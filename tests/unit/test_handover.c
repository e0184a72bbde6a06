/* What one engine computed, handed to another as bytes. */
#include "cache/record.h"
#include "engine/handover.h"
#include "base/mem.h"
#include "model/fake.h"
#include "../check.h"

enum { VOCAB = 50, PROMPT = 3 * PAGE_TOKENS + 5, OUT = PAGE_TOKENS };

static const uint8_t digest[32] = "the fake";
static int32_t prompt[PROMPT];

static struct engine *engine_of(const uint8_t *model, uint32_t n_pages)
{
    struct fake_options f = {
        .n_vocab = VOCAB, .n_ctx_train = 4000, .max_rows = 64, .n_pages = n_pages, .seed = 1
    };
    struct engine_options o = engine_options_default;
    const struct kernels *k;
    struct engine *en;
    struct lm *lm;
    struct err e;

    o.model_digest = model;
    o.n_ctx = PROMPT + OUT;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_fake(&lm, &f, &e), 0);
    EXPECT_EQ(engine_open(&en, lm, k, &o, &e), 0);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i * i % VOCAB;
    return en;
}

struct told {
    int32_t tokens[PROMPT + OUT]; /* the prompt, and the answer */
    float logprobs[OUT];
    int n, n_cached;
};

static void ask(struct engine *en, const struct cache_scope *scope, struct told *t)
{
    struct gen_input in = { .prompt = prompt,
        .n_prompt = PROMPT,
        .max_tokens = OUT,
        .n_choices = 1,
        .sample = sample_params_default,
        .scope = *scope };
    struct mailbox *box;
    struct gen *g;
    struct err e;

    in.sample.seed = 5;
    in.sample.want_logprobs = true;
    memset(t, 0, sizeof(*t));
    memcpy(t->tokens, prompt, sizeof(prompt));
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
                t->logprobs[t->n] = ev->token.logprob;
                t->tokens[PROMPT + t->n++] = ev->token.id;
            }
            gen_event_done(ev);
        }
    }
    t->n_cached = gen_result(g)->n_cached;
    gen_free(g);
    mailbox_close(box);
}

static void expect_whole(struct engine *en)
{
    struct engine_audit a;

    engine_audit(en, &a);
    EXPECT(a.ok && a.pages_owned == 0);
}

static void another_engine_goes_on_where_one_ended(void)
{
    struct engine *one = engine_of(digest, 40), *two = engine_of(digest, 40);
    struct cache_scope scope = { .tenant = 8 }, other = { .tenant = 9 };
    struct told first, again;
    uint8_t *bytes;
    size_t n;
    struct err e;
    int n_restored;

    ask(one, &scope, &first);
    EXPECT(first.n == OUT && first.n_cached == 0);
    struct token_list all = { first.tokens, PROMPT + OUT };
    EXPECT_EQ(engine_save(one, &other, all, &bytes, &n, &e), -1);
    EXPECT(e.code == ERR_NOT_FOUND);
    EXPECT_EQ(engine_save(one, &scope, all, &bytes, &n, &e), 0);
    expect_whole(one);
    engine_close(one);

    EXPECT_EQ(engine_restore(two, bytes, n, &n_restored, &e), 0);
    EXPECT_EQ(n_restored, PROMPT + OUT - 1); /* nobody computed the last one's row */
    EXPECT_EQ(engine_restore(two, bytes, n, &n_restored, &e), 0); /* it is there already */
    expect_whole(two);
    ask(two, &other, &again);
    EXPECT_EQ(again.n_cached, 0);
    ask(two, &scope, &again);
    EXPECT_EQ(again.n_cached, PROMPT - 1);
    EXPECT(!memcmp(again.tokens, first.tokens, sizeof(first.tokens)));
    EXPECT(!memcmp(again.logprobs, first.logprobs, sizeof(first.logprobs)));
    mem_free(bytes);
    engine_close(two);
}

static void what_does_not_fit_is_restored_as_far_as_it_does(void)
{
    struct engine *one = engine_of(digest, 40), *small = engine_of(digest, 2);
    const struct cache_scope scope = { 0 };
    struct told told;
    uint8_t *bytes;
    size_t n;
    struct err e;
    int n_restored;

    ask(one, &scope, &told);
    EXPECT_EQ(engine_save(one, &scope, (struct token_list){ prompt, PROMPT }, &bytes, &n, &e), 0);
    EXPECT_EQ(engine_restore(small, bytes, n, &n_restored, &e), 0);
    EXPECT_EQ(n_restored, 2 * PAGE_TOKENS);
    EXPECT_EQ(engine_restore(small, bytes, n, &n_restored, &e), 0);
    expect_whole(small);
    mem_free(bytes);
    engine_close(one);
    engine_close(small);
}

static void damage_and_other_models_are_refused(void)
{
    static const uint8_t another[32] = "not the fake";
    struct engine *one = engine_of(digest, 40), *two = engine_of(another, 40);
    struct engine *none = engine_of(NULL, 40);
    const struct cache_scope scope = { 0 };
    struct token_list list = { prompt, PROMPT };
    struct told told;
    uint8_t *bytes;
    size_t n;
    struct err e;
    int n_restored;

    ask(one, &scope, &told);
    EXPECT_EQ(engine_save(one, &scope, list, &bytes, &n, &e), 0);
    EXPECT_EQ(engine_restore(two, bytes, n, &n_restored, &e), -1);
    EXPECT(e.code == ERR_UNSUPPORTED);
    EXPECT_EQ(engine_save(none, &scope, list, &bytes, &n, &e), -1);
    EXPECT(e.code == ERR_UNSUPPORTED);
    EXPECT_EQ(engine_restore(none, bytes, n, &n_restored, &e), -1);
    bytes[n - 1] ^= 1;
    EXPECT_EQ(engine_restore(one, bytes, n, &n_restored, &e), -1);
    EXPECT(e.code == ERR_CORRUPT);
    bytes[n - 1] ^= 1;
    ((int32_t *)(void *)(bytes + RECORD_HEAD))[3] = VOCAB; /* sound, and nonsense */
    record_seal(bytes);
    EXPECT_EQ(engine_restore(one, bytes, n, &n_restored, &e), -1);
    EXPECT(e.code == ERR_CORRUPT);
    expect_whole(one);
    mem_free(bytes);
    engine_close(one);
    engine_close(two);
    engine_close(none);
}

/* The context is short, which leaves pages that may be pinned. */
static void a_pinned_prompt_stays_whatever_comes(void)
{
    struct engine *en = engine_of(digest, 2 * PROMPT / PAGE_TOKENS + 30);
    const struct cache_scope scope = { .tenant = 1 }, flood = { .tenant = 2 };
    struct token_list list = { prompt, PROMPT };
    struct told told;
    struct err e;
    int n;

    ask(en, &scope, &told);
    EXPECT_EQ(engine_pin(en, &flood, list, &n, &e), 0);
    EXPECT_EQ(n, 0);
    EXPECT_EQ(engine_pin(en, &scope, list, &n, &e), 0);
    EXPECT_EQ(n, PROMPT / PAGE_TOKENS * PAGE_TOKENS);
    for (int i = 0; i < 40; i++) {
        prompt[0] = i % VOCAB;
        prompt[1] = i / VOCAB;
        ask(en, &flood, &told);
    }
    prompt[0] = 0;
    prompt[1] = 1;
    ask(en, &scope, &told);
    EXPECT(told.n_cached >= n);
    EXPECT_EQ(engine_unpin(en, &scope, list, &n, &e), 0);
    EXPECT_EQ(n, PROMPT / PAGE_TOKENS * PAGE_TOKENS);
    EXPECT_EQ(engine_unpin(en, &scope, list, &n, &e), 0);
    EXPECT_EQ(n, 0);
    expect_whole(en);
    engine_close(en);
}

static void missing_memory_is_an_error(void)
{
#ifdef TESTING
    struct engine *en = engine_of(digest, 40);
    const struct cache_scope scope = { 0 };
    struct token_list list = { prompt, PROMPT };
    struct told told;
    uint8_t *bytes = NULL;
    size_t n;
    struct err e;
    int n_restored;

    ask(en, &scope, &told);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_fail_after(nth);
        EXPECT_EQ(engine_save(en, &scope, list, &bytes, &n, &e), -1);
        EXPECT(e.code == ERR_MEMORY);
        expect_whole(en);
    }
    mem_fail_after(0);
    EXPECT_EQ(engine_save(en, &scope, list, &bytes, &n, &e), 0);
    mem_fail_after(1);
    EXPECT_EQ(engine_restore(en, bytes, n, &n_restored, &e), -1);
    EXPECT(e.code == ERR_MEMORY);
    mem_fail_after(0);
    mem_free(bytes);
    engine_close(en);
#endif
}

TESTS(TEST(another_engine_goes_on_where_one_ended),
    TEST(what_does_not_fit_is_restored_as_far_as_it_does),
    TEST(damage_and_other_models_are_refused), TEST(a_pinned_prompt_stays_whatever_comes),
    TEST(missing_memory_is_an_error))
