#!/usr/bin/env python3
"""Writes the dialogues that the demo model is trained and measured on.

Everything here is made by this program from its own patterns and word lists; the same seed gives
the same dialogues. Every turn has a key that says what is new about it (the normalised wording,
or the pair of numbers of a sum). A tenth of all keys, chosen by a hash, is held out: turns with
such a key never occur in training, and only such turns are measured.
"""

import argparse
import hashlib
import json
import random
import re
import string
from dataclasses import asdict, dataclass, field
from typing import Optional

import facts
import unknown
import words

HELD_OUT_ONE_IN = 10
MAX_SUM = 99  # the largest number that is added or subtracted
MAX_FACTOR = 10


# ---- patterns -------------------------------------------------------------------------------

_parsed = {}


def _parse(text, i, stop):
    """A sequence of literals, {slots} and [alternatives|...] up to one of `stop`."""
    parts, literal = [], []

    def flush():
        if literal:
            parts.append("".join(literal))
            literal.clear()

    while i < len(text) and text[i] not in stop:
        if text[i] == "[":
            flush()
            options, i = [], i + 1
            while True:
                option, i = _parse(text, i, "|]")
                options.append(option)
                i += 1
                if text[i - 1] == "]":
                    break
            parts.append(options)
        elif text[i] == "{":
            flush()
            end = text.index("}", i)
            parts.append((text[i + 1:end],))
            i = end + 1
        else:
            literal.append(text[i])
            i += 1
    flush()
    return parts, i


def _walk(rng, parts, slots, out):
    for part in parts:
        if isinstance(part, str):
            out.append(part)
        elif isinstance(part, tuple):
            value = slots[part[0]]
            out.append(str(value(rng) if callable(value) else value))
        else:
            _walk(rng, rng.choice(part), slots, out)


def expand(rng, pattern, **slots):
    """'[hi|hello] {name}' -> 'hello Anna'"""
    if pattern not in _parsed:
        _parsed[pattern] = _parse(pattern, 0, "")[0]
    out = []
    _walk(rng, _parsed[pattern], slots, out)
    return " ".join("".join(out).split())


def normalise(text):
    """What two wordings have in common when only case and punctuation differ."""
    return " ".join(re.findall(r"[^\W_]+|[-+*/=<>]", text.casefold()))


def is_held_out(key):
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_ONE_IN == 0


ASKING = ("what which how who where when why is are can could does do did will would should at on in "
          "must may has have what's how's under").split()
BEFORE = ["please, ", "please ", "hey, ", "hi, ", "hello, ", "so, ", "well, ", "quick question: ",
          "I have a question: ", "tell me, ", "say, ", "ok, ", "and ", "question: ", "now, ",
          "InferFlux, ", "I wonder, ", "one more thing: ", "excuse me, "]
AFTER = [" please", ", please", ", thanks", " now", ", my friend"]


def dress(rng, text, plain=False):
    """Wording as people type it: a prefix now and then, case, punctuation."""
    asks = text.split(" ")[0].rstrip(",").casefold() in ASKING
    if not plain:
        if rng.random() < 0.2:
            text = rng.choice(BEFORE) + text
        if rng.random() < 0.06:
            text = text + rng.choice(AFTER)
    if rng.random() < 0.55:
        text = text[:1].upper() + text[1:]
    if rng.random() < 0.65:
        text += "?" if asks else rng.choice("...!")
    return text


def small_letters(rng, text):
    return text.casefold() if rng.random() < 0.25 else text


# ---- expectations ---------------------------------------------------------------------------

def check(expect, answer):
    """Is this answer right? See `Turn.expect`."""
    text = " ".join(answer.casefold().split())
    if "exact" in expect:
        return any(text == " ".join(good.casefold().split()) for good in expect["exact"])
    if "number" in expect:
        found = re.findall(r"(?<![\d])-?\d+", text)
        return bool(found) and int(found[-1]) == expect["number"] and "not know" not in text
    has = all(any(a.casefold() in text for a in group) for group in expect["has"])
    return has and not any(a.casefold() in text for a in expect.get("lacks", []))


