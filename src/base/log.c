#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = { "error", "warn", "info", "debug" };
static enum log_level level_max = LOG_INFO; /* set before threads start */

void log_write_direct(const char *bytes, size_t n)
{
    while (n) {
        ssize_t done = write(STDERR_FILENO, bytes, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return; /* a closed stderr must not stop the server */
        bytes += done;
        n -= (size_t)done;
    }
}

static void (*output)(const char *line, size_t n) = log_write_direct; /* set before threads start */

void log_set_output(void (*to)(const char *line, size_t n))
{
    output = to;
}

void log_set_level(enum log_level max)
{
    level_max = max;
}

enum log_level log_level(void)
{
    return level_max;
}

bool log_level_parse(const char *name, enum log_level *out)
{
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++)
        if (!strcmp(name, level_names[i])) {
            *out = (enum log_level)i;
            return true;
        }
    return false;
}

static void put_line(void (*to)(const char *line, size_t n), enum log_level level,
    const char *module, const char *event, const char *fmt, va_list ap)
{
    char line[1024];
    struct timespec now;
    struct tm tm;

    if (level > level_max)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03dZ %-5s %-8s %-9s ",
        (int)(now.tv_nsec / 1000000), level_names[level], module, event);
    int more = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
    n = MIN(n + (size_t)MAX(more, 0), sizeof(line) - 2);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[n++] = '\n';
    to(line, n);
}

void log_line(enum log_level level, const char *module, const char *event, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_line(output, level, module, event, fmt, ap);
    va_end(ap);
}

void log_line_to(void (*to)(const char *line, size_t n), enum log_level level, const char *module,
    const char *event, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_line(to, level, module, event, fmt, ap);
    va_end(ap);
}
