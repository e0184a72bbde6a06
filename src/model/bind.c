#include "model/bind.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/block.h"
#include "model/content.h"
#include "model/kv_b.h"
#include "model/tensor_bytes.h"
#include "os/clock.h"

#include <math.h>
#include <stdio.h>

enum { ALIGNMENT = 64, PACK_PANELS = 16 };

enum { MAX_PARTS = 4 };

/* Rows of a tensor of the file that belong to one matrix of the model: the file has n_groups groups
 * of `group` rows, and each has n of them, from row `from` of the group on. */
struct tensor_part {
    size_t field; /* struct packed, in struct layer; that of the previous part: further rows */
    int n_groups, group, from, n;
};

/* Field of each tensor without parts in struct weights or, from TENSOR_FIRST_OF_LAYER on, in struct
 * layer: a struct packed for matrices, a pointer for vectors. */
static const size_t tensor_fields[N_TENSORS] = {
    [TENSOR_EMBD] = offsetof(struct weights, embd),
    [TENSOR_OUT_NORM] = offsetof(struct weights, out_norm),
    [TENSOR_EMBD_NORM] = offsetof(struct weights, out_norm),
    [TENSOR_HEAD] = offsetof(struct weights, head),
    [TENSOR_ROPE_FREQS] = offsetof(struct weights, rope_factors),
    [TENSOR_ROPE_LONG] = offsetof(struct weights, rope_long),
    [TENSOR_ROPE_SHORT] = offsetof(struct weights, rope_short),
    [TENSOR_ATTN_NORM] = offsetof(struct layer, attn_norm),
    [TENSOR_QKV] = offsetof(struct layer, recurrent.in),
    [TENSOR_Q] = offsetof(struct layer, q),
    [TENSOR_K] = offsetof(struct layer, k),
    [TENSOR_V] = offsetof(struct layer, v),
    [TENSOR_Q_BIAS] = offsetof(struct layer, q_bias),
    [TENSOR_K_BIAS] = offsetof(struct layer, k_bias),
    [TENSOR_V_BIAS] = offsetof(struct layer, v_bias),
    [TENSOR_Q_NORM] = offsetof(struct layer, q_norm),
    [TENSOR_K_NORM] = offsetof(struct layer, k_norm),
    [TENSOR_Q_A] = offsetof(struct layer, q_a),
    [TENSOR_Q_A_NORM] = offsetof(struct layer, q_a_norm),
    [TENSOR_Q_B] = offsetof(struct layer, q),
    [TENSOR_KV_A] = offsetof(struct layer, k),
    [TENSOR_KV_A_NORM] = offsetof(struct layer, kv_a_norm),
    [TENSOR_K_B] = offsetof(struct layer, k_b),
    [TENSOR_V_B] = offsetof(struct layer, v_b),
    [TENSOR_O] = offsetof(struct layer, o),
    [TENSOR_MIX_GATE] = offsetof(struct layer, mix_gate),
    [TENSOR_SSM_ALPHA] = offsetof(struct layer, recurrent.alpha),
    [TENSOR_SSM_BETA] = offsetof(struct layer, recurrent.beta),
    [TENSOR_SSM_CONV] = offsetof(struct layer, recurrent.conv),
    [TENSOR_SSM_CONV_BIAS] = offsetof(struct layer, recurrent.conv_bias),
    [TENSOR_SSM_DT_BIAS] = offsetof(struct layer, recurrent.dt_bias),
    [TENSOR_SSM_A] = offsetof(struct layer, recurrent.a),
    [TENSOR_SSM_D] = offsetof(struct layer, recurrent.d),
    [TENSOR_SSM_NORM] = offsetof(struct layer, recurrent.norm),
    [TENSOR_SSM_OUT] = offsetof(struct layer, o),
    [TENSOR_SHORT_CONV] = offsetof(struct layer, recurrent.conv),
    [TENSOR_SHORT_CONV_OUT] = offsetof(struct layer, o),
    [TENSOR_POST_ATTN_NORM] = offsetof(struct layer, post_attn_norm),
    [TENSOR_FFN_NORM] = offsetof(struct layer, ffn_norm),
    [TENSOR_POST_FFN_NORM] = offsetof(struct layer, post_ffn_norm),
    [TENSOR_GATE] = offsetof(struct layer, ffn.gate),
    [TENSOR_UP] = offsetof(struct layer, ffn.up),
    [TENSOR_DOWN] = offsetof(struct layer, ffn.down),
    [TENSOR_INPUT_TABLE] = offsetof(struct weights, input_table),
    [TENSOR_INPUT_MODEL_PROJ] = offsetof(struct weights, input_model_proj),
    [TENSOR_INPUT_MODEL_NORM] = offsetof(struct weights, input_model_norm),
    [TENSOR_INPUT_GATE] = offsetof(struct layer, input_gate),
    [TENSOR_INPUT_PROJ] = offsetof(struct layer, input_proj),
    [TENSOR_INPUT_NORM] = offsetof(struct layer, input_norm),
    [TENSOR_OUT_SCALE] = offsetof(struct layer, out_scale),
    [TENSOR_ROUTER] = offsetof(struct layer, router),
    [TENSOR_SINKS] = offsetof(struct layer, sinks),
    [TENSOR_O_BIAS] = offsetof(struct layer, o_bias),
    [TENSOR_ROUTER_SCORE_BIAS] = offsetof(struct layer, router_score_bias),
    [TENSOR_GATE_EXPERTS_BIAS] = offsetof(struct layer, gate_bias),
    [TENSOR_UP_EXPERTS_BIAS] = offsetof(struct layer, up_bias),
    [TENSOR_DOWN_EXPERTS_BIAS] = offsetof(struct layer, down_bias),
    [TENSOR_ROUTER_BIAS] = offsetof(struct layer, router_bias),
    [TENSOR_GATE_EXPERTS] = offsetof(struct layer, ffn.gate),
    [TENSOR_UP_EXPERTS] = offsetof(struct layer, ffn.up),
    [TENSOR_DOWN_EXPERTS] = offsetof(struct layer, ffn.down),
    [TENSOR_DOWN_EXPERTS_SCALE] = offsetof(struct layer, expert_scale),
    [TENSOR_ROUTER_NORM] = offsetof(struct layer, router_norm),
    [TENSOR_EXPERT_NORM] = offsetof(struct layer, expert_norm),
    [TENSOR_POST_EXPERT_NORM] = offsetof(struct layer, post_expert_norm),
    [TENSOR_POST_DENSE_NORM] = offsetof(struct layer, post_dense_norm),
    [TENSOR_LATENT_DOWN] = offsetof(struct layer, latent_down),
    [TENSOR_LATENT_UP] = offsetof(struct layer, latent_up),
    [TENSOR_SHARED_GATE] = offsetof(struct layer, shared.gate),
    [TENSOR_SHARED_UP] = offsetof(struct layer, shared.up),
    [TENSOR_SHARED_DOWN] = offsetof(struct layer, shared.down),
    [TENSOR_SHARED_ROUTER] = offsetof(struct layer, shared_router),
};

