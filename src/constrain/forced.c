#include "constrain/forced.h"

size_t forced_text(struct automaton *a, state_id s, char *out, size_t cap)
{
    size_t n = 0;

    while (n < cap) {
        int byte = automaton_forced_byte(a, s);
        if (byte < 0)
            break;
        s = automaton_step(a, s, (uint8_t)byte);
        out[n++] = (char)byte;
    }
    return n;
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
