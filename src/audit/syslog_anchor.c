#include "audit/syslog_anchor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int audit_send_anchor(
    const char *socket_path, const struct audit_chain *c, const char *log_path, struct err *e)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    char text[512];

    if (strlen(socket_path) >= sizeof(to.sun_path))
        return err_set(e, ERR_INVALID, "%s: the path of a socket has at most %zu bytes",
            socket_path, sizeof(to.sun_path) - 1);
    memcpy(to.sun_path, socket_path, strlen(socket_path));
    snprintf(text, sizeof(text), "<85>inferfluxd: audit checkpoint %" PRIu64 ":%s %s", c->n_lines,
        c->mac, log_path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ssize_t n = fd < 0 ? -1
                       : sendto(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
                             (struct sockaddr *)&to, sizeof(to));
    int why = errno;
    if (fd >= 0)
        close(fd);
    return n < 0 ? err_set(e, ERR_IO, "%s: %s", socket_path, strerror(why)) : 0;
}
