/* syslog_anchor.h: sends the position of the audit log to a syslog socket, so that a log that was
 * replaced by an earlier state together with its checkpoint is detected.
 *
 *     <85>inferfluxd: audit checkpoint LINES:MAC PATH      RFC 3164; authpriv.notice
 *
 * `inferctl admin audit verify --at LINES:MAC` compares it. Any thread; the call does not block. */
#pragma once

#include "audit/audit_line.h"

/* ERR_IO; the message names the socket. */
int audit_send_anchor(
    const char *socket_path, const struct audit_chain *c, const char *log_path, struct err *e);
