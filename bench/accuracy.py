#!/usr/bin/env python3
"""Compares logits with an fp64 reference and with llama.cpp, on the same file and positions.

    bench/accuracy.py FILE.gguf (--demo | --ids IDS.json) [--types F32,Q8_0,...] [--positions 2000]

The matrices of the file are converted to each of the types. Three programs process the same text, in
windows of --window tokens: InferFlux, llama.cpp (the package llama-cpp-python, see bench/compare.py),
and a reference in double precision on the dequantised weights of the file, without rounding of
activations or KV. For each pair the table contains the share of positions with the same top-1 token,
the Kullback-Leibler divergence of the distributions (nats; mean and maximum over the positions), and
the largest difference of the log-probability of a top-1 token.

--demo: dialogues of tools/demo that are not in the training data of the demo model. --ids: a JSON list
of token ids, or the recorded responses of tests/golden/test_stories.c. Requires numpy and
build/bench/accuracy."""
import argparse
import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build/bench/accuracy")


# ---- GGUF reader, for files with F32 tensors only

class Reader:
    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.at = 4
        assert self.data[:4] == b"GGUF"
        _, n_tensors, n_kv = self.take("IQQ")
        self.kv = {}
        for _ in range(n_kv):
            key = self.text()
            self.kv[key] = self.value(self.take("I")[0])
        shapes = []
        for _ in range(n_tensors):
            name, (n_dims,) = self.text(), self.take("I")
            dims = self.take("Q" * n_dims)
            kind, offset = self.take("IQ")
            assert kind == 0, f"{name} is not F32"
            shapes.append((name, dims, offset))
        base = (self.at + 31) // 32 * 32
        self.tensors = {name: np.frombuffer(self.data, np.float32, int(np.prod(dims)), base + offset)
                        .reshape(dims[::-1]).astype(np.float64) for name, dims, offset in shapes}

    def take(self, format):
        values = struct.unpack_from("<" + format, self.data, self.at)
        self.at += struct.calcsize("<" + format)
        return values

    def text(self):
        n, = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, n = self.take("IQ")
            return [self.value(kind) for _ in range(n)]
        return self.take(self.SCALARS[kind])[0]


