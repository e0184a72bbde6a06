/* login_store.h: the logins of browsers (logins.h) in an SQLite database: one row per login, with
 * the claims of a user. A write is on the disk when its function returns 0.
 *
 * Owner: the main thread, then the logins thread. The calls block. */
#pragma once

#include "policy/token_keys.h"

struct login_store;

struct login_row {
    uint8_t digest[POLICY_DIGEST_BYTES];     /* of the cookie */
    uint8_t key_digest[POLICY_DIGEST_BYTES]; /* of the API key, or of the user's key */
    char id[2 * KEY_ID_BYTES + 1];           /* of this key */
    const struct policy_key *key;            /* of a user, with the claims; NULL: of an API key */
    int64_t created_s, used_s, expires_s;
    int64_t stored_expires_s; /* at most expires_s: the end after a restart */
};

/* path: "" = in memory. ERR_IO, ERR_CORRUPT, ERR_INVALID, ERR_MEMORY. */
int login_store_open(struct login_store **out, const char *path, struct err *e) MUST_CHECK;
void login_store_close(struct login_store *s); /* accepts NULL */
/* Adds the row, or replaces the one with its digest. */
int login_store_put(struct login_store *s, const struct login_row *row, struct err *e) MUST_CHECK;
int login_store_delete(
    struct login_store *s, const uint8_t digest[POLICY_DIGEST_BYTES], struct err *e) MUST_CHECK;
/* Calls `add` for each row, the oldest first, and removes those that have expired, and those of the
 * users of another issuer than that of the rules (NULL: all users). `add` borrows the row. */
int login_store_load(struct login_store *s, const struct token_rules *rules, int64_t now_s,
    int (*add)(void *ctx, const struct login_row *row, struct err *e), void *ctx,
    struct err *e) MUST_CHECK;
