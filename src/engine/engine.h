/* engine.h: public interface of the engine: batched generation of tokens; no text, no sockets.
 *
 * One engine thread per loaded model owns sequences, KV pages and the sampler. Other threads
 * communicate with it by messages:
 *
 *   caller: gen_new -> fill -> engine_submit ---------------> engine
 *   caller's mailbox <- GEN_TOKEN* ... GEN_CHOICE_END per choice, then one GEN_END <- engine
 *   caller: gen_event_done(event) returns each event. This is the back-pressure: a sequence whose
 *           SEQ_EVENTS events are all sent is parked until some are returned.
 *   caller: engine_cancel at any time; GEN_END still follows, exactly once, as the last event
 *   caller: owns the gen again after GEN_END: gen_free
 *
 * gen_new allocates everything that a request needs in the engine, on the thread of the caller: a
 * step allocates nothing. */
#pragma once

#include "base/err.h"
#include "cache/tree.h"
#include "engine/finish.h"
#include "engine/sched/fairness.h"
#include "engine/sample/sampler.h"
#include "engine/spec/spec_options.h"
#include "engine/stats.h"
#include "model/lm.h"
#include "os/mailbox.h"

/* Output of the script back end, used instead of sampling; the same for all choices. */
struct gen_script {
    const int32_t *tokens;
    int n_tokens;
    const int32_t *group_end; /* ascending indices: the tokens before each are sent in one step */
    int n_groups;             /* the tokens after the last group are one more group */
    uint32_t delay_ms;        /* before each group */
};

enum { GEN_CHOICES_MAX = 128 }; /* = SEQ_CHOICES_MAX */

/* Read-only after gen_new. The prompt is copied; the other arrays are borrowed and must outlive the
 * gen. */
struct gen_input {
    const struct gen_script *script;
    const int32_t *stop_ids; /* end tokens and stop_token_ids of the client; each ends the choice */
    int n_stop_ids;
    int n_prompt;    /* >= 1 */
    int n_predicted; /* length of `predicted` */
    /* Per choice; 0 = only score the prompt. Determines the memory: callers limit it to
     * engine_n_ctx() - n_prompt. */
    int max_tokens;
    int n_choices; /* choices share one prefill */
    const int32_t *prompt;
    const int32_t *predicted; /* the client's prediction of the output, for drafts; any numbers */
    struct sample_params sample;
    /* [n_choices] with all output tokens popped; the engine uses the state of a choice until its
     * GEN_CHOICE_END, which is then after the output. NULL = none. Not for scripts. */
    const struct sample_constraint *constraints;
    bool want_begin;           /* send GEN_BEGUN in the first step, before all other events */
    bool want_prompt_logprobs; /* GEN_PROMPT_TOKEN for positions 1 .. n_prompt - 1 */
    int priority;              /* higher first; at most the maximum of the tenant */
    int extra_priority;        /* excess over that maximum; counts among requests of the tenant */
    uint64_t tenant;           /* charged for the service; 0 = anonymous */
    struct cache_scope scope;  /* isolation scope in the prefix cache */
    bool cache_prompt;         /* reads and fills the prefix cache */
    const char *name;          /* for the log; borrowed; NULL = the id */
    float tenant_weight;       /* relative share of service; 0 = 1 */
    uint64_t deadline_ns; /* clock_ns; 0 = none; when it passes: FINISH_ERROR with ERR_TIMEOUT */
    bool want_drafts;     /* index the tokens for n-gram drafts */
    /* Token events of a choice, at most; 0 = SEQ_EVENTS. Fewer bound the tokens that are generated
     * and not returned. */
    int n_events_max;
};

struct gen;
struct engine;

enum gen_kind { GEN_TOKEN = 1, GEN_PROMPT_TOKEN, GEN_CHOICE_END, GEN_END, GEN_BEGUN };

struct gen_event {  /* fills whole cache lines, except for the alternatives */
    struct msg msg; /* msg.kind is a gen_kind */
    struct gen *gen;
    int choice;
    /* GEN_TOKEN: 0, 1, ...; GEN_PROMPT_TOKEN: position; GEN_CHOICE_END: number of tokens */
    int index;
    bool is_group_end;  /* script: end of a group */
    bool is_predicted;  /* GEN_TOKEN: equals the client's prediction, whether drafted or not */
    bool is_accepted;   /* GEN_CHOICE_END: the constraint, if any, accepts the output */
    enum finish finish; /* GEN_CHOICE_END */
    int32_t stop_id;    /* GEN_CHOICE_END with FINISH_STOP: the stop token, which is not sent */
    struct sampled token;
    char gap[36]; /* aligns consecutive events to cache lines */
};

struct gen_result { /* valid at GEN_END */
    struct err err; /* ERR_NONE = success; ERR_CONSTRAINT: all choices ended with FINISH_UNMET */
    int n_cached;   /* prompt tokens found in the prefix cache */
    uint64_t submitted_ns, started_ns, first_token_ns, ended_ns;
    int n_preempted;
    int n_drafts, n_drafted, n_accepted; /* steps with drafts, draft tokens; depend on timing */
};

/* Allocates the request with all its sequences and events; `reply` receives the events; `user`
 * belongs to the caller. ERR_MEMORY; ERR_RANGE or ERR_TOO_LARGE for invalid counts. Functions with
 * a gen or event parameter are called on the thread of the caller. */
