/* ctl_replay.h: replay of a trace against a server, used by ctl_replay.c, which also replays it in
 * the simulator. One thread. */
#pragma once

#include "cmd/ctl.h"
#include "testing/replay.h"

struct live_setup {
    double deadline_s; /* per request, sent to the server; 0 = none */
    const char *keys;  /* "K1,K2": keys of tenants 1, 2; tenant 0 uses the global key */
    /* Concurrent requests. Further ones wait here; their times count from their scheduled
     * arrival. */
    int max_open;
};

struct live_result {
    struct replay_result all;
    struct replay_quantiles refused; /* time to the 503 response */
};

/* Parameters of the server, for a simulation with the same ones. */
struct live_server {
    int n_ctx, n_slots;
    struct timed_cost cost;
};

uint64_t live_n_keys(const char *keys);

/* Sends each request at its arrival time, independent of the others. ERR_IO: the server does not
 * accept requests. */
int live_run(struct live_result *out, struct ctl *c, const struct replay_request *rows, int n,
    const struct live_setup *s, struct err *e);

/* Reads the parameters from /props and /metrics. Values that the server does not report remain
 * unchanged in *out. */
void live_server_read(struct live_server *out, struct ctl *c);
