#include "format/hf/hf_tensors.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/hf/hf_recipe.h"

#include <math.h>
#include <stdio.h>

enum { TENSORS_MAX = 1 << 18, EXPERTS_MAX = 4096, GGUF_NAME_MAX = 128 };

void hf_tensors_clear(struct hf_tensors *t)
{
    for (size_t i = 0; i < t->n; i++)
        mem_free(t->all[i].sources);
    mem_free(t->all);
    str_map_free(t->names);
    hf_quants_clear(&t->quants);
    *t = (struct hf_tensors){ 0 };
}

/* ---- names */

/* Number at the start of *s, without sign and leading zeros, below 10^4; -1: none. */
static int take_number(struct str *s)
{
    size_t n = 0;
    int v = 0;

    while (n < s->n && n < 4 && s->p[n] >= '0' && s->p[n] <= '9')
        v = v * 10 + (s->p[n++] - '0');
    if (!n || (n > 1 && s->p[0] == '0'))
        return -1;
    *s = str_skip(*s, n);
    return v;
}

struct matched { /* numbers in a name; -1: none */
    int layer, expert;
    struct str suffix; /* text after the pattern */
};

static bool match_name(const char *pattern, struct str name, struct matched *m)
{
    *m = (struct matched){ -1, -1, STR_NONE };
    for (; *pattern; pattern++) {
        if (*pattern == '%') {
            int v = take_number(&name);
            if (v < 0)
                return false;
            *(*++pattern == 'd' ? &m->layer : &m->expert) = v;
        } else if (name.n && name.p[0] == *pattern) {
            name = str_skip(name, 1);
        } else {
            return false;
        }
    }
    m->suffix = name;
    return true;
}

/* Multimodal models have the language model below "language_model." or "model.language_model.".
 * "model." may stand for "backbone.". */
static bool match_row(const char *pattern, struct str name, struct matched *m)
{
    static const struct str outer = { "language_model.", 15 },
                            inner = { "model.language_model.", 21 };
    const size_t n_model = strlen("model."), n_backbone = strlen("backbone.");

    if (str_starts(name, inner))
        return !strncmp(pattern, "model.", n_model) &&
               match_name(pattern + n_model, str_skip(name, inner.n), m);
    name = str_starts(name, outer) ? str_skip(name, outer.n) : name;
    if (str_starts(name, STR("model.")) && !strncmp(pattern, "backbone.", n_backbone))
        return match_name(pattern + n_backbone, str_skip(name, n_model), m);
    return match_name(pattern, name, m);
}

int hf_tensors_init(struct hf_tensors *t, const struct hf_config *c, struct arena *a, struct err *e)
{
    *t = (struct hf_tensors){ .config = c, .arena = a, .names = str_map_new(1024) };
    if (!t->names)
        return err_set(e, ERR_MEMORY, "no memory for the tensor names");
    return hf_quants_read(&t->quants, c->all, c->text, a, e);
}

/* ---- adding */

static struct hf_recipe *find_recipe(struct hf_tensors *t, struct str name, struct err *e)
{
    uint32_t i;

    if (str_map_get(t->names, name, &i))
        return &t->all[i];
    if (t->n == TENSORS_MAX) {
        err_set(e, ERR_TOO_LARGE, "more than %d tensors", TENSORS_MAX);
        return NULL;
    }
    if (t->n == t->cap) {
        size_t cap = MAX(t->cap * 2, (size_t)256);
        struct hf_recipe *more = try_realloc(t->all, cap * sizeof(*more));
        if (!more) {
            err_set(e, ERR_MEMORY, "no memory for %zu tensors", cap);
            return NULL;
        }
        t->all = more;
        t->cap = cap;
    }
    name = arena_str(t->arena, name);
    if (!name.p || str_map_put(t->names, name, (uint32_t)t->n) < 0) {
        err_set(e, ERR_MEMORY, "no memory for the tensor names");
        return NULL;
    }
    t->all[t->n] = (struct hf_recipe){ .name = name };
    return &t->all[t->n++];
}

static struct hf_source *find_source(
    struct hf_recipe *r, int expert, int64_t n_experts, struct err *e)
{
    size_t at = expert < 0 ? 0 : (size_t)expert;

    if (at >= EXPERTS_MAX || expert >= MAX(n_experts, 1)) {
        err_set(e, ERR_RANGE, "tensor %.*s: expert %d", SHORT_ARG(r->from), expert);
        return NULL;
    }
    if (at >= r->n_sources) {
        struct hf_source *more = try_realloc(r->sources, (at + 1) * sizeof(*more));
        if (!more) {
            err_set(e, ERR_MEMORY, "no memory for %zu experts", at + 1);
            return NULL;
        }
        memset(more + r->n_sources, 0, (at + 1 - r->n_sources) * sizeof(*more));
        r->sources = more;
        r->n_sources = at + 1;
    }
    return &r->sources[at];
}

