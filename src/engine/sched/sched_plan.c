/* sched_plan.c: selects the batch rows of one step: decode rows, prefill rows within the prefill
 * budget, then newly admitted sequences. sched.h describes the rules.
 *
 * Owner: the engine thread. */
#include "engine/sched/sched_in.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* First row with logits; each such row needs one event credit. The last known row always has
 * logits. For prompt logprobs, prompt rows have logits from score_from on. */
static int logits_begin(const struct seq *s)
{
    if (s->is_scripted)
        return s->n_tokens;
    return s->score_from < s->n_prompt - 1 ? MAX(s->n_kv, s->score_from) : s->n_tokens - 1;
}

/* More than the row of the next token is missing. */
static bool is_prefilling(const struct seq *s)
{
    return s->n_tokens - s->n_kv > 1;
}

/* Missing rows that may be computed now. */
static int plannable_rows(const struct seq *s)
{
    return s->n_tokens - s->n_kv - s->is_paused;
}

/* Partial rows share the reads of the layer's weights and of the prompt's KV. */
enum { PARTIAL_ROWS = 16 };

static enum prefill_class prefill_class_of(const struct sched *sc, const struct seq *s)
{
    return s->n_admit_rows > sc->l.prefill_chunk ? PREFILL_LONG : PREFILL_ALL;
}

/* The time of all missing rows is at most `share`, an equal share of the short-prefill budget. */
static bool fits_equal_share(const struct sched *sc, const struct seq *s, double share)
{
    return step_time_of_rows(&sc->step_time, s->n_kv, s->n_tokens - s->n_kv) <= share;
}

/* Remaining budget of a class in ns; the budget of long prompts is part of that of all prompts. */
static double class_budget(const struct planner *pl, enum prefill_class kind)
{
    return MIN(pl->prefill_budget_ns[kind], pl->prefill_budget_ns[PREFILL_ALL]);
}

/* Prefill budget of `s` in this step in ns. Long prompts split the remaining long budget evenly.
 * Short prompts run one after the other, since with equal shares all of them would finish as late
 * as the last. A short prompt that an equal share completes in this step does not wait for the
 * others: its time is reserved from the budget of the others. */
static double prefill_budget_of(struct sched *sc, const struct seq *s)
{
    struct planner *pl = &sc->planner;
    const enum prefill_class kind = prefill_class_of(sc, s);
    double left = class_budget(pl, kind);

    if (kind == PREFILL_LONG)
        return left / MAX(pl->n_prefills[kind], 1);
    if (fits_equal_share(sc, s, pl->short_prefill_share_ns))
        return left;
    return left - MAX(pl->short_prefill_reserved_ns, 0);
}

/* No sequence of higher rank has partial rows in this step. */
static bool may_run_partial(const struct sched *sc, const struct seq *s)
{
    return !sc->planner.has_partial && sc->l.n_layers > 1 && is_prefilling(s);
}

/* Number of the n rows that pass all layers; `fit` rows are within the budget of the sequence. A
 * sequence gets at least min(n, MIXED_PREFILL_ROWS_MIN) rows: the first prefill run of a step in
 * any case, a later one if the budget of its class allows it. Otherwise that class is closed for
 * this step. */
static int full_rows_in_budget(struct sched *sc, const struct seq *s, int n, int fit)
{
    struct planner *pl = &sc->planner;
    const int least = MIN(n, (int)MIXED_PREFILL_ROWS_MIN);
    const enum prefill_class kind = prefill_class_of(sc, s);

    if (fit >= least)
        return fit;
    if (!pl->has_prefill_rows)
        return least;
    fit = step_time_rows_within(&sc->step_time, s->n_kv, class_budget(pl, kind), least);
    if (fit == 0)
        pl->prefill_budget_ns[kind] = 0;
    return fit;
}

/* Number of the remaining layers that n rows pass within `ns`; at least one. */
static int layers_in_budget(const struct sched *sc, const struct seq *s, int n, double ns)
{
    const int left = sc->l.n_layers - s->layer;
    double layer_ns = step_time_of_rows(&sc->step_time, s->n_kv, n) / sc->l.n_layers;
    int fit = left * layer_ns <= ns ? left : MAX((int)(ns / layer_ns), 1);

    return sc->l.max_step_layers ? MIN(fit, sc->l.max_step_layers) : fit;
}

