#include "engine/gen.h"
#include "base/mem.h"

#include <sched.h>
#include <stdatomic.h>

int port_open(struct port **out, struct err *e)
{
    struct port *p = xcalloc(1, sizeof(*p));

    if (mailbox_open(&p->inbox, e)) {
        mem_free(p);
        return -1;
    }
    p->refs = 1;
    p->wake.kind = PORT_WAKE;
    *out = p;
    return 0;
}

void port_unref(struct port *p)
{
    if (atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    /* The engine is gone and every asker has freed what it had: what lies here is the memory of
     * requests, and events that came home too late. */
    struct msg *next;
    for (struct msg *m = mailbox_drain(p->inbox); m; m = next) {
        next = m->next;
        if (m->kind == PORT_FREE)
            mem_free(container_of(m, struct gen, free_msg));
    }
    mailbox_close(p->inbox);
    mem_free(p);
}

enum { MARGIN = 10 }; /* a tenth more than expected must fit before the deadline */

static int check_gen(const struct port *p, const struct gen *g, struct err *e)
{
    const struct gen_input *in = &g->in;
    const int32_t *prompt = g->choice[0].tokens; /* the copy that will be used */

    for (int i = 0; i < in->n_prompt; i++)
        if (prompt[i] < 0 || prompt[i] >= p->n_vocab)
            return err_set(e, ERR_INVALID, "token %d of the prompt is %d; the vocabulary has %d", i,
                prompt[i], p->n_vocab);
    for (int i = 0; in->script && i < in->script->n_tokens; i++)
        if (in->script->tokens[i] < 0 || in->script->tokens[i] >= p->n_vocab)
            return err_set(e, ERR_INVALID, "token %d of the script is none", i);
    if (in->n_prompt + (in->max_tokens > 0) > p->n_ctx)
        return err_set(
            e, ERR_CONTEXT, "the prompt has %d tokens, the context %d", in->n_prompt, p->n_ctx);
    return 0;
}

/* While places are free a request is let in whatever was measured before: it is how new measures
 * come about. */
static int check_deadline(const struct port *p, const struct gen *g, uint64_t now_ns, struct err *e)
{
    if (!g->in.deadline_ns || p->n_requests <= p->max_batch)
        return 0;
    struct expected x =
        forecast_of(&p->forecast, p->n_prompt_tokens, g->in.n_prompt, g->in.max_tokens);
    if (now_ns + x.end_ns + x.end_ns / MARGIN <= g->in.deadline_ns)
        return 0;
    return err_set(e, ERR_OVERLOADED,
        "it would take about %.1f s, %.1f of them to its first token; its deadline is earlier",
        (double)x.end_ns * 1e-9, (double)x.first_ns * 1e-9);
}

static int count_in(struct port *p, const struct gen *g, struct err *e)
{
    if (atomic_fetch_add(&p->n_requests, 1) >= p->max_requests) {
        p->n_requests--;
        return err_set(e, ERR_OVERLOADED, "%d requests wait or run already", p->max_requests);
    }
    if (atomic_fetch_add(&p->n_seqs, g->in.n_choices) > p->max_seqs - g->in.n_choices) {
        p->n_seqs -= g->in.n_choices;
        p->n_requests--;
        return err_set(e, ERR_OVERLOADED, "%d choices wait or run already", p->max_seqs);
    }
    int64_t before = atomic_fetch_add(&p->n_prompt_tokens, g->in.n_prompt);
    if (before > 0 && before + g->in.n_prompt > p->max_tokens) { /* alone any prompt may wait */
        port_uncount(p, g);
        return err_set(e, ERR_OVERLOADED, "%lld prompt tokens wait already", (long long)before);
    }
    return 0;
}

void port_uncount(struct port *p, const struct gen *g)
{
    if (!g->is_forked)
        p->n_prompt_tokens -= g->in.n_prompt;
    p->n_seqs -= g->in.n_choices;
    p->n_requests--;
}

static int admit(struct port *p, const struct gen *g, uint64_t now_ns, struct err *e)
{
    if (p->is_draining)
        return err_set(e, ERR_DRAINING, "the model is being shut down");
    if (check_deadline(p, g, now_ns, e) || count_in(p, g, e)) {
        p->stats.rejected++;
        return -1;
    }
    return 0;
}

uint64_t port_wait_ns(const struct port *p)
{
    if (p->n_requests <= p->max_batch)
        return 0;
    return forecast_of(&p->forecast, p->n_prompt_tokens, 0, 0).first_ns;
}

int port_submit(struct port *p, struct gen *g, uint64_t now_ns, struct err *e)
{
    int failed = -1;

    CHECK(!g->port);
    if (check_gen(p, g, e))
        return -1;
    /* Announced before the look at is_draining: port_shut waits for us or we see its flag. */
    p->n_submitting++;
    if (!admit(p, g, now_ns, e)) {
        g->port = p;
        p->refs++;
        g->max_out = MIN(g->in.max_tokens, p->n_ctx - g->in.n_prompt);
        g->result.submitted_ns = now_ns;
        g->submit_msg.kind = PORT_SUBMIT;
        mailbox_post(p->inbox, &g->submit_msg);
        failed = 0;
    }
    p->n_submitting--;
    return failed;
}

void port_shut(struct port *p)
{
    p->is_draining = true;
    while (p->n_submitting > 0)
        sched_yield(); /* a handful of instructions and one post */
}
