/* grammar_check.h: POST /v1/grammar/check: tests whether a constraint accepts a text.
 *
 *     {"schema": {..},          or "gbnf", "lark", "regex": text, "choice": [..],
 *                               "structural_tag": {..}
 *      "text": "..",            or with a schema "instance": a JSON value
 *      "model": "..", "closed_objects": bool, "any_order": bool,
 *      "whitespace": "default" | "compact" | "any"}
 *
 *     {"accepted": false, "at": 7, "reason": "..", "compile_us": 130, "mask_us_max": 12}
 *
 * `at` is the offset of the byte that is rejected, or the length of a text that is incomplete; null
 * if the text is accepted. An instance is written compactly, with integral numbers as integers, and
 * is accepted if it is with properties in any order.
 *
 * Pure; any thread. */
#pragma once

#include "base/json.h"
#include "constrain/constraint.h"

enum { GRAMMAR_CHECK_DEPTH_MAX = 128 };

struct grammar_check {
    struct str model;  /* .p NULL when absent */
    const char *field; /* the member that contains the constraint */
    struct constraint_source source;
    struct str text; /* also of the instance; in the arena or the body */
};

struct grammar_check_result {
    bool is_accepted;
    size_t at; /* unless is_accepted */
    uint64_t compile_ns, mask_ns_max;
};

/* ERR_SYNTAX, ERR_MISSING, ERR_INVALID with the field; ERR_MEMORY. */
int grammar_check_read(struct grammar_check *out, struct str body, struct arena *a, struct err *e);
void grammar_check_put_response(
    struct buf *out, const struct grammar_check *request, const struct grammar_check_result *r);
