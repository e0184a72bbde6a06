/* Verification of audit logs: no random edit of a log passes, made without the keys of the log:
 * flipped, removed, inserted and exchanged bytes and lines, cut ends, lines of another log and of
 * an earlier state. */
#include "support/check.h"
#include "audit/audit_file.h"
#include "audit/verify.h"
#include "base/rng.h"
#include "support/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH = TMPDIR_NAME + 24, N_LINES = 24, TEXT = 64 * 1024, N_EDITS = 4000 };

static struct {
    char dir[TMPDIR_NAME], path[PATH], keys_path[PATH];
    struct audit_keys *keys;
    char log[TEXT], edited[TEXT];
    size_t n_log, n_edited;
    size_t starts[N_LINES + 3]; /* offsets of the lines and of the end */
    int n_lines;
    uint64_t random;
} t;

static uint64_t below(uint64_t n)
{
    t.random = t.random * 6364136223846793005u + 1442695040888963407u;
    return (t.random >> 33) % n;
}

/* Writes a log whose key changes in its middle. */
static void write_log(const char *path, struct audit_keys *keys)
{
    struct audit_file f;
    struct buf torn;
    uint64_t n_torn;
    struct err e;

    buf_init(&torn, 1024);
    EXPECT_EQ(audit_file_open(&f, path, keys, &torn, &n_torn, &e), 0);
    for (int i = 0; i < N_LINES; i++) {
        char members[64];
        int n = snprintf(members, sizeof(members), "\"time\":%d,\"model\":\"m\"", i);
        EXPECT_EQ(audit_file_append(&f, &(struct str){ members, (size_t)n }, 1, &e), 0);
        if (i == N_LINES / 2)
            EXPECT_EQ(audit_keys_rotate(keys, &e), 0);
    }
    audit_file_close(&f);
    buf_clear(&torn);
}

static size_t read_file(const char *path, char *text)
{
    FILE *f = fopen(path, "r");

    EXPECT(f);
    size_t n = fread(text, 1, TEXT - 1, f);
    text[n] = '\0';
    fclose(f);
    return n;
}

static void write_edited(void)
{
    FILE *f = fopen(t.path, "w");

    EXPECT(f && fwrite(t.edited, 1, t.n_edited, f) == t.n_edited);
    fclose(f);
}

static void find_lines(void)
{
    t.n_lines = 0;
    for (size_t at = 0; at < t.n_log; at = (size_t)(strchr(t.log + at, '\n') + 1 - t.log))
        t.starts[t.n_lines++] = at;
    t.starts[t.n_lines] = t.n_log;
}

static void begin(void)
{
    struct err e;

    tmpdir_make(t.dir);
    snprintf(t.path, sizeof(t.path), "%s/a.log", t.dir);
    snprintf(t.keys_path, sizeof(t.keys_path), "%s/keys", t.dir);
    EXPECT_EQ(audit_keys_open(&t.keys, t.keys_path, true, &e), 0);
    write_log(t.path, t.keys);
    t.n_log = read_file(t.path, t.log);
    find_lines();
    t.random = 42;
}

static void end(void)
{
    audit_keys_close(t.keys);
    tmpdir_remove(t.dir);
}

static bool is_intact(const char *path, struct err *e)
{
    struct audit_verifier v = { .keys = t.keys };

    return !audit_verify_file(&v, path, true, e) && v.n_lines == N_LINES + 1;
}

/* ---- edits: each changes t.edited, a copy of the log */

static void remove_bytes(size_t from, size_t n)
{
    memmove(t.edited + from, t.edited + from + n, t.n_edited - from - n);
    t.n_edited -= n;
}

static void insert_bytes(size_t at, const char *p, size_t n)
{
    memmove(t.edited + at + n, t.edited + at, t.n_edited - at);
    memcpy(t.edited + at, p, n);
    t.n_edited += n;
}

static size_t line_bytes(int i)
{
    return t.starts[i + 1] - t.starts[i];
}

static void flip_bit(void)
{
    t.edited[below(t.n_log)] ^= (char)(1 << below(8));
}

static void cut_end(void)
{
    t.n_edited = below(t.n_log);
}

static void cut_lines(void)
{
    t.n_edited = t.starts[below((uint64_t)t.n_lines)];
}

static void remove_line(void)
{
    int i = (int)below((uint64_t)t.n_lines);

    remove_bytes(t.starts[i], line_bytes(i));
}

static void remove_range(void)
{
    size_t from = below(t.n_log);

    remove_bytes(from, 1 + below(t.n_log - from));
}

static void exchange_lines(void)
{
    int a = (int)below((uint64_t)t.n_lines - 1),
        b = a + 1 + (int)below((uint64_t)(t.n_lines - a - 1));
    size_t n_a = line_bytes(a), n_b = line_bytes(b);

    remove_bytes(t.starts[b], n_b);
    insert_bytes(t.starts[b], t.log + t.starts[a], n_a);
    remove_bytes(t.starts[a], n_a);
    insert_bytes(t.starts[a], t.log + t.starts[b], n_b);
}

