#include "registry/model_capabilities.h"

#include "base/log.h"
#include "base/mem.h"

#include <openssl/sha.h>
#include <stdio.h>

/* ---- adapter and end tokens */

static struct str token_text(const struct vocab *v, int32_t id)
{
    return id == TOKEN_NONE ? STR("") : vocab_text(v, id);
}

static int open_adapter(struct model *m, struct err *e)
{
    m->env.bos_token = token_text(m->vocab, vocab_bos(m->vocab));
    m->env.eos_token = token_text(m->vocab, vocab_eos(m->vocab));
    struct adapter_options o = {
        .arch = str_of(m->arch),
        .family = str_of(m->spec->family),
        .tool = m->spec->tool_parser,
        .reasoning = m->spec->thinking_parser,
        .template = m->template,
        .env = &m->env,
        .vocab = m->vocab,
        .known = m->is_probed ? &m->known : NULL,
        .no_injection = m->spec->no_injection,
    };
    if (adapter_open(&m->adapter, &o, e))
        return -1;
    for (unsigned i = 0; i < N_OUTPUT_MODES; i++)
        if (output_mode_open(&m->output_modes[i], adapter_format(m->adapter), i, m->vocab, e))
            return -1;
    return 0;
}

static int list_end_ids(struct model *m, struct err *e)
{
    int32_t n = vocab_n_tokens(m->vocab);
    int cap = 0;

    for (int pass = 0; pass < 2; pass++) {
        m->n_end_ids = 0;
        for (int32_t id = 0; id < n; id++)
            if (vocab_is_end(m->vocab, id) || adapter_is_end(m->adapter, id)) {
                if (pass)
                    m->end_ids[m->n_end_ids] = id;
                m->n_end_ids++;
            }
        if (!pass) {
            cap = m->n_end_ids;
            m->end_ids = try_calloc((size_t)MAX(cap, 1), sizeof(*m->end_ids));
            if (!m->end_ids)
                return err_set(e, ERR_MEMORY, "no memory for the end tokens");
        }
    }
    return 0;
}

void model_capabilities_clear(struct model *m)
{
    for (unsigned i = 0; i < N_OUTPUT_MODES; i++)
        output_mode_close(&m->output_modes[i]);
    memset(m->output_modes, 0, sizeof(m->output_modes));
    adapter_close(m->adapter);
    mem_free(m->end_ids);
    m->adapter = NULL;
    m->end_ids = NULL;
    m->n_end_ids = 0;
}

static int reopen_adapter(struct model *m, struct err *e)
{
    model_capabilities_clear(m);
    return open_adapter(m, e) || list_end_ids(m, e) ? -1 : 0;
}

/* ---- capabilities */

void model_fingerprint(const struct model *m, char out[65])
{
    struct str source = chat_template_source(m->template);
    char facts[256];
    uint8_t digest[SHA256_DIGEST_LENGTH];
    struct buf b;

    int n = snprintf(facts, sizeof(facts), "%s|%s|%s|%llu|%d|", m->arch, m->name, m->quant,
        (unsigned long long)m->file_bytes, vocab_n_tokens(m->vocab));
    buf_init(&b, 64 * MB);
    buf_put(&b, facts, (size_t)n);
    buf_puts(&b, source);
    CHECK(buf_ok(&b));
    SHA256((const unsigned char *)b.p, b.n, digest);
    buf_clear(&b);
    for (size_t i = 0; i < sizeof(digest); i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static bool is_one_of(const char *id, const char *(*at)(size_t))
{
    for (size_t i = 0; at(i); i++)
        if (!strcmp(at(i), id))
            return true;
    return false;
}

static bool is_row_of_model(const struct model *m)
{
    char fingerprint[sizeof(m->known.fingerprint)];

    model_fingerprint(m, fingerprint);
    return !strcmp(m->known.fingerprint, fingerprint) && m->known.probe_version == PROBE_VERSION &&
           is_one_of(m->known.tool_parser_id, parser_tool_id) &&
           is_one_of(m->known.thinking_parser_id, parser_reasoning_id);
}

static void read_store(struct model *m)
{
    struct err e;

    if (!m->spec->store)
        return;
    int rc = capabilities_get(m->spec->store, m->spec->id, &m->known, &e);
    if (rc < 0)
        log_error("registry", "store_failed", "model=%s error=\"%s\"", m->spec->id, e.msg);
    if (rc <= 0)
        return;
    m->is_probed = is_row_of_model(m);
    if (!m->is_probed)
        log_warn("registry", "capabilities_outdated",
            "model=%s reason=\"stored for another file or probe version\"", m->spec->id);
}

int model_capabilities_load(struct model *m, struct err *e)
{
    read_store(m);
    return reopen_adapter(m, e);
}

int model_capabilities_probe(struct model *m, probe_fn *probe, struct err *e)
{
    struct model_capabilities row;

    m->is_probed = false; /* probed like a model with unknown capabilities */
    if (reopen_adapter(m, e) || probe(&row, m, m->spec->stop, e))
        return -1;
    m->known = row;
    m->is_probed = true;
    if (reopen_adapter(m, e))
        return -1;
    return m->spec->store ? capabilities_put(m->spec->store, &row, e) : 0;
}

int model_capabilities_probe_unknown(struct model *m, struct err *e)
{
    struct err why;

    if (m->is_probed || !m->spec->probe || m->spec->backend != BACKEND_NATIVE)
        return 0;
    log_info("registry", "probe_start", "model=%s", m->spec->id);
    if (model_capabilities_probe(m, m->spec->probe, &why))
        log_error("registry", "probe_failed", "model=%s error=\"%s\"", m->spec->id, why.msg);
    return m->adapter ? 0 : reopen_adapter(m, e);
}

void model_capabilities_log(const struct model *m)
{
    const struct adapter_info *info = adapter_info(m->adapter);

    log_info("registry", "adapter", "model=%s family=%s tool_parser=%s thinking_parser=%s tools=%s",
        m->spec->id, info->family, info->tool_parser, info->thinking_parser,
        !info->can_call_tools ? "none"
        : info->injects_tools ? "injection"
                              : "native");
    if (info->has_unknown_calls)
        log_warn("registry", "tool_format_unknown",
            "model=%s option=tool_parser note=\"the tool call format of the chat template is not "
            "recognised: calls are returned as text unless the option names their parser\"",
            m->spec->id);
    if (!m->is_probed)
        log_info("registry", "unprobed", "model=%s note=\"capabilities may be incomplete\"",
            m->spec->id);
}
