/* x86_attn.c: divides attention into groups of query heads and key blocks, for all x86 sets.
 *
 * All query heads of a GQA group, of several rows if the group is small, share every key and value
 * that is loaded, up to attn_set.max_heads. Rows that share a group end in the same key block. Each
 * split of KV_SPLIT keys has a state of its own; the states are merged in order. */
#include "kernel/x86/x86_attn.h"

/* Group with two states: the merged previous splits, and the current split. */
struct split_states {
    struct head_group total, current;
};

/* Arguments of attn_attend. */
struct attention {
    const struct attn_set *set;
    const struct attn_args *a;
    void *work;
    float *scratch;
};

static struct attn_state state_of(const struct head_group *g, int h)
{
    return (
        struct attn_state){ g->max + h, g->sum + h, g->out + (size_t)h * (size_t)g->value_dim16 };
}

/* Number of keys of head i. All heads of a group begin in the same key block. */
static void set_keys(struct split_states *g, int i, int n_keys)
{
    g->total.n_keys[i] = g->current.n_keys[i] = n_keys;
    g->total.first_block = g->current.first_block = attn_first_block(g->total.a, n_keys);
}

/* Initialises a group with queries and states at `at`; returns the first free float after them.
 * a: as j->a, with the page table of the keys. */
static float *init_split_states(struct split_states *g, const struct attention *j,
    const struct attn_args *a, const struct query_range *range, float *at)
{
    int value_dim16 = (a->layout->value_dim + 15) / 16 * 16;
    int n = range->n_rows * range->n_heads;
    size_t n_out = (size_t)n * (size_t)value_dim16;

    at = attn_align(at);
    g->total = (struct head_group){ .a = a,
        .n = n,
        .dim = a->layout->head_dim,
        .value_dim = a->layout->value_dim,
        .value_dim16 = value_dim16,
        .n_q = n,
        .work = j->work };
    g->total.out = at;
    g->total.max = at + 2 * n_out;
    g->total.sum = g->total.max + n;
    at = j->set->set_queries(&g->total, j->a, range, g->total.sum + 3 * n);
    g->current = g->total;
    g->current.out = g->total.out + n_out;
    g->current.max = g->total.sum + n;
    g->current.sum = g->current.max + n;
    return at;
}

/* Attends to keys [from, to); `from` begins a block; is_end: no keys follow. */
static void attend_keys(
    const struct attn_set *set, const struct split_states *g, int from, int to, bool is_end)
{
    const struct head_group *total = &g->total, *current = &g->current;
    const int second_split = (total->first_block / KV_SPLIT + 1) * KV_SPLIT;

    for (int b = from; b < to; b += KV_BLOCK) {
        set->attend_block(b < second_split ? total : current, b, MIN(b + KV_BLOCK, to));
        bool ends = (b + KV_BLOCK) % KV_SPLIT == 0 || (is_end && b + KV_BLOCK >= to);
        if (b >= second_split && ends)
            for (int h = 0; h < total->n; h++)
                set->merge(state_of(total, h), state_of(current, h), total->value_dim);
    }
}

static void write_outputs(
    const struct attention *j, const struct head_group *g, const struct query_range *range)
{
    const struct attn_args *a = j->a;
    float max, sum;

    for (int i = 0; i < g->n; i++) {
        const int head = range->head + i % range->n_heads;
        float *out = a->out + attn_row_index(a, range->row + i / range->n_heads) * a->out_stride +
                     (size_t)head * (size_t)g->value_dim;
        if (a->sinks)
            j->set->merge(state_of(g, i), attn_sink_state(a, head, &max, &sum), g->value_dim);
        j->set->finish(state_of(g, i), out, g->value_dim);
    }
}

/* ---- rows of one sequence */

/* twelve rows of five heads are 24 ranges of 3 or 2 */
enum { MAX_RANGES = KV_MAX_ROW_HEADS / 2 };

struct range_list {
    int n, n_heads; /* sums over all rows */
    struct query_range ranges[MAX_RANGES];
};

/* Number of keys of the last row of a range, which is the largest. */
static int range_end(const struct attn_args *a, const struct query_range *range)
{
    return a->n_keys + range->row + range->n_rows - 1;
}

