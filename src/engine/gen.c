#include "engine/gen.h"
#include "base/mem.h"

#include <stdatomic.h>

/* Tokens of one choice; of all choices together. */
enum { TOKENS_MAX = 1 << 24, ALL_TOKENS_MAX = 1 << 26 };

/* Requests up to this size are freed without waking the engine thread. */
enum { SMALL_TOKENS = 4096 };

enum { RETURN_GROUP_MAX = 8 }; /* events returned by one message chain */

/* Maximum slots of the n-gram indexes: of a prompt or prediction, of the output of one choice. */
enum { TEXT_SLOTS = 1 << 16, OWN_SLOTS = 1 << 14 };

static _Atomic uint64_t last_id;

static int check_script(const struct gen_script *s, struct err *e)
{
    if (s->n_tokens < 0 || s->n_groups < 0)
        return err_set(e, ERR_RANGE, "a script cannot have %d tokens", s->n_tokens);
    for (int i = 0; i < s->n_groups; i++)
        if (s->group_end[i] < (i ? s->group_end[i - 1] : 0) || s->group_end[i] > s->n_tokens)
            return err_set(e, ERR_RANGE, "script groups are out of order");
    return 0;
}

static int check_input(const struct gen_input *in, struct err *e)
{
    if (in->n_prompt < 1 || in->max_tokens < 0)
        return err_set(e, ERR_RANGE, "%d prompt tokens with max_tokens %d are out of range",
            in->n_prompt, in->max_tokens);
    if (in->n_choices < 1 || in->n_choices > GEN_CHOICES_MAX)
        return err_set(
            e, ERR_RANGE, "%d choices are not 1 to %d", in->n_choices, (int)GEN_CHOICES_MAX);
    if (in->n_prompt > TOKENS_MAX || in->max_tokens > TOKENS_MAX ||
        in->n_prompt + in->max_tokens > ALL_TOKENS_MAX / in->n_choices)
        return err_set(e, ERR_TOO_LARGE,
            "%d choices of %lld tokens exceed the limit of one request", in->n_choices,
            (long long)in->n_prompt + in->max_tokens);
    if (in->n_predicted < 0 || in->n_predicted > TOKENS_MAX)
        return err_set(e, ERR_RANGE, "a prediction cannot have %d tokens", in->n_predicted);
    if (in->n_events_max < 0)
        return err_set(e, ERR_RANGE, "a choice cannot have %d events", in->n_events_max);
    if (in->script && in->constraints)
        return err_set(e, ERR_UNSUPPORTED, "the output of a script cannot be constrained");
    return in->script ? check_script(in->script, e) : 0;
}

static int max_events(const struct gen_input *in, int choice)
{
    bool is_scored = choice == 0 && in->want_prompt_logprobs;

    return MAX(in->max_tokens + (is_scored ? in->n_prompt : 0), 1);
}

static int n_events_of(const struct gen_input *in, int choice)
{
    int limit = in->n_events_max ? in->n_events_max : SEQ_EVENTS;

    return MIN(max_events(in, choice), MIN(limit, (int)SEQ_EVENTS));
}

/* Slots of the n-gram indexes: one index over the prompt and one over the prediction, shared by all
 * choices, and one per choice over its output. */
static size_t n_index_slots(const struct gen_input *in)
{
    size_t n = 0;

    if (in->want_drafts && !in->script)
        n = ngram_slots(in->n_prompt, TEXT_SLOTS) +
            ngram_slots(in->max_tokens, OWN_SLOTS) * (size_t)in->n_choices;
    return n + (in->n_predicted ? ngram_slots(in->n_predicted, TEXT_SLOTS) : 0);
}

static void index_text(
    struct ngram *g, const int32_t *tokens, int n, uint32_t **slots, size_t n_slots)
{
    ngram_init(g, *slots, n_slots);
    ngram_add(g, tokens, 0, n);
    *slots += n_slots;
}

static void lay_out_drafts(struct gen *g, uint32_t *slots)
{
    const struct gen_input *in = &g->in;
    bool has_history = in->want_drafts && !in->script;
    size_t n_own = has_history ? ngram_slots(in->max_tokens, OWN_SLOTS) : 0;

    if (has_history)
        index_text(&g->prompt_ngram, in->prompt, in->n_prompt, &slots,
            ngram_slots(in->n_prompt, TEXT_SLOTS));
    if (in->n_predicted)
        index_text(&g->predicted_ngram, in->predicted, in->n_predicted, &slots,
            ngram_slots(in->n_predicted, TEXT_SLOTS));
    for (int i = 0; i < in->n_choices; i++) {
        struct draft_seq *d = &g->choice[i].draft;
        draft_seq_init(d, has_history ? &g->prompt_ngram : NULL, in->n_prompt,
            has_history ? slots + n_own * (size_t)i : NULL, n_own);
        draft_seq_predict(d, in->predicted, in->n_predicted, &g->predicted_ngram);
    }
}

/* Lays out one block: gen and choices, events, tokens, page tables, indexes. Events and tokens are
 * written at first use, so untouched parts cost no physical memory. */
