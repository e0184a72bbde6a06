/* slow_open.c: preloaded into a server by tests/wire/test_control.py: an open of the file SLOW_OPEN
 * returns only after the FIFO SLOW_OPEN.go is opened for writing. A model then loads as slowly as a
 * test needs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int open_fn(const char *path, int flags, ...);

static void wait_for_go(open_fn *next, const char *path)
{
    const char *slow = getenv("SLOW_OPEN");
    char go[4096];

    if (!slow || strcmp(path, slow) != 0)
        return;
    snprintf(go, sizeof(go), "%s.go", slow);
    close(next(go, O_RDONLY)); /* blocks until another process opens it for writing */
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        open_fn *next = (open_fn *)dlsym(RTLD_NEXT, #name);                                        \
        va_list ap;                                                                                \
                                                                                                   \
        va_start(ap, flags);                                                                       \
        int mode = va_arg(ap, int);                                                                \
        va_end(ap);                                                                                \
        wait_for_go(next, path);                                                                   \
        return next(path, flags, mode);                                                            \
    }

OPEN(open)
OPEN(open64)
