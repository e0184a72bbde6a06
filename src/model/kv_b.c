#include "model/kv_b.h"
#include "base/mem.h"

/* The rows of a head, dequantised by way of panels, and transposed to k: [kv_rank][nope_dim]. */
static int transpose_head(
    const struct kv_b *w, const uint8_t *rows, uint8_t *panels, float *row, float *k, struct err *e)
{
    struct packed packed;

    if (pack_init(&packed, w->type, w->nope_dim, w->kv_rank, panels, e))
        return -1;
    pack_panels(&packed, rows, 0, packed.n_panels);
    for (int r = 0; r < w->nope_dim; r++) {
        pack_get_row(&packed, r, row);
        for (int i = 0; i < w->kv_rank; i++)
            k[(size_t)i * (size_t)w->nope_dim + (size_t)r] = row[i];
    }
    return 0;
}

int kv_b_split(const struct kv_b *w, float **k, uint8_t **v, struct err *e)
{
    const size_t n_heads = (size_t)w->n_heads, k_floats = (size_t)w->kv_rank * (size_t)w->nope_dim;
    const size_t k_bytes = (size_t)w->nope_dim * w->row_bytes;
    const size_t v_bytes = (size_t)w->value_dim * w->row_bytes;
    uint8_t *panels = try_aligned(64, pack_bytes(w->type, w->nope_dim, w->kv_rank));
    float *row = try_calloc((size_t)w->kv_rank, sizeof(*row));
    int rc = 0;

    *k = try_calloc(n_heads * k_floats, sizeof(**k));
    *v = try_calloc(n_heads, v_bytes);
    if (!panels || !row || !*k || !*v)
        rc = err_set(e, ERR_MEMORY, "no memory to split attn_kv_b");
    for (size_t h = 0; h < n_heads && !rc; h++) {
        const uint8_t *rows = w->rows + h * (k_bytes + v_bytes);
        rc = transpose_head(w, rows, panels, row, *k + h * k_floats, e);
        memcpy(*v + h * v_bytes, rows + k_bytes, v_bytes);
    }
    mem_free(panels);
    mem_free(row);
    if (rc) {
        mem_free(*k);
        mem_free(*v);
    }
    return rc;
}
