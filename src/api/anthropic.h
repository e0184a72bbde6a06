/* anthropic.h: the pieces of the Anthropic Messages wire that its files share. Source of the
 * formats: the public types of the official client libraries. */
#pragma once

#include "api/fields.h"
#include "api/wire.h"

/* anthropic_request.c */
int anthropic_parse(struct ask *ask, const struct json *body, struct arena *a, struct err *e);
/* The same body, where max_tokens may be absent: only its tokens are counted. */
int anthropic_parse_count(struct ask *ask, const struct json *body, struct arena *a, struct err *e);

/* anthropic_messages.c: `system` (may be NULL) and `messages` -> f->ask->convo. A trailing message
 * of the assistant is one to continue. */
int anthropic_read_convo(struct fields *f, const struct json *system, const struct json *messages);
/* `tools` -> f->ask->convo.tools, in the shape templates know. Those that the servers of the
 * wire's inventor run themselves are left out. */
int anthropic_read_tools(struct fields *f, const struct json *tools);
