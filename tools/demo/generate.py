#!/usr/bin/env python3
"""Generates the dialogues for training and measuring the demo model.

All text is generated from the patterns and word lists in this folder; equal seeds give equal
dialogues. Every turn has a key that identifies its content (the normalised wording, or the pair of
numbers of a sum). A tenth of all keys, selected by a hash, is held out: turns with such a key never
occur in training, and only such turns are measured.
"""

import argparse
import json
import random
from dataclasses import asdict

import chat
import facts
import jsons
import thoughts
import tools
import unknown
import words
from games import GAMES, game, game_turn, sequence, strange_word
from patterns import dress, expand, is_held_out, normalise, small_letters
from sums import and_sum, arithmetic, compare, hard_sum, neighbour, sure
from talk import DO_NOT_KNOW, Talk, Turn

# ---- facts, chat, names ---------------------------------------------------------------------


def lookup(category, table, always_trained):
    """Questions about a table of facts. Questions of at most `always_trained` words are very common in
    practice and are never held out."""

    def make(rng, talk):
        name, patterns, answers, has, lacks = rng.choice(table)
        text = dress(rng, small_letters(rng, expand(rng, rng.choice(patterns))), category == "chat")
        key = normalise(text)
        if len(text.split()) <= always_trained:
            key = None
        return Turn(
            text, rng.choice(answers), category, {"has": has, "lacks": lacks}, key, {"fact": name}
        )

    return make


def flag(rng, talk):
    name, settings, answers, has = rng.choice(facts.FLAGS)
    if rng.random() < 0.5:
        text = expand(rng, rng.choice(facts.FLAG_QUESTIONS), flag=name)
    else:
        text = expand(rng, rng.choice(facts.SETTING_QUESTIONS), setting=rng.choice(settings))
    text = dress(rng, small_letters(rng, text))
    return Turn(
        text,
        rng.choice(answers),
        "flags",
        {"has": has},
        normalise(text),
        {"fact": name, "and": "flag"},
    )


def endpoint(rng, talk):
    path, purposes, answers, has = rng.choice(facts.ENDPOINTS)
    if rng.random() < 0.6:
        text = expand(rng, rng.choice(facts.ENDPOINT_QUESTIONS), path=path)
    else:
        text = expand(rng, rng.choice(facts.PURPOSE_QUESTIONS), purpose=rng.choice(purposes))
    text = dress(rng, small_letters(rng, text))
    return Turn(
        text,
        rng.choice(answers),
        "endpoints",
        {"has": has},
        normalise(text),
        {"fact": path, "and": "endpoint"},
    )


def any_name(rng):
    name = rng.choice(words.NAMES) if rng.random() < 0.7 else words.made_up(rng).capitalize()
    return name.casefold() if rng.random() < 0.15 else name


TELL_NAME = [
    "[|hello, |hi, |hey, |hi there, |good morning, ]my name is {name}",
    "[|hello, |hi, |hey, ]I'm {name}",
    "[|please |you can |just ]call me {name}",
    "[hello|hi|hey], this is {name}",
    "my friends call me {name}",
    "the name is {name}",
    "[|hello, |hi, ]I am called {name}",
    "remember my name: {name}",
    "my name is {name}, [nice to meet you|what is yours|and I am new here|remember that]",
]
ASK_NAME = [
    "what is my name",
    "what's my name",
    "do you [know|remember] my name",
    "who am I",
    "what am I called",
    "[can you|please] tell me my name",
    "tell me my name",
    "what did I say my name was",
    "say my name",
    "do you [know|remember] who I am",
    "and what is my name [again|]",
    "what was my name [again|]",
    "[how|by what name] do I call myself",
    "my name is what",
]


def tell_name(rng, talk):
    name = any_name(rng)
    text = dress(rng, expand(rng, rng.choice(TELL_NAME), name=name), plain=True)
    return Turn(
        text,
        f"Nice to meet you, {name}.",
        "name",
        {"has": [[name]], "lacks": ["not know"]},
        normalise(text),
        {"name": name},
    )


def ask_name(rng, talk):
    text = dress(rng, small_letters(rng, expand(rng, rng.choice(ASK_NAME))))
    key = f"name|{talk.name or ''}|{normalise(text)}"
    if talk.name:
        return Turn(
            text,
            f"Your name is {talk.name}.",
            "name",
            {"has": [["your name is " + talk.name]]},
            key,
        )
    return Turn(text, "I do not know your name. You have not told me.", "name", DO_NOT_KNOW, key)


# ---- follow-ups that refer to earlier turns -------------------------------------------------

ELLIPSIS = (
    "[and {x}|what about {x}|and what about {x}|how about {x}|{x}|now {x}|and for {x}|same for {x}]"
)


