/* prefix_counts.h: what the prefix cache of an engine has done. The engine's thread writes, anyone
 * reads; nothing depends on it. */
#pragma once

#include "cache/tree.h"

struct prefix_counts {
    _Atomic uint64_t matches, hits, partial_hits, matched_tokens, asked_tokens;
    _Atomic uint64_t kept, evicted, evicted_for_quota; /* pages */
    struct tree_ages ages;
    /* pages; lost: there was no time to write them; failed: not there any more, or damaged */
    _Atomic uint64_t disk_written, disk_lost, disk_fetched, disk_failed;
    _Atomic uint64_t disk_bytes;
};
