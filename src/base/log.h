/* log.h: one line of at most 1 kB per event, to stderr or to an output such as os/log_queue.h.
 *
 *     log_info("engine", "admit", "req=%s prompt=%d", id, n);
 *     2026-11-20T23:57:34.131Z info  engine   admit     req=7f3a prompt=1841
 *
 * The event is a constant string. Control characters are replaced, so that a client cannot forge
 * lines. Prompts, keys and responses are never logged.
 *
 * Any thread. */
#pragma once

#include "base/base.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level max);
enum log_level log_level(void);
bool log_level_parse(const char *name, enum log_level *out);

/* Passes each line, with its newline, to `output` instead of stderr. Main thread, before other
 * threads log. */
void log_set_output(void (*output)(const char *line, size_t n));
void log_write_direct(const char *bytes, size_t n); /* writes to stderr; can block */

void log_line(enum log_level level, const char *module, const char *event, const char *fmt, ...)
    PRINTF(4, 5);
/* Passes the line to `output` instead of the output of log_line. */
void log_line_to(void (*output)(const char *line, size_t n), enum log_level level,
    const char *module, const char *event, const char *fmt, ...) PRINTF(5, 6);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_level() >= LOG_DEBUG)                                                              \
            log_line(LOG_DEBUG, __VA_ARGS__);                                                      \
    } while (0)
