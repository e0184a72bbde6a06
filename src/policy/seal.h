/* seal.h: encryption of a text with a passphrase: AES-256-GCM with a key from scrypt (RFC 7914).
 *
 *     offset  bytes  content
 *          0      8  "IFLUXPOL"
 *          8      4  version of the format: 1
 *         12      4  scrypt: log2(N), r, p, 0
 *         16     16  salt, random for each file
 *         32     12  nonce, random for each write
 *         44      4  0
 *         48      8  bytes of the text
 *         56      n  encrypted text
 *     56 + n     16  authentication tag of the header and the text
 *
 * Numbers are little-endian. Every byte is authenticated, so a change of any is detected.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum {
    SEAL_HEAD_BYTES = 56,
    SEAL_TAG_BYTES = 16,
    SEAL_SALT_BYTES = 16,
    SEAL_LOG2_N = 15, /* cost of new keys; with r = 8: 32 MB */
    SEAL_LOG2_N_MIN = 10,
    SEAL_LOG2_N_MAX = 17
};

struct seal_key {
    uint8_t key[32], salt[SEAL_SALT_BYTES];
    uint8_t log2_n, r, p;
};

/* A key with a new salt. ERR_MEMORY. */
int seal_key_new(struct seal_key *k, struct str passphrase, int log2_n, struct err *e) MUST_CHECK;
void seal_key_clear(struct seal_key *k);

/* Appends the sealed text. ERR_MEMORY, ERR_TOO_LARGE. */
int seal_write(
    const struct seal_key *k, struct str text, struct buf *out, struct err *e) MUST_CHECK;
/* Decrypts `sealed` to `text` and sets *k to its key. ERR_INVALID: another file format;
 * ERR_UNSUPPORTED: a later version; ERR_CORRUPT: a wrong passphrase or a changed byte; ERR_MEMORY;
 * ERR_TOO_LARGE. On failure `text` and *k are cleared. */
int seal_read(struct seal_key *k, struct str passphrase, struct str sealed, struct buf *text,
    struct err *e) MUST_CHECK;