def and_this(rng, talk):
    """Elliptic follow-up with another object: 'and --port?', 'what about dog?'."""
    kind = talk.last.about.get("and") if talk.last else None
    if kind is None:
        return None
    context = f"and|{kind}|"
    if kind in ("flag", "endpoint"):
        name, _, answers, has = rng.choice(facts.FLAGS if kind == "flag" else facts.ENDPOINTS)
        text = dress(rng, expand(rng, ELLIPSIS, x=name), plain=True)
        category = kind + "s"
        return Turn(
            text,
            rng.choice(answers),
            category,
            {"has": has},
            context + normalise(text),
            {"and": kind},
        )
    if kind == "letter count":
        return None
    word = rng.choice(GAMES[kind][0])
    text = dress(rng, expand(rng, ELLIPSIS, x=word), plain=True)
    return game_turn(rng, kind, word, text, context)


ASK_BEFORE = [
    "what did I [ask|say] [before|just now|last|]",
    "what was my [last|previous] [question|message]",
    "what was [the question|my question]",
    "do you remember [what I asked|my last question|my question]",
    "[repeat|tell me|quote] my [last |]question",
    "what have I just asked",
    "what did I [just|last] ask",
]
ASK_AGAIN = [
    "[say|tell me] that again",
    "[please |can you |could you |]repeat that",
    "repeat [your|the|your last] answer",
    "what did you [say|answer]",
    "what was your [last |]answer",
    "again",
    "say it again",
    "once more",
    "pardon",
    "come again",
    "I did not [get|catch|hear] that",
    "repeat",
]
ASK_FIRST = [
    "what was my first [question|message]",
    "what did I [ask|say] first",
    "what did I ask at the [beginning|start]",
    "[tell me|repeat] my first question",
    "how did [this conversation|we|I] [start|begin]",
]


def looks_back(rng, patterns, context):
    text = dress(
        rng, small_letters(rng, expand(rng, rng.choice(patterns))), plain=rng.random() < 0.7
    )
    return text, f"{normalise(text)}|{normalise(context)}"


def is_quotable(said):
    return len(said) <= 70 and '"' not in said and said.isascii()


def ask_before(rng, talk):
    if not talk.last:
        text, key = looks_back(rng, ASK_BEFORE, "")
        answer = "You have not asked anything yet."
        return Turn(text, answer, "memory", {"exact": [answer]}, key)
    said = talk.last.user
    if not is_quotable(said):
        return None
    text, key = looks_back(rng, ASK_BEFORE, said)
    return Turn(text, f'You asked: "{said}"', "memory", {"has": [[f'"{said}"']]}, key)


def ask_first(rng, talk):
    if len(talk.turns) < 2 or len(talk.turns) > 8:
        return None
    said = talk.turns[0].user
    if not is_quotable(said):
        return None
    text, key = looks_back(rng, ASK_FIRST, said)
    return Turn(text, f'You first asked: "{said}"', "memory", {"has": [[f'"{said}"']]}, key)


def ask_again(rng, talk):
    if not talk.last or len(talk.last.answer) > 130:
        return None
    said = talk.last.answer
    text, key = looks_back(rng, ASK_AGAIN, talk.last.user)
    return Turn(text, said, "memory", {"exact": [said]}, key, dict(talk.last.about))


# ---- other turns ----------------------------------------------------------------------------


def _slots(table):
    lists = {name: unknown.split(text) for name, text in table.items()}
    return {name: lambda r, values=values: r.choice(values) for name, values in lists.items()}


SEEN_SLOTS = {
    **_slots(unknown.SLOTS),
    "made": words.made_up,
    "number": lambda r: r.randint(2, 9999),
}
UNSEEN_SLOTS = {**SEEN_SLOTS, **_slots(unknown.UNSEEN_SLOTS)}


def not_known(rng, talk):
    text = expand(rng, rng.choice(unknown.SEEN), **SEEN_SLOTS)
    text = dress(rng, small_letters(rng, text))
    return Turn(text, rng.choice(unknown.ANSWERS), "unknown", DO_NOT_KNOW, normalise(text))


def not_known_unseen(rng, talk):
    text = expand(rng, rng.choice(unknown.UNSEEN), **UNSEEN_SLOTS)
    text = dress(rng, small_letters(rng, text), plain=True)
    return Turn(
        text, rng.choice(unknown.ANSWERS), "unknown, unseen kinds", DO_NOT_KNOW, normalise(text)
    )


SYSTEM = [
    "You are a [helpful|friendly|polite|kind|small|] assistant.",
    "You are InferFlux demo.",
    "You are the InferFlux demo model.",
    (
        "You are a helpful assistant. [Answer briefly.|Be concise.|Answer in English.|Be honest.|Do"
        " not lie.]"
    ),
    "[Answer|Reply] [briefly|in one sentence|politely|shortly|honestly].",
    "Be [brief|kind|honest|concise|polite].",
    "You are a [chatbot|language model|bot|server|test model].",
    "You are {name}, [an|a helpful] assistant.",
    "[Help the user.|Answer the user's questions.|Today is a nice day.|This is a test.]",
]


def drill(rng):
    """A question, and the response that quotes it."""
    while not is_quotable(said := plain(rng, 1)["turns"][0].user):
        pass
    return said, f' You asked: "{said}"'


