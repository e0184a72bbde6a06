/* model.c: opens a model from its file: vocabulary, template, weights, engine, in this order, so
 * that cheap checks fail before the weights are read. Owner: the thread that calls model_open. */
#include "registry/model.h"

#include "base/log.h"
#include "base/mem.h"
#include "chat/family.h"
#include "format/describe.h"
#include "format/model_file.h"
#include "model/llama.h"
#include "model/script.h"
#include "os/clock.h"
#include "os/mapfile.h"
#include "os/memory.h"
#include "os/thread.h"
#include "registry/digest.h"
#include "registry/model_capabilities.h"
#include "registry/draft.h"
#include "registry/kv_sizes.h"
#include "registry/pack.h"

#include <stdio.h>
#include <unistd.h>

enum { SCRIPT_CTX = 131072, SCRIPT_PAGES = 65536, TEMPLATE_MAX = 1 << 20 };

static _Atomic uint64_t last_load;

struct progress { /* progress of loading, also drawn on a terminal */
    const struct model_spec *spec;
    bool is_terminal;
    uint64_t began_ns, drawn_ns;
};

static void report_progress(void *arg, double share)
{
    struct progress *p = arg;
    uint64_t now = clock_ns();
    bool is_done = share >= 1.0;

    if (p->spec->percent)
        *p->spec->percent = (int)(share * 100);
    if (!p->is_terminal || now - p->began_ns < 1000000000u ||
        (!is_done && now - p->drawn_ns < 100000000u))
        return;
    p->drawn_ns = now;
    fprintf(stderr, "\r%s: loading %3d %%%s", p->spec->id, (int)(share * 100), is_done ? "\n" : "");
}

static int read_template_file(const char *path, struct buf *out, struct err *e)
{
    struct mapfile f;

    if (mapfile_open(&f, path, e))
        return -1;
    buf_init(out, TEMPLATE_MAX);
    buf_put(out, f.p, f.n);
    mapfile_close(&f);
    return buf_ok(out) ? 0
                       : err_set(e, ERR_TOO_LARGE, "%s: larger than %d bytes", path, TEMPLATE_MAX);
}

/* Chat template, in order of precedence: of the configured family, of the model file, of the family
 * whose marker tokens the vocabulary contains. "": there is none. */
static struct str find_template(const struct model *m, const struct gguf *g)
{
    const struct chat_family *family = chat_family_find(str_of(m->spec->family));
    struct str own;

    if (family && family->source)
        return str_of(family->source);
    if (gguf_get_str(g, "tokenizer.chat_template", &own) && own.n)
        return own;
    family = chat_family_of_vocab(m->vocab);
    return family && family->source ? str_of(family->source) : STR("");
}

static int open_template(struct model *m, const struct gguf *g, struct err *e)
{
    const struct model_spec *spec = m->spec;
    struct buf file = { 0 };
    struct str source;

    if (*spec->family && !chat_family_find(str_of(spec->family)))
        return err_set(e, ERR_NOT_FOUND, "no chat family '%s'", spec->family);
    if (*spec->template_path && read_template_file(spec->template_path, &file, e))
        return -1;
    source = *spec->template_path ? buf_str(&file) : find_template(m, g);
    if (!source.n) {
        log_warn("registry", "no_chat_template", "model=%s fallback=chatml", spec->id);
        source = str_of(chat_template_builtin("chatml"));
    }
    int rc = chat_template_compile(&m->template, source, e);
    buf_clear(&file);
    return rc ? err_wrap(e, "chat template") : 0;
}

static void read_properties(struct model *m, const struct gguf *g)
{
    struct str s;
    uint64_t bytes[N_QTYPES] = { 0 };
    enum qtype most = Q_F32;

    if (gguf_get_str(g, "general.architecture", &s))
        snprintf(m->arch, sizeof(m->arch), STR_FMT, STR_ARG(s));
    if (gguf_get_str(g, "general.name", &s))
        snprintf(m->name, sizeof(m->name), STR_FMT, STR_ARG(s));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if ((size_t)t->type < ARRAY_LEN(bytes)) {
            bytes[t->type] += t->bytes;
            most = bytes[t->type] > bytes[most] ? t->type : most;
        }
    }
    const struct qtype_info *info = qtype_info(most);
    snprintf(m->quant, sizeof(m->quant), "%s", info ? info->name : "?");
    m->file_bytes = gguf_file_bytes(g);
    const struct gguf_experts experts = gguf_experts_of(g);
    m->n_experts = (int)MIN(experts.n, (uint32_t)INT32_MAX);
    m->n_active_experts = (int)MIN(experts.n_active, (uint32_t)INT32_MAX);
}

