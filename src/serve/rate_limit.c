#include "serve/rate_limit.h"

#include "base/limits.h"
#include "limits/calendar.h"
#include "limits/pace.h"
#include "os/clock.h"
#include "serve/inflight.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { SETTLE_GROUP = 16, FIELD_BYTES = 48 };

static struct limit_time now(void)
{
    return (struct limit_time){ clock_ns(), clock_wall_s() };
}

/* ---- limits of a request */

void rate_limit_of_key(
    int64_t out[N_POLICY_LIMITS], const struct policy_snapshot *s, const struct policy_key *key)
{
    const struct limit_entry *d = limit_set_find(policy_snapshot_limits(s), LIMITS_DEFAULT, "");
    bool is_exempt = key && key->limits[POLICY_LIMIT_exempt];

    for (int i = 0; i < N_POLICY_LIMITS; i++) {
        int64_t own = !key ? 0 : key->limits[i] ? key->limits[i] : key->role_limits[i];
        out[i] = own || is_exempt || !d ? own : d->values[i];
    }
}

static const char *key_name(const struct inflight *r)
{
    return *r->caller.id ? r->caller.id : "anonymous";
}

int rate_limit_open(struct inflight *r, struct err *e)
{
    static const int64_t none[N_LIMIT_VALUES];
    const struct limit_set *set = policy_snapshot_limits(r->io->policy);
    const struct limit_entry *tenant = limit_set_find(set, LIMITS_TENANT, r->caller.tenant);
    const struct limit_entry *model = limit_set_find(set, LIMITS_MODEL, r->model->spec->id);
    struct limit_subject_of subjects[N_LIMIT_KINDS];
    int64_t of_key[N_POLICY_LIMITS];
    int n = 0;

    if (!r->io->o->limiter)
        return 0;
    rate_limit_of_key(of_key, r->io->policy, r->async.key);
    subjects[n++] = (struct limit_subject_of){ LIMIT_OF_KEY, key_name(r), of_key };
    subjects[n++] = (struct limit_subject_of){ LIMIT_OF_MODEL, r->model->spec->id,
        model ? model->values : none };
    if (*r->caller.tenant)
        subjects[n++] = (struct limit_subject_of){ LIMIT_OF_TENANT, r->caller.tenant,
            tenant ? tenant->values : none };
    r->limits.hold.waker = &r->io->limits.waker;
    if (model)
        r->limits.hold.price = (struct limit_price){ model->values[LIMIT_PROMPT_PRICE],
            model->values[LIMIT_OUTPUT_PRICE] };
    if (limiter_begin(r->io->o->limiter, &r->limits.hold, subjects, n, e))
        return -1;
    if (r->request.max_tokens >= 0)
        return 0;
    struct limit_time t = now();
    const struct limit_hold *h = &r->limits.hold;
    int64_t max = limiter_max_output(r->io->o->limiter, h, r->n_prompt, !r->io->o->pace, &t);
    /* With less, the reservation is refused, which states the limit. */
    r->limits.max_output = MAX(max / request_n_choices(&r->request), 1);
    return 0;
}

/* ---- header fields */

static const struct {
    enum policy_limit limit;
    const char *openai, *anthropic; /* part of the names; NULL: not sent */
} reported[] = {
    { POLICY_LIMIT_requests_per_minute, "requests", "requests" },
    { POLICY_LIMIT_tokens_per_minute, "tokens", "tokens" },
    { POLICY_LIMIT_prompt_tokens_per_minute, NULL, "input-tokens" },
    { POLICY_LIMIT_output_tokens_per_minute, NULL, "output-tokens" },
};

/* The name and the value are in the arena of the exchange. No memory: the field is not sent. */
PRINTF(3, 4)
static void add_field(struct inflight *r, const char *name, const char *format, ...)
{
    struct route_call *c = r->async.call;
    size_t n = strlen(name);
    char *text = arena_alloc(r->async.x->arena, n + 1 + FIELD_BYTES);
    va_list arguments;

    if (!text || c->n_fields == ROUTE_CALL_FIELDS_MAX)
        return;
    memcpy(text, name, n + 1);
    va_start(arguments, format);
    vsnprintf(text + n + 1, FIELD_BYTES, format, arguments);
    va_end(arguments);
    c->fields[c->n_fields++] = (struct http_field){ { text, n }, str_of(text + n + 1) };
}

