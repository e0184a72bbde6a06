/* rope.h: rotary position embedding: the frequency of each pair of a head, and its angle at a
 * position.
 *
 * Su et al. 2021 (RoFormer); linear scaling of positions; per-pair divisors from the model file
 * (the method of Llama 3.1); YaRN (Peng et al. 2023, section 3: "NTK-by-parts" and the attention
 * temperature). Angles are computed in double precision, so that position 100,000 is as exact as
 * position 1.
 *
 * Pure; any thread. */
#pragma once

#include "model/hparams.h"

struct rope_table {
    int n_pairs;                   /* rotated dimensions / 2 */
    float magnitude;               /* YaRN scales queries and keys by this factor; else 1 */
    double freq[MAX_HEAD_DIM / 2]; /* radians per position */
};

/* factors: [n_rot/2] divisors of the frequencies, or NULL. */
void rope_table_init(struct rope_table *t, const struct rope_params *p, const float *factors);

/* Writes cs: [n_pairs][cos, sin] of one position. */
void rope_table_at(const struct rope_table *t, int pos, float *cs);
