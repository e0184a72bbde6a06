#include "format/describe.h"
#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>

enum { ARRAY_ALL = 16, ARRAY_FIRST = 4, TEXT_MAX = 72 };

static const char *const served_arches[] = { "llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe",
    "qwen35", "qwen35moe", "qwen3next", "lfm2", "lfm2moe", "mistral3", "smollm3", "phi3", "granite",
    "granitemoe", "granitehybrid", "nemotron_h", "nemotron_h_moe", "olmo2", "gemma2", "gemma3",
    "gemma4", "gpt-oss", "glm4", "glm4moe", "deepseek2", "mistral4" };
static const char *const served_vocabularies[] = { "gpt2", "gemma4", "llama" };

const char *gguf_supported_arch(size_t i)
{
    return i < ARRAY_LEN(served_arches) ? served_arches[i] : NULL;
}

static uint64_t n_elements(const struct gguf_tensor *t)
{
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

uint64_t gguf_n_parameters(const struct gguf *g)
{
    uint64_t n = 0;

    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        n += n_elements(gguf_tensor_at(g, i));
    return n;
}

struct type_total {
    uint64_t n_tensors, parameters, bytes;
};

static void add_totals(const struct gguf *g, struct type_total t[N_QTYPES])
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(g, i);
        CHECK((unsigned)x->type < N_QTYPES);
        t[x->type].n_tensors++;
        t[x->type].parameters += n_elements(x);
        t[x->type].bytes += x->bytes;
    }
}

/* ---- escaped text */

static void append_text(struct buf *out, struct str s, size_t max)
{
    struct str at = s;
    uint32_t cp;

    while (at.n && s.n - at.n < max) {
        int n = utf8_decode(at, &cp);
        if (n <= 0) {
            buf_printf(out, "\\x%02x", (unsigned)(unsigned char)at.p[0]);
            n = 1;
        } else if (cp == '\n') {
            buf_putz(out, "\\n");
        } else if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x2028 || cp == 0x2029) {
            buf_printf(out, "\\u%04x", cp);
        } else {
            buf_put(out, at.p, (size_t)n);
        }
        at = str_skip(at, (size_t)n);
    }
    if (at.n)
        buf_printf(out, "... (%zu bytes)", s.n);
}

/* ---- supported models */

static bool is_one_of(struct str s, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(s, names[i]))
            return true;
    return false;
}

bool gguf_is_supported(const struct gguf *g, struct buf *why)
{
    struct str arch = STR(""), vocabulary = STR("");
    struct type_total t[N_QTYPES] = { 0 };

    (void)gguf_get_str(g, "general.architecture", &arch);
    (void)gguf_get_str(g, "tokenizer.ggml.model", &vocabulary);
    if (!is_one_of(arch, served_arches, ARRAY_LEN(served_arches))) {
        buf_putz(why, arch.n ? "architecture " : "no architecture");
        append_text(why, arch, TEXT_MAX);
        return false;
    }
    if (!is_one_of(vocabulary, served_vocabularies, ARRAY_LEN(served_vocabularies))) {
        buf_putz(why, vocabulary.n ? "vocabulary of kind " : "no vocabulary");
        append_text(why, vocabulary, TEXT_MAX);
        return false;
    }
    add_totals(g, t);
    for (uint32_t i = 0; i < N_QTYPES; i++) {
        if (!t[i].n_tensors || qtype_info(i)->is_supported)
            continue;
        buf_printf(why, "weights of type %s", qtype_info(i)->name);
        return false;
    }
    if (!gguf_n_tensors(g))
        buf_putz(why, "no weights");
    return gguf_n_tensors(g) > 0;
}

/* ---- text output */

static void append_bytes(struct buf *out, uint64_t n)
{
    if (n < 10000)
        buf_printf(out, "%" PRIu64 " B", n);
    else if (n < 1000000)
        buf_printf(out, "%.1f kB", (double)n / 1e3);
    else if (n < 1000000000)
        buf_printf(out, "%.1f MB", (double)n / 1e6);
    else
        buf_printf(out, "%.2f GB", (double)n / 1e9);
}

static void append_count(struct buf *out, uint64_t n)
{
    if (n < 1000000)
        buf_printf(out, "%" PRIu64, n);
    else if (n < 1000000000)
        buf_printf(out, "%.1f M", (double)n / 1e6);
    else
        buf_printf(out, "%.2f B", (double)n / 1e9);
}

