/* engine.h: whose turn it is. Tokens in, tokens out; knows neither text nor sockets.
 *
 * One engine thread per loaded model owns sequences, pages and the sampler. Others meet it only
 * through messages:
 *
 *   asker: gen_new -> fill -> engine_submit ---------------> engine
 *   asker's mailbox <- GEN_TOKEN* ... GEN_CHOICE_END per choice, then one GEN_END <- engine
 *   asker: gen_event_done(event) gives each event back (that is the back-pressure: a sequence
 *          whose SEQ_EVENTS events are all out is parked until some come home)
 *   asker: engine_cancel at any moment; GEN_END still comes, once, and is always the last
 *   asker: after GEN_END the gen is the asker's again: gen_free
 *
 * Everything a request needs in the engine is allocated by gen_new, on the asker's thread: a
 * step allocates nothing. */
#pragma once

#include "base/err.h"
#include "cache/tree.h"
#include "engine/sched/fairness.h"
#include "engine/sample/sampler.h"
#include "engine/stats.h"
#include "model/lm.h"
#include "os/mailbox.h"

enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR };

struct gen_script { /* what a script model answers, instead of sampling; every choice the same */
    const int32_t *tokens;
    int n_tokens;
    const int32_t *group_end; /* ascending indices: tokens before each leave in one step */
    int n_groups;             /* what lies beyond the last group is one more */
    uint32_t delay_ms;        /* before each group */
};

enum { GEN_CHOICES_MAX = 128 }; /* = SEQ_CHOICES_MAX */

/* Inputs; read-only after gen_new. The prompt is copied; the other arrays are borrowed and must
 * outlive the gen. */
struct gen_input {
    const struct gen_script *script;
    const int32_t *stop_ids; /* end tokens and the client's stop_token_ids; end the choice */
    int n_stop_ids;
    int n_prompt;    /* >= 1 */
    int n_predicted; /* see below */
    int max_tokens;  /* per choice; 0 = only score the prompt. Memory is sized by it:
                      * callers cut it to engine_n_ctx() - n_prompt */
    int n_choices;   /* share one prefill */
    const int32_t *prompt;
    const int32_t *predicted; /* what the client thinks the answer will be; any numbers */
    struct sample_params sample;
    bool want_begin;           /* GEN_BEGUN with its first step, before all others */
    bool want_prompt_logprobs; /* GEN_PROMPT_TOKEN for positions 1 .. n_prompt - 1 */
    int priority;              /* higher first */
    uint64_t tenant;           /* whom its service is charged to; 0 = anonymous */
    struct cache_scope scope;  /* who may find what it computes, and it what others did */
    bool is_uncached;          /* finds and leaves nothing in the prefix cache */
    const char *name;          /* for the log; borrowed; NULL = its number */
    float tenant_weight;       /* with twice the weight it may get twice the service; 0 = 1 */
    uint64_t deadline_ns;      /* clock_ns; 0 = none: then FINISH_ERROR with ERR_TIMEOUT */
    bool want_drafts;          /* keep an index of its tokens, so that repetitions are guessed */
};

struct gen;
struct engine;

enum gen_kind { GEN_TOKEN = 1, GEN_PROMPT_TOKEN, GEN_CHOICE_END, GEN_END, GEN_BEGUN };

struct gen_event {  /* a line of memory, but for alternatives */
    struct msg msg; /* msg.kind is a gen_kind */
    struct gen *gen;
    int choice;
    int index;          /* GEN_TOKEN: 0, 1, ... of the choice; GEN_PROMPT_TOKEN: position;
                         * GEN_CHOICE_END: how many tokens the choice had */
    bool is_group_end;  /* script: show the text gathered so far */
    bool is_predicted;  /* GEN_TOKEN: as the client's prediction said, whatever was drafted */
    enum finish finish; /* GEN_CHOICE_END */
    int32_t stop_id;    /* GEN_CHOICE_END, FINISH_STOP: which; the stop token itself is not sent */
    struct sampled token;
    char gap[40]; /* to whole lines: of many in a row each begins with one */
};

struct gen_result { /* valid at GEN_END */
    struct err err; /* code ERR_NONE when all went well */
    int n_cached;   /* prompt tokens whose KV was found */
    uint64_t submitted_ns, started_ns, first_token_ns, ended_ns;
    int n_preempted;
    int n_drafts;              /* steps that took guesses along */
    int n_drafted, n_accepted; /* their tokens; those that were right: they tell of time */
};

/* Allocates the request with all its sequences and events; reply is where events go; user is the
 * asker's. ERR_MEMORY; ERR_RANGE or ERR_TOO_LARGE for counts that make no sense. All functions
 * that take a gen or an event belong to the asker's thread. */
int gen_new(
    struct gen **out, const struct gen_input *in, struct mailbox *reply, void *user, struct err *e);
