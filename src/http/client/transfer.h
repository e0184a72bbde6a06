/* transfer.h: one fetch on one curl handle: options, limits, redirects, result. http_client.c adds
 * the handle to a multi handle and passes the result of each hop to transfer_next.
 *
 * Owner: the thread of the client. */
#pragma once

#include "base/list.h"
#include "http/client/http_client.h"

#include <curl/curl.h>

struct transfer_origin {
    char *scheme, *host, *port; /* memory of libcurl: curl_free */
};

struct transfer {
    struct list_link in_client;
    struct http_fetch *fetch;
    const struct http_client_options *options;
    CURL *easy;
    struct curl_slist *fields;
    struct transfer_origin origin; /* origin of the current URL */
    uint64_t deadline_ns;
    size_t head_bytes;
    bool is_address_refused, is_too_large;
    bool is_redirected; /* the response that is being received is a redirect, whose body is lost */
    char error[CURL_ERROR_SIZE];
};

/* A handle for the first URL of the fetch. NULL: fetch->err is set. */
struct transfer *transfer_new(
    struct http_fetch *f, const struct http_client_options *o, uint64_t now_ns) MUST_CHECK;
/* The handle is in no multi handle and has ended with `result`. True: it has to be added again for
 * a redirect. False: the result is in the fetch. */
bool transfer_next(struct transfer *t, CURLcode result, uint64_t now_ns) MUST_CHECK;
void transfer_free(struct transfer *t); /* the handle is in no multi handle */
