"""Tools that do not exist, requests for them, and what comes back.

A tool does one of the deeds of deeds.py to a noun, which is a known word or a made-up one; names,
parameters and values are made up too, so that they can only be copied from the conversation. A
tenth of the tools' names and of the requests' wordings, chosen by a hash, is never trained.
"""

from dataclasses import dataclass

import deeds
import words
from chat import as_json
from patterns import BEFORE, dress, expand, is_held_out, normalise
from talk import Talk, Turn

NO_TOOL = "I do not know. I have no tool for that."
ALWAYS_TRAINED = {"get weather"}
LOOKUPS = ("of place", "of thing", "of person", "by code")
INTEGERS = {"value", "count", "amount", "first", "second", "days", "limit"}


def pick(rng, text, separator=";"):
    return " ".join(rng.choice(text.split(separator)).split())


# ---- values ---------------------------------------------------------------------------------


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


# ---- tools ----------------------------------------------------------------------------------


@dataclass
class Parameter:
    slot: str  # where requests name its value; "" for an optional one
    kind: str
    name: str
    about: str
    choices: tuple  # of an enum
    required: bool

    def schema(self, rng):
        kind = "integer" if self.kind in INTEGERS else "string"
        if self.kind in ("on", "flag"):
            kind = "boolean"
        out = {"type": kind}
        if self.choices and kind == "string":
            out["enum"] = list(self.choices)
        if self.about:
            out["description"] = self.about
        return dict(sorted(out.items())) if rng.random() < 0.1 else out

    def value(self, rng):
        if self.choices:
            return rng.choice(self.choices)
        return MAKERS.get(self.kind, integer)(rng)


@dataclass
class Tool:
    deed: str
    noun: str
    name: str
    schema: dict
    parameters: list


def parameter(rng, slot, kind, taken, choices=(), required=True):
    names, about = deeds.PARAMETERS[kind]
    is_made = rng.random() < 0.1
    while (name := words.made_up(rng) if is_made else rng.choice(names.split())) in taken:
        is_made = rng.random() < 0.3
    taken.add(name)
    if kind == "flag":
        choices = (name,)
    told = expand(rng, about, name=name) if is_made or rng.random() < 0.6 else ""
    return Parameter(slot, kind, name, told, choices, required)


def parameters_of(rng, deed):
    out, taken = [], set()
    for slot, kind in deeds.DEEDS[deed].roles.items():
        choices = tuple(rng.sample(deeds.MODES, rng.randint(2, 4))) if kind == "mode" else ()
        out.append(parameter(rng, slot, kind, taken, choices))
    if deed in deeds.EXTRAS_OF and rng.random() < 0.35:
        kind = rng.choice(deeds.EXTRAS_OF[deed])
        choices = ()
        if kind == "unit":
            choices = tuple(rng.choice(deeds.UNITS).split())
        elif kind == "language" and rng.random() < 0.4:
            choices = tuple(rng.sample(deeds.LANGUAGES, 3))
        out.append(parameter(rng, "", kind, taken, choices, required=False))
    return out


def tool_name(rng, deed, noun):
    verb = rng.choice(deeds.DEEDS[deed].verbs.split())
    kind = rng.random()
    if kind < 0.06:
        parts = [words.made_up(rng)]
    elif kind < 0.14:
        parts = noun.split() if rng.random() < 0.7 else [verb]
    elif kind < 0.18:
        parts = [words.made_up(rng), verb, *noun.split()]
    else:
        parts = [verb, *noun.split()]
    parts = [p.replace("'", "") for part in parts for p in part.replace("-", "_").split("_")]
    style = rng.random()
    if style < 0.7:
        return "_".join(p.casefold() for p in parts)
    if style < 0.88:
        return parts[0].casefold() + "".join(p.capitalize() for p in parts[1:])
    return rng.choice("-.").join(p.casefold() for p in parts)


def is_name_held_out(name):
    key = normalise("".join(" " + c if c.isupper() else c for c in name).replace("-", " "))
    key = key.replace(".", " ")
    return key not in ALWAYS_TRAINED and is_held_out("tool|" + key)


def noun_of(rng, deed):
    noun = pick(rng, deeds.DEEDS[deed].nouns)
    if deed in ("sum", "product", "convert") or rng.random() < 0.85:
        return noun
    made = words.made_up(rng)
    if deed in ("list", "search"):
        made += "s"
    return f"{made} {noun.split()[-1]}" if rng.random() < 0.2 else made


def described(rng, name, about, parameters):
    """The function as clients send it: mostly plain, sometimes with what schemas can also have."""
    properties = {p.name: p.schema(rng) for p in parameters}
    schema = {"type": "object", "properties": properties}
    required = [p.name for p in parameters if p.required]
    if (required or rng.random() < 0.5) and rng.random() < 0.9:
        schema["required"] = required
    if rng.random() < 0.15:
        schema["additionalProperties"] = False
    if rng.random() < 0.04:
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    if rng.random() < 0.1:
        schema = {k: schema[k] for k in sorted(schema, reverse=rng.random() < 0.5)}
    function = {"name": name, "description": about, "parameters": schema}
    if not about:
        del function["description"]
    if rng.random() < 0.1:
        function = {k: function[k] for k in rng.sample(list(function), len(function))}
    if rng.random() < 0.05:
        function["strict"] = True
    return function


