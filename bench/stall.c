/* stall: what a long prompt does to the streams that run when it arrives.
 *
 *     stall FILE [--prompt N] [--streams N] [--threads N] [--stretch PERCENT]
 *
 * Starts the streams, measures the gaps between the tokens of each; lets the prompt in, measures
 * until its first token; and once more without it. A stream ends after some hundred tokens, and
 * another begins in its place with a prompt of one, so that contexts stay as short as they were and
 * gaps can be compared. At real-time priority the system stops whoever computes all the time for
 * 50 ms a second; `nice -n -20` is the better way to be alone. */
#include "base/mem.h"
#include "engine/engine.h"
#include "model/llama.h"
#include "os/clock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_STREAMS = 256, STEADY_TOKENS = 100, WARM_TOKENS = 60, BRIEF = 300 };

struct stream {
    struct gen *gen;
    uint64_t last_ns;
    int n, n_all; /* tokens of it; and of those before it in its place */
};

struct bench {
    struct engine *engine;
    struct mailbox *reply;
    struct stream streams[MAX_STREAMS + 1]; /* the last is the prompt */
    int n_streams, n_prompt, n_vocab;
    uint64_t first_ns; /* when the prompt's first token came */
    double *gaps;      /* ms */
    bool is_closing;
    int n_gaps, cap;
    int n_ended;
};

static int submit(struct bench *b, struct stream *s, int n_prompt, int n_out, struct err *e)
{
    struct gen_input in = {
        .n_prompt = n_prompt, .max_tokens = n_out, .n_choices = 1, .sample = sample_params_default
    };

    int32_t *prompt = xcalloc((size_t)n_prompt, sizeof(*prompt));
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = (i * 7919 + (int)(s - b->streams) * 31) % b->n_vocab;
    in.prompt = prompt;
    int failed = gen_new(&s->gen, &in, b->reply, s, e) || engine_submit(b->engine, s->gen, e);
    mem_free(prompt);
    return failed ? -1 : 0;
}

static void note_gap(struct bench *b, const struct stream *s, uint64_t now)
{
    b->gaps[b->n_gaps++] = (double)(now - s->last_ns) * 1e-6;
}

static int begin_stream(struct bench *b, struct stream *s, struct err *e)
{
    s->n = 0;
    return submit(b, s, 1, BRIEF + 11 * (int)(s - b->streams), e);
}

static void take(struct bench *b, struct gen_event *ev)
{
    struct stream *s = gen_user(ev->gen);
    uint64_t now = clock_ns();
    struct err e;

    if (ev->msg.kind == GEN_END) {
        gen_free(s->gen);
        s->gen = NULL;
        b->n_ended++;
        if (!b->is_closing && s < &b->streams[b->n_streams])
            CHECK(!begin_stream(b, s, &e));
        return;
    }
    if (ev->msg.kind == GEN_TOKEN && s == &b->streams[b->n_streams]) {
        b->first_ns = b->first_ns ? b->first_ns : now;
    } else if (ev->msg.kind == GEN_TOKEN) {
        if (s->n++ && b->n_gaps < b->cap)
            note_gap(b, s, now);
        s->last_ns = now;
        s->n_all++;
    }
    gen_event_done(ev);
}

static void pump(struct bench *b)
{
    struct msg *next;

    mailbox_wait(b->reply, UINT64_MAX);
    for (struct msg *m = mailbox_drain(b->reply); m; m = next) {
        next = m->next;
        take(b, container_of(m, struct gen_event, msg));
    }
}

