#include "os/quota.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE = 4096 + 256, /* of /proc/self/cgroup: a path, and what comes before it */
    NUMBERS = 64,      /* of a file with one or two numbers */
    DEPTH = 64,        /* groups within one another that are looked at */
};

struct place { /* where the groups of one hierarchy are */
    const char *root, *mount;
    bool is_v2;
};

static bool read_numbers(const struct place *at, const char *group, const char *name, char *text)
{
    char path[2 * LINE];
    int n =
        snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s/%s", at->root, at->mount, group, name);
    FILE *f = n < (int)sizeof(path) ? fopen(path, "re") : NULL;

    if (!f)
        return false;
    size_t got = fread(text, 1, NUMBERS - 1, f);
    fclose(f);
    text[got] = '\0';
    return got > 0;
}

/* No limit is as good as INT32_MAX. */
static int rounded_up(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return INT32_MAX;
    long long n = quota / period + (quota % period != 0);
    return (int)MIN(n, INT32_MAX);
}

static int of_group(const struct place *at, const char *group)
{
    char text[NUMBERS], period[NUMBERS], *end;

    if (!read_numbers(at, group, at->is_v2 ? "cpu.max" : "cpu.cfs_quota_us", text))
        return INT32_MAX;
    long long quota = strtoll(text, &end, 10);
    if (end == text) /* "max" */
        return INT32_MAX;
    if (at->is_v2)
        return rounded_up(quota, strtoll(end, NULL, 10));
    if (!read_numbers(at, group, "cpu.cfs_period_us", period))
        return INT32_MAX;
    return rounded_up(quota, strtoll(period, NULL, 10));
}

/* Of the group and all above it. In a container the path may be one that only the host sees: then
 * nothing is found on the way, and the limit stands at the root. */
static int of_path(const struct place *at, char *group)
{
    int least = INT32_MAX;

    if (strstr(group, "/..")) /* outside of what we see */
        group[0] = '\0';
    for (int i = 0; i < DEPTH; i++) {
        char *slash = strrchr(group, '/');
        if (slash && !slash[1]) { /* "/", or one too many */
            *slash = '\0';
            continue;
        }
        int n = of_group(at, group);
        least = MIN(least, n);
        if (!slash)
            break;
        *slash = '\0';
    }
    return least;
}

static bool has_cpu(const char *controllers)
{
    struct str s = str_of(controllers);

    while (s.n) {
        ptrdiff_t comma = str_find(s, STR(","));
        struct str one = { s.p, comma < 0 ? s.n : (size_t)comma };
        if (str_eq(one, STR("cpu")))
            return true;
        s = str_skip(s, comma < 0 ? s.n : (size_t)comma + 1);
    }
    return false;
}

/* "0::/path" of version 2, "number:controller,controller:/path" of version 1. */
static int of_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!group)
        return INT32_MAX;
    *controllers++ = *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (!*controllers)
        return of_path(&(struct place){ root, "", true }, group);
    if (has_cpu(controllers))
        return of_path(&(struct place){ root, "/cpu", false }, group);
    return INT32_MAX;
}

int quota_cpus(const char *root)
{
    char line[LINE];
    int least = INT32_MAX;

    snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
    FILE *f = fopen(line, "re");
    if (!f)
        return 0;
    while (fgets(line, sizeof(line), f)) {
        int n = of_line(root, line);
        least = MIN(least, n);
    }
    fclose(f);
    return least == INT32_MAX ? 0 : least;
}
