#!/usr/bin/env python3
"""Converts a checkpoint of the demo model to GGUF: averaged weights, matrices as Q8_0, norms as F32.

Equal checkpoints give equal bytes. --check loads the file and compares its responses with those of
the checkpoint.
"""

import argparse
import os
import sys

import numpy as np
import torch

import gguf
import measure
from model import Config, Model
from tokenizer import CONTROL, Tokenizer

with open(os.path.join(os.path.dirname(__file__), "template.jinja"), encoding="utf-8") as f:
    TEMPLATE = f.read()

NORMAL, IN_CONTROL, MARK = 1, 3, 4  # token types
MOSTLY_Q8_0 = 7


def pairs_of(config, tokenizer):
    c, t = config, tokenizer
    u32 = [
        ("block_count", c.n_layer),
        ("context_length", c.n_ctx),
        ("embedding_length", c.n_embd),
        ("feed_forward_length", c.n_ff),
        ("attention.head_count", c.n_head),
        ("attention.head_count_kv", c.n_head_kv),
        ("attention.key_length", c.head_dim),
        ("attention.value_length", c.head_dim),
        ("vocab_size", c.n_vocab),
    ]
    ids = [("bos", t.end_of_text), ("eos", t.end), ("eot", t.end), ("padding", t.end_of_text)]
    types = [NORMAL] * t.n_plain + [MARK] * len(t.marks) + [IN_CONTROL] * len(CONTROL)
    return [
        ("general.architecture", gguf.STRING, "qwen3"),
        ("general.type", gguf.STRING, "model"),
        ("general.name", gguf.STRING, "InferFlux demo"),
        ("general.license", gguf.STRING, "apache-2.0"),
        ("general.file_type", gguf.U32, MOSTLY_Q8_0),
        ("general.quantization_version", gguf.U32, 2),
        *(("qwen3." + key, gguf.U32, value) for key, value in u32),
        ("qwen3.rope.freq_base", gguf.FLOAT, c.rope_base),
        ("qwen3.attention.layer_norm_rms_epsilon", gguf.FLOAT, c.norm_eps),
        ("tokenizer.ggml.model", gguf.STRING, "gpt2"),
        ("tokenizer.ggml.pre", gguf.STRING, "qwen2"),
        ("tokenizer.ggml.tokens", gguf.ARRAY, (gguf.STRING, t.tokens)),
        ("tokenizer.ggml.token_type", gguf.ARRAY, (gguf.I32, types)),
        ("tokenizer.ggml.merges", gguf.ARRAY, (gguf.STRING, [" ".join(m) for m in t.merges])),
        *((f"tokenizer.ggml.{name}_token_id", gguf.U32, value) for name, value in ids),
        ("tokenizer.ggml.add_bos_token", gguf.BOOL, False),
        ("tokenizer.chat_template", gguf.STRING, TEMPLATE),
    ]


def tensors_of(model):
    """[(name, array, type)]. Tensor names are the parameter names plus ".weight"."""
    return [
        (name + ".weight", p.detach().float().numpy(), gguf.F32 if p.dim() == 1 else gguf.Q8_0)
        for name, p in model.named_parameters()
    ]


def model_of_checkpoint(path):
    state = torch.load(path, weights_only=True)
    model = Model(Config(**state["config"]))
    model.load_state_dict(state["average"])
    return model, Tokenizer(state["merges"], state["marks"])


def model_of_gguf(path):
    pairs, tensors = gguf.read(path)
    q = {key.removeprefix("qwen3."): value for key, value in pairs.items()}
    config = Config(
        n_vocab=q["vocab_size"],
        n_embd=q["embedding_length"],
        n_layer=q["block_count"],
        n_head=q["attention.head_count"],
        n_head_kv=q["attention.head_count_kv"],
        head_dim=q["attention.key_length"],
        n_ff=q["feed_forward_length"],
        n_ctx=q["context_length"],
        rope_base=q["rope.freq_base"],
        norm_eps=q["attention.layer_norm_rms_epsilon"],
    )
    model = Model(config)
    model.load_state_dict(
        {name.removesuffix(".weight"): torch.from_numpy(np.array(a)) for name, a in tensors.items()}
    )
    tokens, types = pairs["tokenizer.ggml.tokens"], pairs["tokenizer.ggml.token_type"]
    marks = [t for t, kind in zip(tokens, types) if kind == MARK]
    tokenizer = Tokenizer([tuple(m.split(" ")) for m in pairs["tokenizer.ggml.merges"]], marks)
    if tokenizer.tokens != tokens:
        raise ValueError(f"{path}: the tokens do not follow from the merges")
    return model, tokenizer


def check(checkpoint, path, n_dialogues):
    """Share of greedy responses that are equal for the file and the checkpoint."""
    asked = measure.questions("export", n_dialogues)
    ours = measure.ask_here(*model_of_checkpoint(checkpoint))(asked)
    theirs = measure.ask_here(*model_of_gguf(path))(asked)
    same = sum(a == b for a, b in zip(ours, theirs))
    for question, a, b in zip(asked, ours, theirs):
        if a != b:
            asked_last = question.messages[-1]["content"]
            print(f"differs: {asked_last!r}: {a!r}, from the file {b!r}")
    print(f"{same} of {len(asked)} responses are equal for the file and the checkpoint")
    return same / len(asked)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("checkpoint", help="checkpoint written by train.py")
    p.add_argument("out", help="path of the GGUF file")
    p.add_argument(
        "--check",
        type=int,
        default=0,
        metavar="N",
        help="compare the responses in N dialogues; exit status 1 if more than 3 %% differ",
    )
    p.add_argument("--threads", type=int, default=os.cpu_count())
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    model, tokenizer = model_of_checkpoint(args.checkpoint)
    gguf.write(args.out, pairs_of(model.config, tokenizer), tensors_of(model))
    print(f"{args.out}: {os.path.getsize(args.out)} bytes, {model.n_params()} parameters")
    return 1 if args.check and check(args.checkpoint, args.out, args.check) < 0.97 else 0


if __name__ == "__main__":
    sys.exit(main())
