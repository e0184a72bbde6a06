/* KV export from one engine and import into another. */
#include "cache/record.h"
#include "engine/kv_export.h"
#include "base/mem.h"
#include "testing/fake.h"
#include "support/check.h"

enum { VOCAB = 50, PROMPT = 3 * PAGE_TOKENS + 5, OUT = PAGE_TOKENS };

static const uint8_t digest[32] = "the fake";
static int32_t prompt[PROMPT];

static struct engine *open_engine(const struct fake_options *f, bool has_cache)
{
    struct engine_options o = engine_options_default;
    const struct kernels *k;
    struct engine *en;
    struct lm *lm;
    struct err e;

    o.prefix_cache = has_cache;
    o.n_ctx = PROMPT + 2 * OUT;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_fake(&lm, f, &e), 0);
    EXPECT_EQ(engine_open(&en, lm, k, &o, &e), 0);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i * i % VOCAB;
    return en;
}

static struct engine *engine_with_windows(uint32_t n_states, int window, bool is_windowed_only)
{
    struct fake_options f = { .n_vocab = VOCAB,
        .n_ctx_train = 4000,
        .max_rows = 64,
        .n_pages = 40,
        .n_states = n_states,
        .window = window,
        .is_windowed_only = is_windowed_only,
        .n_window_pages = 30,
        .seed = 1 };

    return open_engine(&f, true);
}

static struct engine *engine_with_states(uint32_t n_pages, uint32_t n_states, bool has_cache)
{
    struct fake_options f = { .n_vocab = VOCAB,
        .n_ctx_train = 4000,
        .max_rows = 64,
        .n_pages = n_pages,
        .n_states = n_states,
        .seed = 1 };

    return open_engine(&f, has_cache);
}

static struct engine *engine_of(uint32_t n_pages, bool has_cache)
{
    return engine_with_states(n_pages, 0, has_cache);
}

struct result {
    int32_t tokens[PROMPT + 2 * OUT]; /* prompt and output */
    float logprobs[OUT];
    int n, n_cached;
};

static void generate_after(
    struct engine *en, const struct cache_scope *scope, struct token_list list, struct result *t)
{
    struct gen_input in = { .cache_prompt = true,
        .prompt = list.tokens,
        .n_prompt = list.n,
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
    memcpy(t->tokens, list.tokens, (size_t)list.n * sizeof(*list.tokens));
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
                t->tokens[list.n + t->n++] = ev->token.id;
            }
            gen_event_done(ev);
        }
    }
    t->n_cached = gen_result(g)->n_cached;
    gen_free(g);
    mailbox_close(box);
}

static void generate(struct engine *en, const struct cache_scope *scope, struct result *t)
{
    generate_after(en, scope, (struct token_list){ prompt, PROMPT }, t);
}

static void expect_consistent(struct engine *en)
{
    struct engine_audit a;

    engine_audit(en, &a);
    EXPECT(a.ok && a.pages_owned == 0);
}

static int save(struct engine *en, const struct cache_scope *scope, struct token_list list,
    struct kv_record *out, struct err *e)
{
    struct kv_prefix p = { digest, *scope, list };

    return engine_kv_export(en, &p, out, e);
}

static int restore(
    struct engine *en, const struct cache_scope *scope, struct kv_record *r, struct err *e)
{
    struct kv_prefix p = { digest, *scope, { NULL, 0 } };

    return engine_kv_import(en, &p, r, e);
}

static void another_engine_continues_from_imported_kv(void)
{
    struct engine *one = engine_of(40, true), *two = engine_of(40, true);
    struct cache_scope scope = { .tenant = 8 }, other = { .tenant = 9 };
    struct result first, again;
    struct kv_record r;
    struct err e;

    generate(one, &scope, &first);
    EXPECT(first.n == OUT && first.n_cached == 0);
    struct token_list all = { first.tokens, PROMPT + OUT };
    EXPECT_EQ(save(one, &other, all, &r, &e), -1);
    EXPECT(e.code == ERR_NOT_FOUND);
    EXPECT_EQ(save(one, &scope, all, &r, &e), 0);
    expect_consistent(one);
    engine_close(one);

    EXPECT_EQ(restore(two, &other, &r, &e), -1);
    EXPECT(e.code == ERR_FORBIDDEN);
    EXPECT_EQ(restore(two, &scope, &r, &e), 0);
    EXPECT_EQ(r.n_tokens, PROMPT + OUT - 1);    /* the row of the last token was never computed */
    EXPECT_EQ(restore(two, &scope, &r, &e), 0); /* all pages are already present */
    expect_consistent(two);
    generate(two, &other, &again);
    EXPECT_EQ(again.n_cached, 0);
    generate(two, &scope, &again);
    EXPECT_EQ(again.n_cached, PROMPT - 1);
    EXPECT(!memcmp(again.tokens, first.tokens, sizeof(first.tokens)));
    EXPECT(!memcmp(again.logprobs, first.logprobs, sizeof(first.logprobs)));
    mem_free(r.bytes);
    engine_close(two);
}

