#include "serve/slots.h"
#include "base/list.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>

struct slot {
    struct slot_view view;   /* except n_generated, which is atomic */
    _Atomic int n_generated; /* written by the thread that generates, read by viewers */
    int n_users;             /* more than one if a busy slot was requested by its number */
    struct list_link idle;   /* in the list of idle slots of its table */
    struct slot_conversation talk;
};

struct slot_table { /* slots of one model */
    char *id;       /* of the model */
    struct slot *slots;
    int n;
    struct list idle;     /* struct slot: least recently used first; empty: all are busy */
    uint64_t digest_load; /* model.load to which the digest belongs; 0: none */
    uint8_t digest[32];
};

struct slots {
    pthread_mutex_t mu; /* guards everything except a table's size, which is constant */
    bool keeps_conversations;
    int n_tables, cap;
    struct slot_table **tables; /* [cap] */
    uint64_t n_tasks;
};

struct slots *slots_new(bool keeps_conversations)
{
    struct slots *s = xcalloc(1, sizeof(*s));

    CHECK(!pthread_mutex_init(&s->mu, NULL));
    s->keeps_conversations = keeps_conversations;
    return s;
}

static void free_table(struct slot_table *t)
{
    for (int j = 0; j < t->n; j++) {
        CHECK(t->slots[j].n_users == 0);
        mem_free(t->slots[j].talk.tokens);
    }
    mem_free(t->slots);
    mem_free(t->id);
    mem_free(t);
}

void slots_free(struct slots *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_tables; i++)
        free_table(s->tables[i]);
    mem_free(s->tables);
    pthread_mutex_destroy(&s->mu);
    mem_free(s);
}

static struct slot_table *add_table(struct slots *s, const struct model *m)
{
    struct slot_table *t = xcalloc(1, sizeof(*t));

    if (s->n_tables == s->cap) {
        s->cap = MAX(2 * s->cap, 4);
        s->tables = xrealloc(s->tables, (size_t)s->cap * sizeof(*s->tables));
    }
    t->id = xmalloc(strlen(m->spec->id) + 1);
    memcpy(t->id, m->spec->id, strlen(m->spec->id) + 1);
    t->n = m->spec->engine.max_batch;
    t->slots = xcalloc((size_t)t->n, sizeof(*t->slots));
    for (int j = 0; j < t->n; j++)
        list_add_last(&t->idle, &t->slots[j].idle);
    s->tables[s->n_tables++] = t;
    return t;
}

/* The slots of a model; they are created on first use. A model of the same name with another number
 * of slots has its own table. The caller holds the mutex. */
static struct slot_table *table_of(struct slots *s, const struct model *m)
{
    for (int i = 0; i < s->n_tables; i++)
        if (s->tables[i]->n == m->spec->engine.max_batch && !strcmp(s->tables[i]->id, m->spec->id))
            return s->tables[i];
    return add_table(s, m);
}

static int set_id_error(struct err *e)
{
    return err_param(e, ERR_RANGE, "id_slot", "Invalid slot ID");
}

/* ---- taking a slot */

static bool is_same_scope(const struct cache_scope *a, const struct cache_scope *b)
{
    return a->tenant == b->tenant && !memcmp(a->salt, b->salt, sizeof(a->salt));
}

static int n_common(const struct slot_conversation *t, const struct slot_use *u)
{
    int n = MIN(t->n, u->n_prompt), i = 0;

    if (!is_same_scope(&t->scope, &u->scope))
        return 0;
    while (i < n && t->tokens[i] == u->prompt[i])
        i++;
    return i;
}

/* Among the idle slots: the one whose conversation has the longest common prefix, else the least
 * recently used one; SLOT_NONE if all slots are busy. */
static int choose_slot(const struct slots *s, const struct slot_table *t, const struct slot_use *u)
{
    const struct slot *best = LIST_ELEMENT(t->idle.first, struct slot, idle);
    int64_t most = (int64_t)u->n_prompt * SLOT_CONTINUES_PERCENT / 100;

    LIST_EACH (const struct slot, k, &t->idle, idle) {
        int n = s->keeps_conversations ? n_common(&k->talk, u) : 0;
        if (n > most) {
            most = n;
            best = k;
        }
    }
    return best ? (int)(best - t->slots) : SLOT_NONE;
}

/* The view of a slot outlives the request, which owns the arrays of its parameters. */
static void drop_borrowed(struct sample_params *s)
{
    s->bias = NULL;
    s->allowed = s->banned_until_min = NULL;
    s->n_bias = s->n_allowed = s->n_banned_until_min = 0;
}

static void take_slot(struct slots *s, struct slot_lease *h)
{
    pthread_mutex_lock(&s->mu);
    struct slot_table *t = table_of(s, h->use.model);
    h->id = h->use.wanted == SLOT_NONE ? choose_slot(s, t, &h->use) : h->use.wanted;
    if (h->id != SLOT_NONE) {
        struct slot *slot = &t->slots[h->id];
        if (slot->n_users++ == 0)
            list_remove(&slot->idle);
        h->slot = slot;
        slot->n_generated = h->n_generated;
        slot->view = (struct slot_view){ .task = ++s->n_tasks,
            .tenant = h->use.scope.tenant,
            .is_busy = true,
            .n_max = h->use.n_max,
            .params = h->use.params };
        drop_borrowed(&slot->view.params.sample);
    }
    pthread_mutex_unlock(&s->mu);
}

