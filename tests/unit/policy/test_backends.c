/* Storage of the policy: encryption, INI text, both backends, failures of disk and memory, kill -9,
 * and the policy thread. */
#include "support/check.h"
#include "base/fault.h"
#include "base/mem.h"
#include "policy/policy.h"
#include "policy/policy_text.h"
#include "policy/seal.h"
#include "support/tmpdir.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

static const struct str passphrase = { "correct horse", 13 };

/* ---- encryption */

static void put_sealed(struct buf *out, struct str text)
{
    struct seal_key k;
    struct err e;

    EXPECT_EQ(seal_key_new(&k, passphrase, SEAL_LOG2_N_MIN, &e), 0);
    EXPECT_EQ(seal_write(&k, text, out, &e), 0);
    seal_key_clear(&k);
}

static enum errcode read_sealed(struct str sealed, struct str with, struct buf *text)
{
    struct seal_key k;
    struct err e;

    buf_reset(text);
    if (!seal_read(&k, with, sealed, text, &e))
        return ERR_NONE;
    EXPECT_EQ(text->n, (size_t)0);
    return e.code;
}

static void sealed_text_is_read_back_and_differs_each_time(void)
{
    struct buf a, b, text;

    buf_init(&a, MB);
    buf_init(&b, MB);
    buf_init(&text, MB);
    put_sealed(&a, STR("some text"));
    put_sealed(&b, STR("some text"));
    EXPECT_EQ(a.n, (size_t)(SEAL_HEAD_BYTES + 9 + SEAL_TAG_BYTES));
    EXPECT(!str_eq(buf_str(&a), buf_str(&b)));
    EXPECT_EQ((int)read_sealed(buf_str(&a), passphrase, &text), (int)ERR_NONE);
    EXPECT(str_is(buf_str(&text), "some text"));
    EXPECT_EQ((int)read_sealed(buf_str(&a), STR("correct hors"), &text), (int)ERR_CORRUPT);
    buf_reset(&a);
    put_sealed(&a, STR(""));
    EXPECT_EQ((int)read_sealed(buf_str(&a), passphrase, &text), (int)ERR_NONE);
    buf_clear(&a);
    buf_clear(&b);
    buf_clear(&text);
}

static void every_changed_byte_and_every_truncation_is_an_error(void)
{
    struct buf sealed, text;

    buf_init(&sealed, MB);
    buf_init(&text, MB);
    put_sealed(&sealed, STR("[policy]\nversion = 3\n"));
    for (size_t i = 0; i < sealed.n; i++) {
        sealed.p[i] ^= (char)(1 << i % 8);
        EXPECT((int)read_sealed(buf_str(&sealed), passphrase, &text) != (int)ERR_NONE);
        sealed.p[i] ^= (char)(1 << i % 8);
    }
    for (size_t n = 0; n < sealed.n; n++)
        EXPECT((int)read_sealed((struct str){ sealed.p, n }, passphrase, &text) != (int)ERR_NONE);
    EXPECT_EQ((int)read_sealed(buf_str(&sealed), passphrase, &text), (int)ERR_NONE);
    buf_clear(&sealed);
    buf_clear(&text);
}

/* ---- text */

static void bad_text_is_an_error_with_its_line(void)
{
#define DIGEST "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
    static const struct {
        const char *text, *error;
    } cases[] = {
        { "version = 1\n", "line 1: an entry before" },
        { "[policy]\nversion = x\n", "line 2: the version" },
        { "[policy]\nname = x\n", "line 2: unknown entry 'name'" },
        { "; a comment\n[other]\n", "line 2: unknown section 'other'" },
        { "[api_key 00]\n", "line 1: unknown section" },
        { "[api_key " DIGEST "x]\n", "line 1: unknown section" },
        { "[api_key " DIGEST "]\nscopes = root\n", "line 2: scopes: 'root'" },
        { "[api_key " DIGEST "]\nnothing = 1\n", "line 2: unknown entry 'nothing'" },
        { "[policy]\ntext\n", "line 2: neither" },
        { "[limits key x]\n", "line 1: 'key x' is neither" },
        { "[limits default]\nvalues = x=1\n", "line 2: there is no limit 'x'" },
        { "[limits default]\nother = 1\n", "line 2: unknown entry 'other'" },
        { "[limits default]\n[limits default]\n[policy]\n", "line 3: two entries" },
    };
    struct policy_list l = { 0 };
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        EXPECT_EQ(policy_text_read(str_of(cases[i].text), &l, &e), -1);
        EXPECT(strstr(e.msg, cases[i].error));
        EXPECT_EQ(l.n, 0);
    }
    EXPECT_EQ(
        policy_text_read(STR("[policy]\r\nversion = 7\r\n# x\n[api_key " DIGEST "]"), &l, &e), 0);
    EXPECT(l.n == 1 && l.version == 7 && !strcmp(l.keys[0]->id, "0011223344556677"));
    policy_list_clear(&l);
}