struct bind {
    struct weights *w;
    const struct hparams *h;
    const struct gguf *g;
    struct thread_pool *thread_pool;
    const struct bind_options *o;
    struct tensor_bytes bytes; /* content of the tensor that is being loaded */
    struct content content;    /* digest of all tensors, for the packfile */
    bool has_digest;
    size_t used;         /* bytes of w->block */
    bool is_packed;      /* the block already contains all weights */
    uint64_t file_bytes; /* size of the tensors packed so far */
    uint64_t file_total;
};

struct tensor_slot { /* one tensor of one layer */
    enum tensor id;
    int layer;
    char name[64];
    const struct gguf_tensor *t;     /* NULL: an optional tensor that the file does not have */
    const struct gguf_tensor *scale; /* factors of the outputs; NULL: none */
    int rows, cols;
    int n_matrices; /* number of matrices of this size: one per expert or query head; else 1 */
};

/* The tensor is F32 and is loaded as it is: a vector, or a table of biases. */
static bool is_vector(enum tensor id)
{
    return tensor_rows[id].rows == DIM_ONE || tensor_rows[id].is_table;
}

static int check_shape(const struct tensor_slot *s, struct err *e)
{
    const struct gguf_tensor *t = s->t;
    const int want[4] = { s->cols, s->rows, s->n_matrices, 1 };
    bool ok = true;
    for (int i = 0; i < 4; i++)
        ok = ok && t->dims[i] == (uint64_t)want[i];
    if (ok)
        return 0;
    return err_set(e, ERR_CORRUPT, "tensor %s: expected [%d, %d, %d], found [%llu, %llu, %llu%s]",
        s->name, want[0], want[1], want[2], (unsigned long long)t->dims[0],
        (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
        t->n_dims > 3 ? ", ..." : "");
}

static int check_type(const struct tensor_slot *s, struct err *e)
{
    const struct qtype_info *q = qtype_info(s->t->type);
    const char *found = q ? q->name : "an unknown type";

    if (is_vector(s->id) && s->t->type != Q_F32)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: expected F32, found %s", s->name, found);
    if (!is_vector(s->id) && gemm_slot(s->t->type) < 0)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: type %s is not supported", s->name, found);
    if (q && s->cols % (int)q->block)
        return err_set(e, ERR_CORRUPT,
            "tensor %s: row length %d is not a multiple of the %s block size %u", s->name, s->cols,
            q->name, q->block);
    return 0;
}

/* Number of factors of a matrix: one, or one for each expert. */
static int n_factors(const struct tensor_slot *s)
{
    return tensor_rows[s->id].is_per_expert ? s->n_matrices : 1;
}

/* Finds the factors of a matrix. */
static int find_scale(struct tensor_slot *s, const struct bind *b, struct err *e)
{
    const int n_name = (int)(strlen(s->name) - strlen(".weight"));
    const struct gguf_tensor *t;
    char name[64];

    if (!tensor_rows[s->id].has_scale)
        return 0;
    if (s->id == TENSOR_DOWN_EXPERTS &&
        hparams_need(b->h, TENSOR_DOWN_EXPERTS_SCALE, s->layer) != NEED_NO)
        return 0; /* a tensor of the family, a factor of the weights of the experts */
    snprintf(name, sizeof(name), "%.*s.scale", n_name, s->name);
    t = s->scale = gguf_tensor(b->g, name);
    if (!t)
        return 0;
    if (t->type != Q_F32 || !t->data || t->n_dims > 1 || t->dims[0] != (uint64_t)n_factors(s))
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: expected F32 [%d], found %s [%llu%s]", name,
            n_factors(s), qtype_info(t->type) ? qtype_info(t->type)->name : "an unknown type",
            (unsigned long long)t->dims[0], t->n_dims > 1 ? ", ..." : "");
    for (int i = 0; i < n_factors(s); i++) {
        float f;
        memcpy(&f, t->data + (size_t)i * sizeof(f), sizeof(f));
        if (!isfinite(f))
            return err_set(e, ERR_CORRUPT, "tensor %s: factor %d is not finite", name, i);
    }
    return 0;
}

