/* stall: inter-token latency (ITL) of running streams while a long prompt is prefilled.
 *
 *     stall FILE [--prompt N] [--streams N] [--threads N] [--mixed-step-percent N]
 *
 * Measures the gaps between tokens of --streams decoding sequences before the prompt is submitted,
 * until the prompt's first token, and after it. --mixed-step-percent is the server's option.
 * A stream ends after some hundred tokens and is replaced by one with a prompt of one token, so the
 * depth stays constant and the gaps are comparable. To reduce the influence of other processes use
 * `nice -n -20`: at real-time priority Linux suspends a busy process for 50 ms per second. */
#include "base/mem.h"
#include "engine/engine.h"
#include "format/model_file.h"
#include "model/llama.h"
#include "os/clock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_STREAMS = 256, STEADY_TOKENS = 100, WARM_TOKENS = 60, STREAM_TOKENS = 300 };

struct stream {
    struct gen *gen;
    uint64_t last_ns;
    int n, n_all; /* tokens of this stream; of all streams in this slot */
};

struct bench {
    struct engine *engine;
    struct mailbox *reply;
    struct stream streams[MAX_STREAMS + 1]; /* streams[n_streams] is the long prompt */
    int n_streams, n_prompt, n_vocab;
    uint64_t first_ns; /* time of the long prompt's first token; 0 before */
    double *gaps;      /* ms */
    bool is_closing;
    int n_gaps, cap;
    int n_ended;
};

static int submit_request(struct bench *b, struct stream *s, int n_prompt, int n_out, struct err *e)
{
    struct gen_input in = { .cache_prompt = true,
        .n_prompt = n_prompt,
        .max_tokens = n_out,
        .n_choices = 1,
        .sample = sample_params_default };

    int32_t *prompt = xcalloc((size_t)n_prompt, sizeof(*prompt));
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = (i * 7919 + (int)(s - b->streams) * 31) % b->n_vocab;
    in.prompt = prompt;
    int failed = gen_new(&s->gen, &in, b->reply, s, e) || engine_submit(b->engine, s->gen, e);
    mem_free(prompt);
    return failed ? -1 : 0;
}

static void add_gap(struct bench *b, const struct stream *s, uint64_t now)
{
    b->gaps[b->n_gaps++] = (double)(now - s->last_ns) * 1e-6;
}

static int begin_stream(struct bench *b, struct stream *s, struct err *e)
{
    s->n = 0;
    return submit_request(b, s, 1, STREAM_TOKENS + 11 * (int)(s - b->streams), e);
}

static void handle_event(struct bench *b, struct gen_event *ev)
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
            add_gap(b, s, now);
        s->last_ns = now;
        s->n_all++;
    }
    gen_event_done(ev);
}

static void wait_for_events(struct bench *b)
{
    struct msg *next;

    mailbox_wait(b->reply, UINT64_MAX);
    for (struct msg *m = mailbox_drain(b->reply); m; m = next) {
        next = m->next;
        handle_event(b, container_of(m, struct gen_event, msg));
    }
}