/* OpenAI: the time as "1m3.2s". */
static void add_openai(struct inflight *r, const char *what, const struct limit_status *s)
{
    char name[64];
    uint64_t ms = (s->full_ns + NS_PER_MS - 1) / NS_PER_MS;

    snprintf(name, sizeof(name), "x-ratelimit-limit-%s", what);
    add_field(r, name, "%lld", (long long)s->max);
    snprintf(name, sizeof(name), "x-ratelimit-remaining-%s", what);
    add_field(r, name, "%lld", (long long)s->left);
    snprintf(name, sizeof(name), "x-ratelimit-reset-%s", what);
    if (ms >= 60000)
        add_field(r, name, "%llum%llu.%03llus", (unsigned long long)ms / 60000,
            (unsigned long long)ms / 1000 % 60, (unsigned long long)ms % 1000);
    else
        add_field(
            r, name, "%llu.%03llus", (unsigned long long)ms / 1000, (unsigned long long)ms % 1000);
}

/* Anthropic: the time as RFC 3339, rounded up to seconds. */
static void add_anthropic(struct inflight *r, const char *what, const struct limit_status *s)
{
    char name[64], date[32];
    time_t at = (time_t)(clock_wall_s() + (int64_t)((s->full_ns + NS_PER_S - 1) / NS_PER_S));
    struct tm tm = { 0 };

    gmtime_r(&at, &tm);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(name, sizeof(name), "anthropic-ratelimit-%s-limit", what);
    add_field(r, name, "%lld", (long long)s->max);
    snprintf(name, sizeof(name), "anthropic-ratelimit-%s-remaining", what);
    add_field(r, name, "%lld", (long long)s->left);
    snprintf(name, sizeof(name), "anthropic-ratelimit-%s-reset", what);
    add_field(r, name, "%s", date);
}

static void add_fields(struct inflight *r)
{
    bool is_anthropic = r->route->errors == ERROR_ANTHROPIC;
    struct limit_time t = now();

    for (size_t i = 0; i < ARRAY_LEN(reported); i++) {
        const char *name = is_anthropic ? reported[i].anthropic : reported[i].openai;
        struct limit_status s;
        if (!name)
            continue;
        limiter_status(r->io->o->limiter, &r->limits.hold, reported[i].limit, &t, &s);
        if (s.max)
            (is_anthropic ? add_anthropic : add_openai)(r, name, &s);
    }
}

/* ---- reservation */

static int refuse(struct inflight *r, struct err *e)
{
    static const char *const kinds[] = { "this API key", "the tenant", "the model" };
    const struct limit_refusal *f = &r->limits.refusal;
    const char *name = f->kind == LIMIT_OF_KEY ? "" : f->name;

    return err_set(e, ERR_RATE,
        "Rate limit reached for %s%s%s: %s is %lld, and this request %s %lld.", kinds[f->kind],
        *name ? " " : "", name, policy_limit_names[f->limit], (long long)f->max,
        f->limit == POLICY_LIMIT_concurrent_requests ? "would be one of more than" : "needs",
        f->limit == POLICY_LIMIT_concurrent_requests ? (long long)f->max : (long long)f->requested);
}

static int64_t output_of(const struct inflight *r)
{
    int64_t n = 0;

    for (int i = 0; r->prompts && i < r->request.n_prompts; i++) /* none: guardrails block it */
        n += (int64_t)inflight_max_tokens(r, i) * r->request.best_of;
    return n;
}

/* Chooses the slice: as many tokens as the windows can grant at once, so that a request that waits
 * is granted eventually. */
