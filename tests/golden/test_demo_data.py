#!/usr/bin/env python3
"""Dialogues for the demo model: they are deterministic for a seed, no evaluated dialogue is
trained, expectations accept right and reject wrong answers, calls match the offered tools,
and the vocabulary encodes every text without loss. Standard library only."""

import functools
import os
import random
import sys
import traceback

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools", "demo"))

import chat  # noqa: E402
import deeds  # noqa: E402
import facts  # noqa: E402
import games  # noqa: E402
import generate  # noqa: E402
import measure  # noqa: E402
import sums  # noqa: E402
import thoughts  # noqa: E402
import tokenizer  # noqa: E402
import tools  # noqa: E402
import unknown  # noqa: E402
import words  # noqa: E402
from patterns import is_held_out, normalise  # noqa: E402
from talk import check, check_thinking  # noqa: E402

N = 2000


@functools.lru_cache
def make_dialogues(seed, held_out=False, count=N):
    return list(generate.dialogues(seed, count, held_out))


def turns(seed, held_out=False, count=N):
    return [t for d in make_dialogues(seed, held_out, count) for t in d["turns"]]


def with_tools(seed, held_out=False):
    return [d for d in make_dialogues(seed, held_out) if d["tools"]]


def visible_text(turn):
    """Returns what the model has to write, without its reasoning."""
    return turn.answer + chat.calls_text(turn.calls)


def all_facts():
    """Yields every fact as (name, answers, expectation)."""
    for name, _, answers, has, lacks in facts.PRODUCT + facts.SELF + facts.CHAT:
        yield name, answers, {"has": has, "lacks": lacks}
    for name, _, answers, has in facts.FLAGS + facts.ENDPOINTS:
        yield name, answers, {"has": has}


def test_same_seed_same_dialogues():
    for held_out in (False, True):
        assert make_dialogues("a", held_out) == list(generate.dialogues("a", N, held_out))
    assert make_dialogues("a", count=50) != make_dialogues("b", count=50)


def test_held_out_and_trained_are_disjoint():
    trained = {t.key for t in turns("train", count=2 * N)}
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
        assert check(t.expect, visible_text(t)), t


def test_wrong_answers_are_rejected():
    for t in turns("a"):
        assert not check(t.expect, ""), t
        if "do not know" not in t.answer.casefold():
            assert not check(t.expect, unknown.ANSWERS[0]), t
        elif "has" in t.expect and "can" not in t.about.get("fact", ""):
            assert not check(t.expect, "Hello! How can I help?"), t
        if "number" in t.expect:
            wrong = t.answer.replace(f"= {t.expect['number']}.", f"= {t.expect['number'] + 1}.")
            assert wrong != t.answer and not check(t.expect, wrong), t
        if "calls" not in t.expect:
            call = chat.calls_text([{"name": "x", "arguments": {}}])
            assert not check(t.expect, t.answer + call), t


def test_a_call_is_right_only_when_it_is_exact():
    calls = [{"name": "f", "arguments": {"a": "x", "n": 3}}]
    text = chat.calls_text(calls)
    assert text == '<tool_call>\n{"name": "f", "arguments": {"a": "x", "n": 3}}\n</tool_call>'
    assert check({"calls": calls}, text) and check({"calls": calls}, f"\n{text}\n")
    assert check({"calls": calls * 2}, text + "\n" + text)
    for wrong in (
        "",
        "x",
        text + "x",
        "x" + text,
        text + text,
        text[:-1],
        text.replace("3", '"3"'),
        text.replace('"f"', '"g"'),
        text.replace('"n"', '"m"'),
        text.replace(', "n": 3', ""),
        text.replace("}}", "}"),
        "<tool_call>[]</tool_call>",
    ):
        assert not check({"calls": calls}, wrong), wrong


def test_json_is_right_only_when_it_is_exact():
    expect = {"json": {"name": "Anna", "age": 3}}
    assert check(expect, '{"age": 3, "name": "Anna"}')
    for wrong in ("", '{"name": "Anna", "age": "3"}', '{"name": "Anna"}', "{}", "Anna, 3", "null"):
        assert not check(expect, wrong), wrong


