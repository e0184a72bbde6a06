/* fields.h: reads a request body by a table of name, type, range and destination.
 *
 * The body is walked once. A member that is not in the table is ignored; null counts as absent; of
 * two members with the same name the last is used. Then the entries are read in the order of the
 * table, which is alphabetical (checked in test builds), so the first error reported does not
 * depend on the order of the client's members. Entries of type FIELD_DEFERRED are not read, only
 * returned by field_get. Any thread. */
#pragma once

#include "generate/request.h"

enum { FIELDS_MAX = 128 };

enum field_kind {
    FIELD_BOOL,        /* bool */
    FIELD_INT,         /* int, in range */
    FIELD_FLOAT,       /* float, in range */
    FIELD_DOUBLE,      /* double, in range */
    FIELD_TEXT,        /* struct str, at most in.hi bytes */
    FIELD_ENUM,        /* struct str, one of `text`: "low|high" */
    FIELD_OBJECT,      /* const struct json * */
    FIELD_UNSUPPORTED, /* ERR_UNSUPPORTED unless the value is neutral: null, false, 0, "", [], {} */
    FIELD_CUSTOM,      /* read by the entry's function */
    FIELD_DEFERRED     /* read by the caller after all others, with field_get */
};

struct range {
    double lo, hi;
};

struct fields;

struct field {
    const char *name;
    enum field_kind kind;
    unsigned on; /* bit per enum request_kind in which the field exists; ignored in others */
    struct range in;
    size_t to;        /* offset in struct request; FIELD_TYPE_ONLY: checked, not stored */
    const char *text; /* ENUM: the values; UNSUPPORTED: reason, for the error message */
    int (*read)(struct fields *f, const char *name, const struct json *v);
};

#define FIELD_TYPE_ONLY SIZE_MAX

struct fields {
    struct request *request;
    struct arena *arena;
    struct err *e;
    const struct field *table;
    size_t n;
    const struct json *found[FIELDS_MAX]; /* never a null value */
};

/* Requires f->request (with its kind), arena, e, table and n. */
int fields_read(struct fields *f, const struct json *body);
const struct json *field_get(const struct fields *f, const char *name);

/* "'stop' must be a string or an array, not a number"; returns -1. */
int field_wrong_kind(struct fields *f, const char *name, const char *want, const struct json *v);
int field_unsupported(struct fields *f, const char *name, const char *what);
int field_missing(struct fields *f, const char *name);
int field_no_memory(struct fields *f);
bool field_is_neutral(const struct json *v);

/* Read one value; 0 or -1. */
int field_bool(struct fields *f, const char *name, const struct json *v, bool *out);
int field_int(struct fields *f, const char *name, const struct json *v, struct range in, int *out);
int field_number(
    struct fields *f, const char *name, const struct json *v, struct range in, double *out);
int field_text(
    struct fields *f, const char *name, const struct json *v, size_t most, struct str *out);
int field_enum(
    struct fields *f, const char *name, const struct json *v, const char *words, struct str *out);
/* Reads an array of at most `most` token ids into the arena. */
int field_ids(struct fields *f, const char *name, const struct json *v, size_t most, int32_t **out);