static void append_array(struct buf *out, const struct gguf_value *v)
{
    uint64_t shown = v->arr.n <= ARRAY_ALL ? v->arr.n : ARRAY_FIRST, at = 0;
    struct gguf_value item = { .kind = v->arr.kind };
    int64_t n;

    for (uint64_t i = 0; i < shown; i++) {
        buf_putz(out, i ? ", " : "");
        if (gguf_arr_next_str(v, &at, &item.s)) {
            buf_putc(out, '"');
            append_text(out, item.s, TEXT_MAX);
            buf_putc(out, '"');
        } else if (v->arr.kind == GGUF_F32 || v->arr.kind == GGUF_F64) {
            (void)gguf_arr_f64(v, i, &item.f);
            buf_printf(out, "%g", item.f);
        } else if (gguf_arr_i64(v, i, &n)) {
            buf_printf(out, "%" PRId64, n);
        } else {
            buf_putc(out, '?'); /* a u64 beyond 2^63 */
        }
    }
    if (shown < v->arr.n)
        buf_printf(out, ", ... (%" PRIu64 ")", v->arr.n);
}

static void append_value(struct buf *out, const struct gguf_value *v)
{
    switch (v->kind) {
    case GGUF_STR:
        append_text(out, v->s, TEXT_MAX);
        break;
    case GGUF_ARR:
        append_array(out, v);
        break;
    case GGUF_BOOL:
        buf_putz(out, v->u ? "true" : "false");
        break;
    case GGUF_F32:
    case GGUF_F64:
        buf_printf(out, "%g", v->f);
        break;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        buf_printf(out, "%" PRId64, v->i);
        break;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        buf_printf(out, "%" PRIu64, v->u);
        break;
    }
}

static uint64_t weights_bytes(const struct gguf *g)
{
    uint64_t n = 0;

    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        n += gguf_tensor_at(g, i)->bytes;
    return n;
}

/* Number of a key with the prefix `prefix`; 0: the file does not have it. */
static uint64_t number_of(const struct gguf *g, struct str prefix, const char *name)
{
    char key[128];
    uint64_t n = 0;

    snprintf(key, sizeof(key), "%.*s.%s", (int)MIN(prefix.n, (size_t)64), prefix.p, name);
    (void)gguf_get_u64(g, key, &n);
    return n;
}

static struct str arch_of(const struct gguf *g)
{
    struct str arch = STR("");

    (void)gguf_get_str(g, "general.architecture", &arch);
    return arch;
}

/* Training context in tokens; 0: unknown. */
static uint64_t context_of(const struct gguf *g)
{
    return number_of(g, arch_of(g), "context_length");
}

/* Some converters write the keys with the prefix `llm`. */
struct gguf_experts gguf_experts_of(const struct gguf *g)
{
    const struct str prefixes[] = { arch_of(g), STR("llm") };

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        uint64_t n = number_of(g, prefixes[i], "expert_count");
        uint64_t n_active = number_of(g, prefixes[i], "expert_used_count");
        if (n > 0)
            return (struct gguf_experts){ (uint32_t)MIN(n, UINT32_MAX),
                (uint32_t)MIN(n_active, MIN(n, UINT32_MAX)) };
    }
    return (struct gguf_experts){ 0 };
}

static bool has_template(const struct gguf *g)
{
    struct str s;

    return gguf_get_str(g, "tokenizer.chat_template", &s) && s.n;
}

/* Appends the reason if the model cannot be served. */
static bool is_served(const struct gguf *g, const struct gguf_facts *facts, struct buf *why)
{
    if (!gguf_is_supported(g, why))
        return false;
    if (facts->reason)
        buf_putz(why, facts->reason);
    return !facts->reason;
}

static void append_sizes(const struct gguf *g, const struct gguf_facts *facts, struct buf *out)
{
    if (context_of(g))
        buf_printf(out, "context       %" PRIu64 " tokens\n", context_of(g));
    const struct gguf_experts experts = gguf_experts_of(g);
    if (experts.n)
        buf_printf(
            out, "experts       %u, of which a token uses %u\n", experts.n, experts.n_active);
    buf_putz(out, "memory        weights ");
    append_bytes(out, weights_bytes(g));
    if (facts->kv_bytes_per_token) {
        buf_putz(out, ", KV cache ");
        append_bytes(out, facts->kv_bytes_per_token);
        buf_putz(out, " per token (f16)");
    }
    if (facts->window_kv_bytes_per_token) {
        buf_putz(out, ", windowed KV ");
        append_bytes(out, facts->window_kv_bytes_per_token);
        buf_printf(out, " per token of the last %d", facts->window);
    }
    if (facts->state_bytes) {
        buf_putz(out, ", state ");
        append_bytes(out, facts->state_bytes);
        buf_putz(out, " per sequence");
    }
    buf_printf(out, "\ntemplate      %s\n", has_template(g) ? "yes" : "none");
}

