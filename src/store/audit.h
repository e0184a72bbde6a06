/* audit.h: audit log: one JSON line per finished request, appended to a file.
 *
 * Prompts and responses are never written. A prompt is logged as an HMAC-SHA-256 with a random
 * secret of this process, so that equal prompts of one run can be matched and none can be recovered
 * by trial. Each line contains the hash of the line before it, so a removed or changed line is
 * detected.
 *
 * Any thread; a mutex guards the chain and keeps lines whole. */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct audit;

struct audit_entry {
    const char *request_id;
    const char *key_id; /* "" = anonymous */
    const char *route;
    struct str model;
    struct str prompt; /* only its HMAC is written */
    int status;
    const char *finish; /* finish reason; "" if there was no response */
    int n_prompt, n_completion, n_cached;
    uint64_t total_ns;
};

/* Continues the chain of an existing file. ERR_IO names the file. */
int audit_open(struct audit **out, const char *path, struct err *e);
void audit_close(struct audit *a); /* calls fdatasync; accepts NULL */
void audit_write(struct audit *a, const struct audit_entry *entry);

/* Checks a whole file. Returns 0, or -1 with the number of the first line that breaks the chain. */
int audit_verify(const char *path, struct err *e);