def make_tool(rng, deed, noun, held_out):
    parameters = parameters_of(rng, deed)
    about = a_an(expand(rng, deeds.DEEDS[deed].about, noun=noun))
    about = about if rng.random() < 0.7 else about.rstrip(".")
    while is_name_held_out(name := tool_name(rng, deed, noun)) != held_out:
        pass
    says_noun = noun.split()[-1].casefold() in name.casefold()
    if says_noun and deed not in ("sum", "product") and rng.random() < 0.08:
        about = ""
    return Tool(deed, noun, name, described(rng, name, about, parameters), parameters)


def weather_tool(rng):
    """What everybody tries first."""
    name = rng.choice(("city", "location", "city", "location", "place"))
    about = rng.choice(("", "", "The city.", "City name", "The city, e.g. Paris"))
    parameters = [Parameter("place", "place", name, about, (), True)]
    if rng.random() < 0.3:
        choices = ("celsius", "fahrenheit")
        parameters.append(Parameter("", "unit", rng.choice(("unit", "units")), "", choices, False))
    about = expand(rng, "Get the [|current ]weather [in|for|of] a [given |][city|location][|.]")
    return Tool("of place", "weather", "get_weather",
                described(rng, "get_weather", about, parameters), parameters)  # fmt: skip


def make_tools(rng, count, held_out):
    """Tools that no request can mix up: their nouns have no word in common."""
    out, seen = [], set()
    names, weights = list(deeds.WEIGHTS), list(deeds.WEIGHTS.values())
    if not held_out and rng.random() < 0.15:
        out.append(weather_tool(rng))
        seen |= {"weather", "temperature", "forecast"}
    while len(out) < count:
        deed = rng.choices(names, weights)[0]
        noun = noun_of(rng, deed)
        parts = {deed} if deed in ("sum", "product") else set(stems(noun))
        if parts & seen or (parts & {"weather", "temperature"} and {"weather"} & seen):
            continue
        tool = make_tool(rng, deed, noun, held_out)
        if tool.name not in [t.name for t in out]:
            seen |= parts
            out.append(tool)
    rng.shuffle(out)
    return out


def stems(phrase):
    return {w.rstrip("s") for w in normalise(phrase).split()}


# ---- requests -------------------------------------------------------------------------------


@dataclass
class Request:
    text: str
    wording: str  # without noun and values
    tool: Tool
    said: dict  # slot: value as the user says it
    arguments: dict
    has_extra: bool


def number_said(rng, value):
    if isinstance(value, int) and 2 <= value <= 12 and rng.random() < 0.06:
        return words.NUMBER_WORDS[value]
    return str(value)


def a_an(text):
    """'a[|n] hotel' is written with both; this keeps the one that fits."""
    out = text.split(" ")
    for i, word in enumerate(out[:-1]):
        if word in ("a", "an"):
            out[i] = "an" if out[i + 1][:1].casefold() in "aeiou" else "a"
    return " ".join(out)


def request(rng, tool):
    deed = deeds.DEEDS[tool.deed]
    patterns = deed.requests
    if tool.noun in deed.special and rng.random() < 0.5:
        patterns = deed.special[tool.noun]
    pattern, said, arguments, has_extra = rng.choice(patterns), {}, {}, False
    for p in tool.parameters:
        if not p.required and rng.random() < 0.5:
            continue
        value = p.value(rng)
        while value in said.values() and p.kind != "on":
            value = p.value(rng)
        arguments[p.name] = value
        if p.slot:
            said[p.slot] = ("on" if value else "off") if p.kind == "on" else number_said(rng, value)
            continue
        has_extra, kind = True, p.kind
        if kind == "flag":
            arguments[p.name] = rng.random() < 0.7
            kind = "flag" if arguments[p.name] else "no flag"
        pattern += deeds.EXTRAS[kind]
        said["x"] = number_said(rng, value)
    marks = {slot: f"\x01{slot}\x02" for slot in (*said, "noun")}
    wording = a_an(expand(rng, pattern, **marks)).replace("a \x01noun", "a\x03 \x01noun")
    text = wording
    for slot, value in {**said, "noun": tool.noun}.items():
        n = "n" if slot == "noun" and value[:1].casefold() in "aeiou" else ""
        text = text.replace("a\x03 " + marks[slot], f"a{n} {value}").replace(marks[slot], value)
    wording = normalise("".join(" # " if c in "\x01\x02" else c for c in wording))
    return Request(text, f"call|{tool.deed}|{wording}", tool, said, arguments, has_extra)


def wanted_request(rng, tool, held_out):
    """One whose wording is on the wanted side; None where the deed has too few."""
    for _ in range(40):
        r = request(rng, tool)
        if is_held_out(r.wording) == held_out:
            return r
    return None


def typed(rng, text):
    if rng.random() < 0.12:
        text = rng.choice(BEFORE) + text
    return dress(rng, text, plain=True)


def call_of(r):
    return {"name": r.tool.name, "arguments": r.arguments}