/* Number of partial rows, at most n, that uses most of the `ns`. More rows share the reads of
 * weights and KV, so a smaller number must use 5 % more time to be preferred. */
static int partial_rows_in_budget(const struct sched *sc, const struct seq *s, int n, double ns)
{
    int best = 1;
    double best_ns = 0;

    for (int i = MIN(MIN(n, (int)PARTIAL_ROWS), sc->l.max_partial_rows); i > 0; i--) {
        double layer_ns = step_time_of_rows(&sc->step_time, s->n_kv, i) / sc->l.n_layers;
        double used = layer_ns * layers_in_budget(sc, s, i, ns);
        if (used <= ns && used > best_ns * 1.05) {
            best = i;
            best_ns = used;
        }
    }
    return best;
}

/* True if the budget allows one layer of n rows. The first prefill run of a step is always allowed.
 * A later one that does not fit closes its class for this step. */
static bool has_budget_for_layer(struct sched *sc, const struct seq *s, int n)
{
    struct planner *pl = &sc->planner;
    const enum prefill_class kind = prefill_class_of(sc, s);
    double layer_ns = step_time_of_rows(&sc->step_time, s->n_kv, n) / sc->l.n_layers;

    if (!pl->has_prefill_rows || layer_ns <= class_budget(pl, kind))
        return true;
    pl->prefill_budget_ns[kind] = 0;
    return false;
}

/* Number of the n rows to compute in this step; sets *ns to the time budget of plan_layers. */
static int prefill_rows_in_budget(struct sched *sc, struct seq *s, int n, double *ns)
{
    struct planner *pl = &sc->planner;
    int fit, enough = sc->partial_seq == NO_SEQ ? PARTIAL_ROWS : MIXED_PREFILL_ROWS_MIN;

    *ns = prefill_budget_of(sc, s);
    pl->n_prefills[prefill_class_of(sc, s)]--;
    if (prefill_class_of(sc, s) == PREFILL_ALL &&
        fits_equal_share(sc, s, pl->short_prefill_share_ns))
        pl->short_prefill_reserved_ns -=
            step_time_of_rows(&sc->step_time, s->n_kv, s->n_tokens - s->n_kv);
    if (s->n_partial_rows > 0)
        return has_budget_for_layer(sc, s, n) ? n : 0;
    fit = step_time_rows_within(&sc->step_time, s->n_kv, *ns, n);
    if (fit == 0 && pl->has_prefill_rows && prefill_class_of(sc, s) == PREFILL_ALL)
        return 0; /* earlier short prompts have used the budget */
    /* If another sequence has partial rows, which a partial run of `s` would discard, `s` gets full
     * rows as long as MIXED_PREFILL_ROWS_MIN of them fit. */
    if (!may_run_partial(sc, s) || fit >= MIN(n, enough)) {
        *ns = INFINITY; /* full_rows_in_budget has applied the budget */
        return full_rows_in_budget(sc, s, n, fit);
    }
    n = partial_rows_in_budget(sc, s, n, *ns);
    return has_budget_for_layer(sc, s, n) ? n : 0;
}

/* Time limit of a run in a step without decode rows. The limit bounds the wait of cancellations and
 * new requests; only the first run of the step has one. */
static double prefill_only_limit(const struct sched *sc)
{
    return sc->l.max_prefill_step_ns > 0 && sc->planner.rows_left == sc->l.max_rows
               ? sc->l.max_prefill_step_ns
               : INFINITY;
}

/* In a step without decode rows, a prompt waits for the next step if it would make this step longer
 * than max_prefill_step_ns. Otherwise all prompts of the step would finish as late as the last. */
static bool exceeds_step_limit(const struct sched *sc, const struct seq *s, int n)
{
    return sc->l.max_prefill_step_ns > 0 && sc->l.mixed_step_factor > 0 &&
           sc->planner.prefill_ns > 0 && s->n_partial_rows == 0 &&
           sc->planner.prefill_ns + step_time_of_rows(&sc->step_time, s->n_kv, n) >
               sc->l.max_prefill_step_ns;
}

