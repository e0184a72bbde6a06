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
    const struct self *s, const struct source *src, int r, struct inputs *to)
{
    const struct kernels *k = s->m->kernels;
    const float *x = src->rows + (size_t)(src->pick ? src->pick[r] : r) * src->stride;

    if (src->norm) {
        k->rms_norm(s->mem->normed, x, src->norm, src->n_cols, s->m->h.eps);
        x = s->mem->normed;
    }
    for (int kind = 0; kind < N_ACT_KINDS; kind++) {
        if (!(src->kinds >> kind & 1))
            continue;
        void *row = (uint8_t *)to->kind[kind].data + (size_t)r * to->kind[kind].stride;
        kernels_put_acts(k, (struct act_cols){ (enum act_kind)kind, row, 0 }, x, src->n_cols);
    }
}

void forward_prepare(const struct self *s, const struct source *src, struct inputs *to)
{
    bool is_redundant = s->n_rows <= ALONE_ROWS;
    int from = 0, end = s->n_rows;

    for (int kind = 0; kind < N_ACT_KINDS; kind++)
        if (src->kinds >> kind & 1)
            to->kind[kind] = (struct acts){ .kind = (enum act_kind)kind,
                .n_rows = s->n_rows,
                .n_cols = src->n_cols,
                .stride = act_row_bytes((enum act_kind)kind, src->n_cols),
                .data = is_redundant ? s->mem->acts[kind] : s->m->acts[kind] };
    if (!is_redundant)
        forward_part(s, s->n_rows, &from, &end);
    for (int r = from; r < end; r++)
        norm_quantise_row(s, src, r, to);
    if (!is_redundant)
        barrier(s);
}

struct inputs forward_some(const struct inputs *in, int n, int first, const int *pick)
{
    struct inputs out = *in;

    for (int kind = 0; kind < N_ACT_KINDS; kind++) {
        struct acts *a = &out.kind[kind];
        a->n_rows = n;
        a->pick = pick;
        if (!pick && a->data)
            a->data = (uint8_t *)a->data + (size_t)first * a->stride;
    }
    return out;
}

/* ---- tiles */

/* with fewer rows per call, a GEMM that first unpacks its weights is slow */
enum { FEW_ROWS = 64 };

struct cut forward_cut(const struct self *s, struct made *to, int n_panels, int panels)
{
    const int block = MAX(act_block(to->acts.kind) / PANEL, 1);
    const int n_blocks = (n_panels + block - 1) / block;
    int rows = (int)(s->m->tile_floats / ((size_t)block * PANEL));

    if (panels >= block)
        return (struct cut){ panels / block * block, s->n_rows };
    rows = MIN(rows, s->n_rows);
    while (rows > FEW_ROWS && n_blocks * ((s->n_rows + rows - 1) / rows) < ENOUGH * s->n_threads)
        rows = MAX(rows / 2, FEW_ROWS);
    to->by_piece = n_blocks * ((s->n_rows + rows - 1) / rows) >= ENOUGH * s->n_threads;
    return to->by_piece ? (struct cut){ block, rows } : (struct cut){ panels, s->n_rows };
}

/* The smallest number of KV heads which together are whole quantisation blocks and leave no thread
 * without work; 0: none. */
static int heads_per_tile(const struct self *s, int block)
{
    const struct hparams *h = &s->m->h;
    const int width = h->n_heads / h->n_kv_heads * h->head_dim;

    if (width % block == 0)
        return 1;
    for (int n = 2; n <= h->n_kv_heads; n++) {
        int n_pieces = h->n_kv_heads / n;
        if (h->n_kv_heads % n == 0 && n * width % block == 0)
            return n_pieces % s->n_threads == 0 || n_pieces >= ENOUGH * s->n_threads ? n : 0;
    }
    return 0;
}

static struct made act_out_for(const struct self *s, const struct packed *reader, int n_rows)
{
    enum act_kind kind = kernels_acts(s->m->kernels, reader->type);

    return (struct made){ .acts = { .kind = kind,
                              .n_rows = n_rows,
                              .n_cols = reader->n_cols,
                              .stride = act_row_bytes(kind, reader->n_cols) },
        .by_piece = true };
}

/* Sets the buffers. If the GEMM reads floats, no quantised copy is needed. */
static void set_buffers(struct made *x, float *floats, size_t stride, void *quantised)
{
    bool as_is = x->acts.kind == ACT_F32;

    x->floats = floats;
    x->stride = stride;
    x->acts.data = as_is ? (void *)floats : quantised;
    if (as_is)
        x->acts.stride = stride * sizeof(float);
}

struct made forward_attended(const struct self *s, const struct layer *l)
{
    const struct llama *m = s->m;
    struct made x = act_out_for(s, &l->o, s->n_rows);
    int n_heads = heads_per_tile(s, act_block(x.acts.kind));

    set_buffers(&x, m->attended, m->q_stride, m->attended_acts);
    x.by_piece = n_heads > 0;
    x.n_heads = MAX(n_heads, 1);
    return x;
}

struct made forward_hidden(const struct self *s, const struct layer *l, int n_rows)
{
    const struct llama *m = s->m;
    struct made x = act_out_for(s, &l->down, n_rows);

    set_buffers(&x, m->hidden, m->ff_stride, m->hidden_acts);
    return x;
}

static void quantise_cols(
    const struct self *s, const struct acts *to, int row, int col, const float *x, int n)
{
    struct act_cols at = { to->kind, (uint8_t *)to->data + (size_t)row * to->stride, col };

    kernels_put_acts(s->m->kernels, at, x, n);
}

void forward_put(const struct self *s, const struct made *to, int row, int col, int n)
{
    if (to->by_piece && to->acts.kind != ACT_F32)
        quantise_cols(s, &to->acts, row, col, to->floats + (size_t)row * to->stride + col, n);
}

void forward_put_silu(
    const struct self *s, const struct made *to, int row, int col, size_t at, int n)
{
    bool is_quantised = to->by_piece && to->acts.kind != ACT_F32;
    float *gate = s->mem->tile + at;

    s->m->kernels->silu_mul(is_quantised ? gate : to->floats + (size_t)row * to->stride + col, gate,
        s->mem->tile2 + at, n);
    if (is_quantised)
        quantise_cols(s, &to->acts, row, col, gate, n);
}

void forward_read(const struct self *s, const struct made *from, struct inputs *to)
{
    struct source floats = { from->floats, from->stride, NULL, NULL, from->acts.n_cols,
        1u << from->acts.kind };
    struct self rows = *s;

    rows.n_rows = from->acts.n_rows;
    if (from->by_piece)
        to->kind[from->acts.kind] = from->acts;
    else
        forward_prepare(&rows, &floats, to);
}
