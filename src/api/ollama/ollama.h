/* ollama.h: the pieces of Ollama's wire that its files share. Source of the formats: its public
 * documentation of the API and the types of its official client libraries. */
#pragma once

#include "api/common/fields.h"
#include "api/models.h"
#include "api/common/wire.h"

/* ollama_request.c */
int ollama_parse_chat(struct ask *ask, const struct json *body, struct arena *a, struct err *e);
int ollama_parse_generate(struct ask *ask, const struct json *body, struct arena *a, struct err *e);

/* The digest of the model's file in hexadecimal; "" where it is not known. */
struct digest_text {
    char z[65];
};
struct digest_text ollama_digest(const struct model_info *m);

/* ollama_models.c: answers of /api/tags, /api/ps and /api/show */
void ollama_put_model(struct jw *w, const struct model_info *m);
void ollama_tags(struct buf *out, const struct model_info *m, size_t n);
void ollama_ps(struct buf *out, const struct model_info *m, size_t n); /* those that are ready */
void ollama_show(struct buf *out, const struct model_info *m, struct str chat_template);
/* Their body: {"model"} or, as older clients say it, {"name"}. ERR_MISSING, ERR_INVALID, ... */
int ollama_parse_name(struct str *out, struct str body, struct arena *a, struct err *e);
