/* digest.h: what tells the files of a model from all others: SHA-256 of every byte of its file; of
 * a model in parts, that of their digests, one behind the other.
 *
 * Reading gigabytes takes seconds, so what was found is noted in a directory of the operator, in a
 * file `.digests`, a line for each file of a model:
 *
 *     DEVICE INODE BYTES MTIME_NS CTIME_NS DIGEST
 *
 * A note counts as long as none of these has changed; who changes a file changes its ctime. Notes
 * that can not be read or written are none. The directory is made if it is not there.
 *
 * Any thread. */
#pragma once

#include "base/err.h"

/* first: the path of the first part; dir: where the notes are, NULL or "": there are none. ERR_IO:
 * a file can not be read, or was written to meanwhile. */
int digest_of_model(
    uint8_t out[32], const char *first, size_t n_parts, const char *dir, struct err *e) MUST_CHECK;
