/* openai_response.h: what the two OpenAI routes tell alike. A frame of a stream is
 *
 *     head  data: {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...,
 *           "choices":[{"index":
 *     what the choice has to say
 *     tail  }]} and, when usage is asked for, its null
 *
 * of which head and tail are rendered once; text is escaped between them, straight into the
 * output. Nothing is allocated for a token but the growth of buffers. Owner: the io thread. */
#pragma once

#include "api/common/answer_state.h"
#include "api/openai/openai.h"

/* plain: what closes the text of a frame that has neither logprobs nor token ids. */
void openai_begin_frames(struct answer *a, const char *object, const char *plain);
void openai_frame_begin(struct answer *a, const struct choice *c);
void openai_frame_end(struct answer *a);
void openai_stream_end(struct answer *a);
void openai_error_frame(struct buf *out, const struct err *e, const struct error_extra *x);

/* The whole body: put_choice has what stands between "index" and the bracket. */
void openai_put_body(struct answer *a, const char *object,
    void (*put_choice)(struct answer *, const struct choice *));

/* ,"finish_reason":..,"stop_reason":.. */
void openai_put_finish(struct buf *out, const struct answer *a, const struct choice *c);
void openai_put_token_ids(struct buf *out, const struct answer *a, const struct choice *c);
void openai_put_logprob(struct buf *b, float v);
void openai_put_token_text(struct buf *b, const struct answer *a, int32_t id, struct str bytes);