@dataclass
class Turn:
    """What the user says and what is right.

    expect: {"exact": [answers]}, {"number": the last number in the answer}, or
    {"has": [[alternatives], ...], "lacks": [...]}: one of every group must occur, nothing of lacks.
    key: what is held out, or None for wordings that are always trained and never measured.
    about: what a follow-up may refer to.
    """
    user: str
    answer: str
    category: str
    expect: dict
    key: Optional[str]
    about: dict = field(default_factory=dict)


DO_NOT_KNOW = {"has": [["do not know"]]}


class Talk:
    """One conversation: what was said so far and what of it matters later."""

    def __init__(self):
        self.turns = []
        self.name = None

    @property
    def last(self):
        return self.turns[-1] if self.turns else None

    def add(self, turn):
        self.turns.append(turn)
        self.name = turn.about.get("name", self.name)


# ---- facts, chat, names ---------------------------------------------------------------------

def lookup(category, table, always_trained):
    """Questions of at most `always_trained` words are what everybody types: never held out."""
    def make(rng, talk):
        name, patterns, answers, has, lacks = rng.choice(table)
        text = dress(rng, small_letters(rng, expand(rng, rng.choice(patterns))), category == "chat")
        key = normalise(text)
        if len(key.split()) <= always_trained:
            key = None
        return Turn(text, rng.choice(answers), category, {"has": has, "lacks": lacks}, key,
                    {"fact": name})
    return make


def flag(rng, talk):
    name, settings, answers, has = rng.choice(facts.FLAGS)
    if rng.random() < 0.5:
        text = expand(rng, rng.choice(facts.FLAG_QUESTIONS), flag=name)
    else:
        text = expand(rng, rng.choice(facts.SETTING_QUESTIONS), setting=rng.choice(settings))
    text = dress(rng, small_letters(rng, text))
    return Turn(text, rng.choice(answers), "flags", {"has": has}, normalise(text),
                {"fact": name, "and": "flag"})


def endpoint(rng, talk):
    path, purposes, answers, has = rng.choice(facts.ENDPOINTS)
    if rng.random() < 0.6:
        text = expand(rng, rng.choice(facts.ENDPOINT_QUESTIONS), path=path)
    else:
        text = expand(rng, rng.choice(facts.PURPOSE_QUESTIONS), purpose=rng.choice(purposes))
    text = dress(rng, small_letters(rng, text))
    return Turn(text, rng.choice(answers), "endpoints", {"has": has}, normalise(text),
                {"fact": path, "and": "endpoint"})


def any_name(rng):
    name = rng.choice(words.NAMES) if rng.random() < 0.7 else words.made_up(rng).capitalize()
    return name.casefold() if rng.random() < 0.15 else name


TELL_NAME = [
    "[|hello, |hi, |hey, |hi there, |good morning, ]my name is {name}", "[|hello, |hi, |hey, ]I'm {name}",
    "[|please |you can |just ]call me {name}", "[hello|hi|hey], this is {name}", "my friends call me {name}",
    "the name is {name}", "[|hello, |hi, ]I am called {name}", "remember my name: {name}",
    "my name is {name}, [nice to meet you|what is yours|and I am new here|remember that]",
]
ASK_NAME = [
    "what is my name", "what's my name", "do you [know|remember] my name", "who am I", "what am I called",
    "[can you|please] tell me my name", "tell me my name", "what did I say my name was", "say my name",
    "do you [know|remember] who I am", "and what is my name [again|]", "what was my name [again|]",
    "[how|by what name] do I call myself", "my name is what",
]


def tell_name(rng, talk):
    name = any_name(rng)
    text = dress(rng, expand(rng, rng.choice(TELL_NAME), name=name), plain=True)
    return Turn(text, f"Nice to meet you, {name}.", "name", {"has": [[name]], "lacks": ["not know"]},
                normalise(text), {"name": name})