/* The place of a part in its source. */
static const struct st_tensor **place_of(struct hf_source *s, enum hf_role role)
{
    switch (role) {
    case HF_SCALES:
        return &s->scales;
    case HF_OFFSETS:
        return &s->offsets;
    case HF_FACTOR:
        return &s->factor;
    case HF_CODES:
    case HF_BIAS:
    case HF_UNUSED:
    case N_HF_ROLES:
        break;
    }
    return &s->codes;
}

/* Adds `from` as the codes, scales, offsets or factor of the tensor that `row` names. */
static int add_source(struct hf_tensors *t, const struct hf_tensor_row *row,
    const struct matched *m, const struct st_tensor *from, struct err *e)
{
    char name[GGUF_NAME_MAX], base[GGUF_NAME_MAX];
    const struct hf_suffix *suffix = hf_suffix_find(m->suffix);
    const bool is_bias = suffix->role == HF_BIAS;

    const char *number = strstr(row->to, "%d");
    if (number)
        snprintf(
            base, sizeof(base), "%.*s%d%s", (int)(number - row->to), row->to, m->layer, number + 2);
    else
        snprintf(base, sizeof(base), "%s", row->to);
    bool is_parameter = row->form == HF_FORM_COLUMN || row->form == HF_FORM_DECAY ||
                        row->form == HF_FORM_DECAYS || row->form == HF_FORM_VECTOR;
    snprintf(name, sizeof(name), "%s%s", base, is_bias ? ".bias" : is_parameter ? "" : ".weight");
    struct hf_recipe *r = find_recipe(t, str_of(name), e);
    if (!r)
        return -1;
    if (!r->n_sources) {
        r->from = from->name;
        r->is_bias = is_bias;
        r->is_per_expert = m->expert >= 0;
        r->is_norm = row->is_norm;
        r->form = is_bias ? HF_FORM_SAME : row->form;
        r->rows =
            t->config->family->swaps_halves || row->rows > HF_ROWS_K ? row->rows : HF_ROWS_ALL;
        struct str module = { from->name.p, from->name.n - m->suffix.n };
        if (hf_quants_of(&t->quants, module, &r->quant, e))
            return -1;
    }
    if (r->is_per_expert != (m->expert >= 0))
        return err_set(e, ERR_CORRUPT, "tensors %.*s and %.*s are the same matrix",
            SHORT_ARG(r->from), SHORT_ARG(from->name));
    struct hf_source *source = find_source(r, m->expert, t->config->n_experts, e);
    if (!source)
        return -1;
    const struct st_tensor **place = place_of(source, suffix->role);
    if (*place)
        return err_set(e, ERR_CORRUPT, "tensors %.*s and %.*s are the same matrix",
            SHORT_ARG((*place)->name), SHORT_ARG(from->name));
    *place = from;
    if (suffix->role == HF_FACTOR)
        r->factor = suffix;
    return 0;
}

/* Adds `from` to the tensors of all rows that match; *found: there is one. */
static int add_matches(struct hf_tensors *t, const struct hf_tensor_row *rows,
    const struct st_tensor *from, bool *found, struct err *e)
{
    struct matched m;
    const struct hf_suffix *suffix;

    for (; rows && rows->from; rows++) {
        suffix = match_row(rows->from, from->name, &m) ? hf_suffix_find(m.suffix) : NULL;
        if (!suffix)
            continue;
        *found = true;
        if (suffix->role == HF_UNUSED)
            continue;
        if (m.layer >= t->config->n_layers)
            return err_set(e, ERR_CORRUPT, "tensor %.*s: the network has %lld layers",
                SHORT_ARG(from->name), (long long)t->config->n_layers);
        if (add_source(t, rows, &m, from, e))
            return -1;
    }
    return 0;
}

/* Layers for drafts follow the others. */
static bool is_of_mtp_layer(const struct hf_config *c, struct str name)
{
    struct matched m;

    return match_row("model.layers.%d.", name, &m) && m.layer >= c->n_layers &&
           m.layer < c->n_layers + c->n_mtp_layers;
}

int hf_tensors_add(struct hf_tensors *t, const struct st_tensor *from, struct err *e)
{
    struct matched m;
    bool found = false;

    if (hf_tensor_is_ignored(from->name) || is_of_mtp_layer(t->config, from->name))
        return 0;
    if (t->config->is_tied && match_row("lm_head", from->name, &m))
        return 0; /* a tied head may be stored as well */
    const struct hf_tensor_row *rows = hf_family_rows(t->config->family, t->config->n_experts);
    if (add_matches(t, rows, from, &found, e) ||
        (!found && add_matches(t, hf_common_rows, from, &found, e)))
        return -1;
    if (!found)
        return err_set(e, ERR_UNSUPPORTED, "tensor %.*s is not expected in family %s",
            SHORT_ARG(from->name), t->config->family->model_type);
    return 0;
}

/* ---- end */

/* Sets what is added to the weights of norms. MLX stores the sums for families with DeltaNet, and
 * convolutions as [channels, taps, 1]. */
