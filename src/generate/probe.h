/* probe.h: capability probe. Generates responses to test prompts and reads them with the parsers
 * that the server uses for every response.
 *
 *     tools      "What is the weather?" with a tool get_weather: with the template's own tool
 *                support; if there is none, or if that yields no call, with the tools in the system
 *                prompt. Result: the default parser if it reads a call of get_weather, else the
 *                first parser that does, else "null".
 *     reasoning  a small question with thinking enabled; parsers are tried in the same way
 *     the rest   from the model file and from the context that fits into memory
 *
 * At most three generations. The model is open and has no other users. Owner: the calling thread,
 * which blocks. */
#pragma once

#include "registry/model.h"

enum probe_step { PROBE_NATIVE, PROBE_INJECTED, PROBE_THINKING, N_PROBE_STEPS };

struct probe_options { /* zeroed = no script, and the defaults below */
    /* Text that a script model generates; NULL: "". The bytes are borrowed until the generation has
     * ended. */
    struct str (*script)(void *ctx, enum probe_step step, const struct rendered *prompt);
    void *ctx;
    int max_tokens;           /* per generation; 0 = 512 */
    const _Atomic bool *stop; /* true: ends early with ERR_CANCELLED */
};

/* Returns the error of the generation. */
int model_probe(
    struct model_capabilities *out, struct model *m, const struct probe_options *o, struct err *e);

/* The same with default options: the probe_fn of the registry. */
int model_probe_default(
    struct model_capabilities *out, struct model *m, const _Atomic bool *stop, struct err *e);
