/* template_context.h: sets the variables of a chat template from a conversation.
 *
 * A message becomes a dict with the members which the client sent, in their order. Members that
 * struct message also has take their value from there, so messages of all dialects look alike to a
 * template. All text is untrusted except the role, which is one of six fixed words: templates build
 * markers such as <|user|> from it. Called by the thread that renders. */
#pragma once

#include "jinja/ast.h"
#include "chat/template.h"

enum {
    VARIANT_TEXT_ARGS = 1,           /* arguments of tool calls stay JSON text */
    VARIANT_DEVELOPER_AS_SYSTEM = 2, /* developer messages become system messages */
    VARIANT_CONTENT_AS_STRING = 4,   /* a content list of text parts becomes one string */
    VARIANT_CONTENT_AS_PARTS = 8,    /* a content string becomes a list of one part */
    VARIANT_TOOLS_UNDEFINED = 16, /* without tools, the variable `tools` is undefined, not none */
    VARIANT_WITHOUT_LAST = 32,    /* the last message is omitted and the assistant turn is opened */
    VARIANT_TOOL_DEFAULTS = 64,   /* optional members which tools lack have default values */
};

int template_context_set(struct rt *rt, const struct convo *c, const struct template_env *env,
    int variant_flags) MUST_CHECK;
