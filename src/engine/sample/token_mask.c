#include "engine/sample/token_mask.h"

#include "base/sorted_ids.h"
#include "model/lm.h"

static bool has_bit(const uint32_t *bits, int32_t id)
{
    return bits[id / 32] >> id % 32 & 1;
}

bool token_mask_has(const struct token_mask *m, int32_t id)
{
    switch (m->form) {
    case MASK_FORM_BITS:
        return has_bit(m->bits, id);
    case MASK_FORM_IDS:
        return sorted_ids_has(m->ids, (size_t)m->n_ids, id);
    case MASK_FORM_ALL:
        break;
    }
    return true;
}

/* Word w of a bit set without the bits after the vocabulary. */
static uint32_t word_of(const uint32_t *bits, size_t w, int n_vocab)
{
    int n_left = n_vocab - (int)w * 32;

    return n_left >= 32 ? bits[w] : bits[w] & ((1u << n_left) - 1);
}

int token_mask_count(const struct token_mask *m, int n_vocab, int most)
{
    int n = 0;

    if (m->form == MASK_FORM_ALL)
        return MIN(n_vocab, most);
    for (int i = 0; m->form == MASK_FORM_IDS && i < m->n_ids && n < most; i++)
        n += m->ids[i] >= 0 && m->ids[i] < n_vocab;
    for (size_t w = 0; m->form == MASK_FORM_BITS && w < token_mask_words(n_vocab) && n < most; w++)
        n += __builtin_popcount(word_of(m->bits, w, n_vocab));
    return MIN(n, most);
}

static int list_bits(const uint32_t *bits, int n_vocab, int32_t *ids, int cap)
{
    int n = 0;

    for (size_t w = 0; w < token_mask_words(n_vocab); w++)
        for (uint32_t word = word_of(bits, w, n_vocab); word && n < cap; word &= word - 1)
            ids[n++] = (int32_t)w * 32 + __builtin_ctz(word);
    return n;
}

int token_mask_list(const struct token_mask *m, int n_vocab, int32_t *ids, int cap)
{
    int n = 0;

    if (m->form == MASK_FORM_BITS)
        return list_bits(m->bits, n_vocab, ids, cap);
    if (m->form == MASK_FORM_ALL) {
        for (; n < MIN(n_vocab, cap); n++)
            ids[n] = n;
        return n;
    }
    for (int i = 0; i < m->n_ids && n < cap; i++)
        if (m->ids[i] >= 0 && m->ids[i] < n_vocab)
            ids[n++] = m->ids[i];
    return n;
}

void token_mask_bits(const struct token_mask *m, int n_vocab, uint32_t *bits)
{
    size_t n_bytes = token_mask_words(n_vocab) * sizeof(*bits);

    if (m->form == MASK_FORM_BITS) {
        memcpy(bits, m->bits, n_bytes);
        return;
    }
    memset(bits, m->form == MASK_FORM_ALL ? 0xff : 0, n_bytes);
    for (int i = 0; m->form == MASK_FORM_IDS && i < m->n_ids; i++)
        if (m->ids[i] >= 0 && m->ids[i] < n_vocab)
            bits[m->ids[i] / 32] |= 1u << m->ids[i] % 32;
}

void token_mask_copy(
    struct token_mask *to, const struct token_mask *from, int n_vocab, uint32_t *memory)
{
    *to = *from;
    if (from->form == MASK_FORM_ALL || (from->form == MASK_FORM_IDS && from->n_ids == 0))
        return;
    if (from->form == MASK_FORM_IDS && (size_t)from->n_ids <= token_mask_words(n_vocab)) {
        memcpy(memory, from->ids, (size_t)from->n_ids * sizeof(*from->ids));
        to->ids = (const int32_t *)memory;
        return;
    }
    token_mask_bits(from, n_vocab, memory);
    *to = (struct token_mask){ .form = MASK_FORM_BITS, .bits = memory };
}

void token_mask_panels(const struct token_mask *m, int n_vocab, uint32_t *panels)
{
    _Static_assert((int)LOGIT_PANEL == 16, "a word of a bit set has two panels");

    if (m->form == MASK_FORM_ALL)
        memset(panels, 0xff, token_mask_words(logit_panels(n_vocab)) * sizeof(*panels));
    for (size_t w = 0; m->form == MASK_FORM_BITS && w < token_mask_words(n_vocab); w++) {
        uint32_t word = word_of(m->bits, w, n_vocab);
        panels[w / 16] |= (uint32_t)((word & 0xffff) != 0) << w % 16 * 2;
        panels[w / 16] |= (uint32_t)(word >> 16 != 0) << (w % 16 * 2 + 1);
    }
    for (int i = 0; m->form == MASK_FORM_IDS && i < m->n_ids; i++)
        if (m->ids[i] >= 0 && m->ids[i] < n_vocab)
            panels[m->ids[i] / (32 * LOGIT_PANEL)] |= 1u << m->ids[i] / LOGIT_PANEL % 32;
}
