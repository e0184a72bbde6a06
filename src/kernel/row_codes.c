#include "kernel/row_codes.h"
#include "kernel/iq_grids.h"
#include "base/half.h"

/* Two bits of element e of 256. */
static int two_bits(const uint8_t q[16][16][4], int r, int e)
{
    return q[e / 16][r][e % 4] >> (e % 16 / 4 * 2) & 3;
}

/* Three bits of element e of 256. */
static int three_bits(const uint8_t q[8][3][16][4], int r, int e)
{
    int quad = e % 32 / 4, i = e % 4;

    if (quad < 6)
        return q[e / 32][quad / 2][r][i] >> (quad % 2 * 3) & 7;
    return q[e / 32][quad - 6][r][i] >> 6 | (q[e / 32][2][r][i] >> quad & 1) << 2;
}

void row_codes_q2_k(struct row_codes *out, const void *block, int r)
{
    const struct p16_q2_k *p = block;

    out->d = f16_to_f32(p->d[r]);
    out->dmin = f16_to_f32(p->dmin[r]);
    out->has_mins = true;
    for (int e = 0; e < QK_SUPER; e++)
        out->code[e] = (int8_t)two_bits(p->q, r, e);
    for (int s = 0; s < 16; s++) {
        out->scale[s] = p->scale[s / 2][r][s % 2] & 15;
        out->min[s] = (int8_t)(p->scale[s / 2][r][s % 2] >> 4);
    }
}

void row_codes_q3_k(struct row_codes *out, const void *block, int r)
{
    const struct p16_q3_k *p = block;

    out->d = f16_to_f32(p->d[r]);
    out->has_mins = false;
    for (int e = 0; e < QK_SUPER; e++)
        out->code[e] = (int8_t)(three_bits(p->q, r, e) - 4);
    for (int s = 0; s < 16; s++)
        out->scale[s] = p->scale[s / 2][r][s % 2];
}

/* ---- IQ types */

/* Begins a block without minimums; its scale is d * factor. */
static void begin_block(struct row_codes *out, uint16_t d, float factor)
{
    out->d = f16_to_f32(d) * factor;
    out->has_mins = false;
}

/* Nibbles of s, one per 16 elements. */
static void set_scales_16(struct row_codes *out, const uint8_t scale[8][16], int r)
{
    for (int s = 0; s < 16; s++)
        out->scale[s] = (int8_t)(2 * (scale[s / 2][r] >> (s % 2 * 4) & 15) + 1);
}

/* Nibbles of s, one per 32 elements. */
static void set_scales_32(struct row_codes *out, const uint8_t scale[4][16], int r)
{
    for (int s = 0; s < 16; s++)
        out->scale[s] = (int8_t)(2 * (scale[s / 4][r] >> (s / 2 % 2 * 4) & 15) + 1);
}

/* Eight codes of group g: magnitudes with signs. */
static void set_signed(int8_t code[8], const uint8_t magnitude[8], uint8_t sign)
{
    for (int i = 0; i < 8; i++)
        code[i] = (int8_t)(sign >> i & 1 ? -magnitude[i] : magnitude[i]);
}

void row_codes_iq2_xxs(struct row_codes *out, const void *block, int r)
{
    const struct p16_iq2_xxs *p = block;

    begin_block(out, p->d[r], 0.125f);
    set_scales_32(out, p->scale, r);
    for (int g = 0; g < 32; g++)
        set_signed(out->code + 8 * g, iq2_xxs_grid[p->index[g][r]], p->sign[g][r]);
}

void row_codes_iq2_xs(struct row_codes *out, const void *block, int r)
{
    const struct p16_iq2_xs *p = block;

    begin_block(out, p->d[r], 0.125f);
    set_scales_16(out, p->scale, r);
    for (int g = 0; g < 32; g++) {
        int index = p->index[g][r] | (p->high[g / 8][r] >> (g % 8) & 1) << 8;
        set_signed(out->code + 8 * g, iq2_xs_grid[index], p->sign[g][r]);
    }
}

