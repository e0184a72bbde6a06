#include "base/half.h"

float f16_to_f32_slow(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mantissa = h & 0x3ff;

    if ((h & 0x7c00) == 0) /* mantissa * 2^-24 is a normal float: exact */
        return f32_from_bits(sign | f32_to_bits((float)mantissa * 0x1p-24f));
    if (mantissa)
        return f32_from_bits(sign | 0x7fc00000 | mantissa << 13);
    return f32_from_bits(sign | 0x7f800000);
}

uint16_t f32_to_f16(float f)
{
    uint32_t u = f32_to_bits(f), magnitude = u & 0x7fffffff;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);

    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520: halfway from the largest f16 to the next power of two */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) { /* below 2^-14: the unit in the last place of 0.5 is 2^-24 */
        float shifted = f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (f32_to_bits(shifted) - 0x3f000000));
    }
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13));
}
