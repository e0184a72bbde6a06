#!/usr/bin/env python3
"""Measures how many answers are right, on dialogues that the demo model was not trained on.

Every measured turn has a held-out key (see generate.py), and this program checks that no such key
occurs in a sample of the training dialogues. A turn is asked with the reference answers as its
history, at temperature 0. Ask a running server (--url; needs nothing but Python), or compute here
from a GGUF file or a checkpoint (needs PyTorch).
"""

import argparse
import json
import os
import sys
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import generate
from talk import check

MAX_TOKENS = 100


def questions(seed, count):
    """[(messages, turn)]: one for every turn of every held-out dialogue."""
    out = []
    for d in generate.dialogues(seed, count, held_out=True):
        messages = [{"role": "system", "content": d["system"]}] if d["system"] else []
        for turn in d["turns"]:
            messages = messages + [{"role": "user", "content": turn.user}]
            out.append((messages, turn))
            messages = messages + [{"role": "assistant", "content": turn.answer}]
    return out


def check_disjoint(asked, count):
    """No measured key may occur in training; `count` training dialogues are looked at."""
    keys = {turn.key for _, turn in asked}
    for d in generate.dialogues("train", count):
        for turn in d["turns"]:
            if turn.key in keys:
                raise SystemExit(f"measured, but also trained: {turn.key!r}")


def ask_server(url, key, model, parallel):
    """A function from questions to answers."""

    def ask(messages):
        body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS}
        head = {"Content-Type": "application/json"}
        if key:
            head["Authorization"] = "Bearer " + key
        request = urllib.request.Request(url, json.dumps(body).encode(), head)
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.load(response)["choices"][0]["message"]["content"]

    def answer(batch):
        with ThreadPoolExecutor(parallel) as pool:
            return list(pool.map(ask, batch))

    return answer


def prompt_ids(tokenizer, messages):
    ids = [i for m in messages for i in tokenizer.message(m["role"], m["content"])]
    return ids + tokenizer.message("assistant", "", close=False)


def greedy(model, tokenizer, prompts, n_max=MAX_TOKENS):
    """The most likely continuation of every prompt (token ids) up to <|im_end|>; all at once, the
    prompts padded on the right, where nothing that comes before can see it."""
    import torch

    lengths = [len(p) for p in prompts]
    tokens = torch.full((len(prompts), max(lengths) + n_max), tokenizer.end_of_text)
    for row, p in enumerate(prompts):
        tokens[row, : len(p)] = torch.tensor(p)
    answers, open_rows = [[] for _ in prompts], list(range(len(prompts)))
    with torch.no_grad():
        while open_rows:
            at = torch.tensor([lengths[r] + len(answers[r]) for r in open_rows])
            x = model.hidden(tokens[open_rows, : int(at.max())])
            best = (x[torch.arange(len(at)), at - 1] @ model.token_embd.T).argmax(-1).tolist()
            for row, i, token in zip(open_rows, at.tolist(), best):
                tokens[row, i] = token
                answers[row].append(token)
            open_rows = [
                r for r in open_rows if answers[r][-1] != tokenizer.end and len(answers[r]) < n_max
            ]
    return [a[:-1] if a[-1] == tokenizer.end else a for a in answers]


def ask_here(model, tokenizer, rows=32):
    def answer(batch):
        prompts = [prompt_ids(tokenizer, messages) for messages in batch]
        order = sorted(range(len(batch)), key=lambda i: len(prompts[i]))
        answers = [""] * len(batch)
        for begin in range(0, len(order), rows):
            part = order[begin : begin + rows]
            for i, ids in zip(part, greedy(model, tokenizer, [prompts[i] for i in part])):
                answers[i] = tokenizer.decode(ids)
        return answers

    return answer


def load_here(args):
    import torch
    from export import model_of_checkpoint, model_of_gguf

    torch.set_num_threads(args.threads)
    model, tokenizer = (
        model_of_gguf(args.gguf) if args.gguf else model_of_checkpoint(args.checkpoint)
    )
    return ask_here(model, tokenizer)


def table(asked, answers, show):
    """Prints right answers by category; the share of all."""
    right, total, wrong = defaultdict(int), defaultdict(int), []
    for (messages, turn), answer in zip(asked, answers):
        good = check(turn.expect, answer)
        right[turn.category] += good
        total[turn.category] += 1
        if not good:
            wrong.append((turn, answer))
    for turn, answer in wrong[:show]:
        print(f"wrong ({turn.category}): {turn.user!r} -> {answer!r}, for example {turn.answer!r}")
    print(f"\n{'category':<24} {'right':>6} {'of':>6} {'%':>6}")
    for category in sorted(total):
        share = 100 * right[category] / total[category]
        print(f"{category:<24} {right[category]:>6} {total[category]:>6} {share:>6.1f}")
    n, of = sum(right.values()), sum(total.values())
    print(f"{'all':<24} {n:>6} {of:>6} {100 * n / of:>6.1f}")
    return 100 * n / of


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    who = p.add_mutually_exclusive_group(required=True)
    who.add_argument("--url", help="for example http://127.0.0.1:8080/v1/chat/completions")
    who.add_argument("--gguf", help="a file that export.py wrote")
    who.add_argument("--checkpoint", help="a file that train.py wrote")
    p.add_argument("--seed", default="measure")
    p.add_argument("--dialogues", type=int, default=1000)
    p.add_argument(
        "--at-least", type=float, default=95.0, help="percent; below it the exit status is 1"
    )
    p.add_argument(
        "--check-train",
        type=int,
        default=20000,
        metavar="N",
        help="training dialogues to compare with",
    )
    p.add_argument("--show", type=int, default=10, help="wrong answers to print")
    p.add_argument("--model", default="demo", help="model name for --url")
    p.add_argument("--parallel", type=int, default=4, help="requests at once for --url")
    p.add_argument("--key", default=os.environ.get("INFERFLUX_API_KEY"), help="API key for --url")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    args = p.parse_args()
    asked = questions(args.seed, args.dialogues)
    check_disjoint(asked, args.check_train)
    answer = (
        ask_server(args.url, args.key, args.model, args.parallel) if args.url else load_here(args)
    )
    share = table(asked, answer([messages for messages, _ in asked]), args.show)
    return 0 if share >= args.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
