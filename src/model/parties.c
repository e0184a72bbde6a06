/* parties.c: which single rows attend together, since their sequences begin with the same pages;
 * whatever else is in the step.
 *
 * Rows are put in the order of their first page; then each begins a party or joins the one before
 * it. A party has as many rows as leave work for every member of the team. Who attends with whom
 * never shows: a row's bits are those it has alone. */
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
            m->parties[m->n_parties++] = (struct party){ i, 1, 0 };
    }
}
