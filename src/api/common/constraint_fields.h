/* constraint_fields.h: request fields that constrain the output -> request->constraint, for all
 * dialects.
 *
 * A request has at most one constraint; a second one is ERR_INVALID with both fields. The text is
 * not compiled here, but it is copied from the body as it is, so that errors of the compilation
 * name the field and a place in it (generate/output_constraint.h).
 *
 * Sources of the formats: vLLM's StructuredOutputsParams and guided decoding parameters, SGLang's
 * sampling parameters, llama-server's README, Ollama's API documentation. Any thread. */
#pragma once

#include "api/common/path.h"

/* Top-level fields of vLLM and SGLang: ebnf, guided_choice, guided_grammar, guided_json,
 * guided_regex, guided_whitespace_pattern, regex; and grammar, json_schema of llama-server. */
int constraint_field(struct fields *f, const char *name, const struct json *v);
/* grammar and json_schema in a dialect in which objects without additionalProperties are closed. */
int constraint_field_closed(struct fields *f, const char *name, const struct json *v);
/* vLLM: {"json" | "regex" | "choice" | "grammar" | "json_object" | "structural_tag": .., flags}. */
int constraint_field_structured_outputs(struct fields *f, const char *name, const struct json *v);
/* Ollama: "json" or a schema, whose objects are closed. */
int constraint_field_format(struct fields *f, const char *name, const struct json *v);
/* {"any_order": bool, "whitespace": "default|compact|any", "close_at_limit": bool}. */
int constraint_field_options(struct fields *f, const char *name, const struct json *v);

/* ---- parts, for a dialect with its own field */

/* Sets the constraint; `text` is borrowed from the body. */
int constraint_set(
    struct fields *f, const struct path *at, enum constraint_kind kind, struct str text);
/* `v`: a schema as an object, a Boolean, or a string that contains one. */
int constraint_set_schema(struct fields *f, const struct path *at, const struct json *v);
/* Reads a required member: a string, or for CHOICE and STRUCTURAL_TAG JSON. A grammar that contains
 * no "::=" is Lark, as in vLLM. */
int constraint_set_value(
    struct fields *f, const struct path *at, enum constraint_kind kind, const struct json *v);