static int set_norm_offsets(struct hf_tensors *t, struct err *e)
{
    const struct st_tensor *first = NULL;
    bool is_summed = false;

    for (size_t i = 0; i < t->n && t->config->family->has_delta_net; i++) {
        const struct st_tensor *conv = t->all[i].n_sources ? t->all[i].sources[0].codes : NULL;
        if (t->all[i].form != HF_FORM_CONV || !conv || conv->n_dims != 3)
            continue;
        if (first && is_summed != (conv->dims[2] == 1))
            return err_set(e, ERR_CORRUPT, "tensors %.*s and %.*s have the layouts of two formats",
                SHORT_ARG(first->name), SHORT_ARG(conv->name));
        first = conv;
        is_summed = conv->dims[2] == 1;
    }
    for (size_t i = 0; i < t->n; i++)
        t->all[i].add = t->all[i].is_norm && t->config->family->adds_one && !is_summed ? 1 : 0;
    return 0;
}

/* Which layers have the tensor attn_v. */
static int check_values(const struct hf_tensors *t, struct err *e)
{
    const struct hf_config *c = t->config;
    char name[GGUF_NAME_MAX];
    uint32_t at;

    if (!c->family->has_window_heads)
        return 0;
    bool *has_values = arena_zalloc(t->arena, (size_t)c->n_layers, sizeof(*has_values));
    if (!has_values)
        return err_set(e, ERR_MEMORY, "no memory for the tensors");
    for (int64_t i = 0; i < c->n_layers; i++) {
        snprintf(name, sizeof(name), "blk.%d.attn_v.weight", (int)i);
        has_values[i] = str_map_get(t->names, str_of(name), &at);
    }
    return hf_gemma4_check_values(c, has_values, e);
}

static void free_recipes(void *recipes)
{
    struct hf_tensors *t = recipes;
    struct arena *a = t->arena;

    hf_tensors_clear(t);
    arena_free(a); /* contains *t */
}

/* A computed vector. */
static void add_factors(struct gguf_tensor *t, const char *name, const float *factors, size_t n)
{
    *t = (struct gguf_tensor){ .name = str_of(name),
        .type = Q_F32,
        .n_dims = 1,
        .dims = { n, 1, 1, 1 },
        .data = (const uint8_t *)factors,
        .bytes = n * sizeof(float) };
}

/* The tensor NAME.scale of a matrix with factors; *n grows by it. */
static int put_matrix_factors(
    const struct hf_recipe *r, struct arena *a, struct gguf_translation *out, struct err *e)
{
    const size_t n_name = r->name.n - strlen(".weight"), n = (size_t)r->n_matrices;
    char name[GGUF_NAME_MAX + 8];

    if (!r->factor)
        return 0;
    snprintf(name, sizeof(name), "%.*s.scale", (int)n_name, r->name.p);
    const char *copy = arena_str(a, str_of(name)).p;
    float *to = arena_zalloc(a, n, sizeof(*to));
    if (!copy || !to)
        return err_set(e, ERR_MEMORY, "no memory for %zu factors", n);
    for (size_t i = 0; i < n; i++) {
        const struct hf_source *s = &r->sources[r->is_per_expert ? i : 0];
        memcpy(&to[i], s->factor->data + (r->is_per_expert ? 0 : i * sizeof(float)), sizeof(float));
        if (!isfinite(to[i]) || (r->factor->divisor > 0 && !isfinite(r->factor->divisor / to[i])))
            return err_set(e, ERR_CORRUPT, "tensor %.*s: the factor %g is not supported",
                SHORT_ARG(s->factor->name), (double)to[i]);
        to[i] = r->factor->divisor > 0 ? r->factor->divisor / to[i] : to[i] * r->factor->multiplier;
    }
    add_factors(&out->tensors[out->n_tensors++], copy, to, n);
    return 0;
}

int hf_tensors_end(struct hf_tensors *t, struct gguf_translation *out, struct err *e)
{
    const struct hf_config *c = t->config;
    const struct {
        const char *name;
        const float *factors;
    } computed[] = { { "rope_freqs.weight", c->rope_freqs },
        { "rope_factors_long.weight", c->rope_long },
        { "rope_factors_short.weight", c->rope_short } };

    out->tensors = try_calloc(2 * t->n + ARRAY_LEN(computed), sizeof(*out->tensors));
    if (!out->tensors)
        return err_set(e, ERR_MEMORY, "no memory for %zu tensors", t->n);
    if (set_norm_offsets(t, e) || check_values(t, e))
        return -1;
    for (size_t i = 0; i < t->n; i++)
        if (hf_recipe_complete(&t->all[i], c, e) ||
            hf_recipe_describe(&t->all[i], &out->tensors[out->n_tensors++], e) ||
            put_matrix_factors(&t->all[i], t->arena, out, e))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(computed); i++)
        if (computed[i].factors)
            add_factors(
                &out->tensors[out->n_tensors++], computed[i].name, computed[i].factors, c->n_rope);
    struct hf_tensors *kept = arena_zalloc(t->arena, 1, sizeof(*kept));
    if (!kept)
        return err_set(e, ERR_MEMORY, "no memory for the tensors");
    *kept = *t;
    *t = (struct hf_tensors){ 0 };
    out->recipes = kept;
    out->free_recipes = free_recipes;
    out->check = hf_check_rows;
    out->read_rows = hf_read_rows;
    out->release = hf_release;
    return 0;
}