/* Fraction of the layers that the planned rows pass. */
static double layer_fraction(const struct sched *sc, const struct seq *s)
{
    return s->plan_end_layer ? (double)(s->plan_end_layer - s->layer) / sc->l.n_layers : 1;
}

static void add_partial_size(const struct sched *sc, const struct seq *s, struct step_plan *p)
{
    struct step_size own = { 0 };

    step_size_add(&own, s->n_kv, s->plan_rows);
    p->partial_fraction = layer_fraction(sc, s);
    p->size.rows += own.rows * p->partial_fraction;
    p->size.keys += own.keys * p->partial_fraction;
}

static void charge_prefill_budget(struct sched *sc, const struct seq *s)
{
    struct planner *pl = &sc->planner;

    if (!is_prefilling(s))
        step_size_add(&pl->decode_size, s->n_kv, s->plan_rows);
    if (!is_prefilling(s) || s->plan_rows == 0)
        return;
    double ns = step_time_of_rows(&sc->step_time, s->n_kv, s->plan_rows) * layer_fraction(sc, s);
    pl->prefill_ns += ns;
    if (!pl->is_prefill_limited)
        return;
    pl->prefill_budget_ns[PREFILL_ALL] -= ns;
    if (prefill_class_of(sc, s) == PREFILL_LONG)
        pl->prefill_budget_ns[PREFILL_LONG] -= ns;
    pl->has_prefill_rows = true;
}

/* For a model with state slots: returns true if a run of this plan computes the start of `s`, so
 * that `s` should wait. That run ends, at the latest, where the two prompts diverge, and leaves a
 * checkpoint there. */
static bool wait_for_checkpoint(struct sched *sc, struct seq *s)
{
    struct planner *pl = &sc->planner;

    for (int i = 0; i < pl->n_prefill && &sc->seqs[pl->prefill[i]] != s; i++) {
        struct seq *f = &sc->seqs[pl->prefill[i]];
        int n = f->plan_rows > 0 && !f->plan_end_layer ? prefix_common(f, s) : 0;
        if (n == 0)
            continue;
        if (n >= f->n_prompt - STATE_LOG_ROWS)
            /* the checkpoint at the end of the prompt covers the positions of the log */
            return true;
        int excess = MAX(f->n_kv + f->plan_rows - n, 0);
        f->plan_rows -= excess;
        pl->rows_left += excess;
        if (excess > 0) { /* the last row of the prompt is not computed */
            pl->logits_left += f->plan_logits;
            f->plan_logits = 0;
        }
        if (f->checkpoint_at <= f->n_kv || n < f->checkpoint_at)
            f->checkpoint_at = n;
        return true;
    }
    return false;
}

/* Takes over pages that other sequences have computed for the same prefix. Returns true if a run of
 * this plan computes the very next page of `s`, so that `s` should wait for it. */
static bool reuse_computed_prefix(struct sched *sc, struct seq *s)
{
    struct planner *pl = &sc->planner;

    prefix_insert(s, sc->l.tree);
    if (s->root.i == TREE_NONE.i || !is_prefilling(s))
        return false;
    if (sc->l.states) {
        if (s->n_kv > 0)
            return false;
        if (wait_for_checkpoint(sc, s))
            return true;
        prefix_catch_up(s, sc->l.tree);
        return false;
    }
    prefix_catch_up(s, sc->l.tree);
    for (int i = 0; i < pl->n_prefill && &sc->seqs[pl->prefill[i]] != s; i++)
        if (prefix_computes_next(&sc->seqs[pl->prefill[i]], s))
            return true;
    return false;
}

/* Limits the planned rows to the layers that fit into `ns`, if partial rows are allowed. */
static void plan_layers(struct sched *sc, struct seq *s, double ns)
{
    int n = s->plan_rows;

    if (s->n_partial_rows == 0 && (n == 0 || n > sc->l.max_partial_rows || !may_run_partial(sc, s)))
        return;
    int end = s->layer + layers_in_budget(sc, s, n, ns);
    if (s->layer == 0 && end == sc->l.n_layers)
        return;
    if (sc->partial_seq != NO_SEQ &&
        &sc->seqs[sc->partial_seq] != s) /* lower rank, not planned yet */
        sched_partial_discard(sc, &sc->seqs[sc->partial_seq]);
    s->plan_end_layer = end;
    sc->planner.has_partial = true;
    if (end < sc->l.n_layers)
        s->plan_logits = 0;
}

