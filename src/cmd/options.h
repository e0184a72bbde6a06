/* options.h: settings of inferfluxd, generated from the table options.def.
 *
 * Precedence: flag, environment variable, configuration file, default. Plain data; the main thread
 * fills it before it starts other threads, and it is read-only afterwards. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

struct model_entry { /* one element of `models:` in the configuration file */
    const char *id;
    const char *path;
    const char *backend;       /* "native" or "script" */
    const char *family;        /* chat family whose template is used; "" = the file's template */
    const char *template_path; /* Jinja file that replaces the model's template; "" */
    const char *tool_parser, *thinking_parser; /* parser ids of output/parser.h; "" = detected */
    const char *draft;                         /* path of the draft model; "" */
    int64_t ctx_size, parallel;
    int64_t kv_bytes, state_cache;
    const char *load;   /* "start" or "demand" */
    const char *pin;    /* "true": never evicted; "false" */
    int64_t idle_ttl_s; /* 0: never; -1: that of the pool */
    int line;           /* line in the file, for errors */
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
    const char *docs; /* NULL = not requested; "" = the reference, "man" = the manual page */
    struct model_entry models[MODELS_MAX];
    int n_models;
    struct arena *arena; /* owns all strings */
};

/* Reads flags, INFERFLUX_* variables and the file of --config (or INFERFLUX_CONFIG). Errors name
 * the flag, the variable, or file and line. `env` has the format of environ. */
int options_read(struct options *o, int argc, char **argv, char **env, struct err *e);
/* Overwrites the values of secret options in argv, which all users of the machine can read. After
 * options_read, which has copied them. */
void options_hide_secrets(int argc, char **argv);
void options_clear(struct options *o);

/* Sets one option by its dotted key, as in the configuration file. `where` is the prefix of
 * errors. */
int options_set(
    struct options *o, const char *dotted, const char *value, const char *where, struct err *e);

/* config.c: reads a YAML file into o. Aliases, unknown keys, wrong types, files over 1 MiB and
 * nesting over 32 levels are errors "FILE:LINE: ...". */
int config_read(struct options *o, const char *path, struct err *e);

void options_help(struct buf *out); /* --help */
void options_docs(struct buf *out); /* docs/configuration.md */
void options_man(struct buf *out);  /* docs/man/inferfluxd.8 */