int gen_new(
    struct gen **out, const struct gen_input *in, struct mailbox *reply, void *user, struct err *e);
/* Accepts NULL; the gen was never submitted, or its GEN_END was drained. */
void gen_free(struct gen *g);
void *gen_user(const struct gen *g);
uint64_t gen_id(const struct gen *g);
const struct gen_input *gen_input(const struct gen *g);
const struct gen_result *gen_result(const struct gen *g); /* after GEN_END */

struct engine_options {
    int max_batch;        /* running sequences */
    int max_batch_tokens; /* rows per step */
    int max_sequences;    /* started, not ended and not parked; at least max_batch */
    int prefill_chunk;    /* prompt rows of one sequence per step */
    int max_queue; /* requests in addition to max_batch; more are rejected with ERR_OVERLOADED */
    /* Waiting prompt tokens; more are rejected with ERR_OVERLOADED unless nothing else waits. */
    int64_t max_queue_tokens;
    /* Longest prompt + output; 0 = context of the model. Limited to all KV pages, so that every
     * request can run alone. */
    int n_ctx;
    struct fairness fairness;
    /* Read between steps instead of `fairness`; NULL = not used. */
    const struct live_fairness *live_fairness;
    uint64_t age_ns; /* waiting time that raises the priority by one */
    /* Longest mixed step in percent of the predicted decode-only step (prefill budget); 0 = no
     * limit. */
    int mixed_step_percent;
    /* Longest mixed step with prompts of at most prefill_chunk tokens to compute, in percent of a
     * step with one decode row; 0 = no limit. See sched.h. */
    int mixed_step_percent_short;
    int max_step_layers; /* layers that prefill rows pass in a step; 0 = all; for tests */
    uint64_t mask_steps; /* byte steps of one mask in a step; 0 = MASK_STEPS; for tests */
    struct spec_options spec;
    bool prefix_cache; /* reuse the KV cache of common prompt prefixes */
    enum evict_policy kv_evict;
    /* [32] digest of the model file; NULL = no KV export and no offload tier. */
    const uint8_t *model_digest;
    /* Directory of the KV offload tier; NULL or "" = none; requires model_digest. */
    const char *kv_disk;
    uint64_t kv_disk_bytes;
    bool kv_disk_always, kv_disk_manual; /* tests: reads even if it is slower; no tier thread */
    /* Percent of the KV pages that a tenant may hold in the prefix cache before its pages are
     * evicted first. */
    int kv_tenant_share;
};
extern const struct engine_options engine_options_default;
int engine_options_check(const struct engine_options *o, struct err *e); /* ERR_RANGE */

/* Takes the model and the drafter (closes them, also on failure). Starts the thread. */
int engine_open(struct engine **out, struct lm *take, const struct kernels *k,
    const struct engine_options *o, struct err *e);
/* Rejects further requests with ERR_DRAINING; admitted ones continue. Any thread. */
void engine_drain(struct engine *en);
/* Cancels all requests and joins the thread. Afterwards the callers drain the GEN_END of their
 * gens. Later calls with this engine are invalid, except engine_cancel and engine_stop_choice for
 * submitted gens. A concurrent submission is rejected or gets its GEN_END. */
void engine_close(struct engine *en);

/* Any thread: estimated time until the waiting prompts are computed; 0 = none or unknown. */
uint64_t engine_wait_ns(const struct engine *en);

/* Any thread: whether an idle engine could queue all of this together. ERR_RANGE. */
int engine_check_size(
    const struct engine *en, int n_requests, int n_choices, int64_t n_prompt_tokens, struct err *e);
/* Any thread. On error the caller keeps the gen and may submit it again. ERR_OVERLOADED (queue
 * full, or the deadline cannot be met), ERR_DRAINING, ERR_CONTEXT (the prompt does not fit),
 * ERR_INVALID (a token outside the vocabulary). */
int engine_submit(struct engine *en, struct gen *g, struct err *e);
void engine_cancel(struct engine *en, struct gen *g); /* no effect on an ended request */
/* Ends one choice like a cancellation, for example at a stop string. */
void engine_stop_choice(struct engine *en, struct gen *g, int choice);
/* Returns an event before gen_free; events of choice and request ends need not be returned. */
void gen_event_done(struct gen_event *ev);

int engine_n_ctx(const struct engine *en); /* longest prompt + output */
const struct engine_stats *engine_stats(const struct engine *en);
const struct lm *engine_lm(const struct engine *en);
/* Result of the invariant check that the engine thread runs between two steps over its pages,
 * sequences and requests. Used by GET /debug/invariants. */
struct engine_audit {
    bool ok;
    uint32_t pages_total, pages_free, pages_cached, pages_owned; /* total = free + cached + owned */
    uint32_t sequences, requests_running, requests_waiting;
};
void engine_audit(struct engine *en, struct engine_audit *out); /* blocks for at most one step */

/* The same without waiting: the engine fills *out and posts the message to `reply` with `kind`.
 * Until then the engine owns the call and *out. A closing engine replies before it ends. */
struct audit_call {
    struct msg msg;
    struct mailbox *reply;
    struct engine_audit *out;
    int kind;
};
void engine_audit_ask(struct engine *en, struct audit_call *call);
