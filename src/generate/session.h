/* session.h: generation for one prompt, from prompt tokens to output events.
 *
 * The session is between the engine, which handles tokens, and the dialects, which handle JSON: it
 * detokenises, matches stop strings, parses the text and counts tokens. HTTP handlers and the
 * library use the same code.
 *
 *     tokens --detok--> text --stop strings--> --parser--> content, reasoning, tool calls
 *
 * Stop strings are matched in the generated text before it is parsed. Therefore a stop string
 * inside reasoning or inside an argument of a tool call also ends the choice, as in other servers.
 *
 * Owner: the thread that drains the mailbox given to session_open. That thread passes each
 * gen_event to session_event; callbacks run inside. The session does not exist any more after the
 * callback `end`. */
#pragma once

#include "output/stops.h"
#include "generate/response_cache.h"
#include "generate/output.h"
#include "registry/model.h"

struct session;

struct choice_end {
    int choice;
    enum finish finish;
    /* The request has a constraint, and the output ended where the constraint permits it. */
    bool is_constraint_met;
    struct str stop_string; /* the stop string that ended the choice; STR_NONE */
    int32_t stop_id;        /* the client's stop token that ended the choice; TOKEN_NONE */
    int n_tokens;           /* generated tokens without the end token */
    int n_reasoning;        /* tokens of reasoning among n_tokens */
    int n_calls;            /* complete tool calls */
    bool ends_inside_call;  /* the output ended inside a tool call that was reported */
};

struct session_end {
    const struct err *err;           /* code ERR_NONE on success */
    const struct gen_result *result; /* times, cached tokens */
    int n_prompt, n_completion;      /* n_completion: sum over all choices */
    int n_predicted;                 /* completion tokens that equal the client's prediction */
    int n_calls, n_broken_calls;     /* tool calls, complete and broken, over all choices */
};

struct session_ops { /* ctx is the caller's; a callback must not close the session */
    /* With want_prompt_logprobs: each prompt token except the first. May be NULL. */
    void (*prompt_token)(void *ctx, int position, const struct sampled *t);
    /* each generated token, before its text; may be NULL */
    void (*token)(void *ctx, int choice, const struct sampled *t);
    /* Called after the output events of one engine event; may be NULL. */
    void (*after_output)(void *ctx);
    void (*choice_end)(void *ctx, const struct choice_end *c);
    /* last callback; frees the arena if the callback owns it */
    void (*end)(void *ctx, const struct session_end *s);
    /* With pace_group: a choice has a group of events that session_return_group would return. */
    void (*paced)(void *ctx);
    void (*begun)(void *ctx); /* with want_begin: the engine has started the prompt; may be NULL */
};

struct session_params {
    /* The engine request. Arrays are borrowed and outlive the session; `constraints` is not used
     * after the callback `end` has begun. stop_ids has the client's stop tokens; the session adds
     * the model's end tokens, also with ignore_eos if there are constraints, and sets want_drafts.
     * `script` is required for a script model and NULL for others. */
    struct gen_input gen;
    const struct str *stops;
    int n_stops;
    bool include_stop;
    bool is_free; /* constraints permit any text: its first blank is dropped as without them */
    bool skip_special_tokens; /* control tokens do not appear in the text */
    bool ignore_eos;          /* the model's end tokens do not end a choice */
    struct output_params output;
    /* Paced session: gen.n_events_max events of a choice are in use, and the session keeps those of
     * processed tokens until session_return_group returns this number of them; 0 = not paced. At
     * least as many as the engine needs to continue a parked sequence: a quarter. */
    int pace_group;
    int first_choice; /* number of the session's first choice in the output events */
    /* Cached response that is replayed (one choice); borrowed. NULL: generate. */
    const struct cached_response *replay;
};

struct session_ctx { /* borrowed objects of a session */
    struct model *model;
    struct arena *arena;
    struct mailbox *reply;
    const struct session_ops *ops;
    void *ctx;
    /* Receives the output events of the choices; not called after the session is cancelled. */
    const struct output_ops *output_ops;
    void *output_ctx;
};

/* Allocates in the arena, which must live until `end`. Errors: ERR_INVALID (stop strings),
 * ERR_CONTEXT (the prompt does not fit), ERR_OVERLOADED, ERR_MEMORY; then there is no session and
 * no callback. */
int session_open(struct session **out, const struct session_params *p,
    const struct session_ctx *ctx, struct err *e);

/* Handles messages with a gen_kind, and SESSION_REPLAY messages, which schedule the next slice of a
 * replayed response. May call callbacks, the last of them `end`. */
enum { SESSION_REPLAY = 50 };
void session_event(struct gen_event *ev);

/* Cancels the session: only the callback `end` is called afterwards. */
void session_cancel(struct session *s);

/* Ends a choice, for example in after_output because its output is not permitted. The callback
 * choice_end runs inside. No effect if it has ended. */
void session_end_choice(struct session *s, int choice, enum finish finish);

/* Stops processing token events until session_resume. Events accumulate in the engine's bounded
 * queue, which parks the sequences. Used for slow readers. */
void session_pause(struct session *s);
void session_resume(struct session *s);

/* A paced session: whether a choice needs a group of events to continue, and returns that group, so
 * that the engine may generate as many tokens more. False: no choice needs one. */
bool session_needs_group(const struct session *s);
bool session_return_group(struct session *s);

uint64_t session_first_token_ns(const struct session *s); /* 0 before the first token */
