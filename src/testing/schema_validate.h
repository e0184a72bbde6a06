/* schema_validate.h: a plain validator of JSON values over the graph of a schema (schema.h).
 *
 * The definition that the reader of schemas and the machine for constrained decoding are compared
 * with: one recursive function per value, exact decimals, and a set of evaluated members and items
 * for the keywords unevaluatedProperties and unevaluatedItems. It is not bounded in time.
 *
 * Owner: one thread at a time. */
#pragma once

#include "constrain/schema/schema.h"

struct schema_validator;

/* `s` outlives the validator. -1: a pattern does not compile, no memory */
int schema_validator_new(
    struct schema_validator **out, const struct schema *s, struct err *e) MUST_CHECK;
void schema_validator_free(struct schema_validator *v); /* accepts NULL */

/* 1: the value satisfies the root; 0: it does not; -1: a number out of range, no memory */
int schema_validate(struct schema_validator *v, const struct json *value, struct err *e) MUST_CHECK;

/* Equality of JSON values with exact numbers; the order of members is ignored. */
bool schema_values_equal(const struct json *a, const struct json *b);