/* Attends key block by key block, so that a block stays in the cache until all ranges have read it.
 * Empties the list. */
static void attend_ranges(const struct attention *j, struct range_list *list)
{
    const struct attn_args *a = j->a;
    struct split_states groups[MAX_RANGES];
    float *at = j->scratch;
    int from = INT32_MAX, end = 0;

    for (int i = 0; i < list->n; i++) {
        const struct query_range *range = &list->ranges[i];
        at = init_split_states(&groups[i], j, a, range, at);
        for (int h = 0; h < groups[i].total.n; h++)
            set_keys(&groups[i], h, a->n_keys + range->row + h / range->n_heads);
        from = MIN(from, groups[i].total.first_block);
        end = MAX(end, range_end(a, range));
    }
    for (int b = from; b < end; b += KV_BLOCK)
        for (int i = 0; i < list->n; i++) {
            const int to = MIN(b + KV_BLOCK, range_end(a, &list->ranges[i]));
            if (b >= groups[i].total.first_block && b < to)
                attend_keys(j->set, &groups[i], b, to, to == range_end(a, &list->ranges[i]));
        }
    for (int i = 0; i < list->n; i++)
        write_outputs(j, &groups[i].total, &list->ranges[i]);
    list->n = list->n_heads = 0;
}

/* Adds a range, after attending to the list if there is no room. The keys of latent attention are
 * read by many query heads; otherwise ranges are processed one by one. */
static void add_range(
    const struct attention *j, struct range_list *list, const struct query_range *range)
{
    const int n_heads = range->n_rows * range->n_heads;
    const int most = j->a->layout->is_latent ? MAX_RANGES : 1;

    if (list->n == most || list->n_heads + n_heads > MAX(KV_MAX_ROW_HEADS, j->a->n_q))
        attend_ranges(j, list);
    list->ranges[list->n++] = *range;
    list->n_heads += n_heads;
}

/* Divides n into parts of at most `most`; returns the size of the largest of similar parts. */
static int part_of(int n, int most)
{
    int n_parts = (n + most - 1) / most;

    return (n + n_parts - 1) / n_parts;
}

/* One row: the state of a split is stored where attend_merge reads it. */
static void attend_split(const struct attention *j, const struct query_range *range, int split)
{
    const struct attn_args *a = j->a;
    struct split_states g;

    init_split_states(&g, j, a, range, j->scratch);
    for (int i = 0; i < g.total.n; i++)
        set_keys(&g, i, a->n_keys);
    const int to = MIN((split + 1) * KV_SPLIT, a->n_keys);
    struct attn_state at = attn_state_at(a, split, range->head);
    g.current.max = at.max;
    g.current.sum = at.sum;
    g.current.out = at.out;
    for (int b = MAX(split * KV_SPLIT, g.current.first_block); b < to; b += KV_BLOCK)
        j->set->attend_block(&g.current, b, MIN(b + KV_BLOCK, to));
}

/* A split stays in the cache until all query heads have read it. */
static void attend_splits(const struct attention *j)
{
    const struct attn_args *a = j->a;
    const int n_heads = part_of(a->n_q, j->set->max_heads);

    for (int i = a->split_from; i < a->split_to; i++)
        for (int h = 0; h < a->n_q; h += n_heads)
            attend_split(j, &(struct query_range){ 0, 1, h, MIN(n_heads, a->n_q - h) }, i);
}

/* Number of rows that can share a group. */
static int max_rows(const struct attention *j)
{
    return MAX(j->set->max_heads / j->a->n_q, 1);
}

/* Number of rows from `row` on that are processed together. They end in the same key block, and
 * begin in the same one. */
