/* probe.h: asks a model what it can do, by talking to it, and reading what it says with the code
 * that reads every answer.
 *
 *   tools      "What is the weather?", with a tool get_weather: natively where the template takes
 *              tools, else (or when that gives no call) told in words. The parser is the default
 *              one when it reads a call of get_weather, else the first of all that does, else null.
 *   thinking   a small question, thinking asked for: the same with thoughts
 *   the rest   from the file and from what the machine has room for
 *
 * At most four answers. The model is open, and nobody else talks to it yet; the calling thread
 * waits for it. */
#pragma once

#include "registry/pool.h"

enum probe_step { PROBE_NATIVE, PROBE_TOLD, PROBE_THINKING, N_PROBE_STEPS };

struct probe_options { /* zeroed: the model itself, and the limits below */
    /* What a script model says; NULL: "". The bytes are borrowed until the answer has ended. */
    struct str (*script)(void *ctx, enum probe_step step, const struct rendered *prompt);
    void *ctx;
    int max_tokens;           /* of an answer; 0 = 512 */
    const _Atomic bool *stop; /* true: ends early with ERR_CANCELLED */
};

/* ERR_UNSUPPORTED when it cannot chat, and whatever keeps it from answering. */
int model_probe(
    struct model_capabilities *out, struct model *m, const struct probe_options *o, struct err *e);

/* The same with default options: the probe_fn of the registry. */
int model_probe_default(
    struct model_capabilities *out, struct model *m, const _Atomic bool *stop, struct err *e);
