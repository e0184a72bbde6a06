/* convo_convert.h: converts a conversation to messages which the chat template supports.
 *
 * Templates reject or omit message types that their models were not trained on. Depending on the
 * features of the template (template_probe.h), this module replaces:
 *
 *     missing content                      empty content
 *     tool calls, if not rendered          text of the assistant, in the syntax of its parser
 *     tool results, if not rendered        a user message, between <tool_response> tags
 *     tools, if not rendered               a tool list and call instructions in the system message
 *     system message, if not supported     text before the first user message
 *     later system message, likewise       a user message, or part of the first system message
 *     consecutive messages of one role     one message
 *
 * The added text is trusted; text of the client stays untrusted. A conversation which the template
 * supports as it is stays unchanged. Pure functions; any thread. */
#pragma once

#include "chat/convo.h"
#include "chat/template_probe.h"

/* Syntax for writing a tool call as text: name and arguments go between the three strings. */
struct call_syntax {
    const char *tool; /* id of the parser that reads this syntax */
    const char *open, *mid, *close;
    bool is_json;   /* the name is inside a JSON string */
    bool is_python; /* arguments are written as key=value */
};

/* NULL: calls in the syntax of this parser cannot be written here. */
const struct call_syntax *call_syntax_find(const char *tool);

struct convert_options {
    const struct template_features *template_features;
    const struct call_syntax
        *call_syntax; /* for tool calls which the template does not render; not NULL */
    bool injects;     /* list the tools in the system message */
    bool no_think;    /* append /no_think to the system message */
};

/* ERR_MEMORY. *out may share memory with *in; new data is in the arena. */
int convo_convert(struct convo *out, const struct convo *in, const struct convert_options *o,
    struct arena *a, struct err *e);
