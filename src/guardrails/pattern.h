/* pattern.h: one PCRE2 pattern of a set, compiled. guardrails.h declares the search.
 *
 * Immutable; any thread. */
#pragma once

#include "guardrails/guardrails.h"

struct guard_pattern;

/* ERR_INVALID names patterns[index] and the place in the pattern; ERR_MEMORY. */
int guard_pattern_new(
    struct guard_pattern **out, struct str text, int index, struct err *e) MUST_CHECK;
void guard_pattern_free(struct guard_pattern *p); /* accepts NULL */
