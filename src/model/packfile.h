/* packfile.h: a model's packed weights as a file, so that the next start maps them and serves.
 *
 *     head, 4 KB | a CRC-32C per stretch of 1 MB, to the next 4 KB | the block
 *
 * The key says what the block was made of: names, types, shapes and places of all tensors, samples
 * of their bytes, size and time of the file, and the layout of packing. A file with another key,
 * or with one wrong bit, is not used: the caller packs again and replaces it. It is written under
 * another name and renamed: whoever has the old one mapped keeps it. All numbers little-endian.
 *
 * The mapping lives in the system's page cache, shared by all processes that serve the model. As
 * with every mapped file, somebody who truncates it in place takes the memory away.
 *
 * Read-only after packfile_open: any thread. */
#pragma once

#include "format/gguf.h"
#include "kernel/team.h"
#include "os/mapfile.h"

struct packfile_key {
    uint8_t digest[32];
};

struct packfile {
    struct mapfile map;
    const uint8_t *block; /* into the mapping, 4 KB aligned */
};

/* Reads a few lines of every tensor. ERR_MEMORY. */
int packfile_key_of(struct packfile_key *out, const struct gguf *g, struct err *e);

/* Maps the file and holds every byte against its sum, the team sharing the work. On error *f is
 * empty. ERR_NOT_FOUND, ERR_IO; ERR_UNSUPPORTED: another key or version; ERR_CORRUPT. */
int packfile_open(struct packfile *f, const char *path, const struct packfile_key *key,
    size_t bytes, struct team *team, struct err *e);
void packfile_close(struct packfile *f); /* an empty one is fine */

/* Any thread, for as long as the disk takes; true in *stop ends it early, leaving nothing behind.
 * ERR_IO, ERR_CANCELLED. */
int packfile_write(const char *path, const struct packfile_key *key, const uint8_t *block,
    size_t bytes, const _Atomic bool *stop, struct err *e);
