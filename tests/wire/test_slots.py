#!/usr/bin/env python3
"""Slots of llama-server: assignment, and conversations in files, which are saved, restored by
the same server or a later one, and erased; hostile file names and contents."""
import json
import os
import shutil
import stat
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, run

TEXT = "The first rule of the house is that the schedule never shows. " * 4
ASK = {"prompt": TEXT, "n_predict": 24, "temperature": 0, "return_tokens": True}


def complete(s, **more):
    status, _, body = s.request("POST", "/completion", json.dumps({**ASK, **more}).encode())
    equal(status, 200, body)
    return json.loads(body)


def slot_action(s, slot, action, body=None, **fields):
    status, _, answer = s.request("POST", f"/slots/{slot}?action={action}",
        json.dumps(body or {}).encode(), **fields)
    return status, json.loads(answer)


def slots(s, query="", **fields):
    status, _, body = s.get("/slots" + query, **fields)
    return status, json.loads(body)


def error(answer):
    return answer["error"]["code"], answer["error"]["type"], answer["error"]["message"]


def test_requests_are_assigned_to_slots():
    with Server("--parallel", "2") as s:
        status, all_slots = slots(s)
        equal(status, 200)
        equal(all_slots, [{"id": i, "n_ctx": all_slots[0]["n_ctx"], "speculative": True,
            "is_processing": False} for i in range(2)])
        equal(complete(s, id_slot=1)["id_slot"], 1)
        equal(complete(s, prompt="Another one")["id_slot"], 0)
        status, all_slots = slots(s)
        one = all_slots[1]
        equal((one["id_task"], one["is_processing"]), (0, False))
        equal(one["params"]["n_predict"], 24)
        equal(one["next_token"]["has_next_token"], False)
        equal(one["next_token"]["n_remain"] + one["next_token"]["n_decoded"], 24)
        for bad in (2, 1 << 30):
            status, _, body = s.request("POST", "/completion",
                json.dumps({"prompt": "x", "id_slot": bad}).encode())
            equal((status, json.loads(body)["error"]["message"]), (400, "Invalid slot ID"))
        status, answer = slot_action(s, 0, "save", {"filename": "x"})
        equal((status, error(answer)), (501, (501, "not_supported_error",
            "This server does not support slots action. Start it with `--slot-save-path`")))


def test_all_slots_are_busy():
    with Server("--parallel", "1") as s:
        body = {"model": "echo", "max_tokens": 100, "stream": True,
            "messages": [{"role": "user", "content": "x"}],
            "script": {"text": "a b c d e f g h", "delay_ms": 60000}}
        line = s.connect()
        data = json.dumps(body).encode()
        line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
            b"\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        line.recv(10)  # the response has begun: the slot is assigned
        status, all_slots = slots(s, "?model=echo")
        equal((status, all_slots[0]["is_processing"]), (200, True))
        status, answer = slots(s, "?model=echo&fail_on_no_slot=1")
        equal((status, error(answer)), (503, (503, "unavailable_error", "no slot available")))
        equal(slots(s, "?model=demo&fail_on_no_slot=1")[0], 200)
        line.close()
        while slots(s, "?model=echo&fail_on_no_slot=1")[0] != 200:
            pass


def uncached_response():
    with Server("--prefix-cache", "off") as s:
        return complete(s)