void gen_free(struct gen *g); /* NULL is fine; never submitted, or its GEN_END was drained */
void *gen_user(const struct gen *g);
uint64_t gen_id(const struct gen *g);
const struct gen_input *gen_input(const struct gen *g);
const struct gen_result *gen_result(const struct gen *g); /* after GEN_END */

struct drafter;

struct spec_options {        /* guessing ahead; see spec.h */
    int max;                 /* tokens of a draft; 0 = none, at most DRAFT_MOST */
    int min;                 /* so many whatever they cost; for tests and measurements */
    bool by_history;         /* from what the request itself holds */
    struct drafter *drafter; /* asked when that has nothing; the engine's to close; NULL = none */
    int n_vocab;             /* the engine fills it in */
};

struct engine_options {
    int max_batch;            /* sequences that run together */
    int max_batch_tokens;     /* rows per step */
    int max_sequences;        /* begun and not ended, parked ones aside; at least max_batch */
    int prefill_chunk;        /* prompt rows of one sequence per step */
    int max_queue;            /* requests beyond max_batch; more: ERR_OVERLOADED at submit */
    int64_t max_queue_tokens; /* prompt tokens that wait to be computed; more: the same, unless
                               * nothing else waits */
    int n_ctx; /* longest prompt + output; 0 = what the model was made for. Never more
                          * than all pages hold, so that every request can run alone */
    struct fairness fairness;
    const struct live_fairness *live_fairness; /* read between steps instead of that; NULL */
    uint64_t age_ns;                           /* waiting that raises the priority by one */
    int stretch_percent;       /* prompts may make a step that decodes as long as this, of what it
                           * would be without them; 0 = as long as it takes */
    int short_stretch_percent; /* likewise, for prompts with at most prefill_chunk to compute, of
                                * what a single answer takes; see sched.h */
    int most_layers;           /* that a prompt's rows pass in a step; 0 = all; for tests */
    struct spec_options spec;
    bool prefix_cache; /* what was computed is kept while there is room, and found again */
    enum evict_policy kv_evict;
    const uint8_t *model_digest; /* [32], of its file; NULL: nothing can be saved or restored */
    const char *kv_disk;         /* where evicted pages go; NULL or "": nowhere. Needs the digest */
    uint64_t kv_disk_bytes;
    bool kv_disk_always; /* read what is there also when computing it is quicker: for tests */
    int kv_tenant_share; /* percent of the pages that are a tenant's own; above them it gives way */
};
extern const struct engine_options engine_options_default;

/* Takes the model and the drafter (closes them, also on failure). Starts the thread. */
int engine_open(struct engine **out, struct lm *take, const struct kernels *k,
    const struct engine_options *o, struct err *e);
/* Takes no more requests (ERR_DRAINING); what is there goes on. Any thread. */
void engine_drain(struct engine *en);
/* Cancels what runs, waits for the thread. All gens must have had their GEN_END drained by their
 * askers afterwards. Nobody may call engine_* with this engine later, except engine_cancel and
 * engine_stop_choice for gens that were submitted to it. A submit that is under way meanwhile is
 * refused, or gets its GEN_END. */
void engine_close(struct engine *en);

/* Any thread: how long a request that comes now will wait for its turn, by what was measured. 0 =
 * not at all, or unknown. */
uint64_t engine_wait_ns(const struct engine *en);

/* Any thread. On error the gen stays the caller's, who may submit it again. ERR_OVERLOADED
 * (no room, or its deadline cannot be met), ERR_DRAINING, ERR_CONTEXT (the prompt leaves no room),
 * ERR_INVALID (a token that is none). */
int engine_submit(struct engine *en, struct gen *g, struct err *e);
void engine_cancel(struct engine *en, struct gen *g); /* harmless when it has ended already */
/* One choice has what it needs (a stop string was found): ends like a cancel, only it. */
void engine_stop_choice(struct engine *en, struct gen *g, int choice);
/* Back to the engine, before gen_free. Events of choice or request ends need not come back. */
void gen_event_done(struct gen_event *ev);

int engine_n_ctx(const struct engine *en); /* longest prompt + output it takes */
const struct engine_stats *engine_stats(const struct engine *en);
const struct lm *engine_lm(const struct engine *en);
/* What the engine thread finds between two steps when it walks everything it owns:
 * pages, sequences, requests, and whether their sums agree. Used by GET /debug/invariants. */
struct engine_audit {
    bool ok;
    uint32_t pages_total, pages_free, pages_cached, pages_owned; /* the last three are the first */
    uint32_t sequences, requests_running, requests_waiting;
};
void engine_audit(struct engine *en, struct engine_audit *out); /* blocks for one step at most */

/* The same without waiting: *out is filled and the message goes to `reply`, as `kind`. Until then
 * the call and *out are the engine's. An engine that is closed answers first. */
struct audit_call {
    struct msg msg;
    struct mailbox *reply;
    struct engine_audit *out;
    int kind;
};
void engine_audit_ask(struct engine *en, struct audit_call *call);
