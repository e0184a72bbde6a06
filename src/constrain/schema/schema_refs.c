#include "base/hash.h"
#include "base/utf8.h"
#include "constrain/schema/schema_keyword.h"
#include "constrain/schema/schema_uri.h"

#include <stdio.h>

enum { NO_ANCHOR = UINT32_MAX, TOKEN_SHOWN = 128 };

static int scratch_copy(struct schema_reader *r, struct str *s)
{
    char *p = schema_scratch(r, s->n, 1);

    if (!p)
        return -1;
    if (s->n)
        memcpy(p, s->p, s->n);
    *s = (struct str){ p, s->n };
    return 0;
}

/* ---- pointers for messages */

static size_t escape_token(char out[TOKEN_SHOWN + 8], struct str token)
{
    size_t n = 0, k = 0;

    for (; k < token.n && n < TOKEN_SHOWN; k++) {
        char c = token.p[k];
        if (c == '~' || c == '/') {
            out[n++] = '~';
            c = c == '~' ? '0' : '1';
        }
        out[n++] = (unsigned char)c < 0x20 || c == 0x7F ? '?' : c;
    }
    if (k < token.n) {
        n = utf8_complete((struct str){ out, n });
        memcpy(out + n, "...", 3);
        n += 3;
    }
    return n;
}

int schema_pointer_add(struct schema_reader *r, struct str *pointer, struct str token)
{
    char text[SCHEMA_POINTER_MAX + TOKEN_SHOWN + 16], escaped[TOKEN_SHOWN + 8];
    size_t n_token = escape_token(escaped, token), n = MIN(pointer->n, (size_t)SCHEMA_POINTER_MAX);

    memcpy(text, pointer->p, n);
    text[n++] = '/';
    memcpy(text + n, escaped, n_token);
    n += n_token;
    if (n > SCHEMA_POINTER_MAX) {
        /* The last tokens are kept. */
        size_t from = n - SCHEMA_POINTER_MAX + 8;
        while (text[from] != '/')
            from++;
        memmove(text + 5, text + from, n - from);
        memcpy(text, "#/...", 5);
        n = n - from + 5;
    }
    *pointer = (struct str){ text, n };
    return scratch_copy(r, pointer);
}

/* ---- anchors and resources */

static int anchor_key(struct schema_reader *r, uint32_t resource, struct str name, struct str *out)
{
    char *p = schema_scratch(r, sizeof(resource) + name.n, 1);

    if (!p)
        return -1;
    memcpy(p, &resource, sizeof(resource));
    if (name.n)
        memcpy(p + sizeof(resource), name.p, name.n);
    *out = (struct str){ p, sizeof(resource) + name.n };
    return 0;
}

static int dynamic_name(struct schema_reader *r, struct str name, uint32_t *out)
{
    *out = (uint32_t)str_map_count(r->dynamic_names);
    int rc = str_map_put(r->dynamic_names, name, *out);

    if (rc == 0)
        str_map_get(r->dynamic_names, name, out);
    return rc < 0 ? schema_no_memory(r) : 0;
}

static int anchor_add(struct schema_reader *r, uint32_t location, struct str name, bool is_dynamic)
{
    uint32_t resource = r->locations.at[location].resource, id = r->anchors.n;
    struct str key;

    if (SCHEMA_GROW(r, r->anchors) || anchor_key(r, resource, name, &key))
        return -1;
    int rc = str_map_put(r->by_anchor, key, id);
    if (rc < 0)
        return schema_no_memory(r);
    if (rc > 0)
        r->anchors.at[r->anchors.n++] = (struct schema_anchor){ .location = location };
    else
        str_map_get(r->by_anchor, key, &id);
    struct schema_anchor *a = &r->anchors.at[id];
    a->is_ambiguous |= a->location != location;
    if (is_dynamic && !a->is_dynamic) {
        if (dynamic_name(r, name, &a->name))
            return -1;
        a->is_dynamic = true;
        a->next = r->resources.at[resource].dynamic;
        r->resources.at[resource].dynamic = id;
    }
    return 0;
}

