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

/* Budget classes: long prompts; all prompts, which is the class of a short one. */
enum { PREFILL_LONG, PREFILL_ALL };

/* Partial rows share the reads of the layer's weights and of the prompt's KV. */
enum { PARTIAL_ROWS = 16 };

static int prefill_class(const struct sched *sc, const struct seq *s)
{
    return s->n_admit_rows > sc->l.prefill_chunk ? PREFILL_LONG : PREFILL_ALL;
}

/* The time of all missing rows is at most `share`, an equal share of the short-prefill budget. */
static bool fits_equal_share(const struct sched *sc, const struct seq *s, double share)
{
    return step_time_of_rows(&sc->step_time, s->n_kv, s->n_tokens - s->n_kv) <= share;
}

/* Prefill budget of `s` in this step in ns. Long prompts split the remaining long budget evenly.
 * Short prompts run one after the other, since with equal shares all of them would finish as late
 * as the last. A short prompt that an equal share completes in this step does not wait for the
 * others: its time is reserved from the budget of the others. */
static double prefill_budget_of(struct sched *sc, const struct seq *s)
{
    const int kind = prefill_class(sc, s);
    double left = MIN(sc->prefill_budget_ns[kind], sc->prefill_budget_ns[PREFILL_ALL]);

    if (kind == PREFILL_LONG)
        return left / MAX(sc->n_prefills[kind], 1);
    if (fits_equal_share(sc, s, sc->short_prefill_share_ns))
        return left;
    return left - MAX(sc->short_prefill_reserved_ns, 0);
}

/* No sequence of higher rank has partial rows in this step. */
static bool may_run_partial(const struct sched *sc, const struct seq *s)
{
    return !sc->has_partial && sc->l.n_layers > 1 && is_prefilling(s);
}

/* Number of the n rows that pass all layers; `fit` rows are within the budget of the sequence. A
 * sequence gets at least min(n, MIXED_PREFILL_ROWS_MIN) rows: the first prefill run of a step in
 * any case, a later one if the budget of its class allows it. Otherwise that class is closed for
 * this step. */
static int full_rows_in_budget(struct sched *sc, const struct seq *s, int n, int fit)
{
    const int least = MIN(n, (int)MIXED_PREFILL_ROWS_MIN), kind = prefill_class(sc, s);

    if (fit >= least)
        return fit;
    if (!sc->has_prefill_rows)
        return least;
    fit = step_time_rows_within(&sc->step_time, s->n_kv,
        MIN(sc->prefill_budget_ns[kind], sc->prefill_budget_ns[PREFILL_ALL]), least);
    if (fit == 0)
        sc->prefill_budget_ns[kind] = 0;
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
    const int kind = prefill_class(sc, s);
    double layer_ns = step_time_of_rows(&sc->step_time, s->n_kv, n) / sc->l.n_layers;

    if (!sc->has_prefill_rows ||
        layer_ns <= MIN(sc->prefill_budget_ns[kind], sc->prefill_budget_ns[PREFILL_ALL]))
        return true;
    sc->prefill_budget_ns[kind] = 0;
    return false;
}

/* Number of the n rows to compute in this step; sets *ns to the time budget of plan_layers. */
static int prefill_rows_in_budget(struct sched *sc, struct seq *s, int n, double *ns)
{
    int fit, enough = sc->partial_seq == NO_SEQ ? PARTIAL_ROWS : MIXED_PREFILL_ROWS_MIN;

    *ns = prefill_budget_of(sc, s);
    sc->n_prefills[prefill_class(sc, s)]--;
    if (prefill_class(sc, s) == PREFILL_ALL && fits_equal_share(sc, s, sc->short_prefill_share_ns))
        sc->short_prefill_reserved_ns -=
            step_time_of_rows(&sc->step_time, s->n_kv, s->n_tokens - s->n_kv);
    if (s->n_partial_rows > 0)
        return has_budget_for_layer(sc, s, n) ? n : 0;
    fit = step_time_rows_within(&sc->step_time, s->n_kv, *ns, n);
    if (fit == 0 && sc->has_prefill_rows && prefill_class(sc, s) == PREFILL_ALL)
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
    return sc->l.max_prefill_step_ns > 0 && sc->rows_left == sc->l.max_rows
               ? sc->l.max_prefill_step_ns
               : INFINITY;
}

