/* anthropic.h: internal interface of the Anthropic Messages dialect. Source of the formats: the
 * public types of the official client libraries.
 *
 * Owner: parsers, model lists and signatures run on any thread; functions on a response run on its
 * io thread. */
#pragma once

#include "api/common/fields.h"
#include "api/models.h"
#include "api/common/dialect.h"

/* anthropic_request.c */
int anthropic_parse(
    struct request *request, const struct json *body, struct arena *a, struct err *e);
/* For count_tokens: the same body, but max_tokens may be absent. */
int anthropic_parse_count(
    struct request *request, const struct json *body, struct arena *a, struct err *e);

/* anthropic_messages.c: `system` (may be NULL) and `messages` -> f->request->convo. The model
 * continues a trailing message of the assistant. */
int anthropic_read_convo(struct fields *f, const struct json *system, const struct json *messages);

/* anthropic_tools.c: `tools` and `tool_choice` (either may be NULL) -> f->request. */
int anthropic_read_tools(struct fields *f, const struct json *tools, const struct json *choice);
/* Whether the arguments of this tool's calls are streamed as they are generated, without waiting
 * for a complete call. */
bool anthropic_is_eager(const struct request *request, struct str name);

/* anthropic_signature.c: signs a thinking block when it is sent, so that it can be verified when
 * the client returns it. The signature covers the JSON-escaped text. The key is random per process:
 * blocks from before a restart, or from another server, are unverified. Any thread. */
struct signature_text {
    char z[48];
};
struct signature_text anthropic_sign(struct str escaped);
bool anthropic_signature_is_valid(struct str reasoning, struct str signature);

/* anthropic_blocks.c: content blocks of a message; ctx is the response. */
extern const struct output_ops anthropic_output_ops;
void anthropic_close_block(struct response *a, struct response_choice *c);

/* anthropic_models.c: GET /v1/models in Anthropic's format: a page of the list, one entry. `after`
 * and `before` are the ids that bound the page, or STR_NONE; an unknown id has no effect. */
struct anthropic_page {
    struct str after, before;
    size_t limit; /* at least 1 */
};
void anthropic_models(
    struct buf *out, const struct model_info *m, size_t n, const struct anthropic_page *page);
void anthropic_model(struct buf *out, const struct model_info *m);

/* {"input_tokens":n} */
void anthropic_count(struct buf *out, int n);
