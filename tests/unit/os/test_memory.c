/* Available memory of the machine. */
#include "os/memory.h"
#include "support/check.h"

#include <unistd.h>

static void available_memory_is_positive_and_at_most_the_total(void)
{
    uint64_t n = memory_available();

    EXPECT(n > MB);
    EXPECT(n <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

TESTS(TEST(available_memory_is_positive_and_at_most_the_total))
