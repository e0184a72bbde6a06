/* options.c: reads options from flags, environment and defaults, by the table. */
#include "base/suggest.h"
#include "cmd/options.h"
#include "cmd/options_table.h"

#include <stdio.h>

#define ENV_PREFIX "INFERFLUX_"
enum { HINT = 160 }; /* "; did you mean NAME?" */

const struct option option_table[] = {
#define AT(field) offsetof(struct options, field)
#define OPT_STR(field, section, key, flag, env, def, help)                                         \
    { STRING, section, key, flag, env, def, NULL, help, 0, 0, 0, AT(field) },
#define OPT_SECRET(field, section, key, flag, env, def, help)                                      \
    { SECRET, section, key, flag, env, def, NULL, help, 0, 0, 0, AT(field) },
#define OPT_CHOICE(field, section, key, flag, env, def, choices, help)                             \
    { CHOICE, section, key, flag, env, def, choices, help, 0, 0, 0, AT(field) },
#define OPT_INT(field, section, key, flag, env, def, lo, hi, help)                                 \
    { INTEGER, section, key, flag, env, #def, NULL, help, def, lo, hi, AT(field) },
#define OPT_BYTES(field, section, key, flag, env, def, lo, hi, help)                               \
    { BYTES, section, key, flag, env, #def, NULL, help, def, lo, hi, AT(field) },
#define OPT_BOOL(field, section, key, flag, env, def, help)                                        \
    { BOOL, section, key, flag, env, #def, NULL, help, def, 0, 1, AT(field) },
#include "cmd/options.def"
};
const size_t n_option_table = ARRAY_LEN(option_table);

static void *field_pointer(struct options *o, const struct option *t)
{
    return (char *)o + t->offset;
}

static bool parse_bytes(struct str s, int64_t *out)
{
    static const char units[] = "KMGT";
    int shift = 0;
    int64_t v;

    const char *unit = s.n && s.p[s.n - 1] ? strchr(units, s.p[s.n - 1]) : NULL;
    if (unit) {
        shift = 10 * (int)(unit - units + 1);
        s.n--;
    }
    if (!str_to_i64(s, &v) || v < 0 || v > INT64_MAX >> shift)
        return false;
    *out = v << shift;
    return true;
}

static bool parse_bool(struct str s, bool *out)
{
    static const char *const yes[] = { "true", "yes", "on", "1" };
    static const char *const no[] = { "false", "no", "off", "0" };

    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (str_is(s, yes[i]) || str_is(s, no[i])) {
            *out = str_is(s, yes[i]);
            return true;
        }
    }
    return false;
}

static bool is_choice(const char *choices, struct str value)
{
    for (struct str rest = str_of(choices);;) {
        ptrdiff_t bar = str_find(rest, STR("|"));
        struct str one = { rest.p, bar < 0 ? rest.n : (size_t)bar };
        if (str_eq(one, value))
            return true;
        if (bar < 0)
            return false;
        rest = str_skip(rest, (size_t)bar + 1);
    }
}

static int set_integer(
    struct options *o, const struct option *t, struct str value, const char *where, struct err *e)
{
    int64_t v;

    if (!(t->kind == BYTES ? parse_bytes(value, &v) : str_to_i64(value, &v)))
        return err_set(e, ERR_INVALID, "%s: '" STR_FMT "' is not a %s", where, STR_ARG(value),
            t->kind == BYTES ? "size (like 4096, 512M or 2G)" : "number");
    if (v < t->lo || v > t->hi)
        return err_set(e, ERR_INVALID, "%s: %lld is not in %lld..%lld", where, (long long)v,
            (long long)t->lo, (long long)t->hi);
    *(int64_t *)field_pointer(o, t) = v;
    return 0;
}

static int set(
    struct options *o, const struct option *t, const char *z, const char *where, struct err *e)
{
    struct str value = str_of(z);
    char hint[HINT];

    switch (t->kind) {
    case INTEGER:
    case BYTES:
        return set_integer(o, t, value, where, e);
    case BOOL:
        if (!parse_bool(value, field_pointer(o, t)))
            return err_set(e, ERR_INVALID, "%s: '%s' is neither true nor false", where, z);
        return 0;
    case CHOICE:
        if (!is_choice(t->choices, value)) {
            struct suggestion s = suggest_for(value);
            suggest_offer_list(&s, t->choices);
            return err_set(e, ERR_INVALID, "%s: '%s' is not one of %s%s", where, z, t->choices,
                suggest_text(&s, "", hint, sizeof(hint)));
        }
        break;
    case STRING:
    case SECRET:
        break;
    }
    struct str copy = arena_str(o->arena, value);
    if (!copy.p)
        return err_set(e, ERR_TOO_LARGE, "%s: the value is too long", where);
    *(const char **)field_pointer(o, t) = copy.p;
    return 0;
}

/* Alternative names of settings. */
static const struct {
    const char *dotted, *env;
    const char *means; /* environment variable of the option */
} aliases[] = {
    { "runtime.fairness.enable_preemption", "INFERFLUX_FAIRNESS_ENABLE_PREEMPTION",
        "INFERFLUX_FAIRNESS_PREEMPT" },
    { "runtime.fairness.high_priority_threshold", "INFERFLUX_FAIRNESS_PRIORITY_THRESHOLD",
        "INFERFLUX_FAIRNESS_HIGH_PRI" },
    { "runtime.fairness.max_timeslice_tokens", "INFERFLUX_FAIRNESS_MAX_TIMESLICE",
        "INFERFLUX_FAIRNESS_TIMESLICE" },
};

static struct str canonical_env(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (str_is(name, aliases[i].env))
            return str_of(aliases[i].means);
    return name;
}

static bool is_named(const struct option *t, const char *dotted)
{
    const char *dot = strrchr(dotted, '.');
    struct str section = { dotted, dot ? (size_t)(dot - dotted) : 0 };

    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (!strcmp(dotted, aliases[i].dotted))
            return !strcmp(t->env, aliases[i].means);
    return dot && str_is(section, t->section) && !strcmp(dot + 1, t->key);
}

/* Offers the keys of the file, and the full path if only the section is wrong. */
static const char *suggest_key(const char *dotted, char *out, size_t size)
{
    struct suggestion s = suggest_for(str_of(dotted));
    const char *dot = strrchr(dotted, '.');
    char paths[ARRAY_LEN(option_table)][SUGGEST_NAME_MAX + 1];

    for (size_t i = 0; i < n_option_table; i++) {
        const struct option *t = &option_table[i];
        snprintf(paths[i], sizeof(paths[i]), "%s.%s", t->section, t->key);
        suggest_offer(&s, str_of(paths[i]));
        if (!s.best.p && !strcmp(dot ? dot + 1 : dotted, t->key))
            s = (struct suggestion){ s.name, str_of(paths[i]), 3 };
    }
    suggest_offer(&s, STR("models"));
    return suggest_text(&s, "", out, size);
}

int options_set(
    struct options *o, const char *dotted, const char *value, const char *where, struct err *e)
{
    for (size_t i = 0; i < n_option_table; i++)
        if (is_named(&option_table[i], dotted))
            return set(o, &option_table[i], value, where, e);
    char hint[HINT];
    return err_set(e, ERR_INVALID, "%s: unknown key '%s'%s", where, dotted,
        suggest_key(dotted, hint, sizeof(hint)));
}

static void set_defaults(struct options *o)
{
    for (size_t i = 0; i < n_option_table; i++) {
        const struct option *t = &option_table[i];
        if (t->kind == BOOL)
            *(bool *)field_pointer(o, t) = t->def_int != 0;
        else if (t->kind == INTEGER || t->kind == BYTES)
            *(int64_t *)field_pointer(o, t) = t->def_int;
        else
            *(const char **)field_pointer(o, t) = t->def;
    }
    o->config_path = "";
}

/* Variables that are no settings of inferfluxd; inferctl reads the last two. */
static const char *const other_variables[] = { "INFERFLUX_CONFIG", "INFERFLUX_URL",
    "INFERFLUX_API_KEY", "INFERFLUX_POLICY_PASSPHRASE", "INFERFLUX_POLICY_PASSPHRASE_FILE" };

/* Kubernetes sets variables like INFERFLUX_SERVICE_HOST, INFERFLUX_PORT_80_TCP_ADDR and
 * INFERFLUX_PORT=tcp://10.0.0.1:80 in each container, if a service is named inferflux or inferflux-
 * and more. */
static bool is_of_kubernetes(struct str name, const char *value)
{
    static const char *const schemes[] = { "tcp://", "udp://", "sctp://" };
    static const char *const parts[] = { "_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP",
        "_SCTP" };

    for (size_t i = 0; i < ARRAY_LEN(schemes) && str_ends(name, STR("PORT")); i++)
        if (!strncmp(value, schemes[i], strlen(schemes[i])))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (str_find(name, str_of(parts[i])) >= 0)
            return i < 2 || str_find(name, STR("PORT_")) >= 0;
    return false;
}

static int unknown_variable(struct str name, struct err *e)
{
    struct suggestion s = suggest_for(str_skip(name, strlen(ENV_PREFIX)));
    char hint[HINT];

    /* the common prefix is not compared, so that it does not permit a greater distance */
    for (size_t i = 0; i < n_option_table; i++)
        suggest_offer(&s, str_of(option_table[i].env + strlen(ENV_PREFIX)));
    for (size_t i = 0; i < ARRAY_LEN(other_variables); i++)
        suggest_offer(&s, str_of(other_variables[i] + strlen(ENV_PREFIX)));
    return err_set(e, ERR_INVALID, "unknown environment variable %.*s%s",
        (int)MIN(name.n, (size_t)80), name.p, suggest_text(&s, ENV_PREFIX, hint, sizeof(hint)));
}

static bool is_other_variable(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(other_variables); i++)
        if (str_is(name, other_variables[i]))
            return true;
    return false;
}

static int read_variable(struct options *o, struct str name, const char *value, struct err *e)
{
    name = canonical_env(name);
    if (!str_starts(name, STR(ENV_PREFIX)) || is_of_kubernetes(name, value))
        return 0;
    for (size_t i = 0; i < n_option_table; i++) {
        const struct option *t = &option_table[i];
        if (str_is(name, t->env)) /* empty = not set */
            return *value ? set(o, t, value, t->env, e) : 0;
    }
    return is_other_variable(name) ? 0 : unknown_variable(name, e);
}

static int read_environment(struct options *o, char **env, struct err *e)
{
    for (; *env; env++) {
        const char *eq = strchr(*env, '=');
        if (eq && read_variable(o, (struct str){ *env, (size_t)(eq - *env) }, eq + 1, e))
            return -1;
    }
    return 0;
}

struct flag_arg { /* one command-line flag, split */
    struct str name;
    const char *value; /* text after '=', or NULL */
};

static bool split_flag(const char *arg, struct flag_arg *f)
{
    static const struct {
        const char *is, *means;
    } shorts[] = { { "-m", "model" }, { "-c", "ctx-size" }, { "-t", "threads" }, { "-h", "help" },
        { "-np", "parallel" }, { "-b", "batch-size" }, { "-n", "predict" },
        { "-md", "model-draft" } };

    for (size_t i = 0; i < ARRAY_LEN(shorts); i++)
        if (!strcmp(arg, shorts[i].is)) {
            *f = (struct flag_arg){ str_of(shorts[i].means), NULL };
            return true;
        }
    if (strncmp(arg, "--", 2) || !arg[2])
        return false;
    const char *eq = strchr(arg, '=');
    f->name = (struct str){ arg + 2, eq ? (size_t)(eq - arg - 2) : strlen(arg) - 2 };
    f->value = eq ? eq + 1 : NULL;
    return true;
}

/* Reads flags that are no settings. Returns 1 if it was one. */
static int read_special_flag(struct options *o, const struct flag_arg *f)
{
    static const struct {
        const char *name;
        size_t offset;
    } special_flags[] = { { "help", AT(want_help) }, { "version", AT(want_version) } };

    if (str_is(f->name, "print-docs")) {
        o->docs = f->value ? f->value : "";
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(special_flags); i++)
        if (str_is(f->name, special_flags[i].name)) {
            *(bool *)((char *)o + special_flags[i].offset) = true;
            return 1;
        }
    return 0;
}

static const struct option *find_flag(struct str name)
{
    for (size_t i = 0; i < n_option_table; i++)
        if (str_is(name, option_table[i].flag))
            return &option_table[i];
    return NULL;
}

static int unknown_flag(struct str name, struct err *e)
{
    struct suggestion s = suggest_for(name);
    char hint[HINT];

    for (size_t i = 0; i < n_option_table; i++)
        suggest_offer(&s, str_of(option_table[i].flag));
    suggest_offer_list(&s, "config|help|version|print-docs");
    return err_set(e, ERR_INVALID, "unknown flag --" STR_FMT "%s", STR_ARG(name),
        s.best.p ? suggest_text(&s, "--", hint, sizeof(hint)) : "; see --help");
}

/* With `apply` false, only reads --config and the flags of read_special_flag, since the file is
 * read before the flags are applied. */
static int read_flags(struct options *o, int argc, char **argv, bool apply, struct err *e)
{
    for (int i = 1; i < argc; i++) {
        struct flag_arg f;
        char where[80];

        if (!split_flag(argv[i], &f))
            return err_set(e, ERR_INVALID, "'%s' is not a flag; see --help", argv[i]);
        if (read_special_flag(o, &f))
            continue;
        const struct option *t = find_flag(f.name);
        bool is_config = str_is(f.name, "config");
        if (!t && !is_config)
            return unknown_flag(f.name, e);
        if (!f.value && t && t->kind == BOOL)
            f.value = "true";
        if (!f.value && ++i >= argc)
            return err_set(e, ERR_INVALID, "--" STR_FMT " needs a value", STR_ARG(f.name));
        const char *value = f.value ? f.value : argv[i];
        if (is_config)
            o->config_path = value;
        snprintf(where, sizeof(where), "--" STR_FMT, STR_ARG(f.name));
        if (apply && t && set(o, t, value, where, e))
            return -1;
    }
    return 0;
}

void options_hide_secrets(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct flag_arg f;
        if (!split_flag(argv[i], &f))
            continue;
        const struct option *t = find_flag(f.name);
        if (!t || t->kind == BOOL)
            continue;
        char *value = f.value ? argv[i] + (f.value - argv[i]) : argv[++i];
        if (t->kind != SECRET || i >= argc || !*value)
            continue;
        memset(value, 0, strlen(value));
        *value = '*';
    }
}

int options_read(struct options *o, int argc, char **argv, char **env, struct err *e)
{
    *o = (struct options){ .arena = arena_new(4 * MB) };
    if (!o->arena)
        return err_set(e, ERR_MEMORY, "no memory for the options");
    set_defaults(o);
    if (read_flags(o, argc, argv, false, e))
        return -1;
    if (!*o->config_path)
        for (char **v = env; *v; v++)
            if (!strncmp(*v, "INFERFLUX_CONFIG=", 17))
                o->config_path = *v + 17;
    if (*o->config_path && config_read(o, o->config_path, e))
        return -1;
    if (read_environment(o, env, e))
        return -1;
    return read_flags(o, argc, argv, true, e);
}

void options_clear(struct options *o)
{
    arena_free(o->arena);
    *o = (struct options){ 0 };
}
