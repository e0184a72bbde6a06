#include "testing/fake_constraint.h"
#include "base/hash.h"
#include "base/mem.h"

#include <stdatomic.h>

struct fake_constraint {
    struct fake_constraint_options o;
    uint64_t *states; /* [max_tokens + 1] hash after each number of tokens */
    int n;            /* pushed tokens */
    uint64_t done;    /* byte steps of the present mask */
    bool is_ready;
    uint32_t *bits; /* [(n_vocab + 31) / 32] */
    int32_t *ids;   /* [n_vocab] */
    int n_ids;
    _Atomic bool is_in_use;
};

int fake_constraint_new(
    struct fake_constraint **out, const struct fake_constraint_options *o, struct err *e)
{
    struct fake_constraint *f = xcalloc(1, sizeof(*f));

    CHECK(o->n_vocab > FAKE_ENDS_MAX && o->n_ends <= FAKE_ENDS_MAX);
    f->o = *o;
    f->states = try_calloc((size_t)o->max_tokens + 1, sizeof(*f->states));
    f->bits = try_calloc(((size_t)o->n_vocab + 31) / 32, sizeof(*f->bits));
    f->ids = try_calloc((size_t)o->n_vocab, sizeof(*f->ids));
    if (!f->states || !f->bits || !f->ids) {
        fake_constraint_free(f);
        return err_set(e, ERR_MEMORY, "no memory for a fake constraint");
    }
    f->states[0] = hash_mix(o->seed + 1);
    *out = f;
    return 0;
}

void fake_constraint_free(struct fake_constraint *f)
{
    if (!f)
        return;
    mem_free(f->states);
    mem_free(f->bits);
    mem_free(f->ids);
    mem_free(f);
}

int fake_constraint_n(const struct fake_constraint *f)
{
    return f->n;
}

static struct fake_constraint *enter(void *self)
{
    struct fake_constraint *f = self;

    CHECK(!atomic_exchange(&f->is_in_use, true));
    return f;
}

static void leave(struct fake_constraint *f)
{
    atomic_store(&f->is_in_use, false);
}

/* ---- the language: functions of the state and the number of tokens */

static int percent_of(uint64_t state, uint64_t purpose)
{
    return (int)(hash_mix(state ^ purpose << 56) % 100);
}

static bool is_end(const struct fake_constraint *f, int32_t id)
{
    for (int i = 0; i < f->o.n_ends; i++)
        if (f->o.ends[i] == id)
            return true;
    return false;
}

static bool is_finished(const struct fake_constraint *f, int n)
{
    return f->o.complete_at && n >= f->o.complete_at;
}

static bool accepts_at(const struct fake_constraint *f, uint64_t state, int n)
{
    return is_finished(f, n) || percent_of(state, 1) < f->o.accept_percent;
}

/* A token that the state permits unless nothing is permitted. */
static int32_t certain_at(const struct fake_constraint *f, uint64_t state)
{
    int32_t id = (int32_t)(hash_mix(state + 3) % (uint64_t)f->o.n_vocab);

    while (is_end(f, id))
        id = (id + 1) % f->o.n_vocab;
    return id;
}

/* The only permitted token of a state that forces one; -1: the state forces none. */
static int32_t forced_at(const struct fake_constraint *f, uint64_t state, int n)
{
    if (is_finished(f, n) || percent_of(state, 2) >= f->o.forced_percent)
        return -1;
    return certain_at(f, state);
}

static bool permits(const struct fake_constraint *f, uint64_t state, int n, int32_t id)
{
    int32_t forced = forced_at(f, state, n);

    if (f->o.empty_at && n >= f->o.empty_at)
        return false;
    if (is_end(f, id))
        return accepts_at(f, state, n);
    if (is_finished(f, n))
        return false;
    if (forced >= 0)
        return id == forced;
    uint64_t chance = percent_of(state, 4) < f->o.list_percent ? 3 : 60;
    return percent_of(state, 5) < 10 || id == certain_at(f, state) ||
           hash_mix(state + HASH_GOLDEN * (uint64_t)(id + 1)) % 100 < chance;
}

static uint64_t after(uint64_t state, int32_t id)
{
    return hash_mix(state + (uint64_t)(uint32_t)id * 2 + 1);
}

static uint64_t cost_at(const struct fake_constraint *f, uint64_t state)
{
    return 1 + hash_mix(state + 6) % (uint64_t)MAX(f->o.max_cost, 1);
}

