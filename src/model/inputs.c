/* inputs.c: inputs of GEMMs in the form that each GEMM reads (kernel/acts.h): floats, int8 blocks,
 * or bf16 pairs.
 *
 * The output of a norm is quantised row by row, since the norm needs the whole row. The output of
 * attention and of gate/up is quantised by the thread that computes a tile, while the tile is in
 * the cache; such a tile is a whole number of quantisation blocks. If that gives fewer tiles than
 * the threads need, the output is stored as floats, and whole rows are quantised after a barrier.
 *
 * Owner: the thread pool. */
#include "model/forward.h"
#include "model/forward_in.h"

static void norm_quantise_row(
    const struct thread_ctx *s, const struct norm_in *src, int r, struct inputs *to)
{
    const struct kernels *k = s->m->kernels;
    const float *x = src->rows + (size_t)(src->gather ? src->gather[r] : r) * src->stride;

    if (src->norm) {
        k->rms_norm(s->thread_mem->row_buf, x, src->norm, src->n_cols, s->m->h.eps);
        x = s->thread_mem->row_buf;
    }
    for (int kind = 0; kind < N_ACT_KINDS; kind++) {
        if (!(src->kinds >> kind & 1))
            continue;
        void *row = (uint8_t *)to->kind[kind].data + (size_t)r * to->kind[kind].stride;
        kernels_quantise_acts(k, (struct act_cols){ (enum act_kind)kind, row, 0 }, x, src->n_cols);
    }
}

void forward_norm_quantise(const struct thread_ctx *s, const struct norm_in *src, struct inputs *to)
{
    bool is_redundant = s->n_rows <= REDUNDANT_ROWS;
    int from = 0, end = s->n_rows;

    for (int kind = 0; kind < N_ACT_KINDS; kind++)
        if (src->kinds >> kind & 1)
            to->kind[kind] = (struct acts){ .kind = (enum act_kind)kind,
                .n_rows = s->n_rows,
                .n_cols = src->n_cols,
                .stride = act_row_bytes((enum act_kind)kind, src->n_cols),
                .data = is_redundant ? s->thread_mem->acts[kind] : s->m->acts[kind] };
    if (!is_redundant)
        forward_thread_range(s, s->n_rows, &from, &end);
    for (int r = from; r < end; r++)
        norm_quantise_row(s, src, r, to);
    if (!is_redundant)
        barrier(s);
}

struct inputs forward_inputs_slice(const struct inputs *in, int n, int first, const int *gather)
{
    struct inputs out = *in;

    for (int kind = 0; kind < N_ACT_KINDS; kind++) {
        struct acts *a = &out.kind[kind];
        a->n_rows = n;
        a->gather = gather;
        if (!gather && a->data)
            a->data = (uint8_t *)a->data + (size_t)first * a->stride;
    }
    return out;
}

/* ---- tiles */

/* with fewer rows per call, a GEMM that first unpacks its weights is slow */
enum { FEW_ROWS = 64 };

struct tile_split forward_tile_split(
    const struct thread_ctx *s, struct act_out *to, int n_panels, int panels)
{
    const int block = MAX(act_block(to->acts.kind) / PANEL, 1);
    const int n_blocks = (n_panels + block - 1) / block;
    int rows = (int)(s->m->tile_floats / ((size_t)block * PANEL));

    if (panels >= block)
        return (struct tile_split){ panels / block * block, s->n_rows };
    rows = MIN(rows, s->n_rows);
    while (rows > FEW_ROWS &&
           n_blocks * ((s->n_rows + rows - 1) / rows) < TILES_PER_THREAD * s->n_threads)
        rows = MAX(rows / 2, FEW_ROWS);
    to->is_quantised_by_tile =
        n_blocks * ((s->n_rows + rows - 1) / rows) >= TILES_PER_THREAD * s->n_threads;
    return to->is_quantised_by_tile ? (struct tile_split){ block, rows }
                                    : (struct tile_split){ panels, s->n_rows };
}

/* The smallest number of KV heads which together are whole quantisation blocks and leave no thread
 * without work; 0: none. */
static int heads_per_tile(const struct thread_ctx *s, int block)
{
    const struct layer_params *p = s->params;
    const int width = layer_q_per_kv_head(p) * p->head_dim;

    if (width % block == 0)
        return 1;
    for (int n = 2; n <= p->n_kv_heads; n++) {
        int n_pieces = p->n_kv_heads / n;
        if (p->n_kv_heads % n == 0 && n * width % block == 0)
            return n_pieces % s->n_threads == 0 || n_pieces >= TILES_PER_THREAD * s->n_threads ? n
                                                                                               : 0;
    }
    return 0;
}

