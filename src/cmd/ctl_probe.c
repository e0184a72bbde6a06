/* ctl_probe.c: `inferctl probe FILE.gguf`: runs the capability probe on a model in this process and
 * stores the result where inferfluxd reads it. With a model name instead of a file: prints the
 * capabilities that a running server reports. (A server does not probe a model that it serves,
 * since a loaded model does not change.) */
#include "base/mem.h"
#include "cmd/ctl.h"
#include "cmd/paths.h"
#include "generate/probe.h"
#include "registry/model_capabilities.h"

#include <stdio.h>
#include <unistd.h>

struct probe_args {
    const char *path, *id, *store, *template_path, *family, *kernels;
};

enum { OPT_ID, OPT_STORE, OPT_TEMPLATE, OPT_FAMILY, OPT_KERNELS, OPT_JSON, OPT_HELP };

static const char help[] =
    "usage: inferctl probe [options] FILE.gguf | NAME\n\n"
    "Runs test generations to detect the tool-call and reasoning formats of a model, and stores\n"
    "the result for inferfluxd, which reads it at start. With the NAME of a model of a running\n"
    "server: prints the capabilities that the server reports.\n\n"
    "  --id NAME          model name in the server [the file name]\n"
    "  --store PATH       capability store, as inferfluxd --store; none = do not store [auto]\n"
    "  --chat-template FILE   Jinja file that replaces the model's chat template\n"
    "  --family NAME      chat family whose template replaces the model's chat template\n"
    "  --kernels NAME     auto, ref, avx2, avxvnni, avx512, amx [auto]\n"
    "  --json             print the stored record as JSON\n";

/* Returns 0 to continue, else the exit status plus one. */
static int read_args(struct probe_args *p, struct ctl *c, int argc, char **argv)
{
    static const char *const names[] = {
        "id=", "store=", "chat-template=", "family=", "kernels=", "json", "help"
    };
    struct ctl_args a = { .argc = argc, .argv = argv };
    const char **const values[] = { &p->id, &p->store, &p->template_path, &p->family, &p->kernels };

    for (int i; (i = ctl_next(&a, names, ARRAY_LEN(names))) != -1;) {
        if (i == OPT_HELP) {
            ctl_put(str_of(help));
            return EXIT_OK + 1;
        }
        if (i == -3 || (i == -2 && p->path))
            return (i == -3 ? EXIT_USAGE : ctl_usage("probe: one file at a time")) + 1;
        if (i == -2)
            p->path = a.value;
        else if (i == OPT_JSON)
            c->as_json = true;
        else
            *values[i] = a.value;
    }
    return p->path ? 0 : ctl_usage("probe: which file?") + 1;
}

static void put_tristate(struct jw *w, const char *key, enum known k)
{
    jw_key(w, key);
    if (k == UNKNOWN)
        jw_null(w);
    else
        jw_bool(w, k == KNOWN_YES);
}

static void put_count(struct jw *w, const char *key, int64_t n)
{
    jw_key(w, key);
    if (n)
        jw_i64(w, n);
    else
        jw_null(w);
}

static void put_word(struct jw *w, const char *key, const char *word)
{
    jw_key(w, key);
    jw_z(w, *word ? word : NULL);
}

static void put_capabilities(struct jw *w, const struct model_capabilities *r)
{
    jw_object(w);
    put_word(w, "model_id", r->model_id);
    put_word(w, "model_type", r->model_type);
    put_word(w, "model_family", r->model_family);
    put_word(w, "tool_parser_id", r->tool_parser_id);
    put_word(w, "thinking_parser_id", r->thinking_parser_id);
    jw_member_bool(w, "supports_native_tools", r->supports_native_tools);
    jw_member_bool(w, "supports_thinking", r->supports_thinking);
    put_word(w, "tool_format", r->tool_format);
    put_count(w, "practical_max_tokens", r->practical_max_tokens);
    jw_member_bool(w, "supports_multi_image", r->supports_multi_image);
    jw_member_bool(w, "supports_video", r->supports_video);
    put_count(w, "embedding_dimensions", r->embedding_dimensions);
    put_count(w, "max_sequence_length", r->max_sequence_length);
    put_tristate(w, "is_normalized", r->is_normalized);
    jw_member_bool(w, "supports_tts", r->supports_tts);
    jw_member_bool(w, "supports_stt", r->supports_stt);
    put_count(w, "probed_at", r->probed_at);
    put_count(w, "probe_version", r->probe_version);
    jw_end_object(w);
}