/* The conversation continues after the first answer. */
static void recurrent_state_is_exported_with_the_pages(void)
{
    struct engine *one = engine_with_states(40, 8, true), *two = engine_with_states(40, 8, true),
                  *plain = engine_of(40, true);
    const struct cache_scope scope = { .tenant = 8 };
    struct result first, next, again;
    struct kv_record r;
    struct err e;

    generate(one, &scope, &first);
    struct token_list all = { first.tokens, PROMPT + OUT };
    EXPECT_EQ(save(one, &scope, all, &r, &e), 0);
    EXPECT_EQ(r.n_tokens, PROMPT + OUT - 1);
    expect_consistent(one);
    generate_after(one, &scope, all, &next);
    EXPECT_EQ(next.n_cached, PROMPT + OUT - 1);

    EXPECT_EQ(restore(plain, &scope, &r, &e), -1); /* the other model has no state */
    EXPECT(e.code == ERR_UNSUPPORTED);
    EXPECT_EQ(restore(two, &scope, &r, &e), 0);
    EXPECT_EQ(restore(two, &scope, &r, &e), 0);
    expect_consistent(two);
    generate_after(two, &scope, all, &again);
    EXPECT_EQ(again.n_cached, PROMPT + OUT - 1);
    EXPECT(!memcmp(again.tokens, next.tokens, sizeof(next.tokens)));
    EXPECT(!memcmp(again.logprobs, next.logprobs, sizeof(next.logprobs)));
    engine_close(two);
    two = engine_with_states(40, 8, true);
    /* The state begins with the base position of its first layer. */
    memset(r.bytes + r.n_bytes - engine_lm(two)->state_bytes, 0x55, 4);
    record_seal(r.bytes);
    EXPECT_EQ(restore(two, &scope, &r, &e), -1);
    EXPECT(e.code == ERR_CORRUPT);
    expect_consistent(two);
    mem_free(r.bytes);
    engine_close(one);
    engine_close(two);
    engine_close(plain);
}

/* The record has the pages of the last window only. */
static void check_window_export(uint32_t n_states, bool is_windowed_only)
{
    enum { WINDOW = PAGE_TOKENS + 3 };
    struct engine *one = engine_with_windows(n_states, WINDOW, is_windowed_only),
                  *two = engine_with_windows(n_states, WINDOW, is_windowed_only),
                  *plain = engine_of(40, true);
    const struct cache_scope scope = { .tenant = 8 };
    struct result first, next, again;
    struct kv_record r;
    struct err e;

    generate(one, &scope, &first);
    struct token_list all = { first.tokens, PROMPT + OUT };
    EXPECT_EQ(save(one, &scope, all, &r, &e), 0);
    EXPECT_EQ(r.n_tokens, PROMPT + OUT - 1);
    EXPECT_EQ(r.n_bytes, engine_kv_record_bytes(one, r.n_tokens));
    expect_consistent(one);
    generate_after(one, &scope, all, &next);
    EXPECT_EQ(next.n_cached, PROMPT + OUT - 1);

    EXPECT_EQ(restore(plain, &scope, &r, &e), -1); /* the other model has no window */
    EXPECT(e.code == ERR_UNSUPPORTED);
    EXPECT_EQ(restore(two, &scope, &r, &e), 0);
    EXPECT_EQ(restore(two, &scope, &r, &e), 0);
    expect_consistent(two);
    generate_after(two, &scope, all, &again);
    EXPECT_EQ(again.n_cached, PROMPT + OUT - 1);
    EXPECT(!memcmp(again.tokens, next.tokens, sizeof(next.tokens)));
    EXPECT(!memcmp(again.logprobs, next.logprobs, sizeof(next.logprobs)));
    expect_consistent(two);
    mem_free(r.bytes);
    engine_close(one);
    engine_close(two);
    engine_close(plain);
}

