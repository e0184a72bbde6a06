/* registry.h: model registry: models by name.
 *
 * registry_open checks the configuration and, with must_serve, the files of the models. After
 * registry_start a loader thread loads the models one after the other while the server already
 * accepts requests. A model's `state` is stored once, with release order, after all other fields
 * are complete: a READY model does not change until registry_close. Any thread may read it. */
#pragma once

#include "registry/model.h"

struct registry;

enum { REGISTRY_MODELS_MAX = 64 };

struct registry_options {
    const struct model_spec *specs;
    int n_specs;
    /* Unknown names are an error also if there is only one model; otherwise they mean that model.
     * With several models they are always an error. */
    bool is_strict;
    /* "claude-*, gpt-4o=ID": additional names, separated by commas. A trailing star matches any
     * suffix. Each name means the model ID, or the first model if there is no ID. NULL = none.
     * Borrowed. */
    const char *aliases;
    const char *store_path; /* SQLite file of the stored capabilities; NULL or "" = none */
    probe_fn *probe;        /* see model_spec.probe; if set, the store is created */
    /* registry_open fails if no model passes model_check. */
    bool must_serve;
    /* Called once, on the loader thread, when each model is ready or has failed; the number of
     * ready models. Not called after registry_close has begun. NULL = not called. */
    void (*on_loaded)(int n_ready);
};

/* ERR_INVALID: a name, a parser or an alias of the configuration; otherwise the capability store,
 * or with must_serve the reason why no model can be served. */
int registry_open(struct registry **out, const struct registry_options *o, struct err *e);
/* Starts the loader thread; registry_watch must have been called. */
int registry_start(struct registry *p, struct err *e);
/* -1 with the reasons if all models have failed. */
int registry_check_failed(struct registry *p, struct err *e);
void registry_close(struct registry *p); /* waits for a running load; cancels running requests */

/* Finds a model by its id, by its id with the tag `:latest`, or by an alias. NULL: not found. */
struct model *registry_find_named(struct registry *p, struct str name);
/* Finds the model that a request names. An empty name means the first model; an unknown name means
 * the only model unless is_strict. NULL with ERR_NOT_FOUND. */
struct model *registry_find(struct registry *p, struct str name, struct err *e);

/* Registers fn, which is called after each model was loaded or failed to load: on the loader
 * thread, until registry_close. May be called once, before registry_start. */
void registry_watch(struct registry *p, void (*fn)(void *arg), void *arg);

int registry_n_models(const struct registry *p);
struct model *registry_model(struct registry *p, int i);
enum model_state model_state(const struct model *m);
int registry_n_ready(const struct registry *p);
