/* Which addresses are public: one address of each special range, and the neighbours of ranges. */
#include "support/check.h"
#include "http/client/address.h"

#include <arpa/inet.h>

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return address_is_public((const struct sockaddr *)&v4);
    EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return address_is_public((const struct sockaddr *)&v6);
}

static void special_addresses_are_not_public(void)
{
    static const char *const special[] = { "0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255",
        "100.64.0.0", "100.100.100.200", "100.127.255.255", "127.0.0.1", "127.255.255.255",
        "168.63.129.16", "169.254.0.0", "169.254.169.254", "169.254.255.255", "172.16.0.0",
        "172.31.255.255", "192.0.0.0", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.0",
        "192.168.255.255", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1",
        "224.0.0.0", "239.255.255.255", "240.0.0.0", "255.255.255.255", "::", "::1", "::127.0.0.1",
        "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:10::1", "2001:20::1",
        "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2620:4f:8000::1", "3fff::1",
        "3fff:fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1" };

    for (size_t i = 0; i < ARRAY_LEN(special); i++)
        if (is_public(special[i])) {
            fprintf(stderr, "%s is public\n", special[i]);
            fail();
        }
}

static void other_addresses_are_public(void)
{
    static const char *const others[] = { "1.0.0.0", "8.8.8.8", "9.255.255.255", "11.0.0.0",
        "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "168.63.129.15",
        "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
        "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
        "223.255.255.255", "::ffff:8.8.8.8", "64:ff9b::808:808", "2001:200::1",
        "2001:4860:4860::8888", "2001:db7::1", "2001:db9::1", "2002:808:808::1", "2003::1",
        "2606:4700::1111", "3ffe::1", "3fff:1000::1" };

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (!is_public(others[i])) {
            fprintf(stderr, "%s is not public\n", others[i]);
            fail();
        }
}

static void other_families_are_not_public(void)
{
    struct sockaddr a = { .sa_family = AF_UNIX };

    EXPECT(!address_is_public(&a));
}

TESTS(TEST(special_addresses_are_not_public), TEST(other_addresses_are_public),
    TEST(other_families_are_not_public))
