/* Packed weights from a file give the same bits as newly packed weights. A file that is damaged
 * or belongs to another model is not used, and a failed write leaves no file. */
#include "support/check.h"
#include "base/crc.h"
#include "base/fault.h"
#include "testing/gguf_write.h"
#include "model/llama.h"
#include "model/packfile.h"
#include "support/tiny.h"

#include "../../kernel/kit_formats.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 3 * 1024 * 1024 + 77, N_TOKENS = 33 };

struct test_dir {
    char dir[64], path[96];
};

static struct test_dir new_test_dir(void)
{
    struct test_dir p = { .dir = "/tmp/ifx-packfile-XXXXXX" };

    EXPECT(mkdtemp(p.dir));
    snprintf(p.path, sizeof(p.path), "%s/m.pack", p.dir);
    return p;
}

static void leave_test_dir(const struct test_dir *p)
{
    char temp[128];

    snprintf(temp, sizeof(temp), "%s.new", p->path);
    unlink(p->path);
    unlink(temp);
    snprintf(temp, sizeof(temp), "%s/m.gguf", p->dir);
    unlink(temp);
    EXPECT(!rmdir(p->dir)); /* the directory contains nothing else */
}

/* A model file, newly written. */
static struct gguf *open_at(const struct test_dir *p, const char *name, const struct tiny_model *t)
{
    struct buf bytes = tiny_bytes(t);
    struct gguf *g = NULL;
    char path[128];
    struct err e;

    snprintf(path, sizeof(path), "%s/%s", p->dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    EXPECT(fd >= 0 && write(fd, bytes.p, bytes.n) == (ssize_t)bytes.n && !close(fd));
    EXPECT(!gguf_open(&g, path, &e));
    buf_clear(&bytes);
    return g;
}

static void finish_digest(struct packfile_key *out, const struct gguf *g, int n_threads)
{
    struct content c;
    struct thread_pool *thread_pool;
    struct err e;

    EXPECT(!thread_pool_open(&thread_pool, n_threads, &e) && !content_init(&c, g, thread_pool, &e));
    for (size_t i = gguf_n_tensors(g); i-- > 0;)
        content_add(&c, gguf_tensor_at(g, i), gguf_tensor_at(g, i)->data);
    content_end(&c, out->content);
    content_clear(&c);
    thread_pool_close(thread_pool);
}

static struct packfile_key key_of(const struct tiny_model *t)
{
    struct gguf *g = tiny_open(t);
    struct packfile_key k = { .source = { 1, 2, 3 }, .has_source = true };

    finish_digest(&k, g, 2);
    gguf_close(g);
    return k;
}

static uint8_t *random_block(void)
{
    uint8_t *block = xmalloc(BYTES);
    struct rng r = { 5, 0 };

    for (size_t i = 0; i < BYTES; i++)
        block[i] = (uint8_t)rng_next(&r);
    return block;
}

static int try_open(const char *path, const struct packfile_key *k, size_t bytes)
{
    struct packfile f;
    struct thread_pool *thread_pool;
    struct err e = { 0 };

    EXPECT(!thread_pool_open(&thread_pool, 2, &e));
    bool is_open = !packfile_open(&f, path, bytes, &e);
    if (is_open && !packfile_check(&f, bytes, thread_pool, &e)) {
        e.code = memcmp(f.key.content, k->content, sizeof(k->content)) ? ERR_UNSUPPORTED : ERR_NONE;
        EXPECT_EQ((int)((uintptr_t)f.block % 4096), 0);
    } else {
        EXPECT(is_open || (!f.block && !f.map.p));
    }
    packfile_close(&f);
    thread_pool_close(thread_pool);
    return (int)e.code;
}

/* ---- computed outputs */

struct outputs {
    float v[N_TOKENS][128];
};

static struct lm *open_with(const struct gguf *g, const char *path, bool to_memory)
{
    struct llama_options o = { .n_threads = 2,
        .n_pages = N_TOKENS / PAGE_TOKENS + 1,
        .max_rows = N_TOKENS,
        .max_logits = N_TOKENS,
        .packfile = path,
        .packfile_to_memory = to_memory };
    struct lm *m = NULL;
    struct err e;

