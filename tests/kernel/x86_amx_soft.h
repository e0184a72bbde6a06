/* x86_amx_soft.h: the AMX set with emulated tiles, and access to the emulated tiles for their
 * tests. */
#pragma once

#include "kernel/kernels.h"

extern const struct kernels kernels_amx_soft; /* has NULL entries; requires AVX-512 */

bool amx_soft_is_released(void);             /* state of the calling thread */
void amx_soft_configure(const void *config); /* 64 bytes; aborts where hardware raises #GP */
/* 0: zeroes tile 0; 1: loads tile 1; 2: stores tile 2; 3: tile 0 += 1 x 2; 4: tile 0 += 0 x 2; 5:
 * tile 0 += 1 x 2 in bf16; 6: tile 0 += 1 x 1 in bf16. */
void amx_soft_use(int what);

void amx_soft_dot_bf16(float c[16][16], const uint16_t a[16][32], const uint16_t b[16][32]);
float amx_soft_fma(float x, float w, float acc); /* one step of amx_soft_dot_bf16 */
