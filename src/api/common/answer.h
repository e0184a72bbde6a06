/* answer.h: what the model says -> the bytes its client reads.
 *
 * One per request, owned by the io thread of its connection. The caller has done everything that
 * needs words (detokenizing, stop strings); the answer counts, gathers, ranks and formats:
 *
 *   answer_new                        before anything is sent
 *   answer_begin                      stream: status 200 and headers leave; else nothing
 *     answer_prompt_token*            with echo and logprobs: the prompt, token by token,
 *     answer_prompt_text              with echo: and as text
 *     answer_token                    for every generated token,
 *     answer_text                     then the whole characters that became safe to show,
 *     answer_reasoning                as text, as what was thought,
 *     answer_call_*                   or as a tool call: begin, args*, end or broken
 *     answer_choice_end               once per choice: after its last text
 *     answer_flush                    stream: what was formatted since goes to the sink
 *   answer_end                        usage and [DONE], or the whole body; the sink has ended
 *
 *   answer_error                      instead, at any moment before answer_end: a status and an
 *                                     error body, or an error frame when headers have left
 *
 * Choices are numbered over all prompts: prompt * best_of + choice. Text that arrives after
 * answer_choice_end is ignored, so stragglers of a stopped choice do no harm. A stream and a
 * body are made of the same calls. Bytes are bounded by ANSWER_BYTES_MAX; over it, and when
 * memory is gone, answer_ok() turns false and the caller cancels and reports ERR_MEMORY. */
#pragma once

#include "generate/ask.h"
#include "api/common/status.h"
#include "engine/engine.h"

enum { ANSWER_BYTES_MAX = 64 * 1024 * 1024 };

struct answer;
struct wire;

enum { REASONING_CONTENT = 1, REASONING = 2 }; /* the names that OpenAI's chat has for thoughts */

struct answer_setup { /* borrowed as long as the answer lives, unless said otherwise */
    const struct ask *ask;
    struct sink *sink;
    struct str model;         /* the name the answer carries */
    const char *fingerprint;  /* system_fingerprint; NULL = null */
    int64_t created;          /* wall seconds */
    const char *id;           /* without prefix; NULL = random. Tests fix it. */
    unsigned reasoning_names; /* of the above, which; 0 = both */
    enum call_ids call_ids;
    int n_earlier_calls;             /* of the conversation; for CALL_IDS_NAME */
    const struct http_field *fields; /* sent with the headers; borrowed until the end */
    int n_fields;
    /* The bytes a token stands for (vocab_bytes); control tokens have their text. */
    struct str (*token_bytes)(const void *vocab, int32_t id);
    const void *vocab;
};

/* Heap, not arena: a streamed answer's buffers come and go. ERR_MEMORY. */
int answer_new(struct answer **out, const struct answer_setup *s, struct err *e);
void answer_free(struct answer *a); /* NULL is fine; the sink is left alone */

const char *answer_id(const struct answer *a); /* "chatcmpl-..." */
bool answer_ok(const struct answer *a);
bool answer_has_begun(const struct answer *a); /* headers have left */

void answer_begin(struct answer *a);
/* The model has begun with it. For an ask.background: others begin when they are told. */
void answer_runs(struct answer *a);

/* Tokens of the prompts, of all together, and how many of them came from the cache. Any time
 * before answer_end; before the first text when continuous usage is to be right. */
void answer_usage(struct answer *a, int n_prompt, int n_cached);
/* Of the client's prediction: so many tokens were in the answers, so many were not. */
void answer_predicted(struct answer *a, int n_accepted, int n_rejected);

/* When it began to wait, to run, to answer (0 = it never did), and ended; clock_ns. For the wires
 * that tell: any time before answer_end. */
struct answer_times {
    uint64_t asked_ns, started_ns, first_token_ns, ended_ns;
    int n_drafted, n_drafts_right; /* tokens guessed ahead, over all choices */
};
void answer_times(struct answer *a, const struct answer_times *t);

/* The slot of its first prompt, for the wire that tells (serve/slots.h); -1, as before: none. */
void answer_slot(struct answer *a, int id_slot);

/* Echo: `t` NULL for the first token of a prompt, which nothing predicts. */
void answer_prompt_token(struct answer *a, int prompt, int32_t id, const struct sampled *t);
void answer_prompt_text(struct answer *a, int prompt, struct str text);

void answer_token(struct answer *a, int choice, const struct sampled *t);
void answer_text(struct answer *a, int choice, struct str text); /* empty: nothing happens */

void answer_reasoning(struct answer *a, int choice, struct str text);

/* Tool calls are numbered from 0 in each choice, broken ones included, and told one after the
 * other; the answer makes their ids. A call that is open when its choice ends was broken. */
void answer_call_begin(struct answer *a, int choice, int call, struct str name);
void answer_call_args(struct answer *a, int choice, int call, struct str json); /* in pieces */
void answer_call_end(struct answer *a, int choice, int call);
/* Begun, and turned out to be text, which follows as text. */
void answer_call_broken(struct answer *a, int choice, int call);

/* How many of the choice's tokens were thoughts, so far. */
void answer_reasoning_tokens(struct answer *a, int choice, int n);

/* FINISH_STOP by a string: stop_text is it, borrowed until the end; by one of the client's
 * stop_token_ids: stop_id is it; by the model's own end token: both absent (.p NULL, -1). Tokens
 * whose text a stop string swallowed are not among the logprobs. */
void answer_choice_end(
    struct answer *a, int choice, enum finish finish, struct str stop_text, int32_t stop_id);
bool answer_choice_ended(const struct answer *a, int choice);

void answer_flush(struct answer *a);
void answer_keepalive(struct answer *a); /* stream, begun: a comment between two frames */
void answer_end(struct answer *a);       /* choices still open end with `length` */
/* x may be NULL. After headers: the frame, then the sink is ended; without memory for the frame it
 * is aborted. An ask.background whose headers have not left says nothing: answer_keep has it. */
void answer_error(struct answer *a, const struct err *e, const struct error_extra *x);

/* The answer as it stands and what was asked, so that it can be kept, and the next one go on from
 * it. False: its wire has no such thing, or there was no memory. */
bool answer_keep(const struct answer *a, struct buf *answer, struct buf *input);

/* What was counted. */
struct answer_counts {
    int prompt_tokens, cached_tokens, completion_tokens;
    int reasoning_tokens; /* of completion_tokens */
    int accepted_prediction_tokens, rejected_prediction_tokens;
};
struct answer_counts answer_counts(const struct answer *a);