    EXPECT(!lm_open_llama(&m, g, &o, &e));
    return m;
}

static struct outputs compute(struct lm *m)
{
    struct outputs out = { 0 };
    int32_t tokens[N_TOKENS];
    page_id pages[N_TOKENS / PAGE_TOKENS + 1];
    struct lm_run run = { .tokens = tokens, .n = N_TOKENS, .pages = pages, .n_logits = N_TOKENS };
    _Atomic bool stop = false;

    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = i * 7 % m->n_vocab;
    for (uint32_t i = 0; i < ARRAY_LEN(pages); i++)
        pages[i].i = i;
    EXPECT(m->ops->forward(m, &run, 1, &stop));
    for (int i = 0; i < N_TOKENS; i++)
        memcpy(out.v[i], run.logits + (size_t)i * (size_t)m->n_vocab,
            (size_t)m->n_vocab * sizeof(float));
    return out;
}

static void the_same_bits_from_the_file(void)
{
    static const enum qtype types[] = { Q_F32, Q_Q4_0, Q_Q8_0, Q_F16, Q_IQ2_S, Q_Q1_0 };

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct test_dir p = new_test_dir();
        struct tiny_model t = tiny_default;
        t.type = t.type_v = types[i];
        if (qtype_info(types[i])->block > 32) {
            t.d = t.ff = 256;
            t.head_dim = 64;
        }
        t.is_untied = i % 2;
        t.has_factors = i / 2;
        struct gguf *g = open_at(&p, "m.gguf", &t);
        struct err e;

        struct lm *m = open_with(g, p.path, false);
        EXPECT(llama_wants_packfile(m));
        struct outputs want = compute(m);
        EXPECT(!llama_write_packfile(m, p.path, NULL, &e));
        m->ops->close(m);
        for (int to_memory = 0; to_memory < 2; to_memory++) {
            m = open_with(g, p.path, to_memory);
            EXPECT(!llama_wants_packfile(m));
            struct outputs got = compute(m);
            EXPECT(!memcmp(&got, &want, sizeof(want)));
            m->ops->close(m);
        }
        gguf_close(g);
        leave_test_dir(&p);
    }
}

/* If file and model do not belong together, the model's own weights are used. */
static void a_file_of_another_model_is_not_used(void)
{
    struct test_dir p = new_test_dir();
    struct tiny_model mine = tiny_default, other = tiny_default;
    other.seed = 2;
    struct gguf *g2 = open_at(&p, "m.gguf", &other);
    struct err e;

    struct lm *m = open_with(g2, p.path, false);
    EXPECT(!llama_write_packfile(m, p.path, NULL, &e));
    m->ops->close(m);
    struct gguf *g = open_at(&p, "m.gguf", &mine);
    m = open_with(g, NULL, false);
    struct outputs want = compute(m);
    m->ops->close(m);
    m = open_with(g, p.path, false);
    struct outputs got = compute(m);
    EXPECT(llama_wants_packfile(m));
    EXPECT(!memcmp(&got, &want, sizeof(want)));
    m->ops->close(m);
    gguf_close(g);
    gguf_close(g2);
    leave_test_dir(&p);
}

/* ---- rejected files */

static void flip_bit(const char *path, size_t at, int bit)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t c = 0;

    EXPECT(fd >= 0 && pread(fd, &c, 1, (off_t)at) == 1);
    c ^= (uint8_t)(1 << bit);
    EXPECT(pwrite(fd, &c, 1, (off_t)at) == 1);
    close(fd);
}

