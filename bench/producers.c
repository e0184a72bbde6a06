/* producers: requests per second of the engine with several submitting threads.
 *
 *     producers [--threads N] [--outstanding N] [--tokens N] [--seconds S]
 *
 * Each thread has a mailbox for its events and keeps `outstanding` scripted requests of `tokens`
 * output tokens in the engine. The timed model computes nothing, so the messages between these
 * threads and the engine thread (os/mailbox.h) are a large share of the time. */
#include "base/mem.h"
#include "engine/engine.h"
#include "os/clock.h"
#include "testing/timed.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { THREADS_MAX = 64, TOKENS_MAX = 1000 };

static struct {
    int n_threads, n_outstanding, n_tokens, seconds;
} opt = { 4, 64, 1, 3 };

static struct engine *engine;
static int32_t tokens[TOKENS_MAX], group_ends[TOKENS_MAX];
static uint64_t end_ns;

struct producer { /* owner: its thread */
    pthread_t thread;
    struct mailbox *reply;
    int n_live;
    uint64_t n_done;
};

static void submit_request(struct producer *p)
{
    const struct gen_script script = { tokens, opt.n_tokens, group_ends, opt.n_tokens, 0 };
    struct gen_script *copy = xcalloc(1, sizeof(*copy));
    struct gen *g;
    struct err e;

    *copy = script;
    struct gen_input in = { .prompt = tokens,
        .n_prompt = 8,
        .max_tokens = opt.n_tokens,
        .n_choices = 1,
        .sample = sample_params_default,
        .script = copy };
    CHECK(!gen_new(&g, &in, p->reply, copy, &e));
    CHECK(!engine_submit(engine, g, &e));
    p->n_live++;
}

static void read_events(struct producer *p)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(p->reply); m; m = next) {
        next = m->next;
        struct gen_event *ev = container_of(m, struct gen_event, msg);
        if (m->kind != GEN_END) {
            gen_event_done(ev);
            continue;
        }
        mem_free(gen_user(ev->gen));
        gen_free(ev->gen);
        p->n_live--;
        p->n_done++;
    }
}

static void *run_producer(void *arg)
{
    struct producer *p = arg;

    while (p->n_live > 0 || clock_ns() < end_ns) {
        while (p->n_live < opt.n_outstanding && clock_ns() < end_ns)
            submit_request(p);
        if (p->n_live > 0)
            mailbox_wait(p->reply, UINT64_MAX);
        read_events(p);
    }
    return NULL;
}

static int open_engine(struct err *e)
{
    static uint64_t model_clock;
    const struct timed_options to = { .n_vocab = 4,
        .n_ctx_train = TOKENS_MAX + 8,
        .max_rows = 8192,
        .n_pages = (uint32_t)(opt.n_threads * opt.n_outstanding * 2 + 100),
        .clock = &model_clock };
    struct engine_options eo = engine_options_default;
    const struct kernels *k;
    struct lm *lm;

    eo.max_batch = eo.max_sequences = 256;
    eo.max_queue = opt.n_threads * opt.n_outstanding;
    eo.prefix_cache = false;
    return kernels_choose(&k, "ref", e) || lm_open_timed(&lm, &to, e) ||
                   engine_open(&engine, lm, k, &eo, e)
               ? -1
               : 0;
}

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int measure(struct err *e)
{
    static struct producer producers[THREADS_MAX];
    uint64_t n_done = 0;

    if (open_engine(e))
        return -1;
    for (int i = 0; i < TOKENS_MAX; i++)
        group_ends[i] = i + 1;
    uint64_t start_ns = clock_ns();
    end_ns = start_ns + (uint64_t)opt.seconds * 1000000000u;
    for (int i = 0; i < opt.n_threads; i++) {
        if (mailbox_open(&producers[i].reply, e))
            return -1;
        CHECK(!pthread_create(&producers[i].thread, NULL, run_producer, &producers[i]));
    }
    for (int i = 0; i < opt.n_threads; i++) {
        pthread_join(producers[i].thread, NULL);
        n_done += producers[i].n_done;
    }
    double s = (double)(clock_ns() - start_ns) * 1e-9, n = (double)n_done;
    printf("%d threads, %d outstanding, %d tokens: %.0f requests/s, %.0f tokens/s, "
           "%.2f us of CPU time per request\n",
        opt.n_threads, opt.n_outstanding, opt.n_tokens, n / s, n * opt.n_tokens / s,
        cpu_seconds() / n * 1e6);
    engine_close(engine);
    for (int i = 0; i < opt.n_threads; i++)
        mailbox_close(producers[i].reply);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = { { "threads", required_argument, NULL, 't' },
        { "outstanding", required_argument, NULL, 'o' }, { "tokens", required_argument, NULL, 'n' },
        { "seconds", required_argument, NULL, 's' }, { 0 } };
    struct err e;
    bool is_ok = true;

    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        int v = optarg ? (int)strtol(optarg, NULL, 10) : 0;
        is_ok = is_ok && c != '?' && v > 0;
        *(c == 't'     ? &opt.n_threads
            : c == 'o' ? &opt.n_outstanding
            : c == 'n' ? &opt.n_tokens
                       : &opt.seconds) = v;
    }
    if (!is_ok || optind != argc || opt.n_threads > THREADS_MAX || opt.n_tokens > TOKENS_MAX) {
        fprintf(stderr,
            "usage: producers [--threads N] [--outstanding N] [--tokens N] [--seconds S]\n");
        return 2;
    }
    if (measure(&e)) {
        fprintf(stderr, "producers: %s\n", e.msg);
        return 1;
    }
    return 0;
}
