/* dialect.h: interface of an API protocol: parser of requests, formatter of responses.
 *
 * A response (response.h) keeps its state in response_state.h and calls its dialect; the dialect
 * appends bytes to a->out. A new protocol is a new struct dialect, not a branch in an existing one.
 * Owner: the io thread. */
#pragma once

#include "api/common/response.h"
#include "generate/keep.h"

struct response_choice;
struct response_call;
struct response_token;

struct dialect {
    const char *name;        /* "openai.chat" */
    const char *id_prefix;   /* "chatcmpl-" */
    const char *stream_type; /* Content-Type of a stream */
    struct str keepalive;    /* bytes that are valid between any two frames */
    /* Format of an error that replaces the response; for status_reply. */
    enum error_form error_form;
    const char *call_prefix; /* prefix of tool call ids; NULL = "call_" */
    /* The stream callbacks are also called for a body; they write no frames then. */
    bool is_incremental;
    bool keeps_reasoning; /* a stream also accumulates reasoning in choice.reasoning */
    /* Names the members of the request that the callbacks below read and that request_keep would
     * not keep otherwise. */
    struct request_needs needs;

    /* `body` is an object. On error e->param names the field. */
    int (*parse)(struct request *request, const struct json *body, struct arena *a, struct err *e);

    /* Called once, first: renders the constant start and end of frames. */
    void (*begin)(struct response *a);
    /* Frees a->state. NULL = no state. */
    void (*clear)(struct response *a);
    /* Stream: writes the frames before all choices, after the headers. NULL = none. */
    void (*start)(struct response *a);
    /* Background request: the model started to process it. NULL = not reported. */
    void (*set_running)(struct response *a);
    /* Appends the logprobs of one token to the choice's lists. */
    void (*token)(struct response *a, struct response_choice *c, const struct response_token *t);
    /* Stream: the output events (output_ops.h) of an open choice, after the response has added them
     * to response_state.h; ctx is the response. Text and reasoning: one frame with the logprobs
     * since the last frame. call_begin has the id in response_last_call(), which also has all
     * arguments so far. A callback that is NULL: the dialect does not send this event. */
    const struct output_ops *output;
    /* Stream: the last frame of a choice. */
    void (*choice_end)(struct response *a, struct response_choice *c);
    /* Stream: the frames after the last choice. */
    void (*end)(struct response *a);
    /* Not a stream: the whole body. */
    void (*body)(struct response *a);
    /* Stream: one frame with an error. */
    void (*error_frame)(struct buf *out, const struct err *e, const struct error_extra *x);
    /* Replaces error_frame if the error frame contains the response. NULL = it does not. A dialect
     * with background requests has this callback; it is then also called without a stream, since
     * the stored object reports the error. */
    void (*failed)(struct response *a, const struct err *e, const struct error_extra *x);
    /* Writes the response as it is now, and the input items, for the response store. NULL = not
     * storable. */
    void (*serialize)(const struct response *a, struct buf *response, struct buf *input);
};

extern const struct dialect dialect_openai_chat;       /* /v1/chat/completions */
extern const struct dialect dialect_apply_template;    /* /apply-template: only parses */
extern const struct dialect dialect_openai_completion; /* /v1/completions */
extern const struct dialect dialect_responses;         /* /v1/responses */
extern const struct dialect dialect_anthropic;         /* /v1/messages */
extern const struct dialect dialect_anthropic_count;   /* /v1/messages/count_tokens; only parses */
extern const struct dialect dialect_ollama_chat;       /* /api/chat */
extern const struct dialect dialect_ollama_generate;   /* /api/generate */
extern const struct dialect dialect_llama;             /* /completion, llama-server's format */
extern const struct dialect dialect_llama_infill;      /* /infill */

/* Parses a body with the dialect's parser. `body` and the arena outlive the request. Errors have
 * the code, the field and the message for the client: ERR_SYNTAX, ERR_MISSING, ERR_INVALID,
 * ERR_RANGE, ERR_UNSUPPORTED, ERR_TOO_LARGE, ERR_MEMORY. */
int request_parse(
    struct request *out, const struct dialect *w, struct str body, struct arena *a, struct err *e);