static void content_key_depends_on_every_byte_and_only_on_bytes(void)
{
    struct tiny_model t = tiny_default;
    struct gguf *g = tiny_open(&t);
    struct packfile_key a, b;

    finish_digest(&a, g, 1);
    finish_digest(&b, g, 3);
    EXPECT(!memcmp(a.content, b.content, sizeof(a.content)));
    gguf_close(g);
    b = key_of(&t); /* in another file */
    EXPECT(!memcmp(a.content, b.content, sizeof(a.content)));
    struct buf bytes = tiny_bytes(&t);
    struct err e;
    for (int nth = 0; nth < 20; nth++) {
        EXPECT(!gguf_open_bytes(&g, (const uint8_t *)bytes.p, bytes.n, &e));
        const struct gguf_tensor *one = gguf_tensor_at(g, (size_t)nth % gguf_n_tensors(g));
        size_t at = (size_t)(one->data - (const uint8_t *)bytes.p) +
                    (nth % 2 ? (size_t)one->bytes - 1 : (size_t)one->bytes / 2);
        bytes.p[at] ^= 1;
        finish_digest(&b, g, 2);
        EXPECT(memcmp(a.content, b.content, sizeof(a.content)) != 0);
        bytes.p[at] ^= 1;
        gguf_close(g);
    }
    buf_clear(&bytes);
}

/* A writer that restores the modification time still changes the change time. */
static void write_is_detected_whatever_time_is_set(void)
{
    struct test_dir p = new_test_dir();
    struct gguf *g = open_at(&p, "m.gguf", &tiny_default);
    const struct file_id *id = gguf_part_id(g, 0);
    const struct timespec times[2] = {
        { id->mtime_ns / 1000000000, id->mtime_ns % 1000000000 },
        { id->mtime_ns / 1000000000, id->mtime_ns % 1000000000 },
    };
    struct packfile_key k;
    char path[128];

    packfile_source_of(&k, g);
    EXPECT(!k.has_source); /* the file is too young */
    EXPECT(gguf_is_unchanged(g));
    snprintf(path, sizeof(path), "%s/m.gguf", p.dir);
    const int64_t before = id->ctime_ns;
    struct stat st;
    do { /* until the file system's clock has advanced */
        flip_bit(path, 3000, 0);
        EXPECT(!utimensat(AT_FDCWD, path, times, 0) && !stat(path, &st));
    } while (st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec == before);
    EXPECT_EQ(st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec, (long long)id->mtime_ns);
    EXPECT(!gguf_is_unchanged(g));
    gguf_close(g);
    leave_test_dir(&p);
}

static bool is_from(const char *path, const struct packfile_key *key)
{
    struct packfile f;
    struct err e;

    EXPECT(!packfile_open(&f, path, BYTES, &e));
    bool is = packfile_source_matches(&f, key);
    packfile_close(&f);
    return is;
}

static void rewrite_file(const char *path, const struct packfile_key *key)
{
    struct packfile f;
    struct err e;

    EXPECT(!packfile_open(&f, path, BYTES, &e));
    packfile_update_source(&f, path, key);
    packfile_close(&f);
}

static void source_record_is_updated(void)
{
    struct test_dir p = new_test_dir();
    struct packfile_key k = key_of(&tiny_default), moved = k, young = k;
    uint8_t *block = random_block();
    struct packfile f;
    struct err e;

    moved.source[7] ^= 1;
    young.has_source = false;
    EXPECT(!packfile_write(p.path, &young, block, BYTES, NULL, &e));
    EXPECT(!is_from(p.path, &k));
    EXPECT(!is_from(p.path, &young));
    rewrite_file(p.path, &k);
    EXPECT(is_from(p.path, &k));
    EXPECT(!is_from(p.path, &young));
    rewrite_file(p.path, &moved);
    EXPECT(is_from(p.path, &moved));
    EXPECT(!is_from(p.path, &k));
    rewrite_file(p.path, &young);
    EXPECT(is_from(p.path, &moved));
    EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_NONE);
    /* a torn record counts as none and has no other effect */
    for (int bit = 0; bit < 36 * 8; bit++) {
        flip_bit(p.path, 512 + (size_t)bit / 8, bit % 8);
        EXPECT(!is_from(p.path, &moved));
        flip_bit(p.path, 512 + (size_t)bit / 8, bit % 8);
    }
    EXPECT(!packfile_open(&f, p.path, BYTES, &e)); /* replaced by another process in between */
    EXPECT(!packfile_write(p.path, &moved, block, BYTES, NULL, &e));
    packfile_update_source(&f, p.path, &k);
    packfile_close(&f);
    EXPECT(is_from(p.path, &moved));
    mem_free(block);
    leave_test_dir(&p);
}