def ask_name(rng, talk):
    text = dress(rng, small_letters(rng, expand(rng, rng.choice(ASK_NAME))))
    key = f"name|{talk.name or ''}|{normalise(text)}"
    if talk.name:
        return Turn(text, f"Your name is {talk.name}.", "name",
                    {"has": [["your name is " + talk.name]]}, key)
    return Turn(text, "I do not know your name. You have not told me.", "name", DO_NOT_KNOW, key)


# ---- arithmetic -----------------------------------------------------------------------------

SUMS = {
    "+": ["{a} + {b}", "{a}+{b}", "{a} + {b} =", "[what is|what's|how much is|calculate|compute] {a} [+|plus] {b}",
          "[what is|what's|how much is] {a}+{b}", "add {a} and {b}", "{a} plus {b}", "add {b} to {a}",
          "[what is |what's |]the sum of {a} and {b}", "what do you get when you add {a} and {b}",
          "[can you|please] [add|sum] {a} and {b}", "what does {a} plus {b} [make|give|equal]"],
    "-": ["{a} - {b}", "{a}-{b}", "{a} - {b} =", "[what is|what's|how much is|calculate|compute] {a} [-|minus] {b}",
          "[what is|what's|how much is] {a}-{b}", "subtract {b} from {a}", "{a} minus {b}", "take {b} [away |]from {a}",
          "[what is |what's |]the difference between {a} and {b}", "what is left of {a} when you take away {b}",
          "[can you|please] subtract {b} from {a}", "what does {a} minus {b} [make|give|equal]"],
    "*": ["{a} * {b}", "{a}*{b}", "{a} x {b}", "{a} times {b}", "[what is|what's|how much is|calculate] {a} [*|x|times] {b}",
          "multiply {a} [and|by|with] {b}", "[what is |]the product of {a} and {b}", "[what is|calculate] {a}*{b}",
          "what do you get when you multiply {a} and {b}", "what does {a} times {b} [make|give|equal]"],
}
AND_SUMS = {
    "+": ["[and |now |then |]plus {b}", "[and |now |then ]add {b} [|to that|to it]", "[and |]+ {b}", "plus {b} more",
          "what if [I|you|we] add {b}", "[and |]{b} more", "add {b} to [that|it|the result]"],
    "-": ["[and |now |then |]minus {b}", "[and |now |then ]subtract {b} [|from that|from it]", "[and |]- {b}",
          "[now |and |then |]take away {b}", "[and |]{b} less", "what if [I|you|we] [subtract|take away] {b}"],
    "*": ["[and |now |then |]times {b}", "[and |now |then ]multiply [that|it|the result] by {b}", "[and |]* {b}"],
}
APPLY = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


def sum_key(sign, a, b, text):
    """Pairs of numbers are held out whatever the wording, except the small ones of a table."""
    if sign == "*" or max(a, b) <= 10:
        return f"{a}|{normalise(text)}"
    if sign == "+":
        a, b = sorted((a, b))
    return f"{a} {sign} {b}"


def sum_turn(sign, a, b, text, category):
    result = APPLY[sign](a, b)
    about = {"sum": f"{a} {sign} {b} = {result}.", "result": result}
    return Turn(text, about["sum"], category, {"number": result}, sum_key(sign, a, b, text), about)


def spoken(rng, a, b):
    if max(a, b) <= 12 and rng.random() < 0.2:
        return words.NUMBER_WORDS[a], words.NUMBER_WORDS[b]
    return a, b


def operand(rng):
    top = rng.choice((10, 20, MAX_SUM, MAX_SUM, MAX_SUM))
    return rng.randint(0, top)