static void choose_slice(struct inflight *r, const struct limit_time *t)
{
    int n_choices = request_n_choices(&r->request), max_tokens = 1;
    int64_t room = limiter_max_output(r->io->o->limiter, &r->limits.hold, r->n_prompt, true, t);

    for (int i = 0; i < r->request.n_prompts; i++)
        max_tokens = MAX(max_tokens, inflight_max_tokens(r, i));
    r->limits.slice = MIN(pace_slice(room, n_choices, max_tokens), (int)SEQ_EVENTS);
    r->limits.group = pace_group(r->limits.slice);
}

static void start_waiting(struct inflight *r, void (*on_granted)(struct inflight *r))
{
    r->limits.is_waiting = true;
    r->limits.on_granted = on_granted;
    if (!r->io->limits.n_waiting++)
        loop_timer_set(r->io->loop, &r->io->limits.timer, clock_ns());
}

static void end_waiting(struct inflight *r)
{
    r->limits.is_waiting = false;
    r->limits.on_granted = NULL;
    if (!--r->io->limits.n_waiting)
        loop_timer_stop(r->io->loop, &r->io->limits.timer);
}

int rate_limit_reserve(struct inflight *r, void (*on_granted)(struct inflight *r), struct err *e)
{
    struct limit_time t = now();
    int64_t output = output_of(r);
    struct limit_want want = { { 1, r->n_prompt, output }, { 0, r->n_prompt, output },
        r->io->o->pace };

    if (!r->io->o->limiter)
        return 0;
    /* A cached response is not generated in steps, and a blocked request not at all. */
    if (want.may_wait && !r->cached_response && r->prompts) {
        choose_slice(r, &t);
        want.window.output = 0;
        for (int i = 0; i < r->request.n_prompts; i++)
            want.window.output +=
                (int64_t)MIN(r->limits.slice, inflight_max_tokens(r, i)) * r->request.best_of;
    }
    enum limit_state state =
        limiter_reserve(r->io->o->limiter, &r->limits.hold, &want, &t, &r->limits.refusal);
    if (state == LIMIT_WAITING) {
        start_waiting(r, on_granted);
        return 1;
    }
    add_fields(r);
    return state == LIMIT_GRANTED ? 0 : refuse(r, e);
}

bool rate_limit_stop(struct inflight *r)
{
    struct limit_time t = now();

    if (!r->limits.on_granted)
        return false;
    end_waiting(r);
    limiter_end(r->io->o->limiter, &r->limits.hold, &t);
    return true;
}

/* ---- settlement */

static void add_usage(struct inflight *r, const struct limit_amounts *used, int64_t date_s)
{
    const struct limit_price *price = &r->limits.hold.price;
    struct usage_row row = { .hour = calendar_hour(date_s),
        .requests = used->requests,
        .prompt = used->prompt,
        .output = used->output,
        .cost = used->prompt * price->prompt + used->output * price->output };

    if (!r->io->o->usage)
        return;
    memcpy(row.key, r->caller.id, sizeof(row.key));
    memcpy(row.tenant, r->caller.tenant, sizeof(row.tenant));
    snprintf(row.model, sizeof(row.model), "%s", r->model->spec->id);
    usage_add(r->io->o->usage, &row);
}

static void settle(struct inflight *r, bool with_prompt)
{
    struct rate_limit *l = &r->limits;
    struct limit_amounts used = { 0, with_prompt ? r->n_prompt : 0, l->n_unsettled };
    struct limit_time t = now();

    l->is_prompt_settled |= with_prompt;
    l->n_unsettled = 0;
    if (used.prompt || used.output)
        add_usage(r, &used, limiter_settle(r->io->o->limiter, &l->hold, &used, &t));
}

void rate_limit_started(struct inflight *r)
{
    const struct limit_amounts used = { 1, 0, 0 };
    struct limit_time t = now();

    if (r->limits.hold.n_subjects)
        add_usage(r, &used, limiter_settle(r->io->o->limiter, &r->limits.hold, &used, &t));
}

