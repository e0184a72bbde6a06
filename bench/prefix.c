/* prefix: benchmark of the prefix cache: lookup time, and time to first token (TTFT) after a hit.
 *
 *     prefix FILE [--prompt N] [--threads N] [--others N] [--disk DIR]
 *
 * Part 1, radix tree only: the tree contains N other prompts of the same length, which share their
 * first quarter. Prints the lookup time per matched token with warm and with cold CPU caches.
 * Part 2: TTFT of a prompt without and with a prefix-cache hit and, with --disk, after a restart,
 * with the KV pages loaded from the offload tier in DIR. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "format/model_file.h"
#include "model/llama.h"
#include "os/clock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 21, SWEEP = 64 << 20 };

struct setup {
    const char *path, *disk;
    int n_prompt, n_threads, n_others;
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), compare_doubles);
    return v[n / 2];
}

/* ---- radix tree only */

static void generate_text(int32_t *text, int n, int which)
{
    struct rng shared = { .key = 1 }, own = { .key = 2 + (uint64_t)which };

    for (int i = 0; i < n; i++)
        text[i] = (int32_t)rng_below(i < n / 4 ? &shared : &own, 100000);
}

static void insert_text(
    struct tree *t, struct page_pool *p, tree_node root, const int32_t *text, int n)
{
    page_id *pages = xcalloc((size_t)n / PAGE_TOKENS, sizeof(*pages));
    tree_node node = root;

    for (int i = 0; i < n / PAGE_TOKENS; i++) {
        pages[i] = page_take(p);
        CHECK(pages[i].i != PAGE_NONE.i);
        node = tree_insert(t, node, text + i * PAGE_TOKENS, PAGE_TOKENS, &pages[i]);
    }
    for (int i = 0; i < n / PAGE_TOKENS; i++)
        page_unref(p, pages[i]);
    mem_free(pages);
}

static double lookup_ns(
    struct tree *t, struct page_pool *p, tree_node root, const int32_t *text, int n)
{
    page_id *pages = xcalloc((size_t)n / PAGE_TOKENS + 1, sizeof(*pages));
    tree_node node = root;
    uint64_t start_ns = clock_ns();
    int found = tree_match(t, &node, text, n, pages);
    double ns = (double)(clock_ns() - start_ns) / found;

    CHECK(found == n);
    for (int i = 0; i < n / PAGE_TOKENS; i++)
        page_unref(p, pages[i]);
    mem_free(pages);
    return ns;
}

static int bench_tree(const struct setup *s, struct err *e)
{
    const struct cache_scope scope = { .tenant = 1 };
    const int n = s->n_prompt / PAGE_TOKENS * PAGE_TOKENS;
    uint32_t n_pages = (uint32_t)((s->n_others + 2) * n / PAGE_TOKENS);
    struct tree_options o = { .n_users = 4, .quota = n_pages };
    struct page_pool *p;
    struct tree *t;
    double warm[ROUNDS], cold[ROUNDS];
    char *sweep = xcalloc(1, SWEEP);
    int32_t *text = xcalloc((size_t)n, sizeof(*text));

    if (page_pool_new(&p, n_pages, e) || tree_new(&t, p, &o, e))
        return -1;
    tree_node root = tree_enter(t, &scope);
    for (int i = 0; i <= s->n_others; i++) {
        generate_text(text, n, i);
        insert_text(t, p, root, text, n);
    }
    generate_text(text, n, s->n_others / 2);
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < SWEEP; j += 64)
            *(volatile char *)&sweep[j] = 1;
        cold[i] = lookup_ns(t, p, root, text, n);
        warm[i] = lookup_ns(t, p, root, text, n);
    }
    printf("lookup of %d tokens among %d prompts, per token: %.2f ns, cold CPU caches %.2f ns\n", n,
        s->n_others + 1, median(warm, ROUNDS), median(cold, ROUNDS));
    tree_leave(t, root);
    tree_free(t);
    page_pool_free(p);
    mem_free(sweep);
    mem_free(text);
    return 0;
}

/* ---- time to first token */

static int run_request(
    struct engine *en, struct mailbox *box, const struct gen_input *in, double *ms, struct err *e)
{
    struct gen *g;

