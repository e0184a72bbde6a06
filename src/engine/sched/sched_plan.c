/* sched_plan.c: the rows of one step. */
#include "engine/sched/sched_in.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Rows from here on want logits: one event each. The last row always does, prompt rows until they
 * were all scored, which is before anything else is known. */
static int logits_begin(const struct seq *s)
{
    if (s->is_scripted)
        return s->n_tokens;
    return s->score_from < s->n_prompt - 1 ? MAX(s->n_kv, s->score_from) : s->n_tokens - 1;
}

/* More than its next token's row is missing: it fills, and may have to ride. */
static bool is_filling(const struct seq *s)
{
    return s->n_tokens - s->n_kv > 1;
}

enum { LONG_RIDES, ALL_RIDES };

/* In parts: so many rows share what they read of the prompt's keys and the layer's weights. */
enum { PART_ROWS = 16 };

static int kind_of_ride(const struct sched *sc, const struct seq *s)
{
    return s->n_missing > sc->l.prefill_chunk ? LONG_RIDES : ALL_RIDES;
}

/* All that it has to compute would take no more than its equal share of what short ones may. */
static bool is_brief(const struct sched *sc, const struct seq *s, double share)
{
    return cost_of_rows(&sc->cost, s->n_kv, s->n_tokens - s->n_kv) <= share;
}

/* Nanoseconds that it may add. Long prompts have equal shares of what is left for them. Short ones
 * go one after the other: the same work in equal shares would bring all of them in as late as the
 * last. Those that are done in this step by an equal share do not wait for the others, though. */
static double ride_of(struct sched *sc, const struct seq *s)
{
    const int kind = kind_of_ride(sc, s);
    double left = MIN(sc->ride_ns[kind], sc->ride_ns[ALL_RIDES]);

    if (kind == LONG_RIDES)
        return left / MAX(sc->n_riders[kind], 1);
    if (is_brief(sc, s, sc->brief_share))
        return left;
    return left - MAX(sc->brief_ns, 0);
}

/* Its rows may pause in this step: nobody's of higher rank do. */
static bool may_pause(const struct sched *sc, const struct seq *s)
{
    return !sc->has_part && sc->l.n_layers > 1 && is_filling(s);
}

/* Of n rows, of which `fit` are its share, those that pass all layers. */
static int whole_rows_to_ride(struct sched *sc, const struct seq *s, int n, int fit)
{
    const int least = MIN(n, (int)RIDING_ROWS_MIN), kind = kind_of_ride(sc, s);

    /* No share is below the least; who comes later then gets none. The very first gets that in any
     * case. */
    if (fit >= least)
        return fit;
    if (!sc->has_ridden)
        return least;
    fit =
        cost_rows_within(&sc->cost, s->n_kv, MIN(sc->ride_ns[kind], sc->ride_ns[ALL_RIDES]), least);
    if (fit == 0)
        sc->ride_ns[kind] = 0;
    return fit;
}

/* How many of the layers that are left n rows of it pass within ns: one at least. */
static int layers_within(const struct sched *sc, const struct seq *s, int n, double ns)
{
    const int left = sc->l.n_layers - s->layer;
    double layer_ns = cost_of_rows(&sc->cost, s->n_kv, n) / sc->l.n_layers;
    int fit = left * layer_ns <= ns ? left : MAX((int)(ns / layer_ns), 1);

    return sc->l.most_layers ? MIN(fit, sc->l.most_layers) : fit;
}

/* So many of n rows, in parts, use most of the time. More than a few share what they read. */
static int rows_in_parts(const struct sched *sc, const struct seq *s, int n, double ns)
{
    int best = 1;
    double most = 0;

    for (int i = MIN(MIN(n, (int)PART_ROWS), sc->l.max_paused); i > 0; i--) {
        double layer_ns = cost_of_rows(&sc->cost, s->n_kv, i) / sc->l.n_layers;
        double used = layer_ns * layers_within(sc, s, i, ns);
        if (used <= ns && used > most * 1.05) {
            best = i;
            most = used;
        }
    }
    return best;
}

