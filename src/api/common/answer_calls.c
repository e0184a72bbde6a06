/* The tool calls of an answer: gathered for bodies and for what ends a stream, told to streams. */
#include "api/common/answer_state.h"
#include "base/mem.h"

#include <openssl/sha.h>
#include <stdio.h>

enum { OWN_CHARACTERS = 24, NINE = 9 };

/* Letters and digits that depend on the answer's id and on the call's place in it: an answer that
 * is told twice has the same ids, and no two answers have one in common. */
static void put_characters(struct buf *out, const struct answer *a, int choice, int call, int n)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char in[sizeof(a->id) + 32];

    snprintf(in, sizeof(in), "%s/%d/%d", a->id, choice, call);
    SHA256((const unsigned char *)in, strlen(in), digest);
    for (int i = 0; i < n; i++)
        buf_putc(out, letters[digest[i] % (sizeof(letters) - 1)]);
}

static struct str make_id(const struct answer *a, const struct choice *c, int call, struct str name)
{
    int choice = (int)(c - a->choices);
    struct buf b;

    buf_init(&b, 4 * KB);
    switch (a->setup.call_ids) {
    case CALL_IDS_ANY: /* the wire's prefix and 24 characters */
        buf_putz(&b, a->wire->call_prefix ? a->wire->call_prefix : "call_");
        put_characters(&b, a, choice, call, OWN_CHARACTERS);
        break;
    case CALL_IDS_NINE:
        put_characters(&b, a, choice, call, NINE);
        break;
    case CALL_IDS_NAME:
        buf_printf(
            &b, "functions." STR_FMT ":%d", STR_ARG(name), a->setup.n_earlier_calls + c->n_calls);
        break;
    }
    if (!buf_ok(&b))
        buf_clear(&b);
    return buf_steal(&b);
}

static void call_clear(struct answer_call *k)
{
    mem_free((void *)(uintptr_t)k->id.p);
    mem_free((void *)(uintptr_t)k->name.p);
    buf_clear(&k->args);
}

void answer_calls_clear(struct choice *c)
{
    for (int i = 0; i < c->n_calls; i++)
        call_clear(&c->calls[i]);
    mem_free(c->calls);
    c->calls = NULL;
    c->n_calls = c->cap_calls = 0;
}

static bool make_room(struct choice *c)
{
    if (c->n_calls < c->cap_calls)
        return true;
    int cap = c->cap_calls ? c->cap_calls * 2 : 4;
    struct answer_call *calls = try_realloc(c->calls, (size_t)cap * sizeof(*calls));
    if (!calls)
        return false;
    c->calls = calls;
    c->cap_calls = cap;
    return true;
}

static struct str copy_of(struct str s)
{
    struct buf b;

    buf_init(&b, MAX(s.n, (size_t)1));
    buf_puts(&b, s);
    return buf_steal(&b);
}

/* The call that goes on, or NULL. */
static struct answer_call *open_call(struct choice *c, int number)
{
    if (!c || !c->has_open_call)
        return NULL;
    CHECK(c->calls[c->n_calls - 1].number == number);
    return &c->calls[c->n_calls - 1];
}

static void hold(struct answer *a, const struct answer_call *k, size_t before)
{
    a->held += k->args.n - before;
    if (!buf_ok(&k->args) || a->held > ANSWER_BYTES_MAX)
        a->has_failed = true;
}

void answer_call_begin(struct answer *a, int choice, int call, struct str name)
{
    struct choice *c = answer_open_choice(a, choice);

    if (!c)
        return;
    CHECK(!c->has_open_call);
    if (!make_room(c)) {
        a->has_failed = true;
        return;
    }
    struct answer_call *k = &c->calls[c->n_calls];
    *k = (struct answer_call){
        .number = call, .id = make_id(a, c, call, name), .name = copy_of(name)
    };
    buf_init(&k->args, ANSWER_BYTES_MAX);
    c->n_calls++;
    c->has_open_call = true;
    a->held += k->id.n + k->name.n;
    if (!k->id.p || !k->name.p) {
        a->has_failed = true;
        return;
    }
    if (answer_tells(a) && !a->wire->call_begin)
        return;
    if (answer_tells(a))
        a->wire->call_begin(a, c, k);
    answer_shown(a, c);
}

void answer_call_args(struct answer *a, int choice, int call, struct str json)
{
    struct choice *c = answer_open_choice(a, choice);
    struct answer_call *k = open_call(c, call);

    if (!k || !json.n)
        return;
    size_t before = k->args.n;
    buf_puts(&k->args, json);
    hold(a, k, before);
    if (answer_tells(a) && !a->wire->call_args)
        return;
    if (answer_tells(a))
        a->wire->call_args(a, c, k, json);
    answer_shown(a, c);
}

void answer_call_end(struct answer *a, int choice, int call)
{
    struct choice *c = answer_open_choice(a, choice);
    struct answer_call *k = open_call(c, call);

    if (!k)
        return;
    k->has_ended = true;
    c->has_open_call = false;
    if (!answer_tells(a) || !a->wire->call_end)
        return;
    a->wire->call_end(a, c, k);
    answer_shown(a, c);
}

static void break_call(struct answer *a, struct choice *c, struct answer_call *k)
{
    if (answer_tells(a) && a->wire->call_broken)
        a->wire->call_broken(a, c, k);
    a->held -= k->args.n + k->id.n + k->name.n;
    call_clear(k);
    c->n_calls--;
    c->has_open_call = false;
}

void answer_call_broken(struct answer *a, int choice, int call)
{
    struct choice *c = answer_open_choice(a, choice);
    struct answer_call *k = open_call(c, call);

    if (k)
        break_call(a, c, k);
}

void answer_calls_end(struct answer *a, struct choice *c)
{
    if (c->has_open_call)
        break_call(a, c, &c->calls[c->n_calls - 1]);
}
