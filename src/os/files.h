/* files.h: complete reads and writes of files, and atomic replacement of a file.
 *
 * A name is a plain name in an open directory; symbolic links are not followed. The calls block.
 *
 * Owner: any thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum { FILE_ALIGN = 4096 }; /* alignment for O_DIRECT */

/* Reads all n bytes; -1 with errno on failure, EIO at the end of the file. */
int file_read(int fd, void *out, size_t n, uint64_t offset);
/* The same, but the bytes after the first `least` may be past the end of the file. */
int file_read_least(int fd, void *out, size_t n, size_t least, uint64_t offset);
/* Size of the next read or write call for n bytes; fault injection makes it smaller than n. */
size_t file_call_size(size_t n);
int file_write(int fd, const void *p, size_t n, uint64_t offset);

/* Opens a file that the operator named, with O_CLOEXEC and without waiting for the other end of a
 * FIFO. `flags` are those of open(2); a created file has mode 0600. ERR_NOT_FOUND; ERR_INVALID: a
 * directory, FIFO, socket or device; ERR_IO. */
int file_open_regular(const char *path, int flags, int *fd, struct err *e);
/* Checks that files can be read and created in the directory; `create` makes it if it is absent.
 * ERR_IO. */
int dir_check(const char *path, bool create, struct err *e);

/* Whether a client may choose this file name: UTF-8 of 1 to 200 bytes without control and
 * invisible characters (including those that change the direction of text) and none of
 * / \ : * ? " < > |; no dot or space at the start or the end, and no - or ~ at the start, which a
 * shell command would take for an option or a home directory. */
bool file_name_is_plain(struct str name);

/* Opens a regular file for reading; *n_bytes is its size. ERR_NOT_FOUND, ERR_IO. */
int file_open_at(int dir, const char *name, int *fd, uint64_t *n_bytes, struct err *e);
/* Reads a file of up to out->max bytes; larger: ERR_TOO_LARGE. */
int file_read_at(int dir, const char *name, struct buf *out, struct err *e);
/* Replaces the content of the file. 0: the new content is on the disk; else the file is unchanged.
 * ERR_IO. */
int file_replace_at(int dir, const char *name, const void *p, size_t n, struct err *e);
/* Removes the temporary files of file_replace_at whose process has ended. Returns their number. */
int file_remove_stale_at(int dir);
