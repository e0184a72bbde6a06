/* record.h: byte format of exported KV pages, for files and other processes.
 *
 *     header, 128 bytes | tokens [n_tokens] | part table [n_parts] | checksum per page |
 *     zeros to 64 | pages [n_pages] | zeros to 64 | part | zeros to 64 | part ...
 *
 * A record contains all tokens from position 0 and the pages from first_page to that of the last
 * token. A whole sequence has first_page 0; a single page has n_pages 1. A part is further content
 * that belongs to the last token; the table has its kind, size and checksum. The kinds are a state
 * slot, which can resume after the last token, and then the last window pages. Little-endian. The
 * last header field is a CRC-32C of all bytes before the pages except itself; these bytes include
 * all other checksums.
 *
 * Another version, model, number format or page size, and a part of another kind or size, is
 * rejected, not converted. The bytes are untrusted: all counts are compared with the available
 * bytes first.
 *
 * Pure; any thread. */
#pragma once

#include "cache/tree.h"

struct record_kind {       /* model and page layout; must be equal at export and import */
    uint8_t model[32];     /* digest of the model file */
    uint32_t kv_kind;      /* number format, model/lm.h */
    uint64_t page_bytes;   /* 0: all layers are windowed */
    uint64_t state_bytes;  /* size of a slot of recurrent state; 0: none */
    uint64_t window_bytes; /* size of a page of the windowed layers; 0: none */
};

struct record {
    struct cache_scope scope;
    const int32_t *tokens; /* [n_tokens] from position 0 on */
    int n_tokens, first_page, n_pages;
    bool has_state;
    int n_windows;    /* window pages, of the last tokens */
    uint8_t *pages;   /* [n_pages][page_bytes] */
    uint8_t *state;   /* [state_bytes], aligned to RECORD_ALIGN; NULL without has_state */
    uint8_t *windows; /* [n_windows][window_bytes], aligned likewise; NULL without n_windows */
};

enum { RECORD_HEAD = 128, RECORD_ALIGN = 64, RECORD_TOKENS_MAX = 1 << 24 };

/* Size of a record with these n_tokens, first_page, has_state and n_windows; other fields are not
 * read. */
size_t record_bytes(const struct record_kind *k, const struct record *r);
/* Most bytes before the pages of a record with at most n_tokens. */
size_t record_meta_max(int n_tokens);
/* Writes everything except the pages and parts to `out`, which is aligned to RECORD_ALIGN. Reads
 * scope, tokens, n_tokens, first_page, has_state and n_windows of *r and sets the rest. The caller
 * then fills r->pages, r->state and r->windows, which point into `out`, and calls record_seal. */
void record_begin(uint8_t *out, const struct record_kind *k, struct record *r);
void record_seal(uint8_t *bytes);

/* Borrows the bytes, aligned to RECORD_ALIGN; n may exceed the record. Verifies all checksums.
 * ERR_CORRUPT; ERR_UNSUPPORTED for a valid record of another kind. */
int record_read(struct record *out, const struct record_kind *k, uint8_t *bytes, size_t n,
    struct err *e) MUST_CHECK;
/* Bytes before the pages, from the first RECORD_HEAD bytes; 0 = not a record. */
size_t record_meta_bytes(const uint8_t *head);
/* First step of record_read: verifies everything except the checksums of pages and parts. *n_bytes
 * is the size of the record, which is within n. */
int record_read_head(struct record *out, const struct record_kind *k, uint8_t *bytes, size_t n,
    size_t *n_bytes, struct err *e) MUST_CHECK;
