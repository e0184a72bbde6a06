#include "kernel/attn.h"
#include "kernel/acts.h"
#include "kernel/blocks.h"

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static const char *const kv_type_names[N_KV_TYPES] = { "f16", "bf16", "q8_0" };

enum kv_type kv_type_by_name(const char *name)
{
    int i = 0;

    while (i < N_KV_TYPES && strcmp(kv_type_names[i], name))
        i++;
    return (enum kv_type)i;
}

static size_t n_q8_blocks(int dim)
{
    return ((size_t)dim + Q8_0_BLOCK - 1) / Q8_0_BLOCK;
}

static size_t layer_bytes(const struct kv_layout *l)
{
    return (size_t)l->n_kv_heads * (l->k_bytes + l->v_bytes);
}

void kv_layout_init_values(struct kv_layout *l, enum kv_type type, int n_kv_heads, int head_dim,
    int value_dim, bool is_latent)
{
    size_t tokens = round_up(PAGE_TOKENS, KV_GROUP), dim = (size_t)head_dim;

    CHECK(n_kv_heads > 0 && head_dim > 0 && head_dim <= KV_MAX_DIM && head_dim % 2 == 0);
    CHECK(value_dim > 0 && value_dim <= KV_MAX_DIM);
    CHECK(!is_latent || (head_dim % 16 == 0 && value_dim % 16 == 0 && value_dim <= head_dim));
    *l = (struct kv_layout){ .type = type,
        .n_kv_heads = n_kv_heads,
        .head_dim = head_dim,
        .value_dim = value_dim,
        .is_latent = is_latent };
    if (type == KV_Q8_0) {
        l->k_bytes = tokens / KV_GROUP * n_q8_blocks(head_dim) * sizeof(struct p16_q8_0);
        l->v_scales = tokens * round_up((size_t)value_dim, 16);
        l->v_bytes = l->v_scales + n_q8_blocks(value_dim) * tokens * sizeof(uint16_t);
    } else {
        l->k_bytes = tokens * round_up(dim, is_latent ? 16 : 32) * sizeof(uint16_t);
        l->v_bytes = tokens * round_up((size_t)value_dim, 16) * sizeof(uint16_t);
    }
    if (is_latent)
        l->v_bytes = 0;
    l->page_bytes = layer_bytes(l);
}

void kv_layout_init(struct kv_layout *l, enum kv_type type, int n_kv_heads, int head_dim)
{
    kv_layout_init_values(l, type, n_kv_heads, head_dim, head_dim, false);
}

size_t kv_layout_place(struct kv_layout *const *layers, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++) {
        layers[i]->offset = bytes;
        bytes += layer_bytes(layers[i]);
    }
    for (int i = 0; i < n; i++)
        layers[i]->page_bytes = bytes;
    return bytes;
}

struct kv_slot kv_slot_at(const struct kv_layout *l, uint8_t *page, int kv_head, int token)
{
    uint8_t *k = page + l->offset + (size_t)kv_head * (l->k_bytes + l->v_bytes);

    DCHECK(kv_head < l->n_kv_heads && token < PAGE_TOKENS);
    return (struct kv_slot){ .layout = l, .k = k, .v = k + l->k_bytes, .token = token };
}

struct attn_args attn_args_of_row(const struct attn_args *a, int row)
{
    struct attn_args one = *a;
    size_t at = attn_row_index(a, row);

    one.n_rows = 1;
    one.rows = NULL;
    one.n_shared = 0;
    one.pages = a->rows ? a->rows[row].pages : a->pages;
    one.n_keys = a->rows ? a->rows[row].n_keys : a->n_keys + row;
    one.q = a->q + at * a->q_stride;
    one.out = a->out + at * a->out_stride;
    return one;
}

int attn_max_rows(int n_q)
{
    return MAX(KV_MAX_ROW_HEADS / n_q, 1);
}

size_t attn_scratch_floats(const struct kv_layout *l, int n_q)
{
    size_t dim = round_up((size_t)MAX(l->head_dim, l->value_dim), 16);
    size_t q8 = n_q8_blocks(l->head_dim) * sizeof(struct act_q8_0) / sizeof(float);

    /* Per query head in use: the query (for q8_0 also quantised), two outputs (split and total),
     * their maxima and sums, and space to align to a cache line. For the eight heads that are
     * processed together: a block of scores, and of 16-bit weights. The 16 at the end are for
     * aligning the start. */
    size_t floats_per_head = 3 * dim + 32 + (l->type == KV_Q8_0 ? q8 : 0);
    return (size_t)MAX(n_q, KV_MAX_ROW_HEADS) * floats_per_head + 8 * (KV_BLOCK + KV_BLOCK / 2) +
           16;
}

/* ---- split-KV: states of single splits */

/* Floats before the outputs: maxima and sums, rounded up to whole cache lines, so that no two
 * splits share a line. */
static size_t state_stats_floats(int n_q)
{
    return round_up(2 * (size_t)n_q, 16);
}

size_t attn_state_floats(const struct kv_layout *l, int n_q)
{
    return state_stats_floats(n_q) + (size_t)n_q * round_up((size_t)l->value_dim, 16);
}

struct attn_state attn_state_at(const struct attn_args *a, int split, int head)
{
    const size_t room = round_up((size_t)a->layout->value_dim, 16);
    float *at = a->states + (size_t)split * attn_state_floats(a->layout, a->n_q);

    DCHECK(a->n_rows == 1 && split < attn_n_splits(a->n_keys) && head < a->n_q);
    return (struct attn_state){ at + head, at + a->n_q + head,
        at + state_stats_floats(a->n_q) + (size_t)head * room };
}

struct attn_state attn_sink_state(const struct attn_args *a, int head, float *max, float *sum)
{
    static const float zeros[KV_MAX_DIM];

    *max = a->sinks[head];
    *sum = 1;
    return (struct attn_state){ max, sum, (float *)(uintptr_t)zeros };
}

void attn_merge_splits(const struct attn_args *a, attn_merge_fn merge, attn_finish_fn finish)
{
    const int dim = a->layout->value_dim, n = attn_n_splits(a->n_keys);
    const int first = attn_first_key(a, a->n_keys) / KV_SPLIT;
    float max, sum;

    for (int h = 0; h < a->n_q; h++) {
        struct attn_state total = attn_state_at(a, first, h);
        for (int i = first + 1; i < n; i++)
            merge(total, attn_state_at(a, i, h), dim);
        if (a->sinks)
            merge(total, attn_sink_state(a, h, &max, &sum), dim);
        finish(total, a->out + (size_t)h * (size_t)dim, dim);
    }
}
