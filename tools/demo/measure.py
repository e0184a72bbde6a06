#!/usr/bin/env python3
"""Measures the share of correct responses of the demo model on held-out dialogues.

Every measured turn has a held-out key (see generate.py). This program checks that a sample of the
training dialogues contains no such key and no name of a measured tool. Each turn is requested with
the reference responses as its history, at temperature 0, from a running server (--url; requires
only Python), or computed in this process from a GGUF file or a checkpoint (requires PyTorch).

A tool call is correct if the response contains nothing else, and the tool name and all arguments
are equal to the expected ones. A response must contain reasoning if and only if it was requested.
"""

import argparse
import json
import os
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import chat
import generate
from talk import check_thinking

MAX_TOKENS = 160
CALLS = ("tool call", "two calls", "thinking, calls")


@dataclass
class Question:
    """A measured request: chat messages, offered tools, and the reference turn."""

    messages: list
    tools: list
    think: bool
    turn: object
    category: str

    def is_right(self, answer):
        return check_thinking(self.turn.expect, answer, self.think)


def category_of(turn, tools, think):
    if think:
        return "thinking, calls" if turn.calls else "thinking"
    if tools and turn.category not in OF_TOOLS:
        return "no tool needed"
    return turn.category


OF_TOOLS = ("tool call", "two calls", "tool result", "no tool fits")


def is_plain(d):
    return not (d["tools"] or d["think"] or any(t.category == "JSON" for t in d["turns"]))


def plain_dialogues(seed, count):
    """The first `count` dialogues without tools, reasoning and JSON objects."""
    left = count
    for d in generate.dialogues(seed, 100 * count, held_out=True):
        if left and is_plain(d):
            left -= 1
            yield d
        if not left:
            return


def questions(seed, count, plain=False):
    """One question per turn of each held-out dialogue."""
    out = []
    all_kinds = generate.dialogues(seed, count, held_out=True)
    for d in plain_dialogues(seed, count) if plain else all_kinds:
        for i, turn in enumerate(d["turns"]):
            category = category_of(turn, d["tools"], d["think"])
            messages = chat.messages_of(d, i + 1, close=False)
            out.append(Question(messages, d["tools"], d["think"], turn, category))
    return out


def names_of(tools):
    return {t["function"]["name"] for t in tools or ()}


def check_disjoint(asked, count):
    """Exits if one of `count` training dialogues contains a measured key or tool name."""
    keys = {q.turn.key for q in asked}
    names = set().union(*(names_of(q.tools) for q in asked))
    for d in generate.dialogues("train", count):
        if both := names & names_of(d["tools"]):
            raise SystemExit(f"measured, but also trained: {both}")
        for turn in d["turns"]:
            if turn.key in keys:
                raise SystemExit(f"measured, but also trained: {turn.key!r}")


def poster(url, key):
    """Returns a function (path, body) -> JSON response of the server."""
    base = url.partition("/v1/")[0].rstrip("/")
    head = {"Content-Type": "application/json"}
    if key:
        head["Authorization"] = "Bearer " + key

    def post(path, body):
        request = urllib.request.Request(base + path, json.dumps(body).encode(), head)
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.load(response)

    return post


def as_sent(messages):
    """Converts messages to API format: call arguments as JSON text, and call ids."""
    out, n_calls, n_results = [], 0, 0
    for message in messages:
        message = dict(message)
        if message.get("tool_calls"):
            calls = []
            for c in message["tool_calls"]:
                f = {**c["function"], "arguments": chat.as_json(c["function"]["arguments"])}
                calls.append({**c, "id": f"call_{n_calls}", "function": f})
                n_calls += 1
            message["tool_calls"] = calls
        if message["role"] == "tool":
            message["tool_call_id"] = f"call_{n_results}"
            n_results += 1
        out.append(message)
    return out


def completion_asker(post, model):
    """Renders the prompt with chat.py and sends it to /v1/completions."""

    def ask(q):
        body = {"model": model, "temperature": 0, "max_tokens": MAX_TOKENS}
        prompt = chat.prompt(q.messages, q.tools, q.think)
        return post("/v1/completions", {**body, "prompt": prompt})["choices"][0]["text"]

    return ask


def rendering_asker(post, model):
    """Renders the prompt with the server's template engine, compares it with chat.py's, and sends it to
    /v1/completions."""

    def ask(q):
        offered = {"tools": q.tools} if q.tools else {}
        if q.think:
            offered["chat_template_kwargs"] = {"enable_thinking": True}
        body = {"model": model, "messages": as_sent(q.messages), **offered}
        prompt = post("/apply-template", body)["prompt"]
        if prompt != chat.prompt(q.messages, q.tools, q.think):
            raise SystemExit(f"the server renders a different prompt: {prompt!r}")
        body = {"model": model, "temperature": 0, "max_tokens": MAX_TOKENS}
        return post("/v1/completions", {**body, "prompt": prompt})["choices"][0]["text"]

    return ask


