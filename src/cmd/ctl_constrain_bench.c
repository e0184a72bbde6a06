/* ctl_constrain_bench.c: `inferctl constrain bench DIRECTORY`: MaskBench files
 * {description, meta, schema, tests: [{description, valid, data}]}. An instance is read as compact
 * JSON. The time of a mask includes the push of the token before it; with the vocabulary of bytes,
 * tokens are bytes. */
#include "base/mem.h"
#include "cmd/ctl_constrain.h"
#include "os/clock.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MAX = 64 };

struct samples { /* microseconds */
    double *us;
    size_t n, cap;
};

struct set {
    char name[64];
    uint64_t n_files, n_compiled, n_passed, n_valid, n_valid_refused, n_invalid, n_invalid_accepted;
    struct samples compile, mask;
};

struct bench {
    const struct constrain_args *args;
    struct constrain_vocab vocab;
    struct set sets[SETS_MAX];
    size_t n_sets;
    struct buf failures; /* lines "file: reason" */
};

/* ---- samples */

static void add_sample(struct samples *s, double us)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 256;
        s->us = xrealloc(s->us, s->cap * sizeof(*s->us));
    }
    s->us[s->n++] = us;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `s` is sorted. */
static double percentile(const struct samples *s, double p)
{
    return s->n ? s->us[(size_t)(p * (double)(s->n - 1))] : 0;
}

static double average(const struct samples *s)
{
    double sum = 0;

    for (size_t k = 0; k < s->n; k++)
        sum += s->us[k];
    return s->n ? sum / (double)s->n : 0;
}

/* ---- sets */

/* The name up to `---`; of BFCL_* and JME_* up to the first `_`. */
static size_t set_length(const char *name)
{
    const char *end = strstr(name, "---");

    if (!strncmp(name, "BFCL_", 5) || !strncmp(name, "JME_", 4))
        end = strchr(name, '_');
    return end ? (size_t)(end - name) : strlen(name);
}

/* NULL: there are too many sets. */
static struct set *set_of(struct bench *b, const char *file)
{
    size_t n = MIN(set_length(file), sizeof(b->sets[0].name) - 1);

    for (size_t k = 0; k < b->n_sets; k++)
        if (strlen(b->sets[k].name) == n && !memcmp(b->sets[k].name, file, n))
            return &b->sets[k];
    if (b->n_sets == SETS_MAX)
        return NULL;
    struct set *s = &b->sets[b->n_sets++];
    memcpy(s->name, file, n);
    return s;
}

/* ---- one file */

/* Measures the masks along the text, up to a token that is not permitted. */
static int measure_masks(
    struct bench *b, struct set *set, struct constraint *c, struct str text, struct err *e)
{
    struct arena *arena = arena_new(GB);
    struct tokens t = { .arena = arena };
    struct span span = { text, false };
    struct constraint_state *s;
    struct token_mask m;

    if (!arena)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of an instance");
    int rc = b->vocab.v && text.n ? vocab_encode(b->vocab.v, &span, 1, false, &t, e) : 0;
    for (size_t k = 0; !rc && !b->vocab.v && k < text.n; k++)
        rc = tokens_push(&t, (uint8_t)text.p[k], e);
    rc = rc || constraint_state_new(&s, c, e);
    if (rc) {
        arena_free(arena);
        return -1;
    }
    struct sample_constraint k = constraint_state_ops(s);
    for (size_t i = 0; !rc && i <= t.n; i++) {
        uint64_t start = clock_ns();
        if (i && !k.ops->push(k.self, t.ids[i - 1]))
            break;
        rc = k.ops->mask(k.self, UINT64_MAX, &m, e) != MASK_DONE;
        add_sample(&set->mask, (double)(clock_ns() - start) / 1e3);
    }
    constraint_state_free(s);
    arena_free(arena);
    return rc ? -1 : 0;
}

static int is_accepted(struct constraint *c, struct str text, bool *out, struct err *e)
{
    struct constraint_state *s;

    if (constraint_state_new(&s, c, e))
        return -1;
    *out = constraint_state_read(s, text) == text.n && constraint_state_accepts(s);
    constraint_state_free(s);
    return 0;
}