def arithmetic(sign, category):
    def make(rng, talk):
        if sign == "*":
            a, b = rng.randint(0, MAX_FACTOR), rng.randint(0, MAX_FACTOR)
        else:
            a, b = operand(rng), operand(rng)
        if sign == "-" and a < b and rng.random() < 0.8:
            a, b = b, a
        said_a, said_b = spoken(rng, a, b)
        text = dress(rng, expand(rng, rng.choice(SUMS[sign]), a=said_a, b=said_b))
        return sum_turn(sign, a, b, text, category)
    return make


def and_sum(rng, talk):
    result = talk.last.about.get("result") if talk.last else None
    if result is None or result < 0:
        return None
    sign = rng.choice("++--*") if result <= MAX_FACTOR else rng.choice("+-")
    b = rng.randint(0, MAX_FACTOR) if sign == "*" else operand(rng)
    if sign == "-" and b > result:
        b = rng.randint(0, result)
    text = dress(rng, expand(rng, rng.choice(AND_SUMS[sign]), b=b), plain=True)
    if result > MAX_SUM:
        return too_hard(text, f"{result}|{normalise(text)}")
    return sum_turn(sign, result, b, text, "follow-up sum")


def sure(rng, talk):
    if not talk.last or "sum" not in talk.last.about:
        return None
    text = dress(rng, expand(rng, "[are you [|really |quite |very ]sure[| about that| of that]|is that [right|correct|true]|"
                                  "are you certain[| about that]|did you check that|can you check that]"))
    said = talk.last.about["sum"]
    return Turn(text, f"Yes: {said}", "follow-up sum", {"has": [["yes"], [said]]},
                f"sure|{said}|{normalise(text)}", dict(talk.last.about))


def too_hard(text, key):
    answer = (f"I do not know. I add and subtract numbers up to {MAX_SUM} and multiply up to "
              f"{MAX_FACTOR} times {MAX_FACTOR}.")
    return Turn(text, answer, "too hard", {"has": [["do not know"]], "lacks": ["="]}, key)


def hard_sum(rng, talk):
    kind = rng.randrange(4)
    sign = rng.choice("+-*")
    a, b = rng.randint(100, 99999) // rng.choice((1, 1, 10, 100)), operand(rng)
    a = max(a, 100)
    if kind == 0:
        text = expand(rng, rng.choice(SUMS[sign]), a=a, b=b)
    elif kind == 1:
        text = expand(rng, rng.choice(SUMS[sign]), a=b, b=a)
    elif kind == 2:
        a, b = rng.randint(11, 99), rng.randint(2, 99)
        a, b = rng.choice(((a, b), (b, a)))
        text = expand(rng, rng.choice(SUMS["*"]), a=a, b=b)
    else:
        a, b = rng.randint(0, 99), rng.randint(1, 99)
        text = expand(rng, "[[what is |how much is |]{a} [/|divided by] {b}|divide {a} by {b}|"
                           "[what is |]the square root of {a}|{a} to the power of {b}|[what is |]{a} ^ {b}]", a=a, b=b)
    text = dress(rng, text)
    return too_hard(text, normalise(text))


def compare(rng, talk):
    a, b = operand(rng), operand(rng)
    if a == b:
        return None
    low, high = sorted((a, b))
    key = f"{low} or {high}" if high > 10 else None
    if rng.random() < 0.6:
        text = expand(rng, "[[which|what] [number |]is [bigger|larger|greater|more][:|,] {a} or {b}|is {a} [bigger|larger|greater|more] than {b}"
                           "|what is the [bigger|larger] number[:|,] {a} or {b}]", a=a, b=b)
        answer, has = f"{high} is bigger than {low}.", [[f"{high} is bigger than {low}."]]
    else:
        text = expand(rng, "[[which|what] [number |]is [smaller|less|lower][:|,] {a} or {b}|is {a} [smaller|less|lower] than {b}"
                           "|what is the [smaller|lower] number[:|,] {a} or {b}]", a=a, b=b)
        answer, has = f"{low} is smaller than {high}.", [[f"{low} is smaller than {high}."]]
    text = dress(rng, text)
    return Turn(text, answer, "numbers", {"has": has}, key or normalise(text))