def test_reasoning_is_present_when_requested():
    right = {"has": [["yes"]]}
    assert check_thinking(right, "yes", False)
    assert check_thinking(right, "<think>\nhm\n</think>\n\nyes", True)
    assert not check_thinking(right, "yes", True)
    assert not check_thinking(right, "<think>\n\n</think>\n\nyes", True)
    assert not check_thinking(right, "<think>\n\n</think>\n\nyes", False)
    assert not check_thinking(right, "<think>\nyes\n</think>\n\nyes", False)
    assert not check_thinking(right, "<think>\nyes", True)
    for d in make_dialogues("a"):
        assert all(bool(t.thought) for t in d["turns"]) or not d["think"]
    assert thoughts.of_sum(47, "+", 38, 85) == "7 + 8 = 15, 40 + 30 = 70, 70 + 15 = 85."
    assert thoughts.of_sum(85, "-", 38, 47) == "85 - 30 = 55, 55 - 8 = 47."


TYPES = {"string": str, "integer": int, "boolean": bool}


def fits(schema, value):
    if type(value) is not TYPES[schema["type"]]:
        return False
    return "enum" not in schema or value in schema["enum"]


def test_calls_fit_their_tools():
    for d in with_tools("a") + with_tools("measure", True):
        offered = {t["function"]["name"]: t["function"]["parameters"] for t in d["tools"]}
        assert len(offered) == len(d["tools"]) <= 4
        for c in (c for t in d["turns"] for c in t.calls):
            properties = offered[c["name"]]["properties"]
            assert set(offered[c["name"]].get("required", ())) <= set(c["arguments"]), c
            for name, value in c["arguments"].items():
                assert fits(properties[name], value), (c, properties)


def test_arguments_are_the_words_of_the_user():
    for d in with_tools("a"):
        for t in d["turns"]:
            for value in (v for c in t.calls for v in c["arguments"].values()):
                if isinstance(value, bool):
                    continue
                shown = [str(value)]
                if isinstance(value, int) and value < len(words.NUMBER_WORDS):
                    shown.append(words.NUMBER_WORDS[value])
                assert any(x in t.user for x in shown), (value, t.user)


def test_names_of_tools_are_held_out():
    def names(seed, held_out):
        return {n for d in with_tools(seed, held_out) for n in measure.names_of(d["tools"])}

    trained, asked = names("train", False), names("measure", True)
    assert "get_weather" in trained and len(trained) > 1000 and len(asked) > 500
    assert not trained & asked
    assert all(tools.is_name_held_out(n) for n in asked)
    assert tools.is_name_held_out("getOtherName") == tools.is_name_held_out("get_other-name")


def test_nouns_are_held_out():
    for deed in deeds.DEEDS:
        trained, unseen = tools.nouns_of(deed, False), tools.nouns_of(deed, True)
        assert trained and not set(trained) & set(unseen)
        rng = random.Random(deed)
        drawn = {tools.noun_of(rng, deed, False) for _ in range(2000)}
        assert set(trained) <= drawn and not drawn & set(unseen), deed
        if unseen:
            assert set(unseen) <= {tools.noun_of(rng, deed, True) for _ in range(2000)}, deed
    kinds = {n for deed in deeds.DEEDS for n in tools.nouns_of(deed, True)}
    assert len(kinds) > 60 and not kinds & tools.ALWAYS_NOUNS


def test_a_tool_is_declared_like_its_call():
    properties = {
        "city": {"type": "string", "description": "The city."},
        "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
        "days": {"type": "integer"},
        "on": {"description": "Or off", "type": "boolean", "title": "On"},
        "many": {"type": "array", "items": {"type": "string"}},
    }
    parameters = {"type": "object", "properties": properties, "required": ["city", "on", "many"]}
    shown = chat.tool_text({"name": "f", "description": "Does it.", "parameters": parameters})
    assert shown == (
        '\nDoes it.\n{"name": "f", "arguments": {"city": "string" (The city.), '
        '"unit": "celsius|kelvin"?, "days": integer?, "on": boolean (Or off), '
        '"many": {"type": "array", "items": {"type": "string"}}}}'
    ), shown
    assert chat.tool_text({"name": "f"}) == '\n{"name": "f", "arguments": {}}'


