#include "model/state_slot.h"

enum { HEADER_BYTES = 64, ALIGN_FLOATS = 16 };

static size_t padded(size_t n)
{
    return (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

/* Columns of a row of S in all slices of a head; only the last slice is padded. */
static size_t head_columns(const struct recurrent_params *p)
{
    const int whole = (state_n_slices(p) - 1) * STATE_COLS;

    return (size_t)(whole + state_stride(p->value_dim - whole));
}

void state_layout_init(struct state_layout *l, const struct recurrent_params *p)
{
    const size_t log_rows = STATE_LOG_ROWS;

    *l = (struct state_layout){ .n_layers = p->n_layers };
    if (!p->n_layers)
        return;
    l->n_conv_rows = p->n_taps - 1 + STATE_LOG_ROWS;
    l->keys = (size_t)p->n_key_heads * (size_t)p->key_dim;
    l->values = (size_t)p->n_value_heads * (size_t)p->value_dim;
    l->heads = (size_t)p->n_value_heads;
    l->channels = (size_t)p->n_channels;
    l->s_floats = (size_t)p->n_value_heads * (size_t)p->key_dim * head_columns(p);
    l->conv = l->s_floats;
    l->k = l->conv + (size_t)l->n_conv_rows * l->channels;
    l->u = l->k + log_rows * l->keys;
    l->g = l->u + log_rows * l->values;
    l->end = l->g + log_rows * l->heads;
    l->layer_bytes = HEADER_BYTES + padded(l->end) * sizeof(float);
    l->bytes = (size_t)l->n_layers * l->layer_bytes;
}

struct state_layer state_layer_at(const struct state_layout *l, uint8_t *slot, int index)
{
    uint8_t *layer = slot + (size_t)index * l->layer_bytes;
    float *s = (float *)(void *)(layer + HEADER_BYTES);

    return (struct state_layer){ .header = (struct state_header *)(void *)layer,
        .s = s,
        .conv = s + l->conv,
        .k = s + l->k,
        .u = s + l->u,
        .g = s + l->g };
}

size_t state_slice_at(const struct recurrent_params *p, int head, int slice)
{
    const size_t columns = (size_t)head * head_columns(p) + (size_t)(slice * STATE_COLS);

    return columns * (size_t)p->key_dim;
}

/* ---- copies */

/* Clears the rows of a ring buffer that do not belong to positions [from, to). */
static void clear_rows(float *rows, int n_rows, size_t n, int from, int to)
{
    for (int i = 0; i < n_rows - (to - from); i++)
        memset(rows + (size_t)((to + i) % n_rows) * n, 0, n * sizeof(*rows));
}

static void clear_unused(const struct state_layout *l, const struct state_layer *s)
{
    const int base = s->header->base, end = base + s->header->n_log;
    const int n_before = MIN(base, l->n_conv_rows - STATE_LOG_ROWS);

    clear_rows(s->conv, l->n_conv_rows, l->channels, base - n_before, end);
    clear_rows(s->k, STATE_LOG_ROWS, l->keys, base, end);
    clear_rows(s->u, STATE_LOG_ROWS, l->values, base, end);
    clear_rows(s->g, STATE_LOG_ROWS, l->heads, base, end);
    memset(s->s + l->end, 0, (padded(l->end) - l->end) * sizeof(float));
}

/* Whether the slot can resume at a position; of a header of unknown origin. */
static bool is_valid(const struct state_header *h, int pos)
{
    return h->n_log >= 0 && h->n_log <= STATE_LOG_ROWS && h->base >= 0 && h->base <= pos &&
           pos - h->base <= h->n_log;
}

void state_slot_read(const struct state_layout *l, const uint8_t *slot, uint8_t *out)
{
    memcpy(out, slot, l->bytes);
    for (int i = 0; i < l->n_layers; i++) {
        struct state_layer s = state_layer_at(l, out, i);
        struct state_header header = *s.header;
        memset(s.header, 0, HEADER_BYTES);
        *s.header = header;
        clear_unused(l, &s);
    }
}

int state_slot_write(const struct state_layout *l, uint8_t *slot, const uint8_t *in, int pos)
{
    int first = 0;

    memcpy(slot, in, l->bytes);
    for (int i = 0; i < l->n_layers; i++) {
        const struct state_header *h = state_layer_at(l, slot, i).header;
        if (!is_valid(h, pos)) {
            state_slot_clear(l, slot);
            return -1;
        }
        first = MAX(first, h->base);
    }
    return first;
}

void state_slot_clear(const struct state_layout *l, uint8_t *slot)
{
    for (int i = 0; i < l->n_layers; i++)
        memset(state_layer_at(l, slot, i).header, 0, HEADER_BYTES);
}
