"""Results of tools in the demo dialogues, and the responses to them."""

import deeds
import words
from chat import as_json
from talk import Turn
from values import code, pick, thing

LOOKUPS = ("of place", "of thing", "of person", "by code")


def something(rng):
    kind = rng.randrange(7)
    if kind == 0:
        return rng.randint(0, 5000)
    if kind == 1:
        return round(rng.uniform(0, 99), 1)
    if kind == 2:
        return f"{rng.randint(1, 99)} {rng.choice(('degrees', 'euro', 'percent', 'points'))}"
    if kind in (3, 4):
        return pick(rng, ";".join(deeds.SAID_RESULTS))
    return words.made_up(rng) if kind == 5 else code(rng)


def said(value):
    return str(value).casefold() if isinstance(value, bool) else str(value)


def listed(rng):
    items = [thing(rng) for _ in range(rng.choice((0, 1, 2, 2, 3, 3)))]
    if not items:
        return "[]", "nothing", ["nothing"]
    words_ = items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
    return as_json(items), words_, items


def fields_of(rng, r, value):
    """JSON object with the value, in some cases an argument of the call, and other fields."""
    out = {}
    if r.arguments and rng.random() < 0.3:
        name = rng.choice(list(r.arguments))
        out[name] = r.arguments[name]
    first = r.tool.noun.replace(" ", "_") if rng.random() < 0.5 else rng.choice(("result", "value"))
    if r.tool.deed not in LOOKUPS:
        first = rng.choice(("status", "result", "state"))
    if first in out:
        return {first: value}
    shown = {first: value}
    for name in rng.sample(deeds.FIELDS, rng.choice((0, 0, 1, 2))):
        if name not in out and name not in shown:
            shown[name] = something(rng)
    return {**out, **shown}


def result_of(rng, r):
    """(tool result, response, [strings that a correct response must contain])"""
    if rng.random() < 0.08:
        why = pick(rng, ";".join(deeds.FAILED))
        raw = as_json({"error": why}) if rng.random() < 0.6 else f"Error: {why}"
        return raw, f"That did not work: {why}.", [why]
    deed = r.tool.deed
    if deed in ("list", "search"):
        raw, words_, must = listed(rng)
    elif deed in ("sum", "product"):
        a, b = r.arguments.values()
        value = a + b if deed == "sum" else a * b
        raw = str(value) if rng.random() < 0.6 else as_json({"result": value})
        words_, must = str(value), [str(value)]
    else:
        does = deed not in LOOKUPS and deed != "convert"
        value = rng.choice(deeds.DONE) if does and rng.random() < 0.7 else something(rng)
        fields = {} if rng.random() < 0.4 or deed == "convert" else fields_of(rng, r, value)
        raw = as_json(fields) if fields else said(value)
        more = [(k, v) for k, v in fields.items() if k not in r.arguments and v is not value]
        words_ = ", ".join([said(value), *(f"{k} {said(v)}" for k, v in more)])
        must = [said(value), *(said(v) for _, v in more)]
    slots = {**r.said, "noun": r.tool.noun, "result": words_}
    answer = deeds.DEEDS[deed].answer
    for slot, value in slots.items():
        answer = answer.replace("{" + slot + "}", value)
    return raw, answer[:1].upper() + answer[1:], must


def result_turn(rng, requests):
    back = [result_of(rng, r) for r in requests]
    answer = " ".join(answer for _, answer, _ in back)
    must = [[m] for _, _, values in back for m in values]
    raws = [raw for raw, _, _ in back]
    return Turn("", answer, "tool result", {"has": must}, requests[0].wording,
                {"requests": requests}, results=raws,
                thought="The result: " + ", ".join(m for [m] in must) + ".")  # fmt: skip