/* ---- backends */

struct place {
    char dir[TMPDIR_NAME], path[TMPDIR_NAME + 16];
    struct policy_backend_options o;
};

static void place_init(struct place *p)
{
    tmpdir_make(p->dir);
    snprintf(p->path, sizeof(p->path), "%s/policy", p->dir);
    p->o = (struct policy_backend_options){ p->path, NULL, passphrase };
}

static struct policy_backend *open_at(const struct place *p, const char *name)
{
    struct policy_backend *b;
    struct err e;

    if (policy_backend_open(&b, name, &p->o, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        EXPECT(false);
    }
    return b;
}

static struct policy_snapshot *load_from(struct policy_backend *b)
{
    struct policy_list l = { 0 };
    struct policy_snapshot *s;
    struct err e;

    EXPECT_EQ(b->ops->load(b, &l, &e), 0);
    EXPECT_EQ(
        policy_snapshot_new(&s, (const struct policy_key *const *)l.keys, l.n, l.version, &e), 0);
    l.n = 0;
    policy_list_clear(&l);
    return s;
}

static struct policy_key *key_of(uint32_t number)
{
    uint8_t digest[POLICY_DIGEST_BYTES];
    char name[16];
    struct err e;

    policy_digest(digest, (struct str){ (const char *)&number, sizeof(number) });
    struct policy_key *k = policy_key_new(digest);
    CHECK(k);
    snprintf(name, sizeof(name), "%u", number);
    EXPECT_EQ(policy_key_set(k, policy_attribute_find(STR("name")), str_of(name), &e), 0);
    return k;
}

/* Stores a change; on success *s is the next snapshot. Takes the reference of the key. */
static int change(struct policy_backend *b, struct policy_snapshot **s, struct policy_key *take,
    bool is_delete, struct err *e)
{
    uint64_t version = policy_snapshot_version(*s) + 1;
    const struct policy_key *k = is_delete ? policy_snapshot_find(*s, take->digest) : take;
    struct policy_snapshot *next;

    take->version = version;
    int failed = is_delete ? policy_snapshot_delete(&next, *s, k, version, e)
                           : policy_snapshot_put(&next, *s, k, version, e);
    if (!failed) {
        failed = (is_delete ? b->ops->delete : b->ops->put)(b, k, next, e);
        policy_snapshot_unref(failed ? next : *s);
        *s = failed ? *s : next;
    }
    policy_key_unref(take);
    return failed;
}

static const char *const names[] = { "ini", "sqlite" };

static void changes_are_loaded_by_the_next_process(void)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct place p;
        struct err e;
        uint64_t version;

        place_init(&p);
        struct policy_backend *b = open_at(&p, names[i]);
        struct policy_snapshot *s = load_from(b);
        EXPECT_EQ(policy_snapshot_count(s), 0);
        for (uint32_t k = 0; k < 10; k++)
            EXPECT_EQ(change(b, &s, key_of(k), false, &e), 0);
        EXPECT_EQ(change(b, &s, key_of(3), true, &e), 0);
        policy_snapshot_unref(s);
        b->ops->close(b);
        b = open_at(&p, names[i]);
        s = load_from(b);
        EXPECT_EQ(policy_snapshot_count(s), 9);
        EXPECT_EQ(policy_snapshot_version(s), (uint64_t)11);
        EXPECT(!b->ops->version(b, &version, &e) && version == 11);
        struct policy_key *gone = key_of(3), *kept = key_of(4);
        EXPECT(!policy_snapshot_find(s, gone->digest));
        EXPECT_STR(policy_snapshot_find(s, kept->digest)->name, "4");
        policy_key_unref(gone);
        policy_key_unref(kept);
        policy_snapshot_unref(s);
        b->ops->close(b);
        tmpdir_remove(p.dir);
    }
}

