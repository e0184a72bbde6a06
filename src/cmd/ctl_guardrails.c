/* ctl_guardrails.c: `inferctl admin guardrails ...`: sets of guardrails of a server
 * (/v1/admin/guardrails). */
#include "cmd/ctl.h"
#include "os/files.h"

#include <fcntl.h>
#include <stdio.h>

#define GUARDRAILS_PATH "/v1/admin/guardrails"

enum { BODY_MAX = 8 * 1024 * 1024, PATH_MAX_BYTES = 1024 };

static const struct action {
    const char *name, *method;
    int n_arguments;
} actions[] = { { "ls", "GET", 0 }, { "get", "GET", 1 }, { "put", "PUT", 2 }, { "rm", "DELETE", 1 },
    { "test", "POST", 1 } };

/* The server reads and checks the JSON. */
static int read_body(const struct action *a, char **argv, struct buf *out)
{
    struct err e;
    struct jw w;

    if (!strcmp(a->name, "put"))
        return file_read_at(AT_FDCWD, argv[2], out, &e) ? ctl_fail("%s: %s", argv[2], e.msg)
                                                        : EXIT_OK;
    jw_init(&w, out);
    jw_object(&w);
    jw_member_str(&w, "text", str_of(argv[1]));
    jw_end_object(&w);
    return buf_ok(out) ? EXIT_OK : ctl_fail("the text is too long");
}

static int send(struct ctl *c, const struct action *a, char **argv)
{
    bool is_test = !strcmp(a->name, "test"), has_body = is_test || !strcmp(a->name, "put");
    struct ctl_response r;
    struct buf path, body;

    buf_init(&path, PATH_MAX_BYTES);
    buf_init(&body, BODY_MAX);
    buf_putz(&path, GUARDRAILS_PATH "/");
    ctl_put_path(&path, str_of(is_test ? "test" : argv[1]));
    buf_putc(&path, '\0');
    int rc = buf_ok(&path) ? EXIT_OK : ctl_fail("the name is too long");
    if (rc == EXIT_OK && has_body)
        rc = read_body(a, argv, &body);
    if (rc == EXIT_OK) {
        struct str text = buf_str(&body);
        ctl_send(c, a->method, path.p, has_body ? &text : NULL, &r);
        rc = ctl_check(&r);
        if (rc == EXIT_OK)
            ctl_printf("%.*s\n", STR_ARG(buf_str(&r.body)));
        buf_clear(&r.body);
    }
    buf_clear(&path);
    buf_clear(&body);
    return rc;
}

int ctl_guardrails(struct ctl *c, int argc, char **argv)
{
    size_t i = 0;

    while (i < ARRAY_LEN(actions) && strcmp(argv[0], actions[i].name))
        i++;
    CHECK(i < ARRAY_LEN(actions));
    if (argc != 1 + actions[i].n_arguments)
        return ctl_usage("admin guardrails %s: wrong number of arguments", argv[0]);
    return actions[i].n_arguments ? send(c, &actions[i], argv) : ctl_list(c, GUARDRAILS_PATH);
}
