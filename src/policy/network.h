/* network.h: address ranges in CIDR notation: "10.0.0.0/8", "2001:db8::/32", "192.0.2.7".
 *
 * All ranges are kept as IPv6; IPv4 addresses are mapped (::ffff:0:0/96), so that a client that
 * connects to an IPv6 socket by IPv4 has the same address. Pure; any thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

struct network {
    uint8_t address[16]; /* bits after the prefix are 0 */
    uint8_t n_bits;      /* length of the prefix, 0 to 128 */
};

enum { NETWORK_TEXT_MAX = 49 }; /* "ffff:...:255.255.255.255/128" */

/* ERR_INVALID names the text: not an address, a prefix out of range, or bits after the prefix. */
int network_parse(struct network *out, struct str text, struct err *e) MUST_CHECK;
/* An IPv4 range is written in its own notation. */
void network_write(const struct network *n, struct buf *out);
/* False if `address` is not an IP address. */
bool network_contains(const struct network *n, struct str address);
