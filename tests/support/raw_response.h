/* raw_response.h: splits the bytes of an HTTP response and checks that it is complete and that
 * its body has the form that its Content-Type states. */
#pragma once

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>

struct raw_response {
    long status;     /* 0: the connection was closed before the status */
    bool is_whole;   /* the length agrees with Content-Length, or the last chunk is present */
    struct str head; /* includes the CRLF of its last field */
    struct str body; /* without chunk framing */
};

static inline bool raw_response_has(const struct raw_response *s, const char *line)
{
    return str_find(s->head, str_of(line)) >= 0;
}

/* Joins the chunks of a body in place. Returns false if the last chunk is missing. */
static inline bool raw_response_unchunk(char *at, size_t n, struct str *out)
{
    struct str in = { at, n };
    char *to = at;

    for (;;) {
        char *end;
        ptrdiff_t line = str_find(in, STR("\r\n"));
        *out = (struct str){ at, (size_t)(to - at) };
        if (line < 0)
            return false;
        size_t piece = strtoul(in.p, &end, 16), head = (size_t)line + 2;
        CHECK(end == in.p + line);
        if (in.n < head + piece + 2)
            return false;
        CHECK(!memcmp(in.p + head + piece, "\r\n", 2));
        memmove(to, in.p + head, piece);
        to += piece;
        in = str_skip(in, head + piece + 2);
        if (!piece) {
            CHECK(!in.n);
            return true;
        }
    }
}

/* Parses all bytes received until the connection ended; moves bytes within `text`. */
static inline struct raw_response raw_response_parse(char *text, size_t n)
{
    static const char length[] = "Content-Length: ";
    struct str all = { text, n };
    struct raw_response s = { 0 };
    ptrdiff_t end = str_find(all, STR("\r\n\r\n"));

    if (end < 0)
        return s;
    CHECK(str_starts(all, STR("HTTP/1.1 ")));
    s.status = strtol(text + strlen("HTTP/1.1 "), NULL, 10);
    CHECK(s.status >= 200 && s.status < 600);
    s.head = (struct str){ text, (size_t)end + 2 };
    s.body = str_skip(all, (size_t)end + 4);
    ptrdiff_t at = str_find(s.head, str_of(length));
    if (raw_response_has(&s, "Transfer-Encoding: chunked")) {
        s.is_whole = raw_response_unchunk(text + end + 4, s.body.n, &s.body);
    } else if (at >= 0) {
        size_t n_body = strtoul(text + at + strlen(length), NULL, 10);
        CHECK(s.body.n <= n_body);
        s.is_whole = s.body.n == n_body;
    } else {
        s.is_whole = s.status == 204 && !s.body.n;
    }
    return s;
}

static inline void check_json(struct str text)
{
    struct arena *a = arena_new(64 * MB);
    struct json *j = NULL;
    struct err e;

    if (!a || json_parse(&j, text, a, NULL, &e))
        fprintf(stderr, "no JSON: %.*s\n", (int)MIN(text.n, (size_t)2000), text.p);
    CHECK(j);
    arena_free(a);
}

/* Checks frames or lines: each contains JSON, except comments and the end marker of a stream. */
static inline void check_json_lines(struct str rest, bool is_sse)
{
    while (rest.n) {
        ptrdiff_t end = str_find(rest, STR("\n"));
        CHECK(end >= 0);
        struct str line = { rest.p, (size_t)end };
        rest = str_skip(rest, (size_t)end + 1);
        if (is_sse && (!line.n || *line.p == ':' || str_starts(line, STR("event: "))))
            continue;
        CHECK(!is_sse || str_starts(line, STR("data: ")));
        line = str_skip(line, is_sse ? strlen("data: ") : 0);
        if (line.n && !(is_sse && str_is(line, "[DONE]")))
            check_json(line);
    }
}

/* Checks a response that is complete and has a body. */
static inline void check_body_form(const struct raw_response *s)
{
    if (raw_response_has(s, "Content-Type: text/event-stream"))
        check_json_lines(s->body, true);
    else if (raw_response_has(s, "Content-Type: application/x-ndjson"))
        check_json_lines(s->body, false);
    else if (raw_response_has(s, "json\r\n"))
        check_json(s->body);
}
