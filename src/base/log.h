/* log.h: one line per event, one write(2) of at most 1 kB to stderr, no lock.
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

void log_line(enum log_level level, const char *module, const char *event, const char *fmt, ...)
    PRINTF(4, 5);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_level() >= LOG_DEBUG)                                                              \
            log_line(LOG_DEBUG, __VA_ARGS__);                                                      \
    } while (0)
