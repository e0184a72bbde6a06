/* path.h: path of a value in a request body, such as "messages[3].content[1].type".
 *
 * A path is a linked list of structs on the stack; it is formatted only for an error message. Any
 * thread. */
#pragma once

#include "api/common/fields.h"

struct path {
    const struct path *up;
    const char *member;
    int index; /* -1: none */
};

#define AT(up, member)        (&(struct path){ up, member, -1 })
#define AT_INDEX(up, list, i) (&(struct path){ up, list, i })

struct path_text { /* truncated if longer */
    char z[48];
};
struct path_text path_format(const struct path *p);

/* The errors and value readers of fields.h, at a path: -1 or 0. */
int path_wrong_kind(
    struct fields *f, const struct path *at, const char *want, const struct json *v);
int path_missing(struct fields *f, const struct path *at);
int path_unsupported(struct fields *f, const struct path *at, const char *what);
/* path_need_text reads a required string, path_take_text an optional one (absent: *out is
 * unchanged). */
int path_need_text(struct fields *f, const struct path *at, const struct json *v, struct str *out);
int path_take_text(struct fields *f, const struct path *at, const struct json *v, struct str *out);
/* Reads the member `role` of the message m->raw at `where`; `words`: the roles, for the error. */
int path_need_role(
    struct fields *f, const struct path *where, const char *words, struct message *m);
