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
 * sees the sleeper, or the sleeper sees the new word.
 *
 * Who may spin: n_running counts the members of all teams of the process that are in a job. It
 * grows behind the start of a job and shrinks before its last barrier opens, so that whoever is
 * between jobs finds it without its own team. Another process that takes a processor is seen by
 * what it does: spins that run out, one after the other (struct patience). */
#include "os/team.h"
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
    RAN_OUT = 4,         /* spins at barriers, one after the other: it is not worth it */
    PASSED_BY = 64,      /* ... for so many barriers: a pass of a small model */
};

struct word { /* each on a line of its own: the others are spun on */
    ALIGNED(64) _Atomic uint32_t v;
    _Atomic uint32_t sleepers;
};

struct patience {
    int n_ran_out, n_to_pass; /* spins one after the other; barriers to sleep at */
};

struct member {
    struct team *team;
    pthread_t thread;
    int index;
    struct patience patience;
};

struct team {
    struct word job, phase;
    ALIGNED(64) _Atomic uint32_t arrived;
    ALIGNED(64) _Atomic int next;
    ALIGNED(64) team_fn fn; /* NULL: go home */
    void *arg;
    int n;
    int n_cpus;             /* that the process may use */
    struct member *members; /* [n]; 0 is the caller */
};

static struct {
    ALIGNED(64) _Atomic int n;
} running; /* written twice in a job, read by all who spin */

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* With the members that run, and `others` who are about to, has everybody a processor? */
static bool may_spin(const struct team *t, int others)
{
    return atomic_load_explicit(&running.n, memory_order_relaxed) + others <= t->n_cpus;
}

enum looked { NEW_WORD, CROWDED, LONG_WAIT };

static enum looked spin(const struct team *t, const struct word *w, uint32_t old, int others)
{
    if (!may_spin(t, others))
        return CROWDED;
    for (int i = 0; i < SPIN_HOT; i++)
        if (atomic_load_explicit(&w->v, memory_order_acquire) != old)
            return NEW_WORD;
    uint64_t until = clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&w->v, memory_order_acquire) != old)
                return NEW_WORD;
            cpu_relax();
        }
        if (!may_spin(t, others))
            return CROWDED;
    } while (clock_ns() < until);
    return LONG_WAIT;
}

static void word_sleep(struct word *w, uint32_t old)
{
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

static void wait_for_job(struct team *t, uint32_t job)
{
    if (spin(t, &t->job, job, t->n) != NEW_WORD)
        word_sleep(&t->job, job);
}

static void wait_for_phase(struct team *t, uint32_t phase, struct patience *p)
{
    if (p->n_to_pass > 0) {
        p->n_to_pass--;
        word_sleep(&t->phase, phase);
        return;
    }
    enum looked how = spin(t, &t->phase, phase, 0);
    p->n_ran_out = how == LONG_WAIT ? p->n_ran_out + 1 : 0;
    if (p->n_ran_out == RAN_OUT) {
        p->n_ran_out--; /* then once more is enough */
        p->n_to_pass = PASSED_BY;
    }
    if (how != NEW_WORD)
        word_sleep(&t->phase, phase);
}

static void meet(struct team *t, int member, int n_leave)
{
    uint32_t phase = atomic_load_explicit(&t->phase.v, memory_order_relaxed);

    DCHECK(member >= 0 && member < t->n);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 == (uint32_t)t->n) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&t->next, 0, memory_order_relaxed);
        if (n_leave)
            atomic_fetch_sub_explicit(&running.n, n_leave, memory_order_relaxed);
        word_bump(&t->phase);
        return;
    }
    wait_for_phase(t, phase, &t->members[member].patience);
}

void team_barrier(struct team *t, int member)
{
    meet(t, member, 0);
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
        wait_for_job(t, job++);
        if (!t->fn)
            return NULL;
        t->fn(t->arg, m->index, t->n);
        meet(t, m->index, t->n);
    }
}

void team_run(struct team *t, team_fn fn, void *arg)
{
    CHECK(!t->fn); /* not from inside a job */
    t->fn = fn;
    t->arg = arg;
    if (t->n > 1)
        word_bump(&t->job);
    atomic_fetch_add_explicit(&running.n, t->n, memory_order_relaxed);
    fn(arg, 0, t->n);
    meet(t, 0, t->n);
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
    t->n_cpus = thread_count_online();
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