def neighbour(rng, talk):
    a = rng.randint(1, 99)
    kind = rng.randrange(3)
    if kind == 0:
        text = expand(rng, "[[which|what] number [comes|is] [right |]after {a}|what comes after {a}]", a=a)
        answer = f"{a + 1} comes after {a}."
    elif kind == 1:
        text = expand(rng, "[[which|what] number [comes|is] [right |]before {a}|what comes before {a}]", a=a)
        answer = f"{a - 1} comes before {a}."
    else:
        text = expand(rng, "[is {a} [even or odd|odd or even|an even number|an odd number|even|odd]|even or odd: {a}]", a=a)
        answer = f"{a} is {'odd' if a % 2 else 'even'}."
    text = dress(rng, text)
    return Turn(text, answer, "numbers", {"has": [[answer]]}, normalise(text))


# ---- words ----------------------------------------------------------------------------------

def _pairs_both_ways(text):
    pairs = {}
    for a, b in words.groups(text):
        pairs.setdefault(a, b)
        pairs.setdefault(b, a)
    return pairs


OPPOSITE = _pairs_both_ways(words.OPPOSITES)
PLURAL = dict(words.groups(words.PLURALS))
RHYME = {word: [w for w in group if w != word] for group in words.groups(words.RHYMES) for word in group}
IT = "[the word |||]"


def spelled(word):
    return "-".join(word)


def _letter_count(rng, word):
    letter = rng.choice(word) if rng.random() < 0.85 else rng.choice("aeiostrn")
    n = word.count(letter)
    times = "1 time" if n == 1 else f"{n} times"
    text = expand(rng, "[how many [letters |]{c}[||s|'s] are [|there ]in {it}{w}|count the [letter |letters ]{c} in {it}{w}|"
                       "how often [does|is] [the letter |]{c} [|occur |appear ]in {it}{w}|how many times does {c} appear in {it}{w}]",
                  c=letter, w="{w}", it="{it}")
    answer = f"{spelled(word)}: {letter} appears {times}."
    return text, answer, [[f"{letter} appears {times}"]]


# kind: (words, patterns, answer(word), what an answer must have)
GAMES = {
    "opposite": (sorted(OPPOSITE), [
        "[what is|what's|tell me|give me|name] the opposite of {it}{w}", "opposite of {w}", "the opposite of {w}",
        "[which|what] word is the opposite of {w}", "what is the [contrary|antonym] of {it}{w}",
    ], lambda w: f"The opposite of {w} is {OPPOSITE[w]}.", lambda w: [[f"is {OPPOSITE[w]}."]]),
    "plural": (sorted(PLURAL), [
        "[what is|what's|tell me|give me] the plural of {it}{w}", "plural of {w}", "the plural of {w}",
        "[one {w}, two what|what is more than one {w} called]", "what do you call [more than one|several|many] {w}",
    ], lambda w: f"The plural of {w} is {PLURAL[w]}.", lambda w: [[f"is {PLURAL[w]}."]]),
    "first letter": (words.WORDS, [
        "[what is|what's|tell me|name] the first letter [of|in] {it}{w}", "first letter of {w}",
        "[which|what] letter does {it}{w} [start|begin] with", "what does {it}{w} [start|begin] with",
    ], lambda w: f"The first letter of {w} is {w[0]}.", lambda w: [[f"is {w[0]}."]]),
    "last letter": (words.WORDS, [
        "[what is|what's|tell me|name] the last letter [of|in] {it}{w}", "last letter of {w}",
        "[which|what] letter does {it}{w} end with", "what does {it}{w} end with",
    ], lambda w: f"The last letter of {w} is {w[-1]}.", lambda w: [[f"is {w[-1]}."]]),
    "spelling": (words.WORDS, [
        "spell {it}{w}", "how do you spell {it}{w}", "[can|could] you spell {it}{w}", "how is {it}{w} spelled",
        "[please |]spell {w} for me", "what is the spelling of {w}", "how do I [spell|write] {it}{w}",
    ], lambda w: f"{w} is spelled {spelled(w)}.", lambda w: [[f" {spelled(w)}."]]),
    "length": (words.WORDS, [
        "how many letters [does|has] {it}{w} [have|]", "how long is the word {w}", "count the letters [of|in] {it}{w}",
        "[what is|tell me] the number of letters in {it}{w}", "how many letters are [|there ]in {it}{w}",
    ], lambda w: f"{spelled(w)} has {len(w)} letters.", lambda w: [[f"has {len(w)} letters"]]),
    "rhyme": (sorted(RHYME), [
        "what rhymes with {it}{w}", "[tell me|give me|name|find] a [word that rhymes with|rhyme for] {w}",
        "[which|what] word rhymes with {w}", "a rhyme for {w}", "do you know a rhyme for {w}",
    ], lambda w: f"{RHYME[w][0]} rhymes with {w}.", lambda w: [[f"{r} rhymes with {w}" for r in RHYME[w]]]),
}