/* Is there time for a layer of n rows? The first has it in any case; who comes later, and finds
 * none, ends it for all of his kind. */
static bool has_time_for_layer(struct sched *sc, const struct seq *s, int n)
{
    const int kind = kind_of_ride(sc, s);
    double layer_ns = cost_of_rows(&sc->cost, s->n_kv, n) / sc->l.n_layers;

    if (!sc->has_ridden || layer_ns <= MIN(sc->ride_ns[kind], sc->ride_ns[ALL_RIDES]))
        return true;
    sc->ride_ns[kind] = 0;
    return false;
}

/* Of n rows of one that rides, those for this step, and the time that they may take. */
static int rows_to_ride(struct sched *sc, struct seq *s, int n, double *ns)
{
    int fit, enough = sc->paused == NO_SEQ ? PART_ROWS : RIDING_ROWS_MIN;

    *ns = ride_of(sc, s);
    sc->n_riders[kind_of_ride(sc, s)]--;
    if (kind_of_ride(sc, s) == ALL_RIDES && is_brief(sc, s, sc->brief_share))
        sc->brief_ns -= cost_of_rows(&sc->cost, s->n_kv, s->n_tokens - s->n_kv);
    if (s->n_paused > 0)
        return has_time_for_layer(sc, s, n) ? n : 0;
    fit = cost_rows_within(&sc->cost, s->n_kv, *ns, n);
    if (fit == 0 && sc->has_ridden && kind_of_ride(sc, s) == ALL_RIDES)
        return 0;                                     /* it is not its turn */
    if (!may_pause(sc, s) || fit >= MIN(n, enough)) { /* another's pause is not lost lightly */
        *ns = INFINITY;                               /* that is seen to */
        return whole_rows_to_ride(sc, s, n, fit);
    }
    n = rows_in_parts(sc, s, n, *ns);
    return has_time_for_layer(sc, s, n) ? n : 0;
}

/* Likewise in a step without decodes, which nobody waits for but who comes meanwhile. */
static double time_alone(const struct sched *sc)
{
    return sc->l.pass_ns > 0 && sc->rows_left == sc->l.max_rows ? sc->l.pass_ns : INFINITY;
}

/* There a prompt does not wait for the next ones, which would bring all of them in as late as the
 * last: what would make the step longer than a pass may take has its turn in another. */
static bool has_to_wait(const struct sched *sc, const struct seq *s, int n)
{
    return sc->l.pass_ns > 0 && sc->l.stretch > 0 && sc->fill_ns > 0 && s->n_paused == 0 &&
           sc->fill_ns + cost_of_rows(&sc->cost, s->n_kv, n) > sc->l.pass_ns;
}

/* The share of the layers that its planned rows pass. */
static double part_of(const struct sched *sc, const struct seq *s)
{
    return s->plan_end ? (double)(s->plan_end - s->layer) / sc->l.n_layers : 1;
}

static void add_part(const struct sched *sc, const struct seq *s, struct plan *p)
{
    struct step_size own = { 0 };

    step_size_add(&own, s->n_kv, s->plan_rows);
    p->part = part_of(sc, s);
    p->size.rows += own.rows * p->part;
    p->size.keys += own.keys * p->part;
}

static void count_ride(struct sched *sc, const struct seq *s)
{
    if (!is_filling(s))
        step_size_add(&sc->decode_size, s->n_kv, s->plan_rows);
    if (!is_filling(s) || s->plan_rows == 0)
        return;
    double ns = cost_of_rows(&sc->cost, s->n_kv, s->plan_rows) * part_of(sc, s);
    sc->fill_ns += ns;
    if (!sc->is_riding)
        return;
    sc->ride_ns[ALL_RIDES] -= ns;
    if (kind_of_ride(sc, s) == LONG_RIDES)
        sc->ride_ns[LONG_RIDES] -= ns;
    sc->has_ridden = true;
}