static void append_head(const struct gguf *g, const struct gguf_facts *facts, struct buf *out)
{
    struct str arch = STR("?"), name = STR("?");
    struct buf why;

    (void)gguf_get_str(g, "general.architecture", &arch);
    (void)gguf_get_str(g, "general.name", &name);
    buf_putz(out, "name          ");
    append_text(out, name, TEXT_MAX);
    buf_putz(out, "\narchitecture  ");
    append_text(out, arch, TEXT_MAX);
    buf_putz(out, "\nparameters    ");
    append_count(out, gguf_n_parameters(g));
    if (gguf_is_translated(g))
        buf_putz(out, "\ndirectory     safetensors, ");
    else
        buf_printf(out, "\nfile          GGUF v%u, ", gguf_version(g));
    append_bytes(out, gguf_file_bytes(g));
    if (gguf_n_parts(g) > 1)
        buf_printf(out, " in %zu %s", gguf_n_parts(g), gguf_is_translated(g) ? "files" : "parts");
    buf_init(&why, 4 * KB);
    bool ok = is_served(g, facts, &why);
    buf_putz(out, ok ? "\nsupported     yes" : "\nsupported     no: ");
    buf_puts(out, buf_str(&why));
    buf_putz(out, "\n");
    buf_clear(&why);
    append_sizes(g, facts, out);
}

static int name_width(const struct gguf *g, bool of_tensors)
{
    size_t width = 0, n = of_tensors ? gguf_n_tensors(g) : gguf_n_kv(g);

    for (size_t i = 0; i < n; i++)
        width = MAX(width, of_tensors ? gguf_tensor_at(g, i)->name.n : gguf_kv_at(g, i)->key.n);
    return (int)MIN(width, (size_t)64);
}

static void append_padded(struct buf *out, struct str s, int width)
{
    buf_puts(out, s); /* the parser has checked that names are printable UTF-8 */
    for (size_t i = s.n; i < (size_t)width; i++)
        buf_putc(out, ' ');
}

static void append_metadata(const struct gguf *g, struct buf *out)
{
    int width = name_width(g, false);

    buf_printf(out, "\nmetadata (%zu)\n", gguf_n_kv(g));
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        bool is_array = kv->value.kind == GGUF_ARR;
        char kind[16];
        snprintf(kind, sizeof(kind), is_array ? "[%s]" : "%s",
            gguf_kind_name(is_array ? kv->value.arr.kind : kv->value.kind));
        buf_putz(out, "  ");
        append_padded(out, kv->key, width);
        buf_printf(out, "  %-6s ", kind);
        append_value(out, &kv->value);
        buf_putc(out, '\n');
    }
}

static void append_tensors(const struct gguf *g, struct buf *out)
{
    int width = name_width(g, true);

    buf_printf(out, "\ntensors (%zu)\n", gguf_n_tensors(g));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char shape[96];
        int n = 0;
        for (int d = 0; d < t->n_dims; d++)
            n += snprintf(
                shape + n, sizeof(shape) - (size_t)n, "%s%" PRIu64, d ? " x " : "", t->dims[d]);
        buf_putz(out, "  ");
        append_padded(out, t->name, width);
        buf_printf(out, "  %-7s %-20s ", qtype_info((uint32_t)t->type)->name, shape);
        append_bytes(out, t->bytes);
        buf_putc(out, '\n');
    }
}

static void append_types(const struct gguf *g, struct buf *out)
{
    struct type_total t[N_QTYPES] = { 0 };

    add_totals(g, t);
    buf_putz(out, "\ntypes\n");
    for (uint32_t i = 0; i < N_QTYPES; i++) {
        if (!t[i].n_tensors)
            continue;
        buf_printf(out, "  %-7s %4" PRIu64 " tensors, ", qtype_info(i)->name, t[i].n_tensors);
        append_count(out, t[i].parameters);
        buf_putz(out, " parameters, ");
        append_bytes(out, t[i].bytes);
        buf_printf(out, "%s\n", qtype_info(i)->is_supported ? "" : ", not supported");
    }
}

/* ---- JSON output */

static void write_json_item(struct jw *w, const struct gguf_value *arr, uint64_t i, uint64_t *at)
{
    struct str s;
    int64_t n;
    double f;

    if (gguf_arr_next_str(arr, at, &s))
        jw_str(w, s);
    else if (arr->arr.kind == GGUF_BOOL && gguf_arr_i64(arr, i, &n))
        jw_bool(w, n != 0);
    else if (gguf_arr_i64(arr, i, &n))
        jw_i64(w, n);
    else if (gguf_arr_f64(arr, i, &f))
        jw_f64(w, f);
    else
        jw_null(w);
}

static void write_json_array(struct jw *w, const struct gguf_value *v)
{
    bool is_long = v->arr.n > ARRAY_ALL;
    uint64_t at = 0;

    if (is_long) {
        jw_object(w);
        jw_key(w, "kind");
        jw_z(w, gguf_kind_name(v->arr.kind));
        jw_key(w, "n");
        jw_u64(w, v->arr.n);
        jw_key(w, "first");
    }
    jw_array(w);
    for (uint64_t i = 0; i < (is_long ? (uint64_t)ARRAY_FIRST : v->arr.n); i++)
        write_json_item(w, v, i, &at);
    jw_end_array(w);
    if (is_long)
        jw_end_object(w);
}

