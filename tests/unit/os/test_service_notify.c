/* Messages to the service manager. */
#include "support/check.h"
#include "os/service_notify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Returns a datagram socket that is bound to the path, or to the abstract address after @. */
static int bind_socket(const char *name)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t n = strlen(name);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

    memcpy(a.sun_path, name, n);
    if (*name == '@')
        a.sun_path[0] = '\0';
    EXPECT_EQ(
        bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)),
        0);
    return fd;
}

static void expect_delivery(const char *name)
{
    char got[64];
    int fd = bind_socket(name);

    setenv("NOTIFY_SOCKET", name, 1);
    service_notify("READY=1\nSTATUS=ok");
    ssize_t n = recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT);
    EXPECT_EQ(n, (ssize_t)strlen("READY=1\nSTATUS=ok"));
    got[MAX(n, 0)] = '\0';
    EXPECT_STR(got, "READY=1\nSTATUS=ok");
    EXPECT_EQ(recv(fd, got, sizeof(got), MSG_DONTWAIT), (ssize_t)-1); /* one datagram */
    close(fd);
}

static void lines_arrive_as_one_datagram(void)
{
    char path[64], abstract[64];

    snprintf(path, sizeof(path), "/tmp/notify-%d", (int)getpid());
    snprintf(abstract, sizeof(abstract), "@notify-%d", (int)getpid());
    expect_delivery(path);
    unlink(path);
    expect_delivery(abstract);
}

static void unusable_addresses_are_ignored(void)
{
    char too_long[200];

    memset(too_long, 'x', sizeof(too_long) - 1);
    too_long[0] = '/';
    too_long[sizeof(too_long) - 1] = '\0';
    for (const char *const *a = (const char *const[]){ "", "/", "@", "relative", "/nonexistent/s",
             "@no-such-socket", "vsock:2:1", too_long, NULL };
         *a; a++) {
        setenv("NOTIFY_SOCKET", *a, 1);
        service_notify("READY=1");
    }
    unsetenv("NOTIFY_SOCKET");
    service_notify("READY=1");
}

TESTS(TEST(lines_arrive_as_one_datagram), TEST(unusable_addresses_are_ignored))