class ReferenceModel:
    """Forward pass of the Llama and Qwen3 architectures in double precision."""

    def __init__(self, path):
        r = Reader(path)
        self.t, arch = r.tensors, r.kv["general.architecture"]
        assert arch in ("llama", "qwen3")
        get = lambda key, default=None: r.kv.get(f"{arch}.{key}", default)
        self.layers, self.heads = get("block_count"), get("attention.head_count")
        self.kv_heads = get("attention.head_count_kv", self.heads)
        self.dim = get("attention.key_length", get("embedding_length") // self.heads)
        self.eps, self.base = get("attention.layer_norm_rms_epsilon"), get("rope.freq_base", 10000.0)
        self.is_neox = arch == "qwen3"

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.t[name]

    def rope(self, x):
        """Applies RoPE to x[rows][heads][dim]."""
        half = self.dim // 2
        angle = np.arange(len(x))[:, None] * self.base ** (-np.arange(half) / half)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        out = np.empty_like(x)
        a, b = (slice(0, half), slice(half, None)) if self.is_neox else (slice(0, None, 2), slice(1, None, 2))
        out[..., a] = x[..., a] * c - x[..., b] * s
        out[..., b] = x[..., a] * s + x[..., b] * c
        return out

    def attention(self, x, p):
        n = len(x)
        q = (x @ self.t[p + "attn_q.weight"].T).reshape(n, self.heads, self.dim)
        k = (x @ self.t[p + "attn_k.weight"].T).reshape(n, self.kv_heads, self.dim)
        v = (x @ self.t[p + "attn_v.weight"].T).reshape(n, self.kv_heads, self.dim)
        if p + "attn_q_norm.weight" in self.t:
            q, k = self.norm(q, p + "attn_q_norm.weight"), self.norm(k, p + "attn_k_norm.weight")
        q, k = self.rope(q), self.rope(k)
        out = np.empty_like(q)
        causal_mask = np.triu(np.full((n, n), -np.inf), 1)
        for h in range(self.heads):
            g = h * self.kv_heads // self.heads
            s = q[:, h] @ k[:, g].T / np.sqrt(self.dim) + causal_mask
            w = np.exp(s - s.max(-1, keepdims=True))
            out[:, h] = w / w.sum(-1, keepdims=True) @ v[:, g]
        return out.reshape(n, -1) @ self.t[p + "attn_output.weight"].T

    def logits(self, ids):
        x = self.t["token_embd.weight"][ids]
        for i in range(self.layers):
            p = f"blk.{i}."
            x = x + self.attention(self.norm(x, p + "attn_norm.weight"), p)
            a = self.norm(x, p + "ffn_norm.weight")
            gate, up = a @ self.t[p + "ffn_gate.weight"].T, a @ self.t[p + "ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.t[p + "ffn_down.weight"].T
        head = self.t.get("output.weight", self.t["token_embd.weight"])
        return self.norm(x, "output_norm.weight") @ head.T


def exact_logits(path, windows, work):
    f32_path = os.path.join(work, "whole.gguf")
    subprocess.run([PROGRAM, "retype", path, "F32", f32_path], check=True)
    network = ReferenceModel(f32_path)
    return np.concatenate([network.logits(p) for p in windows])


# ---- the engines

def inferflux_logits(path, windows, work, kv):
    ids, out = os.path.join(work, "ids"), os.path.join(work, "logits")
    np.concatenate(windows).astype(np.int32).tofile(ids)
    subprocess.run([PROGRAM, "logits", path, ids, out, str(len(windows[0])), kv], check=True)
    return np.fromfile(out, np.float32).reshape(sum(map(len, windows)), -1).astype(np.float64)


class LlamaCpp:
    """is_exact: keys and values in F32, and attention without the fused form, which adds in f16."""

    def __init__(self, path, window, is_exact=False):
        import llama_cpp as lc

        self.lc = lc
        lc.llama_backend_init()
        self.model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
        params = lc.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = window
        params.n_threads = params.n_threads_batch = 2
        if is_exact:
            params.type_k = params.type_v = params.flash_attn_type = 0
        self.context = lc.llama_init_from_model(self.model, params)
        self.vocab = lc.llama_model_get_vocab(self.model)
        self.n_vocab = lc.llama_vocab_n_tokens(self.vocab)

    def tokens(self, text):
        data = text.encode()
        buffer = (self.lc.llama_token * (len(data) + 8))()
        n = self.lc.llama_tokenize(self.vocab, data, len(data), buffer, len(buffer), False, True)
        return list(buffer[:n])

    def decode(self, window):
        """Logits of each position, in memory of llama.cpp until the next call."""
        lc = self.lc
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)
        b = lc.llama_batch_init(len(window), 0, 1)
        b.n_tokens = len(window)
        for i, token in enumerate(window):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = int(token), i, 1, True
            b.seq_id[i][0] = 0
        if lc.llama_decode(self.context, b):
            sys.exit("llama_decode failed")
        rows = [np.ctypeslib.as_array(lc.llama_get_logits_ith(self.context, i), (self.n_vocab,))
            for i in range(len(window))]
        lc.llama_batch_free(b)
        return rows

    def logits(self, windows):
        return np.array([row.astype(np.float64) for window in windows for row in self.decode(window)])


# ---- input text

def demo_ids(tokenise, count):
    sys.path.insert(0, os.path.join(ROOT, "tools/demo"))
    import measure

    out = []
    for d in measure.plain_dialogues(4711, 10000):
        for t in d["turns"]:
            out += tokenise(f"<|im_start|>user\n{t.user}<|im_end|>\n<|im_start|>assistant\n{t.answer}<|im_end|>\n")
        if len(out) >= count:
            return out[:count]
    return out


def recorded_ids(path, count):
    with open(path, encoding="utf-8") as f:
        recorded = json.load(f)
    if isinstance(recorded, dict):
        recorded = [i for answers in recorded.values() for e in answers for i in
                e["prompt_tokens"] + [s["id"] for s in e["steps"]]]
    return recorded[:count]


# ---- output table

def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def compare(p, q):
    """Compares logits q with the reference p: same top-1 (%), KL mean, KL maximum, largest difference of
    the top-1 log-probability."""
    p, q = log_softmax(p), log_softmax(q)
    first = p.argmax(-1)
    kl = (np.exp(p) * (p - q)).sum(-1)
    at = np.arange(len(p))
    return (first == q.argmax(-1)).mean() * 100, kl.mean(), kl.max(), np.abs(p - q)[at, first].max()


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("model")
    p.add_argument("--demo", action="store_true")
    p.add_argument("--ids")
    p.add_argument("--types", default="F32,F16,BF16,Q8_0,Q6_K,Q5_K,Q4_K,Q4_0,Q5_1,Q5_0,Q4_1,IQ4_NL,IQ4_XS,MXFP4")
    p.add_argument("--positions", type=int, default=2000)
    p.add_argument("--window", type=int, default=250)
    a = p.parse_args()
    if not a.demo and not a.ids:
        p.error("--demo or --ids is required")
    return a


def main():
    import llama_cpp as lc

    a = arguments()
    quiet = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    print("| type | KV type | compared | positions | same top-1, % | KL, mean | KL, max | log p, max |")
    print("|---|---|---|---|---|---|---|---|")
    windows = None
    with tempfile.TemporaryDirectory() as work:
        for kind in a.types.split(","):
            path = os.path.join(work, f"{kind}.gguf")
            subprocess.run([PROGRAM, "retype", a.model, kind, path], check=True)
            llama_engine = LlamaCpp(path, a.window)
            if windows is None:
                ids = demo_ids(llama_engine.tokens, a.positions) if a.demo else recorded_ids(a.ids, a.positions)
                windows = [np.array(ids[i:i + a.window]) for i in range(0, len(ids), a.window)]
            reference, llama_cpp = exact_logits(path, windows, work), llama_engine.logits(windows)
            inferflux = {kv: inferflux_logits(path, windows, work, kv) for kv in ("f16", "q8_0")}
            rows = [("f16", "InferFlux, fp64 reference", compare(reference, inferflux["f16"])),
                    ("q8_0", "InferFlux, fp64 reference", compare(reference, inferflux["q8_0"])),
                    ("f16", "llama.cpp, fp64 reference", compare(reference, llama_cpp)),
                    ("f16", "InferFlux, llama.cpp", compare(llama_cpp, inferflux["f16"]))]
            for kv, what, (same, mean, worst, logp) in rows:
                print(f"| {kind} | {kv} | {what} | {len(reference):,} | {same:.2f} | {mean:.1e} | {worst:.1e} | "
                      f"{logp:.1e} |", flush=True)


if __name__ == "__main__":
    main()
