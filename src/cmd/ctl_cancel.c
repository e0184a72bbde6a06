/* ctl_cancel.c: `inferctl cancel ID...`: cancels requests by the x-request-id of their
 * responses. */
#include "cmd/ctl.h"

#include <curl/curl.h>
#include <stdio.h>

static int cancel_request(struct ctl *c, const char *id)
{
    char path[1024];
    struct ctl_response r;
    char *escaped = curl_easy_escape(NULL, id, 0);

    CHECK(escaped);
    int n = snprintf(path, sizeof(path), "/v1/requests/%s", escaped);
    curl_free(escaped);
    if (n >= (int)sizeof(path))
        return ctl_fail("'%.40s...' is not a request id", id);
    ctl_delete(c, path, &r);
    int rc = ctl_check(&r);
    if (rc == EXIT_OK && c->as_json)
        ctl_printf("%.*s\n", (int)r.body.n, r.body.p);
    else if (rc == EXIT_OK)
        ctl_printf("%s cancelled\n", id);
    buf_clear(&r.body);
    return rc;
}

int ctl_cancel(struct ctl *c, int argc, char **argv)
{
    static const char *const names[] = { "json" };
    struct ctl_args a = { .argc = argc, .argv = argv };
    int n = 0, failed = EXIT_OK;

    for (int i; (i = ctl_next(&a, names, 1)) != -1;) {
        if (i == -3)
            return EXIT_USAGE;
        if (i == 0) {
            c->as_json = true;
            continue;
        }
        n++;
        if (cancel_request(c, a.value) != EXIT_OK)
            failed = EXIT_FAILED;
    }
    return n ? failed : ctl_usage("cancel needs the id of a request");
}
