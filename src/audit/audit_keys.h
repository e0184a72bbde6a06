/* audit_keys.h: the key file of the audit log. It is read at start and extended when a key is
 * rotated; old keys remain, so that old lines can be verified.
 *
 *     # comment
 *     <id, 16 hex digits> <Unix time of creation> <secret, 64 hex digits>\n
 *
 * The last key is in use. The id is derived from the secret, so that a damaged line is detected.
 * The file must not be accessible to other users (mode 0600).
 *
 * Two keys are derived from a secret with HMAC-SHA-256: one for the chain of lines, one for the
 * texts of prompts and responses.
 *
 * Owner: the thread that opened it; a struct audit_key is constant and valid until
 * audit_keys_close, so any thread may read it. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum {
    AUDIT_HASH = 32,
    AUDIT_HEX = 2 * AUDIT_HASH,
    AUDIT_KEY_ID = 16,    /* hex digits */
    AUDIT_KEYS_MAX = 1000 /* keys in a file */
};

struct audit_key {
    char id[AUDIT_KEY_ID + 1];
    int64_t created_s;
    int index; /* position in the file; a later key has a higher one */
    unsigned char secret[AUDIT_HASH], chain[AUDIT_HASH], text[AUDIT_HASH];
};

struct audit_keys;

/* Opens the key file. `create` makes it, with one key, if it is absent. ERR_NOT_FOUND, ERR_IO,
 * ERR_INVALID (accessible to others, no regular file), ERR_CORRUPT, ERR_TOO_LARGE. The messages
 * name the file. */
int audit_keys_open(struct audit_keys **out, const char *path, bool create, struct err *e);
void audit_keys_close(struct audit_keys *k); /* accepts NULL; overwrites the secrets */

const struct audit_key *audit_keys_current(const struct audit_keys *k);
const struct audit_key *audit_keys_find(const struct audit_keys *k, struct str id); /* or NULL */

/* Adds a random key, which is then the current one and on the disk. ERR_IO, ERR_RANGE (too many
 * keys); the keys are then unchanged. */
int audit_keys_rotate(struct audit_keys *k, struct err *e);

/* HMAC-SHA-256 in hex, with a final NUL. */
void audit_hmac(const unsigned char key[AUDIT_HASH], struct str bytes, char hex[AUDIT_HEX + 1]);
void audit_to_hex(const unsigned char *bytes, size_t n, char *hex); /* 2n digits and a NUL */
bool audit_is_hex(const char *p, size_t n);                         /* n lower-case digits */
