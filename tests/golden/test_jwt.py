#!/usr/bin/env python3
"""Verdicts about JSON Web Tokens equal those of npm's `jose`, for valid and altered tokens and key
sets. JWT_TOKENS is the number of tokens (default 4,000), JWT_SEED selects them.

The only difference that is allowed: jose accepts more than one encoding of the same bytes (bits that
are not used, padding, white space), and this program accepts one."""
import base64
import collections
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import equal, program, run
from sdk import NODE

ISSUER, AUDIENCE, SKEW, NOW = "https://issuer.test", "inferflux", "60", "1800000000"
COUNT = int(os.environ.get("JWT_TOKENS", 4000))


def is_canonical(token):
    for part in token.split("."):
        if not re.fullmatch("[A-Za-z0-9_-]*", part) or len(part) % 4 == 1:
            return False
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        if base64.urlsafe_b64encode(data).decode().rstrip("=") != part:
            return False
    return True


def test_verdicts_equal_those_of_jose():
    made = subprocess.run([NODE, os.path.join(ROOT, "tests/golden/jwt_tokens.mjs"), str(COUNT),
        os.environ.get("JWT_SEED", "1"), os.path.join(ROOT, "build/node"), ISSUER, AUDIENCE, SKEW, NOW],
        stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    lines = [line.split("\t") for line in made]
    verified = subprocess.run([program("tools/verify_jwt"), ISSUER, AUDIENCE, SKEW, NOW],
        input="".join(line[0] + "\n" for line in lines), stdout=subprocess.PIPE, text=True,
        check=True).stdout.splitlines()
    equal(len(verified), len(lines))
    counts, differ = collections.Counter(), []
    for (token, *rest), got in zip(lines, verified):
        if not rest:
            assert got.startswith("keys "), got
            keys = token
            continue
        want, kind = rest
        is_ok = got.startswith("ok ")
        subject = got.split(" ", 2)[2] if is_ok else None
        counts[kind, "accepted" if is_ok else "refused"] += 1
        if (want == "ok " + str(subject)) == is_ok and want.startswith("ok ") == is_ok:
            continue
        if want.startswith("ok ") and not is_ok and not is_canonical(token):
            counts["encoding"] += 1
            continue
        differ.append((kind, want, got, token, keys))
    for kind, want, got, token, keys in differ[:5]:
        print(f"  {kind}: jose: {want}; here: {got}\n    {token}\n    {keys}")
    equal(len(differ), 0, "different verdicts")
    accepted = sum(n for k, n in counts.items() if k[1] == "accepted")
    print(f"  {COUNT} tokens, {accepted} accepted, {counts['encoding']} with another encoding")
    assert COUNT / 20 < accepted < COUNT * 2 / 3, counts
    for kind in "hmac", "unsigned", "zeros", "parts":
        equal(counts[kind, "accepted"], 0, kind)
        assert counts[kind, "refused"] or COUNT < 2000, kind


if __name__ == "__main__":
    run(globals())
