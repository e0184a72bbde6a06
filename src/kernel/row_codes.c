#include "kernel/row_codes.h"
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
