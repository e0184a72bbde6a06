/* io.h: what the files of serve share: one io thread's world, one call of a route.
 *
 * Owner of everything here: that io thread. */
#pragma once

#include "api/status.h"
#include "serve/serve.h"

#include <pthread.h>

struct request;

struct io {
    struct service *service;
    const struct serve_options *o;
    struct loop *loop;
    struct http_server *http;
    struct metrics metrics;
    struct request *requests; /* generation requests whose engine work has not ended */
    pthread_t thread;
    bool has_thread, is_draining;
};

enum { CALL_FIELDS_MAX = 6 };

struct call { /* one HTTP request on a known route; in the exchange's arena */
    const struct route *route;
    struct caller caller;
    struct http_field fields[CALL_FIELDS_MAX]; /* of every answer: request id, CORS */
    int n_fields;
    char request_id[28];
};

typedef void (*handler_fn)(struct io *io, struct http_exchange *x, struct call *c);

struct route {
    const char *method, *path; /* a path that ends in '*' matches what begins like it */
    unsigned scope;            /* SCOPE_NONE: open to everybody */
    bool has_body;
    enum error_form errors;
    handler_fn fn;
};

const struct route *route_find(struct str method, struct str path, bool *is_other_method);
const struct route *route_at(size_t i); /* NULL at the end; for tests and docs */

/* handlers, by file */
void health_live(struct io *io, struct http_exchange *x, struct call *c);
void health_ready(struct io *io, struct http_exchange *x, struct call *c);
void health_status(struct io *io, struct http_exchange *x, struct call *c);
void health_metrics(struct io *io, struct http_exchange *x, struct call *c);
void health_root(struct io *io, struct http_exchange *x, struct call *c);
void health_invariants(struct io *io, struct http_exchange *x, struct call *c);
void models_all(struct io *io, struct http_exchange *x, struct call *c);
void models_single(struct io *io, struct http_exchange *x, struct call *c);
void generate_chat(struct io *io, struct http_exchange *x, struct call *c);
void generate_completion(struct io *io, struct http_exchange *x, struct call *c);
void words_tokenize(struct io *io, struct http_exchange *x, struct call *c);
void words_detokenize(struct io *io, struct http_exchange *x, struct call *c);
void words_apply_template(struct io *io, struct http_exchange *x, struct call *c);

/* fairness.c */
void fairness_show(struct io *io, struct http_exchange *x, struct call *c);
void fairness_change(struct io *io, struct http_exchange *x, struct call *c);

/* numbers.c: adds what the engines of the pool count. */
void numbers_copy(struct pool *p, struct metrics *m);

/* generate.c: the exchange of a request has gone, or may write again; messages of engines */
void request_gone(struct io *io, struct http_exchange *x);
void request_drained(struct io *io, struct http_exchange *x);
void request_cancel_all(struct io *io);

/* reply.c */
void reply_json(struct http_exchange *x, const struct call *c, int status, const struct buf *body);
void reply_error(struct http_exchange *x, const struct call *c, const struct err *e,
    const struct error_extra *extra);
/* The model a request names, when it is ready; else the answer has been given: NULL. */
struct model *ready_model(struct io *io, struct str name, struct err *e);

/* service.c: all shards, for a scrape */
int service_shards(struct service *s, struct metrics **out, int max);
