#include "http/client/address.h"

#include <netinet/in.h>

struct prefix {
    uint8_t bytes[16];
    uint8_t n_bits;
};

/* clang-format off */
static const struct prefix special_v4[] = {
    { { 0 }, 8 },                /* this network */
    { { 10 }, 8 },               /* private */
    { { 100, 64 }, 10 },         /* carrier-grade NAT */
    { { 127 }, 8 },              /* loopback */
    { { 169, 254 }, 16 },        /* link-local, with the metadata services of clouds */
    { { 172, 16 }, 12 },         /* private */
    { { 192, 0, 0 }, 24 },       /* protocol assignments */
    { { 192, 0, 2 }, 24 },       /* documentation */
    { { 192, 31, 196 }, 24 },    /* AS112 */
    { { 192, 52, 193 }, 24 },    /* AMT */
    { { 192, 88, 99 }, 24 },     /* 6to4 relays */
    { { 192, 168 }, 16 },        /* private */
    { { 192, 175, 48 }, 24 },    /* AS112 */
    { { 168, 63, 129, 16 }, 32 }, /* metadata service of Azure */
    { { 198, 18 }, 15 },         /* benchmarks */
    { { 198, 51, 100 }, 24 },    /* documentation */
    { { 203, 0, 113 }, 24 },     /* documentation */
    { { 224 }, 3 },              /* multicast, reserved, broadcast */
};

/* Only 2000::/3 is global unicast; these parts of it are special. */
static const struct prefix special_v6[] = {
    { { 0x20, 0x01 }, 23 },                   /* protocol assignments, Teredo, ORCHID */
    { { 0x20, 0x01, 0x0d, 0xb8 }, 32 },       /* documentation */
    { { 0x26, 0x20, 0, 0x4f, 0x80 }, 48 },    /* AS112 */
    { { 0x3f, 0xff }, 20 },                   /* documentation */
};

/* IPv6 addresses that contain an IPv4 address at `offset`. */
static const struct {
    struct prefix prefix;
    uint8_t offset;
} embedded_v4[] = {
    { { { [10] = 0xff, 0xff }, 96 }, 12 },    /* mapped */
    { { { 0, 0x64, 0xff, 0x9b }, 96 }, 12 },  /* NAT64 */
    { { { 0x20, 0x02 }, 16 }, 2 },            /* 6to4 */
};
/* clang-format on */

static bool has_prefix(const uint8_t *address, const struct prefix *p)
{
    size_t n = p->n_bits / 8;
    unsigned mask = 0xff00u >> p->n_bits % 8;

    return !memcmp(address, p->bytes, n) &&
           (p->n_bits % 8 == 0 || ((address[n] ^ p->bytes[n]) & mask & 0xff) == 0);
}

static bool has_any_prefix(const uint8_t *address, const struct prefix *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (has_prefix(address, &list[i]))
            return true;
    return false;
}

static bool is_public_v4(const uint8_t *address)
{
    return !has_any_prefix(address, special_v4, ARRAY_LEN(special_v4));
}

static bool is_public_v6(const uint8_t *address)
{
    for (size_t i = 0; i < ARRAY_LEN(embedded_v4); i++)
        if (has_prefix(address, &embedded_v4[i].prefix))
            return is_public_v4(address + embedded_v4[i].offset);
    return address[0] >> 5 == 1 && !has_any_prefix(address, special_v6, ARRAY_LEN(special_v6));
}

bool address_is_public(const struct sockaddr *a)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    if (a->sa_family == AF_INET) {
        memcpy(&v4, a, sizeof(v4));
        return is_public_v4((const uint8_t *)&v4.sin_addr);
    }
    if (a->sa_family != AF_INET6)
        return false;
    memcpy(&v6, a, sizeof(v6));
    return is_public_v6(v6.sin6_addr.s6_addr);
}
