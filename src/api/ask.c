#include "api/ask.h"
#include "api/body.h"
#include "api/tools.h"
#include "api/wire.h"
#include "base/rng.h"

/* What a request means that says nothing. Every value is off or neutral, temperature is 1. */
static const struct ask ask_default = {
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

/* A million values take 80 MB of tree; no honest request has more. */
static const struct json_limits limits = { .max_depth = 128, .max_nodes = 1000000 };

int ask_parse(
    struct ask *out, const struct wire *w, struct str body, struct arena *a, struct err *e)
{
    struct json *root;

    if (body_object(&root, body, &limits, a, e))
        return -1;
    *out = ask_default;
    out->wire = w;
    out->raw = root;
    out->sample.seed = rng_entropy();
    return w->parse(out, root, a, e) || tools_settle(out, a, e) ? -1 : 0;
}

bool ask_has(const struct ask *ask, const char *field)
{
    return !json_is_null(json_get(ask->raw, field));
}

static int check_ids(const char *field, const int32_t *ids, int n, int32_t n_vocab, struct err *e)
{
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return err_param(e, ERR_RANGE, field,
                "'%s' has token id %d; this model has ids 0 to %d.", field, ids[i], n_vocab - 1);
    return 0;
}

int ask_check_vocab(const struct ask *ask, int32_t n_vocab, struct err *e)
{
    const struct sample_params *s = &ask->sample;

    for (int i = 0; i < s->n_bias; i++)
        if (check_ids("logit_bias", &s->bias[i].id, 1, n_vocab, e))
            return -1;
    if (check_ids("stop_token_ids", ask->stop_ids, ask->n_stop_ids, n_vocab, e) ||
        check_ids("allowed_token_ids", s->allowed, s->n_allowed, n_vocab, e))
        return -1;
    for (int i = 0; i < ask->n_prompts && ask->prompts; i++) {
        const struct ask_prompt *p = &ask->prompts[i];
        if (check_ids("prompt", p->ids, p->n_ids, n_vocab, e))
            return -1;
        for (int k = 0; k < p->n_pieces; k++)
            if (p->pieces[k].is_token && check_ids("prompt", &p->pieces[k].id, 1, n_vocab, e))
                return -1;
    }
    return 0;
}