static int resource_name(struct schema_reader *r, uint32_t resource, struct str uri)
{
    uint32_t other;
    int rc = str_map_put(r->by_uri, uri, resource);

    if (rc == 0 && str_map_get(r->by_uri, uri, &other) && other != resource)
        r->resources.at[other].is_ambiguous = true;
    return rc < 0 ? schema_no_memory(r) : 0;
}

static int resource_add(struct schema_reader *r, const struct schema_resource *new, uint32_t *id)
{
    if (SCHEMA_GROW(r, r->resources))
        return -1;
    *id = r->resources.n++;
    r->resources.at[*id] = *new;
    return resource_name(r, *id, new->uri);
}

static const struct json *string_member(const struct json *object, const char *key)
{
    const struct json *v = json_get(object, key);

    return v && v->kind == JSON_STRING ? v : NULL;
}

/* Sets *version to that of $schema in a subschema with its own URI. */
static int own_version(
    struct schema_reader *r, const struct schema_location *l, struct schema_version *version)
{
    const struct json *own = string_member(l->value, "$schema");
    bool has_id = string_member(l->value, "$id") || string_member(l->value, "id");

    *version = r->resources.at[l->resource].version;
    if (!own || !has_id || r->resources.at[l->resource].root == l->value)
        return 0;
    if (schema_version_find(r, own->s, version))
        return err_wrap(r->e, STR_FMT "/$schema", STR_ARG(l->pointer));
    return 0;
}

/* Makes the location a resource with this URI, which is relative to that of the outer resource. */
static int enter_resource(
    struct schema_reader *r, uint32_t location, struct str uri, struct schema_version version)
{
    struct schema_location *l = &r->locations.at[location];
    struct schema_resource *outer = &r->resources.at[l->resource];
    struct uri_text text;

    if (uri_resolve(&text, outer->uri, uri, r->e))
        return err_wrap(r->e, STR_FMT "/$id", STR_ARG(l->pointer));
    uri = (struct str){ text.p, text.n };
    if (scratch_copy(r, &uri))
        return -1;
    if (outer->root == l->value) {
        outer->uri = uri;
        return resource_name(r, l->resource, uri);
    }
    struct schema_resource new = {
        .root = l->value, .uri = uri, .version = version, .dynamic = NO_ANCHOR
    };
    return resource_add(r, &new, &l->resource);
}

static int add_anchors(struct schema_reader *r, uint32_t location, uint8_t draft)
{
    static const struct {
        const char *keyword;
        uint8_t drafts;
        bool is_dynamic;
    } anchors[] = {
        { "$anchor", DRAFT_2019 | DRAFT_2020 | DRAFT_ANY, false },
        { "$dynamicAnchor", DRAFT_2020 | DRAFT_ANY, true },
    };
    const struct schema_location *l = &r->locations.at[location];
    const struct json *object = l->value, *recursive = json_get(object, "$recursiveAnchor");
    bool is_root = r->resources.at[l->resource].root == object;

    for (size_t k = 0; k < ARRAY_LEN(anchors); k++) {
        const struct json *v = string_member(object, anchors[k].keyword);
        if (v && (draft & anchors[k].drafts) &&
            anchor_add(r, location, v->s, anchors[k].is_dynamic))
            return -1;
    }
    if (recursive && recursive->b && is_root && (draft & (DRAFT_2019 | DRAFT_ANY)))
        return anchor_add(r, location, STR(""), true);
    return 0;
}

