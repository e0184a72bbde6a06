/* anthropic.h: the pieces of the Anthropic Messages wire that its files share. Source of the
 * formats: the public types of the official client libraries. */
#pragma once

#include "api/fields.h"
#include "api/models.h"
#include "api/wire.h"

/* anthropic_request.c */
int anthropic_parse(struct ask *ask, const struct json *body, struct arena *a, struct err *e);
/* The same body, where max_tokens may be absent: only its tokens are counted. */
int anthropic_parse_count(struct ask *ask, const struct json *body, struct arena *a, struct err *e);

/* anthropic_messages.c: `system` (may be NULL) and `messages` -> f->ask->convo. A trailing
 * message of the assistant is one to continue. */
int anthropic_read_convo(struct fields *f, const struct json *system, const struct json *messages);
/* `tools` -> f->ask->convo.tools, in the shape templates know. Those that the servers of the
 * wire's inventor run themselves are left out. */
int anthropic_read_tools(struct fields *f, const struct json *tools);

/* anthropic_models.c: GET /v1/models as this wire has it: a page of the list, one entry.
 * `after` and `before` are ids that bound the page, or STR_NONE; one that is nobody's bounds
 * nothing. */
struct anthropic_page {
    struct str after, before;
    size_t limit; /* >= 1 */
};
void anthropic_models(
    struct buf *out, const struct model_info *m, size_t n, const struct anthropic_page *page);
void anthropic_model(struct buf *out, const struct model_info *m);

/* {"input_tokens":n} */
void anthropic_count(struct buf *out, int n);
