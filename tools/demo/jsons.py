"""Requests for a small JSON object with given keys, and values given in the text."""

import words
from chat import as_json
from patterns import expand, normalise
from talk import Turn
from values import code, date, made_name, person, place, thing

JOBS = """
baker teacher doctor farmer painter pilot singer cook driver nurse lawyer writer dancer engineer
gardener waiter judge clerk tailor builder
""".split()
COLOURS = "red blue green yellow black white purple pink brown silver gold orange grey".split()
OF_PERSON = {
    "age": (lambda r: r.randint(1, 99), "[is {v} years old|is {v}|is aged {v}]"),
    "city": (place, "[lives in|comes from|is from|is in] {v}"),
    "job": (lambda r: r.choice(JOBS), "[works as a|is a] {v}"),
    "color": (lambda r: r.choice(COLOURS), "likes {v}"),
    "birthday": (date, "was born on {v}"),
    "height": (lambda r: r.randint(50, 210), "is {v} cm tall"),
    "pet": (lambda r: r.choice(words.WORDS[:22]), "has a {v}"),
}
KEYS = """
price size weight color title count status brand id total model year speed length city level
""".split()
ASK = [
    "[give me|write|return|make|answer with|I want|I need|show me] [a |]JSON [object |]with "
    "[the |][keys|fields] {keys}",
    "as JSON with [the |][keys|fields] {keys}",
    "[please |]answer as JSON with [the |][keys|fields] {keys}",
    "[extract|put|turn] {keys} [as|into] JSON",
    "JSON with {keys}",
    "[fill|make] a JSON object with {keys}",
    "[write|give|put] [this|that|it] as JSON with [the |][keys|fields] {keys}",
]


def and_list(items):
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def of_person(rng):
    keys = rng.sample(sorted(OF_PERSON), rng.randint(1, 3))
    if rng.random() < 0.3:
        keys = ["age"]
    name = person(rng)
    values, told = {"name": name}, []
    for key in keys:
        make, says = OF_PERSON[key]
        values[key] = make(rng)
        told.append(expand(rng, says, v=values[key]))
    return values, f"{name} {and_list(told)}"


def of_thing(rng):
    values, told = {}, []
    for _ in range(rng.randint(1, 4)):
        key = rng.choice(KEYS) if rng.random() < 0.5 else words.made_up(rng)
        if key not in values:
            makers = (code, place, thing, made_name, lambda r: r.randint(0, 9999))
            value = rng.choice(makers)(rng)
            values[key] = int(value) if str(value).isdigit() else value
            told.append(f"{rng.choice(('the ', 'the ', 'its ', ''))}{key} is {values[key]}")
    return values, and_list(told)


def json_turn(rng, talk):
    values, told = (of_person if rng.random() < 0.5 else of_thing)(rng)
    keys = list(values)
    if rng.random() < 0.4:
        rng.shuffle(keys)
    ask = expand(rng, rng.choice(ASK), keys="\x01")
    shown = and_list([f'"{k}"' for k in keys] if rng.random() < 0.15 else keys)
    if rng.random() < 0.6:
        text = f"{ask}: {told}"
    else:
        text = f"{told}. {ask}"
    key = "json|" + normalise(ask) + f"|{len(keys)}|{normalise(told[:3])}"
    text = text.replace("\x01", shown)
    if rng.random() < 0.4 and told[0].islower():
        text = text[:1].upper() + text[1:]
    if rng.random() < 0.5:
        text += "."
    wanted = {k: values[k] for k in keys}
    return Turn(text, as_json(wanted), "JSON", {"json": wanted}, key,
                thought=", ".join(f"{k}: {v}" for k, v in wanted.items()))  # fmt: skip