def test_a_conversation_is_restored_in_a_later_server():
    want = uncached_response()
    with tempfile.TemporaryDirectory() as d:
        with Server("--slot-save-path", d) as s:
            equal(complete(s, id_slot=2)["content"], want["content"])
            status, saved = slot_action(s, 2, "save", {"filename": "talk 1.bin"})
            equal(status, 200, saved)
            path = os.path.join(d, "talk 1.bin")
            equal((saved["id_slot"], saved["filename"]), (2, "talk 1.bin"))
            equal(saved["n_written"], os.path.getsize(path))
            equal(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            assert saved["n_saved"] >= want["tokens_evaluated"], saved
            assert saved["timings"]["save_ms"] > 0
        with Server("--slot-save-path", d) as s:
            status, back = slot_action(s, 1, "restore", {"filename": "talk 1.bin"})
            equal(status, 200, back)
            equal((back["id_slot"], back["n_restored"]), (1, saved["n_saved"]))
            equal(back["n_read"], saved["n_written"])
            warm = complete(s, id_slot=1)
            equal(warm["tokens"], want["tokens"])
            equal(warm["content"], want["content"])
            equal(warm["timings"]["cache_n"], want["tokens_evaluated"] - 1)
            # The next turn as well: the output is in the file.
            longer = TEXT + want["content"] + " And then?"
            found = complete(s, prompt=longer)["timings"]["cache_n"]
            assert found >= want["tokens_evaluated"], found
            # The digest of the model was stored; files of clients cannot collide with it.
            assert os.path.exists(os.path.join(d, ".digests"))
            equal(slot_action(s, 1, "save", {"filename": ".digests"})[0], 400)


def test_an_erased_prefix_is_not_found():
    with tempfile.TemporaryDirectory() as d, Server("--slot-save-path", d) as s:
        complete(s, id_slot=0)
        equal(complete(s, id_slot=0)["timings"]["cache_n"] > 0, True)
        status, gone = slot_action(s, 0, "erase")
        equal(status, 200, gone)
        assert gone["id_slot"] == 0 and gone["n_erased"] > 0, gone
        equal(slot_action(s, 0, "erase"), (200, {"id_slot": 0, "n_erased": 0}))
        equal(complete(s, id_slot=3)["timings"]["cache_n"], 0)
        status, answer = slot_action(s, 0, "save", {"filename": "x"})
        equal(status, 400, answer)


def test_file_names_cannot_leave_the_directory():
    bad = ["", ".", "..", "../x", "/etc/passwd", "a/b", ".hidden", "a\\b", "c:x", "nul\u0000",
        "line\nfeed", "x" * 201, "end.", " x", 7, None, ["x"], {"a": 1}]
    with tempfile.TemporaryDirectory() as d, Server("--slot-save-path", d) as s:
        complete(s, id_slot=0)
        for name in bad:
            for action in ("save", "restore"):
                status, answer = slot_action(s, 0, action, {"filename": name})
                equal((status, error(answer)[1]), (400, "invalid_request_error"), name)
        equal([f for f in os.listdir(d)], [], "nothing was written")
        outside = os.path.join(s.dir.name, "outside")
        with open(outside, "w") as f:
            f.write("mine")
        os.symlink(outside, os.path.join(d, "link"))
        equal(slot_action(s, 0, "restore", {"filename": "link"})[0], 500)
        equal(slot_action(s, 0, "save", {"filename": "link"})[0], 200)  # the link itself is replaced
        equal(open(outside).read(), "mine")
        os.mkfifo(os.path.join(d, "pipe"))
        equal(slot_action(s, 0, "restore", {"filename": "pipe"})[0], 500)
        equal(slot_action(s, 0, "restore", {"filename": "none"})[0], 404)
        for path, message in (("9?action=save", "Invalid slot ID"), ("x?action=save", "Invalid slot ID"),
                ("-1?action=save", "Invalid slot ID"), ("0?action=burn", "Invalid action"),
                ("0", "Invalid action")):
            status, _, body = s.request("POST", "/slots/" + path, b'{"filename":"x"}')
            equal((status, json.loads(body)["error"]["message"]), (400, message), path)
        # A body of many small values is an error of the client, not a lack of memory.
        many = {"filename": "x", "more": [[]] * 100000}
        equal(slot_action(s, 0, "restore", many)[0], 400)


def test_damaged_and_foreign_files_are_rejected():
    with tempfile.TemporaryDirectory() as d:
        with Server("--slot-save-path", d) as s:
            complete(s, id_slot=0)
            equal(slot_action(s, 0, "save", {"filename": "good"})[0], 200)
            with open(os.path.join(d, "good"), "rb") as f:
                good = f.read()
            damaged = {"cut": good[:-1], "short": good[:100], "empty": b"", "none": b"x" * 5000,
                "long": good + bytes(1 << 26), "version": good[:8] + b"\x09" + good[9:],
                "head": good[:60] + bytes([good[60] ^ 1]) + good[61:],
                "page": good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]}
            for name, data in damaged.items():
                with open(os.path.join(d, name), "wb") as f:
                    f.write(data)
                status, answer = slot_action(s, 0, "restore", {"filename": name})
                assert status in (400, 413), (name, status, answer)
            equal(slot_action(s, 0, "restore", {"filename": "good"})[0], 200)
            equal(json.loads(s.get("/debug/invariants")[2])["ok"], True)
        with Server("--slot-save-path", d, "--kv-type", "bf16") as s:
            status, answer = slot_action(s, 0, "restore", {"filename": "good"})
            equal((status, error(answer)[2]), (400, "Unable to restore slot: the KV record has another page layout"))
        copy = os.path.join(d, "copy.gguf")
        with open(os.path.join(ROOT, "models/demo.gguf"), "rb") as f:
            data = bytearray(f.read())
        data[-1] ^= 1
        with open(copy, "wb") as f:
            f.write(data)
        with Server("--slot-save-path", d, "--model", copy, config=None) as s:
            status, answer = slot_action(s, 0, "restore", {"filename": "good"})
            equal((status, error(answer)[2]),
                (400, "Unable to restore slot: the KV record belongs to another model"))