static int list_files(struct model *m, const struct gguf *g, struct err *e)
{
    m->n_parts = gguf_n_parts(g);
    m->files = try_calloc(m->n_parts, sizeof(*m->files));
    if (!m->files)
        return err_set(e, ERR_MEMORY, "no memory for %zu parts", m->n_parts);
    for (size_t i = 0; i < m->n_parts; i++) {
        const char *path = gguf_part_path(g, i);
        m->files[i] = (struct opened_file){ *gguf_part_id(g, i), try_malloc(strlen(path) + 1) };
        if (!m->files[i].path)
            return err_set(e, ERR_MEMORY, "no memory for %zu parts", m->n_parts);
        memcpy(m->files[i].path, path, strlen(path) + 1);
    }
    return 0;
}

bool model_has_its_files(const struct model *m)
{
    for (size_t i = 0; i < m->n_parts; i++)
        if (!file_id_is(&m->files[i].id, m->files[i].path))
            return false;
    return true;
}

struct memory_plan {
    struct llama_needs needs;
    struct kv_sizes kv;
    uint32_t n_states;
};

/* Checkpoints of a model with both windowed and recurrent layers divide --state-cache equally. */
static uint64_t cache_parts(const struct llama_needs *needs)
{
    return needs->window.size && needs->state_bytes ? 2 : 1;
}

static int choose_pages(struct memory_plan *plan, const struct model *m, struct err *e)
{
    const struct model_spec *spec = m->spec;
    const struct kv_budget b = { .needs = &plan->needs,
        .n_ctx = m->n_ctx,
        .is_ctx_fixed = spec->ctx_size > 0,
        .max_batch = spec->engine.max_batch,
        .prefill_chunk = spec->engine.prefill_chunk,
        .kv_bytes = (uint64_t)spec->kv_bytes,
        .cache_bytes = (uint64_t)spec->state_cache / cache_parts(&plan->needs),
        .available = memory_available() };

    return kv_sizes_choose(&plan->kv, &b, e);
}

/* Number of state slots of a model with recurrent layers: two for each sequence that may run, since
 * a long run writes a second one, and those of checkpoints within --state-cache. By default there
 * are CHECKPOINTS_PER_SEQ checkpoints per sequence, within an eighth of the available memory. */
static int choose_states(
    uint32_t *out, const struct model *m, const struct memory_plan *plan, struct err *e)
{
    enum { CHECKPOINTS_PER_SEQ = 8 };
    const struct model_spec *spec = m->spec;
    const size_t state_bytes = plan->needs.state_bytes;
    uint64_t all = memory_available(), n_seqs = (uint64_t)spec->engine.max_batch;
    uint64_t at_hand = all - MIN(all, kv_sizes_bytes(&plan->kv, &plan->needs));

    *out = 0;
    if (!state_bytes)
        return 0;
    uint64_t running = MIN(2 * n_seqs, at_hand / 2 / state_bytes);
    uint64_t cached = spec->state_cache
                          ? (uint64_t)spec->state_cache / cache_parts(&plan->needs) / state_bytes
                          : MIN(CHECKPOINTS_PER_SEQ * n_seqs, at_hand / 8 / state_bytes);
    if (running < 2)
        return err_set(e, ERR_MEMORY,
            "two recurrent states take %llu MB, and half of the available memory is %llu MB",
            (unsigned long long)(2 * state_bytes / MB + 1), (unsigned long long)(at_hand / 2 / MB));
    *out = (uint32_t)MIN(running + cached, (uint64_t)UINT32_MAX / 8 - 1);
    return 0;
}

/* Upper bound of the rows of a step: the configured limit, or one prefill chunk per sequence. */
static int max_step_rows(const struct engine_options *o)
{
    return (int)MIN((int64_t)o->max_batch_tokens, (int64_t)o->max_batch * o->prefill_chunk);
}

/* Row limit for a native model. Above MODEL_STEP_ROWS reading the weights from memory is
 * amortised. */
static int useful_step_rows(const struct engine_options *o)
{
    return MIN(max_step_rows(o), MAX(o->prefill_chunk, MAX(o->max_batch, (int)MODEL_STEP_ROWS)));
}

/* Rows with logits per step: one per running sequence plus draft tokens; and for prompts with
 * logprobs of all tokens up to SCORED_ROWS rows, which amortise reading the weights, within
 * SCORED_BYTES of logits. That memory is not touched until such a request arrives. */
