/* fields.h: a request body read by a table: name, kind, range, where the value goes.
 *
 * The body is walked once; a member that the table does not know is ignored, null is absent, of
 * two members with one name the last counts. Then the rows are read in the table's order, which
 * is alphabetical (checked in test builds), so the first mistake found does not depend on the
 * order a client wrote. Rows with FIELD_LATER are only looked up, by field_get. */
#pragma once

#include "generate/ask.h"

enum { FIELDS_MAX = 128 };

enum field_kind {
    FIELD_BOOL,   /* bool */
    FIELD_INT,    /* int, in range */
    FIELD_FLOAT,  /* float, in range */
    FIELD_DOUBLE, /* double, in range */
    FIELD_TEXT,   /* struct str, at most in.hi bytes */
    FIELD_WORD,   /* struct str, one of text: "low|high" */
    FIELD_OBJECT, /* const struct json * */
    FIELD_REFUSE, /* ERR_UNSUPPORTED unless it says nothing: null, false, 0, "", [], {} */
    FIELD_READ,   /* the row's own function */
    FIELD_LATER   /* looked at when all others have been read */
};

struct range {
    double lo, hi;
};

struct fields;

struct field {
    const char *name;
    enum field_kind kind;
    unsigned on; /* bit per enum ask_kind: where the field exists; elsewhere it is ignored */
    struct range in;
    size_t to;        /* offset in struct ask; FIELD_TYPE_ONLY: checked, not kept */
    const char *text; /* WORD: the words; REFUSE: what it is, for the sentence */
    int (*read)(struct fields *f, const char *name, const struct json *v);
};

#define FIELD_TYPE_ONLY SIZE_MAX

struct fields {
    struct ask *ask;
    struct arena *arena;
    struct err *e;
    const struct field *table;
    size_t n;
    const struct json *found[FIELDS_MAX]; /* never one that is null */
};

/* f->ask (with its kind), arena, e, table and n are set. */
int fields_read(struct fields *f, const struct json *body);
const struct json *field_get(const struct fields *f, const char *name);

/* "'stop' must be a string or an array, not a number"; returns -1. */
int field_wrong_kind(struct fields *f, const char *name, const char *want, const struct json *v);
int field_unsupported(struct fields *f, const char *name, const char *what);
int field_missing(struct fields *f, const char *name);
int field_no_memory(struct fields *f);
bool field_says_nothing(const struct json *v);

/* One value by itself: 0 or -1. */
int field_bool(struct fields *f, const char *name, const struct json *v, bool *out);
int field_int(struct fields *f, const char *name, const struct json *v, struct range in, int *out);
int field_number(
    struct fields *f, const char *name, const struct json *v, struct range in, double *out);
int field_text(
    struct fields *f, const char *name, const struct json *v, size_t most, struct str *out);
int field_word(
    struct fields *f, const char *name, const struct json *v, const char *words, struct str *out);
/* An array of at most `most` token ids, in the arena. */
int field_ids(struct fields *f, const char *name, const struct json *v, size_t most, int32_t **out);