static void encrypted_file_needs_its_passphrase_and_one_server(void)
{
    struct policy_backend *b, *second;
    struct place p;
    struct err e;

    place_init(&p);
    b = open_at(&p, "ini");
    EXPECT_EQ(policy_backend_open(&second, "ini", &p.o, &e), -1);
    EXPECT(strstr(e.msg, "another server"));
    b->ops->close(b);
    p.o.passphrase = STR("wrong");
    EXPECT_EQ(policy_backend_open(&b, "ini", &p.o, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_CORRUPT);
    p.o.passphrase = STR("");
    EXPECT_EQ(policy_backend_open(&b, "ini", &p.o, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_INVALID);
    EXPECT_EQ(policy_backend_open(&b, "postgres", &p.o, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_INVALID);
    EXPECT_EQ(policy_backend_open(&b, "other", &p.o, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_UNSUPPORTED);
    tmpdir_remove(p.dir);
}

/* Files that the program of policy/policy_store.cpp writes, encrypted with `passphrase`: see
 * seal_old. */
static void seal_old(const char *path, struct str text)
{
    static const uint8_t nonce[12] = { 1, 2, 3 };
    uint8_t key[32], tag[16], data[4096];
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    FILE *f = fopen(path, "w");
    int n = 0, n_last = 0;

    EXPECT(c && f && text.n <= sizeof(data));
    SHA256((const uint8_t *)passphrase.p, passphrase.n, key);
    EXPECT(EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, nonce) == 1);
    EXPECT(EVP_EncryptUpdate(c, data, &n, (const uint8_t *)text.p, (int)text.n) == 1);
    EXPECT(EVP_EncryptFinal_ex(c, data + n, &n_last) == 1);
    EXPECT(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, sizeof(tag), tag) == 1);
    EVP_CIPHER_CTX_free(c);
    fputs("ENC\nnonce=", f);
    for (size_t i = 0; i < sizeof(nonce); i++)
        fprintf(f, "%02x", nonce[i]);
    fputs("\ntag=", f);
    for (size_t i = 0; i < sizeof(tag); i++)
        fprintf(f, "%02x", tag[i]);
    fputs("\ndata=", f);
    for (size_t i = 0; i < text.n; i++)
        fprintf(f, "%02x", data[i]);
    fputs("\n", f);
    fclose(f);
}

#define OLD_KEY(digit) digit digit digit digit digit digit digit digit
#define OLD_DIGEST(d)                                                                              \
    OLD_KEY(d) OLD_KEY(d) OLD_KEY(d) OLD_KEY(d) OLD_KEY(d) OLD_KEY(d) OLD_KEY(d) OLD_KEY(d)

static const char old_text[] = "[api_keys]\n" OLD_DIGEST("a") "=generate,admin\n" OLD_DIGEST(
    "b") "=\n\n[guardrail]\nwords=\n\n[rate_limit]\ntokens=30\n";

static void old_form_is_read_once_and_rewritten(void)
{
    uint8_t a[POLICY_DIGEST_BYTES], b[POLICY_DIGEST_BYTES];
    char kept[TMPDIR_NAME + 32], begin[9] = "";
    struct place p;

    place_init(&p);
    memset(a, 0xaa, sizeof(a));
    memset(b, 0xbb, sizeof(b));
    snprintf(kept, sizeof(kept), "%s.old-form", p.path);
    seal_old(p.path, str_of(old_text));
    for (int i = 0; i < 2; i++) { /* the old form, then the new one */
        struct policy_backend *backend = open_at(&p, "ini");
        struct policy_snapshot *s = load_from(backend);
        EXPECT_EQ(policy_snapshot_count(s), 2);
        const struct policy_key *first = policy_snapshot_find(s, a),
                                *second = policy_snapshot_find(s, b);
        EXPECT(first && second);
        EXPECT_EQ((int)first->scopes, SCOPE_READ | SCOPE_GENERATE | SCOPE_ADMIN);
        EXPECT_EQ((int)second->scopes, SCOPE_READ | SCOPE_GENERATE);
        EXPECT_EQ(first->limits[0], (int64_t)30);
        policy_snapshot_unref(s);
        backend->ops->close(backend);
        FILE *f = fopen(p.path, "r");
        EXPECT(f && fread(begin, 1, 8, f) == 8);
        fclose(f);
        EXPECT_STR(begin, "IFLUXPOL");
    }
    EXPECT(access(kept, F_OK)); /* nothing was lost */
    tmpdir_remove(p.dir);
}

static void old_form_is_refused_with_one_error_and_unchanged(void)
{
    static const struct {
        const char *text;
        enum errcode code;
    } bad[] = { { "[api_keys]\nabc=read\n", ERR_INVALID },
        { "[api_keys]\n" OLD_DIGEST("x") "=read\n", ERR_SYNTAX },
        { "[api_keys]\n" OLD_DIGEST("a") "=root\n", ERR_INVALID },
        { "[rate_limit]\ntokens=many\n", ERR_INVALID } };
    struct policy_backend *b;
    char before[4096], after[4096], kept[TMPDIR_NAME + 32];
    struct place p;
    struct err e;

    place_init(&p);
    for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
        bool is_wrong_key = i == ARRAY_LEN(bad);
        seal_old(p.path, is_wrong_key ? str_of(old_text) : str_of(bad[i].text));
        FILE *f = fopen(p.path, "r");
        size_t n = fread(before, 1, sizeof(before), f);
        fclose(f);
        p.o.passphrase = is_wrong_key ? STR("wrong") : passphrase;
        EXPECT_EQ(policy_backend_open(&b, "ini", &p.o, &e), -1);
        EXPECT_EQ((int)e.code, (int)(is_wrong_key ? ERR_CORRUPT : bad[i].code));
        f = fopen(p.path, "r");
        EXPECT_EQ(fread(after, 1, sizeof(after), f), n);
        fclose(f);
        EXPECT(!memcmp(before, after, n));
    }
    /* Words of the guardrail, which are not imported: the file is kept. */
    p.o.passphrase = passphrase;
    seal_old(p.path, STR("[guardrail]\nwords=one, two\n"));
    b = open_at(&p, "ini");
    b->ops->close(b);
    snprintf(kept, sizeof(kept), "%s.old-form", p.path);
    EXPECT_EQ(access(kept, F_OK), 0);
    tmpdir_remove(p.dir);
}

static void database_refuses_a_change_of_an_old_version(void)
{
    struct place p;
    struct err e;

    place_init(&p);
    struct policy_backend *a = open_at(&p, "sqlite"), *b = open_at(&p, "sqlite");
    struct policy_snapshot *sa = load_from(a), *sb = load_from(b);
    EXPECT_EQ(change(a, &sa, key_of(1), false, &e), 0);
    EXPECT_EQ(change(b, &sb, key_of(2), false, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_PRECONDITION);
    policy_snapshot_unref(sb);
    sb = load_from(b);
    EXPECT_EQ(change(b, &sb, key_of(2), false, &e), 0);
    EXPECT_EQ(policy_snapshot_count(sb), 2);
    policy_snapshot_unref(sa);
    policy_snapshot_unref(sb);
    a->ops->close(a);
    b->ops->close(b);
    tmpdir_remove(p.dir);
}

/* A full disk: the change fails, the file keeps the old content, and the next change succeeds. */
static void full_disk_loses_nothing(void)
{
    struct place p;
    struct err e;
    int n_failed = 0;

    place_init(&p);
    struct policy_backend *b = open_at(&p, "ini");
    struct policy_snapshot *s = load_from(b);
    for (uint32_t k = 0; k < 6; k++) {
        fault_arm(FAULT_DISK_WRITE, k % 2);
        int failed = change(b, &s, key_of(k), false, &e);
        fault_arm(FAULT_DISK_WRITE, 0);
        n_failed += failed != 0;
        EXPECT(!failed || strstr(e.msg, "No space left"));
        b->ops->close(b);
        b = open_at(&p, "ini");
        struct policy_snapshot *stored = load_from(b);
        EXPECT_EQ(policy_snapshot_count(stored), policy_snapshot_count(s));
        EXPECT_EQ(policy_snapshot_version(stored), policy_snapshot_version(s));
        policy_snapshot_unref(stored);
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(3));
    policy_snapshot_unref(s);
    b->ops->close(b);
    tmpdir_remove(p.dir);
}

/* The nth allocation of open, load and a change fails, for every n: each failure is an error, and
 * the stored policy is that of before or after. */
static void every_failed_allocation_is_an_error(void)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct place p;
        int n_errors = 0;

        place_init(&p);
        for (uint64_t nth = 1; nth < 400; nth++) {
            struct policy_backend *b = NULL;
            struct policy_list l = { 0 };
            struct policy_snapshot *s = NULL;
            struct policy_key *k = key_of((uint32_t)nth);
            uint64_t before = mem_failures();
            struct err e;
            mem_fail_after(nth);
            int failed = policy_backend_open(&b, names[i], &p.o, &e) || b->ops->load(b, &l, &e);
            if (!failed) {
                failed = policy_snapshot_new(
                    &s, (const struct policy_key *const *)l.keys, l.n, l.version, &e);
                l.n = 0;
            }
            failed = failed ||
                     change(b, &s, (struct policy_key *)(uintptr_t)policy_key_ref(k), false, &e);
            mem_fail_after(0);
            n_errors += failed != 0;
            EXPECT(!failed || e.code == ERR_MEMORY || e.code == ERR_TOO_LARGE);
            policy_list_clear(&l);
            policy_snapshot_unref(s);
            policy_key_unref(k);
            if (b)
                b->ops->close(b);
            if (mem_failures() == before)
                break;
            EXPECT(failed);
        }
        EXPECT(n_errors >= FAULTS_AT_LEAST(5));
        tmpdir_remove(p.dir);
    }
}

