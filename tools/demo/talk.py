"""A turn of a dialogue, what makes an answer right, and a conversation."""

import json
import re
from dataclasses import dataclass, field
from typing import Optional

from chat import CALL, THINK, parse_calls, split_thought


def check(expect, answer):
    """Is this answer (without its thought) right? See `Turn.expect`."""
    if "calls" in expect:
        return parse_calls(answer) == expect["calls"]
    if CALL in answer or THINK in answer:
        return False
    if "json" in expect:
        return json_of(answer) == (expect["json"], True)
    text = " ".join(answer.casefold().split())
    if "exact" in expect:
        return any(text == " ".join(good.casefold().split()) for good in expect["exact"])
    if "number" in expect:
        found = re.findall(r"(?<![\d])-?\d+", text)
        return bool(found) and int(found[-1]) == expect["number"] and "not know" not in text
    has = all(any(a.casefold() in text for a in group) for group in expect["has"])
    return has and not any(a.casefold() in text for a in expect.get("lacks", []))


def json_of(text):
    """(value, whether it is JSON)"""
    try:
        return json.loads(text), True
    except ValueError:
        return None, False


def check_thinking(expect, answer, think):
    """Right, and with a thought exactly when one is wanted."""
    thought, said = split_thought(answer)
    return bool(thought) == think and (thought is None) != think and check(expect, said)


@dataclass
class Turn:
    """What the user says (or, with results, what tools return) and what is right.

    expect: {"exact": [answers]}, {"number": the last number in the answer}, {"calls": [...]} and
    nothing else, {"json": value}, or {"has": [[alternatives], ...], "lacks": [...]}: one of every
    group must occur, nothing of lacks.
    key: what is held out, or None for wordings that are always trained and never measured.
    about: what a follow-up may refer to.
    """

    user: str
    answer: str
    category: str
    expect: dict
    key: Optional[str]
    about: dict = field(default_factory=dict)
    results: list = field(default_factory=list)
    calls: list = field(default_factory=list)
    thought: str = ""


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
