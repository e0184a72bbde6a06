/* json_scan.h: functions shared by the JSON parser and writer: escapes, hexadecimal digits, and a
 * scan for special characters, eight bytes at a time.
 *
 * The same characters are special when reading and when writing: quote, backslash, control
 * characters, and the start of a multi-byte character.
 *
 * Pure; any thread. */
#pragma once

#include "base/str.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte is the lowest");

/* Returns the first byte in [p, end) that is below 0x20, '"', '\\' or above 0x7F; `end` if there is
 * none. */
static inline const char *json_scan_plain(const char *p, const char *end)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;

    for (; end - p >= 8; p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        /* A subtraction borrows only out of a byte that is itself a hit, so the lowest set bit is a
         * real hit; the bits above it may be wrong. */
        uint64_t quote = (v ^ ones * '"') - ones, slash = (v ^ ones * '\\') - ones;
        uint64_t hit = (v | (v - ones * 0x20) | quote | slash) & high;
        if (hit)
            return p + __builtin_ctzll(hit) / 8;
    }
    while (p < end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\' && !(*p & 0x80))
        p++;
    return p;
}

/* Character that an escape letter stands for: " \\ / b f n r t; 0: no escape letter. */
static inline char json_escape_of(char c)
{
    switch (c) {
    case '"':
    case '\\':
    case '/':
        return c;
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return 0;
    }
}

/* Value of a hexadecimal digit; -1: not a digit. */
static inline int json_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
