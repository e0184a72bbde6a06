/* address.h: whether an IP address belongs to the public internet. URLs of clients may reach only
 * such addresses (server-side request forgery).
 *
 * Source: the IANA registries of special-purpose addresses for IPv4 and IPv6 (RFC 6890). An IPv6
 * address that contains an IPv4 address (mapped, NAT64, 6to4) is as public as that one.
 *
 * Pure; any thread. */
#pragma once

#include "base/base.h"

#include <sys/socket.h>

/* False for every family but IPv4 and IPv6. */
bool address_is_public(const struct sockaddr *a);
