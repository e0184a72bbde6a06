/* Capability store: rows persist across versions of the file, damage, and concurrent processes. */
#include "support/check.h"

#include "support/tmpdir.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/capabilities.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct model_capabilities row = {
    .model_id = "qwen'3; DROP TABLE x",
    .model_type = "TEXT_GEN",
    .model_family = "qwen",
    .tool_parser_id = "hermes_json",
    .thinking_parser_id = "think_tag",
    .supports_native_tools = true,
    .supports_thinking = true,
    .tool_format = "native",
    .practical_max_tokens = 4096,
    .supports_multi_image = false,
    .supports_video = true,
    .embedding_dimensions = 0,
    .max_sequence_length = 1LL << 40,
    .is_normalized = UNKNOWN,
    .supports_tts = true,
    .supports_stt = false,
    .probed_at = 1732155555,
    .probe_version = PROBE_VERSION,
    .fingerprint = "00ff",
};

enum { AFTER_MAGIC = 16 }; /* SQLite's magic has 16 bytes */

struct test_dir {
    char dir[TMPDIR_NAME], path[300];
};

static struct test_dir test_dir_new(void)
{
    struct test_dir p;

    tmpdir_make(p.dir);
    snprintf(p.path, sizeof(p.path), "%s/a/b/store.db", p.dir);
    return p;
}

static struct capabilities *open_store(const struct test_dir *p)
{
    struct capabilities *c = NULL;
    struct err e = { 0 };

