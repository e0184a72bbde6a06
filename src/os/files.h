/* files.h: whole reads and writes, and files that are replaced at once or not at all.
 *
 * Names are plain names in a directory that is open already; links are not followed. Any thread;
 * these calls block. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum { FILE_ALIGN = 4096 }; /* of what goes past the system's own memory (O_DIRECT) */

/* All n bytes, or -1 with errno; 0 of what lies behind the end is EIO. */
int file_read(int fd, void *out, size_t n, uint64_t offset);
/* The same, and what lies beyond `least` may be behind the end of the file. */
int file_read_least(int fd, void *out, size_t n, size_t least, uint64_t offset);
/* So much of n bytes is asked for, when the tests want it to come in parts. */
size_t file_part(size_t n);
int file_write(int fd, const void *p, size_t n, uint64_t offset);

/* A name that a client may choose for a file: UTF-8 of 1 to 200 bytes without control characters
 * and none of / \ : * ? " < > |; no dot or blank in front, none at the end. */
bool file_name_is_plain(struct str name);

/* Opens a regular file for reading; *n_bytes is its size. ERR_NOT_FOUND, ERR_IO. */
int file_open_at(int dir, const char *name, int *fd, uint64_t *n_bytes, struct err *e);
/* Up to out->max bytes; more: ERR_TOO_LARGE. */
int file_read_at(int dir, const char *name, struct buf *out, struct err *e);
/* The file has these bytes, on the disk, when this returns 0; else it is what it was. ERR_IO. */
int file_replace_at(int dir, const char *name, const void *p, size_t n, struct err *e);
