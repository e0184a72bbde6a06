/* body.h: parses a request body as a JSON object and reads its plain members.
 *
 * For every body without a table of fields (fields.h). A member that is absent or null leaves *out
 * unchanged. Errors have a message for the client, with the member in e->param: ERR_SYNTAX,
 * ERR_INVALID; ERR_MEMORY. Strings and arrays are borrowed from the arena and the body. Any
 * thread. */
#pragma once

#include "base/json.h"

/* A body that is too deep or has too many values is ERR_SYNTAX, not ERR_TOO_LARGE. */
int body_object(struct json **out, struct str body, const struct json_limits *l, struct arena *a,
    struct err *e);

int body_text(const struct json *o, const char *key, struct str *out, struct err *e);
int body_flag(const struct json *o, const char *key, bool *out, struct err *e);
int body_array(const struct json *o, const char *key, const struct json **out, struct err *e);
