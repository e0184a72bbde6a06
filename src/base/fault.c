#include "base/fault.h"

#include <stdatomic.h>
#include <stdlib.h>

static _Atomic uint64_t calls_left[N_FAULT_SITES]; /* calls until a failure; 0 = never */

void fault_arm(enum fault_site site, uint64_t nth)
{
    atomic_store(&calls_left[site], nth);
}

uint64_t fault_left(enum fault_site site)
{
    return atomic_load(&calls_left[site]);
}

#ifdef TESTING
static const char *const site_names[N_FAULT_SITES] = {
#define X(name, text) [FAULT_##name] = text,
    FAULT_SITES(X)
#undef X
};

__attribute__((constructor)) static void arm_from_environment(void)
{
    const char *spec = getenv("INFERFLUX_FAULT");
    const char *colon = spec ? strchr(spec, ':') : NULL;

    if (!colon)
        return;
    for (size_t i = 0; i < N_FAULT_SITES; i++)
        if (strlen(site_names[i]) == (size_t)(colon - spec) &&
            !strncmp(spec, site_names[i], (size_t)(colon - spec)))
            fault_arm((enum fault_site)i, strtoull(colon + 1, NULL, 10));
}

bool fault_hit(enum fault_site site)
{
    uint64_t left = atomic_load_explicit(&calls_left[site], memory_order_relaxed);

    while (left)
        if (atomic_compare_exchange_weak(&calls_left[site], &left, left - 1))
            return left == 1;
    return false;
}
#endif