/* $id, $anchor and the like of a subschema. */
static int identify(struct schema_reader *r, uint32_t location)
{
    const struct json *object = r->locations.at[location].value;
    struct schema_version version;
    struct str uri = STR_NONE, fragment = STR_NONE;

    if (own_version(r, &r->locations.at[location], &version))
        return -1;
    if ((version.draft & DRAFTS_OLD) && json_get(object, "$ref"))
        return 0;
    const struct json *id = string_member(object, version.draft == DRAFT_4 ? "id" : "$id");
    if (!id && version.draft == DRAFT_ANY)
        id = string_member(object, "id");
    if (id)
        uri_split(id->s, &uri, &fragment);
    if (uri.n && enter_resource(r, location, uri, version))
        return -1;
    if (fragment.n && (version.draft & (DRAFTS_OLD | DRAFT_ANY)) &&
        anchor_add(r, location, fragment, false))
        return -1;
    return add_anchors(r, location, version.draft);
}

/* ---- locations */

static int scan_children(struct schema_reader *r, const struct json *v, uint32_t resource,
    struct str pointer, bool is_map)
{
    char number[24];
    uint32_t k = 0, ignored;

    for (const struct json *m = v->child; m; m = m->next, k++) {
        struct str at = pointer;
        snprintf(number, sizeof(number), "%u", k);
        if (is_map && m->kind == JSON_ARRAY)
            continue; /* dependencies: names of members */
        if (schema_pointer_add(r, &at, is_map ? m->key : str_of(number)) ||
            schema_scan(r, m, resource, at, &ignored))
            return -1;
    }
    return 0;
}

static int scan_keyword(
    struct schema_reader *r, uint32_t location, const struct json *v, enum schema_shape shape)
{
    uint32_t resource = r->locations.at[location].resource, ignored;
    struct str pointer = r->locations.at[location].pointer;

    if (shape == SHAPE_ITEMS)
        shape = v->kind == JSON_ARRAY ? SHAPE_SCHEMAS : SHAPE_SCHEMA;
    bool has_schemas = shape == SHAPE_SCHEMA || (shape == SHAPE_SCHEMAS && v->kind == JSON_ARRAY) ||
                       (shape == SHAPE_SCHEMA_MAP && v->kind == JSON_OBJECT);
    if (!has_schemas)
        return 0;
    if (schema_pointer_add(r, &pointer, v->key))
        return -1;
    if (shape == SHAPE_SCHEMA)
        return schema_scan(r, v, resource, pointer, &ignored);
    return scan_children(r, v, resource, pointer, shape == SHAPE_SCHEMA_MAP);
}

/* Recursion depth is that of the document. */
int schema_scan(struct schema_reader *r, const struct json *value, uint32_t resource,
    struct str pointer, uint32_t *out)
{
    if (u64_map_get(r->by_value, (uintptr_t)value, out))
        return 0;
    if (SCHEMA_GROW(r, r->locations))
        return -1;
    *out = r->locations.n++;
    r->locations.at[*out] = (struct schema_location){ value, resource, pointer };
    if (u64_map_put(r->by_value, (uintptr_t)value, *out))
        return schema_no_memory(r);
    if (value->kind != JSON_OBJECT)
        return 0;
    if (identify(r, *out))
        return -1;
    for (const struct json *m = value->child; m; m = m->next) {
        uint32_t own = r->locations.at[*out].resource;
        const struct schema_keyword *word =
            schema_keyword_find(r->resources.at[own].version, m->key);
        if (word && word->shape != SHAPE_VALUE && scan_keyword(r, *out, m, word->shape))
            return -1;
    }
    return 0;
}

int schema_document_add(
    struct schema_reader *r, struct str uri, struct str text, uint32_t *resource)
{
    struct schema_resource new = { .dynamic = NO_ANCHOR };
    struct str pointer = STR("#");
    uint32_t location;

