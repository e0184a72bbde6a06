/* tools.h: tools and tool choice of a request, common to all dialects.
 *
 * A dialect converts its functions to OpenAI's format, one after the other (tools_read for an array
 * in this format, else tools_add), and sets request->tool_choice, tool_name and allowed_tools; NONE
 * need not be set when there are no tools. request_parse then calls tools_resolve. Memory: the
 * request's arena. Any thread. */
#pragma once

#include "api/common/path.h"

struct tool_list {
    struct json *array, **tail;
    struct str skipped; /* type of the first tool that is no function; .p NULL: none */
    int at_skipped;     /* index of that tool */
};

/* `said` is the client's array. ERR_RANGE if it has too many elements. */
int tools_begin(struct tool_list *l, struct fields *f, const char *name, const struct json *said);

struct tool_spec {
    struct str name, description;  /* description .p NULL: none */
    const struct json *parameters; /* JSON Schema; NULL: no arguments */
    const struct json *strict;     /* NULL: absent */
};
/* `where` is the path of the tool, for errors. A name has 1 to 256 bytes without control
 * characters. */
int tools_add(
    struct tool_list *l, struct fields *f, const struct path *where, const struct tool_spec *t);
/* A tool that another server or the client runs without a function, like web_search. Agents send
 * such tools to every server, so it is omitted if the list also has functions. */
void tools_skip(struct tool_list *l, int i, struct str type);
/* Sets request->tools. ERR_UNSUPPORTED: the list contains tools and no function. */
int tools_end(struct tool_list *l, struct fields *f);

/* Reads an array [{"type":"function","function":{"name","description","parameters"}}]. The type is
 * optional; other members are kept. */
int tools_read(struct fields *f, const char *name, const struct json *v);

/* Called by request_parse: checks that the choice matches the tools, and sets convo.tools to the
 * tools that may be called. ERR_INVALID, "tool_choice": the choice names a tool that is not there.
 * */
int tools_resolve(struct request *request, struct arena *a, struct err *e);

/* Whether the request allows a call of this name. */
bool tools_is_allowed(const struct request *request, struct str name);
