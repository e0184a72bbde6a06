#include "api/common/dialect.h"

#include "api/common/body.h"
#include "api/common/tools.h"
#include "base/rng.h"

/* Default values of all fields. Every sampling value is neutral; temperature is 1. */
static const struct request request_default = {
    .n_prompts = 1,
    .n = 1,
    .best_of = 1,
    .max_tokens = -1,
    .id_slot = -1,
    .skip_special_tokens = true,
    .cache_prompt = true,
    .tool_choice = TOOL_CHOICE_AUTO,
    .parallel_tool_calls = true,
    .sample = { .temperature = 1,
        .top_p = 1,
        .typical_p = 1,
        .repeat_penalty = 1,
        .repeat_last_n = 64 },
    .convo = { .add_generation_prompt = true },
};

/* A tree of a million values takes 80 MB; no legitimate request has more. */
static const struct json_limits limits = { .max_depth = 128, .max_nodes = 1000000 };

int request_parse(
    struct request *out, const struct dialect *w, struct str body, struct arena *a, struct err *e)
{
    struct json *root;

    if (body_object(&root, body, &limits, a, e))
        return -1;
    *out = request_default;
    out->dialect = w;
    out->raw = root;
    out->sample.seed = rng_entropy();
    return w->parse(out, root, a, e) || tools_resolve(out, a, e) ? -1 : 0;
}
