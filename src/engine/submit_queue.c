#include "engine/gen.h"
#include "base/mem.h"

#include <sched.h>
#include <stdatomic.h>

int submit_queue_open(struct submit_queue **out, struct err *e)
{
    struct submit_queue *p = xcalloc(1, sizeof(*p));

    if (mailbox_open(&p->inbox, e)) {
        mem_free(p);
        return -1;
    }
    p->refs = 1;
    p->wake.kind = ENGINE_MSG_WAKE;
    *out = p;
    return 0;
}

void submit_queue_unref(struct submit_queue *p)
{
    if (atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    /* The engine is closed and all callers have freed their requests: the remaining messages are
     * memory of requests and late events. */
    struct msg *next;
    for (struct msg *m = mailbox_drain(p->inbox); m; m = next) {
        next = m->next;
        if (m->kind == ENGINE_MSG_FREE)
            mem_free(container_of(m, struct gen, free_msg));
    }
    mailbox_close(p->inbox);
    mem_free(p);
}

int submit_queue_check_size(const struct submit_queue *p, int n_requests, int n_choices,
    int64_t n_prompt_tokens, struct err *e)
{
    if (n_requests > p->max_requests)
        return err_set(e, ERR_RANGE, "%d prompts in one request exceed the queue of %d prompts.",
            n_requests, p->max_requests);
    if (n_choices > p->max_seqs)
        return err_set(e, ERR_RANGE, "%d choices in one request exceed the queue of %d choices.",
            n_choices, p->max_seqs);
    /* A prompt of any size may wait alone. */
    if (n_requests > 1 && n_prompt_tokens > p->max_tokens)
        return err_set(e, ERR_RANGE,
            "%lld prompt tokens in one request exceed the queue of %lld prompt tokens.",
            (long long)n_prompt_tokens, (long long)p->max_tokens);
    return 0;
}

enum { DEADLINE_MARGIN = 10 }; /* a tenth more than the estimate must fit before the deadline */

static int check_tokens(const struct submit_queue *p, const struct gen *g, struct err *e)
{
    const struct gen_input *in = &g->in;
    const int32_t *prompt = g->choice[0].tokens; /* the copy that will be computed */

    for (int i = 0; i < in->n_prompt; i++)
        if (prompt[i] < 0 || prompt[i] >= p->n_vocab)
            return err_set(e, ERR_INVALID,
                "prompt token %d has id %d, and the vocabulary has %d tokens", i, prompt[i],
                p->n_vocab);
    for (int i = 0; in->script && i < in->script->n_tokens; i++)
        if (in->script->tokens[i] < 0 || in->script->tokens[i] >= p->n_vocab)
            return err_set(e, ERR_INVALID, "script token %d is outside the vocabulary", i);
    if (in->n_prompt + (in->max_tokens > 0) > p->n_ctx)
        return err_set(
            e, ERR_CONTEXT, "the prompt has %d tokens and the context %d", in->n_prompt, p->n_ctx);
    return 0;
}

/* While there is room in the running set a request is admitted without an estimate: it provides new
 * measurements. */
static int check_deadline(
    const struct submit_queue *p, const struct gen *g, uint64_t now_ns, struct err *e)
{
    if (!g->in.deadline_ns || p->n_requests <= p->max_batch)
        return 0;
    struct wait_times estimate =
        wait_estimate_of(&p->wait_estimate, p->n_prompt_tokens, g->in.n_prompt, g->in.max_tokens);
    if (now_ns + estimate.end_ns + estimate.end_ns / DEADLINE_MARGIN <= g->in.deadline_ns)
        return 0;
    return err_set(e, ERR_OVERLOADED,
        "the estimated duration is %.1f s (first token after %.1f s), which exceeds the deadline",
        (double)estimate.end_ns * 1e-9, (double)estimate.first_ns * 1e-9);
}

static int count_admitted(struct submit_queue *p, const struct gen *g, struct err *e)
{
    if (atomic_fetch_add(&p->n_requests, 1) >= p->max_requests) {
        p->n_requests--;
        return err_set(e, ERR_OVERLOADED, "the queue is full: %d requests", p->max_requests);
    }
    if (atomic_fetch_add(&p->n_seqs, g->in.n_choices) > p->max_seqs - g->in.n_choices) {
        p->n_seqs -= g->in.n_choices;
        p->n_requests--;
        return err_set(e, ERR_OVERLOADED, "the queue is full: %d choices", p->max_seqs);
    }
    int64_t before = atomic_fetch_add(&p->n_prompt_tokens, g->in.n_prompt);
    /* A prompt of any size may wait alone. */
    if (before > 0 && before + g->in.n_prompt > p->max_tokens) {
        submit_queue_uncount(p, g);
        return err_set(
            e, ERR_OVERLOADED, "the queue is full: %lld waiting prompt tokens", (long long)before);
    }
    return 0;
}

void submit_queue_uncount(struct submit_queue *p, const struct gen *g)
{
    if (!g->is_forked)
        p->n_prompt_tokens -= g->in.n_prompt;
    p->n_seqs -= g->in.n_choices;
    p->n_requests--;
}

static int admit_request(
    struct submit_queue *p, const struct gen *g, uint64_t now_ns, struct err *e)
{
    if (p->is_draining)
        return err_set(e, ERR_DRAINING, "the model is being shut down");
    if (check_deadline(p, g, now_ns, e) || count_admitted(p, g, e)) {
        p->stats.rejected++;
        return -1;
    }
    return 0;
}

uint64_t submit_queue_wait_ns(const struct submit_queue *p)
{
    if (p->n_requests <= p->max_batch)
        return 0;
    return wait_estimate_of(&p->wait_estimate, p->n_prompt_tokens, 0, 0).first_ns;
}

int submit_queue_submit(struct submit_queue *p, struct gen *g, uint64_t now_ns, struct err *e)
{
    int failed = -1;

    CHECK(!g->queue);
    if (check_tokens(p, g, e))
        return -1;
    /* Incremented before is_draining is read: submit_queue_shut waits for this submission, or it
     * sees the flag. */
    p->n_submitting++;
    if (!admit_request(p, g, now_ns, e)) {
        g->queue = p;
        p->refs++;
        g->max_out = MIN(g->in.max_tokens, p->n_ctx - g->in.n_prompt);
        g->result.submitted_ns = now_ns;
        g->submit_msg.kind = ENGINE_MSG_SUBMIT;
        mailbox_post(p->inbox, &g->submit_msg);
        failed = 0;
    }
    p->n_submitting--;
    return failed;
}

void submit_queue_shut(struct submit_queue *p)
{
    p->is_draining = true;
    while (p->n_submitting > 0)
        sched_yield(); /* a few instructions and one post */
}
