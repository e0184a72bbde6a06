/* openai.h: the pieces of the OpenAI wire that its files share. Source of the formats: the public
 * types of the official client libraries, and what vLLM's and llama-server's clients send. */
#pragma once

#include "api/common/fields.h"
#include "api/common/path.h"
#include "api/common/wire.h"

/* openai_request.c */
int openai_parse_chat(struct ask *ask, const struct json *body, struct arena *a, struct err *e);
int openai_parse_completion(
    struct ask *ask, const struct json *body, struct arena *a, struct err *e);

/* openai_messages.c: the messages array -> f->ask->convo. */
int openai_read_messages(struct fields *f, const char *name, const struct json *v);
/* m->raw's tool_calls, or its function_call -> m->tool_calls; arguments as text or as an object. */
int openai_read_tool_calls(struct fields *f, const struct path *where, struct message *m);

/* openai_tools.c: tools, tool_choice, and their ancestors functions and function_call -> f->ask. */
int openai_read_tools(struct fields *f);
/* tool_choice, as Chat Completions and Responses write it. */
int openai_read_tool_choice(struct fields *f, const struct json *v);

/* openai_shape.c: response_format -> f->ask->shape. */
int openai_read_response_format(struct fields *f, const char *name, const struct json *v);
/* The same deeper in a body, as Responses writes it; `name` is all of where that is, and lives as
 * long as the ask. */
int openai_read_shape(
    struct fields *f, const char *name, const struct path *where, const struct json *v);

/* openai_response.c: wire.token of a chat: {"token","logprob","bytes","top_logprobs"}. */
void openai_chat_token(struct answer *a, struct choice *c, const struct answer_token *t);
