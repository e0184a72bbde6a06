#include "generate/request.h"

#include <stdlib.h>

const struct request request_default = {
    .n_prompts = 1,
    .n = 1,
    .best_of = 1,
    .max_tokens = -1,
    .id_slot = -1,
    .skip_special_tokens = true,
    .add_special_tokens = true,
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

const char *constraint_kind_name(enum constraint_kind kind)
{
    switch (kind) {
    case CONSTRAINT_JSON:
        return "json_object";
    case CONSTRAINT_JSON_SCHEMA:
        return "json_schema";
    case CONSTRAINT_GBNF:
        return "gbnf";
    case CONSTRAINT_LARK:
        return "lark";
    case CONSTRAINT_REGEX:
        return "regex";
    case CONSTRAINT_CHOICE:
        return "choice";
    case CONSTRAINT_STRUCTURAL_TAG:
        return "structural_tag";
    case CONSTRAINT_TOOLS:
        return "tools";
    }
    return "";
}

struct bias_row { /* a bias with its index: for two entries of a token the last is used */
    struct token_bias bias;
    int place;
};

static int compare_bias(const void *pa, const void *pb)
{
    const struct bias_row *a = pa, *b = pb;

    if (a->bias.id != b->bias.id)
        return a->bias.id < b->bias.id ? -1 : 1;
    return a->place - b->place;
}

int request_set_bias(
    struct request *request, struct arena *a, const struct token_bias *list, int n, struct err *e)
{
    struct bias_row *rows = arena_zalloc(a, (size_t)MAX(n, 1), sizeof(*rows));
    struct token_bias *bias = arena_zalloc(a, (size_t)MAX(n, 1), sizeof(*bias));
    int kept = 0;

    if (!rows || !bias)
        return err_set(e, ERR_MEMORY, "No memory for this request.");
    for (int i = 0; i < n; i++)
        rows[i] = (struct bias_row){ list[i], i };
    qsort(rows, (size_t)n, sizeof(*rows), compare_bias);
    for (int i = 0; i < n; i++)
        if (i + 1 == n || rows[i].bias.id != rows[i + 1].bias.id)
            bias[kept++] = rows[i].bias;
    request->sample.bias = bias;
    request->sample.n_bias = kept;
    return 0;
}

bool request_has(const struct request *request, const char *field)
{
    return !json_is_null(json_get(request->raw, field));
}

static int check_ids(const char *field, const int32_t *ids, int n, int32_t n_vocab, struct err *e)
{
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return err_param(e, ERR_RANGE, field,
                "'%s' has token id %d; this model has ids 0 to %d.", field, ids[i], n_vocab - 1);
    return 0;
}

int request_check_vocab(const struct request *request, int32_t n_vocab, struct err *e)
{
    const struct sample_params *s = &request->sample;

    for (int i = 0; i < s->n_bias; i++)
        if (check_ids("logit_bias", &s->bias[i].id, 1, n_vocab, e))
            return -1;
    if (check_ids("stop_token_ids", request->stop_ids, request->n_stop_ids, n_vocab, e) ||
        check_ids("allowed_token_ids", s->allowed, s->n_allowed, n_vocab, e))
        return -1;
    for (int i = 0; i < request->n_prompts && request->prompts; i++) {
        const struct request_prompt *p = &request->prompts[i];
        if (check_ids("prompt", p->ids, p->n_ids, n_vocab, e))
            return -1;
        for (int k = 0; k < p->n_pieces; k++)
            if (p->pieces[k].is_token && check_ids("prompt", &p->pieces[k].id, 1, n_vocab, e))
                return -1;
    }
    return 0;
}

#define TOO_LONG(has)                                                                              \
    "This model's maximum context length is %d tokens. However, your request " has " %d tokens "   \
    "and exceeds the available context size. Please reduce the length of the %s."

int err_context(struct err *e, const char *param, int n_prompt_tokens, int n_ctx)
{
    return err_param(e, ERR_CONTEXT, param, TOO_LONG("has"), n_ctx, n_prompt_tokens, param);
}

int err_context_at_least(struct err *e, const char *param, int n_prompt_tokens, int n_ctx)
{
    return err_param(
        e, ERR_CONTEXT, param, TOO_LONG("has at least"), n_ctx, n_prompt_tokens, param);
}
