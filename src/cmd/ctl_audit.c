/* ctl_audit.c: `inferctl admin audit verify FILE...`: verifies the chain of audit logs. */
#include "audit/verify.h"
#include "base/mem.h"
#include "cmd/ctl.h"

#include <stdio.h>
#include <unistd.h>

struct arguments {
    const char *keys, *at; /* NULL: not given */
    const char **files;    /* oldest first */
    int n_files;
};

static int read_arguments(struct arguments *to, int argc, char **argv)
{
    static const char *const names[] = { "keys=", "at=" };
    struct ctl_args a = { .argc = argc, .argv = argv };

    to->files = xcalloc((size_t)argc, sizeof(*to->files));
    for (int i; (i = ctl_next(&a, names, ARRAY_LEN(names))) != -1;) {
        if (i == -3)
            return EXIT_USAGE;
        if (i == -2)
            to->files[to->n_files++] = a.value;
        else
            *(i ? &to->at : &to->keys) = a.value;
    }
    return to->n_files ? EXIT_OK : ctl_usage("audit verify needs the path of an audit log");
}

/* `LINES:MAC`, as a checkpoint is logged. */
static bool read_anchor(struct audit_verifier *v, const char *at)
{
    struct str s = str_of(at);
    ptrdiff_t colon = str_find(s, STR(":"));

    if (colon < 0 || !str_to_u64((struct str){ s.p, (size_t)colon }, &v->anchor.n_lines) ||
        !v->anchor.n_lines)
        return false;
    v->anchor.mac = at + colon + 1;
    return strlen(v->anchor.mac) == AUDIT_HEX && audit_is_hex(v->anchor.mac, AUDIT_HEX);
}

/* Opens FILE.keys; for a rotated file also the key file of the current one. */
static int open_keys(struct audit_keys **out, const char *file, struct err *e)
{
    size_t n = strlen(file) + sizeof(".keys");
    char *path = xmalloc(n), *dot;

    snprintf(path, n, "%s.keys", file);
    if (access(path, F_OK) && (dot = strrchr(file, '.')) && dot != file) {
        snprintf(path, n, "%.*s.keys", (int)(dot - file), file);
        if (access(path, F_OK))
            snprintf(path, n, "%s.keys", file);
    }
    int rc = audit_keys_open(out, path, false, e);
    mem_free(path);
    return rc;
}

static int verify_files(struct audit_verifier *v, const struct arguments *a)
{
    struct err e;

    for (int i = 0; i < a->n_files; i++)
        if (audit_verify_file(v, a->files[i], i == a->n_files - 1, &e))
            return ctl_fail("%s", e.msg);
    if (v->anchor.mac && !v->anchor.is_found)
        return ctl_fail("%s: no line has the number and MAC of --at", a->files[a->n_files - 1]);
    ctl_printf("%llu lines from %llu on, the chain is complete\n", (unsigned long long)v->n_lines,
        (unsigned long long)v->first);
    return EXIT_OK;
}

int ctl_audit_verify(struct ctl *c, int argc, char **argv)
{
    struct arguments a = { 0 };
    struct audit_verifier v = { 0 };
    struct audit_keys *keys;
    struct err e;
    int status = read_arguments(&a, argc, argv);

    (void)c;
    if (status) {
        /* an error was printed */
    } else if (a.at && !read_anchor(&v, a.at)) {
        status = ctl_usage("--at needs LINES:MAC, not '%s'", a.at);
    } else if (a.keys ? audit_keys_open(&keys, a.keys, false, &e)
                      : open_keys(&keys, *a.files, &e)) {
        status = ctl_fail("%s", e.msg);
    } else {
        v.keys = keys;
        status = verify_files(&v, &a);
        audit_keys_close(keys);
    }
    mem_free(a.files);
    return status;
}
