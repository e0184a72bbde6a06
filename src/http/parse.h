/* parse.h: HTTP/1.x requests from bytes (RFC 9112, RFC 9110): bytes in, events out.
 *
 * Pure: no socket, no clock. However the bytes are cut, the events are the same (pieces of a
 * body apart, whose concatenation is the same).
 *
 *     HTTP_HEAD   the head is whole; the caller may look at it and set body_max
 *     HTTP_BODY   a piece of the body, chunks taken apart
 *     HTTP_END    the request is whole; what follows belongs to the next: http_parser_reset
 *     HTTP_MORE   all input is used up
 *     HTTP_BAD    refused: status and why; final
 *
 * What is ambiguous is refused, because two parsers that read it differently are how requests
 * are smuggled. Memory is bounded by max_head_bytes; time is linear in the input.
 *
 * Owner: whoever holds it. */
#pragma once

#include "http/server.h"

enum http_event { HTTP_MORE, HTTP_HEAD, HTTP_BODY, HTTP_END, HTTP_BAD };

struct http_parse_limits {
    size_t max_head_bytes; /* request line and fields; also chunk extensions and trailers */
    int max_fields;        /* also of trailers */
};

struct http_parser {
    const struct http_parse_limits *limits; /* outlives the parser */
    struct buf head;   /* as it came, from the request line on; stays until reset */
    uint64_t body_max; /* the caller's, after HTTP_HEAD; 0 at reset */
    uint64_t body_n;   /* bytes of body so far */
    uint64_t left;     /* still to come: of the body, or of the chunk */
    uint64_t length;   /* of Content-Length */
    size_t line_at;    /* start of the unfinished line in head */
    size_t extra;      /* bytes of chunk extensions and trailers so far */
    uint32_t host_at, host_n;
    uint32_t target_at, target_n, method_n;
    int n_fields, n_trailers;
    int status;      /* of HTTP_BAD */
    const char *why; /* of HTTP_BAD; a constant */
    uint8_t state, n_digits, n_blank_lines;
    bool is_http10, want_close, want_continue;
    bool has_host, has_length, has_type, has_authorization;
    bool has_coding, has_chunked, has_unknown_coding, is_chunked_last;
};

void http_parser_init(struct http_parser *p, const struct http_parse_limits *limits);
void http_parser_reset(struct http_parser *p); /* for the next request; gives the memory back */
#define http_parser_clear http_parser_reset

/* Takes what it uses off the front of *in. *piece is set with HTTP_BODY and points into what
 * *in pointed to. To be called again until it says HTTP_MORE (or HTTP_END, HTTP_BAD). */
enum http_event http_parse(struct http_parser *p, struct str *in, struct str *piece);

/* After HTTP_HEAD. */
bool http_parser_has_body(const struct http_parser *p);
/* Fills method, target, path, query and fields; they point into p->head and the arena. -1 when
 * the arena is full. */
int http_parser_request(const struct http_parser *p, struct arena *a, struct http_request *r);

/* Decodes %XX; out has room for s.n bytes. -1 on a bad escape or %00; else the length. */
ptrdiff_t http_percent_decode(struct str s, char *out);
bool http_is_token(struct str s); /* a method or field name (RFC 9110 5.6.2) */