static int max_step_logits(const struct engine_options *o, int n_vocab)
{
    enum { SCORED_ROWS = 128, SCORED_BYTES = 64 * MB };
    int n = MAX(o->max_batch, 1) + 2 * o->spec.max;

    return MAX(n, MIN((int)SCORED_ROWS, (int)(SCORED_BYTES / sizeof(float)) / n_vocab));
}

/* Memory that a native model needs, and the context length m->n_ctx. Reads no weights. */
static int plan_memory(
    struct model *m, const struct gguf *g, struct memory_plan *plan, struct err *e)
{
    struct llama_needs *needs = &plan->needs;
    const struct model_spec *spec = m->spec;
    enum kv_type kv = kv_type_by_name(spec->kv_type);

    CHECK(kv < N_KV_TYPES); /* cmd accepts only the names of kernel/attn.h */
    if (llama_needs(needs, g, kv, e))
        return -1;
    if (needs->n_vocab != vocab_n_tokens(m->vocab))
        return err_set(e, ERR_CORRUPT, "the vocabulary has %d tokens and the embedding %d rows",
            vocab_n_tokens(m->vocab), needs->n_vocab);
    m->n_ctx = spec->ctx_size ? (int)spec->ctx_size : needs->n_ctx_train;
    return choose_pages(plan, m, e) || choose_states(&plan->n_states, m, plan, e) ? -1 : 0;
}

static int open_lm(
    struct model *m, const struct gguf *g, const struct kernels *k, struct lm **lm, struct err *e)
{
    const struct model_spec *spec = m->spec;
    struct progress progress = { spec, spec->show_progress && isatty(STDERR_FILENO), clock_ns(),
        0 };
    char packfile[PACK_PATH_MAX];
    struct memory_plan plan;

    if (spec->backend == BACKEND_SCRIPT) {
        struct script_options so = { .n_vocab = vocab_n_tokens(m->vocab),
            .n_pages = SCRIPT_PAGES,
            .max_rows = max_step_rows(&spec->engine) };
        m->n_ctx = spec->ctx_size ? (int)spec->ctx_size : SCRIPT_CTX;
        so.n_ctx_train = m->n_ctx;
        return lm_open_script(lm, &so, e);
    }
    if (plan_memory(m, g, &plan, e))
        return -1;
    struct llama_options o = {
        .kernels = k,
        .n_threads = spec->threads ? spec->threads : thread_count_online(),
        .n_pages = plan.kv.n_pages,
        .n_window_pages = plan.kv.n_window_pages,
        .n_states = plan.n_states,
        .kv_type = kv_type_by_name(spec->kv_type),
        .n_ctx = m->n_ctx,
        .max_rows = useful_step_rows(&spec->engine),
        .max_logits = max_step_logits(&spec->engine, plan.needs.n_vocab),
        .progress = report_progress,
        .progress_arg = &progress,
        .stop = spec->stop,
        .packfile = pack_path(packfile, spec, m->file_bytes) ? packfile : NULL,
        .packfile_to_memory = spec->pack == PACK_RAM,
    };
    return lm_open_llama(lm, g, &o, e);
}

static bool wants_draft(const struct model_spec *s)
{
    return s->backend == BACKEND_NATIVE && s->draft_path && *s->draft_path &&
           s->engine.spec.max > 0;
}

static int open_engine(struct model *m, const struct gguf *g, struct err *e)
{
    const struct kernels *k;
    struct lm *lm;
    struct engine_options eo = m->spec->engine;

    if (kernels_choose(&k, m->spec->kernels, e))
        return -1;
    if (eo.kv_disk && *eo.kv_disk && m->spec->backend == BACKEND_NATIVE) {
        if (digest_of_model(m->digest, m->files, m->n_parts, eo.kv_disk, e))
            return -1;
        /* otherwise the digest may not belong to the weights that are loaded */
        if (!model_has_its_files(m))
            return err_set(e, ERR_IO, "the model files changed while they were read");
        eo.model_digest = m->digest;
    }
    if (open_lm(m, g, k, &lm, e))
        return -1;
    if (wants_draft(m->spec) && draft_open(&eo.spec.drafter, m, k, e)) {
        lm->ops->close(lm);
        return -1;
    }
    eo.n_ctx = m->n_ctx;
    snprintf(m->kernels, sizeof(m->kernels), "%s", k->name);
    if (engine_open(&m->engine, lm, k, &eo, e)) /* takes lm and drafter */
        return -1;
    m->lm = engine_lm(m->engine);
    m->n_ctx = engine_n_ctx(m->engine);
    return 0;
}

