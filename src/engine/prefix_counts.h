/* prefix_counts.h: counters of the prefix cache of an engine. The engine thread writes, any thread
 * reads; no decision depends on them. */
#pragma once

#include "cache/tree.h"

struct prefix_counts {
    _Atomic uint64_t matches, hits, partial_hits, matched_tokens, asked_tokens;
    _Atomic uint64_t inserted, evicted, evicted_for_quota; /* pages */
    _Atomic uint64_t checkpoints, checkpoints_evicted, windows_evicted;
    struct tree_ages ages;
    /* Pages. lost: not written, because the queue was full; failed: missing or damaged when
     * read. */
    _Atomic uint64_t disk_written, disk_lost, disk_pages_read, disk_failed;
    _Atomic uint64_t disk_checkpoints_written, disk_checkpoints_read;
    _Atomic uint64_t disk_bytes;
};
