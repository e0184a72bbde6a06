/* template.h: a model's chat template (the Jinja that real templates use), compiled once.
 *
 * Rendering gives spans with provenance: text of the template is trusted, text that came from
 * messages, tools or arguments is not, also after it went through filters, so that the tokenizer
 * never reads control tokens out of it. Steps, output, depth and memory are bounded.
 *
 * Read-only after compile: any thread may render. */
#pragma once

#include "chat/convo.h"
#include "tokenizer/vocab.h"

struct chat_template;

/* ERR_SYNTAX "line 3: ..."; an unknown filter, test or statement is an error here, not later. */
int chat_template_compile(struct chat_template **out, struct str source, struct err *e);
void chat_template_free(struct chat_template *t);
struct str chat_template_source(const struct chat_template *t);

struct template_env {
    struct str bos_token, eos_token; /* .p NULL: the variable is undefined */
    int64_t now;                     /* for strftime_now; wall seconds */
    bool exact; /* render the messages as they are, once: none of the help described below */
    const _Atomic bool *stop; /* looked at every millisecond: true ends it. May be NULL */
};

struct template_limits {
    uint64_t max_steps; /* about 20 ns each */
    size_t max_output, max_memory;
    int max_depth;
    /* Beside max_steps, for what there is to read: for each message and each kB of all; and since
     * some templates look at all messages for each, for each pair, up to a limit. */
    uint32_t steps_message, steps_kb, steps_pair;
    uint64_t max_pair_steps;
};
extern const struct template_limits template_limits_default; /* of a model's own */
extern const struct template_limits template_limits_own;     /* of one that came with a request */

struct rendered {
    struct span *spans;
    size_t n_spans;
    size_t n_bytes;
    uint64_t n_steps; /* that it took */
};

/* ERR_INVALID with the template's own message when it calls raise_exception, or with the line
 * and reason when it fails; ERR_TOO_LARGE at a limit; ERR_CANCELLED: `stop`; ERR_MEMORY. Spans live
 * in `a`.
 *
 * Templates disagree about what a message looks like. Compiling finds out by trial whether this
 * one takes content as parts or as a string, arguments of tool calls as an object or as text,
 * and developer messages; rendering gives it what it takes, and tries the other way where it
 * raises. With continue_final_message the prompt ends with the last message's content; an empty
 * one begins the assistant's turn. */
int chat_template_render(const struct chat_template *t, const struct convo *c,
    const struct template_env *env, const struct template_limits *l, struct arena *a,
    struct rendered *out, struct err *e);

/* The built-in ones, by name ("chatml", "llama3", "mistral", "gemma"), for models whose file has
 * none; NULL. */
const char *chat_template_builtin(const char *name);