/* Experts have either one tensor with the rows of gate and up, or two. */
static enum need need_of(const struct bind *b, const struct tensor_slot *s)
{
    const enum need need = hparams_need(b->h, s->id, s->layer);
    char other[64];

    if (s->id == TENSOR_DOWN_EXPERTS_SCALE && need == NEED_NO) {
        snprintf(other, sizeof(other), tensor_rows[TENSOR_DOWN_EXPERTS].name, s->layer);
        return gguf_tensor(b->g, other) ? NEED_UNUSED : NEED_NO; /* see find_scale */
    }
    if (s->id != TENSOR_GATE_EXPERTS && s->id != TENSOR_UP_EXPERTS)
        return need;
    snprintf(other, sizeof(other), tensor_rows[TENSOR_GATE_UP_EXPERTS].name, s->layer);
    return gguf_tensor(b->g, other) ? NEED_NO : need;
}

/* Finds and checks the tensor; s->t remains NULL if it is optional and absent. */
static int find_slot(struct tensor_slot *s, const struct bind *b, struct err *e)
{
    const struct tensor_row *row = &tensor_rows[s->id];
    enum need need = need_of(b, s);

    snprintf(s->name, sizeof(s->name), row->name, s->layer);
    s->cols = hparams_dim(b->h, row->cols, s->layer);
    s->rows = hparams_dim(b->h, row->rows, s->layer);
    s->n_matrices = row->is_per_expert ? b->h->n_experts
                    : row->is_per_head ? hparams_dim(b->h, DIM_HEADS, s->layer)
                                       : 1;
    s->t = need == NEED_UNUSED ? NULL : gguf_tensor(b->g, s->name);
    if (!s->t)
        return need == NEED_YES ? err_set(e, ERR_CORRUPT, "tensor %s is missing", s->name) : 0;
    if (need == NEED_NO)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s is not expected in family %s%s", s->name,
            b->h->family->arch,
            s->id < TENSOR_GATE                   ? ""
            : hparams_has_experts(b->h, s->layer) ? ", in a layer with experts"
                                                  : ", in a layer without experts");
    return check_shape(s, e) || check_type(s, e) || find_scale(s, b, e) ? -1 : 0;
}

/* Number of matrix rows: matrices of experts and heads are stacked to one tall matrix, each of
 * whole panels. */
static int all_rows(const struct tensor_slot *s)
{
    return s->rows * s->n_matrices;
}