    if (scratch_copy(r, &uri))
        return -1;
    new.uri = uri;
    if (uri.n) {
        char *p = schema_scratch(r, uri.n + 1, 1);
        if (!p)
            return -1;
        memcpy(p, uri.p, uri.n);
        p[uri.n] = '#';
        pointer = (struct str){ p, uri.n + 1 };
    }
    if (schema_parse(r, text, &new.root))
        return r->e->code == ERR_SYNTAX ? err_wrap(r->e, STR_FMT, STR_ARG(pointer)) : -1;
    const struct json *own = string_member(new.root, "$schema");
    new.version = r->version;
    if (own && schema_version_find(r, own->s, &new.version))
        return err_wrap(r->e, STR_FMT "/$schema", STR_ARG(pointer));
    if (!r->resources.n)
        r->version = new.version;
    if (resource_add(r, &new, resource))
        return -1;
    return schema_scan(r, new.root, *resource, pointer, &location);
}

/* ---- references */

static int unresolved(struct schema_reader *r, struct str what, const char *why)
{
    return err_set(r->e, ERR_INVALID, "\"" STR_FMT "\" %s",
        STR_ARG(((struct str){ what.p, MIN(what.n, (size_t)200) })), why);
}

static int find_resource(struct schema_reader *r, struct str uri, uint32_t *resource)
{
    struct str text = STR_NONE;

    if (!str_map_get(r->by_uri, uri, resource)) {
        for (uint32_t k = 0; k < r->options->n_documents && !text.p; k++)
            if (str_eq(r->options->documents[k].uri, uri))
                text = r->options->documents[k].text;
        if (!text.p)
            text = schema_metaschema(uri);
        if (!text.p)
            return unresolved(r, uri, "is not in the document, and nothing is fetched");
        if (schema_document_add(r, uri, text, resource))
            return -1;
    }
    if (r->resources.at[*resource].is_ambiguous)
        return unresolved(r, uri, "is the URI of several schemas");
    return 0;
}

/* Copies a token of a pointer, with ~0 and ~1 replaced. */
static struct str unescape_token(char *out, struct str token)
{
    size_t n = 0;

    for (size_t k = 0; k < token.n; k++) {
        char c = token.p[k];
        if (c == '~' && k + 1 < token.n && (token.p[k + 1] == '0' || token.p[k + 1] == '1'))
            c = token.p[++k] == '0' ? '~' : '/';
        out[n++] = c;
    }
    return (struct str){ out, n };
}

static const struct json *array_item(const struct json *array, struct str token)
{
    uint64_t index;
    const struct json *v = array->child;

    if (!str_to_u64(token, &index) || (token.n > 1 && token.p[0] == '0') || index >= array->n)
        return NULL;
    while (v && index--)
        v = v->next;
    return v;
}

static int follow_pointer(
    struct schema_reader *r, uint32_t resource, struct str path, uint32_t *location)
{
    const struct json *v = r->resources.at[resource].root;
    struct str pointer, rest = path;
    char *scratch = schema_scratch(r, path.n + 1, 1);

    if (!scratch)
        return -1;
    if (!u64_map_get(r->by_value, (uintptr_t)v, location))
        return unresolved(r, path, "is not in the document");
    pointer = r->locations.at[*location].pointer;
    while (v && rest.n) {
        const char *slash = rest.n > 1 ? memchr(rest.p + 1, '/', rest.n - 1) : NULL;
        size_t n = slash ? (size_t)(slash - rest.p) : rest.n;
        struct str token = unescape_token(scratch, (struct str){ rest.p + 1, n - 1 });
        rest = str_skip(rest, n);
        v = v->kind == JSON_OBJECT  ? schema_member(r, v, token)
            : v->kind == JSON_ARRAY ? array_item(v, token)
                                    : NULL;
        if (!v)
            break;
        if (u64_map_get(r->by_value, (uintptr_t)v, location)) {
            resource = r->locations.at[*location].resource;
            pointer = r->locations.at[*location].pointer;
        } else if (schema_pointer_add(r, &pointer, token)) {
            return -1;
        }
    }
    if (!v)
        return unresolved(r, path, "is not in the document");
    /* The target may be below an unknown keyword: it becomes a subschema by the reference. */
    return schema_scan(r, v, resource, pointer, location);
}

