/* config.c: reads the configuration file. libyaml's events are mapped to the option table: the path
 * of a mapping's keys is the option's name; `models` is a separate list. Main thread. */
#include "base/suggest.h"
#include "cmd/options.h"
#include "os/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

enum { MAX_DEPTH = 32, MAX_PATH = 256 };
static const long long MAX_FILE_BYTES = 1 << 20;

struct config_reader {
    struct options *o;
    const char *path; /* path of the file */
    yaml_parser_t yaml;
    char key[MAX_PATH]; /* dotted path of the current mapping */
};

static int fail_at(
    const struct config_reader *r, const yaml_mark_t *at, struct err *e, const char *what)
{
    return err_set(e, ERR_INVALID, "%s:%zu: %s", r->path, at->line + 1, what);
}

static int next_event(struct config_reader *r, yaml_event_t *ev, struct err *e)
{
    if (!yaml_parser_parse(&r->yaml, ev))
        return err_set(e, ERR_SYNTAX, "%s:%zu: %s", r->path, r->yaml.problem_mark.line + 1,
            r->yaml.problem ? r->yaml.problem : "not YAML");
    if (ev->type == YAML_ALIAS_EVENT || (ev->type == YAML_SCALAR_EVENT && ev->data.scalar.anchor)) {
        int rc = fail_at(r, &ev->start_mark, e, "anchors and aliases are not supported");
        yaml_event_delete(ev);
        return rc;
    }
    return 0;
}

static const char *scalar_text(const yaml_event_t *ev)
{
    return (const char *)ev->data.scalar.value;
}

static int copy_scalar(
    struct config_reader *r, const yaml_event_t *ev, const char **out, struct err *e)
{
    struct str copy = arena_str(r->o->arena, str_of(scalar_text(ev)));

    if (!copy.p)
        return fail_at(r, &ev->start_mark, e, "too long");
    *out = copy.p;
    return 0;
}

static int read_number(
    struct config_reader *r, const yaml_event_t *ev, int64_t *out, const char *name, struct err *e)
{
    if (str_to_i64(str_of(scalar_text(ev)), out) && *out >= 0)
        return 0;
    return err_set(e, ERR_INVALID, "%s:%zu: %s: '%s' is not a number", r->path,
        ev->start_mark.line + 1, name, scalar_text(ev));
}

static int model_field(struct config_reader *r, struct model_entry *m, const char *key,
    const yaml_event_t *value, struct err *e)
{
    const struct {
        const char *name;
        const char **string;
        int64_t *number;
    } fields[] = {
        { "id", &m->id, NULL },
        { "path", &m->path, NULL },
        { "backend", &m->backend, NULL },
        { "family", &m->family, NULL },
        { "template_path", &m->template_path, NULL },
        { "tool_parser", &m->tool_parser, NULL },
        { "thinking_parser", &m->thinking_parser, NULL },
        { "draft", &m->draft, NULL },
        { "ctx_size", NULL, &m->ctx_size },
        { "parallel", NULL, &m->parallel },
        { "kv_bytes", NULL, &m->kv_bytes },
        { "state_cache", NULL, &m->state_cache },
        { "load", &m->load, NULL },
        { "pin", &m->pin, NULL },
        { "idle_ttl_s", NULL, &m->idle_ttl_s },
    };

    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (!strcmp(key, fields[i].name))
            return fields[i].string ? copy_scalar(r, value, fields[i].string, e)
                                    : read_number(r, value, fields[i].number, key, e);
    struct suggestion s = suggest_for(str_of(key));
    char hint[SUGGEST_NAME_MAX + 32];
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        suggest_offer(&s, str_of(fields[i].name));
    return err_set(e, ERR_INVALID, "%s:%zu: unknown key 'models[].%s'%s", r->path,
        value->start_mark.line + 1, key, suggest_text(&s, "", hint, sizeof(hint)));
}

static int check_model(const struct config_reader *r, const struct model_entry *m, struct err *e)
{
    bool is_script = !strcmp(m->backend, "script");
    struct suggestion s = suggest_for(str_of(m->backend));
    char hint[SUGGEST_NAME_MAX + 32];

    suggest_offer_list(&s, "native|script");

    if (!*m->id)
        return err_set(e, ERR_INVALID, "%s:%d: a model needs an `id`", r->path, m->line);
    if (!*m->path)
        return err_set(e, ERR_INVALID, "%s:%d: model '%s' needs a `path`", r->path, m->line, m->id);
    if (!is_script && strcmp(m->backend, "native"))
        return err_set(e, ERR_INVALID,
            "%s:%d: model '%s': backend '%s' is not one of native|script%s", r->path, m->line,
            m->id, m->backend, suggest_text(&s, "", hint, sizeof(hint)));
    if (strcmp(m->load, "start") && strcmp(m->load, "demand"))
        return err_set(e, ERR_INVALID, "%s:%d: model '%s': load '%s' is not one of start|demand",
            r->path, m->line, m->id, m->load);
    if (strcmp(m->pin, "true") && strcmp(m->pin, "false"))
        return err_set(e, ERR_INVALID, "%s:%d: model '%s': pin '%s' is not one of true|false",
            r->path, m->line, m->id, m->pin);
    for (int i = 0; i < r->o->n_models; i++)
        if (!strcmp(r->o->models[i].id, m->id))
            return err_set(e, ERR_INVALID, "%s:%d: model id '%s' is already used in line %d",
                r->path, m->line, m->id, r->o->models[i].line);
    return 0;
}

