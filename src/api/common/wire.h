/* wire.h: a wire format is a row: how its requests are read and how its answers are told.
 *
 * The answer (answer.h) keeps the state of a request (answer_state.h) and calls its wire's row;
 * the row appends bytes to a->out. A new protocol is a new row, not a branch in an old one.
 * Owner: the io thread. */
#pragma once

#include "api/common/answer.h"

struct choice;
struct answer_call;
struct answer_token;

struct wire {
    const char *name;           /* "openai.chat" */
    const char *id_prefix;      /* "chatcmpl-" */
    const char *stream_type;    /* Content-Type of a stream */
    struct str keepalive;       /* what may be sent at any time between frames */
    enum error_form error_form; /* of an error instead of an answer; for status_reply */
    const char *call_prefix;    /* of the ids of tool calls; NULL = "call_" */
    bool is_gathering; /* a body is told like a stream, piece by piece: the row writes no frames */
    bool keeps_thoughts; /* they are gathered, although they are told as they come */

    /* `body` is an object. On error e->param names the field. */
    int (*parse)(struct ask *ask, const struct json *body, struct arena *a, struct err *e);

    /* Once, before anything else: render what every frame begins and ends with. */
    void (*begin)(struct answer *a);
    /* Frees a->state. NULL = there is none. */
    void (*clear)(struct answer *a);
    /* Stream: what comes before all choices, as soon as the headers have left. NULL = nothing. */
    void (*start)(struct answer *a);
    /* The model has begun with it: for an ask.background, which tells. NULL = nothing. */
    void (*runs)(struct answer *a);
    /* One token of a choice, for logprobs: into the choice's own buffers. */
    void (*token)(struct answer *a, struct choice *c, const struct answer_token *t);
    /* Stream: one frame with text and the logprobs gathered since the last one. */
    void (*text)(struct answer *a, struct choice *c, struct str text);
    /* Stream: as text, what was thought. NULL: this wire does not tell it. */
    void (*reasoning)(struct answer *a, struct choice *c, struct str text);
    /* Stream: a tool call, which has its id and its name; then its arguments, JSON in pieces of
     * whole characters (call->args has all so far, this piece included); then it is complete.
     * call_broken: it is not a call after all, what was read of it follows as text. NULL: this
     * wire does not tell it. */
    void (*call_begin)(struct answer *a, struct choice *c, struct answer_call *call);
    void (*call_args)(
        struct answer *a, struct choice *c, struct answer_call *call, struct str json);
    void (*call_end)(struct answer *a, struct choice *c, struct answer_call *call);
    void (*call_broken)(struct answer *a, struct choice *c, struct answer_call *call);
    /* Stream: the last frame of a choice. */
    void (*choice_end)(struct answer *a, struct choice *c);
    /* Stream: what follows the last choice. */
    void (*end)(struct answer *a);
    /* Not a stream: the whole body. */
    void (*body)(struct answer *a);
    /* What went wrong, in a stream: one frame. */
    void (*error_frame)(struct buf *out, const struct err *e, const struct error_extra *x);
    /* The same where the frame tells of the answer, too; instead of it. NULL = it does not. A wire
     * with ask.background has it, and is called without a stream, too: what is kept tells it. */
    void (*failed)(struct answer *a, const struct err *e, const struct error_extra *x);
    /* The answer as it stands, and what was asked, as they can be kept. NULL = they cannot. */
    void (*keep)(const struct answer *a, struct buf *answer, struct buf *input);
};

extern const struct wire wire_openai_chat;       /* /v1/chat/completions */
extern const struct wire wire_apply_template;    /* /apply-template: a chat that is not answered */
extern const struct wire wire_openai_completion; /* /v1/completions */
extern const struct wire wire_responses;         /* /v1/responses */
extern const struct wire wire_anthropic;         /* /v1/messages */
extern const struct wire wire_anthropic_count;   /* /v1/messages/count_tokens; only parses */
extern const struct wire wire_ollama_chat;       /* /api/chat */
extern const struct wire wire_ollama_generate;   /* /api/generate */
extern const struct wire wire_llama;             /* /completion, as llama-server has it */
extern const struct wire wire_llama_infill;      /* /infill */

/* Body -> ask, through the row's parser. `body` and the arena outlive the ask. Errors have the
 * code, the field and the sentence the client is to see: ERR_SYNTAX, ERR_MISSING, ERR_INVALID,
 * ERR_RANGE, ERR_UNSUPPORTED, ERR_TOO_LARGE, ERR_MEMORY. */
int ask_parse(
    struct ask *out, const struct wire *w, struct str body, struct arena *a, struct err *e);