int slot_begin(struct slot_lease *h, struct slots *s, const struct slot_use *u, struct err *e)
{
    *h = (struct slot_lease){ .id = SLOT_NONE };
    if (!s)
        return 0;
    if (u->wanted != SLOT_NONE && (u->wanted < 0 || u->wanted >= slots_count(s, u->model)))
        return set_id_error(e);
    h->slots = s;
    h->use = *u;
    if (s->keeps_conversations)
        h->tokens = try_calloc((size_t)u->n_prompt + (size_t)u->n_max, sizeof(*h->tokens));
    if (h->tokens) {
        memcpy(h->tokens, u->prompt, (size_t)u->n_prompt * sizeof(*u->prompt));
        h->n_tokens = u->n_prompt;
    }
    take_slot(s, h);
    return 0;
}

void slot_token(struct slot_lease *h, int32_t id)
{
    struct slots *s = h->slots;

    if (!s)
        return;
    h->n_generated++;
    if (h->tokens && h->n_tokens < h->use.n_prompt + h->use.n_max)
        h->tokens[h->n_tokens++] = id;
    if (!h->slot && h->n_generated == 1)
        take_slot(s, h);
    if (h->slot)
        atomic_store_explicit(&h->slot->n_generated, h->n_generated, memory_order_relaxed);
}

/* The caller holds the mutex. */
static void swap_conversation(struct slot *slot, struct slot_conversation *take)
{
    struct slot_conversation old = slot->talk;

    slot->talk = *take;
    *take = old;
}

void slot_end(struct slot_lease *h)
{
    struct slots *s = h->slots;
    struct slot_conversation talk = { h->use.scope, h->tokens, h->n_tokens };

    if (!s)
        return;
    if (h->id != SLOT_NONE) {
        pthread_mutex_lock(&s->mu);
        struct slot *slot = h->slot;
        CHECK(slot->n_users > 0);
        slot->view.is_busy = --slot->n_users > 0;
        if (!slot->view.is_busy)
            list_add_last(&table_of(s, h->use.model)->idle, &slot->idle);
        if (talk.tokens)
            swap_conversation(slot, &talk);
        pthread_mutex_unlock(&s->mu);
    }
    mem_free(talk.tokens);
    *h = (struct slot_lease){ .id = SLOT_NONE };
}

int slot_id(const struct slot_lease *h)
{
    return h->slots ? h->id : SLOT_NONE;
}

/* ---- viewing */

int slots_count(struct slots *s, const struct model *m)
{
    return m->spec->engine.max_batch;
}

void slots_view(struct slots *s, const struct model *m, int id, struct slot_view *out)
{
    pthread_mutex_lock(&s->mu);
    struct slot_table *t = table_of(s, m);
    CHECK(id >= 0 && id < t->n);
    *out = t->slots[id].view;
    out->n_generated = t->slots[id].n_generated;
    pthread_mutex_unlock(&s->mu);
}

/* ---- conversations */

int slots_copy_conversation(struct slots *s, const struct model *m, int id, uint64_t tenant,
    struct slot_conversation *out, struct err *e)
{
    int failed = 0;

    *out = (struct slot_conversation){ 0 };
    if (id < 0 || id >= slots_count(s, m))
        return set_id_error(e);
    pthread_mutex_lock(&s->mu);
    struct slot_table *t = table_of(s, m);
    const struct slot_conversation *talk = &t->slots[id].talk;
    if (talk->n > 0 && talk->scope.tenant != tenant) {
        failed =
            err_set(e, ERR_FORBIDDEN, "The conversation of slot %d belongs to another key.", id);
    } else if (talk->n > 0) {
        size_t n_bytes = (size_t)talk->n * sizeof(*talk->tokens);
        *out = *talk;
        out->tokens = try_malloc(n_bytes);
        if (out->tokens)
            memcpy(out->tokens, talk->tokens, n_bytes);
        else
            failed = err_set(e, ERR_MEMORY, "no memory for a conversation of %d tokens", talk->n);
    }
    pthread_mutex_unlock(&s->mu);
    return failed;
}

void slots_set_conversation(
    struct slots *s, const struct model *m, int id, struct slot_conversation *take)
{
    pthread_mutex_lock(&s->mu);
    struct slot_table *t = table_of(s, m);
    CHECK(id >= 0 && id < t->n);
    swap_conversation(&t->slots[id], take);
    pthread_mutex_unlock(&s->mu);
    mem_free(take->tokens);
    *take = (struct slot_conversation){ 0 };
}

/* ---- digests */

bool slots_digest(struct slots *s, const struct model *m, uint8_t out[32])
{
    pthread_mutex_lock(&s->mu);
    struct slot_table *t = table_of(s, m);
    bool is_known = t->digest_load == m->load;
    memcpy(out, t->digest, sizeof(t->digest));
    pthread_mutex_unlock(&s->mu);
    return is_known;
}

void slots_set_digest(struct slots *s, const struct model *m, const uint8_t digest[32])
{
    pthread_mutex_lock(&s->mu);
    struct slot_table *t = table_of(s, m);
    memcpy(t->digest, digest, sizeof(t->digest));
    t->digest_load = m->load;
    pthread_mutex_unlock(&s->mu);
}
