/* model.h: one model: how it is configured (struct model_spec), and what is loaded from its files
 * (struct model).
 *
 * Owner: the thread that opens the model. After model_open it is constant until model_close, except
 * for `n_refs`; any thread that has a reference (registry.h) may read it. */
#pragma once

#include "chat/adapter.h"
#include "chat/call_gate.h"
#include "chat/reasoning_gate.h"
#include "constrain/vocab/vocab_tables.h"
#include "format/gguf.h"
#include "output/output_mode.h"
#include "registry/digest.h"
#include "engine/engine.h"
#include "store/capabilities.h"
#include "tokenizer/vocab.h"

enum backend { BACKEND_NATIVE, BACKEND_SCRIPT };

/* Packed weights: no file; a file that is read into memory; a file that is mapped. */
enum pack_mode { PACK_OFF, PACK_RAM, PACK_FILE };

struct model;

/* Detects the capabilities of an open model by test generations, on the calling thread, which takes
 * seconds. *stop == true ends it early with ERR_CANCELLED. Implementation: generate/probe.h. */
typedef int probe_fn(
    struct model_capabilities *out, struct model *m, const _Atomic bool *stop, struct err *e);

struct model_spec { /* strings are borrowed and outlive the registry */
    const char *id, *path;
    enum backend backend;
    /* chat family that provides the template; "" = the template of the model file */
    const char *family;
    const char *template_path; /* "" = the template of the model file */
    /* ids of output/parser.h; NULL or "" = detected */
    const char *tool_parser, *thinking_parser;
    bool no_injection;          /* see adapter_options */
    probe_fn *probe;            /* probes a model without stored capabilities; NULL = never */
    struct capabilities *store; /* stored capabilities; NULL = none. Only model_open uses it. */
    const _Atomic bool *stop;   /* true: a load is cancelled with ERR_CANCELLED. NULL = never. */
    _Atomic int *percent;       /* progress of loading the weights, 0 .. 100; NULL = not needed */
    const char *kernels;        /* "auto", "avx2", ... */
    const char *kv_type;        /* "f16", "bf16", "q8_0" */
    enum pack_mode pack;
    int threads;            /* 0 = one per processor */
    int64_t ctx_size;       /* tokens; 0 = the model's training context */
    int64_t kv_bytes;       /* 0 = automatic */
    int64_t state_cache;    /* bytes of checkpoints of recurrent state; 0 = automatic */
    const char *draft_path; /* draft model for speculative decoding; NULL or "" = none */
    struct engine_options engine;
    bool show_progress; /* progress of loading on stderr, if that is a terminal */
    /* Used by the registry and its pool (model_pool.h). */
    bool on_demand; /* loaded by the first request instead of at start */
    bool is_pinned; /* never evicted */
    int64_t
        idle_ttl_ms; /* unloaded after this time without a request; 0: never; -1: pool's value */
};

/* Default spec: kernels "auto", KV type "f16", default engine options, idle time of the pool; all
 * other fields are 0, NULL or "". */
struct model_spec model_spec_of(const char *id, const char *path);

struct model {
    const struct model_spec *spec;
    struct registry_entry *entry; /* of the registry; NULL: opened without one */
    int n_refs;                   /* requests that use it; guarded by the mutex of the registry */
    struct gguf *file;            /* between model_check and model_load */
    uint64_t planned_bytes;       /* memory that it will need; set by model_check */
    struct vocab *vocab;
    /* For constrained decoding. NULL: the tables cannot be built for the reason in
     * `why_unconstrained`; requests with a constraint are rejected. */
    struct vocab_tables *vocab_tables;
    struct reasoning_gates *reasoning_gates; /* NULL also if the model has no reasoning format */
    struct call_gates *call_gates; /* NULL also if no marker begins the calls of the format */
    struct err why_unconstrained;
    struct chat_template *template;
    struct template_env env;
    struct adapter *adapter;         /* renders conversations and selects the output parser */
    struct model_capabilities known; /* valid if is_probed */
    bool is_probed;
    struct output_mode output_modes
        [N_OUTPUT_MODES]; /* output parsers, indexed by OUTPUT_CALLS | OUTPUT_REASONING */
    struct engine *engine;
    const struct lm *lm; /* the engine's; only its plain numbers are read */
    int32_t *end_ids;    /* tokens that end a choice, ascending */
    int n_end_ids;
    int n_ctx;
    int64_t created;     /* wall clock in seconds when the model became ready */
    uint64_t load;       /* unique number of this model_open in the process */
    uint64_t file_bytes; /* sum over all parts */
    size_t n_parts;
    struct opened_file *files; /* [n_parts]: the opened files */
    uint8_t digest[32];        /* digest of the files; set if the KV offload tier is enabled */
    char arch[32], quant[16], kernels[16];
    char name[64];                   /* general.name */
    int n_experts, n_active_experts; /* per layer, and per token; 0: none */
};

/* Rows of a step of a native model, unless a prefill chunk or the batch is larger: more rows are
 * not faster per row, take more scratch memory and delay all sequences. */
enum { MODEL_STEP_ROWS = 512 };

/* Opens one model on the calling thread; *m must be zeroed, except for `entry`. Also used by tools
 * and the library without a registry. */
int model_open(struct model *m, const struct model_spec *spec, struct err *e);
/* The two parts of model_open: model_check reads the metadata and the vocabulary of the files and
 * finds all errors that are known without the weights; model_load loads the weights and starts the
 * engine. After -1 the model is closed. */
int model_check(struct model *m, const struct model_spec *spec, struct err *e);
int model_load(struct model *m, struct err *e);
void model_close(struct model *m);
/* The paths of the model's files still refer to the files that were opened. */
bool model_has_its_files(const struct model *m);
