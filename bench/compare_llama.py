"""The other engine of bench/compare.py: llama.cpp through llama-cpp-python, in a process of its own.

Loads a model and brings a context up to --ctx positions (from a file, if they were computed before),
then measures the same steps once for every line of its standard input, which is the seed of the
tokens: the median step in milliseconds and how many tokens were not computed, as JSON. With --once: a prompt of eight tokens and the first token behind it, and how
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


def token(seed, seq, pos, n_vocab):
    """As bench_token of src/testing/bench.h."""
    whole = (1 << 64) - 1
    z = (seed + 0x9e3779b97f4a7c15 * (seq << 32 | pos)) & whole
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & whole
    z = (z ^ z >> 27) * 0x94d049bb133111eb & whole
    return (z ^ z >> 31) % n_vocab


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
        self.n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))
        self.batch = lc.llama_batch_init(CHUNK, 0, 1)

    def computed(self):
        """Tokens so far, as the engine counts them."""
        perf = lc.llama_perf_context(self.context)
        return perf.n_p_eval + perf.n_eval

    def feed(self, seed, seqs, rows, pos):
        """rows tokens of each sequence from position pos on; logits of the last of each."""
        b = self.batch
        b.n_tokens = seqs * rows
        for s in range(seqs):
            for i in range(rows):
                at = s * rows + i
                b.token[at] = token(seed, s, pos + i, self.n_vocab)
                b.pos[at], b.n_seq_id[at] = pos + i, 1
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
                self.feed(0, 1, min(CHUNK, a.ctx - at), at)
            lc.llama_state_seq_save_file(self.context, kept.encode(), 0, room, 0)
        elif not lc.llama_state_seq_load_file(self.context, kept.encode(), 0, room, 1,
                                              ctypes.byref(count)):
            sys.exit(f"{kept}: cannot be read")
        for s in range(1, a.batch):
            lc.llama_memory_seq_cp(self.memory, 0, s, -1, -1)

    def forget(self):
        for s in range(self.a.batch):
            lc.llama_memory_seq_rm(self.memory, s, self.a.ctx, -1)

    def measure(self, seed):
        a = self.a
        self.forget()
        self.feed(~seed, a.batch, a.rows, a.ctx)  # warms up; the first that counts has other tokens there
        self.forget()
        before = self.computed()
        times = [self.feed(seed, a.batch, a.rows, a.ctx + i * a.rows) for i in range(a.steps)]
        cached = a.batch * a.rows * a.steps - (self.computed() - before)
        return {"ms": sorted(times)[a.steps // 2], "cached": cached}


def main():
    a = arguments()
    if a.rows * a.batch > CHUNK:
        sys.exit(f"more than {CHUNK} rows in a step")
    quiet = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    engine = Engine(a)
    if a.once:
        engine.feed(1, 1, 8, 0)
        ms = (time.perf_counter() - BEGAN) * 1e3
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"ms": ms, "peak": peak}))
        return
    engine.fill()
    engine.measure(1)
    print(json.dumps(lc.llama_print_system_info().decode()), flush=True)
    for line in sys.stdin:
        print(json.dumps(engine.measure(int(line))), flush=True)


if __name__ == "__main__":
    main()
