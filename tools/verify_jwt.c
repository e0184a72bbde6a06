/* tools/verify_jwt: verifies tokens, for comparison with other implementations.
 *
 *     verify_jwt ISSUER AUDIENCE SKEW_S NOW_S
 *
 * Reads lines from stdin: a key set (JSON, begins with `{`), which replaces the one before, or a
 * token. Writes one line per token: `ok EXPIRES_AT SUBJECT`, or `no CODE REASON`; and one per key
 * set: `keys N`, or `no CODE REASON`. */
#include "auth/jwt.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

static struct jwks *read_keys(struct str line, struct jwks *old)
{
    struct jwks *keys = NULL;
    struct err e;

    jwks_unref(old);
    if (jwks_parse(&keys, line, &e)) {
        printf("no %s %s\n", errcode_name(e.code), e.msg);
        return NULL;
    }
    printf("keys %d\n", jwks_count(keys));
    return keys;
}

static void verify(struct str token, const struct jwks *keys, const struct jwt_rules *rules)
{
    struct arena *a = arena_new(8 * MB);
    struct jwt jwt;
    struct err e;

    CHECK(a);
    if (jwt_verify(&jwt, token, keys, rules, a, &e))
        printf("no %s %s\n", errcode_name(e.code), e.msg);
    else
        printf("ok %lld " STR_FMT "\n", (long long)jwt.expires_at, STR_ARG(jwt.subject));
    arena_free(a);
}

int main(int argc, char **argv)
{
    struct jwks *keys = NULL;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    if (argc != 5) {
        fprintf(stderr, "usage: verify_jwt ISSUER AUDIENCE SKEW_S NOW_S\n");
        return 2;
    }
    struct jwt_rules rules = { str_of(argv[1]), str_of(argv[2]), JWT_ALL_ALGORITHMS,
        strtoll(argv[3], NULL, 10), strtoll(argv[4], NULL, 10) };
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct str text = { line, (size_t)n - (line[n - 1] == '\n') };
        if (text.n && text.p[0] == '{')
            keys = read_keys(text, keys);
        else
            verify(text, keys, &rules);
    }
    jwks_unref(keys);
    free(line);
    return 0;
}
