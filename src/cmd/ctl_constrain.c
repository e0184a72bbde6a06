/* ctl_constrain.c: `inferctl constrain check|sample|bench`: constraints without a model. */
#include "cmd/ctl_constrain.h"
#include "base/mem.h"
#include "base/rng.h"
#include "format/model_file.h"
#include "os/files.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files and vocabularies */

int constrain_read_file(struct buf *out, const char *path, struct err *e)
{
    struct stat st;
    int fd;

    if (!strcmp(path, "-"))
        return ctl_read_stdin(out, CONSTRAINT_FILE_MAX)
                   ? err_set(e, ERR_TOO_LARGE, "standard input is larger than %d bytes",
                         CONSTRAINT_FILE_MAX)
                   : 0;
    if (file_open_regular(path, O_RDONLY, &fd, e))
        return -1;
    buf_init(out, CONSTRAINT_FILE_MAX);
    bool is_known = !fstat(fd, &st) && st.st_size >= 0;
    if (!is_known || st.st_size > CONSTRAINT_FILE_MAX) {
        close(fd);
        return err_set(e, ERR_TOO_LARGE, "%s is larger than %d bytes", path, CONSTRAINT_FILE_MAX);
    }
    char *to = buf_reserve(out, (size_t)st.st_size);
    int rc = to ? file_read(fd, to, (size_t)st.st_size, 0) : -1;
    close(fd);
    if (rc) {
        buf_clear(out);
        return err_set(e, ERR_IO, "%s cannot be read", path);
    }
    out->n = (size_t)st.st_size;
    return 0;
}

enum { BYTE_END = 256, N_BYTE_TOKENS };

static struct str byte_token(const void *ctx, int32_t id)
{
    static char bytes[256];

    if (id == BYTE_END)
        return STR_NONE;
    bytes[id] = (char)id;
    return (struct str){ bytes + id, 1 };
}

static bool byte_is_end(const void *ctx, int32_t id)
{
    return id == BYTE_END;
}

int constrain_vocab_open(struct constrain_vocab *out, const char *path, struct err *e)
{
    struct token_source src = { NULL, N_BYTE_TOKENS, byte_token, byte_is_end, NULL };
    struct gguf *g;

    *out = (struct constrain_vocab){ 0 };
    if (path) {
        if (model_file_open(&g, path, e))
            return -1;
        int rc = vocab_open(&out->v, g, e);
        gguf_close(g);
        if (rc)
            return -1;
        src = token_source_of_vocab(out->v);
    }
    return vocab_tables_new(&out->tables, &src, e);
}

void constrain_vocab_close(struct constrain_vocab *v)
{
    vocab_tables_free(v->tables);
    vocab_close(v->v);
}

/* ---- arguments */

static const struct kind_name {
    const char *name;
    enum constraint_kind kind;
} kinds[] = {
    { "schema", CONSTRAINT_JSON_SCHEMA },
    { "json", CONSTRAINT_JSON },
    { "gbnf", CONSTRAINT_GBNF },
    { "lark", CONSTRAINT_LARK },
    { "regex", CONSTRAINT_REGEX },
    { "choice", CONSTRAINT_CHOICE },
    { "structural_tag", CONSTRAINT_STRUCTURAL_TAG },
};

static const char *const whitespaces[] = {
    [JSON_WS_DEFAULT] = "default", [JSON_WS_COMPACT] = "compact", [JSON_WS_ANY] = "any"
};

