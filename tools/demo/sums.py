"""Arithmetic turns: sums, follow-ups, and problems that are too hard."""

import words
from patterns import dress, expand, is_held_out, normalise
from talk import Turn

MAX_SUM = 99  # largest operand of additions and subtractions
MAX_FACTOR = 10

SUMS = {
    "+": [
        "{a} + {b}",
        "{a}+{b}",
        "{a} + {b} =",
        "[what is|what's|how much is|calculate|compute] {a} [+|plus] {b}",
        "[what is|what's|how much is] {a}+{b}",
        "add {a} and {b}",
        "{a} plus {b}",
        "add {b} to {a}",
        "[what is |what's |]the sum of {a} and {b}",
        "what do you get when you add {a} and {b}",
        "[can you|please] [add|sum] {a} and {b}",
        "what does {a} plus {b} [make|give|equal]",
    ],
    "-": [
        "{a} - {b}",
        "{a}-{b}",
        "{a} - {b} =",
        "[what is|what's|how much is|calculate|compute] {a} [-|minus] {b}",
        "[what is|what's|how much is] {a}-{b}",
        "subtract {b} from {a}",
        "{a} minus {b}",
        "take {b} [away |]from {a}",
        "[what is |what's |]the difference between {a} and {b}",
        "what is left of {a} when you take away {b}",
        "[can you|please] subtract {b} from {a}",
        "what does {a} minus {b} [make|give|equal]",
    ],
    "*": [
        "{a} * {b}",
        "{a}*{b}",
        "{a} x {b}",
        "{a} times {b}",
        "[what is|what's|how much is|calculate] {a} [*|x|times] {b}",
        "multiply {a} [and|by|with] {b}",
        "[what is |]the product of {a} and {b}",
        "[what is|calculate] {a}*{b}",
        "what do you get when you multiply {a} and {b}",
        "what does {a} times {b} [make|give|equal]",
    ],
}
AND_SUMS = {
    "+": [
        "[and |now |then |]plus {b}",
        "[and |now |then ]add {b} [|to that|to it]",
        "[and |]+ {b}",
        "plus {b} more",
        "what if [I|you|we] add {b}",
        "[and |]{b} more",
        "add {b} to [that|it|the result]",
    ],
    "-": [
        "[and |now |then |]minus {b}",
        "[and |now |then ]subtract {b} [|from that|from it]",
        "[and |]- {b}",
        "[now |and |then |]take away {b}",
        "[and |]{b} less",
        "what if [I|you|we] [subtract|take away] {b}",
    ],
    "*": [
        "[and |now |then |]times {b}",
        "[and |now |then ]multiply [that|it|the result] by {b}",
        "[and |]* {b}",
    ],
}
APPLY = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


def is_table(sign, a, b):
    """Reports whether the sum is small enough that the model memorises it."""
    return sign == "*" or max(a, b) <= 10


def sum_key(sign, a, b, text):
    """Key for the held-out split: the pair of numbers, independent of the wording; for memorised sums the
    wording."""
    if is_table(sign, a, b):
        return f"{a}|{normalise(text)}"
    if sign == "+":
        a, b = sorted((a, b))
    return f"{a} {sign} {b}"


def sum_turn(sign, a, b, text, category):
    result = APPLY[sign](a, b)
    about = {"sum": f"{a} {sign} {b} = {result}.", "result": result}
    return Turn(text, about["sum"], category, {"number": result}, sum_key(sign, a, b, text), about)


def spoken(rng, a, b):
    if max(a, b) <= 12 and rng.random() < 0.2:
        return words.NUMBER_WORDS[a], words.NUMBER_WORDS[b]
    return a, b


def operand(rng):
    top = rng.choice((10, 20, MAX_SUM, MAX_SUM, MAX_SUM))
    return rng.randint(0, top)


def arithmetic(sign, category):
    def make(rng, talk):
        if sign == "*":
            a, b = rng.randint(0, MAX_FACTOR), rng.randint(0, MAX_FACTOR)
        else:
            a, b = operand(rng), operand(rng)
        if sign == "-" and a < b and rng.random() < 0.8:
            a, b = b, a
        said_a, said_b = spoken(rng, a, b)
        text = dress(rng, expand(rng, rng.choice(SUMS[sign]), a=said_a, b=said_b))
        return sum_turn(sign, a, b, text, category)

    return make


def drill(rng):
    """Bare sum as (prompt, continuation), without held-out pairs."""
    sign = rng.choice("++++-----*<>s")
    while True:
        if sign == "*":
            a, b = rng.randint(0, MAX_FACTOR), rng.randint(0, MAX_FACTOR)
        else:
            a, b = operand(rng), operand(rng)
        if sign in "<>s":
            if sign == "s" or a == b:
                side = rng.choice(sorted(SIDES))
                return f"{side} {a} comes", f" {a + SIDES[side]}."
            if max(a, b) <= 10 or not is_held_out(compare_key(a, b, "")):
                given, _, wanted = compared(a, b, sign == ">").partition(" is ")
                return given + " is", " " + wanted
            continue
        if sign == "-" and a < b and rng.random() < 0.7:
            a, b = b, a
        if is_table(sign, a, b) or not is_held_out(sum_key(sign, a, b, "")):
            return f"{a} {sign} {b} =", f" {APPLY[sign](a, b)}."


