#!/usr/bin/env python3
"""Writes tests/golden/char_bpe.gguf, .inp and .out: a small vocabulary of the kind of Gemma 4 (BPE on
characters, U+2581 for a blank, byte tokens), texts, and the tokens that the packages `tokenizers` and
llama-cpp-python give. test_vocab_golden.c reads the files.

    tests/golden/char_bpe.py

The vocabulary is trained on the documents of this repository. A run of newlines that is not a token is
left out of the texts, since the two references differ there."""
import json
import os
import sys

import gguf
import llama_cpp as lc
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATH = os.path.join(ROOT, "tests/golden/char_bpe")
BYTES = [f"<0x{b:02X}>" for b in range(256)]
CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|tool_call>", "<tool_call|>"]
N_TOKENS = 1000
TEXTS = ["", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\n\n\n\n\n", "\t", " \n ", "a", " a", "a ", "  a  b   c ",
    "The server computes attention in pages.", "Hello world\nsecond line\n\n  indented", "x=1;\n\tif (x) {\n\t\ty();\n\t}",
    "cafe\u0301 na\u00efve \u00fcber", "\u4f60\u597d\uff0c\u4e16\u754c", "\U0001f600\U0001f601 mixed \U0001f469\u200d\U0001f4bb",
    "\u2581a\u2581", "a\u2581\u2581b c", "1234567890 3.14159", "''''''```````!!!!...", "don't we'll I'M",
    "a\u00a0b\u3000c", "\r\n\r\n", "tokenizer tokenizer  tokenizer", "<0x41>", "longword" * 30, " " * 40 + "x"]


def train():
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tok.normalizer = normalizers.Replace(" ", "\u2581")
    tok.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    docs = [open(os.path.join(ROOT, "docs", f), encoding="utf-8").read().split("\n")
        for f in sorted(os.listdir(os.path.join(ROOT, "docs"))) if f.endswith(".md")]
    words = [w for d in docs for line in d for w in (" " + " ".join(line.split())).replace(" ", "\n ").split("\n") if w]
    tok.train_from_iterator(words, trainers.BpeTrainer(vocab_size=N_TOKENS, special_tokens=CONTROL + BYTES,
        show_progress=False, initial_alphabet=["\n", "\t"]))
    return tok


def complete(tok):
    """The model with tokens for runs of newlines and blanks; merges make them, as in real files."""
    model = json.loads(tok.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(m) for m in model["merges"]]
    for one in ("\n", "\u2581"):
        for n in range(2, 6):
            if one * n not in vocab:
                vocab[one * n] = len(vocab)
            for left in range(n - 1, 0, -1):
                if (one * left, one * (n - left)) not in merges:
                    merges.append((one * left, one * (n - left)))
    out = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    out.normalizer = normalizers.Replace(" ", "\u2581")
    out.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return out, vocab, merges


def write_gguf(vocab, merges):
    tokens = sorted(vocab, key=vocab.get)
    kind = gguf.TokenType
    types = [kind.UNKNOWN if t == "<unk>" else kind.CONTROL if t in CONTROL else kind.BYTE if t in BYTES else kind.NORMAL
        for t in tokens]
    w = gguf.GGUFWriter(PATH + ".gguf", "gemma4")
    w.add_tokenizer_model("gemma4")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([f"{a} {b}" for a, b in merges])
    w.add_bos_token_id(vocab["<bos>"])
    w.add_eos_token_id(vocab["<eos>"])
    w.add_unk_token_id(vocab["<unk>"])
    w.add_add_bos_token(True)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def llama_tokens():
    lc.llama_backend_init()
    p = lc.llama_model_default_params()
    p.vocab_only = True
    model = lc.llama_model_load_from_file((PATH + ".gguf").encode(), p)
    vocab = lc.llama_model_get_vocab(model)
    out = []
    for text in TEXTS:
        raw = text.encode()
        ids = (lc.llama_token * (len(raw) + 8))()
        n = lc.llama_tokenize(vocab, raw, len(raw), ids, len(ids), False, False)
        out.append(list(ids[:n]))
    return out


def main():
    tok, vocab, merges = complete(train())
    write_gguf(vocab, merges)
    want = [tok.encode(text, add_special_tokens=False).ids for text in TEXTS]
    failed = 0
    for text, a, b in zip(TEXTS, want, llama_tokens()):
        if a != b:
            failed += 1
            print(f"{text!r}: tokenizers {a}, llama.cpp {b}")
    with open(PATH + ".inp", "w", encoding="utf-8", newline="") as f:
        f.write("\n__ggml_vocab_test__\n".join(TEXTS) + "\n__ggml_vocab_test__\n")
    with open(PATH + ".out", "w", encoding="utf-8") as f:
        f.write("".join(" " + " ".join(map(str, ids)) + "\n" for ids in want))
    print(f"{len(TEXTS) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
