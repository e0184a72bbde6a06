/* ctl_out.c: all output of inferctl. Text of servers, models and files is untrusted: on a terminal
 * its control characters could set the clipboard or the title, or forge lines. Like ls and git,
 * inferctl shows them as escapes on a terminal and passes the bytes unchanged to a pipe or file.
 * Errors and the cells of tables are escaped everywhere. */
#include "base/mem.h"
#include "base/utf8.h"
#include "cmd/ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { ESCAPE_MAX = 6 }; /* bytes of an escape: \u202e */

/* Writes text to out, which has room for ESCAPE_MAX bytes per byte of text. Returns the length. */
static size_t escape(char *out, struct str text, const char *allowed)
{
    size_t n = 0;

    while (text.n) {
        uint32_t cp = 0;
        int size = utf8_decode(text, &cp);
        if (size <= 0) { /* no character: shows the byte */
            n += (size_t)snprintf(out + n, ESCAPE_MAX + 1, "\\x%02x", (unsigned char)text.p[0]);
        } else if (utf8_is_control(cp) && !(cp && cp < 0x80 && strchr(allowed, (int)cp))) {
            n += (size_t)snprintf(
                out + n, ESCAPE_MAX + 1, cp < 0x20 ? "\\x%02x" : "\\u%04x", (unsigned)cp);
        } else {
            memcpy(out + n, text.p, (size_t)size);
            n += (size_t)size;
        }
        text = str_skip(text, (size_t)MAX(size, 1));
    }
    return n;
}

static void write_text(FILE *to, struct str text, bool escapes)
{
    if (!escapes) {
        fwrite(text.p, 1, text.n, to);
        return;
    }
    char *shown = xmalloc(text.n * ESCAPE_MAX + 1);
    fwrite(shown, 1, escape(shown, text, "\n\t"), to);
    mem_free(shown);
}

static void write_format(FILE *to, const char *fmt, va_list ap, bool escapes)
{
    va_list again;

    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    CHECK(n >= 0);
    char *text = xmalloc((size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    write_text(to, (struct str){ text, (size_t)n }, escapes);
    mem_free(text);
}

static bool is_terminal(void)
{
    return isatty(STDOUT_FILENO);
}

void ctl_put(struct str text)
{
    write_text(stdout, text, is_terminal());
}

void ctl_printf(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    write_format(stdout, fmt, ap, is_terminal());
    va_end(ap);
}

void ctl_flush(void)
{
    fflush(stdout);
}

void ctl_style(const char *sequence)
{
    if (is_terminal())
        fputs(sequence, stdout);
}

const char *ctl_cell(struct str text, struct arena *a)
{
    char *shown = arena_alloc(a, text.n * ESCAPE_MAX + 1);

    if (!shown)
        return "?";
    shown[escape(shown, text, "")] = '\0';
    return shown;
}

void ctl_warn(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    write_format(stderr, fmt, ap, true);
    va_end(ap);
}

void ctl_progress(const char *path, double share)
{
    fputc('\r', stderr);
    ctl_warn("%s: loading %3d %%%s", path, (int)(100 * share), share >= 1 ? "\n" : "");
}

static void print_error(const char *fmt, va_list ap)
{
    fputs("inferctl: ", stderr);
    write_format(stderr, fmt, ap, true);
    fputc('\n', stderr);
}

int ctl_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_error(fmt, ap);
    va_end(ap);
    return EXIT_FAILED;
}

int ctl_usage(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_error(fmt, ap);
    va_end(ap);
    return EXIT_USAGE;
}
