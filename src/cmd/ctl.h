/* ctl.h: shared interface of inferctl's commands. inferctl is one process with one thread; memory
 * is not freed before exit. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct ctl {             /* global options */
    const char *url;     /* base URL of the server, without a trailing slash */
    const char *api_key; /* "" = none */
    char *hidden_key;    /* copy of an API key on the command line; or NULL */
    const char *model;   /* "" = the server decides */
    bool as_json;
};

struct command {
    const char *name, *arguments, *help;
    /* argv[0] is the command's name. Returns an EXIT_ status; on failure the command has printed
     * the reason. */
    int (*run)(struct ctl *c, int argc, char **argv);
};

int ctl_status(struct ctl *c, int argc, char **argv);
int ctl_models(struct ctl *c, int argc, char **argv);
int ctl_cancel(struct ctl *c, int argc, char **argv);
int ctl_completion(struct ctl *c, int argc, char **argv);
int ctl_chat(struct ctl *c, int argc, char **argv);
int ctl_inspect(struct ctl *c, int argc, char **argv);
int ctl_bench(struct ctl *c, int argc, char **argv);
int ctl_admin(struct ctl *c, int argc, char **argv);
int ctl_audit_verify(struct ctl *c, int argc, char **argv); /* actions of ctl_admin */
int ctl_audit_list(struct ctl *c, int argc, char **argv);
int ctl_api_keys(struct ctl *c, int argc, char **argv);
int ctl_limits(struct ctl *c, int argc, char **argv);
int ctl_guardrails(struct ctl *c, int argc, char **argv); /* ctl_guardrails.c */
int ctl_roles(struct ctl *c, int argc, char **argv);
int ctl_probe(struct ctl *c, int argc, char **argv);
int ctl_replay(struct ctl *c, int argc, char **argv);
int ctl_constrain(struct ctl *c, int argc, char **argv);

/* ---- ctl_out.c: the only functions that write to standard output and standard error */

/* Writes to standard output. On a terminal, control characters except newline and tab, invalid
 * UTF-8 and bidirectional controls are shown as \x1b or \u202e. */
void ctl_put(struct str text);
void ctl_printf(const char *fmt, ...) PRINTF(1, 2);
void ctl_flush(void);
void ctl_style(const char *sequence); /* a terminal sequence of inferctl; only to a terminal */
/* Text for a cell of a table or for one line: all control characters are escaped, everywhere. */
const char *ctl_cell(struct str text, struct arena *a);
void ctl_warn(const char *fmt, ...) PRINTF(1, 2); /* to standard error, escaped everywhere */
void ctl_progress(const char *path, double share);
/* Prints "inferctl: ..." to standard error, escaped everywhere; returns EXIT_FAILED. */
int ctl_fail(const char *fmt, ...) PRINTF(1, 2);
int ctl_usage(const char *fmt, ...) PRINTF(1, 2); /* the same, but returns EXIT_USAGE */

/* ---- ctl_limits.c */

/* Percent-encodes what is neither unreserved nor a slash. */
void ctl_put_path(struct buf *out, struct str s);
/* Prints all pages of a list, each as one line. */
int ctl_list(struct ctl *c, const char *path);

/* ---- ctl_http.c */

struct ctl_response {
    long status; /* HTTP status; 0: no response, body contains the reason */
    struct buf body;
};

/* Sends a request; `body` NULL = GET. The caller clears r->body. */
void ctl_request(struct ctl *c, const char *path, const struct str *body, struct ctl_response *r);

/* `body` NULL = none. */
void ctl_send(struct ctl *c, const char *method, const char *path, const struct str *body,
    struct ctl_response *r);
void ctl_delete(struct ctl *c, const char *path, struct ctl_response *r);

/* Sends a POST and reads a stream: fn receives the data of each SSE event and returns false to
 * stop. `interrupted` (Ctrl-C) is polled. If r->status is not 200, r->body contains the error. */
void ctl_stream(struct ctl *c, const char *path, struct str body,
    bool (*fn)(void *ctx, struct str data), void *ctx, const volatile bool *interrupted,
    struct ctl_response *r);

/* Returns the message of an error body in any dialect, else the body itself. */
struct str ctl_error_text(const struct ctl_response *r, struct arena *a);

/* Prints the error of a response whose status is neither 200 nor 201; otherwise returns EXIT_OK. */
int ctl_check(const struct ctl_response *r);

/* Reads standard input to its end, at most `max` bytes; -1 if there are more. */
int ctl_read_stdin(struct buf *out, size_t max);

/* Options of a command: an iterator over argv[1..]; see ctl_args.c. */
struct ctl_args {
    int argc;
    char **argv;
    int at;
    const char *value; /* value of the last option returned */
};
/* Returns the index in `names` of the next option ("max-tokens=" needs a value, "json" has none),
 * -1 at the end, -2 for a positional argument (in value), -3 after it has printed a usage error. */
int ctl_next(struct ctl_args *a, const char *const *names, int n);
