#include "api/common/dialect.h"

#include "api/common/body.h"
#include "api/common/tools.h"
#include "base/rng.h"

/* A tree of a million values takes 80 MB; no legitimate request has more. */
static const struct json_limits limits = { .max_depth = 128, .max_nodes = 1000000 };

int request_parse(
    struct request *out, const struct dialect *w, struct str body, struct arena *a, struct err *e)
{
    struct json *root;

    if (body_object(&root, body, &limits, a, e))
        return -1;
    *out = request_default;
    out->dialect = w;
    out->raw = root;
    out->sample.seed = rng_entropy();
    return w->parse(out, root, a, e) || tools_resolve(out, a, e) ? -1 : 0;
}
