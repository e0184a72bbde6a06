#!/usr/bin/env python3
"""A model with recurrent layers: conversations resume at checkpoints of the state, requests run
together, and a conversation continues in another server. The weights are random."""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from harness import ROOT, Server, equal, program, run  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
MODEL = os.path.join(FOLDER.name, "recurrent.gguf")
CONFIG = f"models:\n  - {{id: recurrent, path: {MODEL}}}\n"
PROMPT = [7 * i % 900 + 20 for i in range(75)]
QUESTION = [5, 6, 7, 8]


def complete(s, prompt, **fields):
    """Returns the output tokens of a prompt of tokens, and the number of cached prompt tokens."""
    body = {"model": "recurrent", "prompt": prompt, "n_predict": 12, "seed": 3, "return_tokens": True, **fields}
    status, _, answer = s.request("POST", "/completion", json.dumps(body))
    equal(status, 200, answer)
    answer = json.loads(answer)
    return answer["tokens"], answer["timings"]["cache_n"]


def metrics(s):
    lines = s.get("/metrics")[2].decode().split("\n")
    pairs = [x.removeprefix("inferflux_").split(" ") for x in lines if x and x[0] != "#" and "{" not in x]
    return {name: float(value) for name, value in pairs}


def test_a_conversation_resumes_at_its_checkpoints():
    with Server(config=CONFIG) as s:
        first, n = complete(s, PROMPT)
        equal(n, 0)
        # The row of the last output token was not computed; everything before it is found.
        turn = PROMPT + first + QUESTION
        second, n = complete(s, turn)
        equal(n, len(PROMPT) + len(first) - 1)
        equal(complete(s, PROMPT), (first, len(PROMPT) - 1))
        # Without the prefix cache the same bytes are computed.
        equal(complete(s, turn, cache_prompt=False), (second, 0))


def test_a_third_prompt_resumes_where_two_prompts_diverged():
    common = PROMPT * 3
    with Server(config=CONFIG) as s:
        equal(complete(s, common + [20] * 40)[1], 0)
        equal(complete(s, common + [30] * 40)[1], 0)
        equal(complete(s, common + [40] * 40)[1], len(common))


def test_requests_together_and_alone_have_the_same_bytes():
    prompts = [PROMPT * (i % 3 + 1) + [i] for i in range(12)]
    with Server("--prefix-cache", "off", "--spec", "off", config=CONFIG) as s:
        alone = [complete(s, p)[0] for p in prompts]
    with Server("--parallel", "6", "--state-cache", "100K", config=CONFIG) as s:
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda p: complete(s, p)[0], prompts * 2))
        equal(together, alone * 2)
        m = metrics(s)
        equal(m["state_slots_used"], 0)
        assert m["state_checkpoints_total"] > 0, m
        assert 12 <= m["state_slots_total"] <= 14, m


def test_a_saved_conversation_continues_in_another_server():
    with tempfile.TemporaryDirectory() as d:
        with Server("--slot-save-path", d, config=CONFIG) as s:
            first, _ = complete(s, PROMPT, id_slot=1)
            status, _, body = s.request("POST", "/slots/1?action=save", '{"filename": "talk"}')
            equal(status, 200, body)
            second, _ = complete(s, PROMPT + first + QUESTION)
        with Server("--slot-save-path", d, config=CONFIG) as s:
            status, _, body = s.request("POST", "/slots/1?action=restore", '{"filename": "talk"}')
            equal(status, 200, body)
            again, n = complete(s, PROMPT + first + QUESTION, id_slot=1)
            equal((again, n), (second, len(PROMPT) + len(first) - 1))


def chat(s, messages):
    """Returns the text and the number of cached prompt tokens of a chat completion."""
    body = {"model": "recurrent", "messages": messages, "max_tokens": 16, "seed": 3}
    status, _, answer = s.request("POST", "/v1/chat/completions", json.dumps(body))
    equal(status, 200, answer)
    answer = json.loads(answer)
    return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_conversation_resumes_from_disk_after_a_restart():
    with Server("--prefix-cache", "off", config=CONFIG) as bare, tempfile.TemporaryDirectory() as d:
        talk = [{"role": "user", "content": "Write a long story about a small boat. " * 8}]
        first, _ = chat(bare, talk)
        talk += [{"role": "assistant", "content": first}, {"role": "user", "content": "Go on."}]
        second, _ = chat(bare, talk)
        with Server("--kv-disk", d, config=CONFIG) as s:
            equal(chat(s, talk[:1]), (first, 0))
            n_first = json.loads(s.request("POST", "/tokenize", json.dumps(
                {"model": "recurrent", "content": talk[0]["content"]}))[2])["tokens"]
        # The server has ended: what it had in memory is on disk.
        with Server("--kv-disk", d, config=CONFIG) as s:
            text, n_cached = chat(s, talk)
            equal(text, second)
            assert n_cached >= len(n_first), (n_cached, len(n_first))
            m = metrics(s)
            equal(m["kv_disk_fetched_checkpoints_total"], 1)
            assert m["kv_disk_fetched_pages_total"] > 1, m
            equal(m["kv_disk_failed_pages_total"], 0)


def test_few_state_slots_go_to_disk_while_the_server_runs():
    prompts = [[20 + i] + PROMPT * 2 for i in range(8)]
    with Server("--prefix-cache", "off", "--spec", "off", config=CONFIG) as s:
        alone = [complete(s, p)[0] for p in prompts]
    # There are about five slots, and each request leaves two checkpoints.
    with tempfile.TemporaryDirectory() as d, \
            Server("--kv-disk", d, "--parallel", "2", "--state-cache", "40K", config=CONFIG) as s:
        for _ in range(3):
            equal([complete(s, p)[0] for p in prompts], alone)
        m = metrics(s)
        assert m["kv_disk_written_checkpoints_total"] > 0, m
        assert m["kv_disk_fetched_checkpoints_total"] > 0, m
        equal(m["kv_disk_failed_pages_total"], 0)


def test_damaged_files_are_a_miss():
    with tempfile.TemporaryDirectory() as d:
        with Server("--kv-disk", d, config=CONFIG) as s:
            expected = complete(s, PROMPT)
        names = [os.path.join(at, name) for at, _, names in os.walk(d) for name in names if name.endswith(".seg")]
        for name in names:
            with open(name, "r+b") as f:
                content = bytearray(f.read())
                content[200::97] = bytes(255 - b for b in content[200::97])
                f.seek(0)
                f.write(content)
        with Server("--kv-disk", d, config=CONFIG) as s:
            equal(complete(s, PROMPT), expected)
            equal(metrics(s)["kv_disk_fetched_checkpoints_total"], 0)


if __name__ == "__main__":
    subprocess.run([program("tools/mkmodel"), "--preset", "tiny-qwen35", "--vocab-from",
        os.path.join(ROOT, "models/demo.gguf"), "-o", MODEL], check=True, stdout=subprocess.DEVNULL)
    run(globals())
