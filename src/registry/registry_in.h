/* registry_in.h: internal state of registry.c and model_pool.c. */
#pragma once

#include "base/list.h"
#include "registry/kv_reservation.h"
#include "registry/registry.h"

#include <pthread.h>

enum { LOADERS_MAX = 16 };

struct registry_entry {
    struct registry *registry;
    struct model_spec spec; /* its strings are in `strings` or outlive the registry */
    char *strings;
    struct list_link in_all; /* unless it was removed */
    enum model_state state;
    enum model_stage stage;
    _Atomic int percent;
    _Atomic bool stop;   /* the running load or the writing of packed weights ends early */
    struct model *model; /* READY, DRAINING; KNOWN and LOADING: checked at start; else NULL */
    struct err why;
    int n_refs;        /* references to the entry, one of them held by the registry */
    int n_waiting;     /* requests that wait for it */
    bool is_wanted;    /* the load was requested otherwise than by a waiting request */
    bool is_initial;   /* loaded at start, and not ready or failed yet */
    bool is_at_loader; /* a loader thread uses it; the states LOADING and DRAINING */
    bool is_removed, is_pinned, wants_pack, was_loaded;
    uint64_t queued_ns, used_ns, failed_ns;
    uint64_t planned_bytes; /* counted in registry.used_bytes; 0: not counted */
    uint64_t file_stamp;    /* of the model file before its load, to see that it has changed */
    uint64_t looked_ns;     /* FAILED: last time that the file was compared with it */
};

struct registry {
    pthread_mutex_t mu;
    pthread_cond_t changed; /* the loader threads have something to do */
    struct list all;        /* struct registry_entry, in the order of registry_add */
    int n;
    struct registry_entry *first; /* the default model; NULL: none */
    bool is_strict;
    struct str aliases;
    struct kv_reservation reserved;
    struct capabilities *store; /* NULL = none */
    struct registry_watch watch;
    void (*on_loaded)(int n_ready, bool can_serve);
    int n_initial; /* models that are loaded at start and are not ready or failed yet */
    struct model_pool_options pool;
    uint64_t used_bytes; /* planned memory of LOADING, READY and DRAINING models */
    int n_loaded;        /* models that count against max_models */
    pthread_t loaders[LOADERS_MAX];
    int n_loaders;
    bool is_closing;
};

/* The caller holds the mutex. */
void registry_set_failed(struct registry_entry *m, const struct err *why);
bool registry_may_load(const struct registry_entry *m); /* something requires the load */
/* Calls watch.changed without the mutex, which the caller holds. */
void registry_notify(struct registry *p);
void registry_queue_load(struct registry_entry *m); /* no loader thread uses it */
void registry_drop_entry(struct registry_entry *m); /* drops a reference */
uint64_t registry_file_stamp(const char *path);     /* 0: no such file */
/* The caller does not hold the mutex. Checks the files and reserves the KV offload directory. */
int registry_check_model(struct registry_entry *m, struct model *model, struct err *e);
