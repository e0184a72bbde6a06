#include "constrain/vocab/token_class.h"

#include "base/mem.h"

/* UTF-8 as in RFC 3629, section 4. The most frequent bytes of a class are first. */
const struct class_bytes class_bytes[N_CLASS_BYTES] = {
    { 0x5D, 0x7F, 0, 0, 0 }, /* CLASS_STRING */
    { 0x23, 0x5B, 0, 0, 0 },
    { 0x20, 0x21, 0, 0, 0 },
    { 0xC2, 0xDF, 1, 0x80, 0xBF },
    { 0xE0, 0xE0, 2, 0xA0, 0xBF },
    { 0xE1, 0xEC, 2, 0x80, 0xBF },
    { 0xED, 0xED, 2, 0x80, 0x9F },
    { 0xEE, 0xEF, 2, 0x80, 0xBF },
    { 0xF0, 0xF0, 3, 0x90, 0xBF },
    { 0xF1, 0xF3, 3, 0x80, 0xBF },
    { 0xF4, 0xF4, 3, 0x80, 0x8F },
    { '0', '9', 0, 0, 0 }, /* CLASS_DIGITS */
    { ' ', ' ', 0, 0, 0 }, /* CLASS_BLANKS */
    { '\t', '\t', 0, 0, 0 },
};
const uint8_t class_rows[N_TOKEN_CLASSES + 1] = { 0, 11, 12, N_CLASS_BYTES };

/* Bytes of the character that `s` begins with; 0 if it is not whole or not of the class. */
static size_t character_length(enum token_class class, struct str s)
{
    const uint8_t *p = (const uint8_t *)s.p;

    for (size_t r = class_rows[class]; r < class_rows[class + 1]; r++) {
        const struct class_bytes *row = &class_bytes[r];
        if (p[0] < row->from || p[0] > row->to)
            continue;
        if (s.n <= row->n_tail)
            return 0;
        for (size_t k = 1; k <= row->n_tail; k++) {
            bool is_second = k == 1;
            if (p[k] < (is_second ? row->tail_from : 0x80) ||
                p[k] > (is_second ? row->tail_to : 0xBF))
                return 0;
        }
        return (size_t)row->n_tail + 1;
    }
    return 0;
}

uint32_t token_class_length(enum token_class class, struct str bytes)
{
    uint32_t n = 0;

    while (bytes.n && n <= TOKEN_CLASS_CHARS_MAX) {
        size_t length = character_length(class, bytes);
        if (!length)
            return 0;
        bytes = str_skip(bytes, length);
        n++;
    }
    return n <= TOKEN_CLASS_CHARS_MAX ? n : 0;
}

/* Counts the tokens by length, then stores their ids in this order. `lengths` has room for a length
 * per token. */
static int list_class(struct token_classes *c, const struct token_source *src,
    enum token_class class, uint8_t *lengths)
{
    uint32_t *n_ids = c->n_ids[class], next[TOKEN_CLASS_CHARS_MAX + 1];

    for (int32_t id = 0; id < src->n_tokens; id++) {
        uint32_t n = token_class_length(class, src->bytes(src->ctx, id));
        lengths[id] = (uint8_t)n;
        n_ids[n] += n > 0;
        c->n_chars_max[class] = MAX(c->n_chars_max[class], n);
    }
    for (uint32_t n = 1; n <= TOKEN_CLASS_CHARS_MAX; n++) {
        next[n] = n_ids[n - 1];
        n_ids[n] += n_ids[n - 1];
    }
    c->ids[class] = try_malloc(MAX(n_ids[TOKEN_CLASS_CHARS_MAX], 1u) * sizeof(*c->ids[class]));
    if (!c->ids[class])
        return -1;
    for (int32_t id = 0; id < src->n_tokens; id++)
        if (lengths[id])
            c->ids[class][next[lengths[id]]++] = id;
    return 0;
}

/* The class is too large to be added by id. */
static int make_string_masks(struct token_classes *c)
{
    uint32_t n_max = c->n_chars_max[CLASS_STRING];
    const uint32_t *n_ids = c->n_ids[CLASS_STRING];

    c->string_masks = try_calloc(MAX(n_max, 1u) * c->n_words, sizeof(*c->string_masks));
    if (!c->string_masks)
        return -1;
    for (uint32_t n = 1; n <= n_max; n++) {
        uint32_t *mask = c->string_masks + (n - 1) * c->n_words;
        if (n > 1)
            memcpy(mask, mask - c->n_words, c->n_words * sizeof(*mask));
        for (uint32_t k = n_ids[n - 1]; k < n_ids[n]; k++)
            token_set_add(mask, c->ids[CLASS_STRING][k]);
    }
    mem_free(c->ids[CLASS_STRING]);
    c->ids[CLASS_STRING] = NULL;
    return 0;
}

int token_classes_init(struct token_classes *c, const struct token_source *src, struct err *e)
{
    uint8_t *lengths = try_malloc((size_t)src->n_tokens);
    bool is_done = lengths != NULL;

    *c = (struct token_classes){ .n_words = token_set_words(src->n_tokens) };
    for (enum token_class k = 0; is_done && k < N_TOKEN_CLASSES; k++)
        is_done = !list_class(c, src, k, lengths);
    is_done = is_done && !make_string_masks(c);
    mem_free(lengths);
    if (is_done)
        return 0;
    token_classes_clear(c);
    return err_set(e, ERR_MEMORY, "no memory for the tables of the vocabulary");
}

void token_classes_clear(struct token_classes *c)
{
    for (enum token_class k = 0; k < N_TOKEN_CLASSES; k++)
        mem_free(c->ids[k]);
    mem_free(c->string_masks);
    *c = (struct token_classes){ 0 };
}

size_t token_classes_bytes(const struct token_classes *c)
{
    size_t bytes = c->n_chars_max[CLASS_STRING] * c->n_words * sizeof(*c->string_masks);

    for (enum token_class k = 0; k < N_TOKEN_CLASSES; k++)
        bytes += c->ids[k] ? c->n_ids[k][TOKEN_CLASS_CHARS_MAX] * sizeof(*c->ids[k]) : 0;
    return bytes;
}

void token_classes_add(
    const struct token_classes *c, enum token_class class, uint32_t n, uint32_t *set)
{
    n = MIN(n, c->n_chars_max[class]);
    if (!n)
        return;
    if (class == CLASS_STRING) {
        const uint32_t *mask = c->string_masks + (n - 1) * c->n_words;
        for (size_t w = 0; w < c->n_words; w++)
            set[w] |= mask[w];
        return;
    }
    for (uint32_t k = 0; k < c->n_ids[class][n]; k++)
        token_set_add(set, c->ids[class][k]);
}
