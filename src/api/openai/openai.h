/* openai.h: internal interface of the OpenAI dialects (chat, completion), parts of which the
 * Responses dialect also uses. Source of the formats: the public types of the official client
 * libraries, and the fields that clients of vLLM and llama-server send.
 *
 * Owner: parsers run on any thread; functions on a response run on its io thread. */
#pragma once

#include "api/common/fields.h"
#include "api/common/path.h"
#include "api/common/dialect.h"

/* openai_request.c */
int openai_parse_chat(
    struct request *request, const struct json *body, struct arena *a, struct err *e);
int openai_parse_completion(
    struct request *request, const struct json *body, struct arena *a, struct err *e);

/* openai_messages.c: the messages array -> f->request->convo. */
int openai_read_messages(struct fields *f, const char *name, const struct json *v);
/* tool_calls or function_call of m->raw -> m->tool_calls; arguments are a string or an object. */
int openai_read_tool_calls(struct fields *f, const struct path *where, struct message *m);

/* openai_tools.c: tools, tool_choice, the deprecated functions and function_call -> f->request. */
int openai_read_tools(struct fields *f);
/* Reads tool_choice in the format that Chat Completions and Responses share. */
int openai_read_tool_choice(struct fields *f, const struct json *v);

/* openai_response_format.c: response_format -> f->request->constraint. */
int openai_read_response_format(struct fields *f, const char *name, const struct json *v);
/* The same at another place in the body, for the Responses dialect. */
int openai_read_format(struct fields *f, const struct path *where, const struct json *v);

/* openai_response.c: dialect.token of a chat: {"token","logprob","bytes","top_logprobs"}. */
void openai_chat_token(
    struct response *a, struct response_choice *c, const struct response_token *t);
