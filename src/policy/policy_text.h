/* policy_text.h: the policy as INI text, the content of the encrypted file:
 *
 *     [policy]
 *     version = 12
 *
 *     [api_key 0123456789abcdef...]        SHA-256 digest, 64 hexadecimal digits
 *     name = reports                       attributes of policy_key.h; absent: the default
 *     scopes = generate<TAB>read
 *
 *     [limits tenant acme]                 subject (limit_set.h)
 *     version = 11
 *     values = tokens_per_minute=1000      limits, separated by tab characters
 *
 *     [object role staff]                  kind and name (object_set.h)
 *     version = 12
 *     body = {"scopes":["read"]}           JSON in one line
 *
 * A line that begins with ; or # is a comment. Errors name the line. Any thread. */
#pragma once

#include "policy/backend.h"

/* Appends the version, the limits, the objects, and the keys that are not static. */
void policy_text_write(const struct policy_snapshot *s, struct buf *out);
/* Adds the keys, limits and objects to the empty list. ERR_SYNTAX, ERR_INVALID, ERR_RANGE,
 * ERR_CORRUPT, ERR_MEMORY; then the list is empty. */
int policy_text_read(struct str text, struct policy_list *out, struct err *e) MUST_CHECK;
