#!/usr/bin/env python3
"""Trains and applies the demo model's tokenizer: byte-level BPE as in GPT-2.

All 256 bytes are tokens, so every text can be encoded. The pre-tokenizer is the one that GGUF files
call "qwen2" (each digit is a piece of its own); merges never cross pieces. The control tokens have
the highest ids and are never produced from plain text.
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict

MARKS = [
    "<tools>",
    "</tools>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# The "qwen2" pre-tokenizer. Python's re has no \p{L}; [^\W\d_] is equal for all generated scripts.
CUT = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|(?:(?![\r\n])(?:[\W_]))?[^\W\d_]+"
    r"|\d"
    r"| ?(?:(?!\s)(?:[\W_]))+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)


def byte_letters():
    """GPT-2's character for every byte: the same code point if printable, else code points from 256."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, spare = {}, 256
    for b in range(256):
        letters[b] = chr(b) if b in plain else chr(spare)
        spare += b not in plain
    return letters


LETTER = byte_letters()
BYTE = {c: b for b, c in LETTER.items()}


def cut(text):
    return CUT.findall(text)


def as_letters(piece):
    return tuple(LETTER[b] for b in piece.encode())


def merge_word(word, pair):
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def split_prefix(piece):
    """Splits a piece into (leading character, word), for example a space; ('', piece) if there is none."""
    if len(piece) > 1 and piece[1:].isalpha() and not piece[0].isalpha() and piece[0].isascii():
        return piece[0], piece[1:]
    return "", piece


def frequent_pairs(words, n_merges):
    """BPE training on words [(letters, count)]: merges the most frequent pair, of equally frequent pairs
    the last in sort order."""
    words, merges = list(words), []
    pairs, where = Counter(), defaultdict(set)
    for i, (word, n) in enumerate(words):
        for pair in zip(word, word[1:]):
            pairs[pair] += n
            where[pair].add(i)
    while len(merges) < n_merges and pairs:
        best = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[best] < 2:
            break
        merges.append(best)
        for i in where.pop(best):
            word, n = words[i]
            for pair in zip(word, word[1:]):
                pairs[pair] -= n
            word = merge_word(word, best)
            for pair in zip(word, word[1:]):
                pairs[pair] += n
                where[pair].add(i)
            words[i] = (word, n)
        del pairs[best]
    return merges


def learn(counts, n_merges, part_inside=0.65):
    """Learns merges inside words, then merges of a leading character with a whole word."""
    bare, with_prefix = Counter(), Counter()
    for piece, n in counts.items():
        prefix, word = split_prefix(piece)
        bare[word] += n
        if prefix:
            with_prefix[prefix, word] += n
    words = [(as_letters(word), n) for word, n in sorted(bare.items())]
    merges = frequent_pairs(words, int(n_merges * part_inside))
    whole = {"".join(m) for m in merges} | set(LETTER.values())
    ranked = sorted(with_prefix.items(), key=lambda item: (-item[1], item[0]))
    for (prefix, word), n in ranked:
        letters = "".join(as_letters(word))
        if len(word) == 1 and (prefix, word) not in ((" ", "a"), (" ", "I")) and prefix != "-":
            continue  # the merge would also apply inside longer words
        if letters in whole and n > 1 and len(merges) < n_merges:
            merges.append((LETTER[ord(prefix)], letters))
    return merges


class Tokenizer:
    def __init__(self, merges, marks=()):
        self.marks = list(marks)
        self.merges = [tuple(m) for m in merges]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.tokens = [LETTER[b] for b in range(256)] + ["".join(m) for m in self.merges]
        self.n_plain = len(self.tokens)
        self.tokens += self.marks + CONTROL
        self.special = re.compile("(" + "|".join(map(re.escape, self.marks + CONTROL)) + ")")
        self.id = {t: i for i, t in enumerate(self.tokens)}
        self.end_of_text, self.start, self.end = (self.id[t] for t in CONTROL)
        self.cache = {}

    def piece(self, piece):
        if piece not in self.cache:
            word = as_letters(piece)
            while len(word) > 1:
                best = min(zip(word, word[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
                if best not in self.rank:
                    break
                word = merge_word(word, best)
            self.cache[piece] = [self.id[t] for t in word]
        return self.cache[piece]

    def encode(self, text):
        """Encodes plain text; names of control tokens in it are not recognised."""
        return [i for piece in cut(text) for i in self.piece(piece)]

    def encode_marked(self, text):
        """Encodes text of the template; names of markers and control tokens become these tokens."""
        ids = []
        for i, part in enumerate(self.special.split(text)):
            ids += [self.id[part]] if i % 2 else self.encode(part)
        return ids

    def decode(self, ids):
        """Decodes tokens to text with markers, without control tokens."""
        raw = b""
        for i in ids:
            if i < self.n_plain:
                raw += bytes(BYTE[c] for c in self.tokens[i])
            elif self.tokens[i] in self.marks:
                raw += self.tokens[i].encode()
        return raw.decode(errors="replace")

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump(
                {"merges": [" ".join(m) for m in self.merges]}, f, ensure_ascii=False, indent=0
            )
            f.write("\n")

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            return cls([tuple(m.split(" ")) for m in json.load(f)["merges"]], MARKS)


def main():
    import chat
    import generate

    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("out", help="path of the merges (JSON)")
    p.add_argument("--seed", default="vocabulary")
    p.add_argument("--dialogues", type=int, default=60000)
    p.add_argument(
        "--size", type=int, default=3072, help="number of tokens, including bytes and control tokens"
    )
    args = p.parse_args()
    counts = Counter()
    special = Tokenizer([], MARKS).special
    for d in generate.dialogues(args.seed, args.dialogues):
        for text, _ in chat.pieces(chat.messages_of(d), d["tools"], d["think"]):
            for part in special.split(text)[::2]:
                counts.update(cut(part))
    n_merges = args.size - 256 - len(MARKS) - len(CONTROL)
    tokenizer = Tokenizer(learn(counts, n_merges), MARKS)
    tokenizer.save(args.out)
    print(f"{len(tokenizer.tokens)} tokens from {len(counts)} distinct pieces", file=sys.stderr)


if __name__ == "__main__":
    main()
