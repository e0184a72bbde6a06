/* anthropic.h: the pieces of the Anthropic Messages wire that its files share. Source of the
 * formats: the public types of the official client libraries. */
#pragma once

#include "api/common/fields.h"
#include "api/models.h"
#include "api/common/wire.h"

/* anthropic_request.c */
int anthropic_parse(struct ask *ask, const struct json *body, struct arena *a, struct err *e);
/* The same body, where max_tokens may be absent: only its tokens are counted. */
int anthropic_parse_count(struct ask *ask, const struct json *body, struct arena *a, struct err *e);

/* anthropic_messages.c: `system` (may be NULL) and `messages` -> f->ask->convo. A trailing
 * message of the assistant is one to continue. */
int anthropic_read_convo(struct fields *f, const struct json *system, const struct json *messages);

/* anthropic_tools.c: `tools` and `tool_choice` (either may be NULL) -> f->ask. */
int anthropic_read_tools(struct fields *f, const struct json *tools, const struct json *choice);
/* Whether the arguments of a tool's calls are to be told as they come, complete or not. */
bool anthropic_is_eager(const struct ask *ask, struct str name);

/* anthropic_signature.c: a thinking block is signed when it is told, so that it can be known again
 * when it comes back. What is signed is its text as JSON escapes it. The key is the process's own:
 * after a restart, and at another server, blocks are strange ones. Any thread. */
struct signature_text {
    char z[48];
};
struct signature_text anthropic_sign(struct str escaped);
bool anthropic_signed(struct str thought, struct str signature);

/* anthropic_blocks.c: the content blocks of an answer, as rows of its wire. */
void anthropic_text(struct answer *a, struct choice *c, struct str text);
void anthropic_reasoning(struct answer *a, struct choice *c, struct str text);
void anthropic_call_begin(struct answer *a, struct choice *c, struct answer_call *k);
void anthropic_call_args(
    struct answer *a, struct choice *c, struct answer_call *k, struct str json);
void anthropic_call_end(struct answer *a, struct choice *c, struct answer_call *k);
void anthropic_call_broken(struct answer *a, struct choice *c, struct answer_call *k);
void anthropic_close_block(struct answer *a, struct choice *c);

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