/* Takes over what others have computed for the same prefix. True: one that is planned already is at
 * the very next tokens, which it better waits for. */
static bool follow(struct sched *sc, struct seq *s)
{
    prefix_keep(s, sc->l.tree);
    if (s->root.i == TREE_NONE.i || !is_filling(s))
        return false;
    prefix_catch_up(s, sc->l.tree);
    for (int i = 0; i < sc->n_fill && &sc->seqs[sc->fill[i]] != s; i++)
        if (prefix_is_ahead(&sc->seqs[sc->fill[i]], s))
            return true;
    return false;
}

/* Rows that cannot pass all layers in ns pause, where they may. */
static void plan_layers(struct sched *sc, struct seq *s, double ns)
{
    int n = s->plan_rows;

    if (s->n_paused == 0 && (n == 0 || n > sc->l.max_paused || !may_pause(sc, s)))
        return;
    int end = s->layer + layers_within(sc, s, n, ns);
    if (s->layer == 0 && end == sc->l.n_layers)
        return;
    if (sc->paused != NO_SEQ && &sc->seqs[sc->paused] != s) /* one of lower rank, not planned yet */
        sched_forget_pause(sc, &sc->seqs[sc->paused]);
    s->plan_end = end;
    sc->has_part = true;
    if (end < sc->l.n_layers)
        s->plan_logits = 0;
}

/* Gives `s` as many rows as it may have; pages may come from others. */
static void plan_rows_of(struct sched *sc, struct seq *s, uint64_t now)
{
    if (s->n_paused == 0 && follow(sc, s))
        return;
    int n = s->n_paused > 0 ? s->n_paused : MIN(s->n_tokens - s->n_kv, sc->l.prefill_chunk);
    int logits_from = logits_begin(s);
    double ns = INFINITY;

    n = MIN(n, sc->rows_left);
    if (is_filling(s) && sc->is_riding)
        n = rows_to_ride(sc, s, n, &ns);
    else if (is_filling(s) && has_to_wait(sc, s, n))
        return;
    else if (is_filling(s))
        ns = time_alone(sc);
    n = MIN(n, logits_from - s->n_kv + MIN(s->credits, sc->logits_left));
    if (n <= 0)
        return;
    s->plan_rows = sched_get_pages(sc, s, s->n_kv + n, now) - s->n_kv;
    s->plan_logits = MAX(s->n_kv + s->plan_rows - logits_from, 0);
    plan_layers(sc, s, ns);
    sc->rows_left -= s->plan_rows;
    sc->logits_left -= s->plan_logits;
    count_ride(sc, s);
}

static void plan_seq(struct sched *sc, struct seq *s, uint64_t now)
{
    sc->promised -= sched_missing(s);
    plan_rows_of(sc, s, now);
    sc->promised += sched_missing(s);
}

/* The row that was planned goes to a page of its own, and so will those up to the page's end: until
 * then none of them needs to be asked about. */
static void look_at_page(const struct sched *sc, struct seq *s)
{
    const int page = s->n_kv / PAGE_TOKENS;

    if (s->n_tokens - s->n_kv == 1 && (s->is_scripted || s->score_from >= s->n_prompt - 1) &&
        (s->n_kept == page || s->root.i == TREE_NONE.i) && page < s->n_pages &&
        page_refs(sc->pool, s->pages[page]) == 1)
        s->plain_until = (page + 1) * PAGE_TOKENS;
}

/* What nearly all of a step's sequences come to, by their first line of memory alone. */
static bool is_plain(const struct seq *s)
{
    return s->n_kv < s->plain_until && s->n_tokens - s->n_kv == 1 &&
           (s->is_scripted || s->credits > 0);
}

static void plan_next_token(struct sched *sc, struct seq *s)
{
    s->plan_rows = 1;
    s->plan_logits = !s->is_scripted;
    sc->logits_left -= s->plan_logits;
}

/* Those who decode on a page of their own are planned at once: there is a row for each that runs,
 * and they take nothing from others. The rest is listed, for planning one may preempt others. Who
 * ran in the last step mostly runs in this, in the same order. */