/* The pack is used for the same bytes in another file; for other bytes it is not, even with
 * equal size and time. */
static void content_decides_not_file_times(void)
{
    struct test_dir p = new_test_dir();
    struct gguf *g = open_at(&p, "m.gguf", &tiny_default);
    char path[128], other[128];
    struct err e;

    snprintf(path, sizeof(path), "%s/m.gguf", p.dir);
    snprintf(other, sizeof(other), "%s/copy.gguf", p.dir);
    struct lm *m = open_with(g, p.path, false);
    EXPECT(!llama_write_packfile(m, p.path, NULL, &e));
    m->ops->close(m);
    struct gguf *copy = open_at(&p, "copy.gguf", &tiny_default);
    EXPECT(!rename(other, path));
    m = open_with(copy, p.path, false);
    EXPECT(!llama_wants_packfile(m));
    m->ops->close(m);
    gguf_close(copy);
    const struct gguf_tensor *t = gguf_tensor_at(g, gguf_n_tensors(g) - 1);
    const struct file_id *id = gguf_part_id(g, 0);
    const struct timespec then = { id->mtime_ns / 1000000000, id->mtime_ns % 1000000000 };
    flip_bit(path, (size_t)(id->size - t->bytes / 2), 0);
    EXPECT(!utimensat(AT_FDCWD, path, (struct timespec[]){ then, then }, 0));
    EXPECT(!gguf_open(&copy, path, &e));
    m = open_with(copy, p.path, false);
    EXPECT(llama_wants_packfile(m));
    m->ops->close(m);
    gguf_close(copy);
    gguf_close(g);
    leave_test_dir(&p);
}

/* ---- models in several parts */

enum { N_PARTS = 3 };

static char *part_name(char *out, const struct test_dir *p, int i)
{
    snprintf(out, 128, "%s/m-%05d-of-%05d.gguf", p->dir, i + 1, N_PARTS);
    return out;
}

/* A part has a third of the tensors of g; the first part has all keys. */
static void write_part(const struct gguf *g, const struct test_dir *p, int part)
{
    const size_t n = gguf_n_tensors(g), from = n * (size_t)part / N_PARTS,
                 to = n * (size_t)(part + 1) / N_PARTS;
    struct gguf_writer *w = gguf_writer_new(0);
    struct err e;
    char path[128];

    EXPECT(w);
    for (size_t i = 0; part == 0 && i < gguf_n_kv(g); i++)
        gguf_put_value(w, gguf_kv_at(g, i)->key, &gguf_kv_at(g, i)->value);
    gguf_put_u32(w, "split.no", (uint32_t)part);
    gguf_put_u32(w, "split.count", N_PARTS);
    gguf_put_i32(w, "split.tensors.count", (int32_t)n);
    for (size_t i = from; i < to; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_put_tensor(w, t->name, t->type, t->n_dims, t->dims);
    }
    EXPECT(!gguf_writer_open(w, part_name(path, p, part), &e));
    for (size_t i = from; i < to; i++)
        EXPECT(!gguf_writer_data(w, gguf_tensor_at(g, i)->data, gguf_tensor_at(g, i)->bytes, &e));
    EXPECT(!gguf_writer_finish(w, &e));
    gguf_writer_free(w);
}

