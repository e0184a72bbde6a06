/* crc.h: CRC-32C (Castagnoli; RFC 3720, appendix B.4), for data read back from a disk.
 *
 * Detects every burst error of up to 32 bits, and all other errors with a probability of 1 - 2^-32.
 * It is no protection against intentional changes.
 *
 * Pure; any thread. */
#pragma once

#include "base/base.h"

/* `crc` is 0 for the first bytes, else the result for the preceding bytes. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);
/* The same without special instructions, as the reference for tests. */
uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n);