static void run_until(struct bench *b, int n_tokens)
{
    for (bool is_reached = false; !is_reached;) {
        wait_for_events(b);
        is_reached = true;
        for (int i = 0; i < b->n_streams; i++)
            is_reached = is_reached && b->streams[i].n_all >= n_tokens;
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double gap_quantile(const struct bench *b, double p)
{
    return b->gaps[(int)((b->n_gaps - 1) * p)];
}

static void print_gaps(struct bench *b, const char *when)
{
    qsort(b->gaps, (size_t)b->n_gaps, sizeof(*b->gaps), compare_doubles);
    printf("%-7s %8.2f %8.2f %8.2f %8.2f\n", when, gap_quantile(b, 0.5), gap_quantile(b, 0.99),
        gap_quantile(b, 0.999), gap_quantile(b, 1));
    fflush(stdout);
}

static double measure_steady(struct bench *b, const char *when)
{
    int n = b->streams[0].n_all;

    b->n_gaps = 0;
    run_until(b, n + STEADY_TOKENS);
    print_gaps(b, when);
    return gap_quantile(b, 0.5);
}

static int measure_all(struct bench *b, struct err *e)
{
    for (int i = 0; i < b->n_streams; i++)
        if (begin_stream(b, &b->streams[i], e))
            return -1;
    run_until(b, WARM_TOKENS);
    printf("ITL of %d streams, ms: p50, p99, p99.9, max; row `factor`: multiples of the p50 "
           "before\n",
        b->n_streams);
    double median_alone = measure_steady(b, "before");
    b->n_gaps = 0;
    uint64_t submitted_ns = clock_ns();
    if (submit_request(b, &b->streams[b->n_streams], b->n_prompt, 1, e))
        return -1;
    while (!b->first_ns)
        wait_for_events(b);
    print_gaps(b, "during");
    for (int i = 0; i < b->n_gaps; i++)
        b->gaps[i] /= median_alone;
    print_gaps(b, "factor");
    measure_steady(b, "after");
    printf("prompt of %d tokens: TTFT %.1f s\n", b->n_prompt,
        (double)(b->first_ns - submitted_ns) * 1e-9);
    return 0;
}

static void close_bench(struct bench *b)
{
    int n_running = 0;

    b->is_closing = true;
    for (int i = 0; i <= b->n_streams; i++)
        if (b->streams[i].gen) {
            n_running++;
            engine_cancel(b->engine, b->streams[i].gen);
        }
    for (b->n_ended = 0; b->n_ended < n_running;)
        wait_for_events(b);
    engine_close(b->engine);
    mailbox_close(b->reply);
    mem_free(b->gaps);
}

static int open_and_measure(
    struct bench *b, const char *path, int n_threads, int mixed_step_percent, struct err *e)
{
    struct engine_options eo = engine_options_default;
    struct llama_options lo = { .n_threads = n_threads, .max_rows = 2048 };
    int n_ctx = b->n_prompt + 16 * STREAM_TOKENS;
    struct gguf *g;
    struct lm *lm;

    if (kernels_choose(&lo.kernels, "auto", e) || model_file_open(&g, path, e))
        return -1;
    lo.max_logits = b->n_streams + 1;
    lo.n_pages = (uint32_t)((n_ctx + b->n_streams * 16 * STREAM_TOKENS) / PAGE_TOKENS);
    int failed = lm_open_llama(&lm, g, &lo, e);
    gguf_close(g);
    if (failed)
        return -1;
    b->n_vocab = lm->n_vocab;
    eo.max_batch = b->n_streams + 1;
    eo.mixed_step_percent = mixed_step_percent;
    eo.n_ctx = n_ctx; /* may exceed the model's training context: the step time is the same */
    if (engine_open(&b->engine, lm, lo.kernels, &eo, e) || mailbox_open(&b->reply, e))
        return -1;
    failed = measure_all(b, e);
    close_bench(b);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = { { "prompt", required_argument, NULL, 'p' },
        { "streams", required_argument, NULL, 'n' }, { "threads", required_argument, NULL, 't' },
        { "mixed-step-percent", required_argument, NULL, 's' }, { 0 } };
    static struct bench b = { .n_streams = 16, .n_prompt = 32000, .cap = 1 << 22 };
    int n_threads = 0, mixed_step_percent = engine_options_default.mixed_step_percent;
    struct err e;

    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        int v = optarg ? (int)strtol(optarg, NULL, 10) : 0;
        if (c == 'p')
            b.n_prompt = v;
        else if (c == 'n')
            b.n_streams = MIN(v, (int)MAX_STREAMS);
        else if (c == 't')
            n_threads = v;
        else if (c == 's')
            mixed_step_percent = v;
    }
    if (optind != argc - 1 || b.n_prompt < 1 || b.n_streams < 1) {
        fprintf(stderr, "usage: stall FILE [--prompt N] [--streams N] [--threads N] "
                        "[--mixed-step-percent N]\n");
        return 2;
    }
    b.gaps = xcalloc((size_t)b.cap, sizeof(*b.gaps));
    if (open_and_measure(&b, argv[optind], n_threads, mixed_step_percent, &e)) {
        fprintf(stderr, "stall: %s\n", e.msg);
        return 1;
    }
    return 0;
}
