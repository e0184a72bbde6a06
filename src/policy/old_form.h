/* old_form.h: reads the policy file of earlier InferFlux versions, so that it is rewritten in the
 * present form (seal.h). Its key is the SHA-256 of the passphrase, without salt.
 *
 *     ENC\n
 *     nonce=<24 hex digits>\n        AES-256-GCM
 *     tag=<32 hex digits>\n
 *     data=<hex digits>\n            INI text:
 *
 *     [api_keys]
 *     <SHA-256 of the key, 64 hex digits>=<scopes, separated by commas; none: generate, read>
 *     [guardrail]
 *     words=<separated by commas>
 *     [rate_limit]
 *     tokens=<requests per minute of each key; 0 = no limit>
 *
 * Format: policy/policy_store.cpp of InferFlux. The same text without encryption is not accepted:
 * its origin cannot be checked. Any thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

bool old_form_is(struct str file);
/* Appends the keys in the present form (policy_text.h). *n_words: words of the guardrail, which
 * that form does not contain. ERR_CORRUPT: a wrong passphrase or a changed byte; ERR_SYNTAX;
 * ERR_INVALID; ERR_TOO_LARGE; ERR_MEMORY. */
int old_form_read(struct str passphrase, struct str file, int64_t now_s, struct buf *out,
    int *n_words, struct err *e) MUST_CHECK;
