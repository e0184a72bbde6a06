/* rope.h: at which speed each pair of a head turns, and how far at a position.
 *
 * Su et al. 2021 (RoFormer); linear stretching; per-pair factors from the file (how Llama 3.1 is
 * stored); YaRN (Peng et al. 2023, section 3: "NTK-by-parts" and the attention temperature).
 * Angles are computed in double, so that position 100,000 turns as exactly as position 1.
 * Pure; any thread. */
#pragma once

#include "model/hparams.h"

struct rope_table {
    int n_pairs;
    float magnitude;                /* yarn lengthens queries and keys a little; else 1 */
    double speed[MAX_HEAD_DIM / 2]; /* radians per position */
};

/* factors: [n_rot/2] divisors of the speeds, or NULL. */
void rope_table_init(struct rope_table *t, const struct hparams *h, const float *factors);

/* cs: [n_pairs][cos, sin] of one position. */
void rope_table_at(const struct rope_table *t, int pos, float *cs);
