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
 *     response_add_text                whole characters that no stop string can take back,
 *     response_add_reasoning           as content, as reasoning,
 *     response_call_*                  or as a tool call: begin, args*, end or broken
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
 * failed allocation, response_ok() is false, and the caller cancels and reports ERR_MEMORY. */
#pragma once

#include "generate/ask.h"
#include "api/common/status.h"
#include "engine/engine.h"

enum { ANSWER_BYTES_MAX = 64 * 1024 * 1024 };

struct answer;
struct wire;

/* field names for reasoning in OpenAI's chat format */
enum { REASONING_CONTENT = 1, REASONING = 2 };

struct answer_setup { /* borrowed for the life of the response, unless noted */
    const struct ask *ask;
    struct sink *sink;
    struct str model;         /* model name in the response */
    const char *fingerprint;  /* system_fingerprint; NULL = null */
    int64_t created;          /* seconds since the epoch */
    const char *id;           /* without prefix; NULL = random. Tests set it. */
    unsigned reasoning_names; /* bits REASONING_CONTENT, REASONING; 0 = both */
    enum call_ids call_ids;
    int n_earlier_calls;             /* tool calls in the conversation; for CALL_IDS_NAME */
    const struct http_field *fields; /* sent with the headers; borrowed until response_end */
    int n_fields;
    /* Returns the bytes of a token (vocab_bytes), or the text of a control token. */
    struct str (*token_bytes)(const void *vocab, int32_t id);
    const void *vocab;
};

/* Allocated on the heap, not in the arena, since the buffers of a stream grow and shrink.
 * ERR_MEMORY. */
int answer_new(struct answer **out, const struct answer_setup *s, struct err *e);
void answer_free(struct answer *a); /* accepts NULL; does not touch the sink */

const char *answer_id(const struct answer *a); /* "chatcmpl-..." */
bool answer_ok(const struct answer *a);
bool answer_has_begun(const struct answer *a); /* the headers are sent */

void answer_begin(struct answer *a);
/* Reports that the model started to process the request. Only a background request reports this
 * state; others report the first event. */
void answer_runs(struct answer *a);

/* Sets the number of prompt tokens over all prompts, and how many of them came from the prefix
 * cache. Called any time before response_end; for correct continuous usage, before the first
 * text. */
void answer_usage(struct answer *a, int n_prompt, int n_cached);
/* Sets how many tokens of the client's prediction were in the output, and how many were not. */
void answer_predicted(struct answer *a, int n_accepted, int n_rejected);

/* Clock times (clock_ns) at which the request was queued, started, produced its first token (0 =
 * never reached) and ended. For dialects that report timings; called any time before
 * response_end. */
struct answer_times {
    uint64_t asked_ns, started_ns, first_token_ns, ended_ns;
    int n_drafted, n_drafts_right; /* draft tokens and accepted ones, over all choices */
};
void answer_times(struct answer *a, const struct answer_times *t);

/* Sets the slot (serve/slots.h) of the first prompt, for the dialect that reports it. -1, the
 * initial value: none. */
void answer_slot(struct answer *a, int id_slot);

/* For echo. `t` is NULL for the first token of a prompt, which has no prediction. */
void answer_prompt_token(struct answer *a, int prompt, int32_t id, const struct sampled *t);
void answer_prompt_text(struct answer *a, int prompt, struct str text);

void answer_token(struct answer *a, int choice, const struct sampled *t);
void answer_text(struct answer *a, int choice, struct str text); /* empty text: no effect */

void answer_reasoning(struct answer *a, int choice, struct str text);

/* Tool calls are numbered from 0 within a choice, including broken ones, and are reported one after
 * the other; the response generates their ids. A call that is still open when its choice ends
 * counts as broken. */
void answer_call_begin(struct answer *a, int choice, int call, struct str name);
/* called once per fragment */
void answer_call_args(struct answer *a, int choice, int call, struct str json);
void answer_call_end(struct answer *a, int choice, int call);
/* The call has begun but is not a call. Its text follows as content. */
void answer_call_broken(struct answer *a, int choice, int call);

/* Sets the number of reasoning tokens of the choice so far. */
void answer_reasoning_tokens(struct answer *a, int choice, int n);

/* For FINISH_STOP by a stop string, stop_text is that string, borrowed until response_end; by a
 * token of the client's stop_token_ids, stop_id is that token; by the model's end token, neither is
 * set (.p NULL, -1). Tokens whose text a stop string removed are not in the logprobs. */
void answer_choice_end(
    struct answer *a, int choice, enum finish finish, struct str stop_text, int32_t stop_id);
bool answer_choice_ended(const struct answer *a, int choice);

void answer_flush(struct answer *a);
/* stream that has begun: writes a comment between two frames */
void answer_keepalive(struct answer *a);
void answer_end(struct answer *a); /* choices that are still open end with `length` */
/* x may be NULL. After the headers, writes the error frame and ends the sink; without memory for
 * the frame, aborts the sink. For a background request whose headers are not sent, only the stored
 * object receives the error (response_serialize). */
void answer_error(struct answer *a, const struct err *e, const struct error_extra *x);

/* Writes the response as it is now, and the input items, so that both can be stored and a later
 * request can continue from them. False: the dialect has no stored form, or there is no memory. */
bool answer_keep(const struct answer *a, struct buf *answer, struct buf *input);

/* Returns the token counts for usage, metrics and the audit log. */
struct answer_counts {
    int prompt_tokens, cached_tokens, completion_tokens;
    int reasoning_tokens; /* part of completion_tokens */
    int accepted_prediction_tokens, rejected_prediction_tokens;
};
struct answer_counts answer_counts(const struct answer *a);