/* A child stores keys and reports each one; it is killed at a random time. All reported keys are
 * stored, and at most one more. */
static void kill_9_loses_nothing_that_was_acknowledged(void)
{
    struct place p;
    struct err e;
    uint32_t n_reported = 0;

    place_init(&p);
    for (int round = 0; round < 12; round++) {
        int fds[2];
        EXPECT_EQ(pipe(fds), 0);
        pid_t child = fork();
        if (!child) {
            struct policy_backend *b = open_at(&p, "ini");
            struct policy_snapshot *s = load_from(b);
            for (uint32_t k = (uint32_t)policy_snapshot_count(s);; k++)
                if (change(b, &s, key_of(k), false, &e) || write(fds[1], &k, sizeof(k)) < 0)
                    _exit(1);
        }
        close(fds[1]);
        uint32_t k;
        for (int i = 0; i < 3 + round && read(fds[0], &k, sizeof(k)) == sizeof(k); i++)
            n_reported = k + 1;
        poll(NULL, 0, round % 4);
        kill(child, SIGKILL);
        while (read(fds[0], &k, sizeof(k)) == sizeof(k))
            n_reported = k + 1;
        EXPECT_EQ(waitpid(child, NULL, 0), child);
        close(fds[0]);
        struct policy_backend *b = open_at(&p, "ini");
        struct policy_snapshot *s = load_from(b);
        uint32_t n = (uint32_t)policy_snapshot_count(s);
        EXPECT(n == n_reported || n == n_reported + 1);
        EXPECT_EQ(policy_snapshot_version(s), (uint64_t)n);
        policy_snapshot_unref(s);
        b->ops->close(b);
    }
    EXPECT(n_reported > 30);
    tmpdir_remove(p.dir);
}