static struct act_out act_out_for(
    const struct thread_ctx *s, const struct packed *reader, int n_rows)
{
    enum act_kind kind = kernels_act_kind(s->m->kernels, reader->type);

    return (struct act_out){ .acts = { .kind = kind,
                                 .n_rows = n_rows,
                                 .n_cols = reader->n_cols,
                                 .stride = act_row_bytes(kind, reader->n_cols) },
        .is_quantised_by_tile = true };
}

/* Sets the buffers. If the GEMM reads floats, no quantised copy is needed. */
static void set_buffers(struct act_out *x, float *floats, size_t stride, void *quantised)
{
    bool as_is = x->acts.kind == ACT_F32;

    x->floats = floats;
    x->stride = stride;
    x->acts.data = as_is ? (void *)floats : quantised;
    if (as_is)
        x->acts.stride = stride * sizeof(float);
}

struct act_out forward_attn_out(const struct thread_ctx *s, const struct layer *l)
{
    const struct llama *m = s->m;
    struct act_out x = act_out_for(s, &l->o, s->n_rows);
    const bool is_latent = s->params->mixer == MIXER_LATENT;
    int n_heads = is_latent ? 0 : heads_per_tile(s, act_block(x.acts.kind));

    set_buffers(&x, m->attn_out, m->o_stride, m->attn_out_acts);
    x.is_quantised_by_tile = n_heads > 0;
    x.n_heads = MAX(n_heads, 1);
    return x;
}

struct act_out forward_recurrent_out(
    const struct thread_ctx *s, const struct layer *l, int n_parts, int unit)
{
    const struct llama *m = s->m;
    struct act_out x = act_out_for(s, &l->o, s->n_rows);
    const int block = act_block(x.acts.kind);

    set_buffers(&x, m->attn_out, m->o_stride, m->attn_out_acts);
    x.is_quantised_by_tile = n_parts == 1 || unit % block == 0;
    return x;
}

struct act_out forward_hidden_out(const struct thread_ctx *s, const struct packed *down, int n_rows)
{
    const struct llama *m = s->m;
    struct act_out x = act_out_for(s, down, n_rows);

    set_buffers(&x, m->hidden, m->ff_stride, m->hidden_acts);
    return x;
}

struct act_out forward_shared_hidden_out(const struct thread_ctx *s, const struct packed *down)
{
    const struct llama *m = s->m;
    struct act_out x = act_out_for(s, down, s->n_rows);

    set_buffers(&x, m->shared_hidden, m->shared_stride, m->shared_hidden_acts);
    return x;
}

static void quantise_cols(
    const struct thread_ctx *s, const struct acts *to, int row, int col, const float *x, int n)
{
    struct act_cols at = { to->kind, (uint8_t *)to->data + (size_t)row * to->stride, col };

    kernels_quantise_acts(s->m->kernels, at, x, n);
}

void forward_quantise_tile(
    const struct thread_ctx *s, const struct act_out *to, int row, int col, int n)
{
    if (to->is_quantised_by_tile && to->acts.kind != ACT_F32)
        quantise_cols(s, &to->acts, row, col, to->floats + (size_t)row * to->stride + col, n);
}

void forward_activate_tile(
    const struct thread_ctx *s, const struct act_out *to, int row, int col, size_t at, int n)
{
    bool is_quantised = to->is_quantised_by_tile && to->acts.kind != ACT_F32;
    float *tile = s->thread_mem->tile + at;
    float *out = is_quantised ? tile : to->floats + (size_t)row * to->stride + col;

    if (s->m->activate_up)
        s->m->activate_up(out, tile, n);
    else
        s->m->activate(out, tile, s->thread_mem->tile2 + at, n);
    if (is_quantised)
        quantise_cols(s, &to->acts, row, col, tile, n);
}

void forward_load_act(const struct thread_ctx *s, const struct act_out *from, struct inputs *to)
{
    struct norm_in floats = { from->floats, from->stride, NULL, NULL, from->acts.n_cols,
        1u << from->acts.kind };
    struct thread_ctx rows = *s;

    rows.n_rows = from->acts.n_rows;
    if (from->is_quantised_by_tile)
        to->kind[from->acts.kind] = from->acts;
    else
        forward_norm_quantise(&rows, &floats, to);
}
