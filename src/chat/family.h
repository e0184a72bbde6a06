/* family.h: what a family of chat models needs to know about conversations, as rows.
 *
 * A model's family is what the operator says; else the row whose template it has, or whose markers
 * its template writes;
 * without a template the row whose markers are tokens of its vocabulary (a model cannot have
 * learned markers that it has no tokens for), of several the one that ends its texts; else the row
 * of its architecture; else `default`.
 * The row names the parsers of a model that has not been probed and whose template shows nothing
 * better (learn.h), and has a template for files that bring none. Read-only: any thread. */
#pragma once

#include "tokenizer/vocab.h"

struct chat_family {
    const char *name;            /* "qwen" */
    const char *also;            /* other names by which operators know it, blanks between */
    const char *archs;           /* general.architecture of its files, likewise */
    const char *const *markers;  /* in its templates, and tokens of its vocabularies; or NULL */
    const char *tool, *thinking; /* ids of parser_rows.c */
    const char *ends;            /* tokens that end a turn, blanks between, beside the usual ones */
    const char *source;          /* the template; NULL: the file has to bring one */
};

const struct chat_family *chat_family_find(struct str name);           /* NULL: no such */
const struct chat_family *chat_family_of_vocab(const struct vocab *v); /* NULL: none fits */
/* Never NULL. source.p NULL: there is no template. */
const struct chat_family *chat_family_detect(
    struct str arch, struct str source, const struct vocab *v);
const struct chat_family *chat_family_at(size_t i); /* NULL behind the last */
