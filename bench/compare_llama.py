"""The other engine of bench/compare.py: llama.cpp through llama-cpp-python, in a process of its own.

Loads a model and brings a context up to --ctx positions (from a file, if they were computed before),
then measures the same steps once for every line of its standard input: the median step in
milliseconds, as JSON. With --once: a prompt of eight tokens and the first token behind it, and how
long that took from the first line of this file on."""
import time

BEGAN = time.perf_counter()

import argparse
import ctypes
import json
import os
import resource
import statistics
import sys

import llama_cpp as lc

CHUNK = 512


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--threads", type=int)
    p.add_argument("--ctx", type=int, default=0)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--rows", type=int, default=1)
    p.add_argument("--steps", type=int, default=16)
    p.add_argument("--shared", action="store_true")
    p.add_argument("--once", action="store_true")
    return p.parse_args()


def tokens(n, at):
    return [(at * 31 + i * 7919 + 11) % 1000 for i in range(n)]


class Engine:
    def __init__(self, a):
        self.a = a
        lc.llama_backend_init()
        self.model = lc.llama_model_load_from_file(a.model.encode(), lc.llama_model_default_params())
        params = lc.llama_context_default_params()
        own = a.rows * a.steps
        params.n_ctx = max(CHUNK, (a.ctx + own) * (1 if a.shared else a.batch)
                           + (a.batch * own if a.shared else 0))
        params.n_batch = params.n_ubatch = CHUNK
        params.n_seq_max = a.batch
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = a.threads
        self.context = lc.llama_init_from_model(self.model, params)
        self.memory = lc.llama_get_memory(self.context)
        self.batch = lc.llama_batch_init(CHUNK, 0, 1)

    def feed(self, seqs, rows, pos):
        """rows tokens of each sequence from position pos on; logits of the last of each."""
        b = self.batch
        b.n_tokens = seqs * rows
        for s in range(seqs):
            for i, token in enumerate(tokens(rows, pos + s)):
                at = s * rows + i
                b.token[at], b.pos[at], b.n_seq_id[at] = token, pos + i, 1
                b.seq_id[at][0] = s
                b.logits[at] = i == rows - 1
        start = time.perf_counter()
        if lc.llama_decode(self.context, b):
            sys.exit("llama_decode failed")
        lc.llama_get_logits_ith(self.context, -1)  # waits for the last of it
        return (time.perf_counter() - start) * 1e3

    def fill(self):
        a = self.a
        if not a.ctx:
            return
        kept = f"{a.model}.{a.ctx}.state"
        count, room = ctypes.c_size_t(0), (lc.llama_token * 1)()
        if not os.path.exists(kept):
            for at in range(0, a.ctx, CHUNK):
                self.feed(1, min(CHUNK, a.ctx - at), at)
            lc.llama_state_seq_save_file(self.context, kept.encode(), 0, room, 0)
        elif not lc.llama_state_seq_load_file(self.context, kept.encode(), 0, room, 1,
                                              ctypes.byref(count)):
            sys.exit(f"{kept}: cannot be read")
        for s in range(1, a.batch):
            lc.llama_memory_seq_cp(self.memory, 0, s, -1, -1)

    def forget(self):
        for s in range(self.a.batch):
            lc.llama_memory_seq_rm(self.memory, s, self.a.ctx, -1)

    def measure(self):
        a = self.a
        self.forget()
        self.feed(a.batch, a.rows, a.ctx)  # warms up; the first that counts does the same again
        self.forget()
        times = [self.feed(a.batch, a.rows, a.ctx + i * a.rows) for i in range(a.steps)]
        return sorted(times)[a.steps // 2]


def main():
    a = arguments()
    quiet = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    engine = Engine(a)
    if a.once:
        engine.feed(1, 8, 0)
        ms = (time.perf_counter() - BEGAN) * 1e3
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"ms": ms, "peak": peak}))
        return
    engine.fill()
    engine.measure()
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        print(json.dumps(engine.measure()), flush=True)


if __name__ == "__main__":
    main()