static void repeat_line(void)
{
    int i = (int)below((uint64_t)t.n_lines), to = (int)below((uint64_t)t.n_lines + 1);

    insert_bytes(t.starts[to], t.log + t.starts[i], line_bytes(i));
}

static void change_field(void)
{
    char *at = t.edited + t.starts[1 + below(N_LINES)];

    memcpy(strstr(at, "\"model\":\"") + 9, "x", 1);
}

static void insert_garbage(void)
{
    static const char *const texts[] = { "\n", "{}\n", " ", "x", "\r" };
    const char *text = texts[below(ARRAY_LEN(texts))];

    insert_bytes(below(t.n_log + 1), text, strlen(text));
}

static void (*const edits[])(void) = { flip_bit, cut_end, cut_lines, remove_line, remove_range,
    exchange_lines, repeat_line, change_field, insert_garbage };

static void no_random_edit_passes(void)
{
    struct err e;

    begin();
    EXPECT(is_intact(t.path, &e));
    for (int i = 0; i < N_EDITS; i++) {
        memcpy(t.edited, t.log, t.n_log);
        t.n_edited = t.n_log;
        for (uint64_t n = 1 + below(2); n; n--) {
            edits[i % (int)ARRAY_LEN(edits)]();
            if (t.n_edited != t.n_log)
                break; /* the offsets of the lines are those of the log */
        }
        if (t.n_edited == t.n_log && !memcmp(t.edited, t.log, t.n_log))
            continue; /* two edits that cancel each other */
        write_edited();
        EXPECT(!is_intact(t.path, &e));
        EXPECT(strstr(e.msg, t.path));
    }
    end();
}

/* An attacker without the keys writes a whole log that is consistent in itself. */
static void rewritten_log_is_detected(void)
{
    struct audit_keys *other;
    char path[PATH], keys_path[PATH];
    struct err e;

    begin();
    snprintf(path, sizeof(path), "%s/b.log", t.dir);
    snprintf(keys_path, sizeof(keys_path), "%s/b.keys", t.dir);
    EXPECT_EQ(audit_keys_open(&other, keys_path, true, &e), 0);
    write_log(path, other);
    audit_keys_close(other);
    EXPECT(!is_intact(path, &e));
    t.n_edited = read_file(path, t.edited);
    write_edited();
    EXPECT(!is_intact(t.path, &e));
    /* The key ids of the true log do not help. */
    char *kid = strstr(t.log, "\"kid\":\"");
    for (char *at = t.edited; (at = strstr(at, "\"kid\":\"")); at++)
        memcpy(at, kid, 7 + AUDIT_KEY_ID);
    write_edited();
    EXPECT(!is_intact(t.path, &e));
    EXPECT(strstr(e.msg, "MAC is wrong") || strstr(e.msg, "line"));
    end();
}

/* The checkpoint of an earlier state together with that state passes, unless a later line is known
 * from elsewhere. */
static void known_line_shows_that_log_and_checkpoint_are_old(void)
{
    struct audit_verifier v = { .keys = t.keys };
    struct audit_line line;
    char mac[AUDIT_HEX + 1];
    struct err e;

    begin();
    v.keys = t.keys;
    size_t start = t.starts[t.n_lines - 1];
    EXPECT(audit_line_read(&line, (struct str){ t.log + start, t.n_log - start - 1 }));
    snprintf(mac, sizeof(mac), STR_FMT, STR_ARG(line.mac));
    v.anchor.n_lines = (uint64_t)t.n_lines;
    v.anchor.mac = mac;
    EXPECT_EQ(audit_verify_file(&v, t.path, true, &e), 0);
    EXPECT(v.anchor.is_found);
    v = (struct audit_verifier){ .keys = t.keys };
    v.anchor.n_lines = (uint64_t)t.n_lines + 1;
    v.anchor.mac = mac;
    EXPECT_EQ(audit_verify_file(&v, t.path, true, &e), 0);
    EXPECT(!v.anchor.is_found);
    end();
}

static void file_without_a_known_end_is_not_intact(void)
{
    char checkpoint[PATH + 16];
    struct err e;

    begin();
    snprintf(checkpoint, sizeof(checkpoint), "%s.checkpoint", t.path);
    unlink(checkpoint);
    EXPECT(!is_intact(t.path, &e));
    EXPECT(strstr(e.msg, "neither a checkpoint"));
    end();
}

TESTS(TEST(no_random_edit_passes), TEST(rewritten_log_is_detected),
    TEST(known_line_shows_that_log_and_checkpoint_are_old),
    TEST(file_without_a_known_end_is_not_intact))