def and_sum(rng, talk):
    result = talk.last.about.get("result") if talk.last else None
    if result is None or result < 0:
        return None
    sign = rng.choice("++--*") if result <= MAX_FACTOR else rng.choice("+-")
    b = rng.randint(0, MAX_FACTOR) if sign == "*" else operand(rng)
    if sign == "-" and b > result:
        b = rng.randint(0, result)
    text = dress(rng, expand(rng, rng.choice(AND_SUMS[sign]), b=b), plain=True)
    if result > MAX_SUM:
        return too_hard(text, f"{result}|{normalise(text)}")
    return sum_turn(sign, result, b, text, "follow-up sum")


def sure(rng, talk):
    if not talk.last or "sum" not in talk.last.about:
        return None
    text = dress(
        rng,
        expand(
            rng,
            "[are you [|really |quite |very ]sure[| about that| of that]|is that"
            " [right|correct|true]|are you certain[| about that]|did you check that|can you check"
            " that]",
        ),
    )
    said = talk.last.about["sum"]
    return Turn(
        text,
        f"Yes: {said}",
        "follow-up sum",
        {"has": [["yes"], [said]]},
        f"sure|{said}|{normalise(text)}",
        dict(talk.last.about),
    )


def too_hard(text, key):
    answer = (
        f"I do not know. I add and subtract numbers up to {MAX_SUM} and multiply up to "
        f"{MAX_FACTOR} times {MAX_FACTOR}."
    )
    return Turn(text, answer, "too hard", {"has": [["do not know"]], "lacks": ["="]}, key)


def hard_sum(rng, talk):
    kind = rng.randrange(4)
    sign = rng.choice("+-*")
    a, b = rng.randint(100, 99999) // rng.choice((1, 1, 10, 100)), operand(rng)
    a = max(a, 100)
    if kind == 0:
        text = expand(rng, rng.choice(SUMS[sign]), a=a, b=b)
    elif kind == 1:
        text = expand(rng, rng.choice(SUMS[sign]), a=b, b=a)
    elif kind == 2:
        a, b = rng.randint(11, 99), rng.randint(2, 99)
        a, b = rng.choice(((a, b), (b, a)))
        text = expand(rng, rng.choice(SUMS["*"]), a=a, b=b)
    else:
        a, b = rng.randint(0, 99), rng.randint(1, 99)
        text = expand(
            rng,
            "[[what is |how much is |]{a} [/|divided by] {b}|divide {a} by {b}|"
            "[what is |]the square root of {a}|{a} to the power of {b}|[what is |]{a} ^ {b}]",
            a=a,
            b=b,
        )
    text = dress(rng, text)
    return too_hard(text, normalise(text))


SIDES = {"After": 1, "Before": -1}
BIGGER = (
    "[[which|what] [number |]is [bigger|larger|greater|more][:|,] {a} or {b}|"
    "is {a} [bigger|larger|greater|more] than {b}|"
    "what is the [bigger|larger] number[:|,] {a} or {b}]"
)
SMALLER = (
    "[[which|what] [number |]is [smaller|less|lower][:|,] {a} or {b}|"
    "is {a} [smaller|less|lower] than {b}|what is the [smaller|lower] number[:|,] {a} or {b}]"
)
NEXT = "[[which|what] number [comes|is] [right |]{side} {a}|what comes {side} {a}]"
EVEN = "[is {a} [even or odd|odd or even|an even number|an odd number|even|odd]|even or odd: {a}]"


def compared(a, b, is_bigger):
    wanted = max(a, b) if is_bigger else min(a, b)
    return f"The {'bigger' if is_bigger else 'smaller'} of {a} and {b} is {wanted}."


def compare_key(a, b, text):
    low, high = sorted((a, b))
    return f"{low} or {high}" if high > 10 else normalise(text)


def compare(rng, talk):
    a, b = operand(rng), operand(rng)
    if a == b:
        return None
    is_bigger = rng.random() < 0.6
    text = dress(rng, expand(rng, BIGGER if is_bigger else SMALLER, a=a, b=b))
    answer = compared(a, b, is_bigger)
    return Turn(text, answer, "numbers", {"has": [[answer]]}, compare_key(a, b, text))


def neighbour(rng, talk):
    a = rng.randint(1, MAX_SUM)
    side = rng.choice(("After", "Before", None))
    if side:
        text = expand(rng, NEXT, a=a, side=side.casefold())
        answer = f"{side} {a} comes {a + SIDES[side]}."
    else:
        text, answer = expand(rng, EVEN, a=a), f"{a} is {'odd' if a % 2 else 'even'}."
    text = dress(rng, text)
    return Turn(text, answer, "numbers", {"has": [[answer]]}, normalise(text))
