/* hf_files.h: files of a model directory, mapped: a Hugging Face or MLX model, or a snapshot in a
 * hub cache (models--OWNER--NAME/snapshots/REVISION, whose files are links to
 * models--OWNER--NAME/blobs).
 *
 * Names inside the directory come from untrusted files: they are plain names, and a symbolic link
 * is followed only from a snapshot to the blobs of its cache.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/err.h"
#include "format/gguf.h"

struct hf_files {
    char dir[GGUF_PATH_MAX];   /* directory as given, without a slash at the end */
    char blobs[GGUF_PATH_MAX]; /* real path, with a slash at the end; "" if not in a hub cache */
    char name[128]; /* name of the model: OWNER/NAME of a hub cache, else of the directory */
    struct gguf_file *files; /* all files opened so far */
    size_t n;
};

/* A directory with refs/main and snapshots stands for the snapshot that refs/main names. On error
 * *f is empty. ERR_NOT_FOUND, ERR_IO, ERR_MEMORY. */
int hf_files_init(struct hf_files *f, const char *dir, struct err *e);
void hf_files_clear(struct hf_files *f);

/* Maps a file of at most `max` bytes and returns its content. ERR_NOT_FOUND: there is no such file;
 * ERR_INVALID: not a plain name or a link that is not followed; ERR_TOO_LARGE, ERR_IO,
 * ERR_MEMORY. */
int hf_files_map(struct hf_files *f, struct str name, uint64_t max, struct str *out, struct err *e);
/* The same; STR_NONE if there is no such file or if it is empty. */
int hf_files_map_optional(
    struct hf_files *f, const char *name, uint64_t max, struct str *out, struct err *e);
