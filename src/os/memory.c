#include "os/memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEXT = 8192 }; /* larger than /proc/meminfo; the line is near the start */

static bool read_text(const char *path, char *text)
{
    FILE *f = fopen(path, "re");

    if (!f)
        return false;
    size_t n = fread(text, 1, TEXT - 1, f);
    fclose(f);
    text[n] = '\0';
    return n > 0;
}

static uint64_t system_available(void)
{
    static const char key[] = "MemAvailable:";
    char text[TEXT];

    if (!read_text("/proc/meminfo", text))
        return 0;
    const char *line = strstr(text, key);
    return line ? strtoull(line + strlen(key), NULL, 10) * KB : 0;
}

/* Memory left in the control group. "max" is not a number and means no limit. */
static uint64_t cgroup_available(void)
{
    char text[TEXT], *end;

    if (!read_text("/sys/fs/cgroup/memory.max", text))
        return UINT64_MAX;
    uint64_t most = strtoull(text, &end, 10);
    if (end == text || !read_text("/sys/fs/cgroup/memory.current", text))
        return UINT64_MAX;
    uint64_t used = strtoull(text, NULL, 10);
    return most > used ? most - used : 0;
}

uint64_t memory_available(void)
{
    uint64_t n = system_available();

    return n ? MIN(n, cgroup_available()) : 0;
}