static const char help[] =
    "usage: inferctl constrain check [OPTIONS] SCHEMA INSTANCE...\n"
    "       inferctl constrain sample [OPTIONS] SCHEMA\n"
    "       inferctl constrain bench [OPTIONS] DIRECTORY\n\n"
    "Constraints of the server, without a model.\n\n"
    "  check   reads each file INSTANCE with the constraint in the file SCHEMA: accepted, or the\n"
    "          byte at which the text is rejected and the bytes that may follow there\n"
    "  sample  random texts of the constraint: at each position one of the permitted tokens\n"
    "  bench   MaskBench files {description, meta, schema, tests: [{description, valid, data}]}:\n"
    "          schemas that compile, instances that are accepted, times of compilation and "
    "masks\n\n"
    "  --kind KIND         schema, json, gbnf, lark, regex, choice or structural_tag [schema]\n"
    "  --any-order         properties in any order; for check and bench the default is the order\n"
    "                      of the schema\n"
    "  --whitespace MODE   default, compact or any [default]\n"
    "  --closed-objects    objects without additionalProperties are closed\n"
    "  --vocab MODEL       vocabulary of a model file or directory [one token per byte]\n"
    "  --count N           sample: number of texts [10]\n"
    "  --seed N            sample: seed of the random numbers [0]\n"
    "  --max-tokens N      sample: longest text [4096]\n"
    "  --json              machine-readable output\n\n"
    "A final newline of SCHEMA (regex) and INSTANCE is not part of the text. The exit status is 1\n"
    "if an instance is rejected, a sample does not end, or an invalid instance is accepted.\n";

static int read_kind(struct constrain_args *a, const char *value)
{
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
        if (!strcmp(kinds[k].name, value)) {
            a->source.kind = kinds[k].kind;
            return 0;
        }
    ctl_usage("constrain: --kind %s: not a kind of constraint", value);
    return -1;
}

static int read_whitespace(struct constrain_args *a, const char *value)
{
    for (size_t k = 0; k < ARRAY_LEN(whitespaces); k++)
        if (!strcmp(whitespaces[k], value)) {
            a->source.whitespace = (enum json_whitespace)k;
            return 0;
        }
    ctl_usage("constrain: --whitespace %s: default, compact or any", value);
    return -1;
}

static int read_number(const char *name, const char *value, uint64_t *out)
{
    if (str_to_u64(str_of(value), out))
        return 0;
    ctl_usage("constrain: --%s %s: not a number", name, value);
    return -1;
}

enum option {
    OPT_KIND,
    OPT_ANY_ORDER,
    OPT_WHITESPACE,
    OPT_CLOSED,
    OPT_VOCAB,
    OPT_COUNT,
    OPT_SEED,
    OPT_MAX_TOKENS,
    OPT_JSON,
    OPT_HELP,
    N_OPTIONS
};
static const char *const names[N_OPTIONS] = { "kind=", "any-order", "whitespace=", "closed-objects",
    "vocab=", "count=", "seed=", "max-tokens=", "json", "help" };

/* 0; -1 after a usage error. */
static int read_option(struct constrain_args *a, enum option o, const char *value)
{
    switch (o) {
    case OPT_KIND:
        return read_kind(a, value);
    case OPT_WHITESPACE:
        return read_whitespace(a, value);
    case OPT_COUNT:
        return read_number("count", value, &a->count);
    case OPT_SEED:
        return read_number("seed", value, &a->seed);
    case OPT_MAX_TOKENS:
        return read_number("max-tokens", value, &a->max_tokens);
    case OPT_ANY_ORDER:
        a->source.any_order = true;
        return 0;
    case OPT_CLOSED:
        a->source.closed_objects = true;
        return 0;
    case OPT_VOCAB:
        a->vocab = value;
        return 0;
    case OPT_JSON:
        a->as_json = true;
        return 0;
    case OPT_HELP:
    case N_OPTIONS:
        break;
    }
    return 0;
}

/* ---- constraints */

static struct str without_newline(struct str s)
{
    return s.n && s.p[s.n - 1] == '\n' ? (struct str){ s.p, s.n - 1 } : s;
}

/* Compiles the file. */
static int compile_file(struct constraint **out, const struct constrain_args *a, const char *path,
    const struct vocab_tables *t, struct err *e)
{
    struct constraint_source src = a->source;
    struct buf text;

    if (constrain_read_file(&text, path, e))
        return -1;
    src.text = src.kind == CONSTRAINT_REGEX ? without_newline(buf_str(&text)) : buf_str(&text);
    src.bytes_max = CONSTRAINT_FILE_MAX;
    int rc = constraint_new(out, &src, t, e) ? err_wrap(e, "%s", path) : 0;
    buf_clear(&text);
    return rc;
}

