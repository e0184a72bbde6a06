/* quant.h: quantises float rows to the GGUF block formats, for test models. Every block is valid.
 * The scales are simple (largest magnitude, or the range per sub-block), rounded to nearest:
 * sufficient for tests, not for models to publish. Pure; any thread. */
#pragma once

#include "format/qtype.h"

/* Types with a codebook of whole groups of weights have no quantiser; synth_blocks.h generates such
 * blocks. */
bool quant_has_type(enum qtype type);

/* n is a multiple of the block size, x is finite. out receives the bytes of the row as in GGUF.
 * Aborts if quant_has_type() is false. */
void quant_row(enum qtype type, const float *x, int n, uint8_t *out);
