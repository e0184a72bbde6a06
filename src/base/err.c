#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const names[] = {
    [ERR_NONE] = "NONE",
#define ERR(name, meaning) [ERR_##name] = #name,
#include "base/errors.def"
#undef ERR
};

int err_set(struct err *e, enum errcode code, const char *fmt, ...)
{
    va_list ap;

    e->code = code;
    e->param[0] = '\0';
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    return -1;
}

int err_param(struct err *e, enum errcode code, const char *param, const char *fmt, ...)
{
    va_list ap;

    e->code = code;
    snprintf(e->param, sizeof(e->param), "%s", param);
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    char old[sizeof(e->msg)];
    va_list ap;

    memcpy(old, e->msg, sizeof(old));
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(e->msg))
        snprintf(e->msg + n, sizeof(e->msg) - (size_t)n, ": %s", old);
    return -1;
}

const char *errcode_name(enum errcode code)
{
    return (size_t)code < ARRAY_LEN(names) && names[code] ? names[code] : "UNKNOWN";
}

void check_failed(const char *file, int line, const char *what)
{
    char line_buf[512];

    int n = snprintf(line_buf, sizeof(line_buf), "%s:%d: CHECK failed: %s\n", file, line, what);
    if (n > 0 && write(STDERR_FILENO, line_buf, MIN((size_t)n, sizeof(line_buf) - 1)) < 0)
        abort(); /* the message cannot be written anywhere */
    abort();
}