def test_results_answer_calls_and_calls_have_results():
    for d in with_tools("a"):
        for before, turn in zip([None, *d["turns"]], d["turns"]):
            assert len(turn.results) == (len(before.calls) if before else 0), d
        assert not d["turns"][-1].calls


def test_pieces_join_to_one_text_that_starts_with_the_prompt():
    t = tokenizer.Tokenizer([], tokenizer.MARKS)
    for d in generate.dialogues("pieces", 200):
        pieces = chat.pieces(chat.messages_of(d), d["tools"], d["think"])
        whole = "".join(text for text, _ in pieces)
        assert t.encode_marked(whole) == [i for x, _ in pieces for i in t.encode_marked(x)]
        prompt = chat.prompt(chat.messages_of(d, close=False), d["tools"], d["think"])
        assert whole.startswith(prompt)
        assert "".join(x for x, learned in pieces[-2:] if learned) == whole[len(prompt) : -1]


def test_a_fact_does_not_satisfy_another_expectation():
    same = [{"port", "--port"}, {"language", "no_python"}]  # either name answers both questions
    for name, _, expect in all_facts():
        for other, answers, _ in all_facts():
            if other != name and {name, other} not in same:
                assert not [a for a in answers if check(expect, a)], (name, other)


def test_one_question_has_one_answer():
    """Without a history, one wording has one right answer."""
    right = {}
    for d in generate.dialogues("ambiguous", 8 * N, max_turns=1):
        t = d["turns"][0]
        if not d["tools"] and t.category != "name":
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


def test_lists_have_no_duplicates():
    assert len(words.WORDS) == len(set(words.WORDS))
    assert not set(words.STRANGE) & (set(words.WORDS) | set(games.OPPOSITE) | set(games.RHYME))
    for word, opposite in games.OPPOSITE.items():
        assert word != opposite
    for name, lines in unknown.UNSEEN_SLOTS.items():
        assert not set(unknown.split(lines)) & set(unknown.split(unknown.SLOTS[name])), name
    assert not set(unknown.UNSEEN) & set(unknown.SEEN)


def small_vocabulary(n_merges):
    text = [x for t in turns("a", count=300) for x in (t.user, t.answer, *t.results)]
    counts = {}
    for piece in (p for x in text for p in tokenizer.cut(x)):
        counts[piece] = counts.get(piece, 0) + 1
    return tokenizer.Tokenizer(tokenizer.learn(counts, n_merges), tokenizer.MARKS), text


def test_vocabulary_round_trips_every_text():
    t, text = small_vocabulary(200)
    n_special = len(tokenizer.MARKS) + len(tokenizer.CONTROL)
    assert 100 < len(t.merges) <= 200
    assert len(t.tokens) == len(set(t.tokens)) == 256 + len(t.merges) + n_special
    for x in text + ["", "a\n\n b", "你好 <|im_end|> \x00\x7f", "ÿ  \t x_y '", "<tool_call>"]:
        assert "".join(tokenizer.cut(x)) == x
        assert t.decode(t.encode(x)) == x
        assert max(t.encode(x), default=0) < t.n_plain
    assert t.encode("12") == t.encode("1") + t.encode("2")


def test_marks_are_tokens_in_the_template_only():
    t, _ = small_vocabulary(50)
    ids = t.encode_marked("<|im_start|>a<think>b</think>")
    assert ids == [t.start, *t.encode("a"), t.id["<think>"], *t.encode("b"), t.id["</think>"]]
    assert t.decode(ids) == "a<think>b</think>"


def test_new_names_have_the_same_pieces_everywhere():
    """In a vocabulary of frequent words the character before a word is part of its token."""
    t, _ = small_vocabulary(800)
    assert len(t.encode(" the")) == 1
    same = 0
    for i in range(200):
        word = words.made_up(random.Random(i)).capitalize()
        same += t.encode(" " + word)[1:] == t.encode(word) == t.encode("_" + word)[1:]
    assert same >= 190, same


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
