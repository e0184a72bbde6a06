/* Addresses of Forwarded and X-Forwarded-For: forms, ports, several fields, and bad input. */
#include "support/check.h"
#include "base/buf.h"
#include "http/forwarded.h"

static struct {
    const char *forwarded, *list; /* NULL: absent */
    const char *nodes;            /* separated by blanks; NULL: refused */
} cases[] = {
    { NULL, NULL, "" },
    { "", NULL, "" },
    { "for=192.0.2.43", NULL, "192.0.2.43" },
    { "For=192.0.2.43:80, FOR=\"[2001:db8::17]:4711\"", NULL, "192.0.2.43 2001:db8::17" },
    { "proto=https;for=192.0.2.1;by=203.0.113.60", NULL, "192.0.2.1" },
    { "for=unknown , for=_hidden", NULL, "unknown _hidden" },
    { "proto=https, for=192.0.2.1", NULL, "unknown 192.0.2.1" },
    { "host=\"a,b;for=1.2.3.4\";for=192.0.2.1", NULL, "192.0.2.1" },
    { ",,for=192.0.2.1,", NULL, "192.0.2.1" },
    { "for=192.0.2.1", "10.0.0.1", "192.0.2.1" }, /* Forwarded precedes */
    { NULL, "203.0.113.7", "203.0.113.7" },
    { NULL, "203.0.113.7:99, 2001:db8::1,[2001:db8::2]:8,unknown",
        "203.0.113.7 2001:db8::1 2001:db8::2 unknown" },
    { "for=1;for=2", NULL, NULL },
    { "for", NULL, NULL },
    { "for=", NULL, NULL },
    { "for=\"", NULL, NULL },
    { "for=\"1.2.3.4", NULL, NULL },
    { "for=\"a\\\"b\"", NULL, NULL },
    { "for=1.2.3.4 x", NULL, NULL },
    { "\"for\"=1.2.3.4", NULL, NULL },
    { "for=\"[::1\"", NULL, NULL },
    { "for=\"[::1]x\"", NULL, NULL },
    { NULL, "1.2.3.4 5.6.7.8", NULL },
    { NULL, "a\"b", NULL },
    { NULL, "[]", NULL },
};

static void forms_are_read_and_others_refused(void)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_field fields[2];
        struct http_request r = { .fields = fields };
        struct str nodes[FORWARDED_MAX];
        struct buf b;
        struct err e;
        int n;

        if (cases[i].list)
            fields[r.n_fields++] =
                (struct http_field){ STR("X-Forwarded-For"), str_of(cases[i].list) };
        if (cases[i].forwarded)
            fields[r.n_fields++] =
                (struct http_field){ STR("Forwarded"), str_of(cases[i].forwarded) };
        int rc = forwarded_read(&r, nodes, &n, &e);
        EXPECT_EQ(rc, cases[i].nodes ? 0 : -1);
        if (rc) {
            EXPECT_EQ((int)e.code, (int)ERR_SYNTAX);
            continue;
        }
        buf_init(&b, KB);
        for (int k = 0; k < n; k++)
            buf_printf(&b, "%s" STR_FMT, k ? " " : "", STR_ARG(nodes[k]));
        buf_putc(&b, '\0');
        EXPECT_STR(b.p, cases[i].nodes);
        buf_clear(&b);
    }
}

static void several_fields_are_one_list_with_a_limit(void)
{
    struct http_field fields[FORWARDED_MAX + 1];
    struct http_request r = { .fields = fields, .n_fields = FORWARDED_MAX };
    struct str nodes[FORWARDED_MAX];
    struct err e;
    int n;

    for (int i = 0; i <= FORWARDED_MAX; i++)
        fields[i] = (struct http_field){ STR("forwarded"), i ? STR("for=b") : STR("for=a") };
    EXPECT_EQ(forwarded_read(&r, nodes, &n, &e), 0);
    EXPECT_EQ(n, FORWARDED_MAX);
    EXPECT(str_is(nodes[0], "a") && str_is(nodes[1], "b"));
    r.n_fields++;
    EXPECT_EQ(forwarded_read(&r, nodes, &n, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_RANGE);
}

TESTS(TEST(forms_are_read_and_others_refused), TEST(several_fields_are_one_list_with_a_limit))