/* In a step without decode rows, a prompt waits for the next step if it would make this step longer
 * than max_prefill_step_ns. Otherwise all prompts of the step would finish as late as the last. */
static bool exceeds_step_limit(const struct sched *sc, const struct seq *s, int n)
{
    return sc->l.max_prefill_step_ns > 0 && sc->l.mixed_step_factor > 0 && sc->prefill_ns > 0 &&
           s->n_partial_rows == 0 &&
           sc->prefill_ns + step_time_of_rows(&sc->step_time, s->n_kv, n) >
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
    if (!is_prefilling(s))
        step_size_add(&sc->decode_size, s->n_kv, s->plan_rows);
    if (!is_prefilling(s) || s->plan_rows == 0)
        return;
    double ns = step_time_of_rows(&sc->step_time, s->n_kv, s->plan_rows) * layer_fraction(sc, s);
    sc->prefill_ns += ns;
    if (!sc->is_prefill_limited)
        return;
    sc->prefill_budget_ns[PREFILL_ALL] -= ns;
    if (prefill_class(sc, s) == PREFILL_LONG)
        sc->prefill_budget_ns[PREFILL_LONG] -= ns;
    sc->has_prefill_rows = true;
}

/* Takes over pages that other sequences have computed for the same prefix. Returns true if a run of
 * this plan computes the very next page of `s`, so that `s` should wait for it. */
static bool reuse_computed_prefix(struct sched *sc, struct seq *s)
{
    prefix_insert(s, sc->l.tree);
    if (s->root.i == TREE_NONE.i || !is_prefilling(s))
        return false;
    prefix_catch_up(s, sc->l.tree);
    for (int i = 0; i < sc->n_prefill && &sc->seqs[sc->prefill[i]] != s; i++)
        if (prefix_computes_next(&sc->seqs[sc->prefill[i]], s))
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
    sc->has_partial = true;
    if (end < sc->l.n_layers)
        s->plan_logits = 0;
}

/* Plans up to a chunk of rows of `s`; takes pages from other sequences if necessary. */
static void plan_seq_rows(struct sched *sc, struct seq *s, uint64_t now)
{
    if (s->n_partial_rows == 0 && reuse_computed_prefix(sc, s))
        return;
    int n =
        s->n_partial_rows > 0 ? s->n_partial_rows : MIN(s->n_tokens - s->n_kv, sc->l.prefill_chunk);
    int logits_from = logits_begin(s);
    double ns = INFINITY;

    n = MIN(n, sc->rows_left);
    if (is_prefilling(s) && sc->is_prefill_limited)
        n = prefill_rows_in_budget(sc, s, n, &ns);
    else if (is_prefilling(s) && exceeds_step_limit(sc, s, n))
        return;
    else if (is_prefilling(s))
        ns = prefill_only_limit(sc);
    n = MIN(n, logits_from - s->n_kv + MIN(s->credits, sc->logits_left));
    if (n <= 0)
        return;
    s->plan_rows = sched_get_pages(sc, s, s->n_kv + n, now) - s->n_kv;
    s->plan_logits = MAX(s->n_kv + s->plan_rows - logits_from, 0);
    plan_layers(sc, s, ns);
    sc->rows_left -= s->plan_rows;
    sc->logits_left -= s->plan_logits;
    charge_prefill_budget(sc, s);
}

static void plan_seq(struct sched *sc, struct seq *s, uint64_t now)
{
    sc->promised -= sched_missing_pages(s);
    plan_seq_rows(sc, s, now);
    sc->promised += sched_missing_pages(s);
}

/* If the next row is written to a page that only this sequence holds, so are the rows up to the end
 * of that page: until then is_decode_only needs no further checks. */
static void update_decode_only(const struct sched *sc, struct seq *s)
{
    const int page = s->n_kv / PAGE_TOKENS;

    if (s->n_tokens - s->n_kv == 1 && (s->is_scripted || s->score_from >= s->n_prompt - 1) &&
        (s->n_tree_pages == page || s->root.i == TREE_NONE.i) && page < s->n_pages &&
        page_refs(sc->pool, s->pages[page]) == 1)
        s->decode_only_until = (page + 1) * PAGE_TOKENS;
}

/* Fast path of nearly all sequences of a step; reads only their first cache line. */
static bool is_decode_only(const struct seq *s)
{
    return s->n_kv < s->decode_only_until && s->n_tokens - s->n_kv == 1 &&
           (s->is_scripted || s->credits > 0);
}

