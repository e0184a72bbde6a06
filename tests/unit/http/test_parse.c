/* HTTP parser alone. tests/wire/http_*.txt contain accepted and rejected requests; here,
 * arbitrary bytes parse equally however they are cut, and the parts of a request point into it. */
#include "support/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "http/parse.h"

static const struct http_parse_limits limits = { 600, 8 };

/* Writes the parser's events as text, so that two runs can be compared. */
static void log_events(struct buf *out, struct str in, const size_t *cuts, size_t n_cuts)
{
    struct http_parser p;
    struct str rest = STR_NONE, piece;
    size_t at = 0, next_cut = 0;

    http_parser_init(&p, &limits);
    for (;;) {
        enum http_event ev = http_parse(&p, &rest, &piece);
        if (ev == HTTP_BODY) {
            buf_puts(out, piece);
        } else if (ev == HTTP_HEAD) {
            buf_printf(
                out, "[head %zu %d %d %d]", p.head.n, p.n_fields, p.want_close, p.want_continue);
            p.body_max = 50;
        } else if (ev == HTTP_END) {
            buf_printf(out, "[end %zu]", at - rest.n);
            http_parser_reset(&p);
        } else if (ev == HTTP_BAD) {
            buf_printf(out, "[bad %d %s]", p.status, p.why);
            EXPECT_EQ((int)http_parse(&p, &rest, &piece), (int)HTTP_BAD); /* permanently */
            break;
        } else {
            EXPECT_EQ(rest.n, 0u);
            if (at == in.n)
                break;
            size_t end = next_cut < n_cuts ? cuts[next_cut++] : in.n;
            rest = (struct str){ in.p + at, end - at };
            at = end;
        }
    }
    http_parser_clear(&p);
}

static void expect_same_however_cut(struct str in)
{
    struct buf whole, cut;
    size_t all[2048];

    buf_init(&whole, MB);
    buf_init(&cut, MB);
    log_events(&whole, in, NULL, 0);
    CHECK(in.n <= ARRAY_LEN(all));
    for (size_t i = 0; i < in.n; i++)
        all[i] = i + 1;
    log_events(&cut, in, all, in.n);
    EXPECT(str_eq(buf_str(&whole), buf_str(&cut)));
    for (size_t i = 0; i < in.n; i += 1 + in.n / 32) {
        buf_reset(&cut);
        log_events(&cut, in, &all[i], 1);
        EXPECT(str_eq(buf_str(&whole), buf_str(&cut)));
    }
    buf_clear(&whole);
    buf_clear(&cut);
}

static const char seed_text[] =
    "POST /v1/chat%20x/completions?a=b HTTP/1.1\r\nHost: a:80\r\nContent-Type: text/plain\r\n"
    "Content-Length: 12\r\nX: y z\r\n\r\nhello, world"
    "GET http://a/b HTTP/1.1\r\nHost: a\r\nConnection: close, x\r\nExpect: 100-continue\r\n\r\n"
    "\r\nPUT * HTTP/1.0\r\n\r\n";
static const char seed_chunked[] =
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    "5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nT: r\r\nU:\r\n\r\n"
    "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n";

static void result_is_independent_of_cuts(void)
{
    struct rng rng = { .key = 77 };
    static const char spice[] = "\r\n :;,%/0fFx\t\0\x80GHTP1.";
    char text[sizeof(seed_text) + sizeof(seed_chunked) + 64];

    printf("seed %llu\n", (unsigned long long)rng.key);
    for (int i = 0; i < 3000; i++) {
        struct str seed = i & 1 ? str_of(seed_text) : str_of(seed_chunked);
        size_t n = seed.n;
        memcpy(text, seed.p, n);
        for (uint64_t edits = rng_below(&rng, 4); edits; edits--) {
            size_t at = rng_below(&rng, n);
            char c = spice[rng_below(&rng, sizeof(spice) - 1)];
            switch (rng_below(&rng, 3)) {
            case 0: /* change */
                text[at] = c;
                break;
            case 1: /* insert */
                memmove(text + at + 1, text + at, n - at);
                text[at] = c;
                n++;
                break;
            default: /* remove */
                memmove(text + at, text + at + 1, n - at - 1);
                n--;
            }
        }
        expect_same_however_cut((struct str){ text, n });
    }
}

static enum http_event parse_head(struct http_parser *p, struct str in)
{
    struct str piece;

    http_parser_init(p, &limits);
    return http_parse(p, &in, &piece);
}

