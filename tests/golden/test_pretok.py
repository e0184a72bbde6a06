#!/usr/bin/env python3
"""Compares the pre-tokenizers with the regex module on random Unicode text.

    tests/golden/test_pretok.py [COUNT [SEED]]     COUNT texts per pre-tokenizer and mix
    tests/golden/test_pretok.py --keep             writes the small set that is in the tree

Code points that are unassigned, or whose category differs between the Unicode versions of the
two libraries, are excluded: there the tables differ, not the code."""
import os
import random
import subprocess
import sys
import unicodedata

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "venv", "bin", "python")
if os.path.exists(VENV) and "INFERFLUX_VENV" not in os.environ:
    os.environ["INFERFLUX_VENV"] = "1"
    os.execv(VENV, [VENV, *sys.argv])

import regex  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"
    "\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
    "\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
WORDS_MARKS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
               r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BEFORE = r"[^\r\n\p{L}\p{N}]?"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SLASHES = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = rf"{BEFORE}[{UPPER}]*[{LOWER}]+|{BEFORE}[{UPPER}]+[{LOWER}]*|\p{{N}}{SLASHES}"
O200K = (rf"{BEFORE}[{UPPER}]*[{LOWER}]+{CONTRACTION}|{BEFORE}[{UPPER}]+[{LOWER}]*{CONTRACTION}"
         rf"|\p{{N}}{{1,3}}{SLASHES}")
KIMI = (rf"(?V1)[\p{{Han}}]+|{BEFORE}[[{UPPER}]&&[^\p{{Han}}]]*[[{LOWER}]&&[^\p{{Han}}]]+{CONTRACTION}"
        rf"|{BEFORE}[[{UPPER}]&&[^\p{{Han}}]]+[[{LOWER}]&&[^\p{{Han}}]]*{CONTRACTION}|\p{{N}}{{1,3}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PRE = {
    "gpt-2": [GPT2],
    "llama-bpe": [WORDS % "{1,3}"],
    "qwen2": [WORDS % ""],
    "qwen35": [WORDS_MARKS],
    "tekken": [TEKKEN],
    "gpt-4o": [O200K],
    "kimi-k2": [KIMI],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK3],
    "smollm": [r"\p{N}", GPT2],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    "deepseek-llm": [r"[\r\n]", rf"\s?[{CASED}]+",
                     "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                     r"\s+$", CJK, r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "gemma4": [r"[^\n]+|\n+"],
}


def cut(text, expressions):
    pieces = [text]
    for expression in expressions:
        after = []
        for piece in pieces:
            last = 0
            for m in expression.finditer(piece):
                if m.end() == m.start():
                    continue
                if m.start() > last:
                    after.append(piece[last:m.start()])
                after.append(m.group())
                last = m.end()
            if last < len(piece):
                after.append(piece[last:])
        pieces = after
    return pieces


def same_everywhere(c):
    category = unicodedata.category(c)
    return (category not in ("Cn", "Cs") and
            bool(regex.match(r"\p{L}", c)) == category.startswith("L") and
            bool(regex.match(r"\p{N}", c)) == category.startswith("N") and
            all(bool(regex.match(rf"\p{{{k}}}", c)) == category.startswith(k)
                for k in ("P", "S", "M", "Lu", "Lt", "Ll")))


ANY = [chr(i) for i in range(0x110000) if same_everywhere(chr(i))]
BLANKS = [c for c in ANY if c.isspace()]
HARD = list("'''ssSttTrReEvVmMlLdD\u017f\u212a  \t\n\r\u00a0\u3000.,!?$+<=>^~|0123456789abzXYZ"
            "\u00e9\u00c9\u01c5\u02b0\u3007\u30ab\u0915\u093e/\u4e2d\u6587\u0661\u00bd\u2160\U0001f600\u200d\ufe0f\u0301\u180e\u2028\u0085")


def random_text(r, mix):
    n = r.randrange(1, 40)
    if mix == "any":
        return "".join(r.choice(ANY) for _ in range(n))
    if mix == "hard":
        return "".join(r.choice(HARD) for _ in range(n))
    runs = (r.choice((HARD, BLANKS, ANY)) for _ in range(n // 3 + 1))
    return "".join(r.choice(run) * r.randrange(1, 5) for run in runs)


def vectors(count, seed):
    r = random.Random(seed)
    for name, expressions in PRE.items():
        compiled = [regex.compile(e) for e in expressions]
        for mix in ("any", "hard", "runs"):
            for _ in range(count):
                text = random_text(r, mix)
                words = cut(text, compiled)
                assert "".join(words) == text
                lengths = " ".join(str(len(w.encode())) for w in words)
                yield f"{name} {text.encode().hex()} {lengths}\n"


def main():
    keep = sys.argv[1:] == ["--keep"]
    count = 12 if keep else int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    path = os.path.join(ROOT, "tests/golden/pretok.txt" if keep else "build/pretok-vectors.txt")
    with open(path, "w", encoding="ascii") as f:
        f.writelines(vectors(count, seed))
    if keep:
        return 0
    print(f"seed {seed}", flush=True)
    program = os.environ.get("PRETOK_TEST", os.path.join(ROOT, "build/tests/golden/test_pretok"))
    return subprocess.call([program], cwd=ROOT, env={**os.environ, "PRETOK_VECTORS": path})


if __name__ == "__main__":
    sys.exit(main())
