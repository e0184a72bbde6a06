/* family.h: table of chat model families.
 *
 * The family of a model is the first that applies: the operator's option; the family whose template
 * equals the model's; the family whose markers occur in the model's template; without a template,
 * the family whose markers are tokens of the vocabulary (of several, the one with the vocabulary's
 * end token); the family of the architecture; `default`. A model cannot have learned markers that
 * it has no tokens for.
 *
 * The entry has the parsers of a model that was not probed and whose template shows no better ones
 * (template_probe.h), and a template for model files without one. Read-only; any thread. */
#pragma once

#include "tokenizer/vocab.h"

struct chat_family {
    const char *name;    /* for example "qwen" */
    const char *aliases; /* further names which operators use, separated by blanks */
    const char *archs;   /* values of general.architecture, separated by blanks */
    /* strings in its templates and tokens of its vocabularies; or NULL */
    const char *const *markers;
    const char *tool, *reasoning; /* parser ids (format_table.c) */
    /* tokens that end a turn in addition to the vocabulary's, separated by blanks */
    const char *end_tokens;
    const char *source; /* template source; NULL: the model file must contain one */
};

const struct chat_family *chat_family_find(struct str name);           /* NULL: no such family */
const struct chat_family *chat_family_of_vocab(const struct vocab *v); /* NULL: no family fits */
/* Never NULL. source.p NULL: there is no template. */
const struct chat_family *chat_family_detect(
    struct str arch, struct str source, const struct vocab *v);
const struct chat_family *chat_family_at(size_t i); /* NULL after the last */
