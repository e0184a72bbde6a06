"""Expands patterns with alternatives and slots, and varies case and punctuation."""

import functools
import hashlib
import re

HELD_OUT_ONE_IN = 10


def _parse(text, i, stop):
    """Parses literals, {slots} and [alternatives|...] up to one of the characters in `stop`."""
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
            parts.append((text[i + 1 : end],))
            i = end + 1
        else:
            literal.append(text[i])
            i += 1
    flush()
    return parts, i


@functools.lru_cache(maxsize=4096)
def _parts(pattern):
    return _parse(pattern, 0, "")[0]


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
    """Expands a pattern: '[hi|hello] {name}' -> 'hello Anna'."""
    out = []
    _walk(rng, _parts(pattern), slots, out)
    return " ".join("".join(out).split())


def normalise(text):
    """Normal form of a wording, without case and punctuation."""
    return " ".join(re.findall(r"[^\W_]+|[-+*/=<>]", text.casefold()))


def is_held_out(key):
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_ONE_IN == 0


ASKING = (
    "what which how who where when why is are can could does do did will would should at on in "
    "must may has have what's how's under"
).split()
BEFORE = [
    "please, ",
    "please ",
    "hey, ",
    "hi, ",
    "hello, ",
    "so, ",
    "well, ",
    "quick question: ",
    "I have a question: ",
    "tell me, ",
    "say, ",
    "ok, ",
    "and ",
    "question: ",
    "now, ",
    "InferFlux, ",
    "I wonder, ",
    "one more thing: ",
    "excuse me, ",
]
AFTER = [" please", ", please", ", thanks", " now", ", my friend"]


def dress(rng, text, plain=False):
    """Varies a wording as users type it: prefix, case, punctuation."""
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