static void free_vocab_tables(struct model *m)
{
    vocab_tables_free(m->vocab_tables);
    reasoning_gates_free(m->reasoning_gates);
    call_gates_free(m->call_gates);
    m->vocab_tables = NULL;
    m->reasoning_gates = NULL;
    m->call_gates = NULL;
}

/* A vocabulary that exceeds a bound of the tables can still be served without constraints. */
static void build_vocab_tables(struct model *m)
{
    struct token_source tokens = token_source_of_vocab(m->vocab);
    const struct parser_format *format = adapter_format(m->adapter);
    struct err *why = &m->why_unconstrained;

    if (vocab_tables_new(&m->vocab_tables, &tokens, why) == 0 &&
        reasoning_gates_new(&m->reasoning_gates, format, m->vocab, why) == 0 &&
        call_gates_new(&m->call_gates, format, m->vocab, why) == 0)
        return;
    free_vocab_tables(m);
    log_warn("registry", "no_constraints", "model=%s error=\"%s\"", m->spec->id, why->msg);
}

/* All bytes that were read came from the files. */
static int check_files(const struct model *m, const struct gguf *g, struct err *e)
{
    if (gguf_is_lost(g) || lm_is_file_lost(m->lm))
        return err_set(e, ERR_CORRUPT, "the file was truncated while it was read");
    return 0;
}

struct model_spec model_spec_of(const char *id, const char *path)
{
    return (struct model_spec){ .id = id,
        .path = path,
        .family = "",
        .template_path = "",
        .kernels = "auto",
        .kv_type = "f16",
        .engine = engine_options_default,
        .idle_ttl_ms = -1 };
}

/* Errors of open_engine that are known without the weights. */
static int check_engine(struct model *m, const struct gguf *g, struct err *e)
{
    const struct kernels *k;
    struct memory_plan plan;

    if (kernels_choose(&k, m->spec->kernels, e))
        return -1;
    if (m->spec->backend == BACKEND_SCRIPT)
        return 0;
    if (plan_memory(m, g, &plan, e))
        return -1;
    m->planned_bytes = m->file_bytes + kv_sizes_bytes(&plan.kv, &plan.needs) +
                       (uint64_t)plan.n_states * plan.needs.state_bytes;
    return wants_draft(m->spec) ? draft_check_file(m, e) : 0;
}

int model_check(struct model *m, const struct model_spec *spec, struct err *e)
{
    CHECK(!m->vocab && !m->engine);
    if (m->spec != spec) /* the registry has set it already, and other threads may read it */
        m->spec = spec;
    if (model_file_open(&m->file, spec->path, e))
        return -1;
    read_properties(m, m->file);
    if (list_files(m, m->file, e) || vocab_open(&m->vocab, m->file, e) ||
        open_template(m, m->file, e) || model_capabilities_load(m, e) ||
        check_engine(m, m->file, e)) {
        err_wrap(e, "%s", spec->path);
        model_close(m);
        return -1;
    }
    return 0;
}

static void close_file(struct model *m)
{
    gguf_close(m->file);
    m->file = NULL;
}

int model_load(struct model *m, struct err *e)
{
    const struct model_spec *spec = m->spec;
    uint64_t began = clock_ns();

    if (open_engine(m, m->file, e) || check_files(m, m->file, e) ||
        model_capabilities_probe_unknown(m, e)) {
        err_wrap(e, "%s", spec->path);
        model_close(m);
        return -1;
    }
    close_file(m);
    build_vocab_tables(m);
    m->created = clock_wall_s();
    m->load = ++last_load;
    log_info("registry", "loaded", "model=%s arch=%s quant=%s ctx=%d kv_pages=%u kernels=%s ms=%d",
        spec->id, m->arch, m->quant, m->n_ctx, m->lm->n_pages, m->kernels,
        (int)((clock_ns() - began) / NS_PER_MS));
    model_capabilities_log(m);
    return 0;
}

int model_open(struct model *m, const struct model_spec *spec, struct err *e)
{
    return model_check(m, spec, e) || model_load(m, e) ? -1 : 0;
}

void model_close(struct model *m)
{
    close_file(m);
    if (m->engine)
        engine_close(m->engine);
    free_vocab_tables(m); /* they refer to the adapter and the vocabulary */
    model_capabilities_clear(m);
    chat_template_free(m->template);
    vocab_close(m->vocab);
    for (size_t i = 0; m->files && i < m->n_parts; i++)
        mem_free(m->files[i].path);
    mem_free(m->files);
    m->files = NULL;
    m->engine = NULL;
    m->lm = NULL;
    m->template = NULL;
    m->vocab = NULL;
}