static size_t align_bytes(size_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* parts_of() for the tensors of recurrent layers; s is one of them or of the other layers. */
static int recurrent_parts_of(const struct recurrent_params *r, const struct tensor_slot *s,
    struct tensor_part parts[MAX_PARTS])
{
    if (s->id == TENSOR_SSM_BETA_ALPHA) {
        const int n = r->n_key_heads, d = r->n_value_heads / n;
        parts[0] = (struct tensor_part){ offsetof(struct layer, recurrent.beta), n, 2 * d, 0, d };
        parts[1] = (struct tensor_part){ offsetof(struct layer, recurrent.alpha), n, 2 * d, d, d };
        return 2;
    }
    if (s->id == TENSOR_SHORT_CONV_IN) {
        const int n = r->n_channels;
        parts[0] = (struct tensor_part){ offsetof(struct layer, recurrent.in), 1, 3 * n, 0, n };
        parts[1] = (struct tensor_part){ offsetof(struct layer, mix_gate), 1, 3 * n, n, n };
        parts[2] =
            (struct tensor_part){ offsetof(struct layer, recurrent.factor), 1, 3 * n, 2 * n, n };
        return 3;
    }
    if (s->id == TENSOR_SSM_IN) {
        const int n = r->n_key_heads, k = r->key_dim, v = r->n_value_heads / n * r->value_dim;
        const size_t in = offsetof(struct layer, recurrent.in);
        const size_t gate = offsetof(struct layer, mix_gate);
        parts[0] = (struct tensor_part){ in, n, 2 * k + 2 * v, 0, k };
        parts[1] = (struct tensor_part){ in, n, 2 * k + 2 * v, k, k };
        parts[2] = (struct tensor_part){ in, n, 2 * k + 2 * v, 2 * k, v };
        parts[3] = (struct tensor_part){ gate, n, 2 * k + 2 * v, 2 * k + v, v };
        return 4;
    }
    return 0;
}

static int mamba2_parts_of(const struct recurrent_params *r, const struct tensor_slot *s,
    struct tensor_part parts[MAX_PARTS])
{
    const int values = r->n_value_heads * r->value_dim;

    if (s->id != TENSOR_SSM_IN)
        return 0;
    parts[0] = (struct tensor_part){ offsetof(struct layer, mix_gate), 1, s->rows, 0, values };
    parts[1] = (struct tensor_part){ offsetof(struct layer, recurrent.in), 1, s->rows, values,
        r->n_channels };
    parts[2] = (struct tensor_part){ offsetof(struct layer, recurrent.alpha), 1, s->rows,
        values + r->n_channels, r->n_value_heads };
    return 3;
}

/* The number of parts of a tensor that is not one matrix with its rows in their order; 0: it is. */
static int parts_of(
    const struct bind *b, const struct tensor_slot *s, struct tensor_part parts[MAX_PARTS])
{
    const struct layer_params *p = &b->h->layers[s->layer];
    const struct recurrent_params *r = &b->h->recurrent;
    const int kv = p->n_kv_heads * p->head_dim, q = p->n_heads * p->head_dim;

    if (s->id == TENSOR_QKV && p->mixer == MIXER_ATTENTION) {
        parts[0] = (struct tensor_part){ offsetof(struct layer, q), 1, s->rows, 0, q };
        parts[1] = (struct tensor_part){ offsetof(struct layer, k), 1, s->rows, q, kv };
        parts[2] = (struct tensor_part){ offsetof(struct layer, v), 1, s->rows, q + kv, kv };
        return 3;
    }
    if (s->id == TENSOR_UP && b->h->family->fuses_gate_up) {
        parts[0] = (struct tensor_part){ offsetof(struct layer, ffn.gate), 1, s->rows, 0, p->d_ff };
        parts[1] =
            (struct tensor_part){ offsetof(struct layer, ffn.up), 1, s->rows, p->d_ff, p->d_ff };
        return 2;
    }
    if (s->id == TENSOR_GATE_UP_EXPERTS) {
        const int n = s->n_matrices, ff = b->h->d_ff_expert;
        parts[0] = (struct tensor_part){ offsetof(struct layer, ffn.gate), n, 2 * ff, 0, ff };
        parts[1] = (struct tensor_part){ offsetof(struct layer, ffn.up), n, 2 * ff, ff, ff };
        return 2;
    }
    if (s->id == TENSOR_Q && b->h->family->gates_attention) {
        const int n = p->n_heads, d = p->head_dim;
        parts[0] = (struct tensor_part){ offsetof(struct layer, q), n, 2 * d, 0, d };
        parts[1] = (struct tensor_part){ offsetof(struct layer, mix_gate), n, 2 * d, d, d };
        return 2;
    }
    return p->mixer == MIXER_MAMBA2 ? mamba2_parts_of(r, s, parts)
                                    : recurrent_parts_of(r, s, parts);
}

/* Number of parts from `from` on that are the rows of one matrix, and the number of these rows. */
static int parts_of_matrix(const struct tensor_part *parts, int from, int n_parts, int *n_rows)
{
    int to = from;

    for (*n_rows = 0; to < n_parts && parts[to].field == parts[from].field; to++)
        *n_rows += parts[to].n_groups * parts[to].n;
    return to - from;
}

/* Sizes of k_b and v_b in attn_kv_b. */
static struct kv_b kv_b_of(const struct bind *b, const struct tensor_slot *s)
{
    const struct latent_params *p = &b->h->latent;

    return (struct kv_b){ .type = s->t->type,
        .n_heads = hparams_dim(b->h, DIM_HEADS, s->layer),
        .nope_dim = p->nope_dim,
        .value_dim = p->value_dim,
        .kv_rank = p->kv_rank,
        .rows = s->t->data,
        .row_bytes = (size_t)s->t->bytes / (size_t)s->rows };
}

static size_t kv_b_bytes(const struct kv_b *w)
{
    return align_bytes(pack_bytes(Q_F32, w->n_heads * w->kv_rank, w->nope_dim)) +
           align_bytes(pack_bytes(w->type, w->n_heads * w->value_dim, w->kv_rank));
}

static size_t slot_bytes(const struct bind *b, const struct tensor_slot *s)
{
    struct tensor_part parts[MAX_PARTS];
    const int n_parts = parts_of(b, s, parts);
    size_t bytes = s->scale ? align_bytes((size_t)n_factors(s) * sizeof(float)) : 0;

    if (s->id == TENSOR_KV_B) {
        const struct kv_b w = kv_b_of(b, s);
        return bytes + kv_b_bytes(&w);
    }
    if (s->id == TENSOR_INPUT_TABLE)
        return 0; /* stays in the file */
    if (is_vector(s->id))
        return align_bytes((size_t)s->cols * (size_t)s->rows * sizeof(float));
    if (!n_parts)
        return bytes + align_bytes(pack_bytes(s->t->type, all_rows(s), s->cols));
    for (int i = 0, n_rows; i < n_parts;) {
        i += parts_of_matrix(parts, i, n_parts, &n_rows);
        bytes += align_bytes(pack_bytes(s->t->type, n_rows, s->cols));
    }
    return bytes;
}

typedef int (*slot_fn)(struct bind *b, struct tensor_slot *s, struct err *e);

static int each_slot(struct bind *b, slot_fn fn, struct err *e)
{
    for (int t = 0; t < TENSOR_FIRST_OF_LAYER; t++) {
        struct tensor_slot s = { .id = (enum tensor)t };
        if (find_slot(&s, b, e) || fn(b, &s, e))
            return -1;
    }
    for (int l = 0; l < b->h->n_layers; l++)
        for (int t = TENSOR_FIRST_OF_LAYER; t < N_TENSORS; t++) {
            struct tensor_slot s = { .id = (enum tensor)t, .layer = l };
            if (find_slot(&s, b, e) || fn(b, &s, e))
                return -1;
        }
    return 0;
}

/* ---- first pass: check the presence, add up the size */

static int measure_tensor(struct bind *b, struct tensor_slot *s, struct err *e)
{
    if (!s->t)
        return 0;
    b->w->bytes += slot_bytes(b, s);
    b->w->n_params += (uint64_t)all_rows(s) * (uint64_t)s->cols;
    b->file_total += s->t->bytes;
    return 0;
}

/* The name is that of a factor, and the file has the matrix. */
static bool is_scale_of_tensor(const struct bind *b, struct str name, int *layer)
{
    enum tensor id;
    bool is_of_input;
    char weight[64];

    if (!tensor_parse_scale(name, &id, layer, &is_of_input))
        return false;
    snprintf(weight, sizeof(weight), tensor_rows[id].name, *layer);
    return gguf_tensor(b->g, weight) != NULL;
}

/* A tensor that is not loaded would be an operation that is not computed: the result would be
 * wrong. */
static int reject_unknown_tensors(const struct bind *b, struct err *e)
{
    for (size_t i = 0; i < gguf_n_tensors(b->g); i++) {
        struct str name = gguf_tensor_at(b->g, i)->name;
        enum tensor id;
        int layer;
        layer = tensor_layer(name);
        if (layer >= b->h->n_layers && layer < b->h->n_layers + b->h->n_mtp_layers)
            continue;
        if (!tensor_parse(name, &id, &layer) && !is_scale_of_tensor(b, name, &layer))
            return err_set(e, ERR_UNSUPPORTED, "tensor %.*s is not expected in family %s",
                (int)MIN(name.n, (size_t)80), name.p, b->h->family->arch);
        if (layer >= b->h->n_layers)
            return err_set(e, ERR_CORRUPT, "tensor " STR_FMT ": the network has %d layers",
                STR_ARG(name), b->h->n_layers);
    }
    return 0;
}

/* The input matrices of a recurrent layer are either one tensor or two. */
static int check_recurrent_inputs(const struct bind *b, struct err *e)
{
    static const enum tensor ids[] = { TENSOR_QKV, TENSOR_MIX_GATE, TENSOR_SSM_IN };
    bool has[ARRAY_LEN(ids)];
    char name[ARRAY_LEN(ids)][64];

    for (int layer = 0; layer < b->h->n_layers; layer++) {
        if (hparams_need(b->h, TENSOR_SSM_IN, layer) != NEED_MAYBE)
            continue;
        for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
            snprintf(name[i], sizeof(name[i]), tensor_rows[ids[i]].name, layer);
            has[i] = gguf_tensor(b->g, name[i]);
        }
        if (has[2] ? has[0] || has[1] : !has[0] || !has[1])
            return err_set(e, ERR_CORRUPT, "either tensors %s and %s or tensor %s are required",
                name[0], name[1], name[2]);
    }
    return 0;
}