/* Reads one element of `models`; its start event has been consumed. */
static int read_model(struct config_reader *r, int line, struct err *e)
{
    struct model_entry m = { .id = "",
        .path = "",
        .backend = "native",
        .family = "",
        .template_path = "",
        .tool_parser = "",
        .thinking_parser = "",
        .draft = "",
        .load = "start",
        .pin = "false",
        .idle_ttl_s = -1,
        .line = line };
    yaml_event_t key, value;

    for (;;) {
        if (next_event(r, &key, e))
            return -1;
        if (key.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&key);
            break;
        }
        if (next_event(r, &value, e)) {
            yaml_event_delete(&key);
            return -1;
        }
        int rc = key.type != YAML_SCALAR_EVENT || value.type != YAML_SCALAR_EVENT
                     ? fail_at(r, &key.start_mark, e, "a model's fields are plain values")
                     : model_field(r, &m, scalar_text(&key), &value, e);
        yaml_event_delete(&key);
        yaml_event_delete(&value);
        if (rc)
            return -1;
    }
    if (check_model(r, &m, e))
        return -1;
    if (r->o->n_models == MODELS_MAX)
        return err_set(e, ERR_RANGE, "%s:%d: more than %d models", r->path, line, MODELS_MAX);
    r->o->models[r->o->n_models++] = m;
    return 0;
}

static int read_models(struct config_reader *r, struct err *e)
{
    yaml_event_t ev;

    for (;;) {
        if (next_event(r, &ev, e))
            return -1;
        yaml_event_type_t type = ev.type;
        yaml_mark_t at = ev.start_mark;
        yaml_event_delete(&ev);
        if (type == YAML_SEQUENCE_END_EVENT)
            return 0;
        if (type != YAML_MAPPING_START_EVENT)
            return fail_at(r, &at, e, "`models` is a list of mappings");
        if (read_model(r, (int)at.line + 1, e))
            return -1;
    }
}

static int read_value(struct config_reader *r, const yaml_event_t *ev, struct err *e)
{
    char where[512];

    snprintf(where, sizeof(where), "%s:%zu: %s", r->path, ev->start_mark.line + 1, r->key);
    return options_set(r->o, r->key, scalar_text(ev), where, e);
}

/* Reads nested mappings without recursion: lengths[] stores the length of the path before each
 * key. */
static int read_mapping(struct config_reader *r, struct err *e)
{
    size_t lengths[MAX_DEPTH];
    int depth = 0;
    bool at_key = true;

    for (;;) {
        yaml_event_t ev;
        if (next_event(r, &ev, e))
            return -1;
        int rc = 0;
        bool is_models = depth == 0 && !strcmp(r->key, "models");
        if (ev.type == YAML_MAPPING_END_EVENT) {
            if (depth-- == 0) {
                yaml_event_delete(&ev);
                return 0;
            }
            r->key[lengths[depth]] = '\0';
            at_key = true;
        } else if (at_key) {
            size_t n = strlen(r->key);
            lengths[depth] = n;
            if (ev.type != YAML_SCALAR_EVENT || n + 2 + strlen(scalar_text(&ev)) > sizeof(r->key))
                rc = fail_at(r, &ev.start_mark, e, "not a usable key");
            else
                snprintf(r->key + n, sizeof(r->key) - n, "%s%s", n ? "." : "", scalar_text(&ev));
            at_key = false;
        } else if (ev.type == YAML_MAPPING_START_EVENT) {
            rc = depth + 1 < MAX_DEPTH ? 0 : fail_at(r, &ev.start_mark, e, "nested too deeply");
            depth++;
            at_key = true;
        } else {
            if (ev.type == YAML_SEQUENCE_START_EVENT)
                rc = is_models ? read_models(r, e)
                               : fail_at(r, &ev.start_mark, e, "a list is not expected here");
            else
                rc = read_value(r, &ev, e);
            r->key[lengths[depth]] = '\0';
            at_key = true;
        }
        yaml_event_delete(&ev);
        if (rc)
            return -1;
    }
}

static int read_document(struct config_reader *r, struct err *e)
{
    for (;;) {
        yaml_event_t ev;
        if (next_event(r, &ev, e))
            return -1;
        yaml_event_type_t type = ev.type;
        yaml_mark_t at = ev.start_mark;
        bool is_empty = type == YAML_SCALAR_EVENT && !*scalar_text(&ev);
        yaml_event_delete(&ev);
        if (type == YAML_STREAM_END_EVENT)
            return 0;
        if (type == YAML_MAPPING_START_EVENT && read_mapping(r, e))
            return -1;
        if (type == YAML_SEQUENCE_START_EVENT || (type == YAML_SCALAR_EVENT && !is_empty))
            return fail_at(r, &at, e, "the file must be a mapping of settings");
    }
}

int config_read(struct options *o, const char *path, struct err *e)
{
    struct config_reader r = { .o = o, .path = path };
    struct stat st;
    int fd;

    if (file_open_regular(path, O_RDONLY, &fd, e))
        return -1;
    FILE *f = fdopen(fd, "r");
    if (!f) {
        close(fd);
        return err_set(e, ERR_MEMORY, "%s: no memory for the file", path);
    }
    if (fstat(fd, &st) || st.st_size > MAX_FILE_BYTES) {
        fclose(f);
        return err_set(e, ERR_TOO_LARGE, "%s: larger than 1 MiB", path);
    }
    if (!yaml_parser_initialize(&r.yaml)) {
        fclose(f);
        return err_set(e, ERR_MEMORY, "%s: no memory for the file", path);
    }
    yaml_parser_set_input_file(&r.yaml, f);
    int rc = read_document(&r, e);
    yaml_parser_delete(&r.yaml);
    fclose(f);
    return rc;
}
