/* fault.h: fault injection: makes the nth call at a site fail, so that tests cover every failure
 * path.
 *
 * In test builds INFERFLUX_FAULT=site:nth arms a site at start; fault_arm() arms one later. A site
 * fires once and disarms itself. In release builds fault_hit() is the constant false.
 *
 * Any thread. */
#pragma once

#include "base/base.h"

#define FAULT_SITES(X)                                                                             \
    X(ALLOC, "alloc")                                                                              \
    X(READ, "read")                                                                                \
    X(WRITE, "write")                                                                              \
    X(ACCEPT, "accept")                                                                            \
    X(OPEN, "open")                                                                                \
    X(MMAP, "mmap")                                                                                \
    X(THREAD, "thread")                                                                            \
    X(EPOLL, "epoll")                                                                              \
    X(DISK_READ, "disk_read")                                                                      \
    X(DISK_WRITE, "disk_write")                                                                    \
    X(DISK_SHORT, "disk_short")                                                                    \
    X(LATE_WAKE, "late_wake")

enum fault_site {
#define X(name, text) FAULT_##name,
    FAULT_SITES(X)
#undef X
        N_FAULT_SITES
};

#ifdef TESTING
bool fault_hit(enum fault_site site);
#else
static inline bool fault_hit(enum fault_site site)
{
    (void)site;
    return false;
}
#endif

void fault_arm(enum fault_site site, uint64_t nth); /* 1 = the next call; 0 = disarm */
uint64_t fault_left(enum fault_site site); /* calls until it fires; 0: fired or not armed */
