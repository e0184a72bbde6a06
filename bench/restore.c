/* restore: speed of loading KV pages from the offload tier, compared with a sequential read of the
 * same files.
 *
 *     restore DIR [--pages N] [--page-bytes N] [--rounds N] [--threads]
 *
 * The pages belong to one long prompt. Their records are verified and copied to the model's pages.
 * Before each measurement the files are dropped from the page cache. --threads: reads with threads
 * instead of io_uring. */
#include "base/mem.h"
#include "cache/tier.h"
#include "os/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS_MAX = 99, CHUNK = 1 << 20, ARENA = 16, WRITTEN = 1, FETCHED };

struct setup {
    char dir[4096];
    int n_pages, n_rounds;
    size_t page_bytes;
    enum aio_kind aio;
};

static const struct lm_ops ops = { .write_page = lm_write_page };
static struct lm lm = { .ops = &ops, .n_pages = ARENA };

static double median(double *v, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && v[j] < v[j - 1]; j--) {
            double x = v[j];
            v[j] = v[j - 1];
            v[j - 1] = x;
        }
    return v[n / 2];
}

/* Calls fn for each segment file; returns the sum of its results. */
static uint64_t for_each_segment(const struct setup *s, uint64_t (*fn)(int fd))
{
    DIR *d = opendir(s->dir);
    uint64_t sum = 0;

    for (struct dirent *f; d && (f = readdir(d));) {
        int fd = strstr(f->d_name, ".seg") ? openat(dirfd(d), f->d_name, O_RDONLY) : -1;
        if (fd < 0)
            continue;
        sum += fn(fd);
        close(fd);
    }
    if (d)
        closedir(d);
    return sum;
}

