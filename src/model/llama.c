#include "model/llama.h"
#include "base/mem.h"
#include "model/block.h"
#include "model/forward.h"

enum {
    MAX_ROWS = 1 << 16,
    ALIGNMENT = 64,
    /* version of the layout in attn.h; KV records of other versions are rejected */
    KV_LAYOUT_VERSION = 1,
};

static struct llama *llama_of(struct lm *lm)
{
    return container_of(lm, struct llama, lm);
}

static bool llama_forward(struct lm *lm, struct lm_run *runs, int n_runs, const _Atomic bool *stop)
{
    struct llama *m = llama_of(lm);
    if (!lm->owner.is_set)
        owner_take(&lm->owner);
    OWNED(lm->owner);
    return forward_run(m, runs, n_runs, stop);
}

static void llama_close(struct lm *lm)
{
    struct llama *m = llama_of(lm);
    thread_pool_close(m->thread_pool);
    weights_clear(&m->w);
    mem_free(m->per_thread);
    mem_free(m->kv);
    block_free(m->block);
    block_free(m->lm.arena);
    block_free(m->lm.window_arena);
    block_free(m->state_arena);
    mem_free(m);
}

static void llama_run_on_threads(
    struct lm *lm, void (*fn)(void *arg, int thread, int n_threads), void *arg)
{
    thread_pool_run(container_of(lm, struct llama, lm)->thread_pool, fn, arg);
}

static uint8_t *state_slot(const struct llama *m, state_id state)
{
    CHECK(state.i < m->lm.n_states);
    return m->state_arena + (size_t)state.i * m->state.bytes;
}

static void llama_read_state(struct lm *lm, state_id state, void *out)
{
    const struct llama *m = llama_of(lm);

    state_slot_read(&m->state, state_slot(m, state), out);
}

static int llama_write_state(struct lm *lm, state_id state, const void *in, int pos)
{
    const struct llama *m = llama_of(lm);

    return state_slot_write(&m->state, state_slot(m, state), in, pos);
}

static const struct lm_ops llama_ops = {
    .forward = llama_forward,
    .copy_page = lm_copy_page,
    .clear_page = lm_clear_page,
    .read_page = lm_read_page,
    .write_page = lm_write_page,
    .read_state = llama_read_state,
    .write_state = llama_write_state,
    .run_on_threads = llama_run_on_threads,
    .close = llama_close,
};

/* ---- scratch memory: laid out twice, first to compute the size */

struct scratch_layout {
    uint8_t *base; /* NULL: only count */
    size_t used;
};

