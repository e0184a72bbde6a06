#!/usr/bin/env python3
"""The second start maps the weights that the first one packed, and gives byte-identical output;
a pack that does not match is written again."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "venv", "bin", "python")
if os.path.exists(VENV) and "INFERFLUX_VENV" not in os.environ:
    os.environ["INFERFLUX_VENV"] = "1"
    os.execv(VENV, [VENV, *sys.argv])

import gguf  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, program, run  # noqa: E402

LEAST = 64 << 20  # smaller models have no pack


def make_model(path, kind="F16", layers=3):
    subprocess.run([program("tools/mkmodel"), "--layers", str(layers), "--embd", "1024", "--ff", "4096",
        "--heads", "16", "--kv-heads", "4", "--type", kind, "-o", path], check=True,
        stdout=subprocess.DEVNULL)
    assert os.path.getsize(path) > LEAST, os.path.getsize(path)


def split(path, **how):
    """Returns the paths of the parts of a split model, in the common naming scheme."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path, "llama", **how)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0],
                field.types[-1] if len(field.types) > 1 else None)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    folder = os.path.dirname(path)
    return [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if "-of-" in f]


def settle(path):
    """Waits: the time of a file counts only two seconds after its last write."""
    while time.time() - os.stat(path).st_ctime < 4:
        time.sleep(0.1)


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 1]))


class Start:
    """One run of the server: its output, and its log line about packed weights."""

    def __init__(self, model, *flags, wait_for=None):
        with Server("--model", model, "--threads", "2", "--ctx-size", "256", *flags, config=None) as s:
            body = {"prompt": "Once", "n_predict": 8, "temperature": 0, "n_probs": 3}
            status, _, text = s.request("POST", "/completion", json.dumps(body))
            answer = json.loads(text)
            equal(status, 200)
            self.answer = answer["content"], answer["completion_probabilities"]
            deadline = time.monotonic() + 60
            while wait_for and f'path="{wait_for}" mb=' not in s.errors():
                assert time.monotonic() < deadline, s.errors()
                time.sleep(0.02)
            s.stop()
            self.log = s.errors()


def test_the_second_start_maps_the_packed_weights_of_the_first():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "m.gguf")
        pack = model + ".pack"
        make_model(model)
        settle(model)
        want = Start(model, "--pack", "off")
        equal(os.listdir(folder), ["m.gguf"])
        first = Start(model, wait_for=pack)
        assert f'path="{pack}" mb=' in first.log, first.log
        written = os.stat(pack)
        for flags in ((), ("--pack", "ram")):
            again = Start(model, *flags)
            assert "packfile" not in again.log, again.log
            equal(again.answer, want.answer)
            equal(os.stat(pack).st_ino, written.st_ino)
        equal(first.answer, want.answer)
        with Server("--model", model, config=None) as s:
            body = json.dumps({"prompt": "a", "max_tokens": 2, "ignore_eos": True})
            equal(s.request("POST", "/v1/completions", body)[0], 200)
            os.truncate(pack, 1 << 20)
            for _ in range(2):
                status, _, text = s.request("POST", "/v1/completions", body)
                equal((status, json.loads(text)["error"]["code"]), (500, "model_corrupt"))
            equal(s.get("/livez")[0], 200)
        equal(Start(model, wait_for=pack).answer, want.answer)


def test_the_same_bytes_in_another_file_are_recognised_by_digest():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "m.gguf")
        make_model(model)
        settle(model)
        want = Start(model, wait_for=model + ".pack")
        os.utime(model, ns=(1, 1))
        there = os.path.join(folder, "there")
        os.mkdir(there)
        copy = os.path.join(there, "other.gguf")
        shutil.copyfile(model, copy)
        shutil.copyfile(model + ".pack", copy + ".pack")
        for path in (model, copy):
            pack = path + ".pack"
            inode = os.stat(pack).st_ino
            settle(path)
            compared = Start(path)
            assert "packfile_compared" in compared.log, compared.log
            assert "packfile_unused" not in compared.log, compared.log
            equal(compared.answer, want.answer)
            assert "packfile" not in Start(path).log
            equal(os.stat(pack).st_ino, inode)


def test_a_damaged_or_stale_pack_is_written_again():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "m.gguf")
        pack = model + ".pack"
        make_model(model)
        settle(model)
        want = Start(model, wait_for=pack)
        flip(pack, 40 << 20)
        damaged = Start(model, wait_for=pack)
        assert "chunks are damaged" in damaged.log, damaged.log
        equal(damaged.answer, want.answer)
        assert "packfile" not in Start(model).log
        was = os.stat(model)
        with open(model, "r+b") as f:
            f.seek(-(20 << 20), os.SEEK_END)
            f.write(bytes(2 << 20))
        os.utime(model, ns=(was.st_atime_ns, was.st_mtime_ns))
        equal(os.stat(model).st_mtime_ns, was.st_mtime_ns)
        settle(model)
        stale = Start(model, wait_for=pack)
        assert "packed from another model" in stale.log, stale.log
        equal(stale.answer, Start(model, "--pack", "off").answer)
        assert "packfile" not in Start(model).log


