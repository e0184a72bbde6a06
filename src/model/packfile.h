/* packfile.h: a model's packed weights as a file, so that the next start maps them and serves.
 *
 *     head, 4 KB | a CRC-32C per stretch of 1 MB, to the next 4 KB | the block
 *
 * The key says what the block was made of: a digest of all bytes of all tensors (content.h), and
 * which files they were read from, in which state: device, inode, size, and the times of the last
 * write and the last change. Where the files are still these, the bytes are; else they are summed
 * up, and of a copied or restored model with the same bytes the file is told (packfile_renew). A
 * file with another key, or with one wrong bit, is not used: the caller packs again and replaces
 * it. The layout is one for all kernel sets, and has its number in the head.
 *
 * It is written under another name and renamed: whoever has the old one mapped keeps it. Only the
 * files' state is written in place: within one sector, with a sum of its own; a torn one is none.
 * All numbers little-endian.
 *
 * The mapping lives in the system's page cache, shared by all processes that serve the model. As
 * with every mapped file, somebody who truncates it in place takes the memory away.
 *
 * Read-only after packfile_open: any thread. */
#pragma once

#include "model/content.h"
#include "os/mapfile.h"

/* Of what pack.c makes of each type, and of the order of the block (bind.c). The same for all
 * kernel sets. tests/unit/test_packfile.c has the bytes' hash for this number: with others,
 * another. */
enum { PACKFILE_LAYOUT = 1 };
#define PACKFILE_NEW ".new" /* behind its name while it is written */

struct packfile_key {
    uint8_t content[CONTENT_BYTES];
    uint8_t source[32]; /* a digest of struct file_id of every part */
    bool has_source;
};

struct packfile {
    struct mapfile map;
    const uint8_t *block; /* into the mapping, 4 KB aligned */
    struct packfile_key key;
};

/* Fills the source, leaves the content. A file that was written in the last two seconds has none:
 * clocks of file systems are coarse, and a second write could go unseen. */
void packfile_source_of(struct packfile_key *out, const struct gguf *g);

/* Maps a file of a block of so many bytes. On error *f is empty. ERR_NOT_FOUND, ERR_IO;
 * ERR_INVALID: no file; ERR_UNSUPPORTED: another version; ERR_CORRUPT. */
int packfile_open(struct packfile *f, const char *path, size_t bytes, struct err *e);
void packfile_close(struct packfile *f); /* an empty one is fine */

/* Made of the very files of this key, which nobody has written to since. */
bool packfile_is_from(const struct packfile *f, const struct packfile_key *key);
/* Every byte of the block against its sum, the team sharing the work. ERR_CORRUPT. */
int packfile_check(const struct packfile *f, size_t bytes, struct team *team, struct err *e);
/* Puts key's source, if it has one, into the file; where that cannot be, it stays as it is. */
void packfile_renew(const struct packfile *f, const char *path, const struct packfile_key *key);

/* Any thread, for as long as the disk takes; true in *stop ends it early, leaving nothing behind.
 * ERR_IO, ERR_CANCELLED. */
int packfile_write(const char *path, const struct packfile_key *key, const uint8_t *block,
    size_t bytes, const _Atomic bool *stop, struct err *e);
