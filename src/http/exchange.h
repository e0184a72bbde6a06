/* exchange.h: internal header of http/: one request and its response, in any version of HTTP. The
 * protocol (http1.c) feeds heads and bodies into exchanges and implements their sinks; the
 * calls of the application and the memory of an exchange are here.
 *
 *     exchange_new -> exchange_head -> exchange_append... -> exchange_deliver -> exchange_free
 *                                                               | the client left
 *                                                               +-> exchange_disconnect
 *
 * Owner: the io thread of the connection. */
#pragma once

#include "http/parse.h"

struct conn;

struct exchange {
    struct http_exchange x; /* first member: the application's view */
    struct http_request req;
    struct conn *c;
    struct buf body;
    struct charge charge; /* memory of the body's bytes */
    uint64_t body_due_ns; /* deadline for further bytes of the body, which each byte extends */
    int64_t left; /* declared bytes of the response body not yet written; -1 = no declared length */
    /* on_request was called: on_disconnect must be called if the client leaves before the end */
    bool is_delivered;
    bool is_begun, is_ended, is_aborted;
    bool has_no_body;    /* HEAD, 204, 304: the body written by the application is discarded */
    bool is_chunked;     /* HTTP/1.1 only */
    bool is_until_close; /* HTTP/1.0 stream: only the close of the connection ends it */
};

struct refusal { /* of a request by the server itself */
    int status;  /* 0: none */
    const char *why;
};

/* The parser contains a complete head, which the exchange uses until its end. NULL: no memory. */
struct exchange *exchange_new(
    struct conn *c, const struct http_parser *head, const struct sink_ops *ops, uint64_t began_ns);
void exchange_free(struct exchange *x); /* accepts NULL */

/* Calls on_head. Returns the limit of the body; -1: the application has responded. */
int64_t exchange_head(struct exchange *x);
/* Prepares for a body of at most `max` bytes, of which `length` are declared. */
struct refusal exchange_begin_body(struct exchange *x, int64_t max, uint64_t length);
struct refusal exchange_append(struct exchange *x, struct str piece);
void exchange_deliver(struct exchange *x); /* the body is complete: calls on_request */
/* Lets the application write the error response in the format of the route's dialect. False if it
 * does not respond. */
bool exchange_reject(struct exchange *x, struct refusal why);
/* The client has left: calls on_disconnect if the application still owes the response. */
void exchange_disconnect(struct exchange *x);
/* The queue fell below half of SINK_HIGH_WATER: calls on_drained. */
void exchange_drained(struct exchange *x);

/* ---- responses */

/* Whether the server sets the field itself, so that the application's is ignored. */
bool response_is_server_field(struct str name);
/* Body of an error response of the server itself; returns its length. */
size_t response_error_body(char *out, size_t size, struct refusal why);
/* Part of a value may come from the client: appends it without control characters. */
void response_append_value(struct buf *b, struct str s);