/* ---- second pass: pack */

struct pack_job {
    struct thread_pool *thread_pool;
    struct packed *w;
    const uint8_t *rows;
};

static void pack_tiles(void *arg, int thread, int n_threads)
{
    struct pack_job *j = arg;
    (void)thread;
    (void)n_threads;
    for (;;) {
        int from = thread_pool_next_task(j->thread_pool) * PACK_PANELS;
        if (from >= j->w->n_panels)
            return;
        pack_panels(j->w, j->rows, from, MIN(from + PACK_PANELS, j->w->n_panels));
    }
}

static void *tensor_field(const struct bind *b, const struct tensor_slot *s)
{
    bool is_layer = s->id >= TENSOR_FIRST_OF_LAYER;
    char *base = is_layer ? (char *)&b->w->layers[s->layer] : (char *)b->w;
    size_t field = tensor_fields[s->id];

    if (b->h->family->has_dense_with_experts && hparams_has_experts(b->h, s->layer) &&
        s->id >= TENSOR_GATE && s->id <= TENSOR_DOWN)
        field += offsetof(struct layer, shared) - offsetof(struct layer, ffn);
    return base + field;
}

/* Reports progress after a tensor. ERR_CANCELLED: the load is not needed any more. */
static int report_progress(struct bind *b, const struct gguf_tensor *t, struct err *e)
{
    b->file_bytes += t->bytes;
    if (b->o->progress)
        b->o->progress(b->o->progress_arg, (double)b->file_bytes / (double)b->file_total);
    return b->o->stop && *b->o->stop ? err_set(e, ERR_CANCELLED, "the load was cancelled") : 0;
}

