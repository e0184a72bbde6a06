"""llama.cpp side of bench/compare.py: runs llama.cpp through llama-cpp-python in its own process.

Loads a model and fills the KV cache with --ctx positions (loaded from a state file if an earlier run
wrote one). Then it runs the same steps once for every line of stdin, which is the seed of the tokens,
and prints JSON: the median step time in milliseconds and the number of tokens that were not computed.
--once: computes a prompt of eight tokens and prints the time to the first token, from the start of
this script, and the peak memory."""
import time

BEGAN = time.perf_counter()

import argparse
import ctypes
import json
import os
import resource
import statistics
import sys

if "--ik" in sys.argv:
    import compare_ik as lc
else:
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
    p.add_argument("--ik", action="store_true", help="the library is ik_llama.cpp (compare_ik.py)")
    p.add_argument("--state-suffix", default="state", help="of the files with the filled KV cache")
    return p.parse_args()


def token(seed, seq, pos, n_vocab):
    """The same function as bench_token in src/testing/bench.h."""
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
        n_new = a.rows * a.steps
        params.n_ctx = max(CHUNK, (a.ctx + n_new) * (1 if a.shared else a.batch)
                           + (a.batch * n_new if a.shared else 0))
        params.n_batch = params.n_ubatch = CHUNK
        params.n_seq_max = a.batch
        if getattr(lc, "HAS_UNIFIED_KV", True):
            params.kv_unified = True
        params.n_threads = params.n_threads_batch = a.threads
        self.context = lc.llama_init_from_model(self.model, params)
        self.memory = lc.llama_get_memory(self.context)
        self.n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))
        self.batch = lc.llama_batch_init(CHUNK, 0, 1)

    def n_computed(self):
        """Number of tokens computed so far, from the counters of llama.cpp."""
        perf = lc.llama_perf_context(self.context)
        return perf.n_p_eval + perf.n_eval

    def run_step(self, seed, seqs, rows, pos):
        """Runs one step with `rows` tokens per sequence from position pos, and logits for the last token
        of each sequence. Returns milliseconds."""
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
        lc.llama_get_logits_ith(self.context, -1)  # waits for the end of the computation
        return (time.perf_counter() - start) * 1e3

    def fill_context(self):
        a = self.a
        if not a.ctx:
            return
        state_path = f"{a.model}.{a.ctx}.{a.state_suffix}"
        count, token_buffer = ctypes.c_size_t(0), (lc.llama_token * 1)()
        if not os.path.exists(state_path):
            for at in range(0, a.ctx, CHUNK):
                self.run_step(0, 1, min(CHUNK, a.ctx - at), at)
            lc.llama_state_seq_save_file(self.context, state_path.encode(), 0, token_buffer, 0)
        elif not lc.llama_state_seq_load_file(self.context, state_path.encode(), 0, token_buffer, 1,
                                              ctypes.byref(count)):
            sys.exit(f"{state_path}: cannot be read")
        for s in range(1, a.batch):
            lc.llama_memory_seq_cp(self.memory, 0, s, -1, -1)

    def clear_steps(self):
        for s in range(self.a.batch):
            lc.llama_memory_seq_rm(self.memory, s, self.a.ctx, -1)

    def measure(self, seed):
        a = self.a
        self.clear_steps()
        self.run_step(~seed, a.batch, a.rows, a.ctx)  # warm-up with other tokens
        self.clear_steps()
        before = self.n_computed()
        times = [self.run_step(seed, a.batch, a.rows, a.ctx + i * a.rows) for i in range(a.steps)]
        cached = a.batch * a.rows * a.steps - (self.n_computed() - before)
        return {"ms": sorted(times)[a.steps // 2], "cached": cached}


def main():
    a = arguments()
    if a.rows * a.batch > CHUNK:
        sys.exit(f"more than {CHUNK} rows in a step")
    quiet = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    engine = Engine(a)
    if a.once:
        engine.run_step(1, 1, 8, 0)
        ms = (time.perf_counter() - BEGAN) * 1e3
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"ms": ms, "peak": peak}))
        return
    engine.fill_context()
    engine.measure(1)
    print(json.dumps(lc.llama_print_system_info().decode()), flush=True)
    for line in sys.stdin:
        print(json.dumps(engine.measure(int(line))), flush=True)


if __name__ == "__main__":
    main()