def test_a_split_model_is_packed_once_and_every_part_is_checked():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "m.gguf")
        make_model(model)
        whole = Start(model, "--pack", "off")
        parts = split(model, split_max_size=60 << 20, small_first_shard=True)
        os.unlink(model)
        equal(len(parts), 3)
        assert max(os.path.getsize(p) for p in parts) < LEAST, "each is smaller than what pays"
        pack = parts[0] + ".pack"
        settle(parts[-1])
        first = Start(parts[0], wait_for=pack)
        equal(first.answer, whole.answer)
        equal(sorted(os.listdir(folder)), sorted(os.path.basename(p) for p in (*parts, pack)))
        inode = os.stat(pack).st_ino
        again = Start(parts[0])
        assert "packfile" not in again.log, again.log
        equal((again.answer, os.stat(pack).st_ino), (whole.answer, inode))
        for part in parts[1:]:
            was = os.stat(part)
            with open(part, "r+b") as f:
                f.seek(-(8 << 20), os.SEEK_END)
                f.write(bytes(2 << 20))
            os.utime(part, ns=(was.st_atime_ns, was.st_mtime_ns))
            settle(part)
            changed = Start(parts[0], wait_for=pack)
            assert "packed from another model" in changed.log, changed.log
            equal(changed.answer, Start(parts[0], "--pack", "off").answer)
            assert "packfile" not in Start(parts[0]).log


def test_a_model_file_that_is_truncated_during_its_load_ends_the_start_in_order():
    """The file is mapped while its weights are packed. Whenever it is cut, the server ends with one
    line, or it has loaded the model before."""
    ended = 0
    with tempfile.TemporaryDirectory() as folder:
        whole, model = (os.path.join(folder, name) for name in ("whole.gguf", "m.gguf"))
        make_model(whole)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("INFERFLUX_")}
        for i in range(8):
            shutil.copyfile(whole, model)
            p = subprocess.Popen([program("inferfluxd"), "--port", "0", "--store", "none", "--pack", "off",
                "--threads", "1", "--model", model], env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True)
            time.sleep(0.03 * (i + 1))
            os.truncate(model, os.path.getsize(model) // 3)
            try:
                log = p.communicate(timeout=3)[1]
            except subprocess.TimeoutExpired:
                p.terminate()
                log = p.communicate()[1]
                equal(p.returncode, 0, log)
                continue
            equal(p.returncode, 1, log)
            last = log.splitlines()[-1]
            assert last.startswith("inferfluxd: ") and model in last, log
            ended += 1
    assert ended > 0, "the file was never cut during the load"


def test_weights_that_are_no_numbers_end_each_request_with_an_error():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "nan.gguf")
        subprocess.run([program("tools/mkmodel"), "--preset", "tiny-llama", "--vocab-from",
            os.path.join(ROOT, "models/demo.gguf"), "-o", model], check=True, stdout=subprocess.DEVNULL)
        norm = next(t for t in gguf.GGUFReader(model).tensors if t.name == "output_norm.weight")
        with open(model, "r+b") as f:
            f.seek(int(norm.data_offset))
            f.write(b"\xff" * int(norm.n_bytes))
        config = f"models:\n  - id: nan\n    path: {model}\n  - id: demo\n    path: {ROOT}/models/demo.gguf\n"
        with Server("--spec", "off", config=config) as s:
            for _ in range(2):
                body = {"model": "nan", "prompt": "a", "max_tokens": 2}
                status, _, text = s.request("POST", "/v1/completions", json.dumps(body))
                equal((status, json.loads(text)["error"]["code"]), (500, "model_corrupt"))
                status, _, text = s.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
                assert b"no valid logits" in text, (status, text)
                status, _, text = s.request("POST", "/v1/completions", json.dumps({**body, "model": "demo"}))
                equal(status, 200, text)
            equal(s.errors().count("invalid_logits"), 1)


def test_a_directory_gives_the_same_answer_and_is_packed_next_to_it():
    with tempfile.TemporaryDirectory() as folder:
        model, directory = os.path.join(folder, "m.gguf"), os.path.join(folder, "hf")
        make_model(model)
        want = Start(model, "--pack", "off")
        os.mkdir(directory)
        subprocess.run([program("tools/mkmodel"), "--from", model, "--directory", "hf", "-o", directory],
            check=True)
        os.unlink(model)
        weights = os.path.join(directory, "model.safetensors")
        settle(weights)
        first = Start(directory + "/", wait_for=directory + ".pack")
        equal(first.answer, want.answer)
        again = Start(directory)
        assert "packfile" not in again.log, again.log
        equal(again.answer, want.answer)
        flip(weights, 40 << 20)
        changed = Start(directory)
        assert "packed from another model" in changed.log, changed.log
        assert changed.answer != want.answer


def test_a_directory_in_fp8_is_packed_with_one_byte_per_weight():
    with tempfile.TemporaryDirectory() as folder:
        model, directory = os.path.join(folder, "m.gguf"), os.path.join(folder, "fp8")
        make_model(model, "F32", 5)
        os.mkdir(directory)
        subprocess.run([program("tools/mkmodel"), "--from", model, "--directory", "fp8", "-o", directory],
            check=True)
        os.unlink(model)
        settle(os.path.join(directory, "model.safetensors"))
        want = Start(directory, "--pack", "off")
        first = Start(directory, wait_for=directory + ".pack")
        again = Start(directory)
        assert "packfile" not in again.log, again.log
        equal((first.answer, again.answer), (want.answer, want.answer))
        weights = os.path.getsize(os.path.join(directory, "model.safetensors"))
        assert LEAST < os.path.getsize(directory + ".pack") < 1.1 * weights


def test_a_pipe_in_its_place_is_left_alone():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "m.gguf")
        make_model(model)
        os.mkfifo(model + ".pack")
        log = Start(model).log
        assert "not a regular file" in log, log
        equal(sorted(os.listdir(folder)), ["m.gguf", "m.gguf.pack"])


run(globals())