/* The next n bytes of the block. The padding is cleared, since previous memory content must not
 * reach the packfile. */
static uint8_t *take_bytes(struct bind *b, size_t n)
{
    uint8_t *to = b->w->block + b->used;

    b->used += align_bytes(n);
    if (!b->is_packed)
        memset(to + n, 0, align_bytes(n) - n);
    return to;
}

/* to: [n_cols][n_rows]; from: [n_rows][n_cols], of any alignment */
static void transpose(uint8_t *to, const uint8_t *from, size_t n_rows, size_t n_cols)
{
    const size_t n = sizeof(float);

    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n_cols; c++)
            memcpy(to + (c * n_rows + r) * n, from + (r * n_cols + c) * n, n);
}

static void load_vector(struct bind *b, const struct tensor_slot *s)
{
    size_t n = (size_t)s->cols * (size_t)s->rows * sizeof(float);
    uint8_t *to = take_bytes(b, n);

    if (!b->is_packed && tensor_rows[s->id].is_transposed)
        transpose(to, s->t->data, (size_t)s->rows, (size_t)s->cols);
    else if (!b->is_packed)
        memcpy(to, s->t->data, n);
    *(const float **)tensor_field(b, s) = (const float *)to;
}

/* The factors of a matrix, in the block; NULL: none. */
static const float *load_scale(struct bind *b, const struct tensor_slot *s)
{
    const size_t n = (size_t)n_factors(s) * sizeof(float);

    if (!s->scale)
        return NULL;
    uint8_t *to = take_bytes(b, n);
    if (!b->is_packed)
        memcpy(to, s->scale->data, n);
    return (const float *)to;
}

struct matrix_rows { /* rows of a matrix in the form of the file */
    enum qtype type;
    int n, cols;
    const uint8_t *p;
    const float *scales; /* [n_factors()], or NULL */
};

/* Packs the rows, unless the block already contains them. */
static int load_rows(struct bind *b, const struct tensor_slot *s, struct packed *w,
    const struct matrix_rows *rows, struct err *e)
{
    uint8_t *to = take_bytes(b, pack_bytes(rows->type, rows->n, rows->cols));
    struct pack_job job = { b->thread_pool, w, rows->p };

    if (pack_init(w, rows->type, rows->n, rows->cols, to, e))
        return err_wrap(e, "tensor %s", s->name);
    w->scales = rows->scales;
    w->panels_per_scale = w->n_panels / n_factors(s);
    if (!b->is_packed)
        thread_pool_run(b->thread_pool, pack_tiles, &job);
    return 0;
}

static int load_kv_b(struct bind *b, const struct tensor_slot *s, struct err *e)
{
    const struct kv_b w = kv_b_of(b, s);
    struct layer *l = &b->w->layers[s->layer];
    float *k = NULL;
    uint8_t *v = NULL;

    if (!b->is_packed && kv_b_split(&w, &k, &v, e))
        return -1;
    const float *scales = load_scale(b, s);
    const struct matrix_rows k_rows = { Q_F32, w.n_heads * w.kv_rank, w.nope_dim, (uint8_t *)k,
        scales };
    const struct matrix_rows v_rows = { w.type, w.n_heads * w.value_dim, w.kv_rank, v, scales };
    int rc = load_rows(b, s, &l->k_b, &k_rows, e) || load_rows(b, s, &l->v_b, &v_rows, e) ? -1 : 0;
    mem_free(k);
    mem_free(v);
    return rc;
}

/* The table stays in the file, to which the weights hold a reference; its bytes are only read for
 * the digest. */
static int load_table(struct bind *b, const struct tensor_slot *s, struct err *e)
{
    const struct gguf_tensor *t = s->t;

    b->w->input_table = (struct row_table){
        .t = t, .n_cols = s->cols, .row_bytes = (size_t)t->bytes / (size_t)s->rows
    };
    b->w->file_of_table = gguf_retain(b->g);
    if (!t->data && !b->is_packed && gguf_check_rows(b->g, t, e))
        return -1;
    if (b->w->wants_file && !b->has_digest) {
        if (t->data)
            content_add(&b->content, t, t->data);
        else if (content_add_rows(&b->content, t, e))
            return -1;
    }
    gguf_tensor_release(b->g, t);
    return report_progress(b, t, e);
}

/* Copies the rows of the parts of one matrix, in their order. */
static void gather_rows(
    const struct tensor_slot *s, const struct tensor_part *parts, int n_parts, uint8_t *to)
{
    const size_t row_bytes = (size_t)s->t->bytes / (size_t)all_rows(s);

    for (const struct tensor_part *p = parts; p < parts + n_parts; p++)
        for (int g = 0; g < p->n_groups; g++) {
            const size_t n = (size_t)p->n * row_bytes;
            memcpy(
                to, s->t->data + ((size_t)g * (size_t)p->group + (size_t)p->from) * row_bytes, n);
            to += n;
        }
}