def chat_asker(post, model):
    """Sends a chat completion. The response has tool calls and reasoning in separate fields."""

    def ask(q):
        body = {"model": model, "messages": as_sent(q.messages), "temperature": 0}
        body["max_tokens"] = MAX_TOKENS
        if q.tools:
            body["tools"] = q.tools
        if q.think:
            body["chat_template_kwargs"] = {"enable_thinking": True}
        message = post("/v1/chat/completions", body)["choices"][0]["message"]
        text = message.get("content") or ""
        calls = [c["function"] for c in message.get("tool_calls") or ()]
        if calls:
            text += chat.calls_text([{**c, "arguments": json.loads(c["arguments"])} for c in calls])
        thought = message.get("reasoning_content") or message.get("reasoning")
        return f"{chat.THINK}\n{thought}\n{chat.END_THINK}\n\n{text}" if thought else text

    return ask


ASKERS = {"chat": chat_asker, "render": rendering_asker, "completion": completion_asker}


def ask_server(args):
    ask = ASKERS[args.by](poster(args.url, args.key), args.model)

    def answer(batch):
        with ThreadPoolExecutor(args.parallel) as pool:
            return list(pool.map(ask, batch))

    return answer


def greedy(model, tokenizer, prompts, n_max=MAX_TOKENS):
    """Greedy decoding of all prompts (token ids) in one batch, up to <|im_end|>. Prompts are padded on
    the right, which causal attention does not see."""
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
        prompts = [
            tokenizer.encode_marked(chat.prompt(q.messages, q.tools, q.think)) for q in batch
        ]
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


def share_of(asked, rights, categories=None):
    of = [r for q, r in zip(asked, rights) if not categories or q.category in categories]
    return sum(of), len(of), 100 * sum(of) / len(of) if of else 100.0


def table(asked, answers, show):
    """Prints the correct responses by category. Returns the percentages of all and of tool calls."""
    rights = [q.is_right(a) for q, a in zip(asked, answers)]
    wrong = [(q, a) for q, a, right in zip(asked, answers, rights) if not right]
    for q, answer in wrong[:show]:
        user = q.turn.user or q.turn.results
        good = q.turn.answer or chat.calls_text(q.turn.calls)
        print(f"wrong ({q.category}): {user!r} -> {answer!r}, for example {good!r}")
    print(f"\n{'category':<24} {'right':>6} {'of':>6} {'%':>6}")
    rows = [(c, (c,)) for c in sorted({q.category for q in asked})]
    for name, categories in [*rows, ("exact calls", CALLS), ("all", None)]:
        right, of, share = share_of(asked, rights, categories)
        if of:
            print(f"{name:<24} {right:>6} {of:>6} {share:>6.1f}")
    return share, share_of(asked, rights, CALLS)[2]


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = p.add_mutually_exclusive_group(required=True)
    source.add_argument("--url", help="for example http://127.0.0.1:8080")
    source.add_argument("--gguf", help="GGUF file written by export.py")
    source.add_argument("--checkpoint", help="checkpoint written by train.py")
    p.add_argument("--seed", default="measure")
    p.add_argument("--dialogues", type=int, default=1000)
    p.add_argument(
        "--at-least", type=float, default=95.0, help="percent of correct responses for exit status 0"
    )
    p.add_argument(
        "--calls-at-least", type=float, default=90.0, help="percent of exact calls for exit status 0"
    )
    p.add_argument(
        "--plain", action="store_true", help="only dialogues without tools, reasoning and JSON objects"
    )
    p.add_argument("--only", help="only categories whose name contains this text")
    p.add_argument(
        "--check-train",
        type=int,
        default=20000,
        metavar="N",
        help="number of training dialogues to compare with",
    )
    p.add_argument("--show", type=int, default=10, help="number of wrong responses to print")
    p.add_argument("--model", default="demo", help="model name for --url")
    p.add_argument(
        "--by",
        choices=sorted(ASKERS),
        default="chat",
        help="for --url: chat completions (chat), completions of prompts from /apply-template (render) "
        "or from this program (completion)",
    )
    p.add_argument("--parallel", type=int, default=4, help="concurrent requests for --url")
    p.add_argument("--key", default=os.environ.get("INFERFLUX_API_KEY"), help="API key for --url")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    args = p.parse_args()
    asked = questions(args.seed, args.dialogues, args.plain)
    check_disjoint(asked, args.check_train)
    if args.only:
        asked = [q for q in asked if args.only in q.category]
    answer = ask_server(args) if args.url else load_here(args)
    share, calls = table(asked, answer(asked), args.show)
    return 0 if share >= args.at_least and calls >= args.calls_at_least else 1


if __name__ == "__main__":
    sys.exit(main())
