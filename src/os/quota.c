#include "os/quota.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE = 4096 + 256, /* line of /proc/self/cgroup: a path and its prefix */
    NUMBERS = 64,      /* file with one or two numbers */
    DEPTH = 64,        /* limit for the nesting of groups */
};

struct hierarchy { /* location of the groups of one hierarchy */
    const char *root, *mount;
    bool is_v2;
};

static bool read_numbers(
    const struct hierarchy *hierarchy, const char *group, const char *name, char *text)
{
    char path[2 * LINE];
    int n = snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s/%s", hierarchy->root,
        hierarchy->mount, group, name);
    FILE *f = n < (int)sizeof(path) ? fopen(path, "re") : NULL;

    if (!f)
        return false;
    size_t got = fread(text, 1, NUMBERS - 1, f);
    fclose(f);
    text[got] = '\0';
    return got > 0;
}

/* No limit is represented by INT32_MAX. */
static int cpus_rounded_up(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return INT32_MAX;
    long long n = quota / period + (quota % period != 0);
    return (int)MIN(n, INT32_MAX);
}

static int group_cpus(const struct hierarchy *hierarchy, const char *group)
{
    char text[NUMBERS], period[NUMBERS], *end;

    if (!read_numbers(hierarchy, group, hierarchy->is_v2 ? "cpu.max" : "cpu.cfs_quota_us", text))
        return INT32_MAX;
    long long quota = strtoll(text, &end, 10);
    if (end == text) /* "max" */
        return INT32_MAX;
    if (hierarchy->is_v2)
        return cpus_rounded_up(quota, strtoll(end, NULL, 10));
    if (!read_numbers(hierarchy, group, "cpu.cfs_period_us", period))
        return INT32_MAX;
    return cpus_rounded_up(quota, strtoll(period, NULL, 10));
}

/* Minimum of the limits of the group and its parents. In a container the path may be valid on the
 * host only: then no file is found on the path, and the limit is that of the root. */
static int path_cpus(const struct hierarchy *hierarchy, char *group)
{
    int least = INT32_MAX;

    if (strstr(group, "/..")) /* outside the visible hierarchy */
        group[0] = '\0';
    for (int i = 0; i < DEPTH; i++) {
        char *slash = strrchr(group, '/');
        if (slash && !slash[1]) { /* "/", or an extra slash */
            *slash = '\0';
            continue;
        }
        int n = group_cpus(hierarchy, group);
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
        struct str controller = { s.p, comma < 0 ? s.n : (size_t)comma };
        if (str_eq(controller, STR("cpu")))
            return true;
        s = str_skip(s, comma < 0 ? s.n : (size_t)comma + 1);
    }
    return false;
}

/* Parses "0::/path" (version 2) or "number:controller,controller:/path" (version 1). */
static int line_cpus(const char *root, char *line)
{
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!group)
        return INT32_MAX;
    *controllers++ = *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (!*controllers)
        return path_cpus(&(struct hierarchy){ root, "", true }, group);
    if (has_cpu(controllers))
        return path_cpus(&(struct hierarchy){ root, "/cpu", false }, group);
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
        int n = line_cpus(root, line);
        least = MIN(least, n);
    }
    fclose(f);
    return least == INT32_MAX ? 0 : least;
}
