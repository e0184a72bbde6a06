/* audit_routes.h: GET /v1/admin/audit: lines of the audit log by time, key, tenant, model, action
 * and status, the newest first. The index thread (audit/audit_index.h) finds them and returns them
 * by message. Owner: the io thread. */
#pragma once

#include "serve/io.h"

void audit_routes_list(struct io *io, struct http_exchange *x, struct route_call *c);
void audit_routes_message(struct msg *m); /* handles MSG_AUDIT_LINES */