/* ---- limits */

static void entries_of_limits_equal_their_text(void)
{
    static const char *const bad_subjects[] = { "", "tenant", "tenant ", "model", "defaults",
        "key a", "tenant a]b", "tenant 123456789012345678901234567890123", "model a\tb",
        "model  a" };
    static const char *const bad_values[] = { "x=1", "tokens_per_day",
        "tokens_per_day=", "tokens_per_day=0", "tokens_per_day=-1",
        "tokens_per_day=9223372036854775807", "exempt=1", "prompt_price=1",
        "tokens_per_day=1\t\t" };
    struct limit_entry l;
    struct buf b;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad_subjects); i++)
        EXPECT_EQ(limit_entry_init(&l, str_of(bad_subjects[i]), ' ', &e), -1);
    for (size_t i = 0; i < ARRAY_LEN(bad_values); i++) {
        EXPECT_EQ(limit_entry_init(&l, STR("tenant a"), ' ', &e), 0);
        EXPECT_EQ(limit_entry_read(&l, str_of(bad_values[i]), &e), -1);
    }
    buf_init(&b, KB);
    EXPECT_EQ(limit_entry_init(&l, STR("model/org/name"), '/', &e), 0);
    EXPECT_STR(l.name, "org/name");
    EXPECT_EQ(limit_entry_read(&l, STR("output_price=5\trequests_per_minute=1"), &e), 0);
    limit_entry_write(&l, &b);
    EXPECT(str_is(buf_str(&b), "requests_per_minute=1\toutput_price=5"));
    buf_clear(&b);
}

static enum errcode change_limits(struct policy *p, struct mailbox *replies,
    struct policy_change *c, const char *subject, int64_t tokens)
{
    struct err e;

    c->reply_to = replies;
    EXPECT_EQ(limit_entry_init(&c->limits, str_of(subject), ' ', &e), 0);
    c->limits.values[POLICY_LIMIT_tokens_per_day] = tokens;
    policy_post(p, c);
    while (!mailbox_drain(replies))
        mailbox_wait(replies, UINT64_MAX);
    return c->err.code;
}

static void ignore_snapshot(void *ctx, struct policy_snapshot *s)
{
}

static int64_t tokens_of(const struct policy_snapshot *s, enum limit_entry_kind kind, const char *n)
{
    const struct limit_entry *l = limit_set_find(policy_snapshot_limits(s), kind, n);

    return l ? l->values[POLICY_LIMIT_tokens_per_day] : 0;
}

