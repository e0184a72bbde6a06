"""Rows of a training batch: dialogues, which are generated during training, and drills.

A row contains one dialogue with as many turns as fit, or several short ones; the loss is computed
only for the assistant's text. Drills have more trained tokens than dialogues of the same length:
sums and word facts, lookups in lists (with arbitrary tokens, so that the model learns to copy rare
ones), and requests whose response is only the name of the tool.
"""

import functools
import os
import random
from concurrent.futures import ProcessPoolExecutor

import torch

import chat
import deeds
import games
import generate
import results
import sums
import tools

# (tokens per row, weight, share of rows with tools, maximum number of tools)
ROWS = [(128, 0.2, 0, 0), (256, 0.45, 0.75, 3), (512, 0.33, 0.82, 4), (1024, 0.02, 0.9, 4)]
DRILL_ROWS = 0.25  # share of the rows without tools that are drills
THINKING = 0.16
NO_RESULTS = 0.6  # share of the dialogues with tools that have no tool results
DRILLS, DRILL_WEIGHTS = (sums.drill, games.drill, generate.drill), (0.6, 0.25, 0.15)
RECALL = 0.08  # share of the rows that are lookups in lists
CHOICES = 0.23  # share of the rows that are choices of a tool
LEFT_EMPTY = 96  # maximum number of padding tokens at the end of a row
TURN_TOKENS = 16  # nearly all turns have more tokens


def encode(tokenizer, dialogue, n_max):
    """Token ids and, for each, whether it is trained; complete turns only."""
    n_turns = len(dialogue["turns"])
    while n_turns:
        pieces = chat.pieces(
            chat.messages_of(dialogue, n_turns), dialogue["tools"], dialogue["think"]
        )
        ids, learn, n_whole, was_answer = [], [], 0, False
        for text, is_answer in pieces:
            some = tokenizer.encode_marked(text)
            ids += some
            learn += [is_answer] * len(some)
            if len(ids) > n_max:
                break
            n_whole = len(ids) if was_answer else n_whole
            was_answer = is_answer
        if n_whole == len(ids) or not dialogue["think"]:
            return ids[:n_whole], learn[:n_whole]
        n_turns -= 1  # the last turn determines which responses are trained: render again
    return [], []


def encode_drill(tokenizer, rng, n_max):
    """Sequence of bare sums and word facts; the results are trained."""
    ids, learn = [], []
    while True:
        given, wanted = rng.choices(DRILLS, DRILL_WEIGHTS)[0](rng)
        given, wanted = tokenizer.encode(" " + given), tokenizer.encode(wanted)
        if len(ids) + len(given) + len(wanted) > n_max:
            return ids, learn
        ids += given + wanted
        learn += [False] * len(given) + [True] * len(wanted)


def recall_of_text(tokenizer, rng):
    names = [tools.noun_of(rng, rng.choice(list(deeds.DEEDS)), False) for _ in range(12)]
    names = list(dict.fromkeys(names))
    told = [tokenizer.encode(f": {results.something(rng)}") for _ in names]
    return [tokenizer.encode("\n" + n) for n in names], told, tokenizer.encode("?: None")


def recall_of_tokens(tokenizer, rng):
    """Arbitrary tokens, so that the model also learns to copy rare ones."""

    def some(most):
        return [rng.randrange(tokenizer.n_plain) for _ in range(rng.randint(1, most))]

    line, colon = tokenizer.encode("\n"), tokenizer.encode(":")
    names, told = [line + some(2) for _ in range(12)], [colon + some(4) for _ in range(12)]
    return names, told, tokenizer.encode("?: None")


def encode_recall(tokenizer, rng, n_max):
    """List of names and values, then lookups of values by name, as in the arguments of tool calls."""
    make = recall_of_text if rng.random() < 0.4 else recall_of_tokens
    names, told, unknown = make(tokenizer, rng)
    n_told, ids, learn = rng.randint(2, 8), [], []
    for name, value in zip(names[:n_told], told):
        ids += name + value
    learn += [False] * len(ids)
    while True:
        i = rng.randrange(n_told if rng.random() < 0.85 else len(names))
        wanted = unknown[:1] + told[i] if i < n_told else unknown
        if len(ids) + len(names[i]) + len(wanted) > n_max:
            return ids, learn
        ids += names[i] + wanted
        learn += [False] * (len(names[i]) + 1) + [True] * (len(wanted) - 1)


