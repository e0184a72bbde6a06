#include "cmd/paths.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

const char *model_id_of_path(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    struct str s = str_of(slash ? slash + 1 : path);

    if (str_ends(s, STR(".gguf")))
        s.n -= strlen(".gguf");
    snprintf(out, size, STR_FMT, STR_ARG(s));
    return *out ? out : "model";
}

const char *store_path(const char *option, char *out, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    *out = '\0';
    if (strcmp(option, "auto")) {
        if (strcmp(option, "none"))
            snprintf(out, size, "%s", option);
    } else if (state && *state == '/') {
        snprintf(out, size, "%s/inferflux/inferflux.db", state);
    } else if (home && *home == '/') {
        snprintf(out, size, "%s/.local/state/inferflux/inferflux.db", home);
    }
    return out;
}
