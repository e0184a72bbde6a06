/* state_slot.h: layout of a state slot (lm.h): the state of one sequence in all recurrent layers.
 *
 * A slot is [recurrent layer] of struct state_layer. S is that of position `base`. The other rows
 * are stored at their position modulo the number of rows: the inputs of the convolution from
 * base - (n_taps - 1) on, and the log (key, update and decay) from base on, both up to
 * base + n_log. So a run that is written to the slot from which it resumes overwrites neither the
 * inputs before it nor the log that it applies.
 *
 * Pure functions on memory of the caller; any thread. */
#pragma once

#include "kernel/recurrent.h"
#include "model/hparams.h"
#include "model/lm.h"

struct state_layout {
    int n_layers; /* recurrent layers; 0: none, and slots have no bytes */
    int n_conv_rows;
    size_t channels, keys, values, heads; /* floats of a row: conv input, k, u, g */
    size_t s_floats;                      /* S of all heads and slices */
    size_t conv, k, u, g, end;            /* offsets in a layer, in floats, after the header */
    size_t layer_bytes, bytes;            /* size of a layer, and of a slot */
};

struct state_header { /* padded to 64 bytes */
    int32_t base;     /* position */
    int32_t n_log;    /* 0 .. STATE_LOG_ROWS */
};

struct state_layer { /* one layer of one slot */
    struct state_header *header;
    float *s;         /* [n_value_heads][slices][key_dim][state_stride(columns)] */
    float *conv;      /* [n_conv_rows][channels] */
    float *k, *u, *g; /* [STATE_LOG_ROWS][keys, values, heads] */
};

void state_layout_init(struct state_layout *l, const struct recurrent_params *p);
/* Recurrent layer `index` of the slot at `slot`. */
struct state_layer state_layer_at(const struct state_layout *l, uint8_t *slot, int index);
/* Offset of a slice of S in state_layer.s, in floats. */
size_t state_slice_at(const struct recurrent_params *p, int head, int slice);

/* Slices of a value head. */
static inline int state_n_slices(const struct recurrent_params *p)
{
    return (p->value_dim + STATE_COLS - 1) / STATE_COLS;
}

/* Rows of a position in the ring buffers. */
static inline float *state_conv_row(
    const struct state_layout *l, const struct state_layer *s, int pos)
{
    return s->conv + (size_t)(pos % l->n_conv_rows) * l->channels;
}

static inline size_t state_log_row(int pos)
{
    return (size_t)(pos % STATE_LOG_ROWS);
}

/* Copies a slot; the rows that the header excludes are zeros in the copy. */
void state_slot_read(const struct state_layout *l, const uint8_t *slot, uint8_t *out);
/* Copies a slot of unknown origin. Returns the first position at which every layer can resume; -1
 * if pos is none, and then the slot is cleared. */
int state_slot_write(const struct state_layout *l, uint8_t *slot, const uint8_t *in, int pos);
void state_slot_clear(const struct state_layout *l, uint8_t *slot); /* position 0, without a log */