static struct gguf *open_parts(const struct test_dir *p)
{
    struct gguf *g = NULL;
    struct err e;
    char path[128];

    EXPECT(!gguf_open(&g, part_name(path, p, 0), &e));
    EXPECT_EQ(gguf_n_parts(g), (size_t)N_PARTS);
    return g;
}

/* Output of the parts, and whether the existing packed weights were used. */
static struct outputs compute_parts(const struct test_dir *p, const char *packfile, bool *is_used)
{
    struct gguf *g = open_parts(p);
    struct lm *m = open_with(g, packfile, false);
    struct outputs out = compute(m);

    *is_used = packfile && !llama_wants_packfile(m);
    m->ops->close(m);
    gguf_close(g);
    return out;
}

/* The pack belongs to all parts together; one changed bit in any of them makes another model. */
static void every_part_of_a_model_is_checked(void)
{
    struct test_dir p = new_test_dir();
    struct gguf *whole = open_at(&p, "m.gguf", &tiny_default);
    bool is_used;
    char path[128];
    struct err e;

    for (int i = 0; i < N_PARTS; i++)
        write_part(whole, &p, i);
    struct lm *m = open_with(whole, p.path, false);
    struct outputs want = compute(m);
    EXPECT(!llama_write_packfile(m, p.path, NULL, &e));
    m->ops->close(m);
    struct outputs got = compute_parts(&p, p.path, &is_used);
    EXPECT(is_used && !memcmp(&got, &want, sizeof(want)));
    for (int i = 0; i < N_PARTS; i++) {
        struct gguf *g = open_parts(&p);
        size_t at = gguf_part_id(g, (size_t)i)->size - 33; /* in its last tensor */
        gguf_close(g);
        flip_bit(part_name(path, &p, i), at, 3);
        struct outputs other = compute_parts(&p, NULL, &is_used);
        got = compute_parts(&p, p.path, &is_used);
        EXPECT(!is_used && !memcmp(&got, &other, sizeof(other)));
        EXPECT(memcmp(&other, &want, sizeof(want)) != 0);
        flip_bit(part_name(path, &p, i), at, 3);
    }
    got = compute_parts(&p, p.path, &is_used);
    EXPECT(is_used && !memcmp(&got, &want, sizeof(want)));
    for (int i = 0; i < N_PARTS; i++)
        EXPECT(!unlink(part_name(path, &p, i)));
    gguf_close(whole);
    leave_test_dir(&p);
}

/* ---- damage */

static void one_wrong_bit_is_detected(void)
{
    struct test_dir p = new_test_dir();
    struct tiny_model t = tiny_default;
    struct packfile_key k = key_of(&t), other = k;
    uint8_t *block = random_block();
    struct rng r = { 3, 0 };
    struct err e;

    EXPECT(!packfile_write(p.path, &k, block, BYTES, NULL, &e));
    EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_NONE);
    for (int i = 0; i < 64 * 8; i++) { /* the whole header */
        flip_bit(p.path, (size_t)i / 8, i % 8);
        EXPECT(try_open(p.path, &k, BYTES) != ERR_NONE);
        flip_bit(p.path, (size_t)i / 8, i % 8);
    }
    for (int i = 0; i < 4 * 32; i++) { /* the checksums */
        flip_bit(p.path, 4096 + (size_t)i / 8, i % 8);
        EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_CORRUPT);
        flip_bit(p.path, 4096 + (size_t)i / 8, i % 8);
    }
    for (int i = 0; i < 60; i++) { /* the block, including its ends */
        size_t at = i == 0 ? 0 : i == 1 ? BYTES - 1 : rng_below(&r, BYTES);
        flip_bit(p.path, 8192 + at, i % 8);
        EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_CORRUPT);
        flip_bit(p.path, 8192 + at, i % 8);
    }
    EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_NONE);
    EXPECT_EQ(try_open(p.path, &k, BYTES - 1), ERR_UNSUPPORTED);
    other.content[31] ^= 1;
    EXPECT_EQ(try_open(p.path, &other, BYTES), ERR_UNSUPPORTED);
    mem_free(block);
    leave_test_dir(&p);
}

