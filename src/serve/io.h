/* io.h: what the files of serve share: one io thread's world, one call of a route.
 *
 * Owner of everything here: that io thread. */
#pragma once

#include "api/models.h"
#include "api/common/wire.h"
#include "serve/clerk.h"
#include "serve/serve.h"

#include <pthread.h>

struct request;

/* Who answers an exchange later than in its handler; x->user points to it meanwhile. */
struct pending {
    void (*gone)(struct pending *p);    /* the exchange is over when this returns */
    void (*drained)(struct pending *p); /* what was written has left: more may follow; or NULL */
};

struct notice { /* to an io thread, which looks for itself what it is about */
    struct msg msg;
    _Atomic bool is_under_way;
};

struct io {
    struct service *service;
    const struct serve_options *o;
    struct loop *loop;
    struct http_server *http;
    struct metrics metrics;
    struct clerk *clerk;
    int index;                     /* in the service */
    struct request *requests;      /* generation requests that have not ended */
    int n_words;                   /* jobs of words.c and slot_files.c that are at the clerk */
    struct cancel *cancels;        /* asked here, on their way through the io threads */
    struct watch *watches;         /* who listens here to answers that are made in the background */
    struct notice grown, unwanted; /* of such answers; see background.h */
    pthread_t thread;
    bool has_thread, is_draining, is_closing;
    struct loop_timer drain_limit;
    struct msg told; /* of a model that has changed its state: under way while is_told */
    _Atomic bool is_told;
};

/* Kinds of the messages between io threads. */
enum { MSG_DRAIN = 200, MSG_CANCEL, MSG_AUDIT, MSG_LOADED, MSG_GROWN, MSG_UNWANTED };

enum { CALL_FIELDS_MAX = 6, REQUEST_ID_MAX = 64 };

struct call { /* one HTTP request on a known route; in the exchange's arena */
    const struct route *route;
    const struct route *route_near; /* route NULL: the path's own, with another method */
    struct caller caller;
    uint64_t deadline_ns; /* of the answer, as far as the head tells; UINT64_MAX = none */
    struct http_field fields[CALL_FIELDS_MAX]; /* of every answer: request id, CORS */
    int n_fields;
    char request_id[REQUEST_ID_MAX + 1], allow[64];
};

typedef void (*handler_fn)(struct io *io, struct http_exchange *x, struct call *c);

struct route {
    const char *method, *path; /* a path that ends in '*' matches what begins like it */
    unsigned scope;            /* SCOPE_NONE: open to everybody */
    bool has_body;
    enum error_form errors;
    handler_fn fn;
    enum serve_limit limit;  /* the server's own on how long an answer may take */
    const struct wire *wire; /* of what is generated or counted; else NULL */
};

/* NULL: nobody serves it; then *near is a route of that path with another method, or NULL. */
const struct route *route_find(struct str method, struct str path, const struct route **near);
/* "GET, HEAD, POST": the methods of all routes with this path. */
struct str route_methods(struct str path, char out[64]);
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
void generate_answer(struct io *io, struct http_exchange *x, struct call *c);
void ollama_get_version(struct io *io, struct http_exchange *x, struct call *c);
void ollama_get_tags(struct io *io, struct http_exchange *x, struct call *c);
void ollama_get_ps(struct io *io, struct http_exchange *x, struct call *c);
void ollama_post_show(struct io *io, struct http_exchange *x, struct call *c);
void ollama_post_embed(struct io *io, struct http_exchange *x, struct call *c);
void ollama_post_pull(struct io *io, struct http_exchange *x, struct call *c);
void ollama_change(struct io *io, struct http_exchange *x, struct call *c);
void ollama_head_blob(struct io *io, struct http_exchange *x, struct call *c);
void props_show(struct io *io, struct http_exchange *x, struct call *c);
void props_health(struct io *io, struct http_exchange *x, struct call *c);
void words_tokenize(struct io *io, struct http_exchange *x, struct call *c);
void words_detokenize(struct io *io, struct http_exchange *x, struct call *c);
void words_apply_template(struct io *io, struct http_exchange *x, struct call *c);
void words_count(struct io *io, struct http_exchange *x, struct call *c);
void words_count_chat(struct io *io, struct http_exchange *x, struct call *c);
void words_parse(struct io *io, struct http_exchange *x, struct call *c);
/* A page of what an answer was asked with. Takes the reference. */
struct kept;
struct responses_page;
void words_list_input(struct io *io, struct http_exchange *x, struct call *c,
    const struct kept *take, const struct responses_page *page);

/* slot_files.c */
void slots_show(struct io *io, struct http_exchange *x, struct call *c);
void slots_act(struct io *io, struct http_exchange *x, struct call *c);
void words_count_input(struct io *io, struct http_exchange *x, struct call *c);

/* responses.c */
void responses_show(struct io *io, struct http_exchange *x, struct call *c);
void responses_forget(struct io *io, struct http_exchange *x, struct call *c);
void responses_cancel(struct io *io, struct http_exchange *x, struct call *c);
void responses_compact(struct io *io, struct http_exchange *x, struct call *c);

/* fairness.c */
void fairness_show(struct io *io, struct http_exchange *x, struct call *c);
void fairness_change(struct io *io, struct http_exchange *x, struct call *c);

/* numbers.c: adds what the engines of the pool count. */
void numbers_copy(struct pool *p, struct metrics *m);

void control_cache(struct io *io, struct http_exchange *x, struct call *c);
void control_flush(struct io *io, struct http_exchange *x, struct call *c);
void control_cancel(struct io *io, struct http_exchange *x, struct call *c);

/* control.c: messages of DELETE /v1/requests/{id} from other threads; the end of those asked here
 * when the service drains. */
void cancel_message(struct io *io, struct msg *m);
void cancel_drain(struct io *io);
/* health.c: what an engine has found. */
void audit_message(struct msg *m);

/* models.c */
const char *model_file(const char *path); /* its name: directories are nobody's business */
struct model_info model_info_of(struct model *m);
size_t models_info(struct io *io, struct model_info out[POOL_MODELS_MAX]); /* how many */

/* reply.c */
/* The value of `name` in the query, decoded; left alone where it is not there. ERR_SYNTAX,
 * ERR_MEMORY. */
int query_get(const struct http_exchange *x, const char *name, struct str *out, struct err *e);
void reply_json(struct http_exchange *x, const struct call *c, int status, const struct buf *body);
void reply_error(struct http_exchange *x, const struct call *c, const struct err *e,
    const struct error_extra *extra);
/* The model a request names, when it is ready; else NULL. Any thread. */
struct model *ready_model(const struct io *io, struct str name, struct err *e);

/* service.c */
void call_tell_request_id(struct call *c); /* in `request-id`, where Anthropic's clients look */
struct io *service_io(struct service *s, int i); /* NULL behind the last */
/* All shards, for a scrape. */
int service_shards(struct service *s, struct metrics **out, int max);
