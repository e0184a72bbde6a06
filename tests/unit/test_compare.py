#!/usr/bin/env python3
"""Statistics of bench/compare.py and bench/serving.py: medians over rounds, goals, groups,
seeds."""
import contextlib
import io
import json
import os
import sys
import tempfile
import types

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests/support"), os.path.join(ROOT, "bench")]
import compare
import serving
from harness import run


def a_round(**changes):
    return {"row": "decode-q4_0", "ours": 30.0, "theirs": 20.0, "cached": [0, 0], "read": 90.0,
            "compute": 10.0, "load": 1.0, "commit": "new", "build": "AVX512 AVX2", "kernels": "auto",
            "kv": "f16", "threads": 2, "when": "2026-01-02 00:00:00", **changes}


def shown(lines):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f, \
            contextlib.redirect_stdout(io.StringIO()) as out:
        f.write("".join(json.dumps(line) + "\n" for line in lines))
        f.flush()
        compare.show(types.SimpleNamespace(results=f.name))
    return out.getvalue()


def test_both_engines_draw_the_same_tokens():
    sys.modules["llama_cpp"] = types.ModuleType("llama_cpp")
    import compare_llama
    known = (((1, 0, 0, 128256), 29413), ((1, 0, 511, 128256), 40836), ((~5, 31, 4096, 1000), 181),
             # the same tokens as in tests/unit/testing/test_bench.c
             (((1 << 60) - 1, 3, 7, 151936), 24596))
    for arguments, token in known:
        assert compare_llama.token(*arguments) == token, arguments


def test_ratios_and_percents_are_medians_of_rounds():
    rounds = [a_round(ours=o, theirs=t, read=r, compute=c)
              for o, t, r, c in ((10, 5, 80, 7), (40, 10, 90, 8), (9, 9, 100, 9))]
    line = compare.summary("decode-q4_0", rounds)
    assert line.startswith("| 1b-Q4_0 | tg24 | 3 | 10.0 | 9.0 | 2.00 | "), line
    assert "| 90 | 8 | 0, 0 |" in line, line


def test_sufficient_bandwidth_replaces_the_ratio():
    line = compare.summary("decode-q4_0", [a_round(ours=20.0, read=84.9)])
    assert "1.4: not met; 85 % mem: not met" in line, line
    line = compare.summary("decode-q4_0", [a_round(ours=20.0, read=85.0)])
    assert "1.4: not met; 85 % mem: met" in line, line
    line = compare.summary("prompt-q4_0", [a_round(ours=80.0)])
    assert "4.0: met |" in line, line  # not for prompts


def test_goals_belong_to_a_row_and_a_kernel_set():
    says = lambda **changes: compare.summary("decode-q4_0", [a_round(ours=25.0, **changes)])
    assert "| 1.3: not met |" in says(kernels="avx512")
    assert "| 1.1: met |" in says(kernels="avx2", build="AVX2")
    assert "not limited to AVX2" in says(kernels="avx2")
    assert "|  |" in compare.summary("decode-q8_0", [a_round(kernels="avx2", build="AVX2")])
    for goals in compare.GOALS.values():
        assert set(goals) <= set(compare.TABLE)
    assert compare.READ_ROWS <= set(compare.TABLE)


def test_every_row_has_a_model():
    for name, row in compare.TABLE.items():
        assert row["file"] in compare.SHAPES, name
        assert not (row["ctx"] and row["file"].split("-")[0] in compare.RECURRENT), name


def test_a_peer_has_columns_and_tables_of_its_own():
    peer = {"peer": "ik (AVX2)", "peer_speed": 10.0}
    text = shown([a_round(), a_round(**peer), a_round(ours=20.0, **peer)])
    assert text.count("kernels auto") == 2 and text.count(", peer ik (AVX2):") == 1, text
    assert text.count("| peer t/s | ratio to peer |") == 1 and "| 10.0 | 2.50 |" in text, text
    for table in text.split("\n\n")[1::2]:
        assert len({line.count("|") for line in table.strip().split("\n")}) == 1, table


def test_rounds_of_different_kinds_are_kept_apart_newest_first():
    lines = [a_round(commit="old", when="2026-01-01 00:00:00"), a_round(), a_round(threads=1),
             a_round(build="AVX2"), a_round(kernels="avx2", when="2026-01-03 00:00:00")]
    text = shown(lines)
    assert text.count("| tg24 | 1 |") == 5, text
    assert text.index("kernels avx2") < text.index("commit new") < text.index("commit old"), text
    old = a_round()
    del old["build"]
    assert shown([old, a_round()]).startswith("1 rounds ignored")


def test_the_build_is_parsed_from_the_version_output():
    info = "CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 1 | AVX512_VNNI = 0 | AMX_INT8 = 1 | OPENMP = 1 | "
    assert compare.build_of(info) == "AMX_INT8 AVX512 AVX2"
    assert compare.build_of("CPU : AVX = 1 | AVX2 = 1 | ") == "AVX2"


def test_a_prompt_from_a_cache_ends_the_run():
    end = {"timings": {"cache_n": 0}, "tokens_cached": 191}
    assert serving.tokens_from_cache(end, is_inferflux=False) == 0
    for bad, is_ours in ((end, True), ({"timings": {"cache_n": 1}, "tokens_cached": 0}, False)):
        try:
            serving.tokens_from_cache(bad, is_ours)
        except SystemExit:
            continue
        raise AssertionError(f"let {bad} through")


if __name__ == "__main__":
    run(globals())