static void truncated_file_is_detected(void)
{
    static const size_t cuts[] = { 8192 + BYTES - 1, 8192 + BYTES / 2, 8192, 4097, 4096, 64, 63,
        1 };
    struct test_dir p = new_test_dir();
    struct tiny_model t = tiny_default;
    struct packfile_key k = key_of(&t);
    uint8_t *block = random_block();
    struct err e;

    EXPECT(!packfile_write(p.path, &k, block, BYTES, NULL, &e));
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        EXPECT(!truncate(p.path, (off_t)cuts[i]));
        EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_CORRUPT);
    }
    EXPECT(!truncate(p.path, 0));
    EXPECT(try_open(p.path, &k, BYTES) != ERR_NONE);
    EXPECT(!unlink(p.path));
    EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_NOT_FOUND);
    mem_free(block);
    leave_test_dir(&p);
}

/* ---- failures while writing */

static bool is_there(const char *path)
{
    struct stat st;
    return !stat(path, &st);
}

static void failed_write_leaves_no_file(void)
{
    struct test_dir p = new_test_dir();
    struct tiny_model t = tiny_default;
    struct packfile_key k = key_of(&t);
    uint8_t *block = random_block();
    struct err e;
    int failed = 0, rc = -1;

    for (uint64_t nth = 1; rc && nth < 100; nth++) {
        fault_arm(FAULT_WRITE, nth);
        rc = packfile_write(p.path, &k, block, BYTES, NULL, &e);
        failed += rc != 0;
        EXPECT(!rc || (e.code == ERR_IO && strstr(e.msg, p.path)));
        EXPECT(is_there(p.path) == !rc);
    }
    fault_arm(FAULT_WRITE, 0);
    EXPECT(failed >= FAULTS_AT_LEAST(5)); /* the header and four sections */
    EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_NONE);
    mem_free(block);
    leave_test_dir(&p);
}

static void stop_leaves_no_file_and_keeps_the_old_one(void)
{
    struct test_dir p = new_test_dir();
    struct tiny_model t = tiny_default;
    struct packfile_key k = key_of(&t);
    uint8_t *block = random_block();
    _Atomic bool stop = true;
    struct err e;

    EXPECT(packfile_write(p.path, &k, block, BYTES, &stop, &e));
    EXPECT(e.code == ERR_CANCELLED);
    EXPECT(!is_there(p.path));
    stop = false;
    EXPECT(!packfile_write(p.path, &k, block, BYTES, &stop, &e));
    stop = true;
    EXPECT(packfile_write(p.path, &k, block, BYTES, &stop, &e));
    EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_NONE);
    mem_free(block);
    leave_test_dir(&p);
}

static void concurrent_writers_are_excluded(void)
{
    struct test_dir p = new_test_dir();
    struct tiny_model t = tiny_default;
    struct packfile_key k = key_of(&t);
    uint8_t *block = random_block();
    char temp[128];
    struct err e;

    snprintf(temp, sizeof(temp), "%s.new", p.path);
    int fd = open(temp, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    EXPECT(fd >= 0 && !flock(fd, LOCK_EX) && write(fd, "half", 4) == 4);
    EXPECT(packfile_write(p.path, &k, block, BYTES, NULL, &e));
    EXPECT(e.code == ERR_IO && is_there(temp) && !is_there(p.path));
    close(fd); /* the other writer was killed */
    EXPECT(!packfile_write(p.path, &k, block, BYTES, NULL, &e));
    EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_NONE);
    EXPECT(!is_there(temp));
    mem_free(block);
    leave_test_dir(&p);
}

