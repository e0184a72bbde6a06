/* audit_line.h: one line of the audit log, and the keyed chain of lines.
 *
 *     {"prev":"<MAC of the line before>","seq":<number>,MEMBERS,"kid":"<key id>","mac":"<MAC>"}\n
 *
 * The MAC is HMAC-SHA-256 with the chain key `kid` over the bytes before `,"mac"`, 64 hex digits.
 * `seq` counts from 0 and continues over rotated files; `prev` of line 0 is zeros. Each change,
 * removal, insertion or exchange of lines breaks the chain, except a removal at its end, which the
 * checkpoint shows (checkpoint.h).
 *
 * Any thread; pure functions. */
#pragma once

#include "audit/audit_keys.h"
#include "base/buf.h"

enum {
    AUDIT_LINE_BYTES = 64 * 1024, /* longest line with its newline */
    AUDIT_MEMBERS_BYTES = AUDIT_LINE_BYTES - 256
};

/* Lines about the log itself, after `"time":N`. */
#define AUDIT_EVENT_BEGIN "\"event\":\"begin\"" /* first line of every file */
#define AUDIT_EVENT_END   "\"event\":\"end\""   /* last line of a file that another one follows */
/* The file before was removed, cut or damaged while no server ran. */
#define AUDIT_MISSING "\"reason\":\"missing\""

struct audit_chain {         /* a position in the chain: the end of a line */
    uint64_t n_lines;        /* number of the next line */
    char mac[AUDIT_HEX + 1]; /* MAC of the last line; zeros: none */
    int key_index;           /* key of the last line: later lines never use an older key */
};

struct audit_line { /* a line of the right form; the strings point into it */
    uint64_t seq;
    struct str prev, members, key_id, mac;
    struct str sealed; /* the bytes that the MAC covers */
};

void audit_chain_init(struct audit_chain *c);

/* Appends the line with its newline to `out` and advances the chain. `members` has at most
 * AUDIT_MEMBERS_BYTES. If memory is short, `out` is failed and the chain is unchanged. */
void audit_chain_add(
    struct audit_chain *c, struct buf *out, const struct audit_key *key, struct str members);

/* Reads the form of a line without its newline; the MAC is not compared. */
bool audit_line_read(struct audit_line *l, struct str text);
/* Whether the line is an event of this name (AUDIT_EVENT_). */
bool audit_line_is_event(const struct audit_line *l, const char *event);

/* Checks that the line follows the chain and has the right MAC, then advances the chain.
 * ERR_CORRUPT; the message states the number of the line. */
int audit_chain_check(struct audit_chain *c, const struct audit_line *l,
    const struct audit_keys *keys, struct err *e);
