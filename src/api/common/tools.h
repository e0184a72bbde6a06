/* tools.h: what a request says of tools, whichever wire said it -> ask.
 *
 * A wire brings its functions into OpenAI's shape, one after the other (tools_read for an array
 * that has this shape already, else tools_put), and sets ask->tool_choice, tool_name and
 * allowed_tools; NONE need not be set when there are no tools. ask_parse settles the rest. In
 * the request's arena. */
#pragma once

#include "api/common/path.h"

struct tool_list {
    struct json *array, **tail;
};

/* said: the array as it came. ERR_RANGE when it has too many. */
int tools_begin(struct tool_list *l, struct fields *f, const char *name, const struct json *said);

struct tool_words {
    struct str name, description;  /* description .p NULL: none */
    const struct json *parameters; /* a schema; NULL: no arguments */
    const struct json *strict;     /* NULL: unsaid */
};
/* `where`: the tool, for errors. A name has 1 to 256 bytes, none of them of control. */
int tools_put(
    struct tool_list *l, struct fields *f, const struct path *where, const struct tool_words *t);
void tools_end(struct tool_list *l, struct fields *f); /* ask->tools */

/* The whole of it for [{"type":"function","function":{"name","description","parameters"}}], where
 * the type may be missing and every other member is kept. */
int tools_read(struct fields *f, const char *name, const struct json *v);

/* For ask_parse: the choice fits the tools, and convo.tools has what may be called. ERR_INVALID,
 * "tool_choice": it asks for what is not there. */
int tools_settle(struct ask *ask, struct arena *a, struct err *e);

/* Whether a call of this name is one of those that the request allows. */
bool tools_allow(const struct ask *ask, struct str name);
