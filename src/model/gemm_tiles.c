/* gemm_tiles.c: GEMMs of the forward pass, divided over the threads by tiles of weight panels.
 *
 * Owner: the thread pool. */
#include "model/forward.h"
#include "model/forward_in.h"

/* A multiple of four panels, which the kernels prefer. About eight tiles per thread, so that
 * threads finish at nearly the same time; but at least one tile for each thread, and no more panels
 * than a tile can hold. */
int forward_tile_panels(const struct thread_ctx *s, int n_panels)
{
    int even = n_panels / (s->n_threads * 8) / 4 * 4;
    int fair = (n_panels + s->n_threads - 1) / s->n_threads;
    int tile = (int)(s->m->tile_floats / ((size_t)s->n_rows * PANEL));
    return MIN(MAX(even, 4), MIN(fair, tile));
}

const uint8_t *forward_next_weights(
    const struct thread_ctx *s, const struct packed *w, int from, int step)
{
    int next = from + s->n_threads * step;

    return next < w->n_panels ? w->data + (size_t)next * w->panel_bytes : NULL;
}

/* y *= the factor of these panels, which have the same one */
static void scale_outputs(const struct packed *w, const struct gemm_args *g, int panel)
{
    const float scale = w->scales[panel / w->panels_per_scale];

    for (int m = 0; m < g->x->n_rows; m++)
        for (int r = 0; r < g->w->n_rows; r++)
            g->y[(size_t)m * g->y_stride + (size_t)r] *= scale;
}

void forward_gemm(
    const struct thread_ctx *s, const struct packed *w, const struct inputs *x, struct gemm_args g)
{
    struct packed part = *w;
    const int panel = g.panel_from;

    part.data += (size_t)g.panel_from * w->panel_bytes;
    part.n_panels = g.panel_to - g.panel_from;
    part.n_rows = MIN(g.panel_to * PANEL, w->n_rows) - g.panel_from * PANEL;
    g.w = &part;
    g.x = &x->kind[kernels_act_kind(s->m->kernels, w->type)];
    g.panel_from = 0;
    g.panel_to = part.n_panels;
    s->m->kernels->gemm[gemm_slot(w->type)](&g);
    if (w->scales)
        scale_outputs(w, &g, panel);
}

void forward_gemms(
    const struct thread_ctx *s, const struct inputs *x, const struct gemm_out *t, int n_t)
{
    int total = 0;
    for (int i = 0; i < n_t; i++)
        total += t[i].w->n_panels;
    int step = forward_tile_panels(s, total);

    for (int piece = thread_pool_next_task(s->m->thread_pool), i = 0, before = 0;;) {
        int n_pieces = (t[i].w->n_panels + step - 1) / step;
        if (piece >= before + n_pieces) {
            before += n_pieces;
            if (++i == n_t)
                return;
            continue;
        }
        int from = (piece - before) * step;
        forward_gemm(s, t[i].w, x,
            (struct gemm_args){ .panel_from = from,
                .panel_to = MIN(from + step, t[i].w->n_panels),
                .y = t[i].y + (size_t)from * PANEL,
                .y_stride = t[i].stride,
                .next = forward_next_weights(s, t[i].w, from, step) });
        piece = thread_pool_next_task(s->m->thread_pool);
    }
}

/* x[row] += residual_scale * factor of the row * y[n], from column `at` on. */
static void add_residual(
    const struct thread_ctx *s, const struct residual *to, int r, size_t at, float *y, int n)
{
    const struct llama *m = s->m;
    const float factor = to->factors ? to->factors[(size_t)r * to->stride] : 1;

    if (to->bias)
        m->kernels->add(y, to->bias + at, n);
    m->kernels->add_scaled(
        m->x + (size_t)picked_row(s, r) * m->d_stride + at, m->h.residual_scale * factor, y, n);
}

void forward_add_row(const struct thread_ctx *s, const struct residual *to, int row, float *y)
{
    const struct llama *m = s->m;
    float *x = m->x + (size_t)picked_row(s, row) * m->d_stride;

    m->kernels->rms_norm(y, y, to->norm, m->h.d_model, m->h.eps);
    add_residual(s, to, row, 0, y, m->h.d_model);
    for (int i = 0; to->scale && i < m->h.d_model; i++)
        x[i] *= *to->scale;
}

/* The norm requires whole rows: y = W * input, barrier, x += norm(y). */
static void gemm_norm_residual(const struct thread_ctx *s, const struct packed *w,
    const struct inputs *in, const struct residual *to)
{
    const struct llama *m = s->m;
    const struct gemm_out out = { w, m->y, m->d_stride };
    int from, end;

    forward_gemms(s, in, &out, 1);
    barrier(s);
    forward_thread_range(s, s->n_rows, &from, &end);
    for (int r = from; r < end; r++)
        forward_add_row(s, to, r, m->y + (size_t)r * m->d_stride);
}

void forward_gemm_residual(const struct thread_ctx *s, const struct packed *w,
    const struct inputs *in, const struct residual *to)
{
    struct llama *m = s->m;
    int step = forward_tile_panels(s, w->n_panels);

    if (to->norm) {
        gemm_norm_residual(s, w, in, to);
        return;
    }
    for (;;) {
        int from = thread_pool_next_task(m->thread_pool) * step;
        if (from >= w->n_panels)
            return;
        int end = MIN(from + step, w->n_panels);
        size_t at = (size_t)from * PANEL, width = (size_t)(end - from) * PANEL;
        int n = MIN(end * PANEL, w->n_rows) - from * PANEL;

        forward_gemm(s, w, in,
            (struct gemm_args){ .panel_from = from,
                .panel_to = end,
                .y = s->thread_mem->tile,
                .y_stride = width,
                .next = forward_next_weights(s, w, from, step) });
        for (int r = 0; r < s->n_rows; r++)
            add_residual(s, to, r, at, s->thread_mem->tile + (size_t)r * width, n);
    }
}