static int print_capabilities(const struct ctl *c, const struct model_capabilities *r)
{
    struct buf b;
    struct jw w;

    if (!c->as_json) {
        ctl_printf("model      %s (%s, family %s)\n", r->model_id, r->model_type, r->model_family);
        ctl_printf("tools      %s, parser %s\n", *r->tool_format ? r->tool_format : "none",
            r->tool_parser_id);
        ctl_printf("thinking   %s, parser %s\n", r->supports_thinking ? "yes" : "no",
            r->thinking_parser_id);
        ctl_printf("context    %lld tokens, trained for %lld\n", (long long)r->practical_max_tokens,
            (long long)r->max_sequence_length);
        return EXIT_OK;
    }
    buf_init(&b, MB);
    jw_init(&w, &b);
    put_capabilities(&w, r);
    buf_putc(&b, '\n');
    int rc = buf_ok(&b) ? EXIT_OK : ctl_fail("probe: no memory");
    ctl_put(buf_str(&b));
    buf_clear(&b);
    return rc;
}

static int probe_model(const struct ctl *c, const struct model_spec *spec)
{
    struct model *m = xcalloc(1, sizeof(*m));
    struct err e;
    int status = EXIT_OK;

    if (model_open(m, spec, &e)) {
        mem_free(m);
        return ctl_fail("%s", e.msg);
    }
    if (model_capabilities_probe(m, model_probe_default, &e))
        status = ctl_fail("%s: %s", spec->path, e.msg);
    else
        status = print_capabilities(c, &m->known);
    model_close(m);
    mem_free(m);
    return status;
}

/* ---- capabilities from a server */

static const char *text_member(const struct json *o, const char *key, struct arena *a)
{
    const struct json *v = json_get(o, key);

    return v && v->kind == JSON_STRING ? ctl_cell(v->s, a) : "none";
}

static int print_served(const struct ctl *c, const struct ctl_response *r, struct arena *a)
{
    struct json *root;
    struct err e;

    if (json_parse(&root, buf_str(&r->body), a, NULL, &e))
        return ctl_fail("the server's response: %s", e.msg);
    const struct json *adapter = json_get(root, "adapter");
    if (!adapter)
        return ctl_fail("the server reports no capabilities; is the model loaded?");
    if (c->as_json) {
        ctl_printf(STR_FMT "\n", STR_ARG(adapter->raw));
        return EXIT_OK;
    }
    const struct json *probed = json_get(adapter, "probed");
    ctl_printf("model      %s (family %s)\n", text_member(root, "id", a),
        text_member(adapter, "family", a));
    ctl_printf("tools      %s, parser %s\n", text_member(adapter, "tool_format", a),
        text_member(adapter, "tool_parser", a));
    ctl_printf("thinking   parser %s\n", text_member(adapter, "thinking_parser", a));
    ctl_printf("probed     %s\n", probed && probed->b ? "yes" : "no: run inferctl probe FILE");
    return EXIT_OK;
}

static int query_server(struct ctl *c, const char *name)
{
    struct arena *a = arena_new(MB);
    struct ctl_response r;
    char path[512];

    CHECK(a);
    snprintf(path, sizeof(path), "/v1/models/%s", name);
    ctl_request(c, path, NULL, &r);
    int status = ctl_check(&r);
    if (status == EXIT_OK)
        status = print_served(c, &r, a);
    buf_clear(&r.body);
    arena_free(a);
    return status;
}

int ctl_probe(struct ctl *c, int argc, char **argv)
{
    struct probe_args p = {
        .store = "auto", .template_path = "", .family = "", .kernels = "auto", .id = ""
    };
    struct capabilities *store = NULL;
    char id[256], path[1024];
    struct err e;

    int status = read_args(&p, c, argc, argv);
    if (status)
        return status - 1;
    if (access(p.path, F_OK))
        return str_ends(str_of(p.path), STR(".gguf")) ? ctl_fail("%s: no such file", p.path)
                                                      : query_server(c, p.path);
    struct model_spec spec =
        model_spec_of(*p.id ? p.id : model_id_of_path(p.path, id, sizeof(id)), p.path);
    spec.family = p.family;
    spec.template_path = p.template_path;
    spec.kernels = p.kernels;
    if (*store_path(p.store, path, sizeof(path)) && capabilities_open(&store, path, true, &e))
        return ctl_fail("%s", e.msg);
    spec.store = store;
    status = probe_model(c, &spec);
    if (status == EXIT_OK && store && !c->as_json)
        ctl_printf("stored in  %s\n", path);
    capabilities_close(store);
    return status;
}
