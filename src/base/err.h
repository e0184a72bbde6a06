/* err.h: external errors, returned up to the layer that reports them to the user.
 *
 *     int thing_do(struct thing *t, ..., struct err *e);
 *
 * returns 0, or -1 with *e set. The reason is written once, by the function that detects the error;
 * callers may add context (err_wrap) but never replace it. `e` is the last parameter and never
 * NULL. On success *e is unchanged.
 *
 * Any thread; an err belongs to the caller. */
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
    char param[48]; /* request field or option that caused the error; "" if none */
    char msg[800];  /* truncated, never allocated: errors must work without memory */
};

/* Sets *e and returns -1, so that a function can end with `return err_set(...)`. */
int err_set(struct err *e, enum errcode code, const char *fmt, ...) PRINTF(3, 4);

/* The same, with the name of the request field or option that caused the error. */
int err_param(struct err *e, enum errcode code, const char *param, const char *fmt, ...)
    PRINTF(4, 5);

/* Prepends "where: " to the message; returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) PRINTF(2, 3);

const char *errcode_name(enum errcode code);