/* Number of the n next rows up to the position of the next checkpoint. */
static int rows_to_checkpoint(const struct sched *sc, const struct seq *s, int n)
{
    if (!sc->l.states || !sc->l.tree || s->root.i == TREE_NONE.i)
        return n;
    int at = prefix_next_checkpoint(s, s->n_kv);
    return at < s->n_prompt ? MIN(n, at - s->n_kv) : n;
}

/* Number of rows, at most n, that the limits of the step leave to `s`, apart from its budget. */
static int rows_in_limits(const struct sched *sc, const struct seq *s, int n)
{
    const struct planner *pl = &sc->planner;

    n = MIN(n, pl->rows_left);
    return MIN(n, logits_begin(s) - s->n_kv + MIN(s->credits, pl->logits_left));
}

/* The states of the layers that a partial run of many rows has passed cannot resume after fewer
 * rows. */
static void discard_shortened_partial(struct sched *sc, struct seq *s)
{
    if (sc->l.states && s->n_partial_rows > STATE_LOG_ROWS &&
        rows_in_limits(sc, s, s->n_partial_rows) < s->n_partial_rows)
        sched_partial_discard(sc, s);
}

/* Plans up to a chunk of rows of `s`; takes pages from other sequences if necessary. */
static void plan_seq_rows(struct sched *sc, struct seq *s, uint64_t now)
{
    struct planner *pl = &sc->planner;

    discard_shortened_partial(sc, s);
    if (s->n_partial_rows == 0 && reuse_computed_prefix(sc, s))
        return;
    sched_release_windows(sc, s);
    int n = s->n_partial_rows > 0 ? s->n_partial_rows : MIN(plannable_rows(s), sc->l.prefill_chunk);
    int logits_from = logits_begin(s);
    double ns = INFINITY;

    n = MIN(n, pl->rows_left);
    if (s->is_paused && (n <= 0 || n > plannable_rows(s)))
        return;
    if (s->n_partial_rows == 0)
        n = rows_to_checkpoint(sc, s, n);
    if (is_prefilling(s) && pl->is_prefill_limited)
        n = prefill_rows_in_budget(sc, s, n, &ns);
    else if (is_prefilling(s) && exceeds_step_limit(sc, s, n))
        return;
    else if (is_prefilling(s))
        ns = prefill_only_limit(sc);
    n = rows_in_limits(sc, s, n);
    if (n <= 0)
        return;
    s->plan_rows = sched_get_pages(sc, s, s->n_kv + n, now) - s->n_kv;
    s->plan_rows = sched_get_slots(sc, s, s->plan_rows, now);
    s->plan_logits = MAX(s->n_kv + s->plan_rows - logits_from, 0);
    plan_layers(sc, s, ns);
    pl->rows_left -= s->plan_rows;
    pl->logits_left -= s->plan_logits;
    charge_prefill_budget(sc, s);
}

static void plan_seq(struct sched *sc, struct seq *s, uint64_t now)
{
    sc->planner.promised -= sched_missing_pages(s);
    plan_seq_rows(sc, s, now);
    sc->planner.promised += sched_missing_pages(s);
}

/* If the next row is written to a page that only this sequence holds, so are the rows up to the end
 * of that page: until then is_decode_only needs no further checks. */
static void update_decode_only(const struct sched *sc, struct seq *s)
{
    const int page = s->n_kv / PAGE_TOKENS;

    if (s->n_tokens - s->n_kv == 1 && (s->is_scripted || s->score_from >= s->n_prompt - 1) &&
        (s->n_tree_pages == page || s->root.i == TREE_NONE.i) && page < s->n_pages &&
        page_refs(sc->pool, s->pages[page]) == 1 && !seq_shares_window_tail(s, sc->l.windows) &&
        (!sc->l.states || !seq_needs_slot(s, sc->l.states)) && s->slot_out.i == STATE_NONE.i)
        s->decode_only_until = (page + 1) * PAGE_TOKENS;
}