/* True if the result is that of the file. */
static bool run_test(struct bench *b, struct set *set, const char *file, struct constraint *c,
    const struct json *test)
{
    const struct json *valid = json_get(test, "valid"), *data = json_get(test, "data");
    bool is_valid = valid && valid->kind == JSON_BOOL && valid->b, accepted = false;
    struct err e = { 0 };
    struct buf text;
    struct jw w;

    if (!data)
        return true;
    buf_init(&text, CONSTRAINT_FILE_MAX);
    jw_init(&w, &text);
    jw_json(&w, data);
    int rc = is_accepted(c, buf_str(&text), &accepted, &e) ||
             (is_valid && measure_masks(b, set, c, buf_str(&text), &e));
    set->n_valid += is_valid;
    set->n_invalid += !is_valid;
    set->n_valid_refused += is_valid && !accepted;
    set->n_invalid_accepted += !is_valid && accepted;
    if (rc)
        buf_printf(&b->failures, "%s: %s\n", file, e.msg);
    else if (accepted != is_valid)
        buf_printf(&b->failures, "%s: a%s instance is %s: %.*s\n", file,
            is_valid ? " valid" : "n invalid", accepted ? "accepted" : "refused",
            (int)MIN(text.n, 200u), text.n ? text.p : "");
    buf_clear(&text);
    return !rc && accepted == is_valid;
}

static void run_schema(struct bench *b, struct set *set, const char *file, const struct json *all)
{
    const struct json *schema = json_get(all, "schema"), *tests = json_get(all, "tests");
    struct constraint_source src = b->args->source;
    struct constraint *c = NULL;
    struct err e = { 0 };
    bool has_passed = true;

    set->n_files++;
    if (!schema)
        return;
    src.text = schema->raw;
    src.bytes_max = 1 * MB;
    uint64_t start = clock_ns();
    int rc = constraint_new(&c, &src, b->vocab.tables, &e);
    add_sample(&set->compile, (double)(clock_ns() - start) / 1e3);
    if (rc) {
        buf_printf(&b->failures, "%s: %s\n", file, e.msg);
        return;
    }
    set->n_compiled++;
    for (const struct json *t = tests ? tests->child : NULL; t; t = t->next)
        has_passed = run_test(b, set, file, c, t) && has_passed;
    set->n_passed += has_passed;
    constraint_unref(c);
}

static int run_file(struct bench *b, const char *dir, const char *name, struct err *e)
{
    struct set *set = set_of(b, name);
    struct buf path, text;
    struct json *all;

    if (!set)
        return err_set(e, ERR_TOO_LARGE, "%s has more than %d sets", dir, SETS_MAX);
    buf_init(&path, 8 * KB);
    buf_printf(&path, "%s/%s", dir, name);
    buf_putc(&path, '\0');
    int rc = constrain_read_file(&text, path.p, e);
    buf_clear(&path);
    if (rc)
        return -1;
    struct arena *arena = arena_new(GB);
    if (!arena)
        rc = err_set(e, ERR_MEMORY, "no memory for %s", name);
    else if (json_parse(&all, buf_str(&text), arena, &json_limits_default, e))
        rc = err_wrap(e, "%s", name);
    else
        run_schema(b, set, name, all);
    arena_free(arena);
    buf_clear(&text);
    return rc;
}

/* ---- report */

static void sort_samples(struct samples *s)
{
    if (s->n)
        qsort(s->us, s->n, sizeof(*s->us), compare_doubles);
}

static void put_times(struct jw *w, const char *key, const struct samples *s)
{
    static const struct {
        const char *name;
        double share;
    } rows[] = { { "p50", 0.5 }, { "p99", 0.99 }, { "p99_9", 0.999 }, { "max", 1 } };

    jw_key(w, key);
    jw_object(w);
    jw_member_u64(w, "n", s->n);
    jw_member_f32(w, "avg", (float)average(s));
    for (size_t k = 0; k < ARRAY_LEN(rows); k++)
        jw_member_f32(w, rows[k].name, (float)percentile(s, rows[k].share));
    jw_end_object(w);
}

static void print_set(const struct set *s, bool as_json)
{
    struct buf out;
    struct jw w;

    if (!as_json) {
        ctl_printf(
            "%-24s %5llu %5llu %5llu %7llu %8llu %8.0f %8.0f %9.0f %7.1f %7.1f %8.1f %9.1f\n",
            s->name, (unsigned long long)s->n_files, (unsigned long long)s->n_compiled,
            (unsigned long long)s->n_passed, (unsigned long long)s->n_valid_refused,
            (unsigned long long)s->n_invalid_accepted, percentile(&s->compile, 0.5),
            percentile(&s->compile, 0.99), percentile(&s->compile, 1), percentile(&s->mask, 0.5),
            average(&s->mask), percentile(&s->mask, 0.99), percentile(&s->mask, 1));
        return;
    }
    buf_init(&out, MB);
    jw_init(&w, &out);
    jw_object(&w);
    jw_member_str(&w, "set", str_of(s->name));
    jw_member_u64(&w, "files", s->n_files);
    jw_member_u64(&w, "compiled", s->n_compiled);
    jw_member_u64(&w, "passed", s->n_passed);
    jw_member_u64(&w, "valid", s->n_valid);
    jw_member_u64(&w, "valid_refused", s->n_valid_refused);
    jw_member_u64(&w, "invalid", s->n_invalid);
    jw_member_u64(&w, "invalid_accepted", s->n_invalid_accepted);
    put_times(&w, "compile_us", &s->compile);
    put_times(&w, "mask_us", &s->mask);
    jw_end_object(&w);
    ctl_put(buf_str(&out));
    ctl_put(STR("\n"));
    buf_clear(&out);
}

