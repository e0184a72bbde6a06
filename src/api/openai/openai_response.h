/* openai_response.h: response formatting shared by the two OpenAI dialects. A frame of a stream is
 *
 *     head  data: {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...,
 *           "choices":[{"index":
 *     the content of the choice
 *     tail  }]} and, if usage is requested, its null
 *
 * Head and tail are rendered once; text is escaped between them, directly into the output. A token
 * causes no allocation except the growth of buffers. Owner: the io thread. */
#pragma once

#include "api/common/response_state.h"
#include "api/openai/openai.h"

/* `plain` closes the text of a frame that has neither logprobs nor token ids. */
void openai_begin_frames(struct response *a, const char *object, const char *plain);
void openai_frame_begin(struct response *a, const struct response_choice *c);
void openai_frame_end(struct response *a);
void openai_stream_end(struct response *a);
void openai_error_frame(struct buf *out, const struct err *e, const struct error_extra *x);

/* Writes the whole body; put_choice writes the members of a choice after "index". */
void openai_put_body(struct response *a, const char *object,
    void (*put_choice)(struct response *, const struct response_choice *));

/* ,"finish_reason":..,"stop_reason":.., and the constraint */
void openai_put_finish(struct buf *out, const struct response *a, const struct response_choice *c);
void openai_put_token_ids(
    struct buf *out, const struct response *a, const struct response_choice *c);
void openai_put_logprob(struct buf *b, float v);
void openai_put_token_text(struct buf *b, const struct response *a, int32_t id, struct str bytes);