static void window_pages_are_exported_with_the_pages(void)
{
    check_window_export(0, false);
    check_window_export(8, false);
    check_window_export(0, true); /* all layers are windowed: the pages are empty */
    check_window_export(8, true);
}

static void import_restores_the_prefix_that_fits(void)
{
    struct engine *one = engine_of(40, true), *small = engine_of(2, true);
    const struct cache_scope scope = { 0 };
    struct result result;
    struct kv_record r;
    struct err e;

    generate(one, &scope, &result);
    EXPECT_EQ(save(one, &scope, (struct token_list){ prompt, PROMPT }, &r, &e), 0);
    EXPECT_EQ(restore(small, &scope, &r, &e), 0);
    EXPECT_EQ(r.n_tokens, 2 * PAGE_TOKENS);
    EXPECT_EQ(restore(small, &scope, &r, &e), 0);
    expect_consistent(small);
    mem_free(r.bytes);
    engine_close(one);
    engine_close(small);
}

static void damaged_and_foreign_records_are_rejected(void)
{
    struct kv_prefix another = { (const uint8_t *)"not the fake, which has 32 bytes", { 0 },
        { NULL, 0 } };
    struct engine *one = engine_of(40, true), *none = engine_of(40, false);
    const struct cache_scope scope = { 0 };
    struct token_list list = { prompt, PROMPT };
    struct result result;
    struct kv_record r;
    struct err e;

    generate(one, &scope, &result);
    EXPECT_EQ(save(one, &scope, list, &r, &e), 0);
    EXPECT_EQ(engine_kv_import(one, &another, &r, &e), -1);
    EXPECT(e.code == ERR_UNSUPPORTED);
    EXPECT_EQ(save(none, &scope, list, &r, &e), -1);
    EXPECT(e.code == ERR_UNSUPPORTED);
    EXPECT_EQ(restore(none, &scope, &r, &e), -1);
    r.bytes[r.n_bytes - 1] ^= 1;
    EXPECT_EQ(restore(one, &scope, &r, &e), -1);
    EXPECT(e.code == ERR_CORRUPT);
    r.bytes[r.n_bytes - 1] ^= 1;
    ((int32_t *)(void *)(r.bytes + RECORD_HEAD))[3] = VOCAB; /* valid checksum, invalid token */
    record_seal(r.bytes);
    EXPECT_EQ(restore(one, &scope, &r, &e), -1);
    EXPECT(e.code == ERR_CORRUPT);
    expect_consistent(one);
    mem_free(r.bytes);
    engine_close(one);
    engine_close(none);
}

/* `n_wanted`: pinned tokens of the prompt. The context is short, so that pages remain that may be
 * pinned. */
static void check_pin(struct engine *en, int n_wanted)
{
    const struct cache_scope scope = { .tenant = 1 }, flood = { .tenant = 2 };
    struct token_list list = { prompt, PROMPT };
    struct engine_audit a;
    struct result result;
    struct err e;
    int n;

    generate(en, &scope, &result);
    EXPECT_EQ(engine_kv_pin(en, &flood, list, &n, &e), 0);
    EXPECT_EQ(n, 0);
    for (int i = 0; i < 2; i++) { /* twice: two unpins */
        EXPECT_EQ(engine_kv_pin(en, &scope, list, &n, &e), 0);
        EXPECT_EQ(n, n_wanted);
        engine_audit(en, &a);
        EXPECT(a.ok && a.pages_owned > 0);
    }
    struct result first = result;
    for (int i = 0; i < 40; i++) {
        prompt[0] = i % VOCAB;
        prompt[1] = i / VOCAB;
        generate(en, &flood, &result);
        if (i == 20) {
            EXPECT_EQ(
                engine_kv_unpin(en, &scope, (struct token_list){ first.tokens, PROMPT }, &n, &e),
                0);
            EXPECT_EQ(n, n_wanted);
        }
    }
    prompt[0] = 0;
    prompt[1] = 1;
    generate(en, &scope, &result);
    EXPECT(result.n_cached >= MIN(n, PROMPT - 1));
    EXPECT(!memcmp(result.tokens, first.tokens, sizeof(first.tokens)));
    EXPECT_EQ(engine_kv_unpin(en, &scope, list, &n, &e), 0);
    EXPECT_EQ(n, n_wanted);
    EXPECT_EQ(engine_kv_unpin(en, &scope, list, &n, &e), 0);
    EXPECT_EQ(n, 0);
    expect_consistent(en);
    for (int i = 0; i < 40; i++) { /* it is evicted now, also by its own tenant */
        prompt[0] = i % VOCAB;
        prompt[1] = 2 + i / VOCAB;
        generate(en, &scope, &result);
    }
    prompt[0] = 0;
    prompt[1] = 1;
    generate(en, &scope, &result);
    EXPECT_EQ(result.n_cached, 0);
    EXPECT_EQ(engine_kv_pin(en, &scope, list, &n, &e), 0); /* remains until the end */
    EXPECT_EQ(n, n_wanted);
    engine_close(en);
}

