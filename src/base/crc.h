/* crc.h: CRC-32C (Castagnoli; RFC 3720, appendix B.4), for bytes that come back from a disk.
 *
 * Finds every error of up to 32 bits in a row, and of others all but one in four thousand million.
 * It is no protection against somebody who means it. Pure; any thread. */
#pragma once

#include "base/base.h"

/* `crc` is 0 at the beginning, or the result for the bytes before. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);
/* The same by the processor's plainest means, to hold the other against. */
uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n);
