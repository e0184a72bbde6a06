/* parts.h: one choice's text on its way to whoever asked: taken apart into text, thoughts and tool
 * calls where the request's answers are read (chat/reading.h), else told as it is.
 *
 * Owner: the session's thread. Callbacks run inside parts_put and parts_end. */
#pragma once

#include "output/reading.h"

struct parts_ops {                                        /* ctx is the caller's */
    void (*text)(void *ctx, int choice, struct str text); /* whole characters, never empty */
    /* As parser_ops; any of them may be NULL. */
    void (*reasoning)(void *ctx, int choice, struct str text);
    void (*call_begin)(void *ctx, int choice, int call, struct str name);
    void (*call_args)(void *ctx, int choice, int call, struct str json);
    void (*call_end)(void *ctx, int choice, int call);
    void (*call_broken)(void *ctx, int choice, int call);
};

struct parts_params {
    const struct reading *reading; /* NULL: text */
    struct parser_options parse;
    struct str opening; /* what the prompt has begun for the answer: read as if it had been said */
    int max_calls;      /* after so many the choice has ended; 0 = no limit */
};

struct parts { /* zeroed: nothing to clear */
    struct parser *parser;
    const struct parts_ops *ops;
    void *ctx;
    int choice;
    const struct parts_params *p;
    bool has_opened; /* the opening was read */
    bool is_full;    /* max_calls: what follows is not told */
    int n_waiting;   /* tokens since the last text */
    int n_reasoning; /* tokens that were thoughts */
    int n_calls;     /* complete ones */
};

/* Borrows p and ops. ERR_MEMORY. */
int parts_init(struct parts *t, const struct parts_params *p, int choice,
    const struct parts_ops *ops, void *ctx, struct err *e);
void parts_clear(struct parts *t);

static inline void parts_token(struct parts *t) /* one has come; its text may follow */
{
    t->n_waiting++;
}
/* is_full afterwards: the choice is to end. ERR_MEMORY, ERR_TOO_LARGE. */
int parts_put(struct parts *t, struct str text, struct err *e);
int parts_end(struct parts *t, struct err *e); /* the text has ended; once */
