/* response_state.h: state of a response, for response*.c and the implementations of dialect.h only.
 *
 * Data is formatted on arrival: text is escaped into `text` (a body) or directly into a frame (a
 * stream), logprobs into lists of JSON items without brackets. A stream empties the lists with each
 * frame. Owner: the io thread. */
#pragma once

#include "api/common/response.h"
#include "api/common/dialect.h"

enum response_list {
    LIST_TOKENS,   /* chat: logprob objects; completion: token texts */
    LIST_LOGPROBS, /* completion: numbers */
    LIST_TOP,      /* completion: objects */
    LIST_OFFSETS,  /* completion: numbers */
    LIST_IDS,      /* token_ids */
    N_RESPONSE_LISTS
};

struct response_token { /* one token for the logprobs of a dialect */
    int32_t id;
    struct str bytes;
    const struct sampled *s; /* NULL: the token has no prediction */
    uint32_t offset;         /* characters before the token */
};

struct response_call {
    int number;          /* number of the caller, which counts broken calls too */
    struct str id, name; /* heap; the response generates the id */
    struct buf args;     /* raw JSON so far */
    bool has_ended;      /* complete: the arguments are a JSON object */
    int block;           /* for the dialect: number of a content block or an item */
};

struct response_choice {
    int number; /* `index` in the response */
    bool has_ended, has_started;
    enum finish finish;   /* why generation ended; dialects use response_finish */
    struct str stop_text; /* .p NULL: none */
    int32_t stop_id;      /* -1: none */
    int n_tokens;         /* generated tokens */
    double sum_logprob;
    uint32_t n_characters;       /* in the tokens so far */
    int n_reasoning;             /* reasoning tokens, part of n_tokens */
    struct buf text;             /* escaped; only for a body */
    struct buf reasoning;        /* escaped; for a body, or if the dialect keeps reasoning */
    struct response_call *calls; /* heap, also for a stream; without broken calls */
    int n_calls, cap_calls;
    bool has_open_call;     /* the last element of calls is incomplete */
    bool is_constraint_met; /* the whole text satisfies the constraint of the request */
    bool ends_inside_call;  /* the output ended inside a call: it is incomplete */
    /* For the dialect: the client has received the start of a call that broke, and the protocol
     * cannot withdraw it. */
    bool has_partial_call;
    /* FINISH_STOP with a complete call: each dialect has its own finish reason for it */
    bool ends_in_calls;
    /* For the dialect: the open block of the stream, the number of blocks, and the offset of the
     * open block. */
    int block, n_blocks;
    size_t block_from;
    struct buf lists[N_RESPONSE_LISTS];
    size_t shown[N_RESPONSE_LISTS]; /* list lengths when text was last emitted */
};

struct response {
    struct response_setup setup;
    const struct dialect *dialect;
    char id[64];
    bool has_begun, has_ended, has_failed;
    int n_prompt, n_cached;
    int id_slot;                /* -1: none */
    int n_accepted, n_rejected; /* tokens of the client's prediction */
    struct response_times times;
    void *state;           /* private state of the dialect; see dialect.begin, clear */
    size_t held_bytes;     /* bytes of all choices, bounded by RESPONSE_BYTES_MAX */
    struct buf out;        /* stream: whole frames not yet written to the sink; else the body */
    struct buf head, tail; /* constant parts of each frame; see dialect.begin */
    struct buf plain_tail; /* tail of a frame with only text; empty: the dialect has none */
    size_t n_head_common;  /* leading bytes of head that are common to all frames */
    int n_choices;
    struct response_choice choices[];
};

/* True: output events are passed to the dialect as they arrive. */
static inline bool response_is_incremental(const struct response *a)
{
    return a->setup.request->stream || a->dialect->is_incremental;
}

static inline int response_choice_index(const struct response *a, const struct response_choice *c)
{
    return (int)(c - a->choices);
}

/* ---- shared by response.c and response_calls.c */

/* tool calls of response_output_ops; ctx is the response */
void response_call_begin(void *ctx, int choice, int call, struct str name);
void response_call_args(void *ctx, int choice, int call, struct str json);
void response_call_end(void *ctx, int choice, int call);
void response_call_broken(void *ctx, int choice, int call);

/* Returns the choice, or NULL if it accepts no more output. */
struct response_choice *response_open_choice(struct response *a, int i);
size_t response_choice_bytes(const struct response_choice *c);
/* Adds the growth of a choice since it had `before` bytes to a->held_bytes; checks the limit. */
void response_account_bytes(struct response *a, const struct response_choice *c, size_t before);
/* Called after text was emitted: the logprobs of its tokens are final. A stream drops them, since
 * its frame contains them. */
void response_commit_lists(struct response *a, struct response_choice *c);
/* Called at the end of a choice; breaks a call that is still open. */
void response_calls_end(struct response *a, struct response_choice *c);
void response_calls_clear(struct response_choice *c);

/* ---- for dialects */

/* Returns the call that an output event is about: the last one of the choice. */
static inline struct response_call *response_last_call(const struct response_choice *c)
{
    CHECK(c->n_calls > 0);
    return &c->calls[c->n_calls - 1];
}

/* Returns the finish of a choice that has ended: FINISH_LENGTH if the output ended inside a call,
 * also where the model or a stop string ended it, since the output is incomplete. */
static inline enum finish response_finish(const struct response_choice *c)
{
    return c->ends_inside_call && c->finish == FINISH_STOP ? FINISH_LENGTH : c->finish;
}

/* Error of a stream with a partial call (has_partial_call). Clients execute the calls of a stream
 * that ends like a complete one, with any finish reason. */
#define PARTIAL_CALL_CODE "incomplete_tool_call"
const char *response_partial_call_message(const struct response_choice *c);

/* Appends ,"constraint":{"kind":..,"complete":..} to the members of a choice that ends, or nothing
 * if the request has no constraint. */
void response_put_constraint(
    struct buf *out, const struct response *a, const struct response_choice *c);
/* Returns the list's buffer, with a comma appended if it has items. */
struct buf *response_list_item(struct response_choice *c, enum response_list list);
/* Returns the choice at rank `place` (from 0) of a prompt, by mean log-probability. For bodies. */
const struct response_choice *response_choice_at_rank(
    const struct response *a, int prompt, int place);