def encode_choices(tokenizer, rng, n_max):
    """Several tools and many requests, whose tool calls end after the name. The model learns slowly to
    choose the tool, and a complete call has only one token for the choice."""
    offered = tools.make_tools(rng, min(rng.randint(3, 7), n_max // 60), False)
    as_sent = [{"type": "function", "function": t.schema} for t in offered]
    ids = tokenizer.encode_marked("".join(x for x, _ in chat.pieces([], as_sent)))
    learn = [False] * len(ids)
    while True:
        turn = tools.decoy(rng, offered, False) if rng.random() < 0.2 else None
        turn = turn or tools.one_call(rng, offered, False)
        if not turn:
            continue
        given = f"{chat.START}user\n{turn.user}{chat.END}\n{chat.START}assistant\n"
        wanted = turn.answer + chat.END
        if turn.calls:
            wanted = chat.calls_text(turn.calls).partition('", "arguments')[0] + '", "'
        given, wanted = tokenizer.encode_marked(given), tokenizer.encode_marked(wanted)
        wanted = wanted[:-1] if turn.calls else wanted  # the last token may include later text
        if len(ids) + len(given) + len(wanted) > n_max:
            return ids, learn
        ids += given + wanted
        learn += [False] * len(given) + [True] * len(wanted)


def dialogue_of(rng, n, has_tools, most_tools):
    """Generates a dialogue, which may be longer than n tokens."""
    n_turns = n // TURN_TOKENS
    think = rng.random() < THINKING
    if think:
        n_turns = rng.randint(1, 2)
    if has_tools:
        has_results = think or rng.random() >= NO_RESULTS
        dialogue = generate.with_tools(rng, n_turns, False, most_tools, has_results)
    else:
        dialogue = generate.plain(rng, n_turns)
    return generate.thinking(rng, dialogue) if think else dialogue


def row_of(tokenizer, rng, n, part_with_tools, most_tools):
    """Token ids of a row of at most n tokens, and which are trained: one dialogue or several short
    ones, separated by the end-of-text token."""
    ids, learn = [], []
    while not ids or n - len(ids) > LEFT_EMPTY:
        room = n - len(ids)
        has_tools = rng.random() < part_with_tools
        kind = rng.random()
        if kind < RECALL:
            some = encode_recall(tokenizer, rng, min(room, 256))
        elif has_tools and room > 200 and kind < RECALL + CHOICES:
            some = encode_choices(tokenizer, rng, room)
        elif not has_tools and rng.random() < DRILL_ROWS:
            some = encode_drill(tokenizer, rng, min(room, 256))
        else:
            some = encode(tokenizer, dialogue_of(rng, room, has_tools, most_tools), room)
        if not any(some[1]):
            continue
        ids += [*some[0], tokenizer.end_of_text]
        learn += [*some[1], False]
    return ids[:n], learn[:n]


def batch(tokenizer, seed, step, rank, n_tokens):
    """Inputs and targets [rows, n]; a target of -1 is not trained."""
    n, _, part_with_tools, most_tools = random.Random(f"{seed}/{step}").choices(
        ROWS, [r[1] for r in ROWS]
    )[0]
    rng = random.Random(f"{seed}/{step}/{rank}")
    inputs = torch.full((n_tokens // n, n), tokenizer.end_of_text)
    targets = torch.full((n_tokens // n, n), -1)
    for row in range(n_tokens // n):
        ids, learn = row_of(tokenizer, rng, n + 1, part_with_tools, most_tools)
        last = len(ids) - 1
        inputs[row, :last] = torch.tensor(ids[:-1])
        targets[row, :last] = torch.tensor(
            [i if want else -1 for i, want in zip(ids[1:], learn[1:])]
        )
    return inputs, targets


class Batches:
    """Iterator over the batches of this process from `step`; a low-priority process generates them in
    advance."""

    def __init__(self, tokenizer, seed, step, rank, n_tokens):
        Batches.make = functools.partial(batch, tokenizer, seed, rank=rank, n_tokens=n_tokens)
        context = torch.multiprocessing.get_context("fork")  # the child inherits Batches.make
        self.pool = ProcessPoolExecutor(1, context, os.nice, (10,))
        self.step, self.ahead = step, []

    @staticmethod
    def made(step):
        return [t.numpy() for t in Batches.make(step)]

    def next(self):
        while len(self.ahead) < 4:
            self.ahead.append(self.pool.submit(Batches.made, self.step))
            self.step += 1
        return [torch.from_numpy(t) for t in self.ahead.pop(0).result()]