# (generator, weight)
OPENERS = [
    (lookup("chat", facts.CHAT, 5), 10),
    (lookup("about itself", facts.SELF, 4), 10),
    (lookup("about InferFlux", facts.PRODUCT, 4), 24),
    (flag, 6),
    (endpoint, 7),
    (tell_name, 5),
    (ask_name, 3),
    (arithmetic("+", "addition"), 16),
    (arithmetic("-", "subtraction"), 15),
    (arithmetic("*", "multiplication"), 5),
    (hard_sum, 4),
    (compare, 4),
    (neighbour, 3),
    (game("opposite"), 4),
    (game("plural"), 2),
    (game("first letter"), 2),
    (game("last letter"), 2),
    (game("spelling"), 3),
    (game("length"), 3),
    (game("letter count"), 4),
    (game("rhyme"), 3),
    (strange_word, 4),
    (sequence, 3),
    (not_known, 20),
    (jsons.json_turn, 14),
]
PART_WITH_TOOLS, PART_THINKING = 0.4, 0.15
LOOKING_BACK = [
    (and_sum, 20),
    (sure, 4),
    (and_this, 14),
    (ask_name, 6),
    (ask_before, 10),
    (ask_again, 6),
    (ask_first, 5),
]
MEASURED_TOO = [(not_known_unseen, 4)]
TRAINED_MORE = [(jsons.json_turn, 30), (arithmetic("-", "subtraction"), 12)]  # these are learned slowly


def next_turn(rng, talk, held_out):
    """Generates a turn which is held out, or one which is not."""
    openers = OPENERS + (MEASURED_TOO if held_out else TRAINED_MORE)
    while True:
        back = talk.turns and rng.random() < 0.4
        table = LOOKING_BACK if back else openers
        maker = rng.choices([m for m, _ in table], [w for _, w in table])[0]
        # Retry with the same generator: a new choice would change the mix of categories.
        for _ in range(60):
            turn = maker(rng, talk)
            if turn is None:
                break
            out = turn.key is not None and is_held_out(turn.key)
            if out == held_out or (held_out and maker is not_known_unseen):
                return turn


def thinking(rng, dialogue):
    """Adds reasoning to a dialogue."""
    for turn in dialogue["turns"]:
        turn.thought = thoughts.thought(turn)
    return {**dialogue, "think": True}


def plain(rng, n_turns, held_out=False):
    """Generates a dialogue without tools."""
    talk = Talk()
    system = None
    if rng.random() < 0.25:
        system = expand(rng, rng.choice(SYSTEM), name=rng.choice(words.NAMES)).replace(" .", ".")
    for _ in range(n_turns):
        talk.add(next_turn(rng, talk, held_out))
    return {"system": system, "tools": None, "think": False, "turns": talk.turns}


def beside_tools(rng, offered, held_out):
    """Generates a turn that requires none of the offered tools."""
    taken = {w for t in offered for w in tools.stems(t.noun + " " + t.name.replace("_", " "))}
    adds = any(t.deed in ("sum", "product") for t in offered)
    for _ in range(100):
        turn = next_turn(rng, Talk(), held_out)
        if turn.category in ("unknown, unseen kinds", "JSON"):
            continue
        if adds and turn.category in ("addition", "multiplication", "too hard", "subtraction"):
            continue
        if not tools.stems(turn.user) & taken:
            return turn
    return None


def with_tools(rng, n_turns, held_out=False, most_tools=4, has_results=True):
    return tools.dialogue(rng, n_turns, held_out, beside_tools, most_tools, has_results)


def dialogue(rng, n_turns, held_out=False, most_tools=4):
    """Generates {"system": text or None, "tools": list in API format or None, "think": bool,
    "turns": [Turn]}."""
    has_tools = rng.random() < PART_WITH_TOOLS
    think = rng.random() < PART_THINKING
    if think:
        n_turns = min(n_turns, rng.choice((1, 1, 2)))
    if has_tools:
        d = with_tools(rng, n_turns, held_out, most_tools)
    else:
        d = plain(rng, n_turns, held_out)
    return thinking(rng, d) if think else d


def dialogues(seed, count, held_out=False, max_turns=6):
    """Yields `count` dialogues of 1 to max_turns turns; short ones are more frequent."""
    for i in range(count):
        rng = random.Random(f"{seed}/{i}/{held_out}")
        n = min(rng.randint(1, max_turns), rng.randint(1, max_turns))
        yield dialogue(rng, n, held_out)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--seed", default="demo", help="seed: any text")
    p.add_argument("--count", type=int, default=10, help="number of dialogues")
    p.add_argument("--max-turns", type=int, default=6)
    p.add_argument("--held-out", action="store_true", help="generate held-out turns only")
    p.add_argument(
        "--text", action="store_true", help="print rendered text instead of one JSON object per line"
    )
    args = p.parse_args()
    for d in dialogues(args.seed, args.count, args.held_out, args.max_turns):
        if not args.text:
            print(json.dumps({**d, "turns": [asdict(t) for t in d["turns"]]}))
            continue
        messages = chat.messages_of(d)
        print("".join(text for text, _ in chat.pieces(messages, d["tools"], d["think"])))


if __name__ == "__main__":
    main()
