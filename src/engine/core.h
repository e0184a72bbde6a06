/* core.h: the engine without its thread: requests, pages, model, one step at a time.
 *
 * Everything the engine thread does is here and is done synchronously, with a clock that is told,
 * so that tests/sim drives the same code as the server:
 *
 *     core_drain   messages: submit, cancel, events coming home, ...
 *     core_step    deadlines -> plan -> copies -> forward -> sample -> events
 *
 * Owner: one thread, the engine's or the test's. core_step allocates and frees nothing. */
#pragma once

#include "engine/gen.h"
#include "engine/outbox.h"
#include "engine/sample/picks.h"
#include "cache/tier.h"
#include "engine/sched/sched.h"
#include "engine/spec/spec.h"

struct core {
    struct port *port; /* a reference */
    struct lm *lm;
    struct engine_options o;
    uint64_t (*clock)(void); /* for measuring; decisions use the time they are told */
    struct page_pool *pool;
    struct tree *tree; /* NULL: no prefix cache */
    struct tier *tier; /* NULL: none on disk */
    struct record_kind kind;
    int32_t *path;        /* [n_ctx]: scratch of fetch.c */
    uint32_t n_unwritten; /* pages that it was not worth to write; fetch.c's */
    struct sched *sched;
    struct picks picks;
    struct spec *spec;
    struct plan plan;
    struct lm_run *runs; /* [max_batch] */
    struct pick *pick;   /* [max_batch] what each run is taken for */
    struct outbox out;
    int n_right;                    /* drafts of this step that came true */
    struct gen *gens;               /* live ones */
    uint32_t n_queued;              /* of those, not begun */
    uint64_t n_computed;            /* steps that were not interrupted */
    uint64_t forward_ns, tokens_ns; /* of this step: the pass, and taking and sending tokens */
    double rest_ns;                 /* what else a step takes, lately */
    struct cost_book costs;
    struct pace pace;
    int64_t prompts_done;                   /* tokens, in this step */
    uint32_t n_sent[ENGINE_PRIORITIES + 1]; /* likewise, answers'; places of by_priority */
    _Atomic bool stop; /* anyone: interrupt the forward pass that runs; it will be repeated */
};

struct core_call { /* PORT_CALL: on the caller's stack, who waits at `reply` */
    struct msg msg;
    struct mailbox *reply;
    void (*fn)(struct core *c, void *arg); /* on the engine's thread, between two steps */
    void *arg;
};

/* Takes the model, also on failure. Refers to the port and sets its limits. */
int core_open(struct core **out, struct lm *take, const struct kernels *k,
    const struct engine_options *o, struct port *port, struct err *e);
void core_close(struct core *c); /* every request must have ended */

void core_drain(struct core *c, uint64_t now);
/* False: nothing could run; sleep until a message or core_next_wake. */
bool core_step(struct core *c, uint64_t now);
uint64_t core_next_wake(const struct core *c);

void core_cancel_all(struct core *c, enum errcode why, uint64_t now);
void core_audit(struct core *c, struct engine_audit *out);

/* ---- between core.c, fetch.c and step.c */

void core_begin(struct core *c, struct gen *g, uint64_t now); /* its sequences are scheduled */

void core_post(struct core *c, struct choice *ch, struct gen_event *ev, enum gen_kind kind);
/* GEN_CHOICE_END, and GEN_END with the last one. `ch` may be freed by its asker afterwards, but
 * not before the next core_drain. */
void core_end_choice(
    struct core *c, struct choice *ch, enum finish why, int32_t stop_id, uint64_t now);
