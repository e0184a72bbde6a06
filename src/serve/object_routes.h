/* object_routes.h: reads and changes objects of the policy (policy/object_set.h), for the routes of
 * each kind. Reads use the snapshot of the io thread; the policy thread executes changes and
 * returns them by message. An object is sent as its body with the members `object`, `name` and
 * `version`.
 *
 * Owner: the io thread. */
#pragma once

#include "serve/io.h"

/* A page of the objects of a kind: query parameters `limit` (at most 500) and `after`. */
void object_list(
    struct io *io, struct http_exchange *x, struct route_call *c, enum policy_object_kind kind);
/* ERR_NOT_FOUND in the response if there is none. */
void object_show(struct io *io, struct http_exchange *x, struct route_call *c,
    enum policy_object_kind kind, struct str name);

struct object_change {
    enum policy_action action; /* POLICY_PUT_OBJECT or POLICY_DELETE_OBJECT */
    enum policy_object_kind kind;
    struct str name;
    struct str route; /* of the object, for the audit log */
    /* PUT: writes the body of the object from that of the request. The error names the member. */
    int (*read)(const char *name, const struct json *body, struct buf *out, struct err *e);
};

void object_change_start(struct io *io, struct http_exchange *x, struct route_call *c,
    const struct object_change *change);
/* Handles MSG_OBJECT_CHANGED: the policy has executed a change. */
void object_change_message(struct io *io, struct msg *m);

/* /v1/admin/guardrails: named sets; without a name PUT and DELETE change the set "default". */
void guardrails_list(struct io *io, struct http_exchange *x, struct route_call *c);
void guardrails_show(struct io *io, struct http_exchange *x, struct route_call *c);
void guardrails_replace(struct io *io, struct http_exchange *x, struct route_call *c);
void guardrails_remove(struct io *io, struct http_exchange *x, struct route_call *c);
/* /v1/admin/guardrails/test: the hits in a text, and what is left of it (guardrail_test.c). */
void guardrails_test(struct io *io, struct http_exchange *x, struct route_call *c);

/* /v1/admin/roles */
void roles_list(struct io *io, struct http_exchange *x, struct route_call *c);
void roles_show(struct io *io, struct http_exchange *x, struct route_call *c);
void roles_replace(struct io *io, struct http_exchange *x, struct route_call *c);
void roles_delete(struct io *io, struct http_exchange *x, struct route_call *c);
