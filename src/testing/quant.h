/* quant.h: float rows into the file formats, for test models. Every block is valid; the scales
 * are the plain ones (largest magnitude, or the range per sub-block), rounded to nearest: good
 * enough to test with, not meant to publish models. Pure; any thread. */
#pragma once

#include "format/qtype.h"

/* n must be whole blocks, x finite. out takes the row's bytes as in GGUF. Dies on a type that is
 * not served. */
void quant_row(enum qtype type, const float *x, int n, uint8_t *out);
