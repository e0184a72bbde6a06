/* options.h: the settings of inferfluxd, from the one table in options.def.
 *
 * A flag wins over the environment, the environment over the file, the file over the default.
 * Plain data; filled by the main thread before any other starts, read-only after. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

struct model_entry { /* one item of `models:` in the configuration file */
    const char *id;
    const char *path;
    const char *backend;       /* "native" or "script" */
    const char *family;        /* chat family whose template to use; "" = the file's */
    const char *template_path; /* a Jinja file instead of the model's own; "" */
    const char *tool_parser, *thinking_parser; /* ids of chat/parser.h; "" = found out */
    const char *draft;                         /* a small model that guesses ahead; "" */
    int64_t ctx_size, parallel;
    int64_t kv_bytes;
    int line; /* in the file, for errors */
};

enum { MODELS_MAX = 64 };

struct options {
#define OPT_STR(field, section, key, flag, env, def, help)             const char *field;
#define OPT_SECRET(field, section, key, flag, env, def, help)          const char *field;
#define OPT_CHOICE(field, section, key, flag, env, def, choices, help) const char *field;
#define OPT_INT(field, section, key, flag, env, def, lo, hi, help)     int64_t field;
#define OPT_BYTES(field, section, key, flag, env, def, lo, hi, help)   int64_t field;
#define OPT_BOOL(field, section, key, flag, env, def, help)            bool field;
#include "cmd/options.def"
#undef OPT_STR
#undef OPT_SECRET
#undef OPT_CHOICE
#undef OPT_INT
#undef OPT_BYTES
#undef OPT_BOOL
    const char *config_path; /* "" = none */
    bool want_help, want_version;
    const char *docs; /* NULL; "" = the reference, "man" = the manual page */
    struct model_entry models[MODELS_MAX];
    int n_models;
    struct arena *arena; /* owns every string */
};

/* Reads flags, INFERFLUX_* and the file that --config (or INFERFLUX_CONFIG) names. Errors name
 * flag, variable, or file and line. env is like environ. */
int options_read(struct options *o, int argc, char **argv, char **env, struct err *e);
void options_clear(struct options *o);

/* Sets one option by its dotted key, as the configuration file does. `where` begins the error. */
int options_set(
    struct options *o, const char *dotted, const char *value, const char *where, struct err *e);

/* config.c: reads a YAML file into o. Aliases, unknown keys, wrong kinds, files over 1 MiB and
 * nesting over 32 are errors "FILE:LINE: ...". */
int config_read(struct options *o, const char *path, struct err *e);

void options_help(struct buf *out); /* --help */
void options_docs(struct buf *out); /* docs/configuration.md */
void options_man(struct buf *out);  /* docs/man/inferfluxd.8 */
