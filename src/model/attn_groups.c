/* attn_groups.c: shared-prefix groups of decode rows (cascade attention) and division of long
 * decode rows over threads (split-KV).
 *
 * Decode rows are sorted by their first KV page; then each row starts a group or joins the group
 * before it. The group size is limited such that every thread has work. A group of one row whose
 * keys would take one thread much longer than a fair share is split: this occurs with few
 * sequences, few KV heads, or one sequence far longer than the others. Groups of several rows are
 * not split; they exist only if there is enough work for all threads. Grouping and splitting do not
 * change the bits of a row.
 *
 * Owner: the engine thread, before the job of the step. */
#include "model/attention.h"

/* Shell sort: needs no memory, and there are few rows. */
static void sort_by_first_page(struct attn_row *attn_rows, int n)
{
    for (int gap = n / 2; gap; gap /= 2)
        for (int i = gap; i < n; i++) {
            struct attn_row one = attn_rows[i];
            int j = i;
            for (; j >= gap && attn_rows[j - gap].pages[0].i > one.pages[0].i; j -= gap)
                attn_rows[j] = attn_rows[j - gap];
            attn_rows[j] = one;
        }
}

/* Number of common positions: in the same KV pages, and before the last key block of either row. */
static int n_shared_positions(const struct attn_row *a, const struct attn_row *b)
{
    int most = (MIN(a->n_keys, b->n_keys) - 1) / KV_BLOCK * KV_BLOCK, n = 0;

    while (n < most && a->pages[n / PAGE_TOKENS].i == b->pages[n / PAGE_TOKENS].i)
        n += PAGE_TOKENS;
    return n / KV_BLOCK * KV_BLOCK;
}

/* Adds the row to the group if they share a prefix. Each further row may shorten the common prefix
 * of the group; a row that would halve it, or more, does not join. */
static bool try_join(
    struct attn_group *p, const struct attn_row *attn_rows, const struct attn_row *row)
{
    int n = n_shared_positions(&attn_rows[p->from], row);

    if (n == 0 || (p->n > 1 && 2 * n < p->n_shared))
        return false;
    p->n_shared = p->n > 1 ? MIN(n, p->n_shared) : n;
    p->n++;
    return true;
}

/* ---- split-KV */

/* Fair share of one thread: attended keys of all rows and KV heads, divided by the number of
 * threads; of the layer with the fewest KV heads, which is the most difficult to divide. */
static int64_t fair_keys(const struct llama *m)
{
    int64_t n_keys = 0;

    for (int r = 0; r < m->n_rows; r++)
        n_keys += m->rows[r].pos + 1;
    return n_keys * m->min_kv_heads / thread_pool_size(m->thread_pool);
}

/* Whether unsplit groups balance the load: true if the thread with the most groups is within 1/16
 * of the fair share, even if all its groups have the size of the largest. */
static bool is_balanced(const struct llama *m, int64_t fair)
{
    const int n = thread_pool_size(m->thread_pool),
              each = (m->n_attn_groups * m->min_kv_heads + n - 1) / n;
    int64_t heaviest = 0;

    for (int i = 0; i < m->n_attn_groups; i++) {
        const struct attn_group *p = &m->attn_groups[i];
        int64_t n_keys = 0;
        for (int j = p->from; j < p->from + p->n; j++)
            n_keys += m->attn_rows[j].n_keys;
        heaviest = MAX(heaviest, n_keys);
    }
    return heaviest * each <= fair + fair / 16;
}

/* Splits the group into pieces of about `most` keys. Returns false if the row is short enough, or
 * if there is no room left in `states`. */
static bool split_group(struct llama *m, struct attn_group *p, int64_t most, size_t *n_states)
{
    const struct attn_row *row = &m->attn_rows[p->from];
    const int n_splits = attn_n_splits(row->n_keys);
    const size_t n = (size_t)n_splits * (size_t)m->max_kv_heads;

    if (p->n > 1 || n_splits == 1 || row->n_keys <= most || *n_states + n > m->n_states)
        return false;
    p->n_splits = n_splits;
    p->splits_per_piece = (int)MAX(most / KV_SPLIT, 1);
    p->n_pieces = (n_splits + p->splits_per_piece - 1) / p->splits_per_piece;
    p->state = *n_states;
    for (int h = 0; h < m->max_kv_heads; h++)
        atomic_init(&m->n_done[p->state + (size_t)h], 0);
    *n_states += n;
    return true;
}

/* Moves the split groups to the end of the list. */
static void split_long_rows(struct llama *m)
{
    const int64_t fair = fair_keys(m);
    size_t n_states = 0;

    m->n_whole_groups = m->n_attn_groups;
    m->n_pieces = 0;
    if (m->n_states == 0 || is_balanced(m, fair))
        return;
    for (int i = m->n_attn_groups - 1; i >= 0; i--) {
        struct attn_group p = m->attn_groups[i];
        if (!split_group(m, &p, fair / TILES_PER_THREAD, &n_states))
            continue;
        m->attn_groups[i] = m->attn_groups[--m->n_whole_groups];
        m->attn_groups[m->n_whole_groups] = p;
        m->n_pieces += p.n_pieces;
    }
}

void attn_groups_build(struct llama *m)
{
    const int n = m->n_decode_rows;
    const int fair = n * m->min_kv_heads / (2 * thread_pool_size(m->thread_pool));
    const int most = MAX(MIN(fair, attn_max_rows(m->max_q_per_kv_head)), 1);

    for (int r = 0; r < n; r++)
        m->attn_rows[r] = (struct attn_row){ m->rows[r].pages, m->rows[r].pos + 1, r };
    sort_by_first_page(m->attn_rows, n);
    m->n_attn_groups = 0;
    for (int i = 0; i < n; i++) {
        struct attn_group *last = i ? &m->attn_groups[m->n_attn_groups - 1] : NULL;
        if (!last || last->n == most || !try_join(last, m->attn_rows, &m->attn_rows[i]))
            m->attn_groups[m->n_attn_groups++] = (struct attn_group){ .from = i, .n = 1 };
    }
    split_long_rows(m);
}
