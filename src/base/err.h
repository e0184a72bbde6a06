/* err.h: the world's faults, carried up to whoever can tell the user.
 *
 *     int thing_do(struct thing *t, ..., struct err *e);
 *
 * returns 0, or -1 with *e filled in. The reason is written once, where it is known; callers
 * on the way up may add where they were (err_wrap) but never replace it. `e` is the last
 * parameter and never NULL. On success *e is not touched. */
#pragma once

#include "base/base.h"

enum errcode {
    ERR_NONE = 0,
#define ERR(name, meaning) ERR_##name,
#include "base/errors.def"
#undef ERR
};

struct err {
    enum errcode code;
    char param[48]; /* the request field or option at fault, "" when none */
    char msg[480];  /* truncated, never allocated: errors must work when memory does not */
};

/* Fills *e and returns -1, so that a function can end in `return err_set(...)`. */
int err_set(struct err *e, enum errcode code, const char *fmt, ...) PRINTF(3, 4);

/* The same, naming the field of the request or configuration at fault. */
int err_param(struct err *e, enum errcode code, const char *param, const char *fmt, ...)
    PRINTF(4, 5);

/* Puts "where: " in front of the message; returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) PRINTF(2, 3);

const char *errcode_name(enum errcode code);