static void add_to(struct set *all, const struct set *s)
{
    all->n_files += s->n_files;
    all->n_compiled += s->n_compiled;
    all->n_passed += s->n_passed;
    all->n_valid += s->n_valid;
    all->n_valid_refused += s->n_valid_refused;
    all->n_invalid += s->n_invalid;
    all->n_invalid_accepted += s->n_invalid_accepted;
    for (size_t k = 0; k < s->compile.n; k++)
        add_sample(&all->compile, s->compile.us[k]);
    for (size_t k = 0; k < s->mask.n; k++)
        add_sample(&all->mask, s->mask.us[k]);
}

static int report(struct bench *b)
{
    struct set all = { .name = "all" };

    if (!b->args->as_json)
        ctl_printf("%-24s %5s %5s %5s %7s %8s %26s %34s\n%-24s %5s %5s %5s %7s %8s %8s %8s %9s %7s "
                   "%7s %8s %9s\n",
            "", "", "com-", "", "valid", "invalid", "compile, us", "mask, us", "set", "files",
            "piled", "passed", "refused", "accepted", "p50", "p99", "max", "p50", "avg", "p99",
            "max");
    for (size_t k = 0; k < b->n_sets; k++) {
        sort_samples(&b->sets[k].compile);
        sort_samples(&b->sets[k].mask);
        print_set(&b->sets[k], b->args->as_json);
        add_to(&all, &b->sets[k]);
    }
    sort_samples(&all.compile);
    sort_samples(&all.mask);
    print_set(&all, b->args->as_json);
    mem_free(all.compile.us);
    mem_free(all.mask.us);
    if (b->failures.n)
        ctl_warn("%.*s", STR_ARG(buf_str(&b->failures)));
    return all.n_invalid_accepted ? EXIT_FAILED : EXIT_OK;
}

struct names {
    char (*name)[256];
    size_t n, cap;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names of the files *.json, sorted. */
static int list_files(struct names *out, const char *dir, struct err *e)
{
    DIR *d = opendir(dir);

    *out = (struct names){ 0 };
    if (!d)
        return err_set(e, ERR_IO, "%s: %s", dir, strerror(errno));
    for (struct dirent *f; (f = readdir(d));) {
        if (!str_ends(str_of(f->d_name), STR(".json")))
            continue;
        if (out->n == out->cap) {
            out->cap = out->cap ? out->cap * 2 : 256;
            out->name = xrealloc(out->name, out->cap * sizeof(*out->name));
        }
        memcpy(out->name[out->n++], f->d_name, strlen(f->d_name) + 1);
    }
    closedir(d);
    if (!out->n)
        return err_set(e, ERR_NOT_FOUND, "%s: no files *.json", dir);
    qsort(out->name, out->n, sizeof(*out->name), compare_names);
    return 0;
}

static void bench_close(struct bench *b)
{
    for (size_t k = 0; k < b->n_sets; k++) {
        mem_free(b->sets[k].compile.us);
        mem_free(b->sets[k].mask.us);
    }
    buf_clear(&b->failures);
    constrain_vocab_close(&b->vocab);
}

int constrain_bench(const struct constrain_args *a)
{
    static struct bench b;
    struct names files;
    struct err e = { 0 };

    if (a->n_files != 1)
        return ctl_usage("constrain bench: one directory");
    b.args = a;
    buf_init(&b.failures, 64 * MB);
    int rc = list_files(&files, a->files[0], &e) || constrain_vocab_open(&b.vocab, a->vocab, &e);
    for (size_t k = 0; !rc && k < files.n; k++)
        rc = run_file(&b, a->files[0], files.name[k], &e);
    int status = rc ? ctl_fail("%s", e.msg) : report(&b);
    mem_free(files.name);
    bench_close(&b);
    return status;
}
