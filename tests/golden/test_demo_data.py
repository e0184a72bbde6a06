#!/usr/bin/env python3
"""The dialogues of the demo model: the same seed writes the same ones, nothing measured is
trained, an expectation accepts what is right and refuses what is not, and the vocabulary gives
every text back. Standard library only."""

import os
import sys
import traceback

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools", "demo"))

import facts  # noqa: E402
import games  # noqa: E402
import generate  # noqa: E402
import sums  # noqa: E402
import tokenizer  # noqa: E402
import unknown  # noqa: E402
import words  # noqa: E402
from patterns import is_held_out, normalise  # noqa: E402
from talk import check  # noqa: E402

N = 2000


def turns(seed, held_out=False, count=N):
    return [t for d in generate.dialogues(seed, count, held_out) for t in d["turns"]]


def known():
    """Every fact as (name, answers, expectation)."""
    for name, _, answers, has, lacks in facts.PRODUCT + facts.SELF + facts.CHAT:
        yield name, answers, {"has": has, "lacks": lacks}
    for name, _, answers, has in facts.FLAGS + facts.ENDPOINTS:
        yield name, answers, {"has": has}


def test_same_seed_same_dialogues():
    assert turns("a") == turns("a")
    assert turns("a", True) == turns("a", True)
    assert turns("a") != turns("b")


def test_held_out_and_trained_are_disjoint():
    trained = {t.key for t in turns("train", count=3 * N)}
    asked = turns("measure", held_out=True)
    assert not [t.key for t in asked if t.key in trained]
    unseen = [t for t in asked if t.category == "unknown, unseen kinds"]
    assert all(is_held_out(t.key) for t in asked if t not in unseen)
    assert not {t.category for t in turns("train")} & {"unknown, unseen kinds"}


def test_held_out_covers_every_category():
    trained = {t.category for t in turns("train")}
    assert trained <= {t.category for t in turns("measure", held_out=True, count=2 * N)}


def test_reference_answers_are_right():
    for t in turns("a") + turns("measure", held_out=True):
        assert check(t.expect, t.answer), t


def test_wrong_answers_are_refused():
    for t in turns("a"):
        assert not check(t.expect, ""), t
        if "do not know" not in t.answer.casefold():
            assert not check(t.expect, unknown.ANSWERS[0]), t
        elif "can" not in t.about.get("fact", ""):
            assert not check(t.expect, "Hello! How can I help?"), t
        if "number" in t.expect:
            wrong = t.answer.replace(f"= {t.expect['number']}.", f"= {t.expect['number'] + 1}.")
            assert wrong != t.answer and not check(t.expect, wrong), t


def test_a_fact_is_not_answered_by_another():
    same = [{"port", "--port"}, {"language", "no_python"}]  # either answers both
    for name, _, expect in known():
        for other, answers, _ in known():
            if other != name and {name, other} not in same:
                assert not [a for a in answers if check(expect, a)], (name, other)


def test_one_question_has_one_answer():
    """Without a history, the same wording must not be right in two different ways."""
    right = {}
    for d in generate.dialogues("ambiguous", 5 * N, max_turns=1):
        t = d["turns"][0]
        if t.category != "name":
            assert right.setdefault(normalise(t.user), t.expect) == t.expect, t


def test_sums_are_right():
    for sign, apply in sums.APPLY.items():
        assert sums.sum_turn(sign, 7, 3, "", "").expect["number"] == apply(7, 3)
    assert check({"number": -18}, "12 - 30 = -18.")
    assert check({"number": 4}, "9-5=4")
    assert not check({"number": 18}, "12 - 30 = -18.")
    assert not check({"number": 4}, "4 + 4 = 8.")
    assert sums.sum_key("+", 47, 38, "a") == sums.sum_key("+", 38, 47, "b")
    assert sums.sum_key("-", 47, 38, "a") == sums.sum_key("-", 47, 38, "b")


def test_counts_of_letters_are_right():
    for t in turns("a"):
        if t.category == "letter count":
            word, _, rest = t.answer.partition(": ")
            letter, n = rest.split()[0], int(rest.split()[2])
            assert word.split("-").count(letter) == n, t


def test_lists_are_clean():
    assert len(words.WORDS) == len(set(words.WORDS))
    assert not set(words.STRANGE) & (set(words.WORDS) | set(games.OPPOSITE) | set(games.RHYME))
    for word, opposite in games.OPPOSITE.items():
        assert word != opposite
    for name, lines in unknown.UNSEEN_SLOTS.items():
        assert not set(unknown.split(lines)) & set(unknown.split(unknown.SLOTS[name])), name
    assert not set(unknown.UNSEEN) & set(unknown.SEEN)


def test_vocabulary_gives_every_text_back():
    text = [x for t in turns("a", count=300) for x in (t.user, t.answer)]
    counts = {}
    for piece in (p for x in text for p in tokenizer.cut(x)):
        counts[piece] = counts.get(piece, 0) + 1
    t = tokenizer.Tokenizer(tokenizer.learn(counts, 200))
    assert len(t.tokens) == len(set(t.tokens)) == 256 + 200 + len(tokenizer.CONTROL)
    for x in text + ["", "a\n\n b", "你好 <|im_end|> \x00\x7f", "ÿ  \t x_y '"]:
        assert "".join(tokenizer.cut(x)) == x
        assert t.decode(t.encode(x)) == x
        assert not set(t.encode(x)) & {t.start, t.end, t.end_of_text}
    assert t.encode("12") == t.encode("1") + t.encode("2")


def main():
    passed = failed = 0
    for name, test in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            passed += 1
        except Exception:
            print(name)
            traceback.print_exc(file=sys.stdout)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