static void list_running(struct sched *sc)
{
    int n = 0, n_plain = 0;
    int64_t keys = 0;

    sc->n_decode = sc->n_fill = 0;
    sc->promised = 0; /* plain ones need no more pages */
    sc->has_counted = true;
    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next) {
        struct seq *s = &sc->seqs[id];
        __builtin_prefetch(&sc->seqs[sc->order[n + SCHED_AHEAD]]);
        sc->order[n++] = id;
        if (is_plain(s)) {
            plan_next_token(sc, s);
            n_plain++;
            keys += s->n_kv + 1;
            continue;
        }
        sc->promised += sched_missing(s);
        if (is_filling(s))
            sc->fill[sc->n_fill++] = id;
        else
            sc->decode[sc->n_decode++] = id;
    }
    sc->rows_left -= n_plain;
    sc->decode_size = (struct step_size){ n_plain, (double)keys };
}

static const page_id *last_page(const struct seq *s)
{
    return &s->pages[s->n_kv / PAGE_TOKENS];
}

static void plan_listed(struct sched *sc, const uint32_t *ids, int n, uint64_t now)
{
    for (int i = 0; i < n; i++) {
        if (i + SCHED_AHEAD < n)
            __builtin_prefetch(last_page(&sc->seqs[ids[i + SCHED_AHEAD]]));
        if (sc->seqs[ids[i]].state == SEQ_RUNNING)
            plan_seq(sc, &sc->seqs[ids[i]], now);
    }
}

/* Beside decodes that take `alone`. One that decodes by itself is the measure for what gaps may
 * become: they are as long for few as for many then, and prompts have most time when few decode.
 * Beside many they have at least as much as those. */
static double ride_of_all(const struct sched *sc, double alone)
{
    const struct step_size *d = &sc->decode_size;
    const struct step_size one = { 1, d->keys / MAX(d->rows, 1) };
    double often = sc->l.short_stretch;

    if (often == 0)
        return 1e300;
    double most = MAX(often * cost_of(&sc->cost, &one), MIN(often, 2) * alone);
    return MAX(most, sc->l.stretch * alone) - alone;
}

/* What those take that an equal share brings in at once. */
static void keep_for_brief(struct sched *sc)
{
    sc->brief_share = sc->ride_ns[ALL_RIDES] / MAX(sc->n_riders[ALL_RIDES], 1);
    sc->brief_ns = 0;
    for (int i = 0; i < sc->n_fill; i++) {
        const struct seq *s = &sc->seqs[sc->fill[i]];
        if (kind_of_ride(sc, s) == ALL_RIDES && is_brief(sc, s, sc->brief_share))
            sc->brief_ns += cost_of_rows(&sc->cost, s->n_kv, s->n_tokens - s->n_kv);
    }
}

/* What decodes is planned: prompts may make the step so much longer. */
static void begin_riding(struct sched *sc)
{
    double alone = cost_of(&sc->cost, &sc->decode_size);

    sc->has_ridden = false;
    sc->is_riding = sc->l.stretch > 0 && sc->decode_size.rows > 0;
    sc->fill_ns = 0;
    sc->ride_ns[LONG_RIDES] = (sc->l.stretch - 1) * alone;
    sc->ride_ns[ALL_RIDES] = ride_of_all(sc, alone);
    sc->n_riders[LONG_RIDES] = sc->n_riders[ALL_RIDES] = 0;
    for (int i = 0; i < sc->n_fill; i++)
        sc->n_riders[kind_of_ride(sc, &sc->seqs[sc->fill[i]])]++;
    keep_for_brief(sc);
}

