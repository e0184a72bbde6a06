/* coerce.h: what the schemas of a request's tools say about arguments that arrive as plain text.
 *
 * Formats that write each argument between tags do not say whether 5 is a number or a string. The
 * tool's schema does; where it is silent (no such tool, no such argument, no type), text that is
 * JSON is taken for JSON and all other text for a string. Schemas come from clients: nothing in
 * them is trusted to have its right shape, nothing is followed but type, enum, const, anyOf and
 * oneOf, one level deep. Pure; any thread. */
#pragma once

#include "base/json.h"

enum {
    TYPE_NULL = 1 << 0,
    TYPE_BOOLEAN = 1 << 1,
    TYPE_NUMBER = 1 << 2, /* integer too */
    TYPE_STRING = 1 << 3,
    TYPE_ARRAY = 1 << 4,
    TYPE_OBJECT = 1 << 5
};

/* The arguments' schema of the tool: {"function":{"name","parameters"}}, or the same without
 * "function", or Anthropic's "input_schema". NULL: no such tool, or it has none. */
const struct json *tool_schema(const struct json *tools, struct str name);

/* TYPE_ bits that the schema allows for this argument; 0: it does not say. */
unsigned tool_argument_types(const struct json *schema, struct str argument);

/* The name of the i-th argument, .p NULL when there is none. */
struct str tool_argument_at(const struct json *schema, uint32_t i);

/* Appends the text as a JSON value of one of these types; as a string when it is none of them. */
void coerce_put(struct buf *out, struct str text, unsigned types);
