"""A turn of a dialogue, what makes an answer right, and a conversation."""

import re
from dataclasses import dataclass, field
from typing import Optional


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
