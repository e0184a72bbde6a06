/* synth_blocks.h: random weights in the file formats, drawn by counter. Pure; any thread. */
#pragma once

#include "format/qtype.h"

bool synth_has_type(enum qtype type);

/* Blocks first .. first + n - 1 of the tensor `key`: weights around 0 with deviation sigma. For F32
 * and F16 a block is one number. A block does not depend on which others are drawn with it. */
void synth_blocks(
    enum qtype type, float sigma, uint64_t key, uint64_t first, uint8_t *out, size_t n);