/* A vocabulary and the constraint of the first file. */
struct compiled {
    struct constrain_vocab vocab;
    struct constraint *constraint;
};

static void compiled_close(struct compiled *c)
{
    constraint_unref(c->constraint);
    constrain_vocab_close(&c->vocab);
}

static int compiled_open(struct compiled *out, const struct constrain_args *a, struct err *e)
{
    *out = (struct compiled){ 0 };
    if (!constrain_vocab_open(&out->vocab, a->vocab, e) &&
        !compile_file(&out->constraint, a, a->files[0], out->vocab.tables, e))
        return 0;
    compiled_close(out);
    return -1;
}

/* ---- check */

/* The bytes that may follow, as text for a message: "a-z, end". */
static void describe_next(struct constraint_state *s, struct buf *out)
{
    struct sample_constraint k = constraint_state_ops(s);
    struct token_mask m = { 0 };
    struct err e = { 0 };
    bool is_permitted[N_BYTE_TOKENS] = { false };

    if (k.ops->mask(k.self, UINT64_MAX, &m, &e) != MASK_DONE) {
        buf_printf(out, "%s", e.msg);
        return;
    }
    for (int id = 0; id < N_BYTE_TOKENS; id++)
        is_permitted[id] = m.form == MASK_FORM_BITS && token_set_has(m.bits, id);
    for (int n = 0; n < m.n_ids; n++)
        is_permitted[m.ids[n]] = true;
    for (int from = 0; from < BYTE_END; from++) {
        int to = from;
        while (is_permitted[from] && to + 1 < BYTE_END && is_permitted[to + 1])
            to++;
        if (!is_permitted[from])
            continue;
        for (int b = from;; b = to) {
            buf_printf(out, b > ' ' && b < 0x7F ? "%c" : "\\x%02X", b);
            if (b == to)
                break;
            buf_printf(out, to > from + 1 ? "-" : "");
        }
        buf_printf(out, " ");
        from = to;
    }
    buf_printf(out, is_permitted[BYTE_END] ? "end" : "");
}

struct verdict {
    bool is_accepted;
    size_t at; /* byte of the rejection */
    const char *reason;
    struct buf next;
};

static int check_text(struct verdict *v, struct constraint *c, struct str text, struct err *e)
{
    struct constraint_state *s;

    *v = (struct verdict){ 0 };
    buf_init(&v->next, 64 * KB);
    if (constraint_state_new(&s, c, e))
        return -1;
    v->at = constraint_state_read(s, text);
    v->is_accepted = v->at == text.n && constraint_state_accepts(s);
    v->reason = v->at < text.n ? "this byte is not permitted" : "the text is not complete";
    if (!v->is_accepted)
        describe_next(s, &v->next);
    constraint_state_free(s);
    return 0;
}

static void print_verdict(const struct constrain_args *a, const char *path, struct verdict *v)
{
    struct buf line;
    struct jw w;

    if (!a->as_json) {
        if (v->is_accepted)
            ctl_printf("%s: accepted\n", path);
        else
            ctl_printf("%s: rejected at byte %zu: %s; permitted: %.*s\n", path, v->at, v->reason,
                STR_ARG(buf_str(&v->next)));
        return;
    }
    buf_init(&line, MB);
    jw_init(&w, &line);
    jw_object(&w);
    jw_member_str(&w, "file", str_of(path));
    jw_member_bool(&w, "accepted", v->is_accepted);
    jw_key(&w, "at");
    if (v->is_accepted)
        jw_null(&w);
    else
        jw_u64(&w, v->at);
    jw_key(&w, "reason");
    jw_z(&w, v->is_accepted ? NULL : v->reason);
    jw_member_str(&w, "permitted", buf_str(&v->next));
    jw_end_object(&w);
    ctl_put(buf_str(&line));
    ctl_put(STR("\n"));
    buf_clear(&line);
}

