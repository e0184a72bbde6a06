/* service_notify.h: messages to the service manager that started the process, by the protocol of
 * sd_notify(3): one datagram with lines NAME=VALUE to the UNIX socket whose address is in the
 * environment variable NOTIFY_SOCKET. An address that begins with @ is an abstract one.
 *
 * A message that cannot be sent is logged and lost: the service manager has its own time limits.
 *
 * Any thread; the environment does not change while the process runs. */
#pragma once

#include "base/base.h"

/* Sends the lines, for example "READY=1". Without NOTIFY_SOCKET, nothing is sent. */
void service_notify(const char *lines);