static void plan_decode_row(struct sched *sc, struct seq *s)
{
    s->plan_rows = 1;
    s->plan_logits = !s->is_scripted;
    sc->logits_left -= s->plan_logits;
}

/* Plans decode-only sequences immediately: the batch has a row for each running sequence, and they
 * take no pages from others. The other sequences are collected in lists, since planning one may
 * preempt others. The running list mostly equals that of the last step, so sc->order is used for
 * prefetching. */
static void list_running(struct sched *sc)
{
    int n = 0, n_decode_only = 0;
    int64_t keys = 0;

    sc->n_decode = sc->n_prefill = 0;
    sc->promised = 0; /* decode-only sequences need no more pages */
    sc->has_promised = true;
    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next) {
        struct seq *s = &sc->seqs[id];
        __builtin_prefetch(&sc->seqs[sc->order[n + SCHED_AHEAD]]);
        sc->order[n++] = id;
        if (is_decode_only(s)) {
            plan_decode_row(sc, s);
            n_decode_only++;
            keys += s->n_kv + 1;
            continue;
        }
        sc->promised += sched_missing_pages(s);
        if (is_prefilling(s))
            sc->prefill[sc->n_prefill++] = id;
        else
            sc->decode[sc->n_decode++] = id;
    }
    sc->rows_left -= n_decode_only;
    sc->decode_size = (struct step_size){ n_decode_only, (double)keys };
}

static const page_id *tail_page(const struct seq *s)
{
    return &s->pages[s->n_kv / PAGE_TOKENS];
}

static void plan_listed(struct sched *sc, const uint32_t *ids, int n, uint64_t now)
{
    for (int i = 0; i < n; i++) {
        if (i + SCHED_AHEAD < n)
            __builtin_prefetch(tail_page(&sc->seqs[ids[i + SCHED_AHEAD]]));
        if (sc->seqs[ids[i]].state == SEQ_RUNNING)
            plan_seq(sc, &sc->seqs[ids[i]], now);
    }
}

/* Prefill budget of all prompts, short ones included, in a step whose decode rows take
 * `decode_only_ns`. The limit is relative to a step with one decode row, since the resulting
 * inter-token latency is then the same for small and large batches, and the budget is largest if
 * few sequences decode. With many decode rows the budget is at least `decode_only_ns` (factor
 * 2). */
static double total_prefill_budget(const struct sched *sc, double decode_only_ns)
{
    const struct step_size *d = &sc->decode_size;
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
    sc->short_prefill_share_ns =
        sc->prefill_budget_ns[PREFILL_ALL] / MAX(sc->n_prefills[PREFILL_ALL], 1);
    sc->short_prefill_reserved_ns = 0;
    for (int i = 0; i < sc->n_prefill; i++) {
        const struct seq *s = &sc->seqs[sc->prefill[i]];
        if (prefill_class(sc, s) == PREFILL_ALL &&
            fits_equal_share(sc, s, sc->short_prefill_share_ns))
            sc->short_prefill_reserved_ns +=
                step_time_of_rows(&sc->step_time, s->n_kv, s->n_tokens - s->n_kv);
    }
}

/* Computes the prefill budgets; the decode rows are planned. */
static void init_prefill_budgets(struct sched *sc)
{
    double decode_only_ns = step_time_of(&sc->step_time, &sc->decode_size);

    sc->has_prefill_rows = false;
    sc->is_prefill_limited = sc->l.mixed_step_factor > 0 && sc->decode_size.rows > 0;
    sc->prefill_ns = 0;
    sc->prefill_budget_ns[PREFILL_LONG] = (sc->l.mixed_step_factor - 1) * decode_only_ns;
    sc->prefill_budget_ns[PREFILL_ALL] = total_prefill_budget(sc, decode_only_ns);
    sc->n_prefills[PREFILL_LONG] = sc->n_prefills[PREFILL_ALL] = 0;
    for (int i = 0; i < sc->n_prefill; i++)
        sc->n_prefills[prefill_class(sc, &sc->seqs[sc->prefill[i]])]++;
    reserve_short_prefill(sc);
}