/* Fast path of nearly all sequences of a step; reads only their first cache line. */
static bool is_decode_only(const struct seq *s)
{
    return s->n_kv < s->decode_only_until && s->n_tokens - s->n_kv == 1 && !s->is_paused &&
           (s->is_scripted || s->credits > 0);
}

/* Plans decode-only sequences immediately: the batch has a row for each running sequence, and they
 * take no pages from others. The other sequences are collected in lists, since planning one may
 * preempt others. */
static void list_running(struct sched *sc)
{
    struct planner *pl = &sc->planner;
    int n_decode_only = 0;
    int64_t keys = 0;

    pl->n_decode = pl->n_prefill = 0;
    pl->promised = 0; /* decode-only sequences need no more pages */
    pl->has_promised = true;
    for (uint32_t id = sc->running.first; id != NO_SEQ; id = sc->seqs[id].running.next) {
        struct seq *s = &sc->seqs[id];
        if (is_decode_only(s)) {
            s->plan_rows = 1;
            s->plan_logits = !s->is_scripted;
            pl->logits_left -= s->plan_logits;
            n_decode_only++;
            keys += s->n_kv + 1;
            continue;
        }
        pl->promised += sched_missing_pages(s);
        if (is_prefilling(s))
            pl->prefill[pl->n_prefill++] = id;
        else
            pl->decode[pl->n_decode++] = id;
    }
    pl->rows_left -= n_decode_only;
    pl->decode_size = (struct step_size){ n_decode_only, (double)keys };
}

static void plan_listed(struct sched *sc, const uint32_t *ids, int n, uint64_t now)
{
    for (int i = 0; i < n; i++)
        if (sc->seqs[ids[i]].state == SEQ_RUNNING)
            plan_seq(sc, &sc->seqs[ids[i]], now);
}

/* Prefill budget of all prompts, short ones included, in a step whose decode rows take
 * `decode_only_ns`. The limit is relative to a step with one decode row, since the resulting
 * inter-token latency is then the same for small and large batches, and the budget is largest if
 * few sequences decode. With many decode rows the budget is at least `decode_only_ns` (factor
 * 2). */
static double total_prefill_budget(const struct sched *sc, double decode_only_ns)
{
    const struct step_size *d = &sc->planner.decode_size;
    const struct step_size one = { 1, d->keys / MAX(d->rows, 1) };
    double factor = sc->l.mixed_step_factor_short;

    if (factor == 0)
        return 1e300;
    double max_ns =
        MAX(factor * step_time_of(&sc->step_time, &one), MIN(factor, 2) * decode_only_ns);
    return MAX(max_ns, sc->l.mixed_step_factor * decode_only_ns) - decode_only_ns;
}

/* Reserves the time of the short prompts that an equal share completes in this step. */
static void reserve_short_prefill(struct sched *sc)
{
    struct planner *pl = &sc->planner;

    pl->short_prefill_share_ns =
        pl->prefill_budget_ns[PREFILL_ALL] / MAX(pl->n_prefills[PREFILL_ALL], 1);
    pl->short_prefill_reserved_ns = 0;
    for (int i = 0; i < pl->n_prefill; i++) {
        const struct seq *s = &sc->seqs[pl->prefill[i]];
        if (prefill_class_of(sc, s) == PREFILL_ALL &&
            fits_equal_share(sc, s, pl->short_prefill_share_ns))
            pl->short_prefill_reserved_ns +=
                step_time_of_rows(&sc->step_time, s->n_kv, s->n_tokens - s->n_kv);
    }
}

/* Computes the prefill budgets; the decode rows are planned. */
static void init_prefill_budgets(struct sched *sc)
{
    struct planner *pl = &sc->planner;
    double decode_only_ns = step_time_of(&sc->step_time, &pl->decode_size);

    pl->has_prefill_rows = false;
    pl->is_prefill_limited = sc->l.mixed_step_factor > 0 && pl->decode_size.rows > 0;
    pl->prefill_ns = 0;
    pl->prefill_budget_ns[PREFILL_LONG] = (sc->l.mixed_step_factor - 1) * decode_only_ns;
    pl->prefill_budget_ns[PREFILL_ALL] = total_prefill_budget(sc, decode_only_ns);
    pl->n_prefills[PREFILL_LONG] = pl->n_prefills[PREFILL_ALL] = 0;
    for (int i = 0; i < pl->n_prefill; i++)
        pl->n_prefills[prefill_class_of(sc, &sc->seqs[pl->prefill[i]])]++;
    reserve_short_prefill(sc);
}

