/* schema_keyword.h: the keywords of JSON Schema: a table, and one function for each keyword that
 * asserts something.
 *
 * Owner: the thread of the reader. */
#pragma once

#include "constrain/schema/schema_in.h"

/* A node that is being read. */
struct schema_reading {
    struct schema_reader *r;
    const struct json *object;
    struct schema_node *node;
    uint32_t location, scope;
    struct schema_version version;
    bool is_closed;          /* see struct schema_todo */
    bool are_members_closed; /* is_closed of the subschemas in allOf, anyOf, .. and $ref */
};

enum schema_shape { /* content of a keyword */
    SHAPE_VALUE,
    SHAPE_SCHEMA,
    SHAPE_SCHEMAS,    /* array */
    SHAPE_SCHEMA_MAP, /* object; values that are arrays are no schemas */
    SHAPE_ITEMS       /* SCHEMA or SCHEMAS */
};

struct schema_keyword {
    const char *name;
    uint8_t drafts, vocabulary;
    enum schema_shape shape;
    bool is_reported; /* ignored, and named in the report */
    /* Reads the value into k->node; the error does not name the place. NULL: no assertion, or read
     * by the function of another keyword. */
    int (*read)(struct schema_reading *k, const struct json *v);
};

/* ---- schema_keywords.c */

const struct schema_keyword *schema_keyword_find(struct schema_version d, struct str name);
int schema_object_read(struct schema_reading *k) MUST_CHECK;

/* ---- schema_assertions.c, schema_values.c: functions of the table */

int schema_read_type(struct schema_reading *k, const struct json *v);
int schema_read_minimum(struct schema_reading *k, const struct json *v);
int schema_read_maximum(struct schema_reading *k, const struct json *v);
int schema_read_exclusive_minimum(struct schema_reading *k, const struct json *v);
int schema_read_exclusive_maximum(struct schema_reading *k, const struct json *v);
int schema_read_multiple_of(struct schema_reading *k, const struct json *v);
int schema_read_min_length(struct schema_reading *k, const struct json *v);
int schema_read_max_length(struct schema_reading *k, const struct json *v);
int schema_read_min_items(struct schema_reading *k, const struct json *v);
int schema_read_max_items(struct schema_reading *k, const struct json *v);
int schema_read_min_properties(struct schema_reading *k, const struct json *v);
int schema_read_max_properties(struct schema_reading *k, const struct json *v);
int schema_read_min_contains(struct schema_reading *k, const struct json *v);
int schema_read_max_contains(struct schema_reading *k, const struct json *v);
int schema_read_unique_items(struct schema_reading *k, const struct json *v);
int schema_read_pattern(struct schema_reading *k, const struct json *v);
int schema_read_format(struct schema_reading *k, const struct json *v);
int schema_read_enum(struct schema_reading *k, const struct json *v);
int schema_read_const(struct schema_reading *k, const struct json *v);
int schema_pattern_check(struct schema_reader *r, struct str pattern) MUST_CHECK;
