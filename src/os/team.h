/* team.h: compute threads that do arithmetic and know nothing else.
 *
 * The caller is member 0 and works too. Inside a job, members meet at barriers: one counter of
 * those who have arrived, and one word that the last of them changes and the others watch. Waiting
 * spins briefly and then sleeps (futex). It does not spin while the teams of the process that are
 * in a job have more members together than it may use processors (thread_count_online()), nor for a
 * while at barriers where that has been in vain.
 *
 * Owner: one thread (an engine) calls team_run; jobs run on all members at once. */
#pragma once

#include "base/err.h"

struct team;

int team_open(struct team **out, int n_threads, struct err *e); /* 1 = no threads */
void team_close(struct team *t);
int team_size(const struct team *t);

typedef void (*team_fn)(void *arg, int member, int n_members);
void team_run(struct team *t, team_fn fn, void *arg); /* returns when all have returned */

/* Inside a job only. All writes before it are seen by all after it. */
void team_barrier(struct team *t, int member);

/* Inside a job: hands out 0, 1, 2, ... once each, per phase; reset by team_barrier. For sharing
 * out pieces whose results do not depend on who computes them. */
int team_next(struct team *t);
