/* engine_metrics.c: copies the engines' statistics into the metrics for a scrape. Owner: the io
 * thread of the scrape. */
#include "serve/io.h"

#include <stdio.h>

static void copy_counters(const struct engine_stats *s, struct metrics *m)
{
    const struct {
        enum metric which;
        uint64_t value;
    } rows[] = {
        { METRIC_scheduler_queue_depth, s->queued },
        { METRIC_scheduler_running, s->running },
        { METRIC_scheduler_steps_total, s->steps },
        { METRIC_scheduler_preemptions_total, s->preemptions },
        { METRIC_preemptions_total, s->fairness_preempted },
        { METRIC_fairness_preemptions_total, s->fairness_preempted },
        { METRIC_fairness_yields_total, s->fairness_yielded },
        { METRIC_fairness_resumes_total, s->fairness_resumed },
        { METRIC_fairness_queue_depth, s->fairness_waiting },
        { METRIC_generated_tokens_total, s->generated_tokens },
        { METRIC_prefill_microseconds_total, s->prefill_ns / 1000 },
        { METRIC_decode_microseconds_total, s->decode_ns / 1000 },
        { METRIC_constraint_not_met_total, s->constraints.not_met },
        { METRIC_constraint_bounds_total, s->constraints.over_bound },
        { METRIC_constraint_masks_total, s->constraints.masks },
        { METRIC_constraint_mask_microseconds_total, s->constraints.mask_ns / 1000 },
        { METRIC_constraint_mask_pauses_total, s->constraints.pauses },
        { METRIC_kv_pages_cached, s->pages_cached },
        { METRIC_prefix_queries_total, s->prefix.matches },
        { METRIC_prefix_query_tokens_total, s->prefix.asked_tokens },
        { METRIC_prefix_hits_total, s->prefix.hits },
        { METRIC_prefix_partial_hits_total, s->prefix.partial_hits },
        { METRIC_prefix_matched_tokens_total, s->prefix.matched_tokens },
        { METRIC_prefix_kept_pages_total, s->prefix.inserted },
        { METRIC_prefix_evicted_pages_total, s->prefix.evicted },
        { METRIC_prefix_quota_evicted_pages_total, s->prefix.evicted_for_quota },
        { METRIC_kv_disk_written_pages_total, s->prefix.disk_written },
        { METRIC_kv_disk_lost_pages_total, s->prefix.disk_lost },
        { METRIC_kv_disk_fetched_pages_total, s->prefix.disk_pages_read },
        { METRIC_kv_disk_failed_pages_total, s->prefix.disk_failed },
        { METRIC_kv_disk_written_checkpoints_total, s->prefix.disk_checkpoints_written },
        { METRIC_kv_disk_fetched_checkpoints_total, s->prefix.disk_checkpoints_read },
        { METRIC_kv_disk_bytes, s->prefix.disk_bytes },
        { METRIC_kv_pages_used, s->pages_used },
        { METRIC_kv_pages_total, s->pages_total },
        { METRIC_kv_window_pages_used, s->windows_used },
        { METRIC_kv_window_pages_cached, s->windows_cached },
        { METRIC_kv_window_pages_total, s->windows_total },
        { METRIC_kv_window_pages_evicted_total, s->prefix.windows_evicted },
        { METRIC_state_slots_used, s->states_used },
        { METRIC_state_slots_cached, s->states_cached },
        { METRIC_state_slots_total, s->states_total },
        { METRIC_state_checkpoints_total, s->prefix.checkpoints },
        { METRIC_state_checkpoints_evicted_total, s->prefix.checkpoints_evicted },
    };
    for (size_t j = 0; j < ARRAY_LEN(rows); j++)
        metric_add(m, rows[j].which, (int64_t)rows[j].value);
}

