/* session.h: one request on a model, from prompt tokens to finished text.
 *
 * Sits between the engine, which knows tokens, and the wires, which know JSON: it detokenises,
 * finds stop strings, takes the text apart and counts. Serves HTTP handlers and the library alike.
 *
 *   tokens --detok--> text --stop strings--> --parser--> text, thoughts, tool calls
 *
 * Stop strings are looked for in what the model says, before it is taken apart: one that stands in
 * a thought or in an argument ends the answer there, too, as with other servers.
 *
 * Owner: the thread that drains the mailbox given to session_open. That thread passes each
 * gen_event to session_event; callbacks run inside. After `end` the session is gone. */
#pragma once

#include "output/stops.h"
#include "generate/exact.h"
#include "generate/parts.h"
#include "registry/pool.h"

struct session;

struct choice_end {
    int choice;
    enum finish finish;
    struct str stop_string; /* the stop string that ended it; STR_NONE */
    int32_t stop_id;        /* a client's stop token that ended it; TOKEN_NONE */
    int n_tokens;           /* of its text; an end token is not one of them */
    int n_reasoning;        /* of these, thoughts */
    int n_calls;            /* complete ones */
};

struct session_end {
    const struct err *err;           /* code ERR_NONE when all went well */
    const struct gen_result *result; /* times, cached tokens */
    int n_prompt, n_completion;      /* completion: over all choices */
    int n_predicted;                 /* of those, as the client's prediction said */
};

struct session_ops { /* ctx is the caller's; none may close the session */
    /* want_prompt_logprobs: each token of the prompt but the first. May be NULL. */
    void (*prompt_token)(void *ctx, int position, const struct sampled *t);
    void (*token)(void *ctx, int choice, const struct sampled *t); /* as it comes; may be NULL */
    struct parts_ops parts;                                        /* what is said; final */
    void (*choice_end)(void *ctx, const struct choice_end *c);
    void (*end)(void *ctx, const struct session_end *s); /* last; frees the arena if it owns it */
    void (*begun)(void *ctx); /* want_begin: the engine has begun with the prompt; may be NULL */
};

struct session_params {
    const int32_t *prompt; /* borrowed, outlives the session, as all arrays in here */
    int n_prompt;
    int max_tokens, n_choices;
    struct sample_params sample;
    const struct str *stops;
    int n_stops;
    bool include_stop;
    bool show_control; /* control tokens appear in the text */
    struct parts_params parts;
    bool ignore_end;         /* the model's end tokens do not end it */
    const int32_t *stop_ids; /* the client's */
    int n_stop_ids;
    bool want_prompt_logprobs;
    bool want_begin;
    int priority;
    uint64_t tenant; /* as in gen_input, and the next four */
    float tenant_weight;
    struct cache_scope scope;
    bool is_uncached;
    const char *name;
    uint64_t deadline_ns;
    const struct gen_script *script; /* needed by, and only by, a script model */
    /* One choice, told from memory instead of computed; borrowed. NULL: computed. */
    const struct exact_answer *replay;
    const int32_t *predicted; /* what the client thinks will come; NULL = it does not say */
    int n_predicted;
};

struct session_place { /* where it lives and whom it tells */
    struct model *model;
    struct arena *arena;
    struct mailbox *reply;
    const struct session_ops *ops;
    void *ctx;
};

/* Allocates in the arena, which must live until `end`. ERR_INVALID (the stop strings), ERR_CONTEXT
 * when the prompt does not fit, ERR_OVERLOADED, ERR_MEMORY; then there is no session and no
 * callback. */
int session_open(struct session **out, const struct session_params *p,
    const struct session_place *at, struct err *e);

/* For messages with a gen_kind, and for this one, by which a session that is told from memory gets
 * its turns. May call callbacks, the last of them `end`. */
enum { SESSION_TURN = 50 };
void session_event(struct gen_event *ev);

/* Nobody is interested any more: no callback but `end` will come. */
void session_cancel(struct session *s);

/* Stops taking token events until session_resume: they pile up in the engine's bounded queue and
 * park the sequences. For a slow reader. */
void session_pause(struct session *s);
void session_resume(struct session *s);

uint64_t session_first_token_ns(const struct session *s); /* 0 before */
