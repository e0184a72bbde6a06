/* HTTP exchanges from text files: sent and expected bytes over a real socket, sent whole, cut in
 * two at every byte, and byte by byte. tests/wire/README.md describes the format. */
#include "support/http_peer.h"

#include "base/buf.h"
#include "base/mem.h"

#include <dirent.h>
#include <stdlib.h>

struct wire_case {
    char name[120];
    struct buf sent, want;
    bool want_close; /* the server closes the connection afterwards */
    bool is_half;    /* the client half-closes after sending */
    bool cut_off;    /* too long to be cut at every byte */
    struct http_options o;
    int64_t max_body;
};

static int hex(char c)
{
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

/* Escapes as in C: \r \n \t \0 \\ \xNN. */
static void put_escaped(struct buf *b, const char *z)
{
    for (; *z; z++) {
        if (*z != '\\') {
            buf_putc(b, *z);
            continue;
        }
        z++;
        if (*z == 'x') {
            buf_putc(b, (char)(hex(z[1]) << 4 | hex(z[2])));
            z += 2;
        } else {
            static const char names[] = "rnt0", bytes[] = "\r\n\t";
            const char *at = strchr(names, *z);
            buf_putc(b, at ? bytes[at - names] : *z);
        }
    }
}

static void set_option(struct wire_case *w, const char *name, unsigned long value)
{
    if (!strcmp(name, "max_head_bytes"))
        w->o.max_head_bytes = value;
    else if (!strcmp(name, "max_fields"))
        w->o.max_fields = (int)value;
    else if (!strcmp(name, "max_body"))
        w->max_body = (int64_t)value;
    else if (!strcmp(name, "allow_half_close"))
        w->o.allow_half_close = value;
    else
        CHECK(!"an option the wire tests know");
}

static void case_line(struct wire_case *w, const char *line)
{
    char name[32];
    unsigned long value;
    int used = 0;

    if (sscanf(line, "> *%lu %n", &value, &used) == 1 && used) {
        while (value--)
            put_escaped(&w->sent, line + used);
    } else if (!strncmp(line, "> ", 2)) {
        put_escaped(&w->sent, line + 2);
    } else if (!strncmp(line, "< ", 2)) {
        put_escaped(&w->want, line + 2);
    } else if (!strcmp(line, "close")) {
        w->want_close = true;
    } else if (!strcmp(line, "half")) {
        w->is_half = true;
    } else if (!strcmp(line, "whole")) {
        w->cut_off = true;
    } else if (sscanf(line, "set %31s %lu", name, &value) == 2) {
        set_option(w, name, value);
    } else {
        fprintf(stderr, "line not understood: %s\n", line);
        fail();
    }
}

/* Reads the next case of the file; returns false at its end. */
static bool case_read(FILE *f, struct wire_case *w, char next[120])
{
    char line[2048];

    *w = (struct wire_case){ .o = http_options_default, .max_body = 64 };
    w->o.port = 0;
    buf_init(&w->sent, MB);
    buf_init(&w->want, MB);
    snprintf(w->name, sizeof(w->name), "%s", next);
    next[0] = '\0';
    while (fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "== ", 3)) {
            snprintf(next, 120, "%.100s", line + 3);
            if (w->name[0])
                return true;
            snprintf(w->name, sizeof(w->name), "%s", next);
            next[0] = '\0';
        } else if (line[0] && line[0] != '#') {
            case_line(w, line);
        }
    }
    return w->name[0];
}

/* Removes Date lines, which differ between runs. */
static void drop_dates(struct buf *b)
{
    ptrdiff_t at;

    while ((at = str_find(buf_str(b), STR("Date: "))) >= 0) {
        const char *end = memchr(b->p + at, '\n', b->n - (size_t)at);
        if (!end)
            return;
        size_t n = (size_t)(end + 1 - (b->p + at));
        memmove(b->p + at, end + 1, b->n - (size_t)at - n);
        b->n -= n;
    }
}

