#include "model/layer_input.h"

#include <math.h>

/* Floats of a row of m->layer_inputs. */
static size_t inputs_stride(const struct llama *m)
{
    return (size_t)m->w.input_table.n_cols;
}

/* thread_mem->table_row = the table's row of the token. The row is packed as a matrix of one row,
 * since pack_get_row() is the definition of all types. */
static void read_table_row(const struct thread_ctx *s, int32_t token)
{
    const struct row_table *table = &s->m->w.input_table;
    const struct gguf_tensor *t = table->t;
    const uint8_t *row =
        t->data ? t->data + (size_t)token * table->row_bytes : s->thread_mem->table_row_bytes;
    struct packed one;
    struct err e;

    if (!t->data)
        gguf_read_rows(
            s->m->w.file_of_table, t, (uint64_t)token, 1, s->thread_mem->table_row_bytes);
    CHECK(!pack_init(&one, t->type, 1, table->n_cols, s->thread_mem->table_row_packed, &e));
    pack_panels(&one, row, 0, 1);
    pack_get_row(&one, 0, s->thread_mem->table_row);
}

/* p [n_layers][d_input] = (norm(p / sqrt(d_model)) + sqrt(d_input) * row of the table) / sqrt(2).
 * Dividing p by sqrt(d_model) multiplies the epsilon of the norm by d_model instead. */
static void finish_row(const struct thread_ctx *s, int r)
{
    const struct llama *m = s->m;
    const int n = m->h.d_input;
    const float root = sqrtf((float)n), half = sqrtf(0.5f);
    float *p = m->layer_inputs + (size_t)r * inputs_stride(m);
    const float *row = s->thread_mem->table_row;

    read_table_row(s, m->rows[r].token);
    for (int l = 0; l < m->h.n_layers; l++, p += n, row += n) {
        m->kernels->rms_norm(p, p, m->w.input_model_norm, n, m->h.eps * (float)m->h.d_model);
        for (int i = 0; i < n; i++)
            p[i] = (p[i] + root * row[i]) * half;
    }
}

void layer_inputs_prepare(const struct thread_ctx *s)
{
    struct llama *m = s->m;
    const struct packed *proj = &m->w.input_model_proj;
    const struct norm_in src = {
        .rows = m->y, .stride = m->d_stride, .n_cols = m->h.d_model, .kinds = act_kind_bit(m, proj)
    };
    const struct gemm_out out = { proj, m->layer_inputs, inputs_stride(m) };
    struct inputs in;
    int from, to;

    forward_norm_quantise(s, &src, &in);
    forward_gemms(s, &in, &out, 1);
    barrier(s);
    forward_thread_range(s, s->n_rows, &from, &to);
    for (int r = from; r < to; r++)
        finish_row(s, r);
    barrier(s);
}

/* hidden [n_rows][d_input] = gelu(gate * x) * layer input, tile by tile. */
static void gate_input(const struct thread_ctx *s, const struct layer *l, int layer,
    const struct inputs *in, const struct act_out *hidden)
{
    const struct llama *m = s->m;
    const struct packed *w = &l->input_gate;
    const int step = forward_tile_panels(s, w->n_panels);

    for (int from; (from = thread_pool_next_task(m->thread_pool) * step) < w->n_panels;) {
        const int to = MIN(from + step, w->n_panels), n = MIN(to * PANEL, w->n_rows) - from * PANEL;
        const size_t width = (size_t)(to - from) * PANEL, col = (size_t)from * PANEL;
        forward_gemm(s, w, in,
            (struct gemm_args){
                .panel_from = from, .panel_to = to, .y = s->thread_mem->tile, .y_stride = width });
        for (int r = 0; r < s->n_rows; r++) {
            const float *input = m->layer_inputs + (size_t)picked_row(s, r) * inputs_stride(m) +
                                 (size_t)(layer * m->h.d_input) + col;
            m->activate(hidden->floats + (size_t)r * hidden->stride + col,
                s->thread_mem->tile + (size_t)r * width, input, n);
        }
    }
}

void layer_input_add(const struct thread_ctx *s, const struct layer *l, int layer)
{
    struct act_out hidden = forward_hidden_out(s, &l->input_proj, s->n_rows);
    const struct residual to = { .norm = l->input_norm, .scale = l->out_scale };
    struct inputs in;

    hidden.is_quantised_by_tile = hidden.acts.kind == ACT_F32;
    rms_norm(s, NULL, act_kind_bit(s->m, &l->input_gate), &in); /* no norm: quantises x */
    gate_input(s, l, layer, &in, &hidden);                      /* hidden [n_rows][d_input] */
    barrier(s);
    forward_load_act(s, &hidden, &in);
    forward_gemm_residual(s, &l->input_proj, &in, &to);
}
