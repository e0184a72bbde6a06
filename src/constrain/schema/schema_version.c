#include "constrain/schema/schema_in.h"
#include "constrain/schema/schema_uri.h"

static const struct {
    const char *uri; /* without scheme and fragment */
    uint8_t draft;
} drafts[] = {
    { "//json-schema.org/schema", DRAFT_ANY },
    { "//json-schema.org/draft-04/schema", DRAFT_4 },
    { "//json-schema.org/draft-05/schema", DRAFT_4 },
    { "//json-schema.org/draft-06/schema", DRAFT_6 },
    { "//json-schema.org/draft-07/schema", DRAFT_7 },
    { "//json-schema.org/draft/2019-09/schema", DRAFT_2019 },
    { "//json-schema.org/draft/2020-12/schema", DRAFT_2020 },
    { "//spec.openapis.org/oas/3.1/dialect/base", DRAFT_2020 },
};

static const struct {
    const char *name; /* after /draft/2019-09/vocab/ or /draft/2020-12/vocab/ */
    uint8_t vocabulary;
} vocabularies[] = {
    { "core", VOCABULARY_CORE },
    { "applicator", VOCABULARY_APPLICATOR },
    { "unevaluated", VOCABULARY_UNEVALUATED },
    { "validation", VOCABULARY_VALIDATION },
    { "format", VOCABULARY_OTHER },
    { "format-annotation", VOCABULARY_OTHER },
    { "format-assertion", VOCABULARY_OTHER },
    { "content", VOCABULARY_OTHER },
    { "meta-data", VOCABULARY_OTHER },
};

static const struct {
    const char *uri, *text;
} metaschemas[] = {
#define METASCHEMA(uri, ...) { uri, #__VA_ARGS__ },
#include "constrain/schema/schema_metaschemas.def"
#undef METASCHEMA
};

/* http and https are equal here, and an empty fragment is none. */
static struct str without_scheme(struct str uri)
{
    if (str_ends(uri, STR("#")))
        uri.n--;
    if (str_starts(uri, STR("http:")))
        return str_skip(uri, 5);
    return str_starts(uri, STR("https:")) ? str_skip(uri, 6) : STR_NONE;
}

struct str schema_metaschema(struct str uri)
{
    struct str want = without_scheme(uri);

    for (size_t k = 0; k < ARRAY_LEN(metaschemas); k++)
        if (want.p && str_eq(want, without_scheme(str_of(metaschemas[k].uri))))
            return str_of(metaschemas[k].text);
    return STR_NONE;
}

static bool draft_find(struct str uri, uint8_t *draft)
{
    struct str want = without_scheme(uri);

    for (size_t k = 0; k < ARRAY_LEN(drafts); k++)
        if (want.p && str_is(want, drafts[k].uri)) {
            *draft = drafts[k].draft;
            return true;
        }
    return false;
}

static int unknown(struct schema_reader *r, struct str uri, const char *what)
{
    return err_set(r->e, ERR_INVALID, "\"" STR_FMT "\" is %s",
        STR_ARG(((struct str){ uri.p, MIN(uri.n, (size_t)200) })), what);
}

/* 0: no known vocabulary */
static uint8_t vocabulary_find(struct str uri)
{
    struct str name = without_scheme(uri);
    struct str prefixes[] = { STR("//json-schema.org/draft/2019-09/vocab/"),
        STR("//json-schema.org/draft/2020-12/vocab/") };

    for (size_t k = 0; k < ARRAY_LEN(prefixes); k++)
        for (size_t l = 0; name.p && l < ARRAY_LEN(vocabularies); l++)
            if (str_starts(name, prefixes[k]) &&
                str_is(str_skip(name, prefixes[k].n), vocabularies[l].name))
                return vocabularies[l].vocabulary;
    return 0;
}

/* $vocabulary of a metaschema of the caller. */
static int read_vocabularies(
    struct schema_reader *r, const struct json *list, struct schema_version *d)
{
    if (!list || list->kind != JSON_OBJECT)
        return 0;
    d->vocabularies = VOCABULARY_CORE;
    for (const struct json *m = list->child; m; m = m->next) {
        uint8_t v = vocabulary_find(m->key);
        if (!v && m->kind == JSON_BOOL && m->b)
            return unknown(r, m->key, "a required vocabulary that is not supported");
        d->vocabularies |= v;
    }
    /* 2019-09 has the unevaluated keywords in its applicators. */
    if (d->draft == DRAFT_2019 && (d->vocabularies & VOCABULARY_APPLICATOR))
        d->vocabularies |= VOCABULARY_UNEVALUATED;
    return 0;
}

int schema_version_find(struct schema_reader *r, struct str uri, struct schema_version *out)
{
    struct schema_version d = { DRAFT_ANY, VOCABULARIES_ALL };
    const struct json *root = NULL, *own;
    struct str plain, fragment;

    if (draft_find(uri, &d.draft)) {
        *out = d;
        return 0;
    }
    uri_split(uri, &plain, &fragment);
    for (uint32_t k = 0; k < r->options->n_documents && !root; k++)
        if (str_eq(r->options->documents[k].uri, plain) &&
            schema_parse(r, r->options->documents[k].text, &root))
            return -1;
    if (!root)
        return unknown(r, uri, "no known version of JSON Schema");
    own = json_get(root, "$schema");
    if (!own || own->kind != JSON_STRING || !draft_find(own->s, &d.draft))
        return unknown(r, uri, "a metaschema whose $schema is not known");
    if (read_vocabularies(r, json_get(root, "$vocabulary"), &d))
        return -1;
    *out = d;
    return 0;
}