def quoted(rng, text, word):
    shown = word if rng.random() < 0.8 else rng.choice(('"%s"', "'%s'")) % word
    return expand(rng, text, w=shown, it=lambda r: expand(r, IT) + " ")


def game_turn(rng, kind, word, text=None, context=""):
    if kind == "letter count":
        pattern, answer, has = _letter_count(rng, word)
    else:
        _, patterns, reply, needs = GAMES[kind]
        pattern, answer, has = rng.choice(patterns), reply(word), needs(word)
    if text is None:
        text = dress(rng, small_letters(rng, quoted(rng, pattern, word)))
    return Turn(text, answer, kind, {"has": has}, context + normalise(text), {"and": kind})


def game(kind):
    def make(rng, talk):
        return game_turn(rng, kind, rng.choice(GAMES[kind][0] if kind in GAMES else words.WORDS))
    return make


def strange_word(rng, talk):
    word = rng.choice(words.STRANGE) if rng.random() < 0.4 else words.made_up(rng)
    if word in words.WORDS or word in OPPOSITE or word in RHYME or word in PLURAL:
        return None
    pattern = rng.choice(GAMES[rng.choice(sorted(GAMES))][1])
    text = dress(rng, small_letters(rng, quoted(rng, pattern, word)))
    return Turn(text, "I do not know that word.", "strange word", DO_NOT_KNOW, normalise(text))


def sequence(rng, talk):
    kind = rng.randrange(3)
    line, noun = ((words.DAYS, "day"), (words.MONTHS, "month"), (list(string.ascii_lowercase), "letter"))[kind]
    i, step = rng.randrange(len(line)), rng.choice((1, -1))
    if kind == 2 and not 0 <= i + step < len(line):
        return None
    side = "after" if step > 0 else "before"
    answer = f"{line[(i + step) % len(line)]} comes {side} {line[i]}."
    text = expand(rng, "[[which|what] {noun} [comes|is] [right |]{side} {x}|what is the {noun} {side} {x}|"
                       "[name|tell me] the {noun} {side} {x}|the {noun} {side} {x}]", noun=noun, side=side, x=line[i])
    text = dress(rng, small_letters(rng, text))
    return Turn(text, answer, "order", {"has": [[answer]]}, normalise(text))


# ---- follow-ups that look back --------------------------------------------------------------

ELLIPSIS = "[and {x}|what about {x}|and what about {x}|how about {x}|{x}|now {x}|and for {x}|same for {x}]"


def and_this(rng, talk):
    """'and --port?', 'what about dog?': the same question about something else."""
    kind = talk.last.about.get("and") if talk.last else None
    if kind is None:
        return None
    context = f"and|{kind}|"
    if kind in ("flag", "endpoint"):
        name, _, answers, has = rng.choice(facts.FLAGS if kind == "flag" else facts.ENDPOINTS)
        text = dress(rng, expand(rng, ELLIPSIS, x=name), plain=True)
        category = kind + "s"
        return Turn(text, rng.choice(answers), category, {"has": has}, context + normalise(text), {"and": kind})
    if kind == "letter count":
        return None
    word = rng.choice(GAMES[kind][0])
    text = dress(rng, expand(rng, ELLIPSIS, x=word), plain=True)
    return game_turn(rng, kind, word, text, context)