static uint64_t drop_page_cache(int fd)
{
    fsync(fd);
    return (uint64_t)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static uint64_t read_file(int fd)
{
    static uint8_t chunk[CHUNK];
    uint64_t n_all = 0;

    for (ssize_t n; (n = read(fd, chunk, sizeof(chunk))) > 0;)
        n_all += (uint64_t)n;
    return n_all;
}

static void run_tier(struct tier *t, struct mailbox *mailbox)
{
    tier_send(t);
    tier_work(t);
    for (struct msg *m = mailbox_drain(mailbox), *next; m; m = next) {
        next = m->next;
        if (m->kind == WRITTEN)
            tier_write_end(t, m);
    }
}

static void write_pages(
    const struct setup *s, struct tier *t, struct mailbox *mailbox, const int32_t *tokens)
{
    const struct record_kind kind = { "bench", 0, s->page_bytes };
    uint64_t hash = tree_scope_hash(&(struct cache_scope){ 0 });

    for (int i = 0; i < s->n_pages; i++) {
        struct tier_write *w = tier_write_begin(t, TIER_PAGE);
        struct record r = { .tokens = tokens, .n_tokens = (i + 1) * PAGE_TOKENS, .first_page = i };
        CHECK(w);
        hash = tree_extend_hash(hash, tokens + i * PAGE_TOKENS, PAGE_TOKENS);
        record_begin(w->bytes, &kind, &r);
        memset(r.pages, i, s->page_bytes);
        w->n_bytes = record_bytes(&kind, &r);
        w->hash = hash;
        tier_put_write(t, w);
        run_tier(t, mailbox);
    }
}

static double fetch_seconds(
    const struct setup *s, struct tier *t, struct mailbox *mailbox, const int32_t *tokens)
{
    struct tier_read *f = tier_read_begin(t);
    uint64_t hash = tree_scope_hash(&(struct cache_scope){ 0 });

    f->scope = (struct cache_scope){ 0 };
    f->first_page = 0;
    f->n_pages = tier_chain(t, hash, tokens, s->n_pages, f->at);
    CHECK(f->n_pages == s->n_pages);
    memcpy(f->tokens, tokens, (size_t)(s->n_pages * PAGE_TOKENS) * sizeof(*tokens));
    for (int i = 0; i < s->n_pages; i++)
        f->pages[i] = (page_id){ (uint32_t)i % ARENA };
    tier_put_read(t, f);
    uint64_t start_ns = clock_ns();
    run_tier(t, mailbox);
    double seconds = (double)(clock_ns() - start_ns) * 1e-9;
    CHECK(f->n_ok == s->n_pages);
    tier_read_end(t, f);
    return seconds;
}

static int run_bench(const struct setup *s, struct err *e)
{
    struct tier_options o = { .dir = s->dir,
        .max_bytes = 1ull << 40,
        .kind = { "bench", 0, s->page_bytes },
        .max_tokens = s->n_pages * PAGE_TOKENS,
        .lm = &lm,
        .written_kind = WRITTEN,
        .read_kind = FETCHED,
        .aio = s->aio,
        .is_manual = true };
    int32_t *tokens = xcalloc((size_t)s->n_pages * PAGE_TOKENS, sizeof(*tokens));
    double restore_mb_s[ROUNDS_MAX], read_mb_s[ROUNDS_MAX], ratio[ROUNDS_MAX];
    uint64_t n_bytes = 0;
    struct mailbox *mailbox;
    struct tier *t;

    if (mailbox_open(&mailbox, e))
        return -1;
    o.reply = mailbox;
    if (tier_open(&t, &o, e))
        return -1;
    write_pages(s, t, mailbox, tokens);
    for (int i = 0; i < s->n_rounds; i++) {
        for_each_segment(s, drop_page_cache);
        double seconds = fetch_seconds(s, t, mailbox, tokens);
        for_each_segment(s, drop_page_cache);
        uint64_t start_ns = clock_ns();
        n_bytes = for_each_segment(s, read_file);
        read_mb_s[i] = (double)n_bytes * 1e3 / (double)(clock_ns() - start_ns);
        restore_mb_s[i] = (double)n_bytes * 1e-6 / seconds;
        ratio[i] = restore_mb_s[i] / read_mb_s[i];
    }
    printf(
        "%s: %d pages of %zu bytes, %.0f MB of files: loaded at %.0f MB/s, sequential read at %.0f "
        "MB/s, ratio %.2f (medians of %d rounds)\n",
        tier_aio(t), s->n_pages, s->page_bytes, (double)n_bytes * 1e-6,
        median(restore_mb_s, s->n_rounds), median(read_mb_s, s->n_rounds),
        median(ratio, s->n_rounds), s->n_rounds);
    tier_stop(t);
    tier_close(t);
    mailbox_close(mailbox);
    mem_free(tokens);
    return 0;
}

static void remove_dir(const struct setup *s)
{
    DIR *d = opendir(s->dir);

    for (struct dirent *f; d && (f = readdir(d));)
        if (*f->d_name != '.')
            unlinkat(dirfd(d), f->d_name, 0);
    if (d)
        closedir(d);
    rmdir(s->dir);
}

int main(int argc, char **argv)
{
    static const struct option flags[] = { { "pages", 1, NULL, 'p' },
        { "page-bytes", 1, NULL, 'b' }, { "rounds", 1, NULL, 'r' }, { "threads", 0, NULL, 't' },
        { 0 } };
    struct setup s = { .n_pages = 512, .n_rounds = 5, .page_bytes = 1 << 20 };
    struct err e;
    int c;

    while ((c = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        long n = optarg ? strtol(optarg, NULL, 10) : 0;
        if (c == '?' || n < 0 || n > 1 << 26)
            return 2;
        if (c == 't')
            s.aio = AIO_THREADS;
        else if (c == 'b')
            s.page_bytes = (size_t)n;
        else
            *(c == 'p' ? &s.n_pages : &s.n_rounds) = (int)n;
    }
    if (optind + 1 != argc || s.n_pages < 1 || s.n_rounds < 1 || s.n_rounds > ROUNDS_MAX ||
        s.page_bytes < 1) {
        fprintf(
            stderr, "usage: restore DIR [--pages N] [--page-bytes N] [--rounds N] [--threads]\n");
        return 2;
    }
    snprintf(s.dir, sizeof(s.dir), "%s/restore-%d", argv[optind], (int)getpid());
    lm.page_bytes = s.page_bytes;
    lm.arena = xcalloc(ARENA, s.page_bytes);
    int failed = run_bench(&s, &e);
    remove_dir(&s);
    mem_free(lm.arena);
    if (failed)
        fprintf(stderr, "restore: %s\n", e.msg);
    return failed ? 1 : 0;
}
