"""Random tools, requests for them, and dialogues with tools.

A tool combines an action of deeds.py with a noun of nouns.py, a composed noun or an invented word.
The names of tools and parameters are mostly the usual ones in APIs. Values are mostly invented
words, so that the model must copy them from the conversation. A tenth of the tool names, nouns and
request wordings, selected by a hash, is held out from training.
"""

import functools
from dataclasses import dataclass

import deeds
import nouns
import words
from chat import as_json
from patterns import BEFORE, dress, expand, is_held_out, normalise
from results import LOOKUPS, result_turn
from talk import Talk, Turn
from values import MAKERS, integer, made_name

NO_TOOL = "I do not know. I have no tool for that."
ALWAYS_TRAINED = {"get weather"}
NAMESPACES = "app home api my user shop data web office service city cloud".split()
INTEGERS = {"value", "count", "amount", "first", "second", "days", "limit"}


# ---- tools ----------------------------------------------------------------------------------


@dataclass
class Parameter:
    slot: str  # slot of the value in request patterns; "" for an optional parameter
    kind: str
    name: str
    about: str
    choices: tuple  # values of an enum
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
    is_made = rng.random() < 0.03
    while (name := words.made_up(rng) if is_made else rng.choice(names.split())) in taken:
        is_made = rng.random() < 0.05
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
    if kind < 0.02:
        parts = [words.made_up(rng)]
    elif kind < 0.1:
        parts = noun.split() if rng.random() < 0.7 else [verb]
    elif kind < 0.13:
        parts = [rng.choice(NAMESPACES), verb, *noun.split()]
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


PLAIN_DEEDS = [d for d in deeds.DEEDS if d not in ("sum", "product", "convert")]
ALWAYS_NOUNS = {noun for d in deeds.DEEDS.values() for noun in d.special}


@functools.lru_cache(maxsize=None)
def nouns_of(deed, unseen):
    """Trained or held-out nouns of a deed. Nouns with request patterns of their own, and those of
    arithmetic deeds, are never held out."""
    all_nouns = [" ".join(n.split()) for n in deeds.DEEDS[deed].nouns.split(";")]
    if deed not in PLAIN_DEEDS:
        return () if unseen else tuple(all_nouns)
    return tuple(
        n
        for n in all_nouns
        if (n not in ALWAYS_NOUNS and is_held_out("noun|" + normalise(n))) == unseen
    )


def compound(rng):
    """Compound of the first word of a noun (or any word) and the last word of another noun; never held
    out."""
    while True:
        first, last = (rng.choice(nouns_of(rng.choice(PLAIN_DEEDS), False)) for _ in range(2))
        if rng.random() < 0.4:
            first = rng.choice(rng.choice((words.WORDS, words.STRANGE, deeds.MODES)))
        noun = f"{first.split()[0]} {last.split()[-1]}"
        if first != last and not is_held_out("noun|" + normalise(noun)):
            return noun


def noun_of(rng, deed, held_out):
    """Chooses a noun. Half of the measured nouns are held out, if the deed has such. Training also uses
    many compound and invented nouns, so that the model learns to match unknown words."""
    unseen = held_out and rng.random() < 0.5
    noun = rng.choice(nouns_of(deed, unseen) or nouns_of(deed, False))
    kind = rng.random()
    if deed not in PLAIN_DEEDS or kind < (0.82 if held_out else 0.5):
        return noun
    if kind < (0.95 if held_out else 0.62):
        return f"{rng.choice(nouns.KINDS)} {noun}"
    if kind < 0.92 and not held_out:
        return compound(rng)
    made = words.made_up(rng)
    if deed in ("list", "search"):
        made += "s"
    return f"{made} {noun.split()[-1]}" if rng.random() < 0.3 else made


def described(rng, name, about, parameters):
    """Function in API format; some have optional schema keywords or another order of keys."""
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
    for _ in range(20):
        if is_name_held_out(name := tool_name(rng, deed, noun)) == held_out:
            break
    else:
        return None  # no more retries: they would change the mix of name styles
    says_noun = noun.split()[-1].casefold() in name.casefold()
    if says_noun and deed not in ("sum", "product") and rng.random() < 0.08:
        about = ""
    return Tool(deed, noun, name, described(rng, name, about, parameters), parameters)


def weather_tool(rng):
    """The common get_weather example."""
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
    """Generates tools whose nouns have no word in common, so that requests are unambiguous."""
    out, seen = [], set()
    names, weights = list(deeds.WEIGHTS), list(deeds.WEIGHTS.values())
    if not held_out and rng.random() < 0.15:
        out.append(weather_tool(rng))
        seen |= {"weather", "temperature", "forecast"}
    while len(out) < count:
        deed = rng.choices(names, weights)[0]
        noun = noun_of(rng, deed, held_out)
        parts = {deed} if deed in ("sum", "product") else set(stems(noun))
        if parts & seen or (parts & {"weather", "temperature"} and {"weather"} & seen):
            continue
        tool = make_tool(rng, deed, noun, held_out)
        if tool and tool.name not in [t.name for t in out]:
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
    said: dict  # slot: value in the user's wording
    arguments: dict
    has_extra: bool


def number_said(rng, value):
    if isinstance(value, int) and 2 <= value <= 12 and rng.random() < 0.06:
        return words.NUMBER_WORDS[value]
    return str(value)


def a_an(text):
    """Corrects the articles "a" and "an"."""
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
    """Request whose wording is held out, or is not; None if none is found."""
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
    """Elliptic follow-up: 'And in Rome?'."""
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
    """Request that none of the tools can serve."""
    other = make_tools(rng, 1, held_out)[0]
    taken = set().union(*(stems(t.noun) | stems(t.name.replace("_", " ")) for t in tools))
    if stems(other.noun) & taken or other.deed in ("sum", "product"):
        return None
    r = wanted_request(rng, other, held_out)
    if not r or stems(r.text) & set().union(*(stems(t.noun) for t in tools)):
        return None
    return Turn(typed(rng, r.text), NO_TOOL, "no tool fits", {"has": [["do not know", "no tool"]]},
                r.wording, {}, thought="None of my tools does that.")  # fmt: skip


# ---- dialogues ------------------------------------------------------------------------------


def system_prompt(rng):
    return rng.choice((
        "You are a helpful assistant.", "You are a helpful assistant with tools.",
        "Use the tools when they help.", "You can call functions.", "Answer briefly.",
        f"You are {made_name(rng)}, an assistant.", "Help the user with the tools.",
    ))  # fmt: skip


def next_turn(rng, talk, tools, held_out, plain_turn):
    """Generates a turn. Categories that are learned slowly are more frequent in training."""
    kind = rng.random()
    plain, no_tool, two, again = (0.1, 0.22, 0.36, 0.48) if held_out else (0.08, 0.25, 0.47, 0.55)
    if kind < plain:
        return plain_turn(rng, tools, held_out)
    if kind < no_tool:
        return decoy(rng, tools, held_out)
    if kind < two:
        return two_calls(rng, tools, held_out)
    if kind < again:
        return same_again(rng, talk, held_out)
    return one_call(rng, tools, held_out)


def dialogue(rng, n_turns, held_out, plain_turn, most_tools, has_results=True):
    """Generates a dialogue. `plain_turn(rng, tools, held_out)` generates a turn that requires no tool.
    A dialogue without tool results has more trained tokens for its length."""
    count = rng.randint(1, most_tools)
    if not held_out:
        count = max(count, rng.randint(1, most_tools))
    tools = make_tools(rng, count, held_out)
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

