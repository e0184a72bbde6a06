/* masked: decode speed under masks of different sizes, relative to no constraint.
 *
 *     masked FILE.gguf [--threads N] [--batch N] [--tokens N] [--rounds N]
 *
 * Each request of a batch generates the same number of tokens under a constraint with one constant
 * mask, so the cost of computing masks is 0 and only that of the engine and the sampler remains.
 * `list K`: K tokens at random places, as an id list; `half` and `all`: a bit set. With logprobs
 * the whole output head is computed, otherwise the panels with a permitted token. All cases run in
 * turn in each round; the minimum time per token over the rounds counts. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/sample/token_mask.h"
#include "format/gguf.h"
#include "model/llama.h"
#include "os/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 16, BATCH_MAX = 64 };

struct settings {
    const char *path;
    int n_threads, batch, n_tokens, n_rounds;
};

struct mask_case {
    const char *name;
    int n_permitted; /* -1: no constraint; 0: half; INT32_MAX: all */
    bool want_logprobs;
    struct token_mask mask;
    double ns; /* per token and sequence */
};

/* ---- a constraint with a constant mask, which ends nothing */

static enum mask_progress give_mask(
    void *self, uint64_t steps, struct token_mask *out, struct err *e)
{
    *out = *(const struct token_mask *)self;
    return MASK_DONE;
}

static bool accept_token(void *self, int32_t token)
{
    return true;
}

static void drop_tokens(void *self, int n)
{
}

static int force_nothing(void *self, int32_t *ids, int cap)
{
    return 0;
}

static bool is_never(void *self)
{
    return false;
}

static void reset_nothing(void *self)
{
}

static const struct constraint_ops constant_ops = { give_mask, accept_token, drop_tokens,
    force_nothing, is_never, is_never, reset_nothing };

static void make_mask(struct mask_case *k, int n_vocab)
{
    struct rng r = { .key = 5 };
    uint32_t *bits = xcalloc(token_mask_words(n_vocab), sizeof(*bits));

    for (int id = 0; id < n_vocab; id++) {
        bool has =
            k->n_permitted == INT32_MAX || (k->n_permitted == 0 && rng_below(&r, 2)) ||
            (k->n_permitted > 0 && rng_below(&r, (uint64_t)n_vocab) < (uint64_t)k->n_permitted);
        bits[id / 32] |= (uint32_t)has << id % 32;
    }
    bits[0] |= 8;
    k->mask = (struct token_mask){ .form = MASK_FORM_BITS, .bits = bits };
    if (k->n_permitted <= 0 || k->n_permitted == INT32_MAX)
        return;
    int32_t *ids = xcalloc((size_t)n_vocab, sizeof(*ids));
    int n = token_mask_list(&k->mask, n_vocab, ids, n_vocab);
    k->mask = (struct token_mask){ .form = MASK_FORM_IDS, .ids = ids, .n_ids = n };
    mem_free(bits);
}

/* ---- measurement */

/* Reads all events; the time from the first token of the batch to the last. */
static uint64_t read_batch(struct mailbox *box, int n_open)
{
    uint64_t first = 0, last = 0;
    struct msg *next;

    while (n_open > 0) {
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(box); m; m = next) {
            next = m->next;
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            struct gen *g = ev->gen;
            bool is_over = m->kind == GEN_END;
            if (m->kind == GEN_TOKEN) {
                last = clock_ns();
                first = first ? first : last;
            }
            gen_event_done(ev);
            if (is_over)
                gen_free(g);
            n_open -= is_over;
        }
    }
    return last - first;
}

static void run_case(
    struct engine *en, struct mailbox *box, const struct settings *o, struct mask_case *k)
{
    static int32_t prompt[PROMPT];
    const struct sample_constraint constant = { &constant_ops, &k->mask };
    struct gen_input in = { .prompt = prompt,
        .n_prompt = PROMPT,
        .max_tokens = o->n_tokens,
        .n_choices = 1,
        .constraints = k->n_permitted >= 0 ? &constant : NULL,
        .sample = sample_params_default };
    struct gen *g;
    struct err e;

