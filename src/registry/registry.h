/* registry.h: model registry: the known models by name, with their load state.
 *
 *     KNOWN      not loaded since the start
 *     LOADING    waits for a loader thread or for memory, or is being loaded
 *     READY      loaded; requests take references (registry_take)
 *     DRAINING   is unloaded when no request uses it; new requests wait for the next load
 *     UNLOADED   was loaded before
 *     FAILED     could not be loaded; loaded again when its file changes, or by registry_load
 *
 *     KNOWN, UNLOADED, FAILED -> LOADING -> READY -> DRAINING -> UNLOADED
 *                                   |         \---------------------> FAILED (its file was damaged)
 *                                   \-> KNOWN, UNLOADED (cancelled), FAILED
 *
 * A model is loaded at start, by registry_load, or on demand while a request waits for it
 * (registry_wait). The model pool (model_pool.h) loads, unloads and evicts.
 *
 * An entry is one known model. It exists as long as the registry contains it or a reference to it
 * remains.
 *
 * Any thread, unless stated otherwise. One mutex guards the table and the states; it is never held
 * during a load or a callback. */
#pragma once

#include "registry/model.h"
#include "registry/model_pool.h"

struct registry;
struct registry_entry;

enum model_state {
    MODEL_KNOWN,
    MODEL_LOADING,
    MODEL_READY,
    MODEL_DRAINING,
    MODEL_UNLOADED,
    MODEL_FAILED,
    N_MODEL_STATES
};

enum model_stage { /* of LOADING */
    STAGE_QUEUED,  /* waits for a loader thread */
    STAGE_FILES,   /* reads metadata and vocabulary */
    STAGE_MEMORY,  /* waits for memory of other models */
    STAGE_WEIGHTS, /* reads the weights; the progress refers to it */
};

enum { REGISTRY_MODELS_MAX = 1024 };

struct registry_options {
    const struct model_spec *specs; /* copied, as far as they differ per model */
    int n_specs;
    /* Unknown names are an error also if there is only one model; otherwise they mean that model.
     * With several models they are always an error. */
    bool is_strict;
    /* "claude-*, gpt-4o=ID": additional names, separated by commas. A trailing star matches any
     * suffix. Each name means the model ID, or the default model if there is no ID. NULL = none.
     * Borrowed. */
    const char *aliases;
    const char *store_path; /* SQLite file of the stored capabilities; NULL or "" = none */
    probe_fn *probe;        /* see model_spec.probe; if set, the store is created */
    /* registry_open fails if models are loaded at start and none of them passes model_check. */
    bool must_serve;
    /* Called once, on a loader thread, when each model that is loaded at start is ready or has
     * failed; can_serve: not all models of the registry have failed. Not called after
     * registry_close has begun. NULL = not called. */
    void (*on_loaded)(int n_ready, bool can_serve);
    struct model_pool_options pool;
};

/* ERR_INVALID: a name, a parser or an alias of the configuration; otherwise the capability store,
 * or with must_serve the reason why no model can be served. */
int registry_open(struct registry **out, const struct registry_options *o, struct err *e);
/* Starts the loader threads; registry_watch must have been called. */
int registry_start(struct registry *p, struct err *e);
/* -1 with the reasons if all models have failed. */
int registry_check_failed(struct registry *p, struct err *e);
/* Waits for a running load; no reference to a model remains. */
void registry_close(struct registry *p);

/* fn is called after each change of a state, on the thread that changed it; before_close before a
 * model is closed, on a loader thread (NULL: not called). Called once, before registry_start. */
struct registry_watch {
    void (*changed)(void *arg);
    void (*before_close)(void *arg, const struct model *m);
    void *arg;
};
void registry_watch(struct registry *p, const struct registry_watch *w);

/* ---- requests */

/* Finds a model by its id, by its id with the tag `:latest`, or by an alias. The caller owns a
 * reference; NULL: not found. */
struct registry_entry *registry_find_named(struct registry *p, struct str name);
/* Finds the model that a request names. An empty name means the default model; an unknown name
 * means the only model unless is_strict. The caller owns a reference. NULL with ERR_NOT_FOUND. */
struct registry_entry *registry_find(struct registry *p, struct str name, struct err *e);
/* The model with exactly this id, without tag and aliases. The caller owns a reference, or NULL. */
struct registry_entry *registry_find_id(struct registry *p, struct str id);
void registry_entry_unref(struct registry_entry *m); /* accepts NULL */
/* Constant as long as the entry exists. */
const struct model_spec *registry_entry_spec(const struct registry_entry *m);

enum take { TAKE_OK, TAKE_LATER, TAKE_FAILED };
/* TAKE_OK: the model is READY; the caller owns a reference *out, and the model stays loaded until
 * model_release. TAKE_LATER: it is not loaded; `e` states that (ERR_NOT_READY). TAKE_FAILED:
 * ERR_NOT_READY, it could not be loaded. */
enum take registry_take(struct registry_entry *m, struct model **out, struct err *e);
void model_release(struct model *m); /* accepts NULL */

/* A request waits for the model: it is loaded unless it is FAILED, and not evicted until
 * registry_wait_end. A load that no request waits for any more, and that was not requested
 * otherwise, is cancelled. */
void registry_wait(struct registry_entry *m);
void registry_wait_end(struct registry_entry *m);
/* The model is being loaded because it was configured so or registry_load was called, or it was
 * loaded before and is unloaded on demand only. False: requests alone cause its load. */
bool registry_is_loading_anyway(struct registry_entry *m);

/* ---- administration */

/* Adds a model. ERR_INVALID: name, which may exist already, parser, or family. ERR_RANGE: too many
 * models. ERR_MEMORY. */
int registry_add(struct registry *p, const struct model_spec *spec, struct err *e);
/* Requests of the model end; its name is free at once. */
void registry_remove(struct registry_entry *m);
void registry_load(struct registry_entry *m); /* loads it, also if it has failed before */
/* Unloads it when its running requests have ended. A model that is being loaded is cancelled. */
void registry_unload(struct registry_entry *m);
void registry_pin(struct registry_entry *m, bool is_pinned);
void registry_set_default(struct registry_entry *m);

/* ---- lists */

struct registry_view {             /* an entry at one moment */
    struct registry_entry *entry;  /* a reference */
    const struct model_spec *spec; /* of the entry */
    struct model *model;           /* a reference; NULL unless READY */
    enum model_state state;
    enum model_stage stage; /* of LOADING */
    int percent;            /* of STAGE_WEIGHTS */
    struct err why;         /* reason of FAILED */
    bool is_default, is_pinned;
    uint64_t planned_bytes; /* memory of LOADING (0: not known yet), READY and DRAINING */
    uint64_t used_ns;       /* last use, clock_ns; 0: never */
    int n_waiting, n_users; /* requests that wait for it, that use it */
};

struct registry_list {
    struct registry_view *views; /* in the order in which the models were added */
    size_t n;
};

void registry_view(struct registry_entry *m, struct registry_view *out);
void registry_view_clear(struct registry_view *v); /* drops the references */
/* All models. On ERR_MEMORY the list is empty. */
int registry_list(struct registry *p, struct registry_list *out, struct err *e);
void registry_list_clear(struct registry_list *l); /* drops the references */
int registry_n_ready(struct registry *p);
int registry_n_models(struct registry *p);
const char *model_state_name(enum model_state s);
