/* The key file of the audit log: creation, rotation, damaged files, access of other users; and the
 * two slots of a checkpoint. */
#include "support/check.h"
#include "audit/checkpoint.h"
#include "support/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = TMPDIR_NAME + 16, TEXT = 64 * 1024 };

static struct {
    char dir[TMPDIR_NAME], path[PATH], text[TEXT];
} t;

static void begin(void)
{
    tmpdir_make(t.dir);
    snprintf(t.path, sizeof(t.path), "%s/keys", t.dir);
}

static void end(void)
{
    tmpdir_remove(t.dir);
}

static size_t read_file(const char *path)
{
    FILE *f = fopen(path, "r");

    EXPECT(f);
    size_t n = fread(t.text, 1, TEXT - 1, f);
    t.text[n] = '\0';
    fclose(f);
    return n;
}

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "w");

    EXPECT(f && fwrite(text, 1, n, f) == n);
    fclose(f);
}

static struct audit_keys *open_keys(bool create)
{
    struct audit_keys *k;
    struct err e;

    EXPECT_EQ(audit_keys_open(&k, t.path, create, &e), 0);
    return k;
}

static void key_file_is_created_for_its_owner_only(void)
{
    struct audit_keys *k;
    struct stat st;
    struct err e;

    begin();
    EXPECT_EQ(audit_keys_open(&k, t.path, false, &e), -1);
    EXPECT_EQ((int)e.code, ERR_NOT_FOUND);
    audit_keys_close(open_keys(true));
    EXPECT_EQ(stat(t.path, &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0600u);
    EXPECT_EQ(chmod(t.path, 0640), 0);
    EXPECT_EQ(audit_keys_open(&k, t.path, true, &e), -1);
    EXPECT(strstr(e.msg, "mode 640") && strstr(e.msg, t.path));
    unlink(t.path);
    EXPECT_EQ(mkdir(t.path, 0700), 0);
    EXPECT_EQ(audit_keys_open(&k, t.path, true, &e), -1);
    end();
}

static void rotated_key_is_current_and_old_keys_remain(void)
{
    char ids[3][AUDIT_KEY_ID + 1], secret_hex[AUDIT_HEX + 1];
    struct err e;

    begin();
    struct audit_keys *k = open_keys(true);
    for (int i = 0; i < 3; i++) {
        EXPECT(!i || !audit_keys_rotate(k, &e));
        memcpy(ids[i], audit_keys_current(k)->id, sizeof(ids[i]));
        EXPECT_EQ(audit_keys_current(k)->index, i);
    }
    audit_to_hex(audit_keys_current(k)->secret, AUDIT_HASH, secret_hex);
    audit_keys_close(k);
    k = open_keys(false);
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(audit_keys_find(k, str_of(ids[i]))->index, i);
    EXPECT(!audit_keys_find(k, STR("0123456789abcdef")));
    EXPECT_STR(audit_keys_current(k)->id, ids[2]);
    EXPECT(memcmp(audit_keys_current(k)->chain, audit_keys_current(k)->text, AUDIT_HASH));
    audit_keys_close(k);
    read_file(t.path);
    EXPECT(strstr(t.text, secret_hex));
    end();
}

static void damaged_key_file_is_refused(void)
{
    struct audit_keys *k;
    struct err e;

    begin();
    audit_keys_close(open_keys(true));
    size_t n = read_file(t.path);
    const char *key = strchr(t.text, '\n') + 1;
    for (size_t i = (size_t)(key - t.text); i < n; i++) {
        t.text[i] ^= 1;
        write_file(t.path, t.text, n);
        chmod(t.path, 0600);
        bool is_time = i - (size_t)(key - t.text) > AUDIT_KEY_ID && i < n - AUDIT_HEX - 2;
        int rc = audit_keys_open(&k, t.path, true, &e);
        EXPECT_EQ(rc, is_time ? 0 : -1);
        if (!rc)
            audit_keys_close(k);
        else
            EXPECT_EQ((int)e.code, ERR_CORRUPT);
        t.text[i] ^= 1;
    }
    for (size_t size = 0; size < n; size++) {
        write_file(t.path, t.text, size);
        EXPECT_EQ(audit_keys_open(&k, t.path, true, &e), -1);
    }
    end();
}

static void too_many_keys_are_refused(void)
{
    struct audit_keys *k;
    struct err e;

    begin();
    audit_keys_close(open_keys(true));
    read_file(t.path);
    const char *key = strchr(t.text, '\n') + 1;
    FILE *f = fopen(t.path, "a");
    for (int i = 0; i < AUDIT_KEYS_MAX; i++)
        fputs(key, f);
    fclose(f);
    EXPECT_EQ(audit_keys_open(&k, t.path, true, &e), -1);
    EXPECT_EQ((int)e.code, ERR_TOO_LARGE);
    end();
}

/* ---- checkpoint */

static void damaged_slot_leaves_the_checkpoint_before(void)
{
    struct checkpoint_file f;
    struct checkpoint c;
    enum checkpoint_state state;
    char path[PATH + 8];
    struct err e;

    begin();
    struct audit_keys *k = open_keys(true);
    snprintf(path, sizeof(path), "%s.cp", t.path);
    EXPECT_EQ(checkpoint_open(&f, path, k, &c, &state, &e), 0);
    EXPECT_EQ((int)state, CHECKPOINT_NEW);
    for (uint64_t i = 1; i <= 5; i++) {
        c.chain.n_lines = c.offset = i;
        EXPECT_EQ(checkpoint_write(&f, &c, audit_keys_current(k), &e), 0);
    }
    checkpoint_close(&f);
    size_t n = read_file(path);
    EXPECT_EQ(n, (size_t)2 * CHECKPOINT_SLOT);
    const size_t last = CHECKPOINT_SLOT, text = strcspn(t.text + last, "\n");
    for (size_t i = 0; i < text && t.text[last + i + 1] != ' '; i += 7) {
        t.text[last + i] ^= 1;
        write_file(path, t.text, n);
        EXPECT_EQ(checkpoint_read(path, k, &c, &e), 0);
        EXPECT_EQ(c.chain.n_lines, (uint64_t)4);
        t.text[last + i] ^= 1;
    }
    t.text[last + 30] ^= 1;
    t.text[30] ^= 1;
    write_file(path, t.text, n);
    EXPECT_EQ(checkpoint_read(path, k, &c, &e), -1);
    EXPECT_EQ((int)e.code, ERR_CORRUPT);
    EXPECT_EQ(checkpoint_open(&f, path, k, &c, &state, &e), 0);
    EXPECT_EQ((int)state, CHECKPOINT_DAMAGED);
    checkpoint_close(&f);
    audit_keys_close(k);
    end();
}

static void checkpoint_of_a_lost_key_is_refused(void)
{
    struct checkpoint_file f;
    struct checkpoint c;
    enum checkpoint_state state;
    char path[PATH + 8];
    struct err e;

    begin();
    struct audit_keys *k = open_keys(true);
    snprintf(path, sizeof(path), "%s.cp", t.path);
    EXPECT_EQ(checkpoint_open(&f, path, k, &c, &state, &e), 0);
    EXPECT_EQ(checkpoint_write(&f, &c, audit_keys_current(k), &e), 0);
    checkpoint_close(&f);
    audit_keys_close(k);
    unlink(t.path);
    k = open_keys(true);
    EXPECT_EQ(checkpoint_open(&f, path, k, &c, &state, &e), -1);
    EXPECT_EQ((int)e.code, ERR_INVALID);
    EXPECT(strstr(e.msg, "key"));
    audit_keys_close(k);
    end();
}

TESTS(TEST(key_file_is_created_for_its_owner_only),
    TEST(rotated_key_is_current_and_old_keys_remain), TEST(damaged_key_file_is_refused),
    TEST(too_many_keys_are_refused), TEST(damaged_slot_leaves_the_checkpoint_before),
    TEST(checkpoint_of_a_lost_key_is_refused))