    in.sample.want_logprobs = k->want_logprobs;
    in.sample.top_k = 40;
    for (int i = 0; i < o->batch; i++) {
        in.sample.seed = (uint64_t)i;
        CHECK(!gen_new(&g, &in, box, NULL, &e));
        CHECK(!engine_submit(en, g, &e));
    }
    double ns = (double)read_batch(box, o->batch) / (o->n_tokens - 1) / o->batch;
    k->ns = k->ns > 0 ? MIN(k->ns, ns) : ns;
}

static int run(const struct settings *o, struct err *e)
{
    struct mask_case cases[] = { { .name = "no constraint", .n_permitted = -1 },
        { .name = "all", .n_permitted = INT32_MAX }, { .name = "half" },
        { .name = "list 1000", .n_permitted = 1000 }, { .name = "list 100", .n_permitted = 100 },
        { .name = "list 5", .n_permitted = 5 },
        { .name = "no constraint, logprobs", .n_permitted = -1, .want_logprobs = true },
        { .name = "list 5, logprobs", .n_permitted = 5, .want_logprobs = true } };
    struct engine_options eo = engine_options_default;
    struct llama_options lo = { .n_threads = o->n_threads,
        .n_pages = (uint32_t)(o->batch * (PROMPT + o->n_tokens + 2 * PAGE_TOKENS) / PAGE_TOKENS),
        .max_rows = 512,
        .max_logits = BATCH_MAX };
    struct gguf *g;
    struct lm *lm;
    struct engine *en;
    struct mailbox *box;

    eo.max_batch = eo.max_sequences = o->batch;
    eo.prefix_cache = false;
    eo.spec.max = 0;
    if (gguf_open(&g, o->path, e) || kernels_choose(&lo.kernels, NULL, e) ||
        lm_open_llama(&lm, g, &lo, e) || engine_open(&en, lm, lo.kernels, &eo, e) ||
        mailbox_open(&box, e))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        make_mask(&cases[i], lm->n_vocab);
    printf("%d tokens, output head %.0f %% of the multiply-adds\n", lm->n_vocab,
        100.0 * (double)lm->logit_macs / (double)(lm->logit_macs + lm->row_macs));
    for (int round = 0; round < o->n_rounds; round++)
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
            run_case(en, box, o, &cases[i]);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        printf("%-26s %9.1f us/token %6.3f\n", cases[i].name, cases[i].ns / 1000,
            cases[0].ns / cases[i].ns);
    engine_close(en);
    mailbox_close(box);
    gguf_close(g);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        mem_free((void *)(uintptr_t)cases[i].mask.bits);
        mem_free((void *)(uintptr_t)cases[i].mask.ids);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct settings o = { .n_threads = 2, .batch = 1, .n_tokens = 64, .n_rounds = 5 };
    struct err e;

    for (int i = 1; i < argc; i++) {
        uint64_t v = 0;
        bool has_number = i + 1 < argc && str_to_u64(str_of(argv[i + 1]), &v) && v <= 1 << 20;
        int *to = !strcmp(argv[i], "--threads")  ? &o.n_threads
                  : !strcmp(argv[i], "--batch")  ? &o.batch
                  : !strcmp(argv[i], "--tokens") ? &o.n_tokens
                  : !strcmp(argv[i], "--rounds") ? &o.n_rounds
                                                 : NULL;
        if (to && has_number && v > 0) {
            *to = (int)v;
            i++;
        } else if (!to && argv[i][0] != '-' && !o.path) {
            o.path = argv[i];
        } else {
            o.path = NULL;
            break;
        }
    }
    if (!o.path || o.batch > BATCH_MAX || o.n_tokens < 2) {
        fprintf(stderr, "usage: masked FILE.gguf [--threads N] [--batch N] [--tokens N] "
                        "[--rounds N]\n");
        return 2;
    }
    if (run(&o, &e)) {
        fprintf(stderr, "masked: %s\n", e.msg);
        return 1;
    }
    return 0;
}
