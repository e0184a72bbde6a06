#include "model/sparse_head.h"
#include "kernel/gemm.h"

_Static_assert((int)LOGIT_PANEL == (int)PANEL, "panels of logits are panels of the head");

enum {
    TILES_PER_THREAD = 8, /* with several tiles, threads finish at nearly the same time */
    TILE_PANELS_MAX = 64,
};

static bool has_panel(const uint32_t *panels, int i)
{
    return panels[i / 32] >> i % 32 & 1;
}

/* Union of the sets; returns the number of panels, or -1 if a run needs all. */
static int unite(struct sparse_head *h, const struct lm_run *runs, int n_runs, int n)
{
    const int n_words = (n + 31) / 32;
    int n_set = 0;
    bool has_logits = false;

    memset(h->panels, 0, (size_t)n_words * sizeof(*h->panels));
    for (int i = 0; i < n_runs; i++) {
        if (runs[i].n_logits == 0)
            continue;
        if (!runs[i].panels)
            return -1;
        has_logits = true;
        for (int w = 0; w < n_words; w++)
            h->panels[w] |= runs[i].panels[w];
    }
    for (int w = 0; w < n_words; w++)
        n_set += __builtin_popcount(h->panels[w]);
    return has_logits ? n_set : -1;
}

void sparse_head_set(
    struct sparse_head *h, const struct lm_run *runs, int n_runs, int n_vocab, int n_threads)
{
    const int n = logit_panels(n_vocab), n_set = unite(h, runs, n_runs, n);
    const int step = MIN(MAX(n_set / (n_threads * TILES_PER_THREAD), 1), (int)TILE_PANELS_MAX);

    h->n_ranges = -1;
    if (n_set < 0 || 2 * n_set > n)
        return;
    h->n_ranges = 0;
    for (int at = 0; at < n; at++) {
        struct panel_range *last = h->n_ranges ? &h->ranges[h->n_ranges - 1] : NULL;
        if (!has_panel(h->panels, at))
            continue;
        if (last && last->to == at && at - last->from < step)
            last->to++;
        else
            h->ranges[h->n_ranges++] = (struct panel_range){ at, at + 1 };
    }
}
