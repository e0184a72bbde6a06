/* ffn.c: feed-forward network with a gate, hidden = activation(W_gate * in, W_up * in), or without
 * one, hidden = activation(W_up * in), tile by tile.
 *
 * Owner: the thread pool. */
#include "model/forward.h"
#include "model/ffn.h"
#include "model/forward_in.h"

void ffn_gate_up_tile(const struct thread_ctx *s, const struct ffn *w, const struct inputs *in,
    const struct act_out *to, const struct ff_piece *p)
{
    size_t width = (size_t)(p->panel_to - p->panel_from) * PANEL;
    struct gemm_args g = {
        .panel_from = p->panel_from, .panel_to = p->panel_to, .y_stride = width
    };

    const struct packed *first = w->gate.n_rows ? &w->gate : &w->up;

    g.y = s->thread_mem->tile;
    if (w->gate.n_rows) {
        g.next = w->up.data + (size_t)p->panel_from * w->up.panel_bytes;
        forward_gemm(s, &w->gate, in, g);
        g.y = s->thread_mem->tile2;
    }
    g.next = forward_next_weights(s, first, p->panel_from, p->panel_to - p->panel_from);
    forward_gemm(s, &w->up, in, g);
    for (int r = 0; p->gate_bias && r < p->n_rows; r++) {
        s->m->kernels->add(s->thread_mem->tile + (size_t)r * width, p->gate_bias, p->n_cols);
        s->m->kernels->add(s->thread_mem->tile2 + (size_t)r * width, p->up_bias, p->n_cols);
    }
    for (int r = 0; r < p->n_rows; r++)
        forward_activate_tile(s, to, p->row + r, p->col, (size_t)r * width, p->n_cols);
}

/* All row blocks of the same panels follow one another, so that the panels stay in the cache. */
void ffn_gate_up(const struct thread_ctx *s, const struct ffn *w, const struct inputs *in,
    struct act_out *hidden)
{
    const int n_panels = w->up.n_panels;
    struct tile_split tile =
        forward_tile_split(s, hidden, n_panels, forward_tile_panels(s, n_panels));
    const int n_row_tiles = (s->n_rows + tile.rows - 1) / tile.rows;

    for (;;) {
        int piece = thread_pool_next_task(s->m->thread_pool);
        int from = piece / n_row_tiles * tile.panels, row = piece % n_row_tiles * tile.rows;
        if (from >= n_panels)
            return;
        int to = MIN(from + tile.panels, n_panels), n = MIN(tile.rows, s->n_rows - row);

        struct inputs some = forward_inputs_slice(in, n, row, NULL);
        struct ff_piece ff = { .panel_from = from,
            .panel_to = to,
            .row = row,
            .n_rows = n,
            .col = from * PANEL,
            .n_cols = MIN(to * PANEL, w->up.n_rows) - from * PANEL };
        ffn_gate_up_tile(s, w, &some, hidden, &ff);
    }
}

void ffn_down(const struct thread_ctx *s, const struct packed *down, const struct act_out *hidden,
    const struct residual *to)
{
    struct inputs in;

    forward_load_act(s, hidden, &in);
    forward_gemm_residual(s, down, &in, to);
}
