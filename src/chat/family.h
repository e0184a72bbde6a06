/* family.h: what a family of chat models needs to know about conversations, as rows.
 *
 * A model file normally brings its template. For one that does not, the family is told by the
 * operator, or found by the marker tokens of its vocabulary, which is the best evidence there
 * is: a model cannot have learned markers that it has no tokens for. Read-only: any thread. */
#pragma once

#include "text/vocab.h"

struct chat_family {
    const char *name;           /* "chatml" */
    const char *const *markers; /* tokens that the vocabulary must all have; NULL-terminated */
    const char *also;           /* other names by which operators know it, blanks between */
    const char *source;         /* the template */
};

const struct chat_family *chat_family_find(struct str name);           /* NULL: no such */
const struct chat_family *chat_family_of_vocab(const struct vocab *v); /* NULL: none fits */
const struct chat_family *chat_family_at(size_t i);                    /* NULL behind the last */
