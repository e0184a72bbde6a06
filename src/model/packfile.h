/* packfile.h: file with the packed weights of a model, which the next start maps instead of
 * packing.
 *
 *     head, 4 KB | one CRC-32C per chunk of 1 MB, padded to 4 KB | the block of weights
 *
 * The key identifies the input of the packing: a digest of all bytes of all tensors (content.h),
 * and a digest of the identity of the source files (device, inode, size, mtime, ctime). If the
 * source files are unchanged, their content is; otherwise the content digest is computed and
 * compared. If a copied or restored model has the same content, its source digest is stored in the
 * packfile (packfile_update_source). A packfile with another key, or with one wrong bit, is not
 * used: the caller packs again and replaces it. The layout is the same for all kernel sets; its
 * version is in the head.
 *
 * The file is written under another name and renamed, so a process that has mapped the old file
 * keeps it. Only the source digest is overwritten in place: it is within one sector and has its own
 * CRC; a torn write makes it invalid. All numbers are little-endian.
 *
 * The mapping is in the page cache of the system and shared by all processes that serve the model.
 * If another process truncates the file in place, the missing weights are zero and
 * mapfile_is_lost returns true: the engine ends every request with an error.
 *
 * Owner: read-only after packfile_open; any thread. */
#pragma once

#include "model/content.h"
#include "os/mapfile.h"

/* Version of the output of pack.c for each type and of the order of the block (bind.c), the same
 * for all kernel sets. tests/unit/model/test_packfile.c contains the hash of the bytes for this
 * version; a change of the bytes requires a new version. */
enum { PACKFILE_LAYOUT = 1 };
#define PACKFILE_NEW ".new" /* suffix of the name while the file is written */

struct packfile_key {
    uint8_t content[CONTENT_BYTES];
    uint8_t source[32]; /* digest of the struct file_id of every file of the model */
    bool has_source;
};

struct packfile {
    struct mapfile map;
    const uint8_t *block; /* in the mapping, aligned to 4 KB */
    struct packfile_key key;
};

/* Sets out->source, not out->content. A file that was modified in the last two seconds has no
 * source digest: file system timestamps are coarse, so a second write could remain undetected. */
void packfile_source_of(struct packfile_key *out, const struct gguf *g);

/* Maps a file that contains a block of `bytes` bytes. On error *f is empty. ERR_NOT_FOUND, ERR_IO;
 * ERR_INVALID: not a regular file; ERR_UNSUPPORTED: another version; ERR_CORRUPT. */
int packfile_open(struct packfile *f, const char *path, size_t bytes, struct err *e);
void packfile_close(struct packfile *f); /* an empty one is allowed */

/* Whether the packfile was made from the source files of this key, unchanged since. */
bool packfile_source_matches(const struct packfile *f, const struct packfile_key *key);
/* Compares every chunk of the block with its CRC; the thread pool shares the work. ERR_CORRUPT. */
int packfile_check(
    const struct packfile *f, size_t bytes, struct thread_pool *thread_pool, struct err *e);
/* Stores the source digest of the key, if it has one, in the file. If that is not possible, the
 * file is unchanged. */
void packfile_update_source(
    const struct packfile *f, const char *path, const struct packfile_key *key);

/* Any thread; takes as long as the disk needs. If *stop becomes true, it ends early and removes the
 * temporary file. ERR_IO, ERR_CANCELLED. */
int packfile_write(const char *path, const struct packfile_key *key, const uint8_t *block,
    size_t bytes, const _Atomic bool *stop, struct err *e);