static void symbolic_link_is_not_followed(void)
{
    struct test_dir p = new_test_dir();
    struct tiny_model t = tiny_default;
    struct packfile_key k = key_of(&t);
    uint8_t *block = random_block();
    char temp[128], other[128];
    struct err e;

    snprintf(temp, sizeof(temp), "%s.new", p.path);
    snprintf(other, sizeof(other), "%s/other", p.dir);
    EXPECT(!symlink(other, temp));
    EXPECT(packfile_write(p.path, &k, block, BYTES, NULL, &e));
    EXPECT(e.code == ERR_IO && !is_there(other));
    mem_free(block);
    leave_test_dir(&p);
}

/* A FIFO without a writer must not block. It is left unchanged. */
static void non_regular_file_is_left_alone(void)
{
    struct test_dir p = new_test_dir();
    struct tiny_model t = tiny_default;
    struct packfile_key k = key_of(&t);
    struct gguf *g = tiny_open(&t);
    uint8_t *block = random_block();
    char temp[128];
    struct stat st;
    struct err e;

    EXPECT(!mkfifo(p.path, 0644));
    EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_INVALID);
    struct lm *m = open_with(g, p.path, false);
    EXPECT(!llama_wants_packfile(m));
    m->ops->close(m);
    EXPECT(!stat(p.path, &st) && S_ISFIFO(st.st_mode));
    EXPECT(!unlink(p.path) && !mkdir(p.path, 0755));
    EXPECT_EQ(try_open(p.path, &k, BYTES), ERR_INVALID);
    EXPECT(!rmdir(p.path));

    snprintf(temp, sizeof(temp), "%s.new", p.path);
    EXPECT(!mkfifo(temp, 0644));
    EXPECT(packfile_write(p.path, &k, block, BYTES, NULL, &e) && e.code == ERR_IO);
    int reader = open(temp, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT(reader >= 0);
    EXPECT(packfile_write(p.path, &k, block, BYTES, NULL, &e) && e.code == ERR_IO);
    EXPECT(!is_there(p.path));
    close(reader);
    gguf_close(g);
    mem_free(block);
    leave_test_dir(&p);
}

/* ---- the layout */

static uint64_t hash(uint64_t h, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3;
    return h;
}

static uint64_t hash_of_type(const struct kit_type *t)
{
    enum { ROWS = 19, COLS = 512 };
    struct rng r = { .key = 4 };
    size_t n = (size_t)(ROWS * (COLS / t->block)) * t->bytes,
           packed = pack_bytes(t->type, ROWS, COLS);
    uint8_t *rows = xmalloc(n), *to = try_aligned(64, packed);
    struct packed w;
    struct err e;

    for (size_t i = 0; i < n; i++)
        rows[i] = (uint8_t)rng_next(&r);
    EXPECT(to && !pack_init(&w, t->type, ROWS, COLS, to, &e));
    memset(to, 0xa5, packed); /* all of it is written */
    pack_panels(&w, rows, 0, w.n_panels);
    uint64_t h = hash(0x12345, to, packed);
    mem_free(to);
    mem_free(rows);
    return h;
}

static uint64_t hash_of_block(struct tiny_model t)
{
    struct test_dir p = new_test_dir();
    struct gguf *g = open_at(&p, "m.gguf", &t);
    struct mapfile f;
    struct err e;

    struct lm *m = open_with(g, p.path, false);
    EXPECT(!llama_write_packfile(m, p.path, NULL, &e) && !mapfile_open(&f, p.path, &e));
    EXPECT(f.n > 8192 && m->weight_bytes < 1024 * 1024); /* the checksums take one unit */
    uint64_t h = hash(0x12345, f.p + 8192, f.n - 8192);
    mapfile_close(&f);
    m->ops->close(m);
    gguf_close(g);
    leave_test_dir(&p);
    return h;
}