static int rows_together(const struct attention *j, int row)
{
    int n_keys = j->a->n_keys + row;

    if (n_keys <= 0)
        return 1;
    int to_block_end = (n_keys + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK - n_keys + 1;
    int n_same = MIN(j->a->n_rows - row, to_block_end);
    if (j->a->window)
        n_same = MIN(n_same, attn_first_block(j->a, n_keys) + KV_BLOCK + j->a->window - n_keys);
    int n = part_of(n_same, max_rows(j));
    return j->set->can_group && !j->set->can_group(j->a, row, n) ? 1 : n;
}

static void attend_sequence_rows(const struct attention *j)
{
    const struct attn_args *a = j->a;
    int n_heads = part_of(a->n_q, j->set->max_heads), n;
    struct range_list list;

    list.n = list.n_heads = 0;
    for (int row = 0; row < a->n_rows; row += n) {
        n = rows_together(j, row);
        if (a->n_keys + row <= 0) {
            memset(a->out + (size_t)row * a->out_stride, 0,
                (size_t)a->n_q * (size_t)a->layout->value_dim * sizeof(float));
            continue;
        }
        for (int h = 0; h < a->n_q; h += n_heads) {
            const struct query_range range = { row, n, h, MIN(n_heads, a->n_q - h) };
            add_range(j, &list, &range);
        }
    }
    if (list.n > 0)
        attend_ranges(j, &list);
}

/* ---- rows of several sequences */

/* Attends to the keys of row i of a range after the shared prefix, with the states of the group. */
static void attend_own_keys(const struct attention *j, const struct split_states *shared_states,
    const struct query_range *range, int i)
{
    const struct attn_row *row = &j->a->rows[range->row + i];
    struct attn_args own_args = *j->a;
    struct split_states g = *shared_states;
    struct head_group *states[] = { &g.total, &g.current };

    own_args.pages = row->pages;
    for (int s = 0; s < 2; s++) {
        struct head_group *one = states[s];
        int first = i * range->n_heads;
        one->a = &own_args;
        one->n = range->n_heads;
        one->q = (const uint8_t *)one->q + (size_t)first * one->q_head_bytes;
        one->out += first * one->value_dim16;
        one->max += first;
        one->sum += first;
    }
    for (int h = 0; h < range->n_heads; h++)
        set_keys(&g, h, row->n_keys);
    attend_keys(j->set, &g, j->a->n_shared, row->n_keys, true);
    write_outputs(
        j, &g.total, &(struct query_range){ range->row + i, 1, range->head, range->n_heads });
}

/* Attends to the shared prefix split by split, so that a split stays in the cache until all groups
 * have read it, and then to each row's own keys. */
static void attend_shared_rows(const struct attention *j)
{
    const struct attn_args *a = j->a;
    const int together = max_rows(j), n_heads = part_of(a->n_q, j->set->max_heads);
    struct attn_args shared = *a;
    struct query_range ranges[MAX_RANGES];
    struct split_states groups[MAX_RANGES];
    float *at = j->scratch;
    int n = 0;

    shared.pages = a->rows[0].pages;
    for (int row = 0; row < a->n_rows; row += together)
        for (int h = 0; h < a->n_q; h += n_heads, n++) {
            CHECK(n < MAX_RANGES);
            ranges[n] = (struct query_range){ row, MIN(together, a->n_rows - row), h,
                MIN(n_heads, a->n_q - h) };
            at = init_split_states(&groups[n], j, &shared, &ranges[n], at);
            for (int i = 0; i < groups[n].total.n; i++)
                set_keys(&groups[n], i, a->n_shared);
        }
    for (int from = 0; from < a->n_shared; from += KV_SPLIT)
        for (int i = 0; i < n; i++)
            attend_keys(j->set, &groups[i], from, MIN(from + KV_SPLIT, a->n_shared), false);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < ranges[i].n_rows; r++)
            attend_own_keys(j, &groups[i], &ranges[i], r);
}

void attn_attend(const struct attn_set *set, const struct attn_args *a, void *work, float *scratch)
{
    struct attention j = { set, a, work, scratch };
    struct attn_args one;

    if (a->states) {
        attend_splits(&j);
        return;
    }
    if (!a->rows) {
        attend_sequence_rows(&j);
        return;
    }
    if (a->n_rows > 1 && !a->window) {
        attend_shared_rows(&j);
        return;
    }
    for (int i = 0; i < a->n_rows; i++) {
        one = attn_args_of_row(a, i);
        j.a = &one;
        attend_sequence_rows(&j);
    }
}
