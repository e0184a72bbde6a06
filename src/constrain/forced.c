#include "constrain/forced.h"

static size_t count_control(struct acceptor *a, pos_id p, int32_t *ids, size_t cap)
{
    return a->ops->tokens ? a->ops->tokens(a, p, ids, cap) : 0;
}

/* The byte that must follow; -1 if there is none. */
static int forced_byte(struct acceptor *a, pos_id p)
{
    int found = -1;
    int32_t id;

    if (a->ops->accepts(a, p))
        return -1;
    struct byte_set next = a->ops->next_bytes(a, p);
    for (int w = 0; w < 4; w++) {
        if (!next.w[w])
            continue;
        if (found >= 0 || next.w[w] & (next.w[w] - 1))
            return -1;
        found = w * 64 + __builtin_ctzll(next.w[w]);
    }
    return found >= 0 && count_control(a, p, &id, 1) ? -1 : found;
}

size_t forced_text(struct acceptor *a, pos_id p, char *out, size_t cap, pos_id *end)
{
    size_t n = 0;

    while (n < cap) {
        int byte = forced_byte(a, p);
        pos_id next = byte < 0 ? POS_DEAD : a->ops->step(a, p, (uint8_t)byte);
        if (!next.i)
            break;
        p = next;
        out[n++] = (char)byte;
    }
    *end = p;
    return n;
}

int32_t forced_control(struct acceptor *a, pos_id p)
{
    int32_t id = TOKEN_NONE;

    if (count_control(a, p, &id, 1) != 1 || a->ops->accepts(a, p))
        return TOKEN_NONE;
    struct byte_set next = a->ops->next_bytes(a, p);
    return byte_set_is_empty(&next) ? id : TOKEN_NONE;
}

size_t forced_tokens(const struct token_trie *t, struct str text, int32_t *ids, size_t cap)
{
    size_t n_ids = 0, n;

    while (n_ids < cap && text.n) {
        int32_t id = token_trie_longest(t, text, &n);
        if (id == TOKEN_NONE)
            break;
        ids[n_ids++] = id;
        text = str_skip(text, n);
    }
    return n_ids;
}
