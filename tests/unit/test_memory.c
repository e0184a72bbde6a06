#include "os/memory.h"
#include "../check.h"

#include <unistd.h>

static void what_is_available_is_some_and_not_more_than_there_is(void)
{
    uint64_t n = memory_available();

    EXPECT(n > MB);
    EXPECT(n <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

TESTS(TEST(what_is_available_is_some_and_not_more_than_there_is))