ASK_BEFORE = ["what did I [ask|say] [before|just now|last|]", "what was my [last|previous] [question|message]",
              "what was [the question|my question]", "do you remember [what I asked|my last question|my question]",
              "[repeat|tell me|quote] my [last |]question", "what have I just asked", "what did I [just|last] ask"]
ASK_AGAIN = ["[say|tell me] that again", "[please |can you |could you |]repeat that", "repeat [your|the|your last] answer",
             "what did you [say|answer]", "what was your [last |]answer", "again", "say it again", "once more",
             "pardon", "come again", "I did not [get|catch|hear] that", "repeat"]
ASK_FIRST = ["what was my first [question|message]", "what did I [ask|say] first", "what did I ask at the [beginning|start]",
             "[tell me|repeat] my first question", "how did [this conversation|we|I] [start|begin]"]


def looks_back(rng, patterns, context):
    text = dress(rng, small_letters(rng, expand(rng, rng.choice(patterns))), plain=rng.random() < 0.7)
    return text, f"{normalise(text)}|{normalise(context)}"


def ask_before(rng, talk):
    if not talk.last:
        text, key = looks_back(rng, ASK_BEFORE, "")
        answer = "You have not asked anything yet."
        return Turn(text, answer, "memory", {"exact": [answer]}, key)
    said = talk.last.user
    if len(said) > 70 or '"' in said:
        return None
    text, key = looks_back(rng, ASK_BEFORE, said)
    return Turn(text, f'You asked: "{said}"', "memory", {"has": [[f'"{said}"']]}, key)


def ask_first(rng, talk):
    if len(talk.turns) < 2 or len(talk.turns) > 8:
        return None
    said = talk.turns[0].user
    if len(said) > 70 or '"' in said:
        return None
    text, key = looks_back(rng, ASK_FIRST, said)
    return Turn(text, f'You first asked: "{said}"', "memory", {"has": [[f'"{said}"']]}, key)


def ask_again(rng, talk):
    if not talk.last or len(talk.last.answer) > 130:
        return None
    said = talk.last.answer
    text, key = looks_back(rng, ASK_AGAIN, talk.last.user)
    return Turn(text, said, "memory", {"exact": [said]}, key, dict(talk.last.about))


# ---- everything else ------------------------------------------------------------------------

def _slots(table):
    lists = {name: unknown.split(text) for name, text in table.items()}
    return {name: (lambda r, values=values: r.choice(values)) for name, values in lists.items()}


def _fill(rng, pattern, slots):
    for _ in range(3):  # a slot's value may be chosen inside alternatives
        pattern = expand(rng, pattern, **slots)
    return pattern


SEEN_SLOTS = {**_slots(unknown.SLOTS), "made": words.made_up, "number": lambda r: r.randint(2, 9999)}
UNSEEN_SLOTS = {**SEEN_SLOTS, **_slots(unknown.UNSEEN_SLOTS)}


def not_known(rng, talk):
    text = _fill(rng, rng.choice(unknown.SEEN), SEEN_SLOTS)
    text = dress(rng, small_letters(rng, text))
    return Turn(text, rng.choice(unknown.ANSWERS), "unknown", DO_NOT_KNOW, normalise(text))


def not_known_unseen(rng, talk):
    text = _fill(rng, rng.choice(unknown.UNSEEN), UNSEEN_SLOTS)
    text = dress(rng, small_letters(rng, text), plain=True)
    return Turn(text, rng.choice(unknown.ANSWERS), "unknown, unseen kinds", DO_NOT_KNOW, normalise(text))


