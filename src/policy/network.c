#include "policy/network.h"

#include <arpa/inet.h>

enum { MAPPED_BYTES = 12 };

static const uint8_t mapped[MAPPED_BYTES] = { [10] = 0xff, [11] = 0xff };

/* Returns the bits of the address: 32 or 128; 0: not an address. */
static int parse_address(uint8_t out[16], struct str text)
{
    char z[INET6_ADDRSTRLEN];

    if (!text.n || text.n >= sizeof(z) || memchr(text.p, '\0', text.n))
        return 0;
    memcpy(z, text.p, text.n);
    z[text.n] = '\0';
    if (inet_pton(AF_INET6, z, out) == 1)
        return 128;
    memcpy(out, mapped, MAPPED_BYTES);
    return inet_pton(AF_INET, z, out + MAPPED_BYTES) == 1 ? 32 : 0;
}

/* Sets the bits after the prefix to 0; false if one of them was 1. */
static bool mask_address(struct network *n)
{
    bool is_clean = true;

    for (int i = 0; i < 16; i++) {
        int n_kept = MAX(MIN(n->n_bits - 8 * i, 8), 0);
        uint8_t kept = n->address[i] & (uint8_t)(0xff00 >> n_kept);
        is_clean &= kept == n->address[i];
        n->address[i] = kept;
    }
    return is_clean;
}

int network_parse(struct network *out, struct str text, struct err *e)
{
    ptrdiff_t slash = str_find(text, STR("/"));
    struct str address = { text.p, slash < 0 ? text.n : (size_t)slash };
    int n_shown = (int)MIN(text.n, (size_t)NETWORK_TEXT_MAX);
    int width = parse_address(out->address, address);
    uint64_t n_bits = (uint64_t)width;

    if (!width)
        return err_set(e, ERR_INVALID, "'%.*s' is not an address or a network such as 10.0.0.0/8",
            n_shown, text.p);
    if (slash >= 0 &&
        (!str_to_u64(str_skip(text, (size_t)slash + 1), &n_bits) || n_bits > (uint64_t)width))
        return err_set(
            e, ERR_INVALID, "'%.*s': the prefix must be 0 to %d bits", n_shown, text.p, width);
    out->n_bits = (uint8_t)(n_bits + (uint64_t)(128 - width));
    if (!mask_address(out))
        return err_set(e, ERR_INVALID, "'%.*s': bits after the prefix of %d bits are set", n_shown,
            text.p, (int)n_bits);
    return 0;
}

void network_write(const struct network *n, struct buf *out)
{
    char text[INET6_ADDRSTRLEN];
    bool is_v4 = n->n_bits >= 8 * MAPPED_BYTES && !memcmp(n->address, mapped, MAPPED_BYTES);

    CHECK(inet_ntop(
        is_v4 ? AF_INET : AF_INET6, n->address + (is_v4 ? MAPPED_BYTES : 0), text, sizeof(text)));
    buf_printf(out, "%s/%d", text, is_v4 ? n->n_bits - 8 * MAPPED_BYTES : n->n_bits);
}

bool network_contains(const struct network *n, struct str address)
{
    struct network host = { .n_bits = n->n_bits };

    if (!parse_address(host.address, address))
        return false;
    mask_address(&host);
    return !memcmp(host.address, n->address, sizeof(host.address));
}
