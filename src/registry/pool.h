/* pool.h: models by name.
 *
 * A loader thread opens the models one after the other; the server answers meanwhile. A model's
 * `state` is published once, with release order, when everything else in it is complete: what is
 * READY never changes again until pool_close. Any thread may look. */
#pragma once

#include "chat/adapter.h"
#include "output/reading.h"
#include "engine/engine.h"
#include "store/capabilities.h"
#include "tokenizer/vocab.h"

enum backend { BACKEND_NATIVE, BACKEND_SCRIPT };
enum model_state { MODEL_LOADING, MODEL_READY, MODEL_FAILED };

/* Of packed weights: no file of them, one that is read into memory, one that is mapped. */
enum pack_mode { PACK_OFF, PACK_RAM, PACK_FILE };

struct model;

/* Detects the capabilities of an open model by test generations, on the calling thread, which takes
 * seconds. *stop == true ends it early with ERR_CANCELLED. Implementation: generate/probe.h. */
typedef int probe_fn(
    struct model_capabilities *out, struct model *m, const _Atomic bool *stop, struct err *e);

struct model_spec { /* strings are borrowed and outlive the pool */
    const char *id, *path;
    enum backend backend;
    const char *family;        /* chat family whose template is used; "" = the file's own */
    const char *template_path; /* "" = the file's own */
    /* ids of chat/parser.h; NULL or "" = found out */
    const char *tool_parser, *thinking_parser;
    bool no_injection;          /* see adapter_options */
    probe_fn *probe;            /* probes a model without a stored record; NULL = never */
    struct capabilities *store; /* what is known; NULL = nothing. Used by model_open alone */
    const _Atomic bool *stop;   /* true: a probe ends early. NULL = never */
    const char *kernels;        /* "auto", "avx2", ... */
    const char *kv_type;        /* "f16", "bf16", "q8_0" */
    enum pack_mode pack;
    int threads;            /* 0 = one per processor */
    int64_t ctx_size;       /* 0 = what the model was made for */
    int64_t kv_bytes;       /* 0 = automatic */
    const char *draft_path; /* a small model that guesses ahead; NULL or "" = none */
    struct engine_options engine;
    bool show_progress; /* on stderr while loading, when that is a terminal */
};

/* Of a model of which nothing else is said; where a field's zero does not say that already. */
struct model_spec model_spec_of(const char *id, const char *path);

struct model {
    const struct model_spec *spec;
    _Atomic int state; /* enum model_state */
    struct err why;    /* FAILED */
    struct vocab *vocab;
    struct chat_template *template; /* NULL: the model cannot chat */
    struct template_env env;
    struct adapter *adapter;         /* how it is talked to, and what reads its answers */
    struct model_capabilities known; /* when is_probed */
    bool is_probed;
    struct reading readings[READ_KINDS]; /* by READ_CALLS | READ_THOUGHTS */
    struct engine *engine;
    const struct lm *lm; /* the engine's; for its plain numbers */
    int32_t *end_ids;    /* tokens that end an answer, ascending */
    int n_end_ids;
    int n_ctx;
    int64_t created;     /* wall seconds when it became ready */
    uint64_t load;       /* no other model_open of this process has this number */
    uint64_t file_bytes; /* of all parts */
    size_t n_parts;
    struct file_id *files; /* [n_parts]: those that were opened */
    uint8_t digest[32];    /* of the files, when what it computes is kept on disk */
    char arch[32], quant[16], kernels[16];
    char name[64]; /* general.name */
};

struct pool;

enum { POOL_MODELS_MAX = 64 };

struct pool_options {
    const struct model_spec *specs;
    int n_specs;
    bool is_strict; /* an unknown name is nobody's; else it means the first model */
    /* "claude-*, gpt-4o=ID": further names, separated by commas, what they begin with where a star
     * ends them, of the model ID or else the first one. NULL = none. Borrowed. */
    const char *aliases;
    const char *store_path; /* SQLite file of what is known about models; NULL or "" = none */
    probe_fn *probe;        /* see model_spec.probe; if set, the file is created */
};

int pool_open(struct pool **out, const struct pool_options *o, struct err *e);
void pool_close(struct pool *p); /* waits for a load under way; cancels what runs */

/* By its id, by its id and the tag `:latest`, by an alias; NULL: none is called so. */
struct model *pool_named(struct pool *p, struct str name);
/* The model a request means: by such a name; an empty one means the first, and so does any other
 * where that is allowed. NULL with ERR_NOT_FOUND. */
struct model *pool_find(struct pool *p, struct str name, struct err *e);

/* From here on fn is called whenever a model was loaded or could not be: on the loader's thread,
 * until pool_close. Once. */
void pool_watch(struct pool *p, void (*fn)(void *arg), void *arg);

int pool_n(const struct pool *p);
struct model *pool_at(struct pool *p, int i);
enum model_state model_state(const struct model *m);
int pool_n_ready(const struct pool *p);

/* Opens one model on the calling thread; *m is zeroed before. Also for tools and the library,
 * outside of any pool. `state` is not touched. */
int model_open(struct model *m, const struct model_spec *spec, struct err *e);
void model_close(struct model *m);
bool model_has_its_files(const struct model *m); /* what is under their names is what was opened */
