/* output.h: output events of one choice. Splits the generated text into content, reasoning and tool
 * calls if the request has an output parser (chat/reading.h); otherwise passes it through as
 * content.
 *
 * Owner: the session's thread. Callbacks run inside output_put and output_end. */
#pragma once

#include "output/output_mode.h"

struct output_ops { /* ctx is the caller's */
    /* complete UTF-8 characters, never empty */
    void (*text)(void *ctx, int choice, struct str text);
    /* Same as in parser_ops; each may be NULL. */
    void (*reasoning)(void *ctx, int choice, struct str text);
    void (*call_begin)(void *ctx, int choice, int call, struct str name);
    void (*call_args)(void *ctx, int choice, int call, struct str json);
    void (*call_end)(void *ctx, int choice, int call);
    void (*call_broken)(void *ctx, int choice, int call);
};

struct output_params {
    const struct output_mode *output_mode; /* NULL: all text is content */
    struct parser_options parse;
    /* start of the output that the prompt already contains; the parser reads it before the
     * generated text */
    struct str opening;
    int max_calls; /* the choice ends after this many tool calls; 0 = no limit */
};

struct output { /* zeroed = nothing to clear */
    struct parser *parser;
    const struct output_ops *ops;
    void *ctx;
    int choice;
    const struct output_params *p;
    bool has_opened; /* the parser has read the opening */
    bool is_full;    /* max_calls reached: further events are dropped */
    int n_waiting;   /* tokens since the last text */
    int n_reasoning; /* tokens of reasoning */
    int n_calls;     /* complete tool calls */
};

/* Borrows p and ops. ERR_MEMORY. */
int output_init(struct output *t, const struct output_params *p, int choice,
    const struct output_ops *ops, void *ctx, struct err *e);
void output_clear(struct output *t);

static inline void output_count_token(
    struct output *t) /* Counts a token; its text may follow later. */
{
    t->n_waiting++;
}
/* If is_full is set afterwards, the caller ends the choice. ERR_MEMORY, ERR_TOO_LARGE. */
int output_put(struct output *t, struct str text, struct err *e);
int output_end(struct output *t, struct err *e); /* end of the text; called once */
