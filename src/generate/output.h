/* output.h: output events of one choice. Splits the generated text into content, reasoning and tool
 * calls if the request has an output parser (output/output_mode.h); otherwise passes it through as
 * content.
 *
 * Owner: the session's thread. Callbacks run inside output_put and output_end. */
#pragma once

#include "output/output_mode.h"

struct output_params {
    const struct output_mode *output_mode; /* NULL: all text is content */
    struct parser_options parse; /* `choice` is set by output_init; full after max_calls */
    /* start of the output that the prompt already contains; the parser reads it before the
     * generated text */
    struct str opening;
    struct str turn_end; /* text that ends the choice as an end token does; "" = none */
};

struct output {            /* zeroed = nothing to clear */
    struct parser *parser; /* NULL: all text is content */
    const struct output_ops *ops;
    void *ctx;
    int choice;
    const struct output_params *p;
    bool has_opened;       /* the parser has read the opening */
    int n_waiting;         /* tokens since the last text */
    int n_reasoning;       /* tokens of reasoning */
    bool ends_inside_call; /* set by output_end: the text ends inside a reported call */
};

/* Borrows p and ops; ops->content is set. `choice` is the number of the choice in the output
 * events. ERR_MEMORY. */
int output_init(struct output *t, const struct output_params *p, int choice,
    const struct output_ops *ops, void *ctx, struct err *e);
void output_clear(struct output *t);

/* Counts a token; its text may follow later. */
static inline void output_count_token(struct output *t)
{
    t->n_waiting++;
}
/* If output_is_full afterwards, the caller ends the choice. ERR_MEMORY, ERR_TOO_LARGE. */
int output_put(struct output *t, struct str text, struct err *e);
int output_end(struct output *t, struct err *e); /* end of the text; called once */

static inline bool output_is_full(const struct output *t) /* parse.max_calls reached */
{
    return t->parser && parser_is_full(t->parser);
}

static inline int output_n_calls(const struct output *t) /* complete calls so far */
{
    return t->parser ? parser_n_calls(t->parser) : 0;
}

static inline int output_n_broken_calls(const struct output *t)
{
    return t->parser ? parser_n_broken_calls(t->parser) : 0;
}
