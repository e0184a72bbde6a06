/* lines.h: the loop of a tool that reads one request per line of the standard input and writes the
 * result to the standard output. Owner: the calling thread. */
#pragma once

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

/* Calls `respond` with each line, without the newline and with a NUL after it, and flushes the
 * output. `respond` may change the line. */
static inline void lines_each(void (*respond)(char *line, size_t n, void *ctx), void *ctx)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    while ((n = getline(&line, &cap, stdin)) > 0) {
        n -= line[n - 1] == '\n';
        line[n] = 0;
        respond(line, (size_t)n, ctx);
        fflush(stdout);
    }
    free(line); /* from getline */
}