static void show(const char *what, struct str s)
{
    fprintf(stderr, "  %s: ", what);
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == '\r')
            fprintf(stderr, "\\r");
        else if (c == '\n')
            fprintf(stderr, "\\n\n     ");
        else if (c < ' ' || c > '~')
            fprintf(stderr, "\\x%02x", c);
        else
            fputc(c, stderr);
    }
    fprintf(stderr, "\n");
}

static size_t n_dates(struct str s)
{
    size_t n = 0;

    for (ptrdiff_t at; (at = str_find(s, STR("HTTP/1.1 "))) >= 0; s = str_skip(s, (size_t)at + 9))
        n += !str_starts(str_skip(s, (size_t)at + 9), STR("100"));
    return n;
}

/* cut: bytes of the first piece; step: bytes of each later piece (0 = the rest in one piece). */
static void run_cut(struct http_kit *k, const struct wire_case *w, size_t cut, size_t step)
{
    enum { DATE_LINE = 37 };
    struct str rest = buf_str(&w->sent);
    struct buf got;
    int fd = http_kit_connect(k);

    buf_init(&got, MB);
    for (size_t n = cut; rest.n; n = step ? step : rest.n) {
        n = MIN(n, rest.n);
        if (n && !http_kit_send(k, fd, (struct str){ rest.p, n }))
            break; /* already rejected */
        rest = str_skip(rest, n);
        http_kit_run_loop(k, 1);
    }
    if (w->is_half)
        shutdown(fd, SHUT_WR);
    size_t want_n = w->want.n + n_dates(buf_str(&w->want)) * DATE_LINE;
    enum http_kit_end end = http_kit_read(k, fd, &got, w->want_close ? SIZE_MAX : want_n);
    if (!w->want_close) {
        http_kit_run_loop(k, 3);
        end = http_kit_read(k, fd, &got, got.n); /* no further byte may arrive */
        char more;
        ssize_t n = recv(fd, &more, 1, 0);
        end = n == 0 ? KIT_EOF : n > 0 ? KIT_RESET : end;
    }
    drop_dates(&got);
    if (!str_eq(buf_str(&got), buf_str(&w->want)) || end != (w->want_close ? KIT_EOF : KIT_OPEN)) {
        fprintf(stderr, "case \"%s\", first piece %zu, then %zu; end %d\n", w->name, cut, step,
            (int)end);
        show("sent", buf_str(&w->sent));
        show("want", buf_str(&w->want));
        show("got ", buf_str(&got));
        fail();
    }
    buf_clear(&got);
    close(fd);
    http_kit_run_loop(k, 2);
}

static void run_case(const struct wire_case *w)
{
    struct http_kit k;

    http_kit_init(&k);
    k.o = w->o;
    k.max_body = w->max_body;
    http_kit_open(&k);
    run_cut(&k, w, w->sent.n, 0);
    if (!w->cut_off) {
        for (size_t cut = 1; cut < w->sent.n; cut++)
            run_cut(&k, w, cut, 0);
        run_cut(&k, w, 1, 1);
    }
    http_kit_run_loop(&k, 5);
    http_kit_close(&k);
}

static void run_file(const char *name)
{
    char path[256], next[120] = "";
    struct wire_case w;
    int n = 0;

    snprintf(path, sizeof(path), "tests/wire/%s", name);
    FILE *f = fopen(path, "r");
    EXPECT(f);
    while (case_read(f, &w, next)) {
        run_case(&w);
        n++;
        buf_clear(&w.sent);
        buf_clear(&w.want);
    }
    buf_clear(&w.sent);
    buf_clear(&w.want);
    fclose(f);
    printf("%s: %d cases\n", name, n);
    EXPECT(n > 0);
}

static void valid_requests_are_accepted(void)
{
    run_file("http_good.txt");
}

static void invalid_requests_are_rejected(void)
{
    run_file("http_bad.txt");
}

static void bodies_are_delivered_whole_or_not_at_all(void)
{
    run_file("http_body.txt");
}

TESTS(TEST(valid_requests_are_accepted), TEST(invalid_requests_are_rejected),
    TEST(bodies_are_delivered_whole_or_not_at_all))