static void limits_survive_changes_of_keys_and_a_restart(void)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct policy_change put = { .action = POLICY_PUT_LIMITS },
                             gone = { .action = POLICY_DELETE_LIMITS }, create = { 0 };
        struct mailbox *m;
        struct policy *policy;
        struct place p;
        struct err e;

        place_init(&p);
        struct policy_options o = { NULL, names[i], p.o };
        EXPECT_EQ(mailbox_open(&m, &e), 0);
        EXPECT(!policy_open(&policy, &o, &e) && !policy_start(policy, ignore_snapshot, NULL, &e));
        EXPECT_EQ((int)change_limits(policy, m, &put, "tenant acme", 70), (int)ERR_NONE);
        EXPECT_EQ((int)change_limits(policy, m, &put, "default", 10), (int)ERR_NONE);
        EXPECT_EQ(put.limits.version, (uint64_t)2);
        EXPECT_EQ((int)change_limits(policy, m, &put, "model m x", 30), (int)ERR_NONE);
        EXPECT_EQ((int)change_limits(policy, m, &gone, "model none", 0), (int)ERR_NOT_FOUND);
        gone.has_version = true;
        gone.version = 2;
        EXPECT_EQ((int)change_limits(policy, m, &gone, "tenant acme", 0), (int)ERR_PRECONDITION);
        gone.version = 1;
        EXPECT_EQ((int)change_limits(policy, m, &gone, "tenant acme", 0), (int)ERR_NONE);
        EXPECT_EQ(gone.limits.values[POLICY_LIMIT_tokens_per_day], 70);
        create.reply_to = m;
        create.key = key_of(1);
        policy_post(policy, &create);
        while (!mailbox_drain(m))
            mailbox_wait(m, UINT64_MAX);
        EXPECT(create.result);
        policy_key_unref(create.result);
        policy_close(policy);
        EXPECT_EQ(policy_open(&policy, &o, &e), 0);
        struct policy_snapshot *s = policy_first(policy);
        EXPECT_EQ(policy_snapshot_version(s), (uint64_t)5);
        EXPECT_EQ(limit_set_count(policy_snapshot_limits(s)), 2);
        EXPECT_EQ(tokens_of(s, LIMITS_DEFAULT, ""), 10);
        EXPECT_EQ(tokens_of(s, LIMITS_MODEL, "m x"), 30);
        policy_snapshot_unref(s);
        policy_close(policy);
        mailbox_close(m);
        tmpdir_remove(p.dir);
    }
}

/* ---- objects */

static enum errcode change_object(struct policy *p, struct mailbox *replies,
    struct policy_change *c, const char *name, struct str body)
{
    struct err e;

    c->reply_to = replies;
    c->object_kind = OBJECT_ROLE;
    snprintf(c->object_name, sizeof(c->object_name), "%s", name);
    if (c->action == POLICY_PUT_OBJECT)
        EXPECT_EQ(policy_object_new(&c->object, OBJECT_ROLE, name, body, &e), 0);
    policy_post(p, c);
    while (!mailbox_drain(replies))
        mailbox_wait(replies, UINT64_MAX);
    policy_object_unref(c->object_before);
    policy_object_unref(c->object_result);
    return c->err.code;
}

static void objects_survive_changes_of_keys_and_a_restart(void)
{
    const struct str reader = STR("{\"scopes\":[\"read\"]}"),
                     chief = STR("{\"scopes\":[\"admin\"],\"claims\":[\"a=\\u0001'%\"]}");
    struct buf large;

    buf_init(&large, 2 * MB);
    buf_putz(&large, "{\"models\":[\"");
    for (int i = 0; i < 190; i++)
        buf_putc(&large, 'm');
    buf_putz(&large, "\"]}");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct policy_change put = { .action = POLICY_PUT_OBJECT },
                             gone = { .action = POLICY_DELETE_OBJECT }, create = { 0 };
        struct mailbox *m;
        struct policy *policy;
        struct place p;
        struct err e;

        place_init(&p);
        struct policy_options o = { NULL, names[i], p.o };
        EXPECT_EQ(mailbox_open(&m, &e), 0);
        EXPECT(!policy_open(&policy, &o, &e) && !policy_start(policy, ignore_snapshot, NULL, &e));
        EXPECT_EQ((int)change_object(policy, m, &put, "reader", reader), (int)ERR_NONE);
        EXPECT_EQ((int)change_object(policy, m, &put, "gone", reader), (int)ERR_NONE);
        EXPECT_EQ((int)change_object(policy, m, &put, "large", buf_str(&large)), (int)ERR_NONE);
        EXPECT_EQ((int)change_object(policy, m, &put, "bad", chief), (int)ERR_CORRUPT);
        EXPECT_EQ((int)change_object(policy, m, &put, "bad", STR("{")), (int)ERR_CORRUPT);
        EXPECT_EQ((int)change_object(policy, m, &gone, "none", reader), (int)ERR_NOT_FOUND);
        EXPECT_EQ((int)change_object(policy, m, &gone, "gone", reader), (int)ERR_NONE);
        create.reply_to = m;
        create.key = key_of(1);
        EXPECT_EQ(
            policy_key_set(create.key, policy_attribute_find(STR("scopes")), STR("none"), &e), 0);
        EXPECT_EQ(policy_key_set(
                      create.key, policy_attribute_find(STR("roles")), STR("reader\tlarge"), &e),
            0);
        policy_post(policy, &create);
        while (!mailbox_drain(m))
            mailbox_wait(m, UINT64_MAX);
        EXPECT(create.result);
        EXPECT_EQ((int)policy_key_scopes(create.result), SCOPE_READ);
        policy_key_unref(create.result);
        policy_close(policy);
        EXPECT_EQ(policy_open(&policy, &o, &e), 0);
        struct policy_snapshot *s = policy_first(policy);
        const struct object_set *set = policy_snapshot_objects(s);
        EXPECT_EQ(policy_snapshot_version(s), (uint64_t)5);
        EXPECT_EQ(object_set_count(set), 2);
        EXPECT(str_eq(object_set_find(set, OBJECT_ROLE, "reader")->body, reader));
        EXPECT(str_eq(object_set_find(set, OBJECT_ROLE, "large")->body, buf_str(&large)));
        EXPECT_EQ(object_set_find(set, OBJECT_ROLE, "large")->version, (uint64_t)3);
        EXPECT_EQ(object_set_after(set, OBJECT_ROLE, "large"), 1);
        const struct policy_key *k = policy_snapshot_at(s, 0);
        EXPECT_EQ((int)k->scopes, SCOPE_NONE);
        EXPECT_EQ((int)policy_key_scopes(k), SCOPE_READ);
        EXPECT(policy_key_allows_model(k, "any")); /* the role reader has no list */
        policy_snapshot_unref(s);
        policy_close(policy);
        mailbox_close(m);
        tmpdir_remove(p.dir);
    }
    buf_clear(&large);
}

