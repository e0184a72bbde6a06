#include "os/service_notify.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Returns the size of the address; 0: the address is unusable. */
static socklen_t read_address(struct sockaddr_un *to, const char *text)
{
    size_t n = strlen(text);

    *to = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if ((*text != '/' && *text != '@') || n < 2 || n >= sizeof(to->sun_path))
        return 0;
    memcpy(to->sun_path, text, n);
    if (*text == '@')
        to->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

static int send_lines(const char *address, const char *lines)
{
    struct sockaddr_un to;
    socklen_t n_to = read_address(&to, address);

    if (!n_to)
        return EINVAL;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    size_t n = strlen(lines);
    ssize_t sent = sendto(fd, lines, n, MSG_NOSIGNAL, (struct sockaddr *)&to, n_to);
    int why = sent == (ssize_t)n ? 0 : sent < 0 ? errno : EMSGSIZE;
    close(fd);
    return why;
}

void service_notify(const char *lines)
{
    const char *address = getenv("NOTIFY_SOCKET");

    if (!address || !*address)
        return;
    int why = send_lines(address, lines);
    if (why)
        log_warn("os", "notify_failed", "socket=\"%s\" error=\"%s\"", address, strerror(why));
}
