/* parse.h: parser of HTTP/1.x requests (RFC 9112, RFC 9110): bytes in, events out.
 *
 * Pure: no socket, no clock. The events do not depend on how the input is divided, except for the
 * division of the body into pieces.
 *
 *     HTTP_HEAD   the head is complete; the caller may inspect it and set body_max
 *     HTTP_BODY   a piece of the body, without chunk framing
 *     HTTP_END    the request is complete; further input belongs to the next: http_parser_reset
 *     HTTP_MORE   all input is consumed
 *     HTTP_BAD    rejected: status and why are set; final
 *
 * Ambiguous input is rejected, since request smuggling exploits differences between two parsers.
 * Memory is bounded by max_head_bytes; time is linear in the input.
 *
 * Owner: the thread that owns the connection, or the test. */
#pragma once

#include "http/server.h"

enum http_event { HTTP_MORE, HTTP_HEAD, HTTP_BODY, HTTP_END, HTTP_BAD };

struct http_parse_limits {
    size_t max_head_bytes; /* request line and fields; also chunk extensions and trailers */
    int max_fields;        /* also limits trailers */
};

struct http_parser {
    const struct http_parse_limits *limits; /* must outlive the parser */
    struct buf head;   /* received head, from the request line on; kept until reset */
    uint64_t body_max; /* set by the caller after HTTP_HEAD; 0 at reset */
    uint64_t body_n;   /* bytes of the body received */
    uint64_t left;     /* bytes left in the body or in the chunk */
    uint64_t length;   /* Content-Length */
    size_t line_at;    /* start of the incomplete line in head */
    size_t extra;      /* bytes of chunk extensions and trailers received */
    uint32_t host_at, host_n;
    uint32_t target_at, target_n, method_n;
    int n_fields, n_trailers;
    int status;      /* status of HTTP_BAD */
    const char *why; /* reason of HTTP_BAD; a string constant */
    uint8_t state, n_digits, n_blank_lines;
    bool is_http10, want_close, want_continue;
    bool has_host, has_length, has_type, has_authorization, has_origin;
    bool has_coding, has_chunked, has_unknown_coding, is_chunked_last;
};

void http_parser_init(struct http_parser *p, const struct http_parse_limits *limits);
void http_parser_reset(struct http_parser *p); /* prepares for the next request; frees the memory */
#define http_parser_clear http_parser_reset

/* Removes the consumed bytes from the front of *in. With HTTP_BODY, *piece is set and points into
 * the input. The caller repeats the call until it returns HTTP_MORE, HTTP_END or HTTP_BAD. */
enum http_event http_parse(struct http_parser *p, struct str *in, struct str *piece);

/* Valid after HTTP_HEAD. */
bool http_parser_has_body(const struct http_parser *p);
/* Fills method, target, path, query and fields; they point into p->head and the arena. -1 if the
 * arena is full. */
int http_parser_request(const struct http_parser *p, struct arena *a, struct http_request *r);

/* Decodes %XX; out has space for s.n bytes. Returns the length, or -1 on an invalid escape or
 * %00. */
ptrdiff_t http_percent_decode(struct str s, char *out);
bool http_is_token(struct str s); /* method or field name (RFC 9110 5.6.2) */
