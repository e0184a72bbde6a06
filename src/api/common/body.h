/* body.h: a request body as an object, and its plain members.
 *
 * For every body that is not read by a table of fields (fields.h). Absent and null leave *out
 * alone. Errors are the client's sentence, with the member in e->param: ERR_SYNTAX, ERR_INVALID;
 * ERR_MEMORY. Strings and arrays are borrowed from the arena and the body. */
#pragma once

#include "base/json.h"

/* Too deep or too many values: a bad body, ERR_SYNTAX, and not a long one. */
int body_object(struct json **out, struct str body, const struct json_limits *l, struct arena *a,
    struct err *e);

int body_text(const struct json *o, const char *key, struct str *out, struct err *e);
int body_flag(const struct json *o, const char *key, bool *out, struct err *e);
int body_array(const struct json *o, const char *key, const struct json **out, struct err *e);
