/* dialect.h: interface of an API protocol: parser of requests, formatter of responses.
 *
 * A response (response.h) keeps its state in response_state.h and calls its dialect; the dialect
 * appends bytes to a->out. A new protocol is a new struct dialect, not a branch in an existing one.
 * Owner: the io thread. */
#pragma once

#include "api/common/answer.h"

struct choice;
struct answer_call;
struct answer_token;

struct wire {
    const char *name;        /* "openai.chat" */
    const char *id_prefix;   /* "chatcmpl-" */
    const char *stream_type; /* Content-Type of a stream */
    struct str keepalive;    /* bytes that are valid between any two frames */
    /* Format of an error that replaces the response; for status_reply. */
    enum error_form error_form;
    const char *call_prefix; /* prefix of tool call ids; NULL = "call_" */
    /* The stream callbacks are also called for a body; they write no frames then. */
    bool is_gathering;
    bool keeps_thoughts; /* a stream also accumulates reasoning in choice.reasoning */

    /* `body` is an object. On error e->param names the field. */
    int (*parse)(struct ask *ask, const struct json *body, struct arena *a, struct err *e);

    /* Called once, first: renders the constant start and end of frames. */
    void (*begin)(struct answer *a);
    /* Frees a->state. NULL = no state. */
    void (*clear)(struct answer *a);
    /* Stream: writes the frames before all choices, after the headers. NULL = none. */
    void (*start)(struct answer *a);
    /* Background request: the model started to process it. NULL = not reported. */
    void (*runs)(struct answer *a);
    /* Appends the logprobs of one token to the choice's lists. */
    void (*token)(struct answer *a, struct choice *c, const struct answer_token *t);
    /* Stream: one frame with text and the logprobs since the last frame. */
    void (*text)(struct answer *a, struct choice *c, struct str text);
    /* Stream: reasoning, in the form of text. NULL: the dialect does not send it. */
    void (*reasoning)(struct answer *a, struct choice *c, struct str text);
    /* Stream: a tool call. call_begin has its id and name; call_args its arguments, JSON in
     * fragments of whole characters (call->args contains all so far, with this one); call_end
     * follows a complete call. call_broken: the text is not a call after all and follows as
     * content. NULL: the dialect does not send calls. */
    void (*call_begin)(struct answer *a, struct choice *c, struct answer_call *call);
    void (*call_args)(
        struct answer *a, struct choice *c, struct answer_call *call, struct str json);
    void (*call_end)(struct answer *a, struct choice *c, struct answer_call *call);
    void (*call_broken)(struct answer *a, struct choice *c, struct answer_call *call);
    /* Stream: the last frame of a choice. */
    void (*choice_end)(struct answer *a, struct choice *c);
    /* Stream: the frames after the last choice. */
    void (*end)(struct answer *a);
    /* Not a stream: the whole body. */
    void (*body)(struct answer *a);
    /* Stream: one frame with an error. */
    void (*error_frame)(struct buf *out, const struct err *e, const struct error_extra *x);
    /* Replaces error_frame if the error frame contains the response. NULL = it does not. A dialect
     * with background requests has this callback; it is then also called without a stream, since
     * the stored object reports the error. */
    void (*failed)(struct answer *a, const struct err *e, const struct error_extra *x);
    /* Writes the response as it is now, and the input items, for the response store. NULL = not
     * storable. */
    void (*keep)(const struct answer *a, struct buf *answer, struct buf *input);
};

extern const struct wire wire_openai_chat;       /* /v1/chat/completions */
extern const struct wire wire_apply_template;    /* /apply-template: only parses */
extern const struct wire wire_openai_completion; /* /v1/completions */
extern const struct wire wire_responses;         /* /v1/responses */
extern const struct wire wire_anthropic;         /* /v1/messages */
extern const struct wire wire_anthropic_count;   /* /v1/messages/count_tokens; only parses */
extern const struct wire wire_ollama_chat;       /* /api/chat */
extern const struct wire wire_ollama_generate;   /* /api/generate */
extern const struct wire wire_llama;             /* /completion, llama-server's format */
extern const struct wire wire_llama_infill;      /* /infill */

/* Parses a body with the dialect's parser. `body` and the arena outlive the request. Errors have
 * the code, the field and the message for the client: ERR_SYNTAX, ERR_MISSING, ERR_INVALID,
 * ERR_RANGE, ERR_UNSUPPORTED, ERR_TOO_LARGE, ERR_MEMORY. */
int ask_parse(
    struct ask *out, const struct wire *w, struct str body, struct arena *a, struct err *e);