static int check_file(
    const struct constrain_args *a, struct constraint *c, const char *path, bool *accepted)
{
    struct verdict verdict;
    struct buf text;
    struct err e = { 0 };

    if (constrain_read_file(&text, path, &e))
        return ctl_fail("%s", e.msg);
    int rc = check_text(&verdict, c, without_newline(buf_str(&text)), &e);
    buf_clear(&text);
    if (rc)
        return ctl_fail("%s", e.msg);
    print_verdict(a, path, &verdict);
    *accepted = verdict.is_accepted;
    buf_clear(&verdict.next);
    return EXIT_OK;
}

static int run_check(const struct constrain_args *a)
{
    struct compiled c;
    bool all_accepted = true;
    int status = EXIT_OK;
    struct err e = { 0 };

    if (a->n_files < 2)
        return ctl_usage("constrain check: a constraint and at least one instance");
    if (a->vocab)
        return ctl_usage("constrain check reads bytes; --vocab has no meaning");
    if (compiled_open(&c, a, &e))
        return ctl_fail("%s", e.msg);
    for (int n = 1; n < a->n_files && status == EXIT_OK; n++) {
        bool is_accepted;
        status = check_file(a, c.constraint, a->files[n], &is_accepted);
        all_accepted = all_accepted && (status != EXIT_OK || is_accepted);
    }
    compiled_close(&c);
    return status != EXIT_OK ? status : all_accepted ? EXIT_OK : EXIT_FAILED;
}

/* ---- sample */

/* Ids of the mask, at most one per token of the vocabulary. */
static size_t list_mask(const struct token_mask *m, int32_t n_tokens, int32_t *ids)
{
    size_t n = 0;

    if (m->form == MASK_FORM_IDS) {
        memcpy(ids, m->ids, (size_t)m->n_ids * sizeof(*ids));
        return (size_t)m->n_ids;
    }
    for (int32_t id = 0; id < n_tokens; id++)
        if (m->form == MASK_FORM_ALL || token_set_has(m->bits, id))
            ids[n++] = id;
    return n;
}

/* One of the ids; in one of four draws one that closes a string or container, so that walks end. */
static int32_t draw(const struct vocab_tables *t, const int32_t *ids, size_t n, struct rng *r)
{
    const struct token_source *src = &t->source;
    size_t n_closing = 0;
    int32_t closing = 0;

    if (rng_below(r, 4) == 0)
        for (size_t k = 0; k < n; k++) {
            struct str b = src->bytes(src->ctx, ids[k]);
            bool is_closing = src->is_end(src->ctx, ids[k]) || (b.n && strchr("\"]}", b.p[0]));
            if (is_closing && rng_below(r, ++n_closing) == 0)
                closing = ids[k];
        }
    return n_closing ? closing : ids[rng_below(r, n)];
}

enum walk_end { WALK_DONE, WALK_LONG, WALK_DEAD_END, WALK_ERROR };

struct walker {
    const struct vocab_tables *tables;
    struct sample_constraint state;
    uint64_t max_tokens;
    struct rng rng;
    int32_t *ids; /* [n_tokens] scratch */
};

static enum walk_end walk(struct walker *w, struct buf *out, struct err *e)
{
    const struct vocab_tables *t = w->tables;
    const struct token_source *src = &t->source;
    struct sample_constraint k = w->state;

    for (uint64_t n_tokens = 0; n_tokens < w->max_tokens; n_tokens++) {
        struct token_mask m;
        if (k.ops->mask(k.self, UINT64_MAX, &m, e) != MASK_DONE)
            return WALK_ERROR;
        size_t n = list_mask(&m, t->n_tokens, w->ids);
        if (!n)
            return WALK_DEAD_END;
        int32_t id = draw(t, w->ids, n, &w->rng);
        if (src->is_end(src->ctx, id))
            return WALK_DONE;
        struct str bytes = src->bytes(src->ctx, id);
        buf_put(out, bytes.p, bytes.n);
        if (!k.ops->push(k.self, id)) {
            err_set(e, ERR_INTERNAL, "unexpected: a token of the mask is not permitted");
            return WALK_ERROR;
        }
    }
    return WALK_LONG;
}