static void write_json_value(struct jw *w, const struct gguf_value *v)
{
    switch (v->kind) {
    case GGUF_STR:
        jw_str(w, v->s);
        break;
    case GGUF_ARR:
        write_json_array(w, v);
        break;
    case GGUF_BOOL:
        jw_bool(w, v->u != 0);
        break;
    case GGUF_F32:
        jw_f32(w, (float)v->f);
        break;
    case GGUF_F64:
        jw_f64(w, v->f);
        break;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        jw_i64(w, v->i);
        break;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        jw_u64(w, v->u);
        break;
    }
}

/* null: unknown */
static void write_size(struct jw *w, const char *key, uint64_t n)
{
    jw_key(w, key);
    if (n)
        jw_u64(w, n);
    else
        jw_null(w);
}

static void write_json_head(struct jw *w, const struct gguf *g, const struct gguf_facts *facts)
{
    struct str arch = STR_NONE;
    struct buf why;

    buf_init(&why, 4 * KB);
    bool ok = is_served(g, facts, &why);
    jw_key(w, "version");
    jw_u64(w, gguf_is_translated(g) ? 0 : gguf_version(g));
    jw_key(w, "parts");
    jw_u64(w, gguf_n_parts(g));
    jw_key(w, "bytes");
    jw_u64(w, gguf_file_bytes(g));
    jw_key(w, "architecture");
    if (gguf_get_str(g, "general.architecture", &arch))
        jw_str(w, arch);
    else
        jw_null(w);
    jw_key(w, "parameters");
    jw_u64(w, gguf_n_parameters(g));
    jw_key(w, "served");
    jw_bool(w, ok);
    jw_key(w, "reason");
    if (ok)
        jw_null(w);
    else
        jw_str(w, buf_str(&why));
    buf_clear(&why);
    write_size(w, "context", context_of(g));
    write_size(w, "weights_bytes", weights_bytes(g));
    write_size(w, "kv_bytes_per_token", facts->kv_bytes_per_token);
    write_size(w, "window", (uint64_t)facts->window);
    write_size(w, "window_kv_bytes_per_token", facts->window_kv_bytes_per_token);
    write_size(w, "state_bytes", facts->state_bytes);
    const struct gguf_experts experts = gguf_experts_of(g);
    jw_member_bool(w, "is_moe", experts.n > 0);
    jw_member_i64(w, "n_experts", experts.n);
    jw_member_i64(w, "n_active_experts", experts.n_active);
    jw_member_bool(w, "template", has_template(g));
}

static void write_json_tensors(struct jw *w, const struct gguf *g)
{
    jw_key(w, "tensors");
    jw_array(w);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        jw_object(w);
        jw_key(w, "name");
        jw_str(w, t->name);
        jw_key(w, "type");
        jw_z(w, qtype_info((uint32_t)t->type)->name);
        jw_key(w, "shape");
        jw_array(w);
        for (int d = 0; d < t->n_dims; d++)
            jw_u64(w, t->dims[d]);
        jw_end_array(w);
        jw_key(w, "bytes");
        jw_u64(w, t->bytes);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void write_json_types(struct jw *w, const struct gguf *g)
{
    struct type_total t[N_QTYPES] = { 0 };

    add_totals(g, t);
    jw_key(w, "types");
    jw_array(w);
    for (uint32_t i = 0; i < N_QTYPES; i++) {
        if (!t[i].n_tensors)
            continue;
        jw_object(w);
        jw_key(w, "type");
        jw_z(w, qtype_info(i)->name);
        jw_key(w, "tensors");
        jw_u64(w, t[i].n_tensors);
        jw_key(w, "parameters");
        jw_u64(w, t[i].parameters);
        jw_key(w, "bytes");
        jw_u64(w, t[i].bytes);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void describe_json(const struct gguf *g, const struct gguf_facts *facts, struct buf *out)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    write_json_head(&w, g, facts);
    jw_key(&w, "metadata");
    jw_object(&w);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        jw_key_str(&w, gguf_kv_at(g, i)->key);
        write_json_value(&w, &gguf_kv_at(g, i)->value);
    }
    jw_end_object(&w);
    write_json_tensors(&w, g);
    write_json_types(&w, g);
    jw_end_object(&w);
    buf_putc(out, '\n');
}

void gguf_describe(
    const struct gguf *g, const struct gguf_facts *facts, bool as_json, struct buf *out)
{
    if (as_json) {
        describe_json(g, facts, out);
        return;
    }
    append_head(g, facts, out);
    append_metadata(g, out);
    append_tensors(g, out);
    append_types(g, out);
}
