/* core.h: the engine without its thread: requests, KV pages, model; executes one step at a time.
 *
 * Everything that the engine thread does is here, is synchronous, and receives the time as an
 * argument, so tests/sim drives the same code as the server:
 *
 *     core_drain   messages: submit, cancel, returned events, ...
 *     core_step    deadlines -> plan -> page copies -> forward pass -> sampling -> events
 *
 * Owner: one thread, the engine thread or that of a test. core_step neither allocates nor frees. */
#pragma once

#include "engine/gen.h"
#include "engine/outbox.h"
#include "engine/sample/mask_batch.h"
#include "engine/sample/sample_batch.h"
#include "cache/tier.h"
#include "engine/sched/sched.h"
#include "engine/spec/spec.h"

struct core {
    struct submit_queue *queue; /* counted reference */
    struct lm *lm;
    struct engine_options o;
    uint64_t (*clock)(void); /* for measurements; decisions use the `now` arguments */
    struct page_pool *pool;
    struct page_pool *windows; /* window pages; NULL = the model has no windowed layers */
    struct page_pool *states;  /* state slots; NULL = the model has no recurrent state */
    struct tree *tree;         /* prefix cache; NULL = none */
    struct tier *tier;         /* KV offload tier; NULL = none */
    bool has_invalid_logits;   /* a forward pass yielded no distribution; it was logged */
    struct record_kind kind;
    int32_t *path;              /* [n_ctx] scratch of kv_load.c */
    uint32_t n_unwritten;       /* evicted records that were not worth writing; kv_load.c */
    uint32_t n_states_loading;  /* state slots that read jobs of the tier fill; kv_load.c */
    uint32_t n_windows_loading; /* window pages that these jobs hold or fill; kv_load.c */
    uint32_t n_least_windows;   /* window pages that these jobs leave; kv_load.c */
    struct sched *sched;
    struct sample_batch samples;
    struct mask_batch masks;
    struct list masks_pending; /* struct gen_choice, oldest first; constrained.c */
    struct spec *spec;
    struct step_plan plan;
    struct lm_run *runs;    /* [max_batch] */
    struct sample_job *job; /* [max_batch] sampling job of each run */
    struct outbox out;
    int n_step_accepted;            /* accepted draft tokens of this step */
    struct list gens;               /* struct gen: requests that have not ended */
    uint32_t n_queued;              /* requests that have not started */
    uint64_t n_computed;            /* steps that were not interrupted */
    uint64_t forward_ns, tokens_ns; /* this step: forward pass; sampling and events */
    double rest_ns;                 /* moving average of the remaining step time */
    struct step_time_model step_model;
    struct throughput throughput;
    int64_t n_prompt_done; /* prompt tokens of the prompts completed in this step */
    /* Output tokens of this step by index of engine_stats.by_priority. */
    uint32_t n_output_tokens[ENGINE_PRIORITIES + 1];
    _Atomic bool stop; /* any thread: interrupts the forward pass, which will be repeated */
};

struct core_call { /* ENGINE_MSG_CALL: on the stack of the caller, which waits at `reply` */
    struct msg msg;
    struct mailbox *reply;
    void (*fn)(struct core *c, void *arg); /* runs on the engine thread between two steps */
    void *arg;
};

/* Takes the model, also on failure. References the submission queue and sets its limits. */
int core_open(struct core **out, struct lm *take, const struct kernels *k,
    const struct engine_options *o, struct submit_queue *queue, struct err *e);
void core_close(struct core *c); /* all requests must have ended */

void core_drain(struct core *c, uint64_t now);
/* Returns false if no sequence could run: sleep until a message or core_next_wake. */
bool core_step(struct core *c, uint64_t now);
uint64_t core_next_wake(const struct core *c);

void core_cancel_all(struct core *c, enum errcode why, uint64_t now);
void core_audit(struct core *c, struct engine_audit *out);

/* ---- between core.c, kv_load.c and step.c */

/* Adds the sequences of a request to the scheduler. */
void core_schedule(struct core *c, struct gen *g, uint64_t now);

void core_post(struct core *c, struct gen_choice *ch, struct gen_event *ev, enum gen_kind kind);
/* Posts GEN_CHOICE_END, and GEN_END with the last choice. The caller may free `ch` afterwards, but
 * not before the next core_drain. */
void core_end_choice(
    struct core *c, struct gen_choice *ch, enum finish why, int32_t stop_id, uint64_t now);
