/* audit.h: what was asked of this server, a JSON line per finished request, appended to a file.
 *
 * Prompts and answers are never written: a prompt is a SHA-256 keyed with a secret that lives as
 * long as the process, so that equal prompts of one run can be matched and none can be guessed.
 * Each line carries the hash of the line before it; a line that was removed or changed shows.
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
    struct str prompt; /* hashed, not written */
    int status;
    const char *finish; /* why it ended; "" when there was no answer */
    int n_prompt, n_completion, n_cached;
    uint64_t total_ns;
};

/* Continues the chain of an existing file. ERR_IO names the file. */
int audit_open(struct audit **out, const char *path, struct err *e);
void audit_close(struct audit *a); /* syncs; NULL is fine */
void audit_write(struct audit *a, const struct audit_entry *entry);

/* Checks a whole file: 0, or -1 with the number of the first line that does not fit. */
int audit_verify(const char *path, struct err *e);
