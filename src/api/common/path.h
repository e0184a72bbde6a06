/* path.h: where in a body a value stands: "messages[3].content[1].type".
 *
 * A path is a chain of structs on the stack; it is put into words only when something is wrong
 * there. Any thread. */
#pragma once

#include "api/common/fields.h"

struct path {
    const struct path *up;
    const char *member;
    int index; /* -1: none */
};

#define AT(up, member)        (&(struct path){ up, member, -1 })
#define AT_INDEX(up, list, i) (&(struct path){ up, list, i })

struct path_text { /* the front of longer ones */
    char z[48];
};
struct path_text path_spell(const struct path *p);

/* The errors of fields.h, and values, at a path: -1 or 0. */
int path_wrong_kind(
    struct fields *f, const struct path *at, const char *want, const struct json *v);
int path_missing(struct fields *f, const struct path *at);
int path_unsupported(struct fields *f, const struct path *at, const char *what);
/* A string that must be there; one that may be: then *out is left alone. */
int path_need_text(struct fields *f, const struct path *at, const struct json *v, struct str *out);
int path_take_text(struct fields *f, const struct path *at, const struct json *v, struct str *out);