/* ---- the interface */

static void drop_mask(struct fake_constraint *f)
{
    f->is_ready = false;
    f->done = 0;
    f->n_ids = 0;
    memset(f->bits, 0xa5, ((size_t)f->o.n_vocab + 31) / 32 * sizeof(*f->bits));
    memset(f->ids, 0xa5, (size_t)f->o.n_vocab * sizeof(*f->ids));
}

static void make_mask(struct fake_constraint *f)
{
    uint64_t state = f->states[f->n];

    f->n_ids = 0;
    memset(f->bits, 0, ((size_t)f->o.n_vocab + 31) / 32 * sizeof(*f->bits));
    for (int id = 0; id < f->o.n_vocab; id++)
        if (permits(f, state, f->n, id)) {
            f->bits[id / 32] |= 1u << id % 32;
            f->ids[f->n_ids++] = id;
        }
    f->is_ready = true;
}

static enum mask_progress fake_mask(
    void *self, uint64_t steps, struct token_mask *out, struct err *e)
{
    struct fake_constraint *f = enter(self);
    uint64_t state = f->states[f->n];
    enum mask_progress progress = MASK_DONE;

    CHECK(steps > 0);
    f->done += MIN(steps, UINT32_MAX);
    if (f->o.error_at && f->n >= f->o.error_at) {
        err_set(e, ERR_TOO_LARGE, "the mask of a fake constraint exceeds its bound");
        progress = MASK_ERROR;
    } else if (!f->is_ready && f->done < cost_at(f, state)) {
        progress = MASK_MORE;
    } else {
        if (!f->is_ready)
            make_mask(f);
        bool is_list = f->n_ids * 50 <= f->o.n_vocab || percent_of(state, 7) < 30;
        *out = (struct token_mask){ .form = is_list ? MASK_FORM_IDS : MASK_FORM_BITS,
            .bits = is_list ? NULL : f->bits,
            .ids = is_list ? f->ids : NULL,
            .n_ids = is_list ? f->n_ids : 0 };
        if (f->n_ids == f->o.n_vocab)
            *out = (struct token_mask){ .form = MASK_FORM_ALL };
    }
    leave(f);
    return progress;
}

static bool fake_push(void *self, int32_t token)
{
    struct fake_constraint *f = enter(self);
    bool is_permitted = token >= 0 && token < f->o.n_vocab && !is_end(f, token) &&
                        permits(f, f->states[f->n], f->n, token);

    if (is_permitted) {
        CHECK(f->n < f->o.max_tokens);
        f->states[f->n + 1] = after(f->states[f->n], token);
        f->n++;
        drop_mask(f);
    }
    leave(f);
    return is_permitted;
}

static void fake_pop(void *self, int n)
{
    struct fake_constraint *f = enter(self);

    CHECK(n > 0 && n <= f->n && n <= CONSTRAINT_POP_MAX);
    f->n -= n;
    drop_mask(f);
    leave(f);
}

static int fake_forced(void *self, int32_t *ids, int cap)
{
    struct fake_constraint *f = enter(self);
    uint64_t state = f->states[f->n];
    int n = 0;

    for (; n < cap; n++) {
        int32_t id = forced_at(f, state, f->n + n);
        if (id < 0)
            break;
        ids[n] = percent_of(state, 8) < 5 ? (id + 1) % f->o.n_vocab : id;
        state = after(state, ids[n]);
    }
    leave(f);
    return n;
}

static bool fake_is_complete(void *self)
{
    struct fake_constraint *f = enter(self);
    bool is_complete = is_finished(f, f->n);

    leave(f);
    return is_complete;
}

static bool fake_accepts(void *self)
{
    struct fake_constraint *f = enter(self);
    bool accepts = accepts_at(f, f->states[f->n], f->n);

    leave(f);
    return accepts;
}

static void fake_reset(void *self)
{
    struct fake_constraint *f = enter(self);

    f->n = 0;
    drop_mask(f);
    leave(f);
}

struct sample_constraint fake_constraint_ops(struct fake_constraint *f)
{
    static const struct constraint_ops ops = { fake_mask, fake_push, fake_pop, fake_forced,
        fake_is_complete, fake_accepts, fake_reset };

    return (struct sample_constraint){ &ops, f };
}