static void roles_of_a_key_are_combined(void)
{
    static const struct {
        const char *name, *body;
    } roles[] = {
        { "a", "{\"scopes\":[\"read\"],\"models\":[\"x\"],\"limits\":{\"tokens_per_day\":9}}" },
        { "b", "{\"scopes\":[\"generate\"],\"models\":[\"y\"],\"limits\":{\"tokens_per_day\":5}}" },
        { "limits", "{\"limits\":{\"cost_per_day\":3}}" }, { "open", "{\"scopes\":[\"admin\"]}" }
    };
    static const struct {
        const char *roles;
        unsigned scopes;
        bool x, y, z;
        int64_t tokens;
    } cases[] = { { "", SCOPE_NONE, true, true, true, 0 },
        { "a", SCOPE_READ, true, false, false, 9 },
        { "a\tb", SCOPE_READ | SCOPE_GENERATE, true, true, false, 5 },
        { "a\tlimits", SCOPE_READ, true, false, false, 9 },
        { "limits", SCOPE_NONE, true, true, true, 0 },
        { "a\topen", SCOPE_READ | SCOPE_ADMIN, true, true, true, 9 },
        { "none", SCOPE_NONE, false, false, false, 0 },
        { "limits\tnone", SCOPE_NONE, false, false, false, 0 },
        { "none\ta", SCOPE_READ, true, false, false, 9 } };
    struct object_set *set = NULL;
    struct role_set *all;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        struct policy_object *o;
        struct object_set *next;
        EXPECT_EQ(policy_object_new(&o, OBJECT_ROLE, roles[i].name, str_of(roles[i].body), &e), 0);
        EXPECT_EQ(object_set_put(&next, set, o, &e), 0);
        policy_object_unref(o);
        object_set_unref(set);
        set = next;
    }
    EXPECT_EQ(role_set_new(&all, set, &e), 0);
    EXPECT_EQ(role_set_count(all), (int)ARRAY_LEN(roles));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy_key *k = key_of(1);
        k->scopes = SCOPE_NONE;
        EXPECT_EQ(
            policy_key_set(k, policy_attribute_find(STR("roles")), str_of(cases[i].roles), &e), 0);
        EXPECT_EQ(role_set_apply(all, k, &e), 0);
        EXPECT_EQ(policy_key_scopes(k), cases[i].scopes);
        EXPECT_EQ(policy_key_allows_model(k, "x"), cases[i].x);
        EXPECT_EQ(policy_key_allows_model(k, "y"), cases[i].y);
        EXPECT_EQ(policy_key_allows_model(k, "z"), cases[i].z);
        EXPECT_EQ(k->role_limits[POLICY_LIMIT_tokens_per_day], cases[i].tokens);
        policy_key_unref(k);
    }
    role_set_unref(all);
    object_set_unref(set);
}

