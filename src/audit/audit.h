/* audit.h: audit log: one JSON line per generation request, per refused request of any API route
 * (refused logins among them), and per change by an administrator, appended to a file
 * (audit_file.h).
 *
 * Prompts and responses are logged as HMAC-SHA-256 with a key of the key file (audit_keys.h), whose
 * id is in the line, so that equal texts can be matched and none can be recovered by trial without
 * the key. Their text is written in debug mode only. The lines are a chain with a keyed MAC
 * (audit_line.h), so a removed or changed line is detected (verify.h).
 *
 * Lines are queued; one thread owns the file, writes them in groups, and calls fdatasync and writes
 * a checkpoint at most a second after a write. It also rotates the file and the key, removes old
 * files, and sends checkpoints to syslog. No other thread waits for the disk:
 *
 *     failed write     undone, logged, counted; repeated every second, so that a full disk or a
 *                      failing one loses no line as long as the queue has room
 *     full queue       audit.when_full: with "refuse", requests are refused before they start; with
 *                      "block", they wait before they start. So each one that was accepted has room
 *                      for its line. With "drop", and for lines of refused requests, the line is
 *                      lost: logged, counted, and the next line that has room is preceded by a line
 *                      that states the number of lost lines
 *     refused request  uses at most half of the queue, so that a flood of refused requests does not
 *                      displace the lines of accepted ones
 *
 * Any thread, except where noted; a mutex guards the queue and is not held during a call that
 * waits. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { AUDIT_QUEUE_BYTES = 4 * 1024 * 1024 }; /* about 8,000 lines */

struct audit;

struct audit_entry {
    const char *request_id;
    const char *key_id; /* "" = anonymous */
    const char *route;
    struct str model;
    struct str prompt; /* token ids; only their HMAC is written */
    int status;
    const char *finish; /* finish reason; "" if there was no response */
    int n_prompt, n_completion, n_cached;
    uint64_t total_ns;
    bool is_reserved;        /* audit_reserve has returned true for it */
    const char *tenant;      /* NULL or "" = the key is its own */
    struct str response;     /* SHA-256 of the token ids of each choice; only its HMAC is written */
    struct str decision_ids; /* ids of decisions of policy backends, separated by commas */
    struct str guardrails;   /* hits, separated by commas; no text of the client */
    uint64_t first_token_ns; /* time to first token; 0 = none */
    /* for debug mode: texts of the prompt and of the choices; is_text_cut: they are incomplete */
    struct str prompt_text;
    const struct str *response_texts;
    int n_responses;
    bool is_text_cut;
};

struct audit_refusal { /* a request that was answered with an error status */
    const char *request_id;
    const char *key_id;      /* "" = anonymous or unknown */
    struct str peer;         /* address of the client */
    struct str method, path; /* an unknown route: as received, cut to 256 bytes */
    int status;
    const char *reason; /* name of the error code; no text of the client */
    const char *tenant; /* NULL or "": as above */
    struct str decision_ids, guardrails;
};

struct audit_change { /* a change by an administrator; it contains no secret */
    const char *request_id, *key_id, *tenant;
    const char *action; /* object and verb, such as "api_key.created" */
    struct str route;   /* path of the object */
    int status;
    struct str before, after; /* JSON values; "" = null */
    bool is_reserved;         /* audit_reserve has returned true for it */
};

struct audit_stats {
    uint64_t n_lines;    /* lines written to the file */
    uint64_t n_lost;     /* lines lost because the queue was full */
    uint64_t end;        /* number of the line after the last one of the file */
    uint64_t n_failures; /* failed writes, synchronisations, rotations and others */
};

enum audit_when_full { AUDIT_DROP, AUDIT_REFUSE, AUDIT_BLOCK };

struct audit_options {
    const char *path;
    const char *keys_path; /* key file; NULL or "": PATH.keys */
    /* socket that receives checkpoints, at most one a minute (syslog_anchor.h); NULL or "": none */
    const char *syslog_path;
    uint64_t rotate_bytes; /* the file is rotated when it has this size; 0 = never */
    int64_t rotate_s;      /* the file is rotated after this time; 0 = never */
    int64_t retain_s;      /* rotated and damaged files are removed after this time; 0 = never */
    int64_t key_s;         /* a new key is made after this time; 0 = never */
    /* REFUSE and BLOCK: audit_reserve fails if the queue has no room; BLOCK: its callers wait
     * (audit_watch) */
    enum audit_when_full when_full;
    bool debug_mode; /* the lines contain the texts of prompts and responses */
};

/* Continues the chain of an existing file. A torn end of it is recorded in a new line. Main thread.
 * The errors are those of audit_keys_open and audit_file_open. ERR_NOT_FOUND: there is a log and no
 * key file; nothing is created. */
int audit_open(struct audit **out, const struct audit_options *o, struct err *e);
/* Writes the queued lines, for at most timeout_ms, and calls fdatasync. Main thread; no other
 * thread uses it any more. Accepts NULL. */
void audit_close(struct audit *a, uint32_t timeout_ms);

/* Reserves room in the queue for the line of a request, before the request is accepted. The line,
 * or audit_unreserve, releases it. False: the queue is full. Always true with AUDIT_DROP. */
bool audit_reserve(struct audit *a) MUST_CHECK;
void audit_unreserve(struct audit *a);
enum audit_when_full audit_when_full(const struct audit *a);

/* `fn` is called when the queue has room again after audit_reserve has failed, once per failure or
 * for several together. It is called by any thread, with the mutex of the queue: it may only post a
 * message. NULL: no call is running or follows when the function has returned. */
void audit_watch(struct audit *a, void (*fn)(void *ctx), void *ctx);

/* A line whose room was reserved is never lost, unless memory is short. */
void audit_write(struct audit *a, const struct audit_entry *entry);
void audit_refuse(struct audit *a, const struct audit_refusal *refusal);
void audit_record_change(struct audit *a, const struct audit_change *change);
bool audit_wants_text(const struct audit *a); /* debug mode */

/* Opens the path again before the next line, if the file was renamed or removed. The new file
 * continues the chain. If that fails, the old file remains in use, and the failure is logged and
 * counted. */
void audit_reopen(struct audit *a);

void audit_stats(struct audit *a, struct audit_stats *out);
