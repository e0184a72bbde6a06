#include "http/authority.h"

#include <arpa/inet.h>

static bool set_ipv6(struct http_authority *a, struct str text)
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
    char address[INET6_ADDRSTRLEN];
    struct in6_addr v6;

    if (text.n >= sizeof(address))
        return false;
    memcpy(address, text.p, text.n);
    address[text.n] = '\0';
    if (inet_pton(AF_INET6, address, &v6) != 1)
        return false;
    bool is_mapped = !memcmp(v6.s6_addr, mapped, sizeof(mapped));
    a->is_loopback = IN6_IS_ADDR_LOOPBACK(&v6) || (is_mapped && v6.s6_addr[12] == 127);
    return inet_ntop(AF_INET6, &v6, a->host, sizeof(a->host));
}

static bool set_name(struct http_authority *a, struct str name)
{
    static const struct str localhost = { "localhost", 9 }, below = { ".localhost", 10 };
    struct in_addr v4;
    bool is_label_empty = true;

    if (str_ends(name, STR(".")))
        name.n--;
    if (name.n > HTTP_HOST_MAX)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (c == '.' && is_label_empty)
            return false;
        is_label_empty = c == '.';
        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_' && c != '.')
            return false;
        a->host[i] = c;
    }
    a->host[name.n] = '\0';
    struct str host = { a->host, name.n };
    if (inet_pton(AF_INET, a->host, &v4) == 1)
        a->is_loopback = ntohl(v4.s_addr) >> 24 == 127;
    else
        a->is_loopback = str_eq(host, localhost) || str_ends(host, below);
    return !is_label_empty;
}

/* ":8080", ":" or nothing. */
static bool set_port(struct http_authority *a, struct str s)
{
    uint64_t port = 0;

    if (s.n && s.p[0] != ':')
        return false;
    if (s.n > 1 && (!str_to_u64(str_skip(s, 1), &port) || port < 1 || port > 65535))
        return false;
    a->port = (int)port;
    return true;
}

int http_authority_parse(struct http_authority *out, struct str s)
{
    bool is_v6 = s.n && s.p[0] == '[';
    ptrdiff_t end = str_find(s, is_v6 ? STR("]") : STR(":"));

    *out = (struct http_authority){ 0 };
    if (is_v6)
        return end > 0 && set_ipv6(out, (struct str){ s.p + 1, (size_t)end - 1 }) &&
                       set_port(out, str_skip(s, (size_t)end + 1))
                   ? 0
                   : -1;
    size_t n = end < 0 ? s.n : (size_t)end;
    return set_name(out, (struct str){ s.p, n }) && set_port(out, str_skip(s, n)) ? 0 : -1;
}
