/* restore: how fast pages come back from disk, beside what the disk gives when its files are read
 * from end to end.
 *
 *     restore DIR [--pages N] [--page-bytes N] [--rounds N] [--threads]
 *
 * Pages are those of one long prompt, checked and copied to where the model has them. Before each
 * reading the system is told to forget the files. */
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

static uint8_t *arena;
static size_t arena_page;

static void write_page(struct lm *m, page_id page, const void *in)
{
    memcpy(arena + page.i % ARENA * arena_page, in, arena_page);
}

static const struct lm_ops ops = { .write_page = write_page };
static struct lm lm = { .ops = &ops };

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

/* Calls fn for each segment; returns the sum of what it says. */
static uint64_t each_file(const struct setup *s, uint64_t (*fn)(int fd))
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

static uint64_t forget(int fd)
{
    fsync(fd);
    return (uint64_t)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static uint64_t read_through(int fd)
{
    static uint8_t chunk[CHUNK];
    uint64_t n_all = 0;

    for (ssize_t n; (n = read(fd, chunk, sizeof(chunk))) > 0;)
        n_all += (uint64_t)n;
    return n_all;
}

static void run(struct tier *t, struct mailbox *home)
{
    tier_send(t);
    tier_work(t);
    for (struct msg *m = mailbox_drain(home), *next; m; m = next) {
        next = m->next;
        if (m->kind == WRITTEN)
            tier_written(t, m);
    }
}

static void put_pages(
    const struct setup *s, struct tier *t, struct mailbox *home, const int32_t *tokens)
{
    const struct record_kind kind = { "bench", 0, s->page_bytes };
    uint64_t name = tree_scope_name(&(struct cache_scope){ 0 });

    for (int i = 0; i < s->n_pages; i++) {
        struct tier_write *w = tier_write_begin(t);
        struct record r = { .tokens = tokens, .n_tokens = (i + 1) * PAGE_TOKENS, .first_page = i };
        CHECK(w);
        name = tree_name_after(name, tokens + i * PAGE_TOKENS, PAGE_TOKENS);
        record_begin(w->bytes, &kind, &r);
        memset(r.pages, i, s->page_bytes);
        w->n_bytes = record_bytes(&kind, r.n_tokens, i);
        w->name = name;
        tier_put_write(t, w);
        run(t, home);
    }
}

static double fetch_seconds(
    const struct setup *s, struct tier *t, struct mailbox *home, const int32_t *tokens)
{
    struct tier_fetch *f = tier_fetch_begin(t);
    uint64_t name = tree_scope_name(&(struct cache_scope){ 0 });

    f->scope = (struct cache_scope){ 0 };
    f->first_page = 0;
    f->n_pages = tier_chain(t, name, tokens, s->n_pages, f->at);
    CHECK(f->n_pages == s->n_pages);
    memcpy(f->tokens, tokens, (size_t)(s->n_pages * PAGE_TOKENS) * sizeof(*tokens));
    for (int i = 0; i < s->n_pages; i++)
        f->pages[i] = (page_id){ (uint32_t)i };
    tier_put_fetch(t, f);
    uint64_t began = clock_ns();
    run(t, home);
    double took = (double)(clock_ns() - began) * 1e-9;
    CHECK(f->n_ok == s->n_pages);
    tier_fetch_end(t, f);
    return took;
}

static int bench(const struct setup *s, struct err *e)
{
    struct tier_options o = { .dir = s->dir,
        .max_bytes = 1ull << 40,
        .kind = { "bench", 0, s->page_bytes },
        .max_tokens = s->n_pages * PAGE_TOKENS,
        .lm = &lm,
        .written_kind = WRITTEN,
        .fetched_kind = FETCHED,
        .aio = s->aio,
        .is_manual = true };
    int32_t *tokens = xcalloc((size_t)s->n_pages * PAGE_TOKENS, sizeof(*tokens));
    double ours[ROUNDS_MAX], disk[ROUNDS_MAX], ratio[ROUNDS_MAX];
    uint64_t n_bytes = 0;
    struct mailbox *home;
    struct tier *t;

    if (mailbox_open(&home, e))
        return -1;
    o.home = home;
    if (tier_open(&t, &o, e))
        return -1;
    put_pages(s, t, home, tokens);
    for (int i = 0; i < s->n_rounds; i++) {
        each_file(s, forget);
        double took = fetch_seconds(s, t, home, tokens);
        each_file(s, forget);
        uint64_t began = clock_ns();
        n_bytes = each_file(s, read_through);
        disk[i] = (double)n_bytes * 1e3 / (double)(clock_ns() - began);
        ours[i] = (double)n_bytes * 1e-6 / took;
        ratio[i] = ours[i] / disk[i];
    }
    printf(
        "%s: %d pages of %zu bytes, %.0f MB of files: restored at %.0f MB/s, read through at %.0f "
        "MB/s, ratio %.2f (medians of %d rounds)\n",
        tier_aio(t), s->n_pages, s->page_bytes, (double)n_bytes * 1e-6, median(ours, s->n_rounds),
        median(disk, s->n_rounds), median(ratio, s->n_rounds), s->n_rounds);
    tier_stop(t);
    tier_close(t);
    mailbox_close(home);
    mem_free(tokens);
    return 0;
}

static void clean_up(const struct setup *s)
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
    arena_page = s.page_bytes;
    arena = xcalloc(ARENA, arena_page);
    int failed = bench(&s, &e);
    clean_up(&s);
    mem_free(arena);
    if (failed)
        fprintf(stderr, "restore: %s\n", e.msg);
    return failed ? 1 : 0;
}