/* Prints the texts of the walks that end. */
static int sample(const struct constrain_args *a, struct walker *w)
{
    uint64_t n_long = 0, n_dead = 0;
    struct err e = { 0 };

    for (uint64_t n = 0; n < a->count; n++) {
        struct buf text;
        w->rng = (struct rng){ .key = a->seed + n };
        buf_init(&text, CONSTRAINT_FILE_MAX);
        enum walk_end end = walk(w, &text, &e);
        n_long += end == WALK_LONG;
        n_dead += end == WALK_DEAD_END;
        if (end == WALK_DONE) {
            ctl_put(buf_str(&text));
            ctl_put(STR("\n"));
        }
        buf_clear(&text);
        if (end == WALK_ERROR)
            return ctl_fail("%s", e.msg);
        w->state.ops->reset(w->state.self);
    }
    if (n_long || n_dead)
        return ctl_fail("%llu of %llu texts did not end after %llu tokens; %llu dead ends",
            (unsigned long long)n_long, (unsigned long long)a->count,
            (unsigned long long)a->max_tokens, (unsigned long long)n_dead);
    return EXIT_OK;
}

static int run_sample(const struct constrain_args *a)
{
    struct compiled c;
    struct constraint_state *s = NULL;
    struct err e = { 0 };

    if (a->n_files != 1)
        return ctl_usage("constrain sample: one constraint");
    if (compiled_open(&c, a, &e))
        return ctl_fail("%s", e.msg);
    int status = EXIT_FAILED;
    if (constraint_state_new(&s, c.constraint, &e)) {
        ctl_fail("%s", e.msg);
    } else {
        const struct vocab_tables *t = c.vocab.tables;
        struct walker w = { t, constraint_state_ops(s), a->max_tokens, { 0 }, NULL };
        w.ids = xmalloc((size_t)t->n_tokens * sizeof(*w.ids));
        status = sample(a, &w);
        mem_free(w.ids);
    }
    constraint_state_free(s);
    compiled_close(&c);
    return status;
}

/* ---- command */

/* `files` has room for argc arguments. */
static int run_constrain(struct ctl *c, int argc, char **argv, const char **files)
{
    static const struct {
        const char *name;
        int (*run)(const struct constrain_args *a);
    } commands[] = { { "check", run_check }, { "sample", run_sample },
        { "bench", constrain_bench } };
    struct ctl_args args = { .argc = argc, .argv = argv };
    struct constrain_args a = { .source = { .kind = CONSTRAINT_JSON_SCHEMA },
        .files = files,
        .count = 10,
        .max_tokens = 4096,
        .as_json = c->as_json };

    for (int i; (i = ctl_next(&args, names, N_OPTIONS)) != -1;) {
        if (i == OPT_HELP) {
            ctl_printf("%s", help);
            return EXIT_OK;
        }
        if (i == -3 || (i >= 0 && read_option(&a, (enum option)i, args.value)))
            return EXIT_USAGE;
        if (i == -2)
            a.files[a.n_files++] = args.value;
    }
    if (!a.n_files)
        return ctl_usage("constrain: check, sample or bench; see inferctl constrain --help");
    const char *name = a.files[0];
    a.files++;
    a.n_files--;
    for (size_t k = 0; k < ARRAY_LEN(commands); k++)
        if (!strcmp(commands[k].name, name))
            return commands[k].run(&a);
    return ctl_usage("constrain: unknown command '%s'; check, sample or bench", name);
}

int ctl_constrain(struct ctl *c, int argc, char **argv)
{
    const char **files = xcalloc((size_t)argc, sizeof(*files));
    int status = run_constrain(c, argc, argv, files);

    mem_free(files);
    return status;
}