static void lay_out_block(struct gen *g, const struct gen_input *in, char *p)
{
    int n_tokens = in->n_prompt + in->max_tokens;

    for (int i = 0; i < in->n_choices; i++) {
        struct gen_choice *ch = &g->choice[i];
        ch->events = (struct gen_event *)(void *)p;
        ch->n_events = ch->credits = n_events_of(in, i);
        p += (size_t)ch->n_events * sizeof(*ch->events);
    }
    for (int i = 0; i < in->n_choices; i++) {
        struct gen_choice *ch = &g->choice[i];
        ch->gen = g;
        ch->index = i;
        ch->seq = SEQ_NONE;
        ch->tokens = (int32_t *)(void *)p;
        p += (size_t)n_tokens * sizeof(*ch->tokens);
        ch->pages = (page_id *)(void *)p;
        ch->windows = ch->pages + pages_for(n_tokens);
        p += 2 * (size_t)pages_for(n_tokens) * sizeof(*ch->pages);
        memcpy(ch->tokens, in->prompt, (size_t)in->n_prompt * sizeof(*ch->tokens));
    }
    lay_out_drafts(g, (uint32_t *)(void *)p);
}

static size_t block_bytes(const struct gen_input *in)
{
    size_t n_tokens = (size_t)in->n_prompt + (size_t)in->max_tokens;
    size_t n = n_index_slots(in) * sizeof(uint32_t);

    for (int i = 0; i < in->n_choices; i++)
        n += (size_t)n_events_of(in, i) * sizeof(struct gen_event) + n_tokens * sizeof(int32_t) +
             2 * (size_t)pages_for((int)n_tokens) * sizeof(page_id);
    return n;
}

int gen_new(
    struct gen **out, const struct gen_input *in, struct mailbox *reply, void *user, struct err *e)
{
    if (check_input(in, e))
        return -1;

    size_t head = sizeof(struct gen) + (size_t)in->n_choices * sizeof(struct gen_choice);
    struct gen *g = try_aligned(_Alignof(struct gen), head + block_bytes(in));
    if (!g)
        return err_set(e, ERR_MEMORY, "no memory for a request of %d tokens, %d choices",
            in->n_prompt + in->max_tokens, in->n_choices);
    memset(g, 0, head);
    g->in = *in;
    g->reply = reply;
    g->user = user;
    g->id = ++last_id;
    lay_out_block(g, in, (char *)g + head);
    *out = g;
    return 0;
}

void gen_free(struct gen *g)
{
    if (!g)
        return;
    if (!g->queue) {
        mem_free(g);
        return;
    }
    CHECK(g->is_over);
    struct submit_queue *p = g->queue; /* the engine may free g as soon as the message is posted */
    bool is_small = g->in.n_prompt + g->in.max_tokens <= SMALL_TOKENS;
    g->free_msg.kind = ENGINE_MSG_FREE;
    if (is_small)
        mailbox_post_quiet(p->inbox, &g->free_msg);
    else
        mailbox_post(p->inbox, &g->free_msg);
    submit_queue_unref(p);
}

void *gen_user(const struct gen *g)
{
    return g->user;
}

uint64_t gen_id(const struct gen *g)
{
    return g->id;
}

const struct gen_input *gen_input(const struct gen *g)
{
    return &g->in;
}

const struct gen_result *gen_result(const struct gen *g)
{
    return &g->result;
}

/* ---- messages of the caller */

/* Events are returned in groups, so that the engine handles fewer messages. A group is at most a
 * quarter of the events, the point at which a parked sequence continues (core.c), and at most
 * RETURN_GROUP_MAX, since recently used events are still in the CPU cache. If each token has an
 * event of its own, no sequence waits for returned events. */
static int return_group_size(const struct gen_choice *ch)
{
    bool has_enough = ch->n_events == max_events(&ch->gen->in, ch->index);

    return has_enough ? RETURN_GROUP_MAX : MIN((ch->n_events + 3) / 4, (int)RETURN_GROUP_MAX);
}

void gen_event_done(struct gen_event *ev)
{
    if (ev->msg.kind != GEN_TOKEN && ev->msg.kind != GEN_PROMPT_TOKEN)
        return;
    struct gen_choice *ch = &ev->gen->choice[ev->choice];

    ev->msg.kind = ENGINE_MSG_EVENT_RETURN;
    ev->msg.next = ch->returned;
    if (!ch->n_returned++)
        ch->returned_last = &ev->msg;
    ch->returned = &ev->msg;
    if (ch->n_returned < return_group_size(ch))
        return;
    mailbox_post_chain(ev->gen->queue->inbox, ch->returned, ch->returned_last);
    ch->returned = NULL;
    ch->n_returned = 0;
}

void engine_cancel(struct engine *en, struct gen *g)
{
    if (!g->queue || atomic_exchange(&g->is_cancel_posted, true))
        return;
    g->cancel_msg.kind = ENGINE_MSG_CANCEL;
    mailbox_post(g->queue->inbox, &g->cancel_msg);
}

void engine_stop_choice(struct engine *en, struct gen *g, int choice)
{
    CHECK(choice >= 0 && choice < g->in.n_choices);
    struct gen_choice *ch = &g->choice[choice];

    if (!g->queue || atomic_exchange(&ch->is_stop_posted, true))
        return;
    ch->stop_msg.kind = ENGINE_MSG_STOP_CHOICE;
    mailbox_post(g->queue->inbox, &ch->stop_msg);
}

/* ---- engine side */

struct gen_event *choice_new_event(struct gen_choice *ch)
{
    CHECK(ch->n_used < ch->n_events);
    struct gen_event *ev = &ch->events[ch->n_used++];

    ev->gen = ch->gen;
    ev->choice = ch->index;
    ev->finish = FINISH_NONE;
    return ev;
}

void choice_return_event(struct gen_choice *ch, struct gen_event *ev)
{
    CHECK(ch->credits < ch->n_events);
    ev->msg.next = ch->free_events ? &ch->free_events->msg : NULL;
    ch->free_events = ev;
    ch->credits++;
}
