/* response_calls.c: tool calls of a response. Calls are accumulated, for bodies and for the finish
 * reason, and passed to the dialect if it sends them incrementally. Owner: the io thread. */
#include "api/common/response_state.h"
#include "base/mem.h"

#include <openssl/sha.h>
#include <stdio.h>

enum { ID_CHARACTERS = 24, NINE_CHARACTERS = 9 };

/* Appends n letters and digits derived from the response's id and the position of the call. The ids
 * of a repeated response are equal; no two responses share an id. */
static void put_derived_id(struct buf *out, const struct response *a, int choice, int call, int n)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char in[sizeof(a->id) + 32];

    snprintf(in, sizeof(in), "%s/%d/%d", a->id, choice, call);
    SHA256((const unsigned char *)in, strlen(in), digest);
    for (int i = 0; i < n; i++)
        buf_putc(out, letters[digest[i] % (sizeof(letters) - 1)]);
}

static struct str make_call_id(
    const struct response *a, const struct response_choice *c, int call, struct str name)
{
    int choice = (int)(c - a->choices);
    struct buf b;

    buf_init(&b, 4 * KB);
    switch (a->setup.call_ids) {
    case CALL_IDS_ANY: /* the dialect's prefix and 24 characters */
        buf_putz(&b, a->dialect->call_prefix ? a->dialect->call_prefix : "call_");
        put_derived_id(&b, a, choice, call, ID_CHARACTERS);
        break;
    case CALL_IDS_NINE:
        put_derived_id(&b, a, choice, call, NINE_CHARACTERS);
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

static void call_clear(struct response_call *k)
{
    mem_free((void *)(uintptr_t)k->id.p);
    mem_free((void *)(uintptr_t)k->name.p);
    buf_clear(&k->args);
}

void response_calls_clear(struct response_choice *c)
{
    for (int i = 0; i < c->n_calls; i++)
        call_clear(&c->calls[i]);
    mem_free(c->calls);
    c->calls = NULL;
    c->n_calls = c->cap_calls = 0;
}

static bool reserve_call(struct response_choice *c)
{
    if (c->n_calls < c->cap_calls)
        return true;
    int cap = c->cap_calls ? c->cap_calls * 2 : 4;
    struct response_call *calls = try_realloc(c->calls, (size_t)cap * sizeof(*calls));
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

/* Returns the incomplete call, or NULL. */
static struct response_call *open_call(struct response_choice *c, int number)
{
    if (!c || !c->has_open_call)
        return NULL;
    CHECK(c->calls[c->n_calls - 1].number == number);
    return &c->calls[c->n_calls - 1];
}

static void account_args(struct response *a, const struct response_call *k, size_t before)
{
    a->held_bytes += k->args.n - before;
    if (!buf_ok(&k->args) || a->held_bytes > RESPONSE_BYTES_MAX)
        a->has_failed = true;
}

void response_call_begin(void *ctx, int choice, int call, struct str name)
{
    struct response *a = ctx;
    struct response_choice *c = response_open_choice(a, choice);

    if (!c)
        return;
    CHECK(!c->has_open_call);
    if (!reserve_call(c)) {
        a->has_failed = true;
        return;
    }
    struct response_call *k = &c->calls[c->n_calls];
    *k = (struct response_call){
        .number = call, .id = make_call_id(a, c, call, name), .name = copy_of(name)
    };
    buf_init(&k->args, RESPONSE_BYTES_MAX);
    c->n_calls++;
    c->has_open_call = true;
    a->held_bytes += k->id.n + k->name.n;
    if (!k->id.p || !k->name.p) {
        a->has_failed = true;
        return;
    }
    if (response_is_incremental(a) && !a->dialect->output->call_begin)
        return;
    if (response_is_incremental(a))
        a->dialect->output->call_begin(a, choice, call, k->name);
    response_commit_lists(a, c);
}

void response_call_args(void *ctx, int choice, int call, struct str json)
{
    struct response *a = ctx;
    struct response_choice *c = response_open_choice(a, choice);
    struct response_call *k = open_call(c, call);

    if (!k || !json.n)
        return;
    size_t before = k->args.n;
    buf_puts(&k->args, json);
    account_args(a, k, before);
    if (response_is_incremental(a) && !a->dialect->output->call_args)
        return;
    if (response_is_incremental(a))
        a->dialect->output->call_args(a, choice, call, json);
    response_commit_lists(a, c);
}

void response_call_end(void *ctx, int choice, int call)
{
    struct response *a = ctx;
    struct response_choice *c = response_open_choice(a, choice);
    struct response_call *k = open_call(c, call);

    if (!k)
        return;
    k->has_ended = true;
    c->has_open_call = false;
    if (!response_is_incremental(a) || !a->dialect->output->call_end)
        return;
    a->dialect->output->call_end(a, choice, call);
    response_commit_lists(a, c);
}

static void break_call(struct response *a, struct response_choice *c, struct response_call *k)
{
    if (response_is_incremental(a) && a->dialect->output->call_broken)
        a->dialect->output->call_broken(a, response_choice_index(a, c), k->number);
    a->held_bytes -= k->args.n + k->id.n + k->name.n;
    call_clear(k);
    c->n_calls--;
    c->has_open_call = false;
}

void response_call_broken(void *ctx, int choice, int call)
{
    struct response *a = ctx;
    struct response_choice *c = response_open_choice(a, choice);
    struct response_call *k = open_call(c, call);

    if (k)
        break_call(a, c, k);
}

void response_calls_end(struct response *a, struct response_choice *c)
{
    if (!c->has_open_call)
        return;
    c->ends_inside_call = true;
    break_call(a, c, &c->calls[c->n_calls - 1]);
}

const char *response_partial_call_message(const struct response_choice *c)
{
    return c->ends_inside_call ? "The output ended inside a tool call, which is incomplete."
                               : "The output contains a tool call that is not valid.";
}