static void plan_waiting(struct sched *sc, uint64_t now)
{
    while (sc->counts.running < (uint32_t)sc->l.max_batch && sc->rows_left > 0 &&
           sc->logits_left > 0) {
        uint32_t id = sched_first_waiting(sc, now);
        if (id == NO_SEQ)
            return;
        if (!sched_let_in(sc, &sc->seqs[id], now)) {
            if (sc->seqs[id].state == SEQ_WAITING)
                return;
            continue; /* its pages are on their way: it is the next one's turn */
        }
        if (is_filling(&sc->seqs[id]) && sc->n_fill < 2 * sc->l.max_batch)
            sc->fill[sc->n_fill++] = id; /* some were listed and preempted: two lists' room */
        plan_seq(sc, &sc->seqs[id], now);
    }
}

/* Pages that a run is the first to write to, and that hold another tenant's rows. */
static void clear_pages(struct sched *sc, struct plan *p, const struct seq *s, int from, int upto)
{
    for (int i = pages_for(from); i < pages_for(upto); i++)
        if (page_claim(sc->pool, s->pages[i], s->writer))
            p->clears[p->n_clears++] = s->pages[i];
}

static void write_down_copy(struct sched *sc, struct plan *p, struct seq *s)
{
    p->copies[p->n_copies++] = (struct plan_copy){ s->copy_from, s->copy_to };
    (void)!page_claim(sc->pool, s->copy_to, s->writer); /* the copy overwrites all */
    page_unref(sc->pool, s->copy_from); /* from here on nobody takes before the copy */
    s->copy_from = s->copy_to = PAGE_NONE;
}

static bool pauses(const struct sched *sc, int end_layer)
{
    return end_layer > 0 && end_layer < sc->l.n_layers;
}

static void write_down_rows(struct sched *sc, struct plan *p, struct seq *s)
{
    if (s->n_kv % PAGE_TOKENS == 0 || s->plan_rows > 1)
        clear_pages(sc, p, s, s->n_kv, s->n_kv + s->plan_rows);
    p->n_filling += is_filling(s);
    if (s->plan_end)
        add_part(sc, s, p);
    else
        step_size_add(&p->size, s->n_kv, s->plan_rows);
    p->n_rows += s->plan_rows;
    p->runs[p->n_runs++] = (struct plan_run){
        .seq = { sched_index(sc, s) },
        .s = s,
        .pos = s->n_kv,
        .n = s->plan_rows,
        .n_logits = s->plan_logits,
        .from_layer = s->plan_end ? s->layer : 0,
        .end_layer = s->plan_end,
        .is_whole = s->n_kv + s->plan_rows == s->n_tokens && !pauses(sc, s->plan_end),
        .is_first = !s->was_planned,
    };
    s->was_planned = true;
    s->plan_rows = s->plan_logits = s->plan_end = 0;
    look_at_page(sc, s);
}

static void write_down_next_token(struct sched *sc, struct plan *p, struct seq *s)
{
    p->runs[p->n_runs++] = (struct plan_run){
        .seq = { sched_index(sc, s) },
        .s = s,
        .pos = s->n_kv,
        .n = 1,
        .n_logits = s->plan_logits,
        .is_whole = true,
    };
    s->plan_rows = s->plan_logits = 0;
}

static void write_down(struct sched *sc, struct plan *p)
{
    int n_plain = 0;
    int64_t keys = 0;

    p->n_runs = p->n_copies = p->n_clears = p->n_rows = p->n_filling = 0;
    p->size = (struct step_size){ 0 };
    p->part = 1;
    for (uint32_t id = sc->running; id != NO_SEQ; id = sc->seqs[id].next) {
        struct seq *s = &sc->seqs[id];
        if (s->plan_rows == 1 && is_plain(s)) {
            n_plain++;
            keys += s->n_kv + 1;
            write_down_next_token(sc, p, s);
            continue;
        }
        if (s->copy_from.i != PAGE_NONE.i)
            write_down_copy(sc, p, s);
        if (s->plan_rows > 0)
            write_down_rows(sc, p, s);
    }
    p->n_rows += n_plain;
    p->size.rows += n_plain;
    p->size.keys += (double)keys;
    p->has_prefill = p->n_filling > 0;
    p->has_decode = p->n_filling < p->n_runs;
}

