/* ollama.h: internal interface of the Ollama dialect. Source of the formats: Ollama's public API
 * documentation and the types of its official client libraries.
 *
 * Owner: parsers and model lists run on any thread; functions on a response run on its io
 * thread. */
#pragma once

#include "api/common/fields.h"
#include "api/models.h"
#include "api/common/dialect.h"

/* ollama_request.c */
int ollama_parse_chat(
    struct request *request, const struct json *body, struct arena *a, struct err *e);
int ollama_parse_generate(
    struct request *request, const struct json *body, struct arena *a, struct err *e);

/* Digest of the model file in hexadecimal; "" if unknown. */
struct digest_text {
    char z[65];
};
struct digest_text ollama_digest(const struct model_info *m);

/* ollama_models.c: responses of /api/tags, /api/ps and /api/show. */
void ollama_put_model(struct jw *w, const struct model_info *m);
void ollama_tags(struct buf *out, const struct model_info *m, size_t n);
void ollama_ps(struct buf *out, const struct model_info *m, size_t n); /* only loaded models */
void ollama_show(struct buf *out, const struct model_info *m, struct str chat_template);
/* Reads the body of /api/show: {"model"} or, from older clients, {"name"}. ERR_MISSING,
 * ERR_INVALID, and the errors of body_object. */
int ollama_parse_name(struct str *out, struct str body, struct arena *a, struct err *e);