def thought_of(calls):
    out = []
    for c in calls:
        given = ", ".join(f"{k} is {as_json(v)}" for k, v in c["arguments"].items())
        out.append(f"I call {c['name']}: {given or 'it needs nothing'}.")
    return " ".join(out)


def call_turn(requests, text, category):
    calls = [call_of(r) for r in requests]
    return Turn(text, "", category, {"calls": calls}, requests[0].wording,
                {"requests": requests}, calls=calls, thought=thought_of(calls))  # fmt: skip


def one_call(rng, tools, held_out):
    r = wanted_request(rng, rng.choice(tools), held_out)
    return r and call_turn([r], typed(rng, r.text), "tool call")


def two_calls(rng, tools, held_out):
    first = wanted_request(rng, rng.choice(tools), held_out)
    if not first or "text" in first.said:
        return None
    lookup = first.tool.deed in LOOKUPS and not first.has_extra
    if lookup and rng.random() < 0.6:
        slot = first.tool.parameters[0]
        value = slot.value(rng)
        if value in first.said.values() or not first.text.endswith(first.said[slot.slot]):
            return None
        arguments = {slot.name: value}
        second = Request("", "", first.tool, {slot.slot: value}, arguments, False)
        text = f"{first.text} {rng.choice(('and', 'and in', 'and of', 'and also'))} {value}"
        if first.tool.deed != "of place":
            text = text.replace("and in ", "and ")
    else:
        second = wanted_request(rng, rng.choice(tools), held_out)
        if not second or second.tool is first.tool:
            return None
        text = f"{first.text}{rng.choice((' and ', ', and ', '. ', ' and then ', ' and also '))}"
        text += second.text
    return call_turn([first, second], typed(rng, text), "two calls")


AND_THIS = "[and|what about|and what about|how about|now|same for|and now] [for |in |of |]{x}"


def same_again(rng, talk, held_out):
    """'And in Rome?'"""
    requests = talk.turns[-1].about.get("requests") if talk.turns else None
    if not requests or len(requests) > 1 or requests[0].has_extra:
        return None
    last = requests[0]
    if last.tool.deed not in LOOKUPS:
        return None
    slot = last.tool.parameters[0]
    value = slot.value(rng)
    wording = expand(rng, AND_THIS, x="\x01")
    key = f"again|{last.tool.deed}|{normalise(wording)}|{normalise(value[:2])}"
    if is_held_out(key) != held_out or value in last.said.values():
        return None
    r = Request("", key, last.tool, {slot.slot: value}, {slot.name: value}, False)
    return call_turn([r], dress(rng, wording.replace("\x01", value), plain=True), "tool call")


def decoy(rng, tools, held_out):
    """Somebody asks for something that none of the tools does."""
    other = make_tools(rng, 1, held_out)[0]
    taken = set().union(*(stems(t.noun) | stems(t.name.replace("_", " ")) for t in tools))
    if stems(other.noun) & taken or other.deed in ("sum", "product"):
        return None
    r = wanted_request(rng, other, held_out)
    if not r or stems(r.text) & set().union(*(stems(t.noun) for t in tools)):
        return None
    return Turn(typed(rng, r.text), NO_TOOL, "no tool fits", {"has": [["do not know", "no tool"]]},
                r.wording, {}, thought="None of my tools does that.")  # fmt: skip


# ---- results --------------------------------------------------------------------------------


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
    """A JSON object: maybe an argument again, the value, maybe more."""
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
    """(what the tool returns, what to say, what must be said)"""
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


# ---- dialogues ------------------------------------------------------------------------------


def system_prompt(rng):
    return rng.choice((
        "You are a helpful assistant.", "You are a helpful assistant with tools.",
        "Use the tools when they help.", "You can call functions.", "Answer briefly.",
        f"You are {made_name(rng)}, an assistant.", "Help the user with the tools.",
    ))  # fmt: skip


def next_turn(rng, talk, tools, held_out, plain_turn):
    kind = rng.random()
    if kind < 0.12:
        return plain_turn(rng, tools, held_out)
    if kind < 0.24:
        return decoy(rng, tools, held_out)
    if kind < 0.38:
        return two_calls(rng, tools, held_out)
    if kind < 0.5:
        return same_again(rng, talk, held_out)
    return one_call(rng, tools, held_out)


def dialogue(rng, n_turns, held_out, plain_turn, most_tools, has_results=True):
    """`plain_turn(rng, tools, held_out)` makes a turn that needs no tool. Without results there is
    more to learn in a dialogue of the same length."""
    tools = make_tools(rng, rng.randint(1, most_tools), held_out)
    talk = Talk()
    while len(talk.turns) < n_turns:
        turn = next_turn(rng, talk, tools, held_out, plain_turn)
        if turn is None:
            continue
        talk.add(turn)
        if turn.calls and has_results:
            talk.add(result_turn(rng, turn.about["requests"]))
    as_sent = [{"type": "function", "function": t.schema} for t in tools]
    system = system_prompt(rng) if rng.random() < 0.4 else None
    return {"system": system, "tools": as_sent, "think": False, "turns": talk.turns}