static void plan_waiting(struct sched *sc, uint64_t now)
{
    struct planner *pl = &sc->planner;

    while (sc->counts.running < (uint32_t)sc->l.max_batch && pl->rows_left > 0 &&
           pl->logits_left > 0) {
        uint32_t id = sched_first_waiting(sc, now);
        if (id == NO_SEQ)
            return;
        if (!sched_admit(sc, &sc->seqs[id], now)) {
            if (sc->seqs[id].state == SEQ_WAITING)
                return;
            continue; /* parked until its pages are read from the offload tier */
        }
        if (is_prefilling(&sc->seqs[id]) && pl->n_prefill < 2 * sc->l.max_batch)
            /* Room for two batches: listed sequences may be preempted and others admitted. */
            pl->prefill[pl->n_prefill++] = id;
        plan_seq(sc, &sc->seqs[id], now);
    }
}

/* Adds the pages of positions from .. upto - 1 that hold KV of another tenant to the clears. */
static void clear_pages(
    struct sched *sc, struct step_plan *p, const struct seq *s, int from, int upto)
{
    for (int i = pages_for(from); i < pages_for(upto); i++)
        if (page_claim(sc->pool, s->pages[i], s->writer))
            p->clears[p->n_clears++] = s->pages[i];
    for (int i = pages_for(from); sc->l.windows && i < pages_for(upto); i++)
        if (page_claim(sc->l.windows, s->windows[i], s->writer))
            p->window_clears[p->n_window_clears++] = s->windows[i];
}

static void emit_copy(struct page_pool *pool, const struct seq *s, struct page_copy *copy,
    struct page_copy *list, int *n)
{
    if (copy->from.i == PAGE_NONE.i)
        return;
    list[(*n)++] = *copy;
    (void)!page_claim(pool, copy->to, s->writer); /* the copy overwrites the whole page */
    page_unref(pool, copy->from);                 /* no page is taken between here and the copy */
    *copy = PAGE_COPY_NONE;
}

static void emit_copies(struct sched *sc, struct step_plan *p, struct seq *s)
{
    emit_copy(sc->pool, s, &s->copy, p->copies, &p->n_copies);
    emit_copy(sc->l.windows, s, &s->window_copy, p->window_copies, &p->n_window_copies);
}

static bool is_partial(const struct sched *sc, int end_layer)
{
    return end_layer > 0 && end_layer < sc->l.n_layers;
}

/* A run that changes the state in place: an interrupted pass leaves it resumable at n_kv only. */
static void begin_state_run(const struct sched *sc, struct seq *s)
{
    if (sc->l.states && s->slot_out.i == STATE_NONE.i)
        s->slot_from = s->n_kv;
}

/* The run of n rows has passed all layers. */
static void commit_state_run(const struct sched *sc, struct seq *s, int n)
{
    if (!sc->l.states || s->slot_out.i == STATE_NONE.i)
        return;
    if (s->slot.i != STATE_NONE.i)
        page_unref(sc->l.states, s->slot);
    s->slot = s->slot_out;
    s->slot_out = STATE_NONE;
    s->slot_from = s->n_kv + MAX(n - (int)STATE_LOG_ROWS, 0);
}

static void emit_rows(struct sched *sc, struct step_plan *p, struct seq *s)
{
    if (s->n_kv % PAGE_TOKENS == 0 || s->plan_rows > 1)
        clear_pages(sc, p, s, s->n_kv, s->n_kv + s->plan_rows);
    p->n_prefill_runs += is_prefilling(s);
    if (s->plan_end_layer)
        add_partial_size(sc, s, p);
    else
        step_size_add(&p->size, s->n_kv, s->plan_rows);
    p->n_rows += s->plan_rows;
    begin_state_run(sc, s);
    p->runs[p->n_runs++] = (struct plan_run){
        .seq = { sched_index(sc, s) },
        .s = s,
        .pos = s->n_kv,
        .n = s->plan_rows,
        .n_logits = s->plan_logits,
        .from_layer = s->plan_end_layer ? s->layer : 0,
        .end_layer = s->plan_end_layer,
        .yields_token = s->n_kv + s->plan_rows == s->n_tokens && !is_partial(sc, s->plan_end_layer),
        .is_first = !s->was_planned,
    };
    s->was_planned = true;
    s->plan_rows = s->plan_logits = s->plan_end_layer = 0;
    update_decode_only(sc, s);
}

