#include "base/rfc3339.h"

#include <stdio.h>
#include <time.h>

bool rfc3339_read(struct str s, int64_t *out)
{
    char text[40];
    struct tm tm = { 0 }, offset = { 0 };

    if (s.n >= sizeof(text) || (s.n && memchr(s.p, '\0', s.n)) ||
        (s.n && (*s.p < '0' || *s.p > '9')))
        return false;
    snprintf(text, sizeof(text), STR_FMT, STR_ARG(s));
    const char *zone = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!zone)
        return false;
    *out = timegm(&tm);
    bool has_offset = *zone == '+' || *zone == '-';
    const char *end = has_offset ? strptime(zone + 1, "%H:%M", &offset) : zone + (*zone == 'Z');
    if (!end || *end || end == zone)
        return false;
    int64_t s_offset = offset.tm_hour * 3600 + offset.tm_min * 60;
    *out += *zone == '+' ? -s_offset : s_offset;
    return true;
}