def test_kv_of_a_replaced_model_file_is_not_saved():
    with tempfile.TemporaryDirectory() as d:
        copy = os.path.join(d, "copy.gguf")
        shutil.copy(os.path.join(ROOT, "models/demo.gguf"), copy)
        os.mkdir(os.path.join(d, "slots"))
        with Server("--slot-save-path", os.path.join(d, "slots"), "--model", copy, config=None) as s:
            complete(s, id_slot=0)
            shutil.copy(copy, copy + ".new")
            os.replace(copy + ".new", copy)  # the same bytes, but that is not verified
            status, answer = slot_action(s, 0, "save", {"filename": "x"})
            assert "files changed after the model was loaded" in error(answer)[2], (status, answer)
            assert not os.path.exists(os.path.join(d, "slots", "x"))


def test_keys_are_isolated():
    keys = "a,b,r1:group=red,r2:group=red,root:admin"
    with tempfile.TemporaryDirectory() as d:
        with Server("--slot-save-path", d, "--api-key", keys, key="root") as s:
            as_key = lambda k: {"Authorization": "Bearer " + k}
            ask = lambda k, **more: json.loads(s.request("POST", "/completion",
                json.dumps({**ASK, **more}).encode(), **as_key(k))[2])
            ask("a", id_slot=0)
            equal(slot_action(s, 0, "save", {"filename": "x"}, **as_key("a"))[0], 200)
            equal(slot_action(s, 0, "save", {"filename": "x"}, **as_key("b"))[0], 403)
            equal(slot_action(s, 0, "erase", **as_key("b"))[0], 403)
            equal(slot_action(s, 0, "restore", {"filename": "x"}, **as_key("b"))[0], 404)
            assert "params" in slots(s, **as_key("a"))[1][0]
            assert "params" not in slots(s, **as_key("b"))[1][0]
            # A file that was moved there manually still belongs to the other key.
            equal(ask("b", id_slot=1)["timings"]["cache_n"], 0)
            equal(slot_action(s, 1, "save", {"filename": "x"}, **as_key("b"))[0], 200)
            mine, other = sorted(f for f in os.listdir(d) if f.startswith("key-"))
            for to, of in ((mine, other), (other, mine)):
                os.link(os.path.join(d, of, "x"), os.path.join(d, to, "moved"))
            for k in "ab":
                equal(slot_action(s, 3, "restore", {"filename": "moved"}, **as_key(k))[0], 403)
            # Keys of a group share, other keys do not.
            equal(ask("r1", id_slot=2)["timings"]["cache_n"], 0)
            assert ask("r2", id_slot=2)["timings"]["cache_n"] > 0
            equal(slot_action(s, 2, "save", {"filename": "y"}, **as_key("r2"))[0], 200)
            equal(slot_action(s, 2, "restore", {"filename": "y"}, **as_key("r1"))[0], 200)
            equal(ask("root")["timings"]["cache_n"], 0)


def test_files_have_a_limit():
    with tempfile.TemporaryDirectory() as d:
        with Server("--slot-save-path", d, "--slot-save-bytes", "1M") as s:
            complete(s, id_slot=0)
            size = slot_action(s, 0, "save", {"filename": "x"})[1]["n_written"]
            for _ in range((1 << 20) // size + 2):
                equal(slot_action(s, 0, "save", {"filename": "x"})[0], 200)  # it replaces its own file
            answers = [slot_action(s, 0, "save", {"filename": f"y{i}"})[0] for i in range((1 << 20) // size)]
            equal(answers[-1], 413)
            equal([f for f in os.listdir(d) if f.startswith(".part")], [])


def test_slot_files_do_not_block_other_requests():
    with tempfile.TemporaryDirectory() as d, Server("--slot-save-path", d) as s:
        complete(s, id_slot=0)
        failed = []

        def busy(i):
            for n in range(20):
                for action in ("save", "restore"):
                    status, answer = slot_action(s, 0, action, {"filename": f"f{i}"})
                    if status != 200:
                        failed.append(answer)

        threads = [threading.Thread(target=busy, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        want = complete(s)["content"]
        for _ in range(10):
            equal(complete(s)["content"], want)
        for t in threads:
            t.join()
        equal(failed, [])
        # A client that disconnects may or may not get its file written: nothing leaks.
        for i in range(20):
            line = s.connect()
            line.sendall(b"POST /slots/0?action=save HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n"
                b'{"filename": "gone"}')
            line.close()
        deadline = time.monotonic() + 60
        while (found := json.loads(s.get("/debug/invariants")[2]))["pages"]["owned"]:
            assert time.monotonic() < deadline, found
        equal(found["ok"], True)


if __name__ == "__main__":
    run(globals())
