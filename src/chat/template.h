/* template.h: the chat template of a model (the subset of Jinja that chat templates use), compiled
 * once.
 *
 * Rendering returns spans with their origin: text of the template is trusted; text of messages,
 * tools and arguments is untrusted, also after filters, so that the tokenizer never produces
 * control tokens from it. Steps, output, depth and memory are limited.
 *
 * Read-only after compilation: any thread may render. */
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
    /* for strftime_now and the variables date_string and datetime; wall-clock seconds */
    int64_t now;
    /* render the messages unchanged, once: without the variants and retries described below */
    bool no_variants;
    const _Atomic bool *stop; /* checked every millisecond: true cancels rendering. May be NULL */
};

struct template_limits {
    uint64_t max_steps; /* about 20 ns each */
    size_t max_output, max_memory;
    int max_depth;
    /* Steps in addition to max_steps: per message, per kB of input, and per pair of messages, since
     * some templates iterate over all messages for each message; the pair steps have a limit. */
    uint32_t steps_per_message, steps_per_kb, steps_per_pair;
    uint64_t max_pair_steps;
};
extern const struct template_limits template_limits_default; /* for the template of a model */
extern const struct template_limits
    template_limits_request; /* for a template sent with a request */

struct rendered {
    struct span *spans;
    size_t n_spans;
    size_t n_bytes;
    uint64_t n_steps; /* steps which the rendering took */
};

/* ERR_INVALID with the template's message if it calls raise_exception, or with line and reason if
 * rendering fails; ERR_TOO_LARGE at a limit; ERR_CANCELLED after `stop`; ERR_MEMORY. The spans are
 * allocated in `a`.
 *
 * Templates differ in the form of messages. Compilation detects by test renderings whether the
 * template expects content as parts or as a string, arguments of tool calls as an object or as
 * text, and whether it supports developer messages. Rendering uses the detected variant, and
 * retries with others if the template raises an exception, also with default values for optional
 * members which tools lack. With continue_final_message the
 * prompt ends with the content of the last message; an empty one opens the assistant turn. */
int chat_template_render(const struct chat_template *t, const struct convo *c,
    const struct template_env *env, const struct template_limits *l, struct arena *a,
    struct rendered *out, struct err *e);

/* Built-in templates by name ("chatml", "llama3", "mistral", "gemma"), for model files without one;
 * NULL: no such template. */
const char *chat_template_builtin(const char *name);