static void run_until(struct bench *b, int n_tokens)
{
    for (bool is_there = false; !is_there;) {
        pump(b);
        is_there = true;
        for (int i = 0; i < b->n_streams; i++)
            is_there = is_there && b->streams[i].n_all >= n_tokens;
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double share(const struct bench *b, double p)
{
    return b->gaps[(int)((b->n_gaps - 1) * p)];
}

static void show(struct bench *b, const char *when)
{
    qsort(b->gaps, (size_t)b->n_gaps, sizeof(*b->gaps), by_size);
    printf("%-7s %8.2f %8.2f %8.2f %8.2f\n", when, share(b, 0.5), share(b, 0.99), share(b, 0.999),
        share(b, 1));
    fflush(stdout);
}

static double steady(struct bench *b, const char *when)
{
    int n = b->streams[0].n_all;

    b->n_gaps = 0;
    run_until(b, n + STEADY_TOKENS);
    show(b, when);
    return share(b, 0.5);
}

static int measure(struct bench *b, struct err *e)
{
    for (int i = 0; i < b->n_streams; i++)
        if (begin_stream(b, &b->streams[i], e))
            return -1;
    run_until(b, WARM_TOKENS);
    printf("gaps of %d streams, ms: median, p99, p99.9, longest; then in multiples of the median "
           "before\n",
        b->n_streams);
    double alone = steady(b, "before");
    b->n_gaps = 0;
    uint64_t came = clock_ns();
    if (submit(b, &b->streams[b->n_streams], b->n_prompt, 1, e))
        return -1;
    while (!b->first_ns)
        pump(b);
    show(b, "during");
    for (int i = 0; i < b->n_gaps; i++)
        b->gaps[i] /= alone;
    show(b, "stretch");
    steady(b, "after");
    printf("the prompt of %d: first token after %.1f s\n", b->n_prompt,
        (double)(b->first_ns - came) * 1e-9);
    return 0;
}

static void close_bench(struct bench *b)
{
    int n_begun = 0;

    b->is_closing = true;
    for (int i = 0; i <= b->n_streams; i++)
        if (b->streams[i].gen) {
            n_begun++;
            engine_cancel(b->engine, b->streams[i].gen);
        }
    for (b->n_ended = 0; b->n_ended < n_begun;)
        pump(b);
    engine_close(b->engine);
    mailbox_close(b->reply);
    mem_free(b->gaps);
}

static int run(struct bench *b, const char *path, int n_threads, int stretch, struct err *e)
{
    struct engine_options eo = engine_options_default;
    struct llama_options lo = { .n_threads = n_threads, .max_rows = 2048 };
    int n_ctx = b->n_prompt + 16 * BRIEF;
    struct gguf *g;
    struct lm *lm;

    if (kernels_choose(&lo.kernels, "auto", e) || gguf_open(&g, path, e))
        return -1;
    lo.max_logits = b->n_streams + 1;
    lo.n_pages = (uint32_t)((n_ctx + b->n_streams * 16 * BRIEF) / PAGE_TOKENS);
    int failed = lm_open_llama(&lm, g, &lo, e);
    gguf_close(g);
    if (failed)
        return -1;
    b->n_vocab = lm->n_vocab;
    eo.max_batch = b->n_streams + 1;
    eo.stretch_percent = stretch;
    eo.n_ctx = n_ctx; /* whatever the model was made for: it takes the same time */
    if (engine_open(&b->engine, lm, lo.kernels, &eo, e) || mailbox_open(&b->reply, e))
        return -1;
    failed = measure(b, e);
    close_bench(b);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = { { "prompt", required_argument, NULL, 'p' },
        { "streams", required_argument, NULL, 'n' }, { "threads", required_argument, NULL, 't' },
        { "stretch", required_argument, NULL, 's' }, { 0 } };
    static struct bench b = { .n_streams = 16, .n_prompt = 32000, .cap = 1 << 22 };
    int n_threads = 0, stretch = engine_options_default.stretch_percent;
    struct err e;

    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        int v = optarg ? (int)strtol(optarg, NULL, 10) : 0;
        if (c == 'p')
            b.n_prompt = v;
        else if (c == 'n')
            b.n_streams = MIN(v, (int)MAX_STREAMS);
        else if (c == 't')
            n_threads = v;
        else if (c == 's')
            stretch = v;
    }
    if (optind != argc - 1 || b.n_prompt < 1 || b.n_streams < 1) {
        fprintf(stderr, "usage: stall FILE [--prompt N] [--streams N] [--threads N] "
                        "[--stretch PERCENT]\n");
        return 2;
    }
    b.gaps = xcalloc((size_t)b.cap, sizeof(*b.gaps));
    if (run(&b, argv[optind], n_threads, stretch, &e)) {
        fprintf(stderr, "stall: %s\n", e.msg);
        return 1;
    }
    return 0;
}
