/* ctl_constrain.h: the parts of `inferctl constrain`: sources, vocabularies and states, for
 * ctl_constrain.c and ctl_constrain_bench.c. One thread. */
#pragma once

#include "cmd/ctl.h"
#include "constrain/constraint.h"
#include "format/gguf.h"

enum { CONSTRAINT_FILE_MAX = 64 * 1024 * 1024 };

struct constrain_args {
    struct constraint_source source; /* without the text */
    const char *vocab;               /* model file or directory; NULL: one token per byte */
    uint64_t count, seed, max_tokens;
    const char **files;
    int n_files;
    bool as_json;
};

/* A vocabulary and its tables. `v` is NULL for bytes: token b is the byte b, 256 ends the text. */
struct constrain_vocab {
    struct vocab *v;
    struct vocab_tables *tables;
};
int constrain_vocab_open(struct constrain_vocab *out, const char *path, struct err *e);
void constrain_vocab_close(struct constrain_vocab *v); /* also after a failure */

/* Reads a file of at most CONSTRAINT_FILE_MAX bytes; "-" is standard input. */
int constrain_read_file(struct buf *out, const char *path, struct err *e);

int constrain_bench(const struct constrain_args *a);