static int load_parts(struct bind *b, const struct tensor_slot *s, const struct tensor_part *parts,
    int n_parts, struct err *e)
{
    const size_t row_bytes = (size_t)s->t->bytes / (size_t)all_rows(s);
    const float *scales = load_scale(b, s);

    for (int i = 0, n, n_rows; i < n_parts; i += n) {
        struct packed *w =
            (struct packed *)(void *)((char *)&b->w->layers[s->layer] + parts[i].field);
        n = parts_of_matrix(parts, i, n_parts, &n_rows);
        const uint8_t *rows = s->t->data + (size_t)parts[i].from * row_bytes;
        uint8_t *copy = NULL;
        if (n > 1 || parts[i].n_groups > 1) {
            rows = copy = try_malloc((size_t)n_rows * row_bytes);
            if (!copy)
                return err_set(e, ERR_MEMORY, "no memory for tensor %s", s->name);
            if (!b->is_packed)
                gather_rows(s, parts + i, n, copy);
        }
        const struct matrix_rows m = { s->t->type, n_rows, s->cols, rows, scales };
        int rc = load_rows(b, s, w, &m, e);
        mem_free(copy);
        if (rc)
            return -1;
    }
    return 0;
}

static int load_matrices(struct bind *b, const struct tensor_slot *s, struct err *e)
{
    struct tensor_part parts[MAX_PARTS];
    const int n_parts = parts_of(b, s, parts);

    if (s->id == TENSOR_KV_B)
        return load_kv_b(b, s, e);
    if (n_parts)
        return load_parts(b, s, parts, n_parts, e);
    const float *scales = load_scale(b, s);
    const struct matrix_rows all = { s->t->type, all_rows(s), s->cols, s->t->data, scales };
    return load_rows(b, s, tensor_field(b, s), &all, e);
}

/* Sets the tensor's address in the block, and packs it unless the block already contains it. */
static int load_tensor(struct bind *b, struct tensor_slot *s, struct err *e)
{
    const struct gguf_tensor *t = s->t;

    if (!t)
        return 0;
    if (s->id == TENSOR_INPUT_TABLE)
        return load_table(b, s, e);
    struct gguf_tensor computed = *t;
    /* If the block already contains the tensor, its data is not read. */
    if (b->is_packed)
        computed.data = t->data ? t->data : b->w->block;
    else if (tensor_bytes_get(&b->bytes, t, &computed.data, e))
        return -1;
    s->t = &computed;
    if (is_vector(s->id))
        load_vector(b, s);
    else if (load_matrices(b, s, e))
        return -1;
    if (b->w->wants_file && !b->has_digest)
        content_add(&b->content, t, computed.data);
    gguf_tensor_release(b->g, t);
    s->t = t;
    return report_progress(b, t, e);
}

