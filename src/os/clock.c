#include "os/clock.h"

#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_ms(void)
{
    return clock_ns() / 1000000u;
}

int64_t clock_wall_s(void)
{
    return (int64_t)time(NULL);
}
