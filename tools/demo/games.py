"""Word games: opposites, plurals, letters, rhymes, order of days, months and letters."""

import string

import words
from patterns import dress, expand, normalise, small_letters
from talk import DO_NOT_KNOW, Turn


def _pairs_both_ways(text):
    pairs = {}
    for a, b in words.groups(text):
        pairs.setdefault(a, b)
        pairs.setdefault(b, a)
    return pairs


OPPOSITE = _pairs_both_ways(words.OPPOSITES)
PLURAL = dict(words.groups(words.PLURALS))
RHYME = {
    word: [w for w in group if w != word] for group in words.groups(words.RHYMES) for word in group
}
IT = "[the word |||]"
LETTERS = ("first letter", "last letter", "spelling", "length", "letter count")  # games about one word


def spelled(word):
    return "-".join(word)


def _letter_count(rng, word):
    letter = rng.choice(word) if rng.random() < 0.85 else rng.choice("aeiostrn")
    n = word.count(letter)
    times = "1 time" if n == 1 else f"{n} times"
    text = expand(
        rng,
        "[how many [letters |]{c}[||s|'s] are [|there ]in {it}{w}|count the [letter |letters ]{c}"
        " in {it}{w}|how often [does|is] [the letter |]{c} [|occur |appear ]in {it}{w}|how many"
        " times does {c} appear in {it}{w}]",
        c=letter,
        w="{w}",
        it="{it}",
    )
    answer = f"{spelled(word)}: {letter} appears {times}."
    return text, answer, [[f"{letter} appears {times}"]]


# kind: (words, patterns, response(word), groups of strings that a response must contain)
GAMES = {
    "opposite": (
        sorted(OPPOSITE),
        [
            "[what is|what's|tell me|give me|name] the opposite of {it}{w}",
            "opposite of {w}",
            "the opposite of {w}",
            "[which|what] word is the opposite of {w}",
            "what is the [contrary|antonym] of {it}{w}",
        ],
        lambda w: f"The opposite of {w} is {OPPOSITE[w]}.",
        lambda w: [[f"is {OPPOSITE[w]}."]],
    ),
    "plural": (
        sorted(PLURAL),
        [
            "[what is|what's|tell me|give me] the plural of {it}{w}",
            "plural of {w}",
            "the plural of {w}",
            "[one {w}, two what|what is more than one {w} called]",
            "what do you call [more than one|several|many] {w}",
        ],
        lambda w: f"The plural of {w} is {PLURAL[w]}.",
        lambda w: [[f"is {PLURAL[w]}."]],
    ),
    "first letter": (
        words.WORDS,
        [
            "[what is|what's|tell me|name] the first letter [of|in] {it}{w}",
            "first letter of {w}",
            "[which|what] letter does {it}{w} [start|begin] with",
            "what does {it}{w} [start|begin] with",
        ],
        lambda w: f"The first letter of {w} is {w[0]}.",
        lambda w: [[f"is {w[0]}."]],
    ),
    "last letter": (
        words.WORDS,
        [
            "[what is|what's|tell me|name] the last letter [of|in] {it}{w}",
            "last letter of {w}",
            "[which|what] letter does {it}{w} end with",
            "what does {it}{w} end with",
        ],
        lambda w: f"The last letter of {w} is {w[-1]}.",
        lambda w: [[f"is {w[-1]}."]],
    ),
    "spelling": (
        words.WORDS,
        [
            "spell {it}{w}",
            "how do you spell {it}{w}",
            "[can|could] you spell {it}{w}",
            "how is {it}{w} spelled",
            "[please |]spell {w} for me",
            "what is the spelling of {w}",
            "how do I [spell|write] {it}{w}",
        ],
        lambda w: f"{w} is spelled {spelled(w)}.",
        lambda w: [[f" {spelled(w)}."]],
    ),
    "length": (
        words.WORDS,
        [
            "how many letters [does|has] {it}{w} [have|]",
            "how long is the word {w}",
            "count the letters [of|in] {it}{w}",
            "[what is|tell me] the number of letters in {it}{w}",
            "how many letters are [|there ]in {it}{w}",
        ],
        lambda w: f"{spelled(w)} has {len(w)} letters.",
        lambda w: [[f"has {len(w)} letters"]],
    ),
    "rhyme": (
        sorted(RHYME),
        [
            "what rhymes with {it}{w}",
            "[tell me|give me|name|find] a [word that rhymes with|rhyme for] {w}",
            "[which|what] word rhymes with {w}",
            "a rhyme for {w}",
            "do you know a rhyme for {w}",
        ],
        lambda w: f"{w} rhymes with {RHYME[w][0]}.",
        lambda w: [[f"{w} rhymes with {r}." for r in RHYME[w]]],
    ),
}