    if (gen_new(&g, in, box, NULL, e) || engine_submit(en, g, e))
        return -1;
    for (bool is_finished = false; !is_finished;) {
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(box), *next; m; m = next) {
            next = m->next;
            is_finished |= m->kind == GEN_END;
            gen_event_done(container_of(m, struct gen_event, msg));
        }
    }
    const struct gen_result *r = gen_result(g);
    *ms = (double)(r->first_token_ns - r->submitted_ns) * 1e-6;
    printf("  %d of %d tokens cached: TTFT %.2f ms\n", r->n_cached, in->n_prompt, *ms);
    gen_free(g);
    return 0;
}

static int open_model(struct engine **out, const struct setup *s, int *n_vocab, struct err *e)
{
    static const uint8_t digest[32] = "whatever is measured";
    struct llama_options lo = { .n_threads = s->n_threads,
        .n_pages = (uint32_t)(s->n_prompt / PAGE_TOKENS + 16),
        .max_rows = 512 };
    struct engine_options eo = engine_options_default;
    const struct kernels *k;
    struct gguf *g;
    struct lm *lm;

    eo.model_digest = digest;
    eo.kv_disk = s->disk;
    eo.kv_disk_bytes = 16 * GB;
    if (model_file_open(&g, s->path, e))
        return -1;
    int failed = kernels_choose(&k, NULL, e) || lm_open_llama(&lm, g, &lo, e);
    gguf_close(g);
    if (failed)
        return -1;
    *n_vocab = lm->n_vocab;
    return engine_open(out, lm, k, &eo, e);
}

static int bench_model(const struct setup *s, struct err *e)
{
    struct engine *en;
    struct mailbox *box;
    double cold, warm, disk;
    int n_vocab;

    if (open_model(&en, s, &n_vocab, e) || mailbox_open(&box, e))
        return -1;
    int32_t *prompt = xcalloc((size_t)s->n_prompt, sizeof(*prompt));
    struct rng r = { .key = rng_entropy() }; /* differs from prompts of earlier runs in DIR */
    for (int i = 0; i < s->n_prompt; i++)
        prompt[i] = (int32_t)rng_below(&r, (uint64_t)n_vocab);
    struct gen_input in = { .cache_prompt = true,
        .prompt = prompt,
        .n_prompt = s->n_prompt,
        .max_tokens = 4,
        .n_choices = 1,
        .sample = sample_params_default };
    if (run_request(en, box, &in, &cold, e) || run_request(en, box, &in, &warm, e))
        return -1;
    printf("warm / cold: %.3f %%\n", 100 * warm / cold);
    engine_close(en); /* writes the cached KV pages to the offload tier */
    if (s->disk) {
        if (open_model(&en, s, &n_vocab, e) || run_request(en, box, &in, &disk, e))
            return -1;
        printf("from the offload tier after a restart / cold: %.3f %%\n", 100 * disk / cold);
        engine_close(en);
    }
    mem_free(prompt);
    mailbox_close(box);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option flags[] = { { "prompt", 1, NULL, 'p' }, { "threads", 1, NULL, 't' },
        { "others", 1, NULL, 'o' }, { "disk", 1, NULL, 'd' }, { 0 } };
    struct setup s = { .n_prompt = 8192, .n_others = 63 };
    struct err e;
    int c;

    while ((c = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        if (c == 'd') {
            s.disk = optarg;
            continue;
        }
        int n = optarg ? (int)strtol(optarg, NULL, 10) : 0;
        if (c == '?' || n < 0 || n > 1 << 20)
            return 2;
        *(c == 'p' ? &s.n_prompt : c == 't' ? &s.n_threads : &s.n_others) = n;
    }
    if (optind + 1 != argc || s.n_prompt < PAGE_TOKENS || s.n_others > 4096) {
        fprintf(
            stderr, "usage: prefix FILE [--prompt N] [--threads N] [--others N] [--disk DIR]\n");
        return 2;
    }
    s.path = argv[optind];
    if (bench_tree(&s, &e) || bench_model(&s, &e)) {
        fprintf(stderr, "prefix: %s\n", e.msg);
        return 1;
    }
    return 0;
}