    if (capabilities_open(&c, p->path, true, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(c);
    return c;
}

static void expect_row(struct capabilities *c, const struct model_capabilities *want)
{
    struct model_capabilities got;
    struct err e;

    memset(&got, 0x5a, sizeof(got));
    EXPECT_EQ(capabilities_get(c, want->model_id, &got, &e), 1);
    EXPECT_STR(got.model_id, want->model_id);
    EXPECT_STR(got.model_type, want->model_type);
    EXPECT_STR(got.model_family, want->model_family);
    EXPECT_STR(got.tool_parser_id, want->tool_parser_id);
    EXPECT_STR(got.thinking_parser_id, want->thinking_parser_id);
    EXPECT_STR(got.tool_format, want->tool_format);
    EXPECT_STR(got.fingerprint, want->fingerprint);
    EXPECT_EQ(got.supports_native_tools, want->supports_native_tools);
    EXPECT_EQ(got.supports_thinking, want->supports_thinking);
    EXPECT_EQ(got.supports_multi_image, want->supports_multi_image);
    EXPECT_EQ(got.supports_video, want->supports_video);
    EXPECT_EQ(got.supports_tts, want->supports_tts);
    EXPECT_EQ(got.supports_stt, want->supports_stt);
    EXPECT_EQ(got.practical_max_tokens, want->practical_max_tokens);
    EXPECT_EQ(got.embedding_dimensions, want->embedding_dimensions);
    EXPECT_EQ(got.max_sequence_length, want->max_sequence_length);
    EXPECT_EQ((int)got.is_normalized, (int)want->is_normalized);
    EXPECT_EQ(got.probed_at, want->probed_at);
    EXPECT_EQ(got.probe_version, want->probe_version);
}

static void rows_persist(void)
{
    struct test_dir p = test_dir_new();
    struct capabilities *c = open_store(&p);
    struct model_capabilities other = row, got;
    struct err e;

    EXPECT_EQ(capabilities_get(c, row.model_id, &got, &e), 0);
    EXPECT_EQ(capabilities_put(c, &row, &e), 0);
    expect_row(c, &row);

    snprintf(other.tool_parser_id, sizeof(other.tool_parser_id), "null");
    other.tool_format[0] = '\0';
    other.embedding_dimensions = 768;
    other.is_normalized = KNOWN_YES;
    /* the same id: the later row replaces the earlier */
    EXPECT_EQ(capabilities_put(c, &other, &e), 0);
    expect_row(c, &other);
    capabilities_close(c);

    c = open_store(&p);
    expect_row(c, &other);
    EXPECT_EQ(capabilities_delete(c, row.model_id, &e), 0);
    EXPECT_EQ(capabilities_get(c, row.model_id, &got, &e), 0);
    EXPECT_EQ(capabilities_delete(c, row.model_id, &e), 0);
    capabilities_close(c);
    tmpdir_remove(p.dir);
}

static void reading_creates_no_file(void)
{
    struct test_dir p = test_dir_new();
    struct capabilities *c;
    struct err e;

    EXPECT_EQ(capabilities_open(&c, p.path, false, &e), -1);
    EXPECT_EQ((int)e.code, ERR_IO); /* the directory is missing, too */
    capabilities_close(open_store(&p));
    EXPECT_EQ(unlink(p.path), 0);
    EXPECT_EQ(capabilities_open(&c, p.path, false, &e), -1);
    EXPECT_EQ((int)e.code, ERR_NOT_FOUND);
    EXPECT(access(p.path, F_OK));
    tmpdir_remove(p.dir);
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db;

    EXPECT_EQ(sqlite3_open(path, &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* The schema that the first version wrote. */
static const char first_version[] =
    "CREATE TABLE model_capabilities (model_id TEXT PRIMARY KEY NOT NULL, model_type TEXT NOT NULL,"
    " model_family TEXT NOT NULL, tool_parser_id TEXT NOT NULL, thinking_parser_id TEXT NOT NULL,"
    " supports_native_tools INTEGER NOT NULL, supports_thinking INTEGER NOT NULL, tool_format TEXT,"
    " practical_max_tokens INTEGER, supports_multi_image INTEGER NOT NULL, supports_video INTEGER"
    " NOT NULL, embedding_dimensions INTEGER, max_sequence_length INTEGER, is_normalized INTEGER,"
    " supports_tts INTEGER NOT NULL, supports_stt INTEGER NOT NULL, probed_at INTEGER NOT NULL,"
    " probe_version INTEGER NOT NULL);"
    "INSERT INTO model_capabilities VALUES ('m', 'TEXT_GEN', 'qwen', 'hermes_json', 'think_tag', 1,"
    " 1, 'native', 4096, 0, 0, NULL, 32768, NULL, 0, 0, 1700000000, 3);"
    "PRAGMA user_version = 1;";

static void older_file_is_migrated(void)
{
    struct test_dir p = test_dir_new();
    struct model_capabilities got;
    struct err e;

    snprintf(p.path, sizeof(p.path), "%s/old.db", p.dir);
    run_sql(p.path, first_version);
    for (int again = 0; again < 2; again++) {
        struct capabilities *c = open_store(&p);
        EXPECT_EQ(capabilities_get(c, "m", &got, &e), 1);
        EXPECT_EQ(got.practical_max_tokens, 4096);
        EXPECT_STR(got.fingerprint, "");
        capabilities_close(c);
    }
    tmpdir_remove(p.dir);
}

static void a_newer_file_is_left_alone(void)
{
    struct test_dir p = test_dir_new();
    struct capabilities *c;
    struct err e;

    capabilities_close(open_store(&p));
    run_sql(p.path, "PRAGMA user_version = 99");
    EXPECT_EQ(capabilities_open(&c, p.path, true, &e), -1);
    EXPECT_EQ((int)e.code, ERR_UNSUPPORTED);
    run_sql(p.path, "SELECT probed_at FROM model_capabilities");
    tmpdir_remove(p.dir);
}

/* ---- damage */

static void overwrite_bytes(const char *path, long at, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "r+b");

    EXPECT(f && !fseek(f, at, SEEK_SET) && fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

static void expect_moved_aside(const struct test_dir *p, int nth, bool is_there)
{
    char aside[340];

    snprintf(aside, sizeof(aside), "%s.damaged-%d", p->path, nth);
    EXPECT_EQ(!access(aside, F_OK), is_there);
}

/* A file without SQLite's magic may be anything that the operator named by mistake. */
static void another_file_is_refused_and_stays(void)
{
    static const char junk[] = "this is no database at all, and never was one";
    struct test_dir p = test_dir_new();
    struct capabilities *c = NULL;
    struct stat before, after;
    struct err e;

    capabilities_close(open_store(&p));
    overwrite_bytes(p.path, 0, junk, sizeof(junk));
    EXPECT_EQ(stat(p.path, &before), 0);
    for (int writes = 0; writes <= 1; writes++) {
        EXPECT(capabilities_open(&c, p.path, writes, &e) && e.code == ERR_INVALID);
        EXPECT_EQ(stat(p.path, &after), 0);
        EXPECT_EQ(after.st_ino, before.st_ino);
        EXPECT_EQ(after.st_size, before.st_size);
    }
    expect_moved_aside(&p, 1, false);
    EXPECT_EQ(unlink(p.path), 0);
    EXPECT_EQ(mkfifo(p.path, 0600), 0);
    EXPECT(capabilities_open(&c, p.path, true, &e) && e.code == ERR_INVALID);
    expect_moved_aside(&p, 1, false);
    tmpdir_remove(p.dir);
}

static void damaged_file_is_moved_aside_and_recreated(void)
{
    static const char junk[] = "this is no database at all, and never was one";
    struct test_dir p = test_dir_new();
    struct model_capabilities got;
    struct err e;

    for (int nth = 1; nth <= 2; nth++) {
        struct capabilities *c = open_store(&p);
        EXPECT_EQ(capabilities_put(c, &row, &e), 0);
        capabilities_close(c);
        overwrite_bytes(p.path, AFTER_MAGIC, junk, sizeof(junk));
        c = open_store(&p);
        EXPECT_EQ(capabilities_get(c, row.model_id, &got, &e), 0);
        EXPECT_EQ(capabilities_put(c, &row, &e), 0);
        expect_row(c, &row);
        capabilities_close(c);
        expect_moved_aside(&p, nth, true);
        expect_moved_aside(&p, nth + 1, false);
    }
    tmpdir_remove(p.dir);
}

/* For any flipped bit the store opens and returns the row, no row or an error, or it is rejected
 * with a reason such as another version or kind. */
static void flipped_bit_is_harmless(void)
{
    struct test_dir p = test_dir_new();
    struct capabilities *c = open_store(&p);
    struct model_capabilities got;
    struct stat st;
    struct err e;
    uint64_t seed = 20241121;
    int n_refused = 0;

    EXPECT_EQ(capabilities_put(c, &row, &e), 0);
    capabilities_close(c);
    EXPECT_EQ(stat(p.path, &st), 0);
    struct str sound = { xmalloc((size_t)st.st_size), (size_t)st.st_size };
    FILE *f = fopen(p.path, "rb");
    EXPECT(f && fread((void *)(uintptr_t)sound.p, 1, sound.n, f) == sound.n);
    fclose(f);
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 150; i++) {
        char byte;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        /* Most of the file is empty, so half of the flipped bits are in its header. */
        long at = (long)((seed >> 33) % (i & 1 ? 256 : sound.n));
        byte = (char)(sound.p[at] ^ (1 << (seed >> 20) % 8));
        overwrite_bytes(p.path, 0, sound.p, sound.n);
        overwrite_bytes(p.path, at, &byte, 1);
        c = NULL;
        if (capabilities_open(&c, p.path, true, &e)) {
            EXPECT(e.code == ERR_UNSUPPORTED || e.code == ERR_IO ||
                   (e.code == ERR_INVALID && at < AFTER_MAGIC));
            EXPECT(strstr(e.msg, "store.db"));
            n_refused++;
            continue;
        }
        int rc = capabilities_get(c, row.model_id, &got, &e);
        EXPECT(rc >= -1 && rc <= 1);
        capabilities_close(c);
    }
    EXPECT(n_refused < 30);
    mem_free((void *)(uintptr_t)sound.p);
    tmpdir_remove(p.dir);
}

static void two_processes_may_open_it(void)
{
    struct test_dir p = test_dir_new();
    struct capabilities *a = open_store(&p), *b = open_store(&p);
    struct model_capabilities other = row;
    struct err e;

    EXPECT_EQ(capabilities_put(a, &row, &e), 0);
    expect_row(b, &row);
    other.practical_max_tokens = 7;
    EXPECT_EQ(capabilities_put(b, &other, &e), 0);
    expect_row(a, &other);
    capabilities_close(a);
    capabilities_close(b);
    tmpdir_remove(p.dir);
}

TESTS(TEST(rows_persist), TEST(reading_creates_no_file), TEST(older_file_is_migrated),
    TEST(a_newer_file_is_left_alone), TEST(another_file_is_refused_and_stays),
    TEST(damaged_file_is_moved_aside_and_recreated), TEST(flipped_bit_is_harmless),
    TEST(two_processes_may_open_it))