SYSTEM = [
    "You are a [helpful|friendly|polite|kind|small|] assistant.", "You are InferFlux demo.", "You are the InferFlux demo model.",
    "You are a helpful assistant. [Answer briefly.|Be concise.|Answer in English.|Be honest.|Do not lie.]",
    "[Answer|Reply] [briefly|in one sentence|politely|shortly|honestly].", "Be [brief|kind|honest|concise|polite].",
    "You are a [chatbot|language model|bot|server|test model].", "You are {name}, [an|a helpful] assistant.",
    "[Help the user.|Answer the user's questions.|Today is a nice day.|This is a test.]",
]

# (generator, how often)
OPENERS = [
    (lookup("chat", facts.CHAT, 2), 9), (lookup("about itself", facts.SELF, 4), 10),
    (lookup("about InferFlux", facts.PRODUCT, 4), 26), (flag, 6), (endpoint, 7), (tell_name, 5), (ask_name, 3),
    (arithmetic("+", "addition"), 13), (arithmetic("-", "subtraction"), 11),
    (arithmetic("*", "multiplication"), 5), (hard_sum, 4), (compare, 3), (neighbour, 2),
    (game("opposite"), 3), (game("plural"), 2), (game("first letter"), 2), (game("last letter"), 2),
    (game("spelling"), 3), (game("length"), 3), (game("letter count"), 4), (game("rhyme"), 2),
    (strange_word, 4), (sequence, 2), (not_known, 20),
]
LOOKING_BACK = [(and_sum, 20), (sure, 4), (and_this, 14), (ask_name, 6), (ask_before, 5), (ask_again, 4), (ask_first, 3)]
MEASURED_TOO = [(not_known_unseen, 4)]


def next_turn(rng, talk, held_out):
    """A turn on the wanted side of the split."""
    openers = OPENERS + MEASURED_TOO if held_out else OPENERS
    while True:
        back = talk.turns and rng.random() < 0.4
        table = LOOKING_BACK if back else openers
        maker = rng.choices([m for m, _ in table], [w for _, w in table])[0]
        for _ in range(60):  # stay with the choice, or rare sides of the split would tilt the mix
            turn = maker(rng, talk)
            if turn is None:
                break
            out = turn.key is not None and is_held_out(turn.key)
            if out == held_out or (held_out and maker is not_known_unseen):
                return turn


def dialogue(rng, n_turns, held_out=False):
    """{"system": text or None, "turns": [Turn]}"""
    talk = Talk()
    system = None
    if rng.random() < 0.25:
        system = expand(rng, rng.choice(SYSTEM), name=rng.choice(words.NAMES)).replace(" .", ".")
    for _ in range(n_turns):
        talk.add(next_turn(rng, talk, held_out))
    return {"system": system, "turns": talk.turns}


def dialogues(seed, count, held_out=False, max_turns=6):
    """`count` dialogues of 1..max_turns turns, short ones more often."""
    for i in range(count):
        rng = random.Random(f"{seed}/{i}/{held_out}")
        n = min(rng.randint(1, max_turns), rng.randint(1, max_turns))
        yield dialogue(rng, n, held_out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", default="demo", help="any text")
    p.add_argument("--count", type=int, default=10, help="how many dialogues")
    p.add_argument("--max-turns", type=int, default=6)
    p.add_argument("--held-out", action="store_true", help="from the part that is never trained")
    p.add_argument("--text", action="store_true", help="for reading, instead of one JSON object a line")
    args = p.parse_args()
    for d in dialogues(args.seed, args.count, args.held_out, args.max_turns):
        if not args.text:
            print(json.dumps({"system": d["system"], "turns": [asdict(t) for t in d["turns"]]}))
            continue
        if d["system"]:
            print("system:", d["system"])
        for t in d["turns"]:
            print(f"user:   {t.user}\nmodel:  {t.answer}    ({t.category})")
        print()


if __name__ == "__main__":
    main()