static void *reserve(struct scratch_layout *c, size_t n, size_t size)
{
    uint8_t *p = c->base ? c->base + c->used : NULL;
    c->used += (n * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return p;
}

static size_t row_floats(int n)
{
    return ((size_t)n + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
}

enum { MAX_MATRICES = 24, N_DENSE_MATRICES = 21 };

/* The matrices of a layer: those that every row reads, then those of which a row reads some
 * experts if the layer has experts. Empty ones are those that the layer does not have. */
static void layer_matrices(const struct layer *l, const struct packed *out[MAX_MATRICES])
{
    const struct packed *all[MAX_MATRICES] = { &l->q, &l->k, &l->v, &l->o, &l->mix_gate, &l->q_a,
        &l->k_b, &l->v_b, &l->recurrent.in, &l->recurrent.factor, &l->recurrent.alpha,
        &l->recurrent.beta, &l->router, &l->shared_router, &l->latent_down, &l->latent_up,
        &l->shared.gate, &l->shared.up, &l->shared.down, &l->input_gate, &l->input_proj,
        &l->ffn.gate, &l->ffn.up, &l->ffn.down };

    memcpy(out, all, sizeof(all));
}

static void mark_kind(const struct llama *m, bool *is_used, const struct packed *w)
{
    if (w->n_rows)
        is_used[kernels_act_kind(m->kernels, w->type)] = true;
}

static void kinds_used(const struct llama *m, bool *is_used)
{
    const struct packed *all[MAX_MATRICES];

    mark_kind(m, is_used, &m->w.head);
    mark_kind(m, is_used, &m->w.input_model_proj);
    for (int i = 0; i < m->h.n_layers; i++) {
        layer_matrices(&m->w.layers[i], all);
        for (size_t j = 0; j < MAX_MATRICES; j++)
            mark_kind(m, is_used, all[j]);
    }
}

/* Largest number of rows of the hidden activation: one for each expert that a row uses. */
static size_t n_entries(const struct llama *m)
{
    return (size_t)m->lm.max_rows * (size_t)MAX(m->h.n_experts_used, 1);
}

/* Longest row of `hidden`. */
static int max_ff_width(const struct llama *m)
{
    return MAX(hparams_max_dim(&m->h, DIM_FF), MAX(m->h.d_ff_expert, m->h.d_input));
}

static void lay_out_acts(
    const struct llama *m, struct scratch_layout *c, void **acts, size_t n_rows, size_t n_ff_rows)
{
    bool is_used[N_ACT_KINDS] = { false };
    kinds_used(m, is_used);
    for (int k = 0; k < N_ACT_KINDS; k++) {
        size_t wide = n_rows * act_row_bytes((enum act_kind)k, m->max_width);
        size_t many = n_ff_rows * act_row_bytes((enum act_kind)k, max_ff_width(m));
        if (is_used[k])
            acts[k] = reserve(c, MAX(wide, many), 1);
    }
}

/* Bytes of a row of an output that is quantised by tile: the largest of the kinds that the layers
 * read. Floats are read without conversion and count 0. */
static size_t max_quantised_row_bytes(const struct llama *m, int n_cols)
{
    bool is_used[N_ACT_KINDS] = { false };
    size_t most = 0;

    kinds_used(m, is_used);
    for (int k = 0; k < N_ACT_KINDS; k++)
        if (is_used[k] && k != ACT_F32)
            most = MAX(most, act_row_bytes((enum act_kind)k, n_cols));
    return most;
}

static void lay_out_moe(struct llama *m, struct scratch_layout *c)
{
    const size_t rows = (size_t)m->lm.max_rows, entries = n_entries(m);
    struct moe *x = &m->moe;

    if (!m->h.n_experts)
        return;
    x->stride = row_floats(m->h.n_experts);
    x->scores = reserve(c, rows * x->stride, sizeof(float));
    x->topk = reserve(c, entries, sizeof(*x->topk));
    x->weights = reserve(c, entries, sizeof(*x->weights));
    x->entry = reserve(c, entries, sizeof(*x->entry));
    x->row = reserve(c, entries, sizeof(*x->row));
    x->first = reserve(c, (size_t)m->h.n_experts + 1, sizeof(*x->first));
    x->out_stride = row_floats(hparams_dim(&m->h, DIM_EXPERT, 0));
    x->expert_out = reserve(c, entries * x->out_stride, sizeof(float));
    if (m->h.d_latent)
        x->latent = reserve(c, rows * x->out_stride, sizeof(float));
    if (!m->h.d_ff_shared)
        return;
    x->shared = reserve(c, rows * PANEL, sizeof(float));
    m->shared_hidden = reserve(c, rows * m->shared_stride, sizeof(float));
    m->shared_hidden_acts = reserve(c, rows, max_quantised_row_bytes(m, m->h.d_ff_shared));
}

/* Scratch memory of a recurrent layer up to the output of its heads. */
static void lay_out_recurrent(struct llama *m, struct scratch_layout *c, size_t rows)
{
    const struct state_layout *l = &m->state;
    struct recurrent_mem *x = &m->recurrent;

    x->conv_stride = row_floats((int)l->channels);
    x->value_stride = row_floats((int)l->values);
    x->head_stride = row_floats((int)l->heads);
    x->conv_in = reserve(c, rows * x->conv_stride, sizeof(float));
    x->conv = reserve(c, rows * x->conv_stride, sizeof(float));
    x->g = reserve(c, rows * x->head_stride, sizeof(float));
    x->beta = reserve(c, rows * x->head_stride, sizeof(float));
    x->u = reserve(c, rows * x->value_stride, sizeof(float));
    x->out = reserve(c, rows * x->value_stride, sizeof(float));
}

/* q, k, v and attn_out are no longer needed when the feed-forward part begins: its hidden rows
 * share their memory. A recurrent layer shares the memory of q, k and v. */
static void lay_out_shared(struct llama *m, struct scratch_layout *c, size_t rows)
{
    struct scratch_layout attn = *c, ff = *c;
    const int width = hparams_max_dim(&m->h, DIM_MIX);

    m->attn_out = reserve(&attn, rows * m->o_stride, sizeof(float));
    m->attn_out_acts = reserve(&attn, rows, max_quantised_row_bytes(m, width));
    if (m->h.family->gates_attention || m->state.n_layers)
        m->mix_gate = reserve(&attn, rows * m->q_stride, sizeof(float));
    struct scratch_layout recurrent = attn;
    if (m->state.n_layers)
        lay_out_recurrent(m, &recurrent, rows);
    m->q = reserve(&attn, rows * m->q_stride, sizeof(float));
    m->k = reserve(&attn, rows * m->kv_stride, sizeof(float));
    m->v = reserve(&attn, rows * m->kv_stride, sizeof(float));
    m->latent.q_a = reserve(&attn, rows * m->latent.q_a_stride, sizeof(float));
    m->latent.heads = reserve(&attn, rows * m->latent.heads_stride, sizeof(float));
    m->latent.out = reserve(&attn, rows * m->latent.out_stride, sizeof(float));
    m->hidden = reserve(&ff, n_entries(m) * m->ff_stride, sizeof(float));
    m->hidden_acts = reserve(&ff, n_entries(m), max_quantised_row_bytes(m, max_ff_width(m)));
    c->used = MAX(MAX(attn.used, recurrent.used), ff.used);
}

/* The largest result of a function of a layer's KV layout and query heads per KV head. */
static size_t max_layer_floats(
    const struct llama *m, size_t (*floats)(const struct kv_layout *l, int n_q))
{
    size_t most = 0;

    for (int i = 0; i < m->h.n_layers; i++)
        if (m->h.layers[i].n_kv_heads > 0)
            most = MAX(most, floats(&m->kv[i], layer_q_per_kv_head(&m->h.layers[i])));
    return most;
}

static void lay_out_layer_inputs(struct llama *m, struct scratch_layout *c)
{
    const struct row_table *t = &m->w.input_table;
    const size_t n = (size_t)t->n_cols;

    if (!t->t)
        return;
    m->layer_inputs = reserve(c, (size_t)m->lm.max_rows * n, sizeof(float));
    for (int i = 0; i < thread_pool_size(m->thread_pool); i++) {
        if (!t->t->data)
            m->per_thread[i].table_row_bytes = reserve(c, t->row_bytes, 1);
        m->per_thread[i].table_row_packed = reserve(c, pack_bytes(t->t->type, 1, t->n_cols), 1);
        m->per_thread[i].table_row = reserve(c, n, sizeof(float));
    }
}

/* States of split-KV rows: the largest possible number, up to MAX_SPLIT_STATES. */
static void lay_out_states(struct llama *m, struct scratch_layout *c)
{
    const size_t splits = ((size_t)m->lm.n_pages * PAGE_TOKENS + KV_SPLIT - 1) / KV_SPLIT;
    const size_t most = (size_t)m->lm.max_rows * (size_t)m->max_kv_heads * splits;

    m->n_states = thread_pool_size(m->thread_pool) > 1 ? MIN(most, (size_t)MAX_SPLIT_STATES) : 0;
    m->states = reserve(c, m->n_states * max_layer_floats(m, attn_state_floats), sizeof(float));
    m->n_done = reserve(c, m->n_states, sizeof(*m->n_done));
}

/* The longest row of thread_scratch.row_buf: the input of a GEMM, or the queries of a KV head. */
static size_t row_buf_floats(const struct llama *m)
{
    int most = m->max_width;

    for (int i = 0; i < m->h.n_layers; i++)
        most = MAX(most, layer_q_per_kv_head(&m->h.layers[i]) * m->h.layers[i].head_dim);
    return row_floats(most);
}

static void lay_out(struct llama *m, struct scratch_layout *c)
{
    const size_t rows = (size_t)m->lm.max_rows, n_logits = (size_t)m->lm.max_logits;
    const size_t attn_floats = max_layer_floats(m, attn_scratch_floats);

    m->x = reserve(c, rows * m->d_stride, sizeof(float));
    if (hparams_need(&m->h, TENSOR_POST_FFN_NORM, 0) != NEED_NO)
        m->y = reserve(c, rows * m->d_stride, sizeof(float));
    m->partial_x = reserve(c, (size_t)m->lm.max_partial_rows * m->d_stride, sizeof(float));
    lay_out_shared(m, c, rows);
    m->cs = reserve(c, rows * (size_t)m->h.rope.n_rot, sizeof(float));
    if (m->h.window && memcmp(&m->rope, &m->window_rope, sizeof(m->rope)) != 0)
        m->window_cs = reserve(c, rows * (size_t)m->h.window_rope.n_rot, sizeof(float));
    m->logits = reserve(c, n_logits * (size_t)m->h.n_vocab, sizeof(float));
    m->peaks = reserve(c, n_logits * (size_t)logit_groups(m->h.n_vocab), sizeof(float));
    m->sparse.panels =
        reserve(c, ((size_t)logit_panels(m->h.n_vocab) + 31) / 32, sizeof(*m->sparse.panels));
    m->sparse.ranges = reserve(c, (size_t)logit_panels(m->h.n_vocab), sizeof(*m->sparse.ranges));
    m->rows = reserve(c, rows, sizeof(*m->rows));
    if (m->state.n_layers) {
        m->state_runs = reserve(c, rows, sizeof(*m->state_runs));
        m->recurrent.zeros = reserve(c, m->state.channels, sizeof(float));
    }
    m->attn_rows = reserve(c, rows, sizeof(*m->attn_rows));
    m->attn_groups = reserve(c, rows, sizeof(*m->attn_groups));
    m->logit_rows = reserve(c, n_logits, sizeof(*m->logit_rows));
    lay_out_acts(m, c, m->acts, rows, n_entries(m));
    lay_out_moe(m, c);
    lay_out_layer_inputs(m, c);
    if (m->h.family->norms_values)
        m->ones = reserve(c, MAX_HEAD_DIM, sizeof(float));
    lay_out_states(m, c);
    for (int i = 0; i < thread_pool_size(m->thread_pool); i++) {
        struct thread_scratch *thread_mem = &m->per_thread[i];
        thread_mem->row_buf = reserve(c, row_buf_floats(m), sizeof(float));
        thread_mem->tile = reserve(c, m->tile_floats, sizeof(float));
        thread_mem->tile2 = reserve(c, m->tile_floats, sizeof(float));
        thread_mem->attn = reserve(c, attn_floats, sizeof(float));
        if (m->state.n_layers)
            thread_mem->state =
                reserve(c, (size_t)m->h.recurrent.key_dim * STATE_COLS, sizeof(float));
        lay_out_acts(m, c, thread_mem->acts, REDUNDANT_ROWS, 0);
    }
}

static void set_latent_sizes(struct llama *m)
{
    const struct latent_params *p = &m->h.latent;
    int n_heads = 0;

    for (int i = 0; i < m->h.n_layers; i++)
        n_heads = MAX(n_heads, m->h.layers[i].n_heads);
    m->latent.q_a_stride = row_floats(p->q_rank);
    m->latent.heads_stride = row_floats(hparams_max_dim(&m->h, DIM_LATENT_Q));
    m->latent.out_stride = row_floats(n_heads * p->kv_rank);
    m->max_width = MAX(MAX(m->max_width, p->q_rank), MAX(p->kv_rank, p->nope_dim));
}

static int alloc_scratch(struct llama *m, struct err *e)
{
    const struct hparams *h = &m->h;
    struct scratch_layout c = { 0 };

    m->d_stride = row_floats(h->d_model);
    m->o_stride = row_floats(hparams_max_dim(h, DIM_MIX));
    m->q_stride = row_floats(MAX(hparams_max_dim(h, DIM_MIX), hparams_max_dim(h, DIM_Q)));
    m->kv_stride = row_floats(hparams_max_dim(h, DIM_KV));
    m->ff_stride = row_floats(max_ff_width(m));
    m->shared_stride = row_floats(h->d_ff_shared);
    m->tile_floats = (size_t)MAX(m->lm.max_rows * TILE_PANELS, act_block(ACT_Q8_K) / PANEL) * PANEL;
    m->max_width =
        MAX(h->d_model, MAX(hparams_max_dim(h, DIM_MIX), MAX(max_ff_width(m), h->d_ff_shared)));
    m->max_width = MAX(m->max_width, h->d_latent);
    if (h->family->has_latent_attn)
        set_latent_sizes(m);

    m->per_thread = try_calloc((size_t)thread_pool_size(m->thread_pool), sizeof(*m->per_thread));
    if (!m->per_thread)
        return err_set(e, ERR_MEMORY, "no memory for %d threads", thread_pool_size(m->thread_pool));
    lay_out(m, &c);
    m->block = block_alloc(c.used);
    if (!m->block)
        return err_set(e, ERR_MEMORY, "no memory for %zu MB of scratch", c.used / MB);
    m->block_bytes = c.used;
    c = (struct scratch_layout){ .base = m->block };
    lay_out(m, &c);
    CHECK(c.used == m->block_bytes);
    if (m->state.n_layers)
        memset((void *)(uintptr_t)m->recurrent.zeros, 0, m->state.channels * sizeof(float));
    for (int i = 0; m->ones && i < MAX_HEAD_DIM; i++)
        m->ones[i] = 1;
    return 0;
}

/* ---- KV arena */

static void lay_out_layer(struct kv_layout *kv, const struct layer_params *p, enum kv_type type)
{
    if (p->mixer == MIXER_LATENT)
        kv_layout_init_values(kv, type, 1, p->head_dim, p->value_dim, true);
    else
        kv_layout_init(kv, type, p->n_kv_heads, p->head_dim);
}

/* Places the layers with or those without a window in a page; returns the bytes of the page. */
static size_t place_class(struct kv_layout *kv, const struct hparams *h, bool has_window)
{
    struct kv_layout *layers[MAX_LAYERS];
    int n = 0;

    for (int i = 0; i < h->n_layers; i++)
        if (h->layers[i].has_window == has_window)
            layers[n++] = &kv[i];
    return kv_layout_place(layers, n);
}

struct page_sizes { /* bytes of a page of each class */
    size_t full, window;
};

/* kv: [n_layers]; a layer that reads the keys and values of another one has the same layout. */
static struct page_sizes lay_out_pages(
    struct kv_layout *kv, const struct hparams *h, enum kv_type type)
{
    struct page_sizes sizes;

    for (int i = 0; i < h->n_layers; i++)
        if (h->layers[i].n_kv_heads > 0 && hparams_has_kv(h, i))
            lay_out_layer(&kv[i], &h->layers[i], type);
    sizes.full = place_class(kv, h, false);
    sizes.window = place_class(kv, h, true);
    for (int i = 0; i < h->n_layers; i++)
        kv[i] = kv[h->layers[i].kv_layer];
    return sizes;
}

/* A window may be longer than every context. */
static struct kv_window window_of(const struct hparams *h, struct page_sizes sizes)
{
    return (struct kv_window){ sizes.window ? MIN(h->window, 1 << 30) : 0, KV_BLOCK };
}

static int open_pages(struct llama *m, enum kv_type type, struct err *e)
{
    m->kv_type = type;
    m->kv = try_calloc((size_t)m->h.n_layers, sizeof(*m->kv));
    if (!m->kv)
        return err_set(e, ERR_MEMORY, "no memory for %d layers", m->h.n_layers);
    struct page_sizes sizes = lay_out_pages(m->kv, &m->h, type);
    m->lm.page_bytes = sizes.full;
    m->lm.window_page_bytes = sizes.window;
    m->lm.window = window_of(&m->h, sizes);
    m->lm.n_window_pages = sizes.window ? m->lm.n_window_pages : 0;
    m->min_kv_heads = INT32_MAX;
    for (int i = 0; i < m->h.n_layers; i++) {
        const struct layer_params *p = &m->h.layers[i];
        if (p->n_kv_heads == 0)
            continue;
        m->min_kv_heads = MIN(m->min_kv_heads, p->n_kv_heads);
        m->max_kv_heads = MAX(m->max_kv_heads, p->n_kv_heads);
        m->max_q_per_kv_head = MAX(m->max_q_per_kv_head, layer_q_per_kv_head(p));
    }
    return 0;
}

/* NULL if the pages have no bytes, since no layer is of this class. */
static int alloc_arena(uint8_t **out, uint32_t n_pages, size_t page_bytes, struct err *e)
{
    size_t n;

    if (__builtin_mul_overflow((size_t)n_pages, page_bytes, &n))
        return err_set(
            e, ERR_MEMORY, "a KV cache of %u pages of %zu bytes is too large", n_pages, page_bytes);
    if (n == 0)
        return 0;
    *out = block_alloc(n);
    if (!*out)
        return err_set(e, ERR_MEMORY, "no memory for a KV cache of %zu MB", n / MB);
    return 0;
}

static int alloc_arenas(struct llama *m, struct err *e)
{
    struct lm *lm = &m->lm;

    return alloc_arena(&lm->arena, lm->n_pages, lm->page_bytes, e) ||
                   alloc_arena(&lm->window_arena, lm->n_window_pages, lm->window_page_bytes, e)
               ? -1
               : 0;
}

/* ---- state slots */

static int open_states(struct llama *m, uint32_t n_states, struct err *e)
{
    size_t n;

    state_layout_init(&m->state, &m->h.recurrent);
    if (!m->state.n_layers)
        return 0;
    if (n_states < 2)
        return err_set(
            e, ERR_RANGE, "a model with recurrent layers needs at least two state slots");
    if (!__builtin_mul_overflow((size_t)n_states, m->state.bytes, &n))
        m->state_arena = block_alloc(n);
    if (!m->state_arena)
        return err_set(
            e, ERR_MEMORY, "no memory for %u state slots of %zu MB", n_states, m->state.bytes / MB);
    m->lm.n_states = n_states;
    m->lm.state_bytes = m->state.bytes;
    for (uint32_t i = 0; i < n_states; i++)
        state_slot_clear(&m->state, state_slot(m, (state_id){ i }));
    return 0;
}

/* ---- opening */

static int set_sizes(struct llama *m, const struct llama_options *o, struct err *e)
{
    m->lm.max_rows = o->max_rows ? o->max_rows : 512;
    m->lm.max_logits = MIN(o->max_logits ? o->max_logits : 32, m->lm.max_rows);
    m->lm.n_layers = m->h.n_layers;
    m->lm.max_partial_rows = MIN(m->lm.max_rows, (int)MAX_PARTIAL_ROWS);
    m->lm.n_pages = o->n_pages;
    m->lm.n_window_pages = o->n_window_pages ? o->n_window_pages : o->n_pages;
    if (o->max_rows < 0 || o->max_rows > MAX_ROWS || o->max_logits < 0)
        return err_set(
            e, ERR_RANGE, "rows per step: %d, supported are 1 to %d", o->max_rows, MAX_ROWS);
    if (!o->n_pages)
        return err_set(e, ERR_RANGE, "a model needs at least one KV page");
    return 0;
}

static void set_activation(struct llama *m)
{
    switch (m->h.family->activation) {
    case ACTIVATION_SILU:
        m->activate = m->kernels->silu_mul;
        break;
    case ACTIVATION_GELU:
        m->activate = m->kernels->gelu_mul;
        break;
    case ACTIVATION_SWIGLU_OAI:
        m->activate = m->kernels->swiglu_oai;
        break;
    case ACTIVATION_RELU_SQR:
        m->activate_up = m->kernels->relu_sqr;
        break;
    }
}

static void open_rope(struct llama *m, int n_ctx)
{
    const struct weights *w = &m->w;
    const struct rope_params *p = &m->h.rope;
    const float *factors = p->scaling != ROPE_LONG         ? w->rope_factors
                           : (double)n_ctx > p->n_ctx_orig ? w->rope_long
                                                           : w->rope_short;

    rope_table_init(&m->rope, p, factors);
    bool is_plain = m->h.family->has_plain_window_rope || m->h.window_rope.n_rot != p->n_rot;
    rope_table_init(&m->window_rope, &m->h.window_rope, is_plain ? NULL : factors);
}

static int open_components(
    struct llama *m, const struct gguf *g, const struct llama_options *o, struct err *e)
{
    const struct bind_options bind = { o->progress, o->progress_arg, o->stop, o->packfile,
        o->packfile_to_memory };

    if (hparams_read(&m->h, g, e) || set_sizes(m, o, e))
        return -1;
    m->kernels = o->kernels;
    if (!m->kernels && kernels_choose(&m->kernels, NULL, e))
        return -1;
    if (thread_pool_open(&m->thread_pool, o->n_threads ? o->n_threads : thread_count_online(), e))
        return -1;
    if (weights_bind(&m->w, &m->h, g, m->thread_pool, &bind, e))
        return -1;
    set_activation(m);
    open_rope(m, o->n_ctx ? o->n_ctx : m->h.n_ctx);
    return open_pages(m, o->kv_type, e) || open_states(m, o->n_states, e) || alloc_scratch(m, e) ||
                   alloc_arenas(m, e)
               ? -1
               : 0;
}

static uint64_t n_macs(const struct packed *w)
{
    return (uint64_t)w->n_rows * (uint64_t)w->n_cols;
}

/* A matrix that all rows read; `share` is the part that one row reads (experts). */
static void count_matrix_cost(struct lm *lm, const struct packed *w, double share)
{
    lm->row_macs += (uint64_t)((double)n_macs(w) * share);
    lm->step_bytes += (size_t)((double)((size_t)w->n_panels * w->panel_bytes) * share);
}

/* Type of the first feed-forward network, in which most products are computed. */
static enum qtype network_type(const struct llama *m)
{
    int i = 0;

    while (i < m->h.n_layers - 1 && !m->h.layers[i].has_ffn)
        i++;
    return m->w.layers[i].ffn.up.type;
}

static void count_costs(struct llama *m)
{
    struct lm *lm = &m->lm;
    const struct packed *head = &m->w.head;
    double used = m->h.n_experts ? (double)m->h.n_experts_used / m->h.n_experts : 1;

    for (int i = 0; i < m->h.n_layers; i++) {
        const struct packed *all[MAX_MATRICES];
        const struct layer_params *p = &m->h.layers[i];
        lm->key_macs += (uint64_t)(p->n_heads * (p->head_dim + p->value_dim));
        layer_matrices(&m->w.layers[i], all);
        for (size_t j = 0; j < MAX_MATRICES; j++)
            count_matrix_cost(
                lm, all[j], hparams_has_experts(&m->h, i) && j >= N_DENSE_MATRICES ? used : 1);
    }
    count_matrix_cost(lm, &m->w.input_model_proj, 1);
    lm->logit_macs = n_macs(head);
    lm->step_bytes += (size_t)head->n_panels * head->panel_bytes;
    lm->is_integer = act_kind_for(network_type(m)) != ACT_F32;
}

static bool is_half_float(const struct packed *w)
{
    return w->n_rows && (w->type == Q_F16 || w->type == Q_BF16);
}

/* Whether an operation on which keys and values depend may use the numerics of the kernel set
 * instead of those of ref.c. */
static bool has_own_numerics(const struct llama *m)
{
    if (m->kv_type == KV_BF16 || is_half_float(&m->w.input_model_proj))
        return true;
    for (int i = 0; i < m->h.n_layers; i++) {
        const struct packed *all[MAX_MATRICES];
        layer_matrices(&m->w.layers[i], all);
        for (size_t j = 0; j < MAX_MATRICES; j++)
            if (is_half_float(all[j]))
                return true;
    }
    return false;
}

/* KV pages computed with different numerics must not be mixed in one sequence, so they have
 * different kinds. */
static uint32_t kv_kind(const struct llama *m)
{
    uint32_t sums = has_own_numerics(m) ? m->kernels->numerics_id : 0;

    return sums << 16 | KV_LAYOUT_VERSION << 8 | (uint32_t)m->kv_type;
}

int lm_open_llama(
    struct lm **out, const struct gguf *g, const struct llama_options *o, struct err *e)
{
    struct llama *m = try_calloc(1, sizeof(*m));
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for a model");
    m->lm.ops = &llama_ops;
    if (open_components(m, g, o, e)) {
        llama_close(&m->lm);
        return -1;
    }
    m->lm.n_vocab = m->h.n_vocab;
    m->lm.n_threads = thread_pool_size(m->thread_pool);
    m->lm.n_ctx_train = m->h.n_ctx;
    m->lm.kv_kind = kv_kind(m);
    m->lm.weight_bytes = m->w.bytes;
    m->lm.weights_file = m->w.file.map.p ? &m->w.file.map : NULL;
    m->lm.table_file = m->w.file_of_table;
    m->lm.n_params = m->w.n_params;
    count_costs(m);
    *out = &m->lm;
    return 0;
}

int llama_needs(struct llama_needs *out, const struct gguf *g, enum kv_type kv_type, struct err *e)
{
    struct hparams h;
    struct state_layout state;

    if (hparams_read(&h, g, e))
        return -1;
    struct kv_layout *kv = try_calloc((size_t)h.n_layers, sizeof(*kv));
    if (!kv)
        return err_set(e, ERR_MEMORY, "no memory for %d layers", h.n_layers);
    struct page_sizes sizes = lay_out_pages(kv, &h, kv_type);
    state_layout_init(&state, &h.recurrent);
    *out = (struct llama_needs){ .n_vocab = h.n_vocab,
        .n_ctx_train = h.n_ctx,
        .page_bytes = sizes.full,
        .window = window_of(&h, sizes),
        .window_page_bytes = sizes.window,
        .state_bytes = state.bytes };
    mem_free(kv);
    return 0;
}

static const struct weights *weights_of(const struct lm *lm)
{
    return &((const struct llama *)(const void *)((const char *)lm - offsetof(struct llama, lm)))
                ->w;
}

bool llama_wants_packfile(const struct lm *lm)
{
    return weights_of(lm)->wants_file;
}

int llama_write_packfile(
    const struct lm *lm, const char *path, const _Atomic bool *stop, struct err *e)
{
    const struct weights *w = weights_of(lm);

    CHECK(w->wants_file);
    return packfile_write(path, &w->key, w->block, w->bytes, stop, e);
}