static void emit_decode_row(struct sched *sc, struct step_plan *p, struct seq *s)
{
    begin_state_run(sc, s);
    p->runs[p->n_runs++] = (struct plan_run){
        .seq = { sched_index(sc, s) },
        .s = s,
        .pos = s->n_kv,
        .n = 1,
        .n_logits = s->plan_logits,
        .yields_token = true,
    };
    s->plan_rows = s->plan_logits = 0;
}

static void emit_plan(struct sched *sc, struct step_plan *p)
{
    int n_decode_only = 0;
    int64_t keys = 0;

    p->n_runs = p->n_copies = p->n_clears = p->n_rows = p->n_prefill_runs = 0;
    p->n_window_copies = p->n_window_clears = 0;
    p->size = (struct step_size){ 0 };
    p->partial_fraction = 1;
    for (uint32_t id = sc->running.first; id != NO_SEQ; id = sc->seqs[id].running.next) {
        struct seq *s = &sc->seqs[id];
        if (s->plan_rows == 1 && is_decode_only(s)) {
            n_decode_only++;
            keys += s->n_kv + 1;
            emit_decode_row(sc, p, s);
            continue;
        }
        emit_copies(sc, p, s);
        if (s->plan_rows > 0)
            emit_rows(sc, p, s);
    }
    p->n_rows += n_decode_only;
    p->size.rows += n_decode_only;
    p->size.keys += (double)keys;
    p->has_prefill = p->n_prefill_runs > 0;
    p->has_decode = p->n_prefill_runs < p->n_runs;
}

void sched_plan(struct sched *sc, uint64_t now, struct step_plan *p)
{
    struct planner *pl = &sc->planner;

    pl->rows_left = sc->l.max_rows;
    pl->logits_left = sc->l.max_logits;
    pl->is_prefill_limited = pl->has_partial = false;
    if (sc->l.tree)
        tree_set_time(sc->l.tree, now);
    pl->plan = p;
    pl->has_promised = false;
    p->n_swaps = 0;
    sched_apply_fairness(sc, now);
    list_running(sc);
    plan_listed(sc, pl->decode, pl->n_decode, now);
    init_prefill_budgets(sc);
    plan_listed(sc, pl->prefill, pl->n_prefill, now);
    plan_waiting(sc, now);
    emit_plan(sc, p);
    pl->plan = NULL;
}

/* Charges the tenant for positions that are computed for the first time. */
static void charge_tenant(struct sched *sc, struct seq *s, int pos, int n)
{
    int from = MAX(pos, s->n_charged), end = pos + n;
    int n_prompt = MAX(MIN(end, s->n_prompt) - from, 0),
        n_output = MAX(end - MAX(from, s->n_prompt), 0);

    s->n_charged = MAX(end, s->n_charged);
    if (n_prompt + n_output > 0)
        tenants_charge(&sc->tenants, s->tenant,
            n_prompt * (double)CHARGE_PROMPT + n_output * (double)CHARGE_OUTPUT);
}

void sched_commit(struct sched *sc, const struct step_plan *p)
{
    for (int i = 0; i < p->n_runs; i++) {
        struct seq *s = p->runs[i].s;
        int n = p->runs[i].n - p->runs[i].n_drafts;
        if (s->n_charged == s->n_kv && is_decode_only(s) && s->n_kv >= s->n_prompt) {
            tenants_charge(&sc->tenants, s->tenant, CHARGE_OUTPUT);
            s->n_charged = ++s->n_kv;
            continue;
        }
        if (is_partial(sc, p->runs[i].end_layer)) {
            sc->counts.partial_runs++;
            sc->partial_seq = p->runs[i].seq.i;
            s->n_partial_rows = n;
            s->layer = p->runs[i].end_layer;
            continue;
        }
        sched_partial_end(sc, s);
        charge_tenant(sc, s, p->runs[i].pos, n);
        commit_state_run(sc, s, p->runs[i].n);
        s->n_kv += n;
        if (sc->l.tree && (sc->l.states || sc->l.windows))
            prefix_checkpoint(s, sc->l.tree, p->runs[i].pos);
        sched_release_windows(sc, s);
    }
}

