/* coerce.h: converts tool arguments that arrive as plain text to JSON, using the tools' JSON
 * schemas.
 *
 * A format with each argument between tags does not specify whether 5 is a number or a string. The
 * type comes from the schema of the tool. Without a type in the schema (no such tool, argument or
 * type), text that parses as JSON is JSON, and other text is a string. Schemas are client input:
 * no shape is assumed, and the search for types ends after a fixed number of steps. Pure
 * functions; any thread. */
#pragma once

#include "base/json.h"

enum {
    TYPE_NULL = 1 << 0,
    TYPE_BOOLEAN = 1 << 1,
    TYPE_NUMBER = 1 << 2, /* includes integer */
    TYPE_STRING = 1 << 3,
    TYPE_ARRAY = 1 << 4,
    TYPE_OBJECT = 1 << 5
};

/* Schema of the arguments of a tool: {"function":{"name","parameters"}}, or the same without
 * "function", or Anthropic's "input_schema". NULL: no such tool, or no schema. */
const struct json *tool_schema(const struct json *tools, struct str name);

bool tool_is_known(const struct json *tools, struct str name);

/* True if the schema has the argument, or does not list its arguments. */
bool tool_has_argument(const struct json *schema, struct str argument);

/* TYPE_ bits which the schema allows for the argument: type, const, enum, anyOf, oneOf, allOf and
 * $ref inside the schema; 0: not specified. */
unsigned tool_argument_types(const struct json *schema, struct str argument);

/* Name of the i-th argument; .p is NULL if there is none. */
struct str tool_argument_name(const struct json *schema, uint32_t i);

/* The same for any schema inside `root`. */
unsigned schema_types(const struct json *root, const struct json *schema);

/* Schema of a member of an object, or of the items of an array, in the schema itself or in the
 * first alternative that has it; NULL: not specified. */
const struct json *schema_child(
    const struct json *root, const struct json *schema, struct str name, bool is_item);

/* Appends the text as a JSON value of one of the types, or as a string if it has none of them. */
void coerce_put(struct buf *out, struct str text, unsigned types);
