/* ctl_replay.h: what replaying a trace in the simulator and against a server share. */
#pragma once

#include "cmd/ctl.h"
#include "testing/replay.h"

struct live_setup {
    double deadline_s; /* of each request, which the server is told; 0 = none */
    const char *keys;  /* "K1,K2": of tenants 1, 2; 0 has the one key that ctl knows */
    int max_open;      /* requests at once; those beyond wait here, and count from when they came */
};

struct live_result {
    struct replay_result all;
    struct replay_times refused; /* how soon they were told */
};

/* What the server says of itself: for a simulation that is like it. */
struct live_server {
    int n_ctx, n_slots;
    struct timed_law law;
};

uint64_t live_n_keys(const char *keys);

/* Sends the requests to the server when their time has come, whatever has become of those before.
 * ERR_IO: it cannot be asked at all. */
int live_run(struct live_result *out, struct ctl *c, const struct replay_row *rows, int n,
    const struct live_setup *s, struct err *e);

/* What it has not said stays as it is in *out. */
void live_ask(struct live_server *out, struct ctl *c);
