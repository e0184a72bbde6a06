"""Turns of a dialogue, conditions for correct responses, and the state of a conversation."""

import json
import re
from dataclasses import dataclass, field
from typing import Optional

from chat import CALL, THINK, parse_calls, split_thought


def check(expect, answer):
    """Checks a response without its reasoning; see `Turn.expect`."""
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
    """(parsed value or None, whether the text is valid JSON)"""
    try:
        return json.loads(text), True
    except ValueError:
        return None, False


def check_thinking(expect, answer, think):
    """Checks a response, which must contain reasoning if and only if `think` is set."""
    thought, said = split_thought(answer)
    return bool(thought) == think and (thought is None) != think and check(expect, said)


@dataclass
class Turn:
    """User message (or tool results), and the reference response.

    expect: {"exact": [responses]}, {"number": last number in the response}, {"calls": [...]} without
    other text, {"json": value}, or {"has": [[alternatives], ...], "lacks": [...]}: at least one
    alternative of each group, and no string of `lacks`.
    key: key for the held-out split; None for wordings that are always trained and never measured.
    about: data for follow-ups.
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
    """State of a conversation: its turns and the user's name."""

    def __init__(self):
        self.turns = []
        self.name = None

    @property
    def last(self):
        return self.turns[-1] if self.turns else None

    def add(self, turn):
        self.turns.append(turn)
        self.name = turn.about.get("name", self.name)
