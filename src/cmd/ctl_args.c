/* ctl_args.c: command options of inferctl, and standard input. */
#include "cmd/ctl.h"

#include <stdio.h>

static bool name_is(const char *name, struct str arg, bool *wants_value)
{
    struct str n = str_of(name);

    *wants_value = str_ends(n, STR("="));
    if (*wants_value)
        n.n--;
    return str_eq(n, arg);
}

int ctl_next(struct ctl_args *a, const char *const *names, int n)
{
    if (++a->at >= a->argc)
        return -1;
    const char *arg = a->argv[a->at];
    a->value = arg;
    if (strncmp(arg, "--", 2) || !arg[2])
        return -2;
    const char *eq = strchr(arg, '=');
    struct str name = { arg + 2, eq ? (size_t)(eq - arg - 2) : strlen(arg) - 2 };
    for (int i = 0; i < n; i++) {
        bool wants_value;
        if (!name_is(names[i], name, &wants_value))
            continue;
        a->value = eq ? eq + 1 : NULL;
        if (wants_value && !eq)
            a->value = ++a->at < a->argc ? a->argv[a->at] : NULL;
        if (wants_value == (a->value != NULL))
            return i;
        ctl_usage("%s: --" STR_FMT " %s", a->argv[0], STR_ARG(name),
            wants_value ? "needs a value" : "takes no value");
        return -3;
    }
    ctl_usage("%s: unknown option %s", a->argv[0], arg);
    return -3;
}

int ctl_read_stdin(struct buf *out, size_t max)
{
    buf_init(out, max);
    for (;;) {
        char *to = buf_reserve(out, MIN((size_t)65536, max - out->n));
        if (!to || out->n == max)
            return -1;
        size_t n = fread(to, 1, MIN((size_t)65536, max - out->n), stdin);
        out->n += n;
        if (!n)
            return 0;
    }
}