void rate_limit_count(struct inflight *r)
{
    struct rate_limit *l = &r->limits;

    if (!l->hold.n_subjects)
        return;
    l->n_unsettled++;
    if (!l->is_prompt_settled || l->n_unsettled >= (l->slice ? PACE_SETTLE : SETTLE_GROUP))
        settle(r, !l->is_prompt_settled);
}

void rate_limit_close(struct inflight *r, bool is_computed)
{
    struct limit_time t = now();

    if (!r->limits.hold.n_subjects)
        return;
    if (r->limits.is_waiting)
        end_waiting(r);
    settle(r, is_computed && !r->limits.is_prompt_settled);
    limiter_end(r->io->o->limiter, &r->limits.hold, &t);
}

/* ---- pace */

static void fail_refused(struct inflight *r)
{
    struct err e;

    err_set(&e, ERR_RATE, "A rate limit was reduced below what this request needs.");
    inflight_fail(r, &e);
}

/* Gives a group of events to a session that needs one. False: none does. */
static bool give_group(struct inflight *r)
{
    for (int i = 0; i < r->request.n_prompts; i++)
        if (r->inflight_prompts[i].session && session_return_group(r->inflight_prompts[i].session))
            return true;
    return false;
}

static bool needs_group(const struct inflight *r)
{
    for (int i = 0; i < r->request.n_prompts; i++)
        if (r->inflight_prompts[i].session && session_needs_group(r->inflight_prompts[i].session))
            return true;
    return false;
}

void rate_limit_pace(struct inflight *r)
{
    /* The budgets have reserved the whole output before. */
    const struct limit_want want = { { 0, 0, r->limits.group }, { 0, 0, 0 }, true };
    struct limit_time t = now();
    struct limit_refusal why;

    while (!r->limits.is_waiting && needs_group(r)) {
        switch (limiter_reserve(r->io->o->limiter, &r->limits.hold, &want, &t, &why)) {
        case LIMIT_GRANTED:
            give_group(r);
            break;
        case LIMIT_WAITING:
            start_waiting(r, NULL);
            return;
        case LIMIT_IDLE:
            r->limits.refusal = why;
            fail_refused(r);
            return;
        }
    }
}

/* The amounts that the request waited for are reserved. r may be freed. */
static void on_granted(struct inflight *r, bool is_refused)
{
    void (*start)(struct inflight * r) = r->limits.on_granted;

    end_waiting(r);
    if (!inflight_is_open(r))
        return; /* the sessions end */
    r->n_refs++;
    if (is_refused) {
        fail_refused(r);
    } else if (start) {
        add_fields(r);
        r->n_refs--; /* the caller of rate_limit_reserve has left its reference to start */
        start(r);
        return;
    } else {
        give_group(r);
        rate_limit_pace(r);
    }
    if (is_refused && start)
        inflight_release(r);
    inflight_release(r);
}

static void take_granted(struct io *io)
{
    for (struct limit_hold *h; (h = limiter_granted(io->o->limiter, &io->limits.waker));)
        on_granted(container_of(h, struct inflight, limits.hold), h->is_refused);
}

void rate_limit_message(struct io *io)
{
    atomic_store(&io->limits.is_posted, false);
    take_granted(io);
}

static void on_timer(struct loop_timer *timer)
{
    struct io *io = container_of(timer, struct io, limits.timer);
    struct limit_time t = now();
    uint64_t due = limiter_advance(io->o->limiter, &t);

    take_granted(io);
    if (io->limits.n_waiting)
        loop_timer_set(io->loop, timer, MIN(due, t.ns + LIMITER_POLL_MS * NS_PER_MS));
}

static void wake(struct limit_waker *w)
{
    struct io *io = container_of(w, struct io, limits.waker);

    if (!atomic_exchange(&io->limits.is_posted, true))
        mailbox_post(loop_mailbox(io->loop), &io->limits.wakeup);
}

void rate_limit_io_init(struct io *io)
{
    io->limits.waker.wake = wake;
    io->limits.wakeup.kind = MSG_LIMITS;
    io->limits.timer.fn = on_timer;
}