/* A change of one of these hashes requires another PACKFILE_LAYOUT: files of the old layout
 * exist. */
static void layout_is_unchanged(void)
{
    static const uint64_t want[KIT_N_TYPES + 2] = { 0x3618d3cdc00763ab, 0x471c2e529b4c441c,
        0x57095d41c80f638c, 0x3208ac4f578858ef, 0xc416381366ff4fcd, 0x7d450873c61e355d,
        0xf684e408dc6acd42, 0xd8ed4c9f358a3ea1, 0xc2b65689e0e88050, 0x423f2a3be561ae0d,
        0x8771a5e2a8e853bf, 0xc416381366ff4fcd, 0xaa1561ace25257cf, 0x0fc0a933db93e4f4,
        0x15ba0eef73051e2a, 0x3ea436b805e0a702, 0x492cfb978657adf8, 0xf762938d7db83ab8,
        0xd3891ba400e766f4, 0xbacde5b7851e8287, 0xfc0bc36adf110e0c, 0xd97d0a8a1998b387,
        0xf5ef6bd52def5299, 0x71239a09daef059b, 0x441f712e35aa7c5f, 0xddfc097edc30c15e,
        0xd2f5e9afb9853dc8, 0xa4a091096d5c01a1, 0x20a82236dac9d04b, 0x3ba5f9c6a5dbc400,
        0x7c258cab2f759e75, 0xa110492639b4d01f, 0xea2af3c3cb258b59, 0xe43994dbb8df78a2,
        0xa54b01b69c5d0c74, 0x4919738e84bce6b9, 0x6f6aaed2ab5e923b, 0x82b3b19b7c5942b6,
        0x1fa68b9dbe8e7766, 0x54d767cf31c0983c, 0x8d54d77f659ed40f, 0x6739be11cb6aa9af,
        0x86264f57a7214408, 0xf005e0056e7dfe63, 0x8230838540b852d1 };
    struct tiny_model rich = tiny_default;

    EXPECT_EQ(PACKFILE_LAYOUT, 1);
    for (int i = 0; i < KIT_N_TYPES; i++)
        EXPECT_EQ(hash_of_type(&kit_types[i]), want[i]);
    EXPECT_EQ(hash_of_block(tiny_default), want[KIT_N_TYPES]);
    rich.is_untied = rich.has_factors = true;
    rich.type_v = Q_F16;
    EXPECT_EQ(hash_of_block(rich), want[KIT_N_TYPES + 1]);
}

static void checksum_is_equal_for_every_implementation(void)
{
    uint8_t bytes[300];
    struct rng r = { 9, 0 };

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)rng_next(&r);
    EXPECT_EQ(crc32c(0, "123456789", 9), 0xe3069283u);
    for (size_t from = 0; from < 16; from++)
        for (size_t n = 0; from + n <= sizeof(bytes); n += 1 + n / 16)
            EXPECT_EQ(crc32c(17, bytes + from, n), crc32c_portable(17, bytes + from, n));
}

TESTS(TEST(the_same_bits_from_the_file), TEST(a_file_of_another_model_is_not_used),
    TEST(content_key_depends_on_every_byte_and_only_on_bytes),
    TEST(write_is_detected_whatever_time_is_set), TEST(source_record_is_updated),
    TEST(content_decides_not_file_times), TEST(every_part_of_a_model_is_checked),
    TEST(one_wrong_bit_is_detected), TEST(truncated_file_is_detected),
    TEST(failed_write_leaves_no_file), TEST(stop_leaves_no_file_and_keeps_the_old_one),
    TEST(concurrent_writers_are_excluded), TEST(symbolic_link_is_not_followed),
    TEST(layout_is_unchanged), TEST(non_regular_file_is_left_alone),
    TEST(checksum_is_equal_for_every_implementation))
