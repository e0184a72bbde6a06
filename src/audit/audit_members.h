/* audit_members.h: members of the JSON lines of the audit log, without those of the chain
 * (audit_line.h). Any thread; pure functions. */
#pragma once

#include "audit/audit.h"
#include "audit/audit_keys.h"
#include "base/json.h"

/* Longest JSON text of a prompt, of the responses of a request, and of a value before or after a
 * change. A longer text of a prompt or response is cut; a longer value is replaced by
 * {"bytes":N}. */
enum { AUDIT_TEXT_JSON_BYTES = 24 * 1024 };

/* Begins the object with `time`. */
void audit_members_begin(struct jw *w, struct buf *b);
/* with_text: adds the texts of prompt and response. */
void audit_members_entry(
    struct jw *w, const struct audit_entry *en, const struct audit_key *key, bool with_text);
void audit_members_refusal(struct jw *w, const struct audit_refusal *r);
void audit_members_change(struct jw *w, const struct audit_change *c);
