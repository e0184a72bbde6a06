#include "limits/calendar.h"

#include <time.h>

enum { HOUR_S = 3600, DAY_S = 24 * HOUR_S };

static int64_t distance(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

static int64_t adopt(struct calendar *c, uint64_t ns, int64_t wall_s)
{
    *c = (struct calendar){ .has_begun = true, .anchor_s = wall_s, .anchor_ns = ns };
    return wall_s;
}

int64_t calendar_now(struct calendar *c, uint64_t ns, int64_t wall_s)
{
    if (!c->has_begun)
        return adopt(c, ns, wall_s);
    int64_t own_s = c->anchor_s + (int64_t)((ns - c->anchor_ns) / NS_PER_S);
    int64_t deviation = wall_s - own_s;
    if (distance(wall_s, own_s) <= CALENDAR_DRIFT_S) {
        c->deviates = false;
        return deviation ? adopt(c, ns, wall_s) : own_s;
    }
    if (!c->deviates || distance(deviation, c->deviation_s) > CALENDAR_DRIFT_S) {
        c->deviates = true;
        c->deviation_s = deviation;
        c->since_ns = ns;
    }
    return ns - c->since_ns >= CALENDAR_SETTLE_S * NS_PER_S ? adopt(c, ns, wall_s) : own_s;
}

static struct tm date_of(int64_t unix_s)
{
    struct tm tm = { 0 };
    time_t t = (time_t)unix_s;

    gmtime_r(&t, &tm);
    return tm;
}

int64_t calendar_day(int64_t unix_s)
{
    return unix_s / DAY_S;
}

int64_t calendar_hour(int64_t unix_s)
{
    return unix_s / HOUR_S;
}

int64_t calendar_month(int64_t unix_s)
{
    struct tm tm = date_of(unix_s);

    return (int64_t)(tm.tm_year - 70) * 12 + tm.tm_mon;
}

int64_t calendar_next_day(int64_t unix_s)
{
    return (calendar_day(unix_s) + 1) * DAY_S;
}

int64_t calendar_next_month(int64_t unix_s)
{
    struct tm tm = date_of(unix_s);
    struct tm next = { .tm_year = tm.tm_year + (tm.tm_mon == 11), .tm_mon = (tm.tm_mon + 1) % 12 };

    next.tm_mday = 1;
    return timegm(&next);
}
