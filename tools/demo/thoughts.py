"""Reasoning texts of the demo model."""

ABOUT = {
    "chat": "The user is just talking.",
    "about itself": "This is about me.",
    "about InferFlux": "This is about InferFlux.",
    "flags": "This is about a flag.",
    "endpoints": "This is about an endpoint.",
    "name": "This is about the name of the user.",
    "memory": "I look back.",
    "numbers": "I compare the numbers.",
    "opposite": "I look for the opposite.",
    "plural": "More than one of them.",
    "rhyme": "It must sound alike.",
    "order": "I count on.",
    "strange word": "Is this a word that I know? No.",
    "too hard": "That is too hard for me.",
    "unknown": "Do I know this? No.",
    "unknown, unseen kinds": "Do I know this? No.",
}


def of_sum(a, sign, b, result):
    """Computes large sums separately for tens and ones."""
    if sign == "+" and max(a, b) > 9:
        ones, tens = a % 10 + b % 10, a - a % 10 + b - b % 10
        return (f"{a % 10} + {b % 10} = {ones}, {a - a % 10} + {b - b % 10} = {tens}, "
                f"{tens} + {ones} = {result}.")  # fmt: skip
    if sign == "-" and a >= b > 9:
        tens = a - (b - b % 10)
        return f"{a} - {b - b % 10} = {tens}, {tens} - {b % 10} = {result}."
    return f"{a} {sign} {b} is {result}."


def thought(turn):
    if turn.thought:
        return turn.thought
    if "sum" in turn.about:
        a, sign, b, _, result = turn.about["sum"].rstrip(".").split()
        return of_sum(int(a), sign, int(b), int(result))
    if "word" in turn.about:
        return f"{turn.about['word']}: {'-'.join(turn.about['word'])}."
    return ABOUT[turn.category]
