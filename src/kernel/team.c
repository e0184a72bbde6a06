/* team.c: threads, and the two ways they wait for each other.
 *
 * Everything rests on words that only move forward:
 *
 *   job      counts jobs. The owner writes fn and arg, then adds one (release); a worker that
 *            reads the new number (acquire) sees them.
 *   phase    counts barriers. Each member that arrives adds one to `arrived` (acq_rel, so the
 *            last one to arrive has seen everybody's writes); the last resets `arrived` and
 *            `next` and adds one to `phase` (release); who reads the new phase (acquire) sees
 *            all of it. Nobody can be two phases ahead: the next phase needs all arrivals.
 *
 * A job ends with a barrier, so fn and arg are not touched while anybody may read them.
 *
 * Waiting: look SPIN_HOT times, then PAUSE between looks for about SPIN_NS, then sleep on the
 * word (futex). A sleeper first counts itself in `sleepers`, then the futex compares the word; a
 * waker first changes the word, then reads `sleepers`. Those four are seq_cst: either the waker
 * sees the sleeper, or the sleeper sees the new word. */
#include "kernel/team.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MAX_MEMBERS = 1024,
    SPIN_HOT = 200,      /* without PAUSE, which a hypervisor may turn into microseconds */
    SPIN_NS = 50 * 1000, /* longer than a barrier of a decoding step, shorter than a sampler */
};

struct word { /* each on a line of its own: the others are spun on */
    ALIGNED(64) _Atomic uint32_t v;
    _Atomic uint32_t sleepers;
};

struct member {
    struct team *team;
    pthread_t thread;
    int index;
};

struct team {
    struct word job, phase;
    ALIGNED(64) _Atomic uint32_t arrived;
    ALIGNED(64) _Atomic int next;
    ALIGNED(64) team_fn fn; /* NULL: go home */
    void *arg;
    int n;
    bool may_spin;
    struct member *members; /* [n]; 0 is the caller */
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool spin(const struct word *w, uint32_t old)
{
    for (int i = 0; i < SPIN_HOT; i++)
        if (atomic_load_explicit(&w->v, memory_order_acquire) != old)
            return true;
    uint64_t until = clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&w->v, memory_order_acquire) != old)
                return true;
            cpu_relax();
        }
    } while (clock_ns() < until);
    return false;
}

static void word_wait(struct word *w, uint32_t old, bool may_spin)
{
    if (may_spin && spin(w, old))
        return;
    atomic_fetch_add(&w->sleepers, 1);
    while (atomic_load(&w->v) == old)
        syscall(SYS_futex, &w->v, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&w->sleepers, 1);
}

static void word_bump(struct word *w)
{
    atomic_fetch_add(&w->v, 1);
    if (atomic_load(&w->sleepers))
        syscall(SYS_futex, &w->v, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void team_barrier(struct team *t, int member)
{
    uint32_t phase = atomic_load_explicit(&t->phase.v, memory_order_relaxed);

    DCHECK(member >= 0 && member < t->n);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)t->n) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&t->next, 0, memory_order_relaxed);
        word_bump(&t->phase);
        return;
    }
    word_wait(&t->phase, phase, t->may_spin);
}

int team_next(struct team *t)
{
    return atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
}

static void *work(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    uint32_t job = 0;

    for (;;) {
        word_wait(&t->job, job++, t->may_spin);
        if (!t->fn)
            return NULL;
        t->fn(t->arg, m->index, t->n);
        team_barrier(t, m->index);
    }
}

void team_run(struct team *t, team_fn fn, void *arg)
{
    CHECK(!t->fn); /* not from inside a job */
    t->fn = fn;
    t->arg = arg;
    if (t->n > 1)
        word_bump(&t->job);
    fn(arg, 0, t->n);
    team_barrier(t, 0);
    t->fn = NULL;
}

static void go_home(struct team *t, int n_started)
{
    word_bump(&t->job);
    for (int i = 1; i < n_started; i++)
        pthread_join(t->members[i].thread, NULL);
    mem_free(t->members);
    mem_free(t);
}

int team_open(struct team **out, int n_threads, struct err *e)
{
    if (n_threads < 1 || n_threads > MAX_MEMBERS)
        return err_set(e, ERR_RANGE, "threads: %d is not 1 to %d", n_threads, MAX_MEMBERS);

    struct team *t = try_aligned(64, sizeof(*t));
    struct member *members = try_calloc((size_t)n_threads, sizeof(*members));
    if (!t || !members) {
        mem_free(t);
        mem_free(members);
        return err_set(e, ERR_MEMORY, "a team of %d threads", n_threads);
    }
    memset(t, 0, sizeof(*t));
    t->n = n_threads;
    t->may_spin = n_threads <= thread_count_online();
    t->members = members;
    for (int i = 1; i < n_threads; i++) {
        char name[16];
        snprintf(name, sizeof(name), "team-%d", i);
        members[i] = (struct member){ .team = t, .index = i };
        if (thread_start(&members[i].thread, name, work, &members[i], e)) {
            go_home(t, i);
            return -1;
        }
    }
    *out = t;
    return 0;
}

void team_close(struct team *t)
{
    if (t)
        go_home(t, t->n);
}

int team_size(const struct team *t)
{
    return t->n;
}
