/* ctl_inspect.c: `inferctl inspect FILE.gguf`: what is in a model file, without a server. */
#include "cmd/ctl.h"
#include "format/describe.h"
#include "format/gguf.h"

#include <stdio.h>

int ctl_inspect(struct ctl *c, int argc, char **argv)
{
    static const char *const names[] = { "json", "help" };
    struct ctl_args a = { .argc = argc, .argv = argv };
    const char *path = NULL;
    struct gguf *g;
    struct buf out;
    struct err e;

    for (int i; (i = ctl_next(&a, names, ARRAY_LEN(names))) != -1;) {
        if (i == 1) {
            printf("usage: inferctl inspect [--json] FILE.gguf\n\n"
                   "Metadata, tensors and sizes of a model file, and whether it can be served.\n");
            return EXIT_OK;
        }
        if (i == -3 || (i == -2 && path))
            return i == -3 ? EXIT_USAGE : ctl_usage("inspect: one file at a time");
        if (i == -2)
            path = a.value;
        else
            c->as_json = true;
    }
    if (!path)
        return ctl_usage("inspect: which file?");
    if (gguf_open(&g, path, &e))
        return ctl_fail("%s", e.msg);
    buf_init(&out, 256 * MB);
    gguf_describe(g, c->as_json, &out);
    gguf_close(g);
    int rc = buf_ok(&out) ? EXIT_OK : ctl_fail("inspect: no memory");
    fwrite(out.p, 1, out.n, stdout);
    buf_clear(&out);
    return rc;
}