int schema_resolve(struct schema_reader *r, uint32_t from, struct str reference, uint32_t *location,
    uint32_t *anchor)
{
    uint32_t resource = r->locations.at[from].resource;
    struct str uri, fragment, key;
    struct uri_text text;

    *anchor = NO_ANCHOR;
    uri_split(reference, &uri, &fragment);
    if (uri.n) {
        struct str base = r->resources.at[resource].uri;
        if (uri_resolve(&text, base, uri, r->e) ||
            find_resource(r, (struct str){ text.p, text.n }, &resource))
            return -1;
    }
    char *decoded = schema_scratch(r, fragment.n, 1);
    if (!decoded || uri_decode(decoded, &fragment.n, fragment, r->e))
        return -1;
    fragment.p = decoded;
    if (!fragment.n || fragment.p[0] == '/')
        return follow_pointer(r, resource, fragment, location);
    if (anchor_key(r, resource, fragment, &key))
        return -1;
    if (!str_map_get(r->by_anchor, key, anchor))
        return unresolved(r, reference, "is not in the document");
    *location = r->anchors.at[*anchor].location;
    if (r->anchors.at[*anchor].is_ambiguous)
        return unresolved(r, reference, "is the anchor of several schemas");
    return 0;
}

/* ---- dynamic scopes */

bool schema_scope_find(
    const struct schema_reader *r, uint32_t scope, uint32_t name, uint32_t *location)
{
    const struct schema_scope *s = &r->scopes.at[scope];

    for (uint32_t k = 0; k < s->n; k++)
        if (s->entries[k].name == name) {
            *location = s->entries[k].location;
            return true;
        }
    return false;
}

static bool scopes_equal(const struct schema_scope *a, const struct schema_scope *b)
{
    for (uint32_t k = 0; k < a->n && k < b->n; k++)
        if (a->entries[k].name != b->entries[k].name ||
            a->entries[k].location != b->entries[k].location)
            return false;
    return a->n == b->n;
}

int schema_scope_enter(struct schema_reader *r, uint32_t scope, uint32_t resource, uint32_t *out)
{
    uint64_t key = (uint64_t)scope << 32 | resource;
    struct schema_scope s = r->scopes.at[scope], new = { 0 };
    struct schema_scope_entry *entries;
    uint32_t n_anchors = 0, ignored;

    *out = scope;
    if (r->resources.at[resource].dynamic == NO_ANCHOR || u64_map_get(r->by_scope, key, out))
        return 0;
    for (uint32_t a = r->resources.at[resource].dynamic; a != NO_ANCHOR; a = r->anchors.at[a].next)
        n_anchors++;
    entries = schema_scratch(r, s.n + n_anchors, sizeof(*entries));
    if (!entries)
        return -1;
    new.entries = entries;
    if (s.n)
        memcpy(entries, s.entries, s.n * sizeof(*entries));
    new.n = s.n;
    for (uint32_t a = r->resources.at[resource].dynamic; a != NO_ANCHOR;
         a = r->anchors.at[a].next) {
        struct schema_scope_entry e = { r->anchors.at[a].name, r->anchors.at[a].location };
        if (schema_scope_find(r, scope, e.name, &ignored))
            continue;
        uint32_t k = new.n++;
        for (; k && entries[k - 1].name > e.name; k--)
            entries[k] = entries[k - 1];
        entries[k] = e;
    }
    uint64_t hash = hash_bytes(new.n, entries, new.n * sizeof(*entries));
    bool is_known = u64_map_get(r->by_entries, hash, out);
    if (!is_known || !scopes_equal(&r->scopes.at[*out], &new)) {
        if (SCHEMA_GROW(r, r->scopes))
            return -1;
        *out = r->scopes.n;
        r->scopes.at[r->scopes.n++] = new;
        if (u64_map_put(r->by_entries, hash, *out))
            return schema_no_memory(r);
    }
    return u64_map_put(r->by_scope, key, *out) ? schema_no_memory(r) : 0;
}