static void request_parts_point_into_the_head(void)
{
    struct arena *a = arena_new(MB);
    struct http_parser p;
    struct http_request r = { 0 };

    EXPECT_EQ((int)parse_head(&p, STR("GET /a%2Fb%20%c3%a9?x=%31#")), (int)HTTP_MORE);
    http_parser_clear(&p);
    EXPECT_EQ((int)parse_head(&p, STR("GET /a%2Fb%20%c3%a9?x=%31 HTTP/1.1\r\n"
                                      "Host:h\r\nA:\r\nB: \t b c \t\r\n\r\n")),
        (int)HTTP_HEAD);
    EXPECT_EQ(http_parser_request(&p, a, &r), 0);
    EXPECT(str_is(r.method, "GET"));
    EXPECT(str_is(r.target, "/a%2Fb%20%c3%a9?x=%31"));
    EXPECT(str_is(r.path, "/a/b \xc3\xa9"));
    EXPECT(str_is(r.query, "x=%31"));
    EXPECT_EQ(r.n_fields, 3);
    EXPECT(str_is(r.fields[0].value, "h"));
    EXPECT(str_is(r.fields[1].name, "A") && r.fields[1].value.n == 0 && r.fields[1].value.p);
    EXPECT(str_is(r.fields[2].value, "b c"));
    http_parser_clear(&p);

    EXPECT_EQ(
        (int)parse_head(&p, STR("GET http://h?q HTTP/1.1\r\nHost: h\r\n\r\n")), (int)HTTP_HEAD);
    EXPECT_EQ(http_parser_request(&p, a, &r), 0);
    EXPECT(str_is(r.path, "/") && str_is(r.query, "q"));
    http_parser_clear(&p);
    arena_free(a);
}

static void full_arena_is_an_error(void)
{
    struct http_parser p;
    struct http_request r = { 0 };
    struct arena *a = arena_new(20);

    EXPECT_EQ((int)parse_head(&p, STR("GET / HTTP/1.1\r\nHost: h\r\n\r\n")), (int)HTTP_HEAD);
    EXPECT_EQ(http_parser_request(&p, a, &r), -1);
    http_parser_clear(&p);
    arena_free(a);
}

static void percent_decoding(void)
{
    char out[32];

    EXPECT_EQ(http_percent_decode(STR("a%41%7e%fF"), out), 4);
    EXPECT(!memcmp(out, "aA~\xff", 4));
    EXPECT_EQ(http_percent_decode(STR(""), out), 0);
    EXPECT_EQ(http_percent_decode(STR("%"), out), -1);
    EXPECT_EQ(http_percent_decode(STR("%4"), out), -1);
    EXPECT_EQ(http_percent_decode(STR("%g0"), out), -1);
    EXPECT_EQ(http_percent_decode(STR("%00"), out), -1);
    EXPECT_EQ(http_percent_decode(STR("%-1"), out), -1);
    EXPECT_EQ(http_percent_decode(STR("%2541"), out), 3); /* once, not twice */
    EXPECT(!memcmp(out, "%41", 3));
}

static void tokens(void)
{
    EXPECT(http_is_token(STR("x-Request_Id.1!#$%&'*+^`|~")));
    EXPECT(!http_is_token(STR("")));
    for (int c = 0; c < 256; c++) {
        char one[1] = { (char)c };
        bool want = c > ' ' && c < 127 && !strchr("\"(),/:;<=>?@[\\]{}", c);
        EXPECT_EQ(http_is_token((struct str){ one, 1 }), want);
    }
}

static void head_is_limited(void)
{
    struct http_parser p;
    struct buf b;

    buf_init(&b, MB);
    for (size_t over = 0; over < 2; over++) {
        buf_reset(&b);
        buf_putz(&b, "GET / HTTP/1.1\r\nHost: h\r\nX: ");
        while (b.n < limits.max_head_bytes - 4 + over)
            buf_putc(&b, 'x');
        buf_putz(&b, "\r\n\r\n");
        enum http_event ev = parse_head(&p, buf_str(&b));
        EXPECT_EQ((int)ev, (int)(over ? HTTP_BAD : HTTP_HEAD));
        EXPECT_EQ(p.status, over ? 431 : 0);
        EXPECT(p.head.cap <= limits.max_head_bytes);
        http_parser_clear(&p);
    }
    buf_clear(&b);
}

TESTS(TEST(result_is_independent_of_cuts), TEST(request_parts_point_into_the_head),
    TEST(full_arena_is_an_error), TEST(percent_decoding), TEST(tokens), TEST(head_is_limited))
