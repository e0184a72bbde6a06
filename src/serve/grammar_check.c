/* grammar_check.c: POST /v1/grammar/check. The worker thread compiles the constraint and reads the
 * text; for the times it tokenises the text and computes the mask before each of the first tokens.
 */
#include "api/grammar_check.h"
#include "generate/output_constraint.h"
#include "os/clock.h"
#include "serve/async.h"

enum {
    MASKS_MAX = 1000,     /* tokens whose masks are computed */
    CHECK_STEPS = 200000, /* byte steps between two checks of the deadline */
    READ_BYTES = 4096     /* bytes of the text between two checks */
};

struct grammar_job { /* all fields are used by the worker thread */
    struct async async;
    struct grammar_check request;
    struct grammar_check_result result;
    struct constraint *constraint;
    struct constraint_state *state;
};

static int check_stop(const struct grammar_job *j, struct err *e)
{
    return j->async.job.is_stopped ? err_set(e, ERR_CANCELLED, "the request was cancelled") : 0;
}

static int compute_mask(struct grammar_job *j, const struct sample_constraint *c, struct err *e)
{
    struct token_mask mask;
    uint64_t began = clock_ns();
    enum mask_progress progress;

    do {
        progress = c->ops->mask(c->self, CHECK_STEPS, &mask, e);
    } while (progress == MASK_MORE && !check_stop(j, e));
    j->result.mask_ns_max = MAX(j->result.mask_ns_max, clock_ns() - began);
    return progress == MASK_DONE ? 0 : -1;
}

/* Measures the masks along the text, up to the token that is not permitted. */
static int measure_masks(struct grammar_job *j, const struct model *m, struct err *e)
{
    struct sample_constraint c = constraint_state_ops(j->state);
    struct tokens t = { .arena = j->async.arena, .stop = &j->async.job.is_stopped };
    struct str head = { j->request.text.p, MIN(j->request.text.n, (size_t)8 * MASKS_MAX) };
    struct span span = { head, false };

    if (head.n && vocab_encode(m->vocab, &span, 1, false, &t, e))
        return -1;
    for (size_t i = 0; i <= t.n && i < MASKS_MAX; i++) {
        if (compute_mask(j, &c, e))
            return -1;
        if (i == t.n || !c.ops->push(c.self, t.ids[i]))
            break;
    }
    c.ops->reset(c.self);
    return 0;
}

static int read_text(struct grammar_job *j, struct err *e)
{
    struct str rest = j->request.text;

    while (rest.n) {
        struct str part = { rest.p, MIN(rest.n, (size_t)READ_BYTES) };
        size_t n = constraint_state_read(j->state, part);
        rest = str_skip(rest, n);
        if (n < part.n || check_stop(j, e))
            break;
    }
    j->result.at = j->request.text.n - rest.n;
    j->result.is_accepted = !rest.n && constraint_state_accepts(j->state);
    return check_stop(j, e);
}

static int run_job(struct async *a)
{
    struct grammar_job *j = container_of(a, struct grammar_job, async);
    struct err *e = &a->err;

    if (grammar_check_read(&j->request, a->body, a->arena, e))
        return -1;
    struct model *m = async_take_model(a, j->request.model, e);
    if (!m)
        return -1;
    struct constraint_compiler compiler = { .model = m };
    uint64_t began = clock_ns();
    j->request.source.bytes_max = a->io->o->constraint_bytes_max;
    if (output_constraint_compile(
            &j->constraint, &j->request.source, j->request.field, &compiler, e) ||
        constraint_state_new(&j->state, j->constraint, e))
        return -1;
    j->result.compile_ns = clock_ns() - began;
    if (measure_masks(j, m, e) || read_text(j, e))
        return -1;
    grammar_check_put_response(&a->out, &j->request, &j->result);
    return 0;
}

static void free_job(struct async *a)
{
    struct grammar_job *j = container_of(a, struct grammar_job, async);

    constraint_state_free(j->state);
    constraint_unref(j->constraint);
}

void grammar_check(struct io *io, struct http_exchange *x, struct route_call *c)
{
    static const struct async_ops ops = { .run = run_job, .free = free_job };
    struct grammar_job *j = async_new(sizeof(*j), &ops, io, x, c);

    if (!j)
        return;
    async_set_deadline(&j->async, c->deadline_ns);
    async_start(&j->async, true);
}
