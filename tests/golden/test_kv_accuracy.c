/* Accuracy of KV formats: the demo model evaluates its own outputs with f16 KV and with each
 * other format, and the test compares the distributions. */
#include "base/mem.h"
#include "format/gguf.h"
#include "model/llama.h"
#include "tokenizer/vocab.h"
#include "support/check.h"

#include <math.h>

enum { MAX_PROMPT = 96, ANSWER = 48, MAX_TOKENS = MAX_PROMPT + ANSWER };

/* Long prompts, so that attention covers many positions. */
static const char *const prompts[] = {
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHello! What can "
    "you do?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nMy name is Anna.<|im_end|>\n<|im_start|>assistant\nNice to meet you, "
    "Anna!<|im_end|>\n<|im_start|>user\nWhat is my name?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWhat is 7 plus 5?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nCount from three to nine.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nTell me a story about a fox.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite the word lantern backwards.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nSay hello in German, please.<|im_end|>\n<|im_start|>assistant\n",
};

struct text { /* a prompt and the output with f16 KV */
    int32_t ids[MAX_TOKENS];
    int n;
};

struct loss {
    int n, n_same;
    double kl, worst; /* KL divergence in nats: mean, and maximum of one position */
};

static struct lm *open_demo(const struct gguf *g, enum kv_type type)
{
    struct llama_options o = { .n_threads = 1,
        .n_pages = MAX_TOKENS / PAGE_TOKENS + 1,
        .kv_type = type,
        .max_rows = MAX_TOKENS,
        .max_logits = MAX_TOKENS };
    struct lm *m;
    struct err e;

    EXPECT(!lm_open_llama(&m, g, &o, &e));
    return m;
}

static const float *evaluate(struct lm *m, const struct text *t, int from, int n_logits)
{
    static page_id pages[MAX_TOKENS / PAGE_TOKENS + 1];
    struct lm_run run = { .tokens = t->ids + from,
        .n = t->n - from,
        .pos = from,
        .pages = pages,
        .n_logits = n_logits,
        .state = STATE_NONE };

    for (uint32_t i = 0; i < ARRAY_LEN(pages); i++)
        pages[i].i = i;
    EXPECT(m->ops->forward(m, &run, 1, NULL));
    return run.logits;
}

static int32_t best_token(const float *logits, int n)
{
    int at = 0;

    for (int i = 1; i < n; i++)
        at = logits[i] > logits[at] ? i : at;
    return at;
}

static void write_text(struct lm *m, const struct vocab *v, const char *prompt, struct text *t)
{
    struct tokens out = { .arena = arena_new(1 << 20) };
    struct span span = { str_of(prompt), true };
    struct err e;

    EXPECT(!vocab_encode(v, &span, 1, true, &out, &e));
    EXPECT(out.n <= MAX_PROMPT);
    memcpy(t->ids, out.ids, out.n * sizeof(*t->ids));
    t->n = (int)out.n;
    arena_free(out.arena);
    for (int from = 0; t->n < (int)out.n + ANSWER;) {
        int32_t id = best_token(evaluate(m, t, from, 1), m->n_vocab);
        from = t->n;
        t->ids[t->n++] = id;
    }
}

static double log_sum(const float *logits, int n)
{
    double top = logits[best_token(logits, n)], sum = 0;

    for (int i = 0; i < n; i++)
        sum += exp(logits[i] - top);
    return top + log(sum);
}

static double divergence(const float *p, const float *q, int n)
{
    double lp = log_sum(p, n), lq = log_sum(q, n), kl = 0;

    for (int i = 0; i < n; i++)
        kl += exp(p[i] - lp) * ((p[i] - lp) - (q[i] - lq));
    return kl;
}

static void compare_with(struct loss *l, struct lm *f16, struct lm *other, const struct text *t)
{
    const int n = f16->n_vocab;
    const float *p = evaluate(f16, t, 0, t->n), *q = evaluate(other, t, 0, t->n);

    for (int i = 0; i < t->n; i++, p += n, q += n) {
        double kl = divergence(p, q, n);
        l->kl += kl;
        l->worst = fmax(l->worst, kl);
        l->n_same += best_token(p, n) == best_token(q, n);
    }
    l->n += t->n;
}

static void measure_loss(struct loss *l, enum kv_type type)
{
    static struct text texts[ARRAY_LEN(prompts)];
    struct gguf *g;
    struct vocab *v;
    struct err e;

    EXPECT(!gguf_open(&g, "models/demo.gguf", &e) && !vocab_open(&v, g, &e));
    struct lm *f16 = open_demo(g, KV_F16), *other = open_demo(g, type);
    *l = (struct loss){ 0 };
    for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
        write_text(f16, v, prompts[i], &texts[i]);
        compare_with(l, f16, other, &texts[i]);
    }
    l->kl /= l->n;
    printf("kv type %d: %d positions, %d with the same first, KL %.2e, worst %.2e\n", (int)type,
        l->n, l->n_same, l->kl, l->worst);
    f16->ops->close(f16);
    other->ops->close(other);
    vocab_close(v);
    gguf_close(g);
}

static void f16_equals_itself(void)
{
    struct loss l;

    measure_loss(&l, KV_F16);
    EXPECT(l.n > 500 && l.n_same == l.n && l.worst < 1e-12);
}

static void bf16_is_close_to_f16(void)
{
    struct loss l;

    measure_loss(&l, KV_BF16);
    EXPECT(l.n_same * 200 >= l.n * 199 && l.kl < 1e-3);
}

static void q8_0_is_close_to_f16(void)
{
    struct loss l;

    measure_loss(&l, KV_Q8_0);
    EXPECT(l.kl > 0); /* the format has an effect */
    EXPECT(l.n_same * 200 >= l.n * 199 && l.kl < 1e-3);
}

TESTS(TEST(f16_equals_itself), TEST(bf16_is_close_to_f16), TEST(q8_0_is_close_to_f16))
