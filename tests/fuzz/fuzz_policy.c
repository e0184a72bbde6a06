/* Fuzzes the reader of the policy's INI text and of sealed files. Text that is accepted is written
 * again, and reading that gives the same keys. */
#include "base/mem.h"
#include "policy/old_form.h"
#include "policy/policy_text.h"
#include "policy/seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Two sections may have the same digest, which a snapshot refuses. */
static struct policy_snapshot *snapshot_of(struct policy_list *take)
{
    struct policy_snapshot *s = NULL;
    struct err e;

    if (policy_snapshot_new(
            &s, (const struct policy_key *const *)take->keys, take->n, take->version, &e))
        s = NULL;
    take->n = 0;
    if (s) { /* a body of a role may be invalid */
        struct policy_snapshot *with = NULL;
        if (policy_snapshot_set_objects(&with, s, take->objects, take->version, &e))
            with = NULL;
        policy_snapshot_unref(s);
        s = with;
    }
    policy_list_clear(take);
    return s;
}

static void write_and_read_again(const struct policy_snapshot *s)
{
    struct policy_list list = { 0 };
    struct buf first, second;
    struct err e;

    buf_init(&first, 64 * MB);
    buf_init(&second, 64 * MB);
    policy_text_write(s, &first);
    CHECK(buf_ok(&first) && !policy_text_read(buf_str(&first), &list, &e));
    struct policy_snapshot *again = snapshot_of(&list);
    CHECK(again);
    policy_text_write(again, &second);
    CHECK(str_eq(buf_str(&first), buf_str(&second)));
    policy_snapshot_unref(again);
    buf_clear(&first);
    buf_clear(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str text = { (const char *)data, n };
    struct policy_list list = { 0 };
    struct seal_key key;
    struct buf b;
    struct err e;

    if (!policy_text_read(text, &list, &e)) {
        struct policy_snapshot *s = snapshot_of(&list);
        if (s)
            write_and_read_again(s);
        policy_snapshot_unref(s);
    }
    if (old_form_is(text)) {
        int n_words;
        buf_init(&b, 64 * MB);
        if (old_form_read(STR("passphrase"), text, 1, &b, &n_words, &e))
            CHECK(e.code);
        buf_clear(&b);
        return 0;
    }
    /* Only headers with the smallest cost of scrypt, since others take most of the time. */
    if (n <= 12 || data[12] > SEAL_LOG2_N_MIN)
        return 0;
    buf_init(&b, 64 * MB);
    CHECK(seal_read(&key, STR("passphrase"), text, &b, &e));
    buf_clear(&b);
    return 0;
}