def quoted(rng, text, word):
    shown = word if rng.random() < 0.8 else rng.choice(('"%s"', "'%s'")) % word
    return expand(rng, text, w=shown, it=lambda r: expand(r, IT) + " ")


def game_turn(rng, kind, word, text=None, context=""):
    if kind == "letter count":
        pattern, answer, has = _letter_count(rng, word)
    else:
        _, patterns, reply, needs = GAMES[kind]
        pattern, answer, has = rng.choice(patterns), reply(word), needs(word)
    if text is None:
        text = dress(rng, small_letters(rng, quoted(rng, pattern, word)))
    about = {"and": kind}
    if kind in LETTERS:
        about["word"] = word
    return Turn(text, answer, kind, {"has": has}, context + normalise(text), about)


def game(kind):
    def make(rng, talk):
        return game_turn(rng, kind, rng.choice(GAMES[kind][0] if kind in GAMES else words.WORDS))

    return make


def drill(rng):
    """Bare fact about a word as (prompt, continuation)."""
    kind = rng.choice(
        sorted(GAMES) + ["spelling", "letter count", "order", "order", "rhyme", "rhyme", "rhyme"]
    )
    if kind == "order":
        answer, cut = _follows(rng)[2], " comes "
    elif kind == "letter count":
        answer, cut = _letter_count(rng, rng.choice(words.WORDS))[1], " appears "
    else:
        words_of_kind, _, reply, _ = GAMES[kind]
        cut = {"spelling": " spelled ", "rhyme": " with ", "length": " has "}.get(kind, " is ")
        answer = reply(rng.choice(words_of_kind))
    given, _, wanted = answer.partition(cut)
    return given + cut[:-1], " " + wanted


def strange_word(rng, talk):
    word = rng.choice(words.STRANGE) if rng.random() < 0.4 else words.made_up(rng)
    if word in words.WORDS or word in OPPOSITE or word in RHYME or word in PLURAL:
        return None
    pattern = rng.choice(GAMES[rng.choice(sorted(GAMES))][1])
    text = dress(rng, small_letters(rng, quoted(rng, pattern, word)))
    return Turn(text, "I do not know that word.", "strange word", DO_NOT_KNOW, normalise(text))


def _follows(rng):
    """(day, month or letter; pattern of a question for the next or previous one; response)"""
    line, noun = rng.choice(
        ((words.DAYS, "day"), (words.MONTHS, "month"), (list(string.ascii_lowercase), "letter"))
    )
    i, step = rng.randrange(len(line)), rng.choice((1, -1))
    if noun == "letter" and not 0 <= i + step < len(line):
        step = -step
    side = "after" if step > 0 else "before"
    pattern = (
        f"[[which|what] {noun} [comes|is] [right |]{side} {{x}}|what is the {noun} {side} {{x}}|"
        f"[name|tell me] the {noun} {side} {{x}}|the {noun} {side} {{x}}]"
    )
    answer = f"{side.capitalize()} {line[i]} comes {line[(i + step) % len(line)]}."
    return line[i], pattern, answer


def sequence(rng, talk):
    x, pattern, answer = _follows(rng)
    text = dress(rng, small_letters(rng, expand(rng, pattern, x=x)))
    return Turn(text, answer, "order", {"has": [[answer]]}, normalise(text))