/* ---- speculative decoding */

static void add_drafts(struct sched *sc, struct step_plan *p, int i, int n)
{
    struct plan_run *r = &p->runs[i];
    struct step_size size = { 0 };

    step_size_add(&size, r->pos + MIN(r->n, r->n + n), abs(n));
    p->size.rows += n < 0 ? -size.rows : size.rows;
    p->size.keys += n < 0 ? -size.keys : size.keys;
    r->n += n;
    r->n_logits += n;
    r->n_drafts += n;
    p->n_rows += n;
    sc->planner.rows_left -= n;
    sc->planner.logits_left -= n;
}

int sched_extend(struct sched *sc, struct step_plan *p, int i, int n)
{
    struct plan_run *r = &p->runs[i];
    struct seq *s = sched_seq(sc, r->seq);

    CHECK(r->yields_token && !s->is_scripted && s->state == SEQ_RUNNING);
    n = MIN(n, MIN(sc->planner.rows_left, sc->planner.logits_left));
    n = MIN(n, MIN(s->credits - r->n_logits, sc->l.prefill_chunk - r->n));
    if (sc->l.states) /* the state must resume after the known tokens if all drafts are rejected */
        n = MIN(n, (int)STATE_LOG_ROWS - (s->slot_out.i == STATE_NONE.i ? r->n : r->n_drafts));
    if (n <= 0)
        return 0;
    int from = r->pos + r->n, got = seq_reserve(s, &sc->pools, from + n);
    n = MIN(got - from, n);
    clear_pages(sc, p, s, from, from + n);
    add_drafts(sc, p, i, n);
    return n;
}

void sched_retract(struct sched *sc, struct step_plan *p, int i, int n)
{
    CHECK(n >= 0 && n <= p->runs[i].n_drafts);
    add_drafts(sc, p, i, -n);
}

void sched_accept(struct sched *sc, seq_id id)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->n_kv < s->n_tokens);
    charge_tenant(sc, s, s->n_kv, 1);
    s->n_kv++;
}

void sched_trim(struct sched *sc, seq_id id)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->state == SEQ_RUNNING);
    seq_trim(s, &sc->pools);
}

bool planner_init(struct planner *pl, int max_batch)
{
    const size_t n = (size_t)max_batch;

    *pl = (struct planner){ .decode = try_calloc(3 * n, sizeof(*pl->decode)) };
    if (!pl->decode)
        return false;
    pl->prefill = pl->decode + n;
    return true;
}

void planner_clear(struct planner *pl)
{
    mem_free(pl->decode); /* all lists are in one allocation */
    *pl = (struct planner){ 0 };
}

void step_plan_init(struct step_plan *p, const struct sched_limits *l)
{
    *p = (struct step_plan){
        .runs = xcalloc((size_t)l->max_batch, sizeof(*p->runs)),
        .copies = xcalloc((size_t)l->max_batch, sizeof(*p->copies)),
        .window_copies = xcalloc((size_t)l->max_batch, sizeof(*p->window_copies)),
        .clears = xcalloc((size_t)(l->max_batch + l->max_rows), sizeof(*p->clears)),
        .window_clears = xcalloc((size_t)(l->max_batch + l->max_rows), sizeof(*p->window_clears)),
        .swaps = xcalloc(4 * (size_t)l->max_batch, sizeof(*p->swaps)),
    };
}

void step_plan_clear(struct step_plan *p)
{
    mem_free(p->runs);
    mem_free(p->copies);
    mem_free(p->window_copies);
    mem_free(p->clears);
    mem_free(p->window_clears);
    mem_free(p->swaps);
    *p = (struct step_plan){ 0 };
}
