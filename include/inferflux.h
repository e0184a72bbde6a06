/* inferflux.h: language models in your own program.
 *
 *     inferflux *model;
 *     char why[256];
 *     if (inferflux_open(&model, "model.gguf", NULL, why, sizeof(why)))
 *         ...
 *     inferflux_message hello = { "user", "Hello!" };
 *     inferflux_params p = { .messages = &hello, .n_messages = 1, .max_tokens = 64 };
 *     inferflux_request *r = inferflux_submit(model, &p, on_event, me, why, sizeof(why));
 *     inferflux_wait(r);
 *     inferflux_release(r);
 *     inferflux_close(model);
 *
 * Any thread may call any function. Many requests may run at once; the text of each is the same
 * as if it ran alone. Functions that can fail return non-zero or NULL and write one line, cut to
 * fit, to `why`. Link with `pkg-config --libs inferflux`. */
#ifndef INFERFLUX_H
#define INFERFLUX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct inferflux inferflux;                 /* a model, loaded */
typedef struct inferflux_request inferflux_request; /* a question being answered */

typedef struct {
    int threads;         /* 0: one per processor */
    int parallel;        /* sequences computed together; 0: 4 */
    int ctx_size;        /* tokens of a prompt and its answer; 0: what the model was made for */
    const char *kernels; /* NULL: the best this machine can run */
} inferflux_options;

typedef struct {
    const char *name, *arguments; /* of a function; arguments are a JSON object */
} inferflux_call;

typedef struct {
    const char *role; /* "system", "user", "assistant", "tool" */
    const char *content;
    const inferflux_call *calls; /* what the assistant called; the messages of the tools follow, */
    int n_calls;                 /* in the same order */
} inferflux_message;

typedef struct {                       /* zero means: the default in brackets */
    const inferflux_message *messages; /* a conversation for the model's template, or ... */
    int n_messages;
    const char *prompt;      /* ... plain text to continue */
    int max_tokens;          /* [to the end of the context] */
    float temperature;       /* 0 = the most likely token each time [0] */
    float top_p;             /* [1] */
    int top_k;               /* [off] */
    uint64_t seed;           /* same seed, same answer [0] */
    const char *const *stop; /* strings that end the answer, not part of it */
    int n_stop;
    int parts;         /* of messages: thoughts and calls are events of their own [all is text] */
    const char *tools; /* with parts: functions that may be called, in JSON as OpenAI's clients
                        * write them: [{"type":"function","function":{"name":..}}, ..] [none] */
} inferflux_params;

enum {
    INFERFLUX_TEXT,
    INFERFLUX_END,
    INFERFLUX_THOUGHT, /* as TEXT; only with parts */
    INFERFLUX_CALL     /* a whole call: name, and its arguments as text; only with parts */
};
enum { INFERFLUX_STOP, INFERFLUX_LENGTH, INFERFLUX_CANCELLED, INFERFLUX_ERROR };

typedef struct {
    int kind;          /* INFERFLUX_TEXT and its like any number of times, then one INFERFLUX_END */
    const char *text;  /* all but END: whole UTF-8 characters, terminated; yours to copy */
    size_t n_text;     /* bytes */
    const char *name;  /* CALL: of the function */
    int finish;        /* END: INFERFLUX_STOP ... */
    const char *error; /* END with INFERFLUX_ERROR: one line */
    int prompt_tokens, completion_tokens; /* END */
} inferflux_event;

/* Called on a thread of the library, one call at a time per model. It may call inferflux_cancel
 * and inferflux_submit, but neither wait, release nor close. */
typedef void (*inferflux_callback)(void *user, const inferflux_event *event);

/* Reads a GGUF file; takes seconds for a large one. options may be NULL. */
int inferflux_open(
    inferflux **out, const char *path, const inferflux_options *options, char *why, size_t n_why);

/* Ends what still runs (its callbacks get their END) and frees the model. Requests that were not
 * released yet may only be released after it. */
void inferflux_close(inferflux *model);

/* Copies everything it is given. The callback may run before this returns. */
inferflux_request *inferflux_submit(inferflux *model, const inferflux_params *params,
    inferflux_callback callback, void *user, char *why, size_t n_why);

void inferflux_cancel(inferflux_request *request);  /* END still comes; after END: nothing */
void inferflux_wait(inferflux_request *request);    /* until its END was delivered */
void inferflux_release(inferflux_request *request); /* waits, then frees */

const char *inferflux_version(void);

#ifdef __cplusplus
}
#endif

#endif