static void copy_histograms(const struct engine_stats *s, struct metrics *m)
{
    const struct {
        enum metric which;
        const struct histogram *h;
    } rows[] = {
        { METRIC_prefill_duration_seconds, &s->prefill },
        { METRIC_decode_duration_seconds, &s->decode },
        { METRIC_step_prefill_seconds, &s->step_prefill },
        { METRIC_step_decode_seconds, &s->step_decode },
        { METRIC_turn_wait_seconds, &s->waited },
        { METRIC_batch_size, &s->batch_size },
        { METRIC_batch_prefill_size, &s->batch_prefill },
        { METRIC_batch_decode_size, &s->batch_decode },
        { METRIC_batch_tokens, &s->batch_tokens },
        { METRIC_kv_page_lifetime_seconds, &s->prefix.ages.lived },
        { METRIC_kv_page_idle_before_evict_seconds, &s->prefix.ages.idled },
        { METRIC_kv_page_reuse_gap_seconds, &s->prefix.ages.reused },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        metric_add_histogram(m, rows[i].which, rows[i].h);
}

static void copy_priorities(const struct engine_stats *s, struct metrics *m)
{
    int n = s->n_priorities;
    char label[48];

    for (int i = 0; i < n; i++) {
        snprintf(label, sizeof(label), "priority=\"%d\"", (int)s->by_priority[i].priority);
        metric_add_series(m, METRIC_fairness_tokens_total, label, s->by_priority[i].tokens);
    }
    if (s->other_priorities)
        metric_add_series(
            m, METRIC_fairness_tokens_total, "priority=\"other\"", s->other_priorities);
}

static void copy_drafts(const struct engine_stats *s, struct metrics *m)
{
    static const char *const labels[N_DRAFT_KINDS] = {
        [DRAFT_BY_PREDICTION] = "drafter=\"prediction\"",
        [DRAFT_BY_HISTORY] = "drafter=\"ngram\"",
        [DRAFT_BY_MODEL] = "drafter=\"model\"",
        [DRAFT_BY_CONSTRAINT] = "drafter=\"forced\"",
    };

    for (int i = 0; i < N_DRAFT_KINDS; i++) {
        const struct draft_counts *n = &s->drafts_by_source[i];
        metric_add_series(m, METRIC_spec_decode_drafts_total, labels[i], n->drafts);
        metric_add_series(m, METRIC_spec_decode_draft_tokens_total, labels[i], n->drafted_tokens);
        metric_add_series(
            m, METRIC_spec_decode_accepted_tokens_total, labels[i], n->accepted_tokens);
    }
}

/* Formats the model id as a label value; characters that would end it, and the excess length, are
 * dropped. */
static void label_of(const struct model *m, char label[72])
{
    const char *id = m->spec->id;
    int n = snprintf(label, 72, "model=\"");

    for (; *id && n < 70; id++)
        if (*id != '"' && *id != '\\' && *id >= ' ')
            label[n++] = *id;
    label[n++] = '"';
    label[n] = '\0';
}

static void copy_costs(const struct model *model, const struct engine_stats *s, struct metrics *m)
{
    char label[72];

    label_of(model, label);
    metric_add_series(m, METRIC_step_cost_fixed_nanoseconds, label, s->step_fixed_ns);
    metric_add_series(m, METRIC_step_cost_token_nanoseconds, label, s->step_row_ns);
    metric_add_series(m, METRIC_step_cost_key_picoseconds, label, s->step_key_ps);
}

/* Memory of the KV pages, by KV type; models with the same type are added. */
static void copy_pool(const struct model *model, struct metrics *m)
{
    const struct lm *lm = model->lm;
    char label[32];

    if (lm_kv_bytes(lm) == 0)
        return;
    snprintf(label, sizeof(label), "type=\"%s\"", model->spec->kv_type);
    metric_add_series(m, METRIC_kv_pool_bytes, label, lm_kv_bytes(lm));
}

/* Memory of a model; the KV pages and state slots that are not used yet take no physical memory. */
static void copy_memory(const struct model *model, struct metrics *m)
{
    const struct lm *lm = model->lm;
    char label[72];

    label_of(model, label);
    metric_add_series(m, METRIC_model_weight_bytes, label, lm->weight_bytes);
    metric_add_series(m, METRIC_model_kv_bytes, label, lm_kv_bytes(lm));
    metric_add_series(
        m, METRIC_model_window_kv_bytes, label, lm->n_window_pages * lm->window_page_bytes);
    metric_add_series(m, METRIC_model_state_bytes, label, lm->n_states * lm->state_bytes);
    if (model->vocab_tables)
        metric_add_series(
            m, METRIC_model_vocab_table_bytes, label, vocab_tables_bytes(model->vocab_tables));
}

void engine_metrics_copy(struct registry *p, struct metrics *m)
{
    struct registry_list models;
    struct err e;

    metric_set(m, METRIC_models_ready, (uint64_t)registry_n_ready(p));
    if (registry_list(p, &models, &e))
        return;
    for (size_t i = 0; i < models.n; i++) {
        const struct model *model = models.views[i].model;
        if (!model)
            continue;
        const struct engine_stats *s = engine_stats(model->engine);
        copy_counters(s, m);
        copy_histograms(s, m);
        copy_priorities(s, m);
        copy_drafts(s, m);
        copy_costs(model, s, m);
        copy_pool(model, m);
        copy_memory(model, m);
    }
    registry_list_clear(&models);
}