/* Completes the digest by the tensors that were not loaded, such as those of draft layers. */
static int digest_other_tensors(struct bind *b, struct err *e)
{
    const uint8_t *data;

    for (size_t i = 0; i < gguf_n_tensors(b->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(b->g, i);
        if (content_has(&b->content, i))
            continue;
        if (tensor_bytes_get(&b->bytes, t, &data, e))
            return -1;
        content_add(&b->content, t, data);
        gguf_tensor_release(b->g, t);
        if (report_progress(b, t, e))
            return -1;
    }
    content_end(&b->content, b->w->key.content);
    return 0;
}

static int digest_all_tensors(struct bind *b, struct err *e)
{
    b->file_total *= 2; /* the tensors may have to be packed as well, which reads the file again */
    if (digest_other_tensors(b, e))
        return -1;
    b->has_digest = true;
    return 0;
}

/* Checks that the packfile belongs to this model: either the source files are unchanged since it
 * was written, or the content digest is equal. In the second case the new source is stored in the
 * packfile. */
static int check_packfile_model(struct bind *b, struct err *e)
{
    struct weights *w = b->w;
    uint64_t began = clock_ns();

    if (packfile_source_matches(&w->file, &w->key)) {
        memcpy(w->key.content, w->file.key.content, sizeof(w->key.content));
        b->has_digest = true;
        return 0;
    }
    if (digest_all_tensors(b, e))
        return -1;
    log_info("model", "packfile_compared", "path=\"%s\" reason=source_changed ms=%d",
        b->o->packfile, (int)((clock_ns() - began) / NS_PER_MS));
    if (memcmp(w->key.content, w->file.key.content, sizeof(w->key.content)) != 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: packed from another model", b->o->packfile);
    if (gguf_is_unchanged(b->g))
        packfile_update_source(&w->file, b->o->packfile, &w->key);
    return 0;
}

/* A packfile that does not match only makes the start slower; it is not an error. */
static int open_packfile(struct bind *b, struct err *e)
{
    struct weights *w = b->w;
    struct err why;

    if (content_init(&b->content, b->g, b->thread_pool, e))
        return -1;
    packfile_source_of(&w->key, b->g);
    b->is_packed = !packfile_open(&w->file, b->o->packfile, w->bytes, &why) &&
                   !check_packfile_model(b, &why) &&
                   !packfile_check(&w->file, w->bytes, b->thread_pool, &why);
    /* ERR_INVALID: not a regular file; it is not replaced */
    w->wants_file = !b->is_packed && why.code != ERR_INVALID;
    if (!b->is_packed)
        packfile_close(&w->file);
    if (!b->is_packed && !w->wants_file)
        log_warn("model", "packfile_unused", "reason=\"%s\"", why.msg);
    else if (!b->is_packed && why.code != ERR_NOT_FOUND)
        log_info("model", "packfile_unused", "reason=\"%s\"", why.msg);
    return 0;
}

/* Completes the content digest. The packed and the digested bytes are the same only if the model
 * file has not changed in between. */
static int finish_content(struct bind *b, struct err *e)
{
    struct weights *w = b->w;

    if (!w->wants_file)
        return 0;
    if (!b->has_digest && digest_other_tensors(b, e))
        return -1;
    w->wants_file = gguf_is_unchanged(b->g);
    if (!w->wants_file)
        log_warn("model", "packfile_unused",
            "path=\"%s\" reason=\"model file changed during the load\"", b->o->packfile);
    return 0;
}

/* Sets up the block: mapped from the packfile, or memory to pack or copy into. */
static int take_block(struct bind *b, struct err *e)
{
    struct weights *w = b->w;

    if (b->o->packfile && open_packfile(b, e))
        return -1;
    if (b->is_packed && !b->o->packfile_to_memory) {
        w->block = (uint8_t *)(uintptr_t)w->file.block;
        return 0;
    }
    w->block = block_alloc(w->bytes);
    if (!w->block)
        return err_set(e, ERR_MEMORY, "no memory for %zu MB of weights", w->bytes / MB);
    if (b->is_packed)
        memcpy(w->block, w->file.block, w->bytes);
    packfile_close(&w->file);
    return 0;
}

static int check_factors(const struct weights *w, const struct hparams *h, struct err *e)
{
    const struct {
        const float *x;
        enum tensor id;
    } all[] = { { w->rope_factors, TENSOR_ROPE_FREQS }, { w->rope_long, TENSOR_ROPE_LONG },
        { w->rope_short, TENSOR_ROPE_SHORT } };

    for (size_t t = 0; t < ARRAY_LEN(all); t++)
        for (int i = 0; all[t].x && i < h->rope.n_rot / 2; i++)
            if (!(all[t].x[i] > 0 && isfinite(all[t].x[i])))
                return err_set(e, ERR_CORRUPT, "tensor %s: factor %d has the invalid value %g",
                    tensor_rows[all[t].id].name, i, (double)all[t].x[i]);
    if (h->rope.scaling == ROPE_LONG && (!w->rope_long || !w->rope_short))
        return err_set(e, ERR_CORRUPT, "tensors %s and %s are required by longrope",
            tensor_rows[TENSOR_ROPE_LONG].name, tensor_rows[TENSOR_ROPE_SHORT].name);
    return 0;
}

/* Some families call the norm before the feed-forward network post_attention_norm, or attn_norm in
 * a layer without a mixer. */
static void place_norms(struct weights *w, const struct hparams *h)
{
    for (int i = 0; i < h->n_layers; i++)
        if (h->layers[i].mixer == MIXER_NONE) {
            w->layers[i].ffn_norm = w->layers[i].attn_norm;
            w->layers[i].attn_norm = NULL;
        }
    for (int i = 0; h->family->has_ffn_norm_after_attn && i < h->n_layers; i++) {
        w->layers[i].ffn_norm = w->layers[i].post_attn_norm;
        w->layers[i].post_attn_norm = NULL;
    }
}

int weights_bind(struct weights *w, const struct hparams *h, const struct gguf *g,
    struct thread_pool *thread_pool, const struct bind_options *o, struct err *e)
{
    struct bind b = { .w = w,
        .h = h,
        .g = g,
        .thread_pool = thread_pool,
        .o = o,
        .bytes = { .g = g, .thread_pool = thread_pool } };

    *w = (struct weights){ 0 };
    if (reject_unknown_tensors(&b, e) || check_recurrent_inputs(&b, e) ||
        each_slot(&b, measure_tensor, e))
        goto fail;
    w->layers = try_calloc((size_t)h->n_layers, sizeof(*w->layers));
    if (!w->layers) {
        err_set(e, ERR_MEMORY, "no memory for %d layers", h->n_layers);
        goto fail;
    }
    if (take_block(&b, e) || each_slot(&b, load_tensor, e) || check_factors(w, h, e) ||
        finish_content(&b, e))
        goto fail;
    content_clear(&b.content);
    tensor_bytes_clear(&b.bytes);
    place_norms(w, h);
    w->is_tied = !w->head.data;
    if (w->is_tied)
        w->head = w->embd;
    return 0;

fail:
    content_clear(&b.content);
    tensor_bytes_clear(&b.bytes);
    weights_clear(w);
    return -1;
}

void weights_clear(struct weights *w)
{
    mem_free(w->layers);
    gguf_close(w->file_of_table);
    if (!w->file.block)
        block_free(w->block);
    packfile_close(&w->file);
    *w = (struct weights){ 0 };
}
