/* record.h: keys and values of a stretch of tokens as bytes, for files and other processes.
 *
 *     head, 128 bytes | tokens [n_tokens] | a sum per page | zeros to 64 | pages [n_pages]
 *
 * A record says for which tokens, from the very first on, its pages were computed; the pages are
 * those from first_page to the last token. A whole sequence has first_page 0; a page of it alone
 * has n_pages 1. Little-endian; the head's last field is a CRC-32C of everything before the pages
 * but itself, which holds the pages' own sums: what passes is what was written.
 *
 * Refused, not converted: another version, model, number format, page size. What reads it trusts
 * nothing of it: all counts are held against the bytes there are before anything is looked at.
 *
 * Pure; any thread. */
#pragma once

#include "cache/tree.h"

struct record_kind { /* of one model and how its pages are laid out; must be equal on both sides */
    uint8_t model[32];   /* digest of its file */
    uint32_t kv_kind;    /* lm.h */
    uint64_t page_bytes; /* > 0 */
};

struct record {
    struct cache_scope scope;
    const int32_t *tokens; /* [n_tokens] from position 0 on */
    int n_tokens, first_page, n_pages;
    uint8_t *pages; /* [n_pages][page_bytes] */
};

enum { RECORD_HEAD = 128, RECORD_ALIGN = 64, RECORD_TOKENS_MAX = 1 << 24 };

/* Bytes of a record of the pages from first_page to those of the last token. */
size_t record_bytes(const struct record_kind *k, int n_tokens, int first_page);
/* Writes all but the pages into `out`, aligned to RECORD_ALIGN; the caller fills r->pages, which
 * points into it then, and seals it. */
void record_begin(uint8_t *out, const struct record_kind *k, struct record *r);
void record_seal(uint8_t *bytes);

/* Borrows the bytes, aligned to RECORD_ALIGN; n may be more than the record. On success all pages
 * are good, too. ERR_CORRUPT; ERR_UNSUPPORTED for one that is sound, and not of this kind. */
int record_read(struct record *out, const struct record_kind *k, uint8_t *bytes, size_t n,
    struct err *e) MUST_CHECK;
/* Bytes before the pages of what begins with these RECORD_HEAD bytes; 0: it is no record. */
size_t record_front(const uint8_t *head);
/* The first step of it: all but the pages' sums are held true; *n_bytes is the whole length, and
 * is there. */
int record_read_head(struct record *out, const struct record_kind *k, uint8_t *bytes, size_t n,
    size_t *n_bytes, struct err *e) MUST_CHECK;