void row_codes_iq2_s(struct row_codes *out, const void *block, int r)
{
    const struct p16_iq2_s *p = block;

    begin_block(out, p->d[r], 0.125f);
    set_scales_16(out, p->scale, r);
    for (int g = 0; g < 32; g++) {
        int index = p->index[g][r] | (p->high[g / 4][r] >> (g % 4 * 2) & 3) << 8;
        set_signed(out->code + 8 * g, iq2_s_grid[index], p->sign[g][r]);
    }
}

void row_codes_iq3_xxs(struct row_codes *out, const void *block, int r)
{
    const struct p16_iq3_xxs *p = block;
    uint8_t magnitude[8];

    begin_block(out, p->d[r], 0.5f); /* the codes are half of the numbers */
    set_scales_32(out, p->scale, r);
    for (int g = 0; g < 32; g++) {
        memcpy(magnitude, iq3_xxs_grid[p->index[2 * g][r]], 4);
        memcpy(magnitude + 4, iq3_xxs_grid[p->index[2 * g + 1][r]], 4);
        set_signed(out->code + 8 * g, magnitude, p->sign[g][r]);
    }
}

void row_codes_iq3_s(struct row_codes *out, const void *block, int r)
{
    const struct p16_iq3_s *p = block;
    uint8_t magnitude[8];

    begin_block(out, p->d[r], 1);
    set_scales_32(out, p->scale, r);
    for (int g = 0; g < 32; g++) {
        for (int i = 0; i < 8; i++) {
            int at = 2 * g + i / 4;
            int index = p->index[at][r] | (p->high[at / 8][r] >> (at % 8) & 1) << 8;
            magnitude[i] = (uint8_t)(2 * iq3_s_grid[index][i % 4] - 15);
        }
        set_signed(out->code + 8 * g, magnitude, p->sign[g][r]);
    }
}

/* ---- ternary types */

/* Eight codes of an IQ1 type. */
static void set_ternary(int8_t code[8], int index, bool is_minus)
{
    for (int i = 0; i < 8; i++)
        code[i] = (int8_t)(iq1_grid[index][i] - 8 + (is_minus ? -1 : 1));
}

void row_codes_iq1_s(struct row_codes *out, const void *block, int r)
{
    const struct p16_iq1_s *p = block;

    begin_block(out, p->d[r], 0.125f);
    for (int g = 0; g < 32; g++) {
        int high = p->high[g / 4][r], index = p->index[g][r] | (high >> (g % 4 * 3) & 7) << 8;
        set_ternary(out->code + 8 * g, index, high >> 15);
        out->scale[g / 2] = (int8_t)(2 * (high >> 12 & 7) + 1);
    }
}

void row_codes_iq1_m(struct row_codes *out, const void *block, int r)
{
    const struct p16_iq1_m *p = block;

    begin_block(out, p->d[r], 0.125f);
    for (int g = 0; g < 32; g++) {
        int high = p->high[g / 2][r] >> (g % 2 * 4) & 15;
        set_ternary(out->code + 8 * g, p->index[g][r] | (high & 7) << 8, high >> 3);
    }
    for (int s = 0; s < 16; s++)
        out->scale[s] = (int8_t)(2 * (p->scale[s / 4][r] >> (s % 4 * 3) & 7) + 1);
}

static void set_two_bits(struct row_codes *out, const uint8_t q[16][16][4], uint16_t d, int r)
{
    begin_block(out, d, 1);
    for (int e = 0; e < QK_SUPER; e++)
        out->code[e] = (int8_t)(two_bits(q, r, e) - 1);
    memset(out->scale, 1, sizeof(out->scale));
}

void row_codes_tq1_0(struct row_codes *out, const void *block, int r)
{
    const struct p16_tq1_0 *p = block;

    set_two_bits(out, p->q, p->d[r], r);
}

void row_codes_tq2_0(struct row_codes *out, const void *block, int r)
{
    const struct p16_tq2_0 *p = block;

    set_two_bits(out, p->q, p->d[r], r);
}