void sched_plan(struct sched *sc, uint64_t now, struct plan *p)
{
    sc->rows_left = sc->l.max_rows;
    sc->logits_left = sc->l.max_logits;
    sc->is_riding = sc->has_part = false;
    if (sc->l.tree)
        tree_set_time(sc->l.tree, now);
    sc->plan = p;
    sc->has_counted = false;
    p->n_turns = 0;
    sched_change_turns(sc, now);
    list_running(sc);
    plan_listed(sc, sc->decode, sc->n_decode, now);
    begin_riding(sc);
    plan_listed(sc, sc->fill, sc->n_fill, now);
    plan_waiting(sc, now);
    write_down(sc, p);
    sc->plan = NULL;
}

/* What was computed before, or found, was paid for or costs nothing. */
static void charge(struct sched *sc, struct seq *s, int pos, int n)
{
    int from = MAX(pos, s->n_charged), end = pos + n;
    int n_prompt = MAX(MIN(end, s->n_prompt) - from, 0),
        n_output = MAX(end - MAX(from, s->n_prompt), 0);

    s->n_charged = MAX(end, s->n_charged);
    if (n_prompt + n_output > 0)
        tenants_charge(&sc->tenants, s->tenant,
            n_prompt * (double)CHARGE_PROMPT + n_output * (double)CHARGE_OUTPUT);
}

void sched_commit(struct sched *sc, const struct plan *p)
{
    for (int i = 0; i < p->n_runs; i++) {
        struct seq *s = p->runs[i].s;
        int n = p->runs[i].n - p->runs[i].n_drafts;
        if (s->n_charged == s->n_kv && is_plain(s) && s->n_kv >= s->n_prompt) {
            tenants_charge(&sc->tenants, s->tenant, CHARGE_OUTPUT);
            s->n_charged = ++s->n_kv;
            continue;
        }
        if (pauses(sc, p->runs[i].end_layer)) {
            sc->counts.pauses++;
            sc->paused = p->runs[i].seq.i;
            s->n_paused = n;
            s->layer = p->runs[i].end_layer;
            continue;
        }
        sched_end_pause(sc, s);
        charge(sc, s, p->runs[i].pos, n);
        s->n_kv += n;
    }
}

/* ---- drafts */

static void add_drafts(struct sched *sc, struct plan *p, int i, int n)
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

int sched_extend(struct sched *sc, struct plan *p, int i, int n)
{
    struct plan_run *r = &p->runs[i];
    struct seq *s = sched_seq(sc, r->seq);

    CHECK(r->is_whole && !s->is_scripted && s->state == SEQ_RUNNING);
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

void sched_retract(struct sched *sc, struct plan *p, int i, int n)
{
    CHECK(n >= 0 && n <= p->runs[i].n_drafts);
    add_drafts(sc, p, i, -n);
}

void sched_accept(struct sched *sc, seq_id id)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->n_kv < s->n_tokens);
    charge(sc, s, s->n_kv, 1);
    s->n_kv++;
}

void sched_trim(struct sched *sc, seq_id id)
{
    struct seq *s = sched_seq(sc, id);

    CHECK(s->state == SEQ_RUNNING);
    while (s->n_pages > pages_for(s->n_tokens))
        page_unref(sc->pool, s->pages[--s->n_pages]);
}

void plan_init(struct plan *p, const struct sched_limits *l)
{
    *p = (struct plan){
        .runs = xcalloc((size_t)l->max_batch, sizeof(*p->runs)),
        .copies = xcalloc((size_t)l->max_batch, sizeof(*p->copies)),
        .clears = xcalloc((size_t)(l->max_batch + l->max_rows), sizeof(*p->clears)),
        .turns = xcalloc(4 * (size_t)l->max_batch, sizeof(*p->turns)),
    };
}

void plan_clear(struct plan *p)
{
    mem_free(p->runs);
    mem_free(p->copies);
    mem_free(p->clears);
    mem_free(p->turns);
    *p = (struct plan){ 0 };
}
