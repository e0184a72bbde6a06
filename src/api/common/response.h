/* response.h: output events of the model -> bytes for the client.
 *
 * There is one response per request, owned by the io thread of its connection. The caller has
 * detokenised the text and removed stop strings; the response counts tokens, accumulates, ranks
 * choices and formats:
 *
 *   response_new                       before anything is sent
 *   response_begin                     stream: sends status 200 and the headers; body: no effect
 *     response_add_prompt_token*       with echo and logprobs: each token of the prompt
 *     response_add_prompt_text         with echo: the text of the prompt
 *     response_add_token               each generated token, before the text that it completes
 *     response_output_ops              whole characters that no stop string can take back, as
 *                                      content, as reasoning or as a tool call (output_ops.h)
 *     response_choice_end              once per choice, after its last text
 *     response_flush                   stream: writes the frames formatted since the last flush
 *   response_end                       usage and [DONE], or the whole body; ends the sink
 *
 *   response_error                     instead, at any time before response_end: a status and an
 *                                      error body, or an error frame if the headers are sent
 *
 * Choices are numbered over all prompts: prompt * best_of + choice. Text that arrives after
 * response_choice_end is ignored, so late events of a stopped choice do no harm. A stream and a
 * body are produced by the same calls. RESPONSE_BYTES_MAX bounds the memory; above it, and after a
 * failed allocation, response_ok() is false, and the caller cancels and reports
 * response_failure(). */
#pragma once

#include "generate/request.h"
#include "api/common/status.h"
#include "engine/engine.h"

enum { RESPONSE_BYTES_MAX = 64 * 1024 * 1024 };

struct response;
struct dialect;

/* field names for reasoning in OpenAI's chat format */
enum { REASONING_CONTENT = 1, REASONING = 2 };

struct response_setup { /* borrowed for the life of the response, unless noted */
    const struct request *request;
    struct sink *sink;
    struct str model;         /* model name in the response */
    const char *fingerprint;  /* system_fingerprint; NULL = null */
    int64_t created;          /* seconds since the epoch */
    const char *id;           /* without prefix; NULL = random. Tests set it. */
    unsigned reasoning_names; /* bits REASONING_CONTENT, REASONING; 0 = both */
    enum call_id_form call_ids;
    int n_earlier_calls;             /* tool calls in the conversation; for CALL_IDS_NAME */
    const struct http_field *fields; /* sent with the headers; borrowed until response_end */
    int n_fields;
    /* Returns the bytes of a token (vocab_bytes), or the text of a control token. */
    struct str (*token_bytes)(const void *vocab, int32_t id);
    const void *vocab;
};

/* Checks before anything is computed whether n_tokens tokens of output, over all choices, fit into
 * the response: each log-probability needs at least the bytes of its entry. ERR_RANGE. */
int response_check_size(const struct request *request, int64_t n_tokens, struct err *e);
/* Allocated on the heap, not in the arena, since the buffers of a stream grow and shrink.
 * ERR_MEMORY. */
int response_new(struct response **out, const struct response_setup *s, struct err *e);
void response_free(struct response *a); /* accepts NULL; does not touch the sink */

const char *response_id(const struct response *a); /* "chatcmpl-..." */
bool response_ok(const struct response *a);
/* If response_ok is false: ERR_RANGE (above RESPONSE_BYTES_MAX; a retry would fail again) or
 * ERR_MEMORY. Sets *e and returns -1. */
int response_failure(const struct response *a, struct err *e);
bool response_has_begun(const struct response *a); /* the headers are sent */

void response_begin(struct response *a);
/* Reports that the model started to process the request. Only a background request reports this
 * state; others report the first event. */
void response_set_running(struct response *a);

/* Sets the number of prompt tokens over all prompts, and how many of them came from the prefix
 * cache. Called any time before response_end; for correct continuous usage, before the first
 * text. */
void response_set_usage(struct response *a, int n_prompt, int n_cached);
/* Sets how many tokens of the client's prediction were in the output, and how many were not. */
void response_set_prediction_counts(struct response *a, int n_accepted, int n_rejected);

/* Clock times (clock_ns) at which the request was queued, started, produced its first token (0 =
 * never reached) and ended. For dialects that report timings; called any time before
 * response_end. */
struct response_times {
    uint64_t queued_ns, started_ns, first_token_ns, ended_ns;
    int n_drafted, n_drafts_accepted; /* draft tokens and accepted ones, over all choices */
};
void response_set_times(struct response *a, const struct response_times *t);

/* Sets the slot (serve/slots.h) of the first prompt, for the dialect that reports it. -1, the
 * initial value: none. */
void response_set_slot(struct response *a, int id_slot);

/* For echo. `t` is NULL for the first token of a prompt, which has no prediction. */
void response_add_prompt_token(struct response *a, int prompt, int32_t id, const struct sampled *t);
void response_add_prompt_text(struct response *a, int prompt, struct str text);

void response_add_token(struct response *a, int choice, const struct sampled *t);
/* The same for a token that is not in the logprobs and ids, since its text was removed. */
void response_count_token(struct response *a, int choice, const struct sampled *t);

/* Output events; ctx is the response, `choice` is numbered over all prompts. Reasoning is ignored
 * if the request hides it; empty text has no effect. The response generates the ids of tool calls;
 * a call that is still open when its choice ends counts as broken, and the output as ended inside
 * it. */
extern const struct output_ops response_output_ops;

/* Sets the number of reasoning tokens of the choice so far. */
void response_set_reasoning_tokens(struct response *a, int choice, int n);

/* Called before response_choice_end if the output ended inside a tool call, which call_broken has
 * then reported. The choice ends with `length` even if the model or a stop string ended it. */
void response_set_ends_inside_call(struct response *a, int choice);

/* Called before response_choice_end of a request with a constraint if the whole text of the choice
 * satisfies it; otherwise the choice is reported as incomplete. */
void response_set_is_constraint_met(struct response *a, int choice);

/* For FINISH_STOP by a stop string, stop_text is that string, borrowed until response_end; by a
 * token of the client's stop_token_ids, stop_id is that token; by the model's end token, neither is
 * set (.p NULL, -1). Tokens whose text a stop string removed are not in the logprobs. */
void response_choice_end(
    struct response *a, int choice, enum finish finish, struct str stop_text, int32_t stop_id);
bool response_choice_has_ended(const struct response *a, int choice);

void response_flush(struct response *a);
/* stream that has begun: writes a comment between two frames */
void response_keepalive(struct response *a);
void response_end(struct response *a); /* choices that are still open end with `length` */
/* x may be NULL. After the headers, writes the error frame and ends the sink; without memory for
 * the frame, aborts the sink. For a background request whose headers are not sent, only the stored
 * object receives the error (response_serialize). */
void response_error(struct response *a, const struct err *e, const struct error_extra *x);

/* Writes the response as it is now, and the input items, so that both can be stored and a later
 * request can continue from them. False: the dialect has no stored form, or there is no memory. */
bool response_serialize(const struct response *a, struct buf *response, struct buf *input);

/* Returns the token counts for usage, metrics and the audit log. */
struct response_counts {
    int prompt_tokens, cached_tokens, completion_tokens;
    int reasoning_tokens; /* part of completion_tokens */
    int accepted_prediction_tokens, rejected_prediction_tokens;
};
struct response_counts response_counts(const struct response *a);
