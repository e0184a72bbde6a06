/* ctl.h: what inferctl's commands share. One process, one thread; memory lives until exit. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct ctl {             /* the options every command knows */
    const char *url;     /* of the server, without a slash at the end */
    const char *api_key; /* "" = none */
    const char *model;   /* "" = the server's own choice */
    bool as_json;
    bool is_tty; /* standard output */
};

struct command {
    const char *name, *arguments, *help;
    /* argv[0] is the command's name. Returns an EXIT_ status; has said why when it failed. */
    int (*run)(struct ctl *c, int argc, char **argv);
};

int ctl_status(struct ctl *c, int argc, char **argv);
int ctl_models(struct ctl *c, int argc, char **argv);
int ctl_cancel(struct ctl *c, int argc, char **argv);
int ctl_completion(struct ctl *c, int argc, char **argv);
int ctl_chat(struct ctl *c, int argc, char **argv);
int ctl_inspect(struct ctl *c, int argc, char **argv);
int ctl_bench(struct ctl *c, int argc, char **argv);
int ctl_probe(struct ctl *c, int argc, char **argv);
int ctl_replay(struct ctl *c, int argc, char **argv);

/* "inferctl: ..." on standard error; returns EXIT_FAILED. */
int ctl_fail(const char *fmt, ...) PRINTF(1, 2);
int ctl_usage(const char *fmt, ...) PRINTF(1, 2); /* the same; returns EXIT_USAGE */

/* ---- ctl_http.c */

struct ctl_reply {
    long status; /* 0: no answer; body then says why */
    struct buf body;
};

/* One request; `body` NULL = GET. The reply's body is the caller's to clear. */
void ctl_request(struct ctl *c, const char *path, const struct str *body, struct ctl_reply *r);

void ctl_delete(struct ctl *c, const char *path, struct ctl_reply *r);

/* A streaming POST: fn gets the data of each SSE event; it returns false to stop. interrupted is
 * polled (Ctrl-C). Returns the status; other than 200, r->body holds the error. */
void ctl_stream(struct ctl *c, const char *path, struct str body,
    bool (*fn)(void *ctx, struct str data), void *ctx, const volatile bool *interrupted,
    struct ctl_reply *r);

/* The sentence in an error body, whatever its shape; else the body itself. */
struct str ctl_error_text(const struct ctl_reply *r, struct arena *a);

/* Says what is wrong with a reply that is not 200; EXIT_OK otherwise. */
int ctl_check(const struct ctl_reply *r);

/* Reads all of standard input, at most `max` bytes; -1 over it. */
int ctl_read_stdin(struct buf *out, size_t max);

/* Options of a command: walks argv[1..]; see ctl_option in ctl_args.c. */
struct ctl_args {
    int argc;
    char **argv;
    int at;
    const char *value; /* of the option just returned */
};
/* Next option among names ("max-tokens=" needs a value, "json" has none): its index in names,
 * -1 at the end, -2 for a positional argument (in value), -3 on a usage error that was said. */
int ctl_next(struct ctl_args *a, const char *const *names, int n);
