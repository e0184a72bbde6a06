/* verify.h: proof that audit logs are complete and unchanged.
 *
 * The files of one log are given from the oldest to the newest. Each line must have the right MAC
 * and follow the line before, also from file to file. The end of the last file must be known: from
 * PATH.checkpoint, or from its event `end`. A log that continues after a missing file is not
 * intact, unless that file is given, too.
 *
 * Owner: one thread at a time; the calls block. A running server may write to the last file. */
#pragma once

#include "audit/audit_line.h"

struct audit_verifier {
    const struct audit_keys *keys; /* borrowed */
    struct audit_chain chain;
    bool has_file;
    uint64_t first;   /* number of the first line of the first file */
    uint64_t n_lines; /* lines of all files */
    /* A known line, for example from a checkpoint that was sent to syslog: the log must contain a
     * line with this MAC at the end of its first `lines` lines. */
    struct {
        uint64_t n_lines; /* 0: none */
        const char *mac;
        bool is_found;
    } anchor;
};

/* Verifies one file. ERR_IO, ERR_CORRUPT with the number of the line and the reason. The messages
 * name the file. */
int audit_verify_file(struct audit_verifier *v, const char *path, bool is_last, struct err *e);
