/* inferflux.h: embeddable inference library for language models.
 *
 *     inferflux *model;
 *     char why[256];
 *     if (inferflux_open(&model, "model.gguf", NULL, why, sizeof(why)))
 *         ...
 *     inferflux_message hello = { "user", "Hello!" };
 *     inferflux_params p = { .messages = &hello, .n_messages = 1, .max_tokens = 64 };
 *     inferflux_request *r = inferflux_submit(model, &p, on_event, ctx, why, sizeof(why));
 *     inferflux_wait(r);
 *     inferflux_release(r);
 *     inferflux_close(model);
 *
 * Any thread may call any function. Requests run concurrently in one batch; the output of each is
 * the same as if it ran alone. Functions that can fail return non-zero or NULL and write one line,
 * truncated to fit, to `why`. Link with `pkg-config --libs inferflux`. */
#ifndef INFERFLUX_H
#define INFERFLUX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct inferflux inferflux;                 /* a loaded model */
typedef struct inferflux_request inferflux_request; /* one generation */

typedef struct {
    int threads;  /* compute threads; 0: one per processor */
    int parallel; /* sequences in a batch; 0: 4 */
    /* Maximum tokens of prompt and output together; 0: the model's training context. */
    int ctx_size;
    const char *kernels; /* instruction set, such as "avx2"; NULL: the best one of this machine */
} inferflux_options;

typedef struct {
    const char *name, *arguments; /* function name; arguments as a JSON object */
} inferflux_call;

typedef struct {
    const char *role; /* "system", "user", "assistant", "tool" */
    const char *content;
    /* Tool calls of the assistant; the tool messages that follow are their results, in the same
     * order. */
    const inferflux_call *calls;
    int n_calls;
} inferflux_message;

/* parameters of a request; zero selects the default in brackets */
typedef struct {
    /* a conversation, rendered with the model's chat template, or ... */
    const inferflux_message *messages;
    int n_messages;
    const char *prompt;      /* ... text to continue; names of control tokens are parsed */
    int max_tokens;          /* output tokens [up to the context limit] */
    float temperature;       /* 0 = greedy decoding [0] */
    float top_p;             /* [1] */
    int top_k;               /* [off] */
    uint64_t seed;           /* the same seed gives the same output [0] */
    const char *const *stop; /* strings that end the output and are not part of it */
    int n_stop;
    /* With messages: reasoning and tool calls are separate events [0: everything is text]. */
    int parts;
    /* With `parts`: functions that may be called, as JSON in OpenAI's format:
     * [{"type":"function","function":{"name":..}}, ..] [none] */
    const char *tools;
} inferflux_params;

enum {
    INFERFLUX_TEXT,
    INFERFLUX_END,
    INFERFLUX_REASONING, /* a fragment of reasoning, like TEXT; only with `parts` */
    INFERFLUX_CALL       /* a complete tool call, with its arguments as text; only with `parts` */
};
enum { INFERFLUX_STOP, INFERFLUX_LENGTH, INFERFLUX_CANCELLED, INFERFLUX_ERROR };

typedef struct {
    /* Any number of TEXT, reasoning and CALL events, then one INFERFLUX_END. */
    int kind;
    /* All events but END: whole UTF-8 characters, null-terminated; valid during the callback. */
    const char *text;
    size_t n_text;                        /* bytes without the terminator */
    const char *name;                     /* CALL: name of the function */
    int finish;                           /* END: INFERFLUX_STOP, ... */
    const char *error;                    /* END with INFERFLUX_ERROR: one line */
    int prompt_tokens, completion_tokens; /* END */
} inferflux_event;

/* Called on a thread of the library, one call at a time per model. The callback may call
 * inferflux_cancel and inferflux_submit, but not wait, release or close. */
typedef void (*inferflux_callback)(void *user, const inferflux_event *event);

/* Loads a GGUF file, which takes seconds for a large one. options may be NULL. */
int inferflux_open(
    inferflux **out, const char *path, const inferflux_options *options, char *why, size_t n_why);

/* Cancels the running requests (each receives its END event) and frees the model. A request that is
 * not released before must be released after this call. */
void inferflux_close(inferflux *model);

/* Copies its arguments. The callback may run before this function returns. */
inferflux_request *inferflux_submit(inferflux *model, const inferflux_params *params,
    inferflux_callback callback, void *user, char *why, size_t n_why);

void inferflux_cancel(inferflux_request *request);  /* the END event follows; no effect after END */
void inferflux_wait(inferflux_request *request);    /* until the END event was delivered */
void inferflux_release(inferflux_request *request); /* waits for END, then frees */

const char *inferflux_version(void);

#ifdef __cplusplus
}
#endif

#endif