static void plan_waiting(struct sched *sc, uint64_t now)
{
    while (sc->counts.running < (uint32_t)sc->l.max_batch && sc->rows_left > 0 &&
           sc->logits_left > 0) {
        uint32_t id = sched_first_waiting(sc, now);
        if (id == NO_SEQ)
            return;
        if (!sched_admit(sc, &sc->seqs[id], now)) {
            if (sc->seqs[id].state == SEQ_WAITING)
                return;
            continue; /* parked until its pages are read from the offload tier */
        }
        if (is_prefilling(&sc->seqs[id]) && sc->n_prefill < 2 * sc->l.max_batch)
            /* Room for two batches: listed sequences may be preempted and others admitted. */
            sc->prefill[sc->n_prefill++] = id;
        plan_seq(sc, &sc->seqs[id], now);
    }
}

/* Adds the pages of positions from .. upto - 1 that hold KV of another tenant to p->clears. */
static void clear_pages(
    struct sched *sc, struct step_plan *p, const struct seq *s, int from, int upto)
{
    for (int i = pages_for(from); i < pages_for(upto); i++)
        if (page_claim(sc->pool, s->pages[i], s->writer))
            p->clears[p->n_clears++] = s->pages[i];
}

static void emit_copy(struct sched *sc, struct step_plan *p, struct seq *s)
{
    p->copies[p->n_copies++] = (struct plan_copy){ s->copy_from, s->copy_to };
    (void)!page_claim(sc->pool, s->copy_to, s->writer); /* the copy overwrites the whole page */
    page_unref(sc->pool, s->copy_from); /* no page is taken between here and the copy */
    s->copy_from = s->copy_to = PAGE_NONE;
}

static bool is_partial(const struct sched *sc, int end_layer)
{
    return end_layer > 0 && end_layer < sc->l.n_layers;
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
    p->size = (struct step_size){ 0 };
    p->partial_fraction = 1;
    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next) {
        struct seq *s = &sc->seqs[id];
        if (s->plan_rows == 1 && is_decode_only(s)) {
            n_decode_only++;
            keys += s->n_kv + 1;
            emit_decode_row(sc, p, s);
            continue;
        }
        if (s->copy_from.i != PAGE_NONE.i)
            emit_copy(sc, p, s);
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
    sc->rows_left = sc->l.max_rows;
    sc->logits_left = sc->l.max_logits;
    sc->is_prefill_limited = sc->has_partial = false;
    if (sc->l.tree)
        tree_set_time(sc->l.tree, now);
    sc->plan = p;
    sc->has_promised = false;
    p->n_swaps = 0;
    sched_apply_fairness(sc, now);
    list_running(sc);
    plan_listed(sc, sc->decode, sc->n_decode, now);
    init_prefill_budgets(sc);
    plan_listed(sc, sc->prefill, sc->n_prefill, now);
    plan_waiting(sc, now);
    emit_plan(sc, p);
    sc->plan = NULL;
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
        s->n_kv += n;
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
    sc->rows_left -= n;
    sc->logits_left -= n;
}

int sched_extend(struct sched *sc, struct step_plan *p, int i, int n)
{
    struct plan_run *r = &p->runs[i];
    struct seq *s = sched_seq(sc, r->seq);

    CHECK(r->yields_token && !s->is_scripted && s->state == SEQ_RUNNING);
    n = MIN(n, MIN(sc->rows_left, sc->logits_left));
    n = MIN(n, MIN(s->credits - r->n_logits, sc->l.prefill_chunk - r->n));
    if (n <= 0)
        return 0;
    int from = r->pos + r->n, got = seq_reserve(s, sc->pool, from + n);
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
    while (s->n_pages > pages_for(s->n_tokens))
        page_unref(sc->pool, s->pages[--s->n_pages]);
}

void step_plan_init(struct step_plan *p, const struct sched_limits *l)
{
    *p = (struct step_plan){
        .runs = xcalloc((size_t)l->max_batch, sizeof(*p->runs)),
        .copies = xcalloc((size_t)l->max_batch, sizeof(*p->copies)),
        .clears = xcalloc((size_t)(l->max_batch + l->max_rows), sizeof(*p->clears)),
        .swaps = xcalloc(4 * (size_t)l->max_batch, sizeof(*p->swaps)),
    };
}

void step_plan_clear(struct step_plan *p)
{
    mem_free(p->runs);
    mem_free(p->copies);
    mem_free(p->clears);
    mem_free(p->swaps);
    *p = (struct step_plan){ 0 };
}
