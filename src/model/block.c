#include "model/block.h"
#include "base/mem.h"

#include <sys/mman.h>

enum { ALIGNMENT = 64, HUGE_PAGE = 2 * 1024 * 1024 };

void *block_alloc(size_t bytes)
{
    const size_t huge = HUGE_PAGE;
    bool is_large = bytes >= 4 * huge;
    size_t unit = is_large ? huge : ALIGNMENT;
    size_t n = (MAX(bytes, 1) + unit - 1) / unit * unit;

    if (bytes > SIZE_MAX / 2)
        return NULL;
    void *p = try_aligned(unit, n);
    if (p && is_large)
        (void)madvise(p, n, MADV_HUGEPAGE); /* advice: a failure costs only speed */
    return p;
}

void block_free(void *block)
{
    mem_free(block);
}
