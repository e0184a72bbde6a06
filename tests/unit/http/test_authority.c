/* http/authority.c: canonical hosts and ports. */
#include "http/authority.h"
#include "support/check.h"

static void equal_hosts_have_one_form(void)
{
    static const struct {
        const char *text, *host;
        int port;
        bool is_loopback;
    } cases[] = {
        { "localhost", "localhost", 0, true },
        { "LOCALHOST:8080", "localhost", 8080, true },
        { "localhost.:1", "localhost", 1, true },
        { "localhost:", "localhost", 0, true },
        { "app.localhost", "app.localhost", 0, true },
        { "127.0.0.1:65535", "127.0.0.1", 65535, true },
        { "127.9.9.9.", "127.9.9.9", 0, true },
        { "[::1]", "::1", 0, true },
        { "[::1]:80", "::1", 80, true },
        { "[0:0:0:0:0:0:0:1]:80", "::1", 80, true },
        { "[::ffff:127.0.0.1]", "::ffff:127.0.0.1", 0, true },
        { "[::FFFF:10.0.0.1]", "::ffff:10.0.0.1", 0, false },
        { "[FE80:0::1]", "fe80::1", 0, false },
        { "[::]", "::", 0, false },
        { "0.0.0.0", "0.0.0.0", 0, false },
        { "128.0.0.1", "128.0.0.1", 0, false },
        { "Example.COM.:443", "example.com", 443, false },
        { "my_host-1", "my_host-1", 0, false },
        { "localhost.example.com", "localhost.example.com", 0, false },
        { "127.0.0.1.example.com", "127.0.0.1.example.com", 0, false },
        { "notlocalhost", "notlocalhost", 0, false },
        { "2130706433", "2130706433", 0, false }, /* browsers send 127.0.0.1 instead */
        { "0x7f.1", "0x7f.1", 0, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_authority a;
        EXPECT_EQ(http_authority_parse(&a, str_of(cases[i].text)), 0);
        EXPECT_STR(a.host, cases[i].host);
        EXPECT_EQ(a.port, cases[i].port);
        EXPECT_EQ(a.is_loopback, cases[i].is_loopback);
    }
}

static void other_forms_are_errors(void)
{
    static const char *const bad[] = { "", ".", "..", ".localhost", "a..localhost", "localhost..",
        ":80", "a:b", "a:0", "a:65536", "a:-1", "a: 1", "a:80:80", "::1", "[::1", "[]", "[::1]x",
        "[::1]:x", "[::1%25lo]", "[::1%lo]", "[127.0.0.1]", "[localhost]", "user@localhost", "a b",
        "a/b", "a%2e", "h\303\266st",
        "[1:2:3:4:5:6:7:8:9:10:11:12:13:14:15:16:17:18:19:20:21:22]" };
    char text[HTTP_HOST_MAX + 2];
    struct http_authority a;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        EXPECT_EQ(http_authority_parse(&a, str_of(bad[i])), -1);
    memset(text, 'a', sizeof(text));
    EXPECT_EQ(http_authority_parse(&a, (struct str){ text, HTTP_HOST_MAX }), 0);
    EXPECT_EQ(http_authority_parse(&a, (struct str){ text, HTTP_HOST_MAX + 1 }), -1);
}

TESTS(TEST(equal_hosts_have_one_form), TEST(other_forms_are_errors))
