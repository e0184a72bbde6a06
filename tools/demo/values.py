"""Random values for tool parameters and JSON keys; most are invented words."""

import deeds
import words


def pick(rng, text, separator=";"):
    return " ".join(rng.choice(text.split(separator)).split())


def made_name(rng):
    name = words.made_up(rng).capitalize()
    return f"{name} {words.made_up(rng).capitalize()}" if rng.random() < 0.15 else name


def place(rng):
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(deeds.CITIES)
    name = rng.choice(deeds.LONG_PLACES) if kind < 0.48 else made_name(rng)
    return name.casefold() if rng.random() < 0.1 else name


def person(rng):
    name = rng.choice(words.NAMES) if rng.random() < 0.5 else made_name(rng)
    if " " not in name and rng.random() < 0.15:
        name += " " + words.made_up(rng).capitalize()
    return name.casefold() if rng.random() < 0.08 else name


def thing(rng):
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(words.WORDS)
    if kind < 0.55:
        return f"{rng.choice(('red', 'blue', 'old', 'new', 'big'))} {rng.choice(words.WORDS)}"
    name = words.made_up(rng)
    if kind < 0.7:
        name += f"-{rng.randint(1, 99)}"
    elif kind < 0.85:
        name = name.capitalize()
    return name


def code(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return str(rng.randint(100, 99999))
    letters = "".join(rng.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    return f"{letters}{'-' if kind == 1 else ''}{rng.randint(1, 9999)}"


def text(rng):
    kind = rng.random()
    if kind < 0.5:
        return pick(rng, ";".join(deeds.TEXTS))
    if kind < 0.75:
        return f"the {words.made_up(rng)} is {rng.choice(('here', 'late', 'red', 'open', 'gone'))}"
    return " ".join(words.made_up(rng) for _ in range(rng.randint(1, 3)))


def date(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice(words.DAYS)
    if kind == 1:
        return rng.choice(("today", "tomorrow", "tonight", "next week", "this weekend"))
    if kind == 2:
        return f"{rng.choice(words.MONTHS)} {rng.randint(1, 28)}"
    return f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def query(rng):
    if rng.random() < 0.4:
        return f"{words.made_up(rng)} {rng.choice(words.WORDS)}"
    return rng.choice(words.WORDS) if rng.random() < 0.4 else words.made_up(rng)


def integer(rng):
    return rng.randint(0, rng.choice((9, 30, 100, 1000, 5000)))


MAKERS = {
    "place": place, "person": person, "to": person, "thing": thing, "item": thing, "name": thing,
    "source": thing, "target": thing, "code": code, "text": text, "date": date, "query": query,
    "from": lambda r: r.choice(deeds.CONVERTED), "to_unit": lambda r: r.choice(deeds.CONVERTED),
    "room": lambda r: pick(r, ";".join(deeds.ROOMS)),
    "language": lambda r: r.choice(deeds.LANGUAGES),
    "on": lambda r: r.random() < 0.5,
    "days": lambda r: r.randint(2, 14), "limit": lambda r: r.randint(1, 20),
    "count": lambda r: r.randint(2, 40),
    "amount": lambda r: r.randint(1, 999),
}  # fmt: skip
