/* convert.h: a conversation in words that a template takes.
 *
 * Templates refuse, or leave out, what their models have not learned: a system message, a tool's
 * result, two messages of one role. What is lacking (learn.h) is said in another way:
 *
 *     no content at all             an empty one
 *     a call that is not shown      text of the assistant, written as its parser reads it
 *     a result that is not shown    a message of the user, between <tool_response> tags
 *     tools that are not shown      the system message lists them and tells how to call
 *     a system message              goes in front of what the user says first
 *     one that comes late           becomes the user's, or joins the first
 *     two of one role in a row      become one
 *
 * The words around are ours, and trusted; what stands in them stays the client's. A conversation
 * that the template takes as it is comes back untouched. Pure. */
#pragma once

#include "chat/convo.h"
#include "chat/learn.h"

/* A format in which calls can be written: name and arguments go between the three texts. */
struct writing {
    const char *tool; /* the parser that reads it */
    const char *open, *mid, *close;
    bool is_json;   /* the name stands in a JSON string */
    bool is_python; /* arguments are key=value */
};

/* NULL: calls of this parser cannot be written here. */
const struct writing *writing_find(const char *tool);

struct convert_options {
    const struct learned *learned;
    const struct writing *writing; /* of calls that the template does not show; not NULL */
    bool injects;                  /* tools go into the system message */
    bool no_think;                 /* the system message ends with /no_think */
};

/* ERR_MEMORY. *out may share everything with *in; the rest is in the arena. */
int convo_convert(struct convo *out, const struct convo *in, const struct convert_options *o,
    struct arena *a, struct err *e);
