/* context.h: a conversation as the variables of a template.
 *
 * A message becomes a dict with the members that the client sent, in their order; those that
 * struct message knows take their value from there, so that every wire's messages look alike to
 * a template. All of it is untrusted but the role, which is one of our six words: templates
 * build markers like <|user|> from it. */
#pragma once

#include "jinja/ast.h"
#include "chat/template.h"

enum {
    AS_TEXT_ARGS = 1,  /* arguments of tool calls stay JSON text */
    AS_SYSTEM = 2,     /* developer messages become system messages */
    AS_PLAIN = 4,      /* lists of text parts become one string */
    AS_PARTS = 8,      /* strings become a list of one part */
    AS_NO_TOOLS = 16,  /* without tools the variable is undefined */
    WITHOUT_LAST = 32, /* the last message is left out, the assistant's turn begins */
};

int context_set(
    struct rt *rt, const struct convo *c, const struct template_env *env, int how) MUST_CHECK;
