/* model_pool.h: model pool: loads models of the registry, within limits of memory and number, and
 * unloads those that are not needed.
 *
 * Each loader thread repeats: close a model that is DRAINING and not in use; else load the model
 * that waits longest; else write packed weights; else wait. A load reads the metadata first, which
 * yields the memory that the model needs. If that exceeds a limit, the least recently used models
 * that no request uses or waits for are evicted; pinned ones never are. If requests use all of
 * them, the load waits. If the model cannot fit even alone, it fails with ERR_MEMORY, which names
 * the missing bytes.
 *
 * Owner: the loader threads; functions of other threads are in registry.h. */
#pragma once

#include <stdint.h>

struct registry;
struct err;

struct model_pool_options {
    int parallel_loads;    /* loader threads; 0: 1 */
    uint64_t memory_bytes; /* limit of the planned memory of all loaded models; 0: none */
    int max_models;        /* limit of loaded models; 0: none */
    uint64_t idle_ttl_ms;  /* unloads a model after this time without a request; 0: never */
};

int model_pool_start(struct registry *p, struct err *e);
void model_pool_stop(struct registry *p); /* waits for running loads */