/* The nth allocation of a change of a role fails, for every n. */
static void every_failed_allocation_of_a_role_is_an_error(void)
{
    int n_errors = 0;

    for (uint64_t nth = 1; nth < 400; nth++) {
        struct policy_snapshot *s = NULL, *next = NULL;
        struct policy_object *o = NULL;
        struct object_set *set = NULL;
        struct policy_key *k = key_of(1);
        const struct policy_key *keys[] = { k };
        uint64_t before = mem_failures();
        struct err e;

        EXPECT_EQ(policy_key_set(k, policy_attribute_find(STR("roles")), STR("r"), &e), 0);
        EXPECT_EQ(policy_snapshot_new(&s, keys, 1, 1, &e), 0);
        mem_fail_after(nth);
        int failed =
            policy_object_new(&o, OBJECT_ROLE, "r",
                STR("{\"scopes\":[\"admin\"],\"models\":[\"m\"],\"claims\":[\"a=b\"]}"), &e) ||
            object_set_put(&set, NULL, o, &e) || policy_snapshot_set_objects(&next, s, set, 2, &e);
        mem_fail_after(0);
        n_errors += failed;
        EXPECT(!failed || e.code == ERR_MEMORY || e.code == ERR_TOO_LARGE);
        if (!failed) {
            EXPECT_EQ(
                (int)policy_key_scopes(policy_snapshot_at(s, 0)), SCOPE_READ | SCOPE_GENERATE);
            EXPECT(policy_key_scopes(policy_snapshot_at(next, 0)) & SCOPE_ADMIN);
        }
        policy_snapshot_unref(next);
        policy_snapshot_unref(s);
        policy_object_unref(o);
        object_set_unref(set);
        if (mem_failures() == before)
            break;
        EXPECT(failed);
    }
    EXPECT(n_errors >= FAULTS_AT_LEAST(5));
}

/* ---- policy thread */

static _Atomic int n_published;

static void on_publish(void *ctx, struct policy_snapshot *s)
{
    EXPECT(policy_snapshot_version(s) > 0);
    n_published++;
}

static void wait_for(struct mailbox *m)
{
    while (!mailbox_drain(m))
        mailbox_wait(m, UINT64_MAX);
}

static void policy_thread_executes_and_publishes_changes(void)
{
    struct keys *keys;
    struct mailbox *replies = NULL;
    struct policy *policy;
    struct place p;
    struct err e;

    place_init(&p);
    n_published = 0;
    EXPECT(!keys_open(&keys, "static:admin", &e) && !mailbox_open(&replies, &e));
    struct policy_options o = { keys, "ini", p.o };
    EXPECT_EQ(policy_open(&policy, &o, &e), 0);
    struct policy_snapshot *first = policy_first(policy);
    const char *static_id = policy_snapshot_at(first, 0)->id;
    EXPECT_EQ(policy_start(policy, on_publish, NULL, &e), 0);

    struct policy_change c = { .reply_to = replies, .action = POLICY_CREATE, .key = key_of(1) };
    policy_post(policy, &c);
    wait_for(replies);
    EXPECT(c.result && n_published == 1 && !c.key);
    EXPECT_EQ(c.result->owner, 2);
    snprintf(c.id, sizeof(c.id), "%s", c.result->id);
    policy_key_unref(c.result);

    c.action = POLICY_DELETE;
    c.has_version = true;
    c.version = 7;
    policy_post(policy, &c);
    wait_for(replies);
    EXPECT(!c.result && c.err.code == ERR_PRECONDITION && n_published == 1);
    c.version = 1;
    policy_post(policy, &c);
    wait_for(replies);
    EXPECT(c.result && n_published == 2);
    policy_key_unref(c.result);
    policy_post(policy, &c);
    wait_for(replies);
    EXPECT(!c.result && c.err.code == ERR_NOT_FOUND);
    snprintf(c.id, sizeof(c.id), "%s", static_id);
    policy_post(policy, &c);
    wait_for(replies);
    EXPECT(!c.result && c.err.code == ERR_UNSUPPORTED);

    policy_stop(policy);
    policy_snapshot_unref(first);
    policy_close(policy);
    mailbox_close(replies);
    keys_close(keys);
    tmpdir_remove(p.dir);
}

TESTS(TEST(old_form_is_read_once_and_rewritten),
    TEST(old_form_is_refused_with_one_error_and_unchanged),
    TEST(sealed_text_is_read_back_and_differs_each_time),
    TEST(every_changed_byte_and_every_truncation_is_an_error),
    TEST(bad_text_is_an_error_with_its_line), TEST(changes_are_loaded_by_the_next_process),
    TEST(encrypted_file_needs_its_passphrase_and_one_server),
    TEST(database_refuses_a_change_of_an_old_version), TEST(full_disk_loses_nothing),
    TEST(every_failed_allocation_is_an_error), TEST(kill_9_loses_nothing_that_was_acknowledged),
    TEST(entries_of_limits_equal_their_text), TEST(limits_survive_changes_of_keys_and_a_restart),
    TEST(objects_survive_changes_of_keys_and_a_restart), TEST(roles_of_a_key_are_combined),
    TEST(every_failed_allocation_of_a_role_is_an_error),
    TEST(policy_thread_executes_and_publishes_changes))
