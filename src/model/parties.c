/* parties.c: which single rows attend together, since their sequences begin with the same pages,
 * and which are so long that several members share one; whatever else is in the step.
 *
 * Rows are put in the order of their first page; then each begins a party or joins the one before
 * it. A party has as many rows as leave work for every member of the team. Of those of one row,
 * whose keys would be a piece that others wait for are cut: few sequences, few kv heads, or one
 * that is far longer than the rest. Parties of more rows stay whole; they are there only when work
 * is plenty. Who attends with whom never shows: a row's bits are those it has alone. */
#include "model/forward_in.h"

/* Shell's sort: no memory, and few rows. */
static void by_first_page(struct attn_row *list, int n)
{
    for (int gap = n / 2; gap; gap /= 2)
        for (int i = gap; i < n; i++) {
            struct attn_row one = list[i];
            int j = i;
            for (; j >= gap && list[j - gap].pages[0].i > one.pages[0].i; j -= gap)
                list[j] = list[j - gap];
            list[j] = one;
        }
}

/* Positions in the same pages and before either row's own block of keys. */
static int shared_by(const struct attn_row *a, const struct attn_row *b)
{
    int most = (MIN(a->n_keys, b->n_keys) - 1) / KV_BLOCK * KV_BLOCK, n = 0;

    while (n < most && a->pages[n / PAGE_TOKENS].i == b->pages[n / PAGE_TOKENS].i)
        n += PAGE_TOKENS;
    return n / KV_BLOCK * KV_BLOCK;
}

/* With each further row a party may share less: half as much is worth it, less is not. */
static bool joins(struct party *p, const struct attn_row *list, const struct attn_row *row)
{
    int n = shared_by(&list[p->from], row);

    if (n == 0 || (p->n > 1 && 2 * n < p->n_shared))
        return false;
    p->n_shared = p->n > 1 ? MIN(n, p->n_shared) : n;
    p->n++;
    return true;
}

/* ---- in pieces */

/* Keys of all rows and kv heads, for each member as many. */
static int64_t fair_share(const struct llama *m)
{
    int64_t n_keys = 0;

    for (int r = 0; r < m->n_rows; r++)
        n_keys += m->rows[r].pos + 1;
    return n_keys * m->h.n_kv_heads / team_size(m->team);
}

/* Whether whole parties leave nobody without work for long, be they the heaviest each. */
static bool are_even(const struct llama *m, int64_t fair)
{
    const int n = team_size(m->team), each = (m->n_parties * m->h.n_kv_heads + n - 1) / n;
    int64_t heaviest = 0;

    for (int i = 0; i < m->n_parties; i++) {
        const struct party *p = &m->parties[i];
        int64_t n_keys = 0;
        for (int j = p->from; j < p->from + p->n; j++)
            n_keys += m->list[j].n_keys;
        heaviest = MAX(heaviest, n_keys);
    }
    return heaviest * each <= fair + fair / 16;
}

/* Into pieces of about `most` keys. False: it is short enough, or the states of others have all
 * the room. */
static bool cut(struct llama *m, struct party *p, int64_t most, size_t *n_states)
{
    const struct attn_row *row = &m->list[p->from];
    const int n_splits = attn_splits(row->n_keys);
    const size_t n = (size_t)n_splits * (size_t)m->h.n_kv_heads;

    if (p->n > 1 || n_splits == 1 || row->n_keys <= most || *n_states + n > m->n_states)
        return false;
    p->n_splits = n_splits;
    p->per_piece = (int)MAX(most / KV_SPLIT, 1);
    p->n_pieces = (n_splits + p->per_piece - 1) / p->per_piece;
    p->state = *n_states;
    for (int h = 0; h < m->h.n_kv_heads; h++)
        atomic_init(&m->n_done[p->state + (size_t)h], 0);
    *n_states += n;
    return true;
}

/* Those that are cut come last. */
static void cut_long_rows(struct llama *m)
{
    const int64_t fair = fair_share(m);
    size_t n_states = 0;

    m->n_own = m->n_parties;
    m->n_pieces = 0;
    if (m->n_states == 0 || are_even(m, fair))
        return;
    for (int i = m->n_parties - 1; i >= 0; i--) {
        struct party p = m->parties[i];
        if (!cut(m, &p, fair / ENOUGH, &n_states))
            continue;
        m->parties[i] = m->parties[--m->n_own];
        m->parties[m->n_own] = p;
        m->n_pieces += p.n_pieces * m->h.n_kv_heads;
    }
}

void forward_parties(struct llama *m)
{
    const int group = m->h.n_heads / m->h.n_kv_heads, n = m->n_single;
    const int fair = n * m->h.n_kv_heads / (2 * team_size(m->team));
    const int most = MAX(MIN(fair, attn_rows_most(group)), 1);

    for (int r = 0; r < n; r++)
        m->list[r] = (struct attn_row){ m->rows[r].pages, m->rows[r].pos + 1, r };
    by_first_page(m->list, n);
    m->n_parties = 0;
    for (int i = 0; i < n; i++) {
        struct party *last = i ? &m->parties[m->n_parties - 1] : NULL;
        if (!last || last->n == most || !joins(last, m->list, &m->list[i]))
            m->parties[m->n_parties++] = (struct party){ .from = i, .n = 1 };
    }
    cut_long_rows(m);
}