static void pinned_prompt_is_not_evicted(void)
{
    check_pin(engine_of(2 * PROMPT / PAGE_TOKENS + 30, true), PROMPT / PAGE_TOKENS * PAGE_TOKENS);
}

/* The pin has the state slot at the end of the prompt, or the window pages before it, or both. */
static void pinned_prompt_with_states_or_windows_is_not_evicted(void)
{
    const int window = PAGE_TOKENS + 3, n_full = PROMPT / PAGE_TOKENS * PAGE_TOKENS;

    check_pin(engine_with_states(2 * PROMPT / PAGE_TOKENS + 30, 8, true), PROMPT);
    check_pin(engine_with_windows(0, window, false), n_full);
    check_pin(engine_with_windows(0, window, true), n_full);
    check_pin(engine_with_windows(8, window, false), PROMPT);
}

/* Pages that another conversation extends, and pages in use, are not erased. */
static void erased_prefix_is_not_found(void)
{
    struct engine *en = engine_of(40, true);
    struct kv_prefix p = { digest, { .tenant = 3 }, { NULL, 0 } };
    struct result first, other;
    struct err e;
    int n;

    generate(en, &p.scope, &first);
    p.list = (struct token_list){ first.tokens, PROMPT + OUT };
    prompt[PROMPT - 1] ^= 1; /* shares all full pages of the prompt */
    generate(en, &p.scope, &other);
    prompt[PROMPT - 1] ^= 1;
    EXPECT_EQ(engine_kv_erase(en, &p, &n, &e), 0);
    EXPECT_EQ(n, PROMPT + OUT - 1 - PROMPT / PAGE_TOKENS * PAGE_TOKENS);
    EXPECT_EQ(engine_kv_erase(en, &p, &n, &e), 0);
    EXPECT_EQ(n, 0);
    p.list = (struct token_list){ other.tokens, PROMPT + OUT };
    EXPECT_EQ(engine_kv_erase(en, &p, &n, &e), 0);
    EXPECT_EQ(n, PROMPT + OUT - 1);
    generate(en, &p.scope, &other);
    EXPECT_EQ(other.n_cached, 0);
    EXPECT(!memcmp(other.tokens, first.tokens, sizeof(first.tokens)));
    expect_consistent(en);
    engine_close(en);
}

static void missing_memory_is_an_error(void)
{
#ifdef TESTING
    struct engine *en = engine_of(40, true);
    const struct cache_scope scope = { 0 };
    struct token_list list = { prompt, PROMPT };
    struct result result;
    struct kv_record r;
    struct err e;

    generate(en, &scope, &result);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_fail_after(nth);
        EXPECT_EQ(save(en, &scope, list, &r, &e), -1);
        EXPECT(e.code == ERR_MEMORY);
        expect_consistent(en);
    }
    mem_fail_after(0);
    EXPECT_EQ(save(en, &scope, list, &r, &e), 0);
    mem_fail_after(1);
    EXPECT_EQ(restore(en, &scope, &r, &e), -1);
    EXPECT(e.code == ERR_MEMORY);
    mem_fail_after(0);
    mem_free(r.bytes);
    engine_close(en);
#endif
}

TESTS(TEST(another_engine_continues_from_imported_kv),
    TEST(recurrent_state_is_exported_with_the_pages),
    TEST(window_pages_are_exported_with_the_pages), TEST(import_restores_the_prefix_that_fits),
    TEST(damaged_and_foreign_records_are_rejected), TEST(pinned_prompt_is_not_evicted),
    TEST(pinned_prompt_with_states_or_windows_is_not_evicted), TEST(erased_prefix_is_not_found),
    TEST(missing_memory_is_an_error))
