/* inputs.c: the inputs of products, in the form that each reads (kernel/acts.h).
 *
 * What a norm says is made row by row, since it needs all of one. What attention says, and gate and
 * up, is put there by whoever has just computed a piece of it, while it is in the cache. Pieces are
 * whole blocks of that form; where such pieces would be too few for the members, rows are made of
 * floats, behind a barrier. */
#include "model/forward.h"
#include "model/forward_in.h"

static void prepare_row(const struct self *s, const struct source *src, int r, struct inputs *to)
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
    bool alone = s->n_rows <= ALONE_ROWS;
    int from = 0, end = s->n_rows;

    for (int kind = 0; kind < N_ACT_KINDS; kind++)
        if (src->kinds >> kind & 1)
            to->kind[kind] = (struct acts){ .kind = (enum act_kind)kind,
                .n_rows = s->n_rows,
                .n_cols = src->n_cols,
                .stride = act_row_bytes((enum act_kind)kind, src->n_cols),
                .data = alone ? s->mem->acts[kind] : s->m->acts[kind] };
    if (!alone)
        forward_part(s, s->n_rows, &from, &end);
    for (int r = from; r < end; r++)
        prepare_row(s, src, r, to);
    if (!alone)
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

/* ---- pieces */

enum { FEW_ROWS = 64 }; /* fewer at a time make a product slow that unpacks its weights first */

struct cut forward_cut(const struct self *s, struct made *to, int n_panels, int panels)
{
    const int block = MAX(act_block(to->acts.kind) / PANEL, 1);
    const int n_blocks = (n_panels + block - 1) / block;
    int rows = (int)(s->m->tile_floats / ((size_t)block * PANEL));

    if (panels >= block)
        return (struct cut){ panels / block * block, s->n_rows };
    rows = MIN(rows, s->n_rows);
    while (rows > FEW_ROWS && n_blocks * ((s->n_rows + rows - 1) / rows) < ENOUGH * s->n)
        rows = MAX(rows / 2, FEW_ROWS);
    to->by_piece = n_blocks * ((s->n_rows + rows - 1) / rows) >= ENOUGH * s->n;
    return to->by_piece ? (struct cut){ block, rows } : (struct cut){ panels, s->n_rows };
}

/* The fewest kv heads that are whole blocks together, and leave no member without work; else 0. */
static int heads_of_blocks(const struct self *s, int block)
{
    const struct hparams *h = &s->m->h;
    const int width = h->n_heads / h->n_kv_heads * h->head_dim;

    if (width % block == 0)
        return 1;
    for (int n = 2; n <= h->n_kv_heads; n++) {
        int n_pieces = h->n_kv_heads / n;
        if (h->n_kv_heads % n == 0 && n * width % block == 0)
            return n_pieces % s->n == 0 || n_pieces >= ENOUGH * s->n ? n : 0;
    }
    return 0;
}

static struct made made(const struct self *s, const struct packed *reader, int n_rows)
{
    enum act_kind kind = kernels_acts(s->m->kernels, reader->type);

    return (struct made){ .acts = { .kind = kind,
                              .n_rows = n_rows,
                              .n_cols = reader->n_cols,
                              .stride = act_row_bytes(kind, reader->n_cols) },
        .by_piece = true };
}

/* Floats that are read as they are need no other place. */
static void place(struct made *x, float *floats, size_t stride, void *coded)
{
    bool as_is = x->acts.kind == ACT_F32;

    x->floats = floats;
    x->stride = stride;
    x->acts.data = as_is ? (void *)floats : coded;
    if (as_is)
        x->acts.stride = stride * sizeof(float);
}

struct made forward_attended(const struct self *s, const struct layer *l)
{
    const struct llama *m = s->m;
    struct made x = made(s, &l->o, s->n_rows);
    int n_heads = heads_of_blocks(s, act_block(x.acts.kind));

    place(&x, m->attended, m->q_stride, m->attended_acts);
    x.by_piece = n_heads > 0;
    x.n_heads = MAX(n_heads, 1);
    return x;
}

struct made forward_hidden(const struct self *s, const struct layer *l, int n_rows)
{
    const struct llama *m = s->m;
    struct made x = made(s, &l->down, n_rows);

    place(&x, m->hidden, m->ff_stride, m->hidden_acts);
    return x;
}

static void put(
    const struct self *s, const struct acts *to, int row, int col, const float *x, int n)
{
    struct act_cols at = { to->kind, (uint8_t *)to->data + (size_t)row * to->stride, col };

    kernels_put_acts(s->m->kernels, at, x, n);
}

void forward_put(const struct self *s, const struct made *to, int row, int col, int n)
{
    if (to->by_piece && to->acts.kind != ACT_F32)
        put(s, &to->acts, row, col, to->floats + (size_t)row * to->stride + col, n);
}

void forward_put_silu(
    const struct self *s, const struct made *to, int row, int col, size_t at, int n)
{
    bool codes = to->by_piece && to->acts.kind != ACT_F32;
    float *gate = s->mem->tile + at;

    s->m->kernels->silu_mul(
        codes ? gate : to->floats + (size_t)row * to->stride + col, gate, s->mem->tile2 + at, n);
    if (codes)
        put(s, &to->acts, row, col, gate, n);
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
