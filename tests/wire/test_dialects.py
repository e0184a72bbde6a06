#!/usr/bin/env python3
"""Dialects other than OpenAI's, byte by byte: what the official clients of tests/sdk do not
show."""
import glob
import hashlib
import json
import os
import re
import socket
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import SHARED, Server, equal, read_all, run

DEMO = os.path.join(ROOT, "models/demo.gguf")
HI = [{"role": "user", "content": "Hi"}]
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"


def post(server, path, **body):
    status, fields, text = server.request("POST", path, json.dumps(body))
    return status, fields, json.loads(text)


def frames(text):
    return [json.loads(f.removeprefix(b"data: ")) for f in text.split(b"\n\n") if f]


def test_a_native_completion_is_not_the_openai_one():
    with Server() as s:
        for path in ("/completion", "/completions"):
            status, _, body = post(s, path, model="demo", prompt="Hello", n_predict=5, temperature=0)
            equal((status, body["stop"], body["stop_type"]), (200, True, "limit"), path)
            equal((body["tokens_predicted"], body["prompt"]), (5, "Hello"))
            assert body["timings"]["predicted_n"] == 5 and "choices" not in body
            stream = s.request("POST", path, json.dumps({"model": "demo", "prompt": "Hello",
                "n_predict": 5, "temperature": 0, "stream": True}))[2]
            parts = frames(stream)
            equal("".join(p["content"] for p in parts), body["content"])
            equal([p["stop"] for p in parts], [False] * (len(parts) - 1) + [True])
        assert "choices" in post(s, "/v1/completions", model="demo", prompt="Hello", max_tokens=1)[2]
        ids = post(s, "/tokenize", model="demo", content="Hello")[2]["tokens"]
        same = post(s, "/completion", model="demo", prompt=ids, n_predict=5, temperature=0)[2]
        equal(same["content"], body["content"])
        two = post(s, "/completion", model="demo", prompt=["Hello", "Bye"], n_predict=2)[2]
        equal([r["prompt"] for r in two], ["Hello", "Bye"])
        probs = post(s, "/completion", model="demo", prompt="Hello", n_predict=3, n_probs=2,
            return_tokens=True)[2]
        equal([t["id"] for t in probs["completion_probabilities"]], probs["tokens"])
        status, _, body = post(s, "/completion", model="demo", prompt="word " * 9000)
        equal((status, body["error"]["type"]), (400, "exceed_context_size_error"))
        assert body["error"]["n_prompt_tokens"] > body["error"]["n_ctx"] > 0


def test_the_kv_format_is_reported():
    whole = {}
    for kind in ("f16", "bf16", "q8_0"):
        with Server("--kv-type", kind, "--kv-bytes", "8388608") as s:
            reply = json.loads(s.get("/props")[2])["kv_cache"]
            equal((reply["type"], reply["page_tokens"]), (kind, 32))
            size = reply["pages"] * reply["page_bytes"]
            assert size <= 8388608
            assert f'inferflux_kv_pool_bytes{{type="{kind}"}} {size}' in s.get("/metrics")[2].decode()
            whole[kind] = reply["page_bytes"]
            status, _, body = post(s, "/completion", model="demo", prompt="Hello", n_predict=4)
            equal((status, body["tokens_predicted"]), (200, 4))
    equal(whole["bf16"], whole["f16"])
    equal(whole["q8_0"] * 32, whole["f16"] * 17)


def test_props_and_health():
    with Server() as s:
        status, _, text = s.get("/props?model=demo")
        props = json.loads(text)
        equal((status, props["model_path"], props["modalities"]["vision"]), (200, "demo.gguf", False))
        assert "im_start" in props["chat_template"] and props["total_slots"] > 0
        equal(props["kv_cache"]["type"], "f16")
        equal(s.get("/props?model=nobody")[0], 404)
        equal(s.get("/props?model=%zz")[0], 400)
        for path in ("/health", "/v1/health"):
            equal(s.get(path)[::2], (200, b'{"status":"ok"}'))


def test_fields_without_effect_are_logged_once():
    said = [{"role": "user", "content": "Hi"}]
    tools = [{"type": "function", "name": "f"}, {"type": "web_search"}]
    search = {"type": "web_search_20250305", "name": "web_search"}
    chat, responses, messages = "/v1/chat/completions", "/v1/responses", "/v1/messages"
    accepted = [("service_tier", chat, {"messages": said, "service_tier": "flex"}),
        ("verbosity", chat, {"messages": said, "verbosity": "low"}),
        ("samplers", "/completion", {"prompt": "Hi", "samplers": ["top_k"], "n_predict": 1}),
        ("text.verbosity", responses, {"input": "Hi", "text": {"verbosity": "low"}}),
        ("max_tool_calls", responses, {"input": "Hi", "max_tool_calls": 1}),
        ("tools", responses, {"input": "Hi", "tools": tools}),
        ("thinking.budget_tokens", messages, {"messages": said, "max_tokens": 2000, "thinking":
            {"type": "enabled", "budget_tokens": 1024}})]
    refused = [("mcp_servers", messages, {"messages": said, "max_tokens": 1, "mcp_servers": [{}]}),
        ("web_search_options", chat, {"messages": said, "web_search_options": {}}),
        ("web_search_20250305", messages, {"messages": said, "max_tokens": 1, "tools": [search]}),
        ("web_search", responses, {"input": "Hi", "tools": tools[1:]}),
        ("web_search", chat, {"messages": said, "tools": tools[1:]}),
        ("MCP", responses, {"input": "Hi", "tools": tools + [{"type": "mcp"}]})]
    flags = ["--role", "prefill", "--prefill-pool-size", "2", "--decode-pool-size", "2",
        "--batch-size", "9000"]
    with Server(*flags) as s:
        post = lambda path, body: s.request("POST", path, json.dumps({"model": "echo", **body}))
        for _, path, body in accepted * 2:
            status, _, text = post(path, body)
            equal(status, 200, (path, body, text))
            if path in (chat, responses) and "service_tier" in body:
                equal(json.loads(text)["service_tier"], "default")
        equal(json.loads(post(responses, {"input": "x", "service_tier": "priority"})[2])["service_tier"],
            "default")
        for name, path, body in refused:
            status, _, text = post(path, body)
            equal(status, 400, (path, body))
            assert name in text.decode(), (name, text)
        with open(s.log_path) as f:
            log = f.read()
        for name, _, _ in accepted:
            equal(log.count(f"no_effect field={name} "), 1, name)
        for name in flags[::2]:
            equal(log.count(f"no_effect option={name} "), 1, name)
    with Server("--batch-size", "512", "--role", "unified") as s:
        assert "no_effect" not in s.errors()


def test_template_capabilities_are_detected():
    template = """{% if tools %}{{ tools }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{"name": "{{ c.function.name }}",
"arguments": {{ c.function.arguments | tojson }} }</tool_call>{% endfor %}{% endif %}{{ m.content or '' }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(template)
        f.flush()
        config = f"models:\n  - id: a\n    path: {DEMO}\n    template_path: {f.name}\n"
        with Server(config=config) as s:
            caps = json.loads(s.get("/props")[2])["chat_template_caps"]
            equal(caps, {"supports_system_role": True, "supports_tools": True, "supports_tool_calls": True,
                "supports_parallel_tool_calls": True, "supports_preserve_reasoning": False})
            assert "tools" in post(s, "/api/show", model="a")[2]["capabilities"]
        f.seek(0)
        f.truncate()
        f.write("{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}")
        f.flush()
        with Server(config=config) as s:
            props = json.loads(s.get("/props")[2])
            equal(props["chat_template_caps"]["supports_tools"], False)
    with Server() as s:
        props = json.loads(s.get("/props")[2])
        equal(props["chat_template_caps"]["supports_tools"], True)
        equal(props["default_generation_settings"]["params"]["top_k"], 40)


def test_prompts_of_texts_and_tokens():
    with Server() as s:
        ids = post(s, "/tokenize", model="demo", content=" world, this is")[2]["tokens"]
        whole = post(s, "/completion", model="demo", prompt="Hello world, this is", n_predict=4,
            temperature=0)[2]
        mixed = post(s, "/completion", model="demo", prompt=["Hello", *ids], n_predict=4,
            temperature=0)[2]
        equal((mixed["content"], mixed["tokens_evaluated"]), (whole["content"], whole["tokens_evaluated"]))
        status, _, body = post(s, "/completion", model="demo", prompt=["Hello", 10 ** 8])
        equal((status, body["error"]["type"]), (400, "invalid_request_error"))
        status, _, body = post(s, "/infill", model="demo", input_prefix="a", input_suffix="b")
        equal((status, body["error"]["type"]), (400, "not_supported_error"))


def test_logit_bias_accepts_token_text():
    ask = {"model": "demo", "prompt": "Hello", "n_predict": 4, "temperature": 0, "return_tokens": True}
    with Server() as s:
        plain = post(s, "/completion", **ask)[2]
        first = post(s, "/detokenize", model="demo", tokens=plain["tokens"][:1])[2]["content"]
        for bias in ([[first, False]], {first: False}, {first: -100}, [[plain["tokens"][0], False]]):
            got = post(s, "/completion", logit_bias=bias, **ask)[2]
            assert got["tokens"][0] != plain["tokens"][0], (bias, got)
        dog, = post(s, "/tokenize", model="demo", content="Q")[2]["tokens"]
        equal(post(s, "/completion", logit_bias=[["Q", 100]], **ask)[2]["tokens"], [dog] * 4)


def test_a_chat_is_counted_and_rendered():
    with Server() as s:
        n = post(s, "/v1/chat/completions", model="demo", messages=HI, max_tokens=1)[2]["usage"]
        equal(post(s, "/v1/chat/completions/input_tokens", model="demo", messages=HI)[2],
            {"object": "response.input_tokens", "input_tokens": n["prompt_tokens"]})
        own = {"messages": HI, "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ x }}",
            "bos_token": "<s>", "chat_template_kwargs": {"x": "!"}}
        equal(post(s, "/apply-template", **own)[2], {"prompt": "<s>Hi!"})
        for bad in ("{% if", "{{ raise_exception('no') }}", "{% for i in range(99999) %}" * 3
                + "x" + "{% endfor %}" * 3):
            status, _, body = post(s, "/apply-template", messages=HI, chat_template=bad)
            equal((status, body["error"]["param"]), (400, "chat_template"), bad)
        equal(post(s, "/v1/chat/completions", model="demo", messages=HI, chat_template="x")[0], 400)
    with Server(env={"INFERFLUX_API_KEYS": "k,boss:admin"}, key="boss") as s:
        for key, want in (("k", 403), ("boss", 200)):
            equal(s.request("POST", "/apply-template", json.dumps(own),
                Authorization="Bearer " + key)[0], want)


def test_bos_is_counted_as_it_is_computed():
    """A file that requests BOS, with a template that writes none: as in llama-server the prompt has
    one more token than its text, also where tokens are only counted."""
    key = b"tokenizer.ggml.add_bos_token\7\0\0\0"
    with open(DEMO, "rb") as f:
        data = f.read()
    assert data.count(key + b"\0") == 1
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "bos.gguf")
        with open(path, "wb") as f:
            f.write(data.replace(key + b"\0", key + b"\1"))
        with Server("--model", path, "--prefix-cache", "off", config=None) as s:
            text = post(s, "/apply-template", messages=HI)[2]["prompt"]
            bare = len(post(s, "/tokenize", content=text, add_special=False)[2]["tokens"])
            equal(len(post(s, "/tokenize", content=text, add_special=True)[2]["tokens"]), bare + 1)
            chat, responses = "/v1/chat/completions", "/v1/responses"
            for path, body, field in ((chat, {"max_tokens": 1}, "prompt_tokens"),
                    (responses, {"input": "Hi", "max_output_tokens": 1}, "input_tokens"),
                    (MESSAGES, {"max_tokens": 1}, "input_tokens"),
                    ("/api/chat", {"stream": False}, "prompt_eval_count"),
                    (COUNT, {}, "input_tokens"), (chat + "/input_tokens", {}, "input_tokens"),
                    (responses + "/input_tokens", {"input": "Hi"}, "input_tokens")):
                answer = post(s, path, **{"messages": HI, **body})[2]
                equal(answer.get("usage", answer)[field], bare + 1, path)
            off = post(s, chat, messages=HI, max_tokens=1, add_special_tokens=False)[2]
            equal(off["usage"]["prompt_tokens"], bare)


def test_models_cannot_be_changed_by_clients():
    with Server() as s:
        for name in ("demo", "demo:latest"):
            equal(post(s, "/api/pull", model=name)[::2], (200, {"status": "success"}))
        for method, path, want in (("POST", "/api/pull", 404), ("POST", "/api/embed", 404),
                ("POST", "/api/embeddings", 404), ("DELETE", "/api/delete", 400),
                ("POST", "/api/create", 400), ("POST", "/api/copy", 400), ("POST", "/api/push", 400),
                ("POST", "/api/blobs/sha256:00", 400)):
            status, _, text = s.request(method, path, json.dumps({"model": "nobody", "input": "x"}))
            equal((status, list(json.loads(text))), (want, ["error"]), path)
        status, _, body = post(s, "/api/embed", model="demo", input="x")
        equal(status, 400)
        assert "embeddings" in body["error"]
        equal(s.request("HEAD", "/api/blobs/sha256:" + "0" * 64, None)[0], 404)
    with tempfile.TemporaryDirectory() as d, Server("--kv-disk", d) as s:
        with open(DEMO, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        equal({m["digest"] for m in json.loads(s.get("/api/tags")[2])["models"]} - {""}, {digest})
        equal(s.request("HEAD", "/api/blobs/sha256:" + digest, None)[0], 200)


def test_a_missing_key_is_an_error_in_each_dialect():
    with Server(env={"INFERFLUX_API_KEYS": "k"}, ready=False) as s:
        for path in (MESSAGES, COUNT):
            status, fields, body = post(s, path, messages=HI)
            equal((status, body["error"]["type"]), (401, "authentication_error"), path)
            equal(body["request_id"], fields["request-id"])
        for path in ("/api/chat", "/api/generate", "/api/show"):
            status, _, body = post(s, path, model="demo")
            equal((status, list(body)), (401, ["error"]), path)
        equal(post(s, "/completion", prompt="x")[2]["error"]["type"], "authentication_error")
        for path in ("/api/tags", "/api/ps", "/api/version", "/props"):
            equal(s.get(path)[0], 401, path)
        for path in ("/", "/health", "/v1/health"):
            equal(s.get(path)[0] in (200, 503), True, path)
        for field in ({"x_api_key": "k"}, {"Authorization": "Bearer k"}):
            assert s.get("/api/tags", **field)[0] == 200
            assert s.get("/v1/models", anthropic_version="2023-06-01", **field)[0] == 200


def test_a_wrong_method_is_an_error_in_each_dialect():
    with Server() as s:
        status, fields, text = s.get(MESSAGES)
        equal((status, fields["allow"], json.loads(text)["type"]), (405, "POST", "error"))
        equal(json.loads(text)["request_id"], fields["request-id"])
        status, _, text = s.get("/api/chat")
        equal((status, list(json.loads(text))), (405, ["error"]))


def test_an_unknown_path_gets_a_problem_document():
    with Server(env={"INFERFLUX_API_KEYS": "k,boss:admin"}, key="boss") as s:
        for method, path, key, want in (("GET", "/nowhere", "k", 404), ("POST", "/v2/chat", "k", 404),
                ("GET", "/v1/admin/fairness", "k", 403), ("GET", "/v1/admin/fairness", "x", 401),
                ("PUT", "/v1/admin/fairness", "boss", 400), ("POST", "/v1/admin/cache", "boss", 405)):
            status, fields, text = s.request(method, path, "{" if method == "PUT" else None,
                Authorization="Bearer " + key)
            equal((status, fields["content-type"]), (want, "application/problem+json"), path)
            problem = json.loads(text)
            equal((problem["status"], problem["type"]), (want, "about:blank"))
            assert problem["title"] and problem["detail"], problem


def test_an_unknown_path_is_an_error_of_the_dialect_of_its_prefix():
    def shape(fields, answer):
        if fields["content-type"] == "application/problem+json":
            return "problem"
        if answer.get("type") == "error":
            return "anthropic" if answer["request_id"] == fields["request-id"] else "no request id"
        error = answer["error"]
        if isinstance(error, str):
            return "ollama" if error else "no message"
        equal((list(error), error["type"], error["param"], error["code"]),
            (["message", "type", "param", "code"], "invalid_request_error", None, "not_found"))
        return "openai"

    cases = {
        "openai": ["/v1", "/v1/", "/v1/embeddings", "/v1/images/generations", "/v1/messagesx",
            "/v1/chat/completions/chatcmpl-1", "/v1/responses/resp_1/nothing", "/v1/models/",
            "/chat/nothing", "/responses/resp_1", "/models/demo", "/v1/nothing?x=1"],
        "anthropic": ["/v1/messages/", "/v1/messages/batches", "/v1/messages/batches/b_1"],
        "ollama": ["/api", "/api/", "/api/nothing", "/api/chat/nothing"],
        "problem": ["/", "/nothing", "/v1x", "/apis", "/v2/chat", "/v1/admin", "/v1/admin/nothing"],
    }
    with Server() as s:
        for want, paths in cases.items():
            for path in paths:
                for method in ("POST", "PATCH", "GET"):
                    status, fields, text = s.request(method, path, "{}" if method != "GET" else None)
                    if status == 405 or (method, path) == ("GET", "/"):
                        continue  # the path exists for another method
                    equal((status, shape(fields, json.loads(text))), (404, want), method + path)


def test_models_have_aliases():
    def model_of(server, name):
        status, _, body = post(server, MESSAGES, model=name, max_tokens=1, messages=HI)
        return body["model"] if status == 200 else status

    with Server() as s:
        equal(model_of(s, "claude-sonnet-4-5-20250929"), "demo")
        equal(model_of(s, "echo:latest"), "echo")
        equal(model_of(s, "demo:7b"), 404)
        equal(model_of(s, "gpt-4o"), 404)
        for path in ("/v1/messages?beta=true", "/v1/messages/count_tokens?beta=true"):
            equal(post(s, path, model="claude-x", max_tokens=1, messages=HI)[0], 200, path)
    with Server("--model-aliases", " claude-haiku*=echo, gpt-4o = demo ,plain") as s:
        equal(model_of(s, "claude-haiku-4"), "echo")
        equal(model_of(s, "claude-opus-4"), 404)
        equal(model_of(s, "gpt-4o"), "demo")
        equal(model_of(s, "gpt-4o-mini"), 404)
        equal(model_of(s, "plain"), "demo")
    with Server("--model", DEMO, "--strict-model", "--model-aliases", "", config=None) as s:
        equal(model_of(s, "claude-opus-4"), 404)


def test_a_billing_line_is_removed_by_default():
    line = "x-anthropic-billing-header: cc_version=2.1.36; cch=%s;"

    def count(server, nonce):
        return post(server, COUNT, model="demo", messages=HI, system=[{"type": "text",
            "text": line % nonce}, {"type": "text", "text": "Be brief."}])[2]["input_tokens"]

    with Server() as s:
        plain = post(s, COUNT, model="demo", messages=HI, system="Be brief.")[2]["input_tokens"]
        equal(count(s, "0af3"), plain)
        # The prefix cache works across requests whatever the billing line contains.
        long = "Answer briefly, kindly and in whole sentences. " * 5
        for nonce, n_cached in (("aaaa", 0), ("bbbb", 1)):
            usage = post(s, MESSAGES, model="demo", max_tokens=2, messages=HI,
                system=[{"type": "text", "text": line % nonce}, {"type": "text", "text": long}])[2]["usage"]
            equal(usage["cache_read_input_tokens"] > 0, n_cached > 0)
        chat = [{"role": "system", "content": line % "1" + "\nBe brief."}, *HI]
        equal(post(s, "/v1/chat/completions", model="demo", max_tokens=1, messages=chat)[2]["usage"][
            "prompt_tokens"], plain)
    with Server("--strip-billing-header=false") as s:
        assert count(s, "0af3") > plain


def test_a_counted_prompt_may_be_too_long():
    with Server() as s:
        long = [{"role": "user", "content": "word " * 30000}]
        status, _, body = post(s, COUNT, model="demo", messages=long)
        assert status == 200 and body["input_tokens"] > 30000, body
        status, fields, body = post(s, MESSAGES, model="demo", max_tokens=5, messages=long)
        equal((status, body["error"]["type"]), (400, "invalid_request_error"))
        assert body["error"]["message"].startswith("prompt is too long: "), body


def test_a_chat_that_cannot_fit_is_an_error_in_every_dialect():
    """Before its template runs: thirteen megabytes, in words or without a blank."""
    with Server() as s:
        n_ctx = json.loads(s.get("/v1/models/demo")[2])["max_model_len"]
        for text in ("word " * (5 << 19), "x" * (13 << 20)):
            chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
            least = (5 << 19) if " " in text else n_ctx + 1
            for path, body in (("/v1/chat/completions", {"messages": chat}),
                    ("/v1/responses", {"input": chat}),
                    ("/v1/responses", {"input": chat, "truncation": "auto"})):
                status, _, answer = post(s, path, model="demo", **body)
                error = answer["error"]
                equal((status, error["code"]), (400, "context_length_exceeded"), error)
                assert "at least" in error["message"] and error["n_ctx"] == n_ctx, error
                assert error["n_prompt_tokens"] >= least, error
            status, _, answer = post(s, MESSAGES, model="demo", max_tokens=5, messages=chat[1:])
            equal((status, answer["error"]["type"]), (400, "invalid_request_error"))
            found = re.fullmatch(r"prompt is too long: at least (\d+) tokens > (\d+) maximum",
                answer["error"]["message"])
            assert int(found[1]) >= least and int(found[2]) == n_ctx, answer
            status, _, answer = post(s, "/api/chat", model="demo", messages=chat)
            equal(status, 400)
            assert "at least" in answer["error"], answer
            # If the dialect permits truncation, the front of the conversation is dropped.
            turns = [*chat, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "Hi"}]
            brief = {"model": "demo", "messages": turns, "stream": False, "options": {"num_predict": 2}}
            equal(post(s, "/api/chat", **brief, truncate=True)[0], 200)
            equal(post(s, "/api/chat", **brief)[0], 400)
            equal(post(s, "/v1/responses", model="demo", input=turns, truncation="auto",
                max_output_tokens=2)[0], 200)
            equal(post(s, "/v1/responses", model="demo", input=turns)[0], 400)


def test_ten_thousand_messages_exceed_the_context_and_no_template_limit():
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Well."}] * 5000
    turns.append(HI[0])
    with Server() as s:
        assert post(s, COUNT, model="demo", messages=turns)[2]["input_tokens"] > 30000
        status, _, answer = post(s, "/v1/chat/completions", model="demo", messages=turns)
        equal((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        equal(post(s, "/v1/responses", model="demo", input=turns, truncation="auto",
            max_output_tokens=2)[0], 200)


def test_one_request_has_the_same_output_in_every_dialect():
    """The same sampling parameters in four forms."""
    question = [{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is InferFlux?"}]
    how = {"temperature": 1.2, "top_p": 0.9, "top_k": 30, "seed": 11}
    options = {**how, "repeat_penalty": 1, "num_predict": 24}
    with Server() as s:
        text = post(s, "/v1/chat/completions", model="demo", messages=question, max_tokens=24,
            **how)[2]["choices"][0]["message"]["content"]
        assert text
        equal(post(s, MESSAGES, model="demo", system="Be brief.", messages=question[1:],
            max_tokens=24, **how)[2]["content"][0]["text"], text)
        equal(post(s, "/api/chat", model="demo", messages=question, stream=False,
            options=options)[2]["message"]["content"], text)
        equal(post(s, "/api/generate", model="demo", system="Be brief.", stream=False,
            prompt=question[1]["content"], options=options)[2]["response"], text)
        prompt = post(s, "/apply-template", model="demo", messages=question)[2]["prompt"]
        equal(post(s, "/completion", model="demo", prompt=prompt, n_predict=24, min_p=0,
            **how)[2]["content"], text)


def test_streams_end_with_an_error_of_their_dialect():
    """The script is idle for longer than the deadline of the request."""
    late = {"model": "echo", "stream": True, "x_timeout": 0.1,
        "script": {"text": "a b c", "delay_ms": 60000}}
    with Server() as s:
        reply = s.request("POST", MESSAGES, json.dumps({**late, "max_tokens": 9, "messages": HI}))[2]
        name, data = reply.split(b"\n\n")[-2].split(b"\n")
        error = json.loads(data.removeprefix(b"data: "))
        equal((name, error["error"]["type"]), (b"event: error", "timeout_error"))
        assert error["request_id"].startswith("req_")
        reply = s.request("POST", "/api/chat", json.dumps({**late, "messages": HI}))[2]
        equal(list(json.loads(reply)), ["error"])
        reply = s.request("POST", "/completion", json.dumps({**late, "prompt": "x"}))[2]
        equal([list(f) for f in frames(reply)], [["error"]])


def test_an_oversized_body_is_rejected_in_its_dialect():
    large = b'{"model": "demo", "x": "' + b"x" * 5000 + b'"}'
    chunked = b"1\r\n{\r\nzz\r\n"

    def refused(s, path, head, body):
        with socket.create_connection(("127.0.0.1", s.port), 10) as c:
            c.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode() + body)
            whole = read_all(c)
        fields, _, text = whole.partition(b"\r\n\r\n")
        assert b"Connection: close" in fields and b"x-request-id: req_" in fields, whole
        return int(fields.split()[1]), json.loads(text)

    with Server("--max-body", "4096") as s:
        for head, body, status in ((f"Content-Length: {len(large)}", large, 413),
                ("Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large), 413),
                ("Transfer-Encoding: chunked", chunked, 400)):
            bad = "request_too_large" if status == 413 else "invalid_value"
            got, answer = refused(s, "/v1/chat/completions", head, body)
            equal((got, answer["error"]["code"]), (status, bad))
            got, answer = refused(s, MESSAGES, head, body)
            kind = "request_too_large" if status == 413 else "invalid_request_error"
            equal((got, answer["type"], answer["error"]["type"]), (status, "error", kind))
            assert answer["request_id"].startswith("req_")
            got, answer = refused(s, "/api/chat", head, body)
            equal((got, type(answer["error"])), (status, str))
            got, answer = refused(s, "/completion", head, body)
            equal((got, answer["error"]["code"]), (status, status))
        equal(s.get("/healthz")[0], 200)


def test_a_late_body_is_rejected_in_its_dialect():
    openai = lambda a: (a["error"]["type"], a["error"]["code"])
    anthropic = lambda a: (a["type"], a["error"]["type"], a["request_id"][:4])
    problem = lambda a: (a["status"], a["title"])
    kinds = {
        openai: (("invalid_request_error", "request_timeout"), "POST /v1/chat/completions",
            "POST /v1/completions", "POST /v1/responses", "POST /v1/responses/input_tokens",
            "POST /tokenize", "POST /v1/parse"),
        anthropic: (("error", "invalid_request_error", "req_"), f"POST {MESSAGES}", f"POST {COUNT}"),
        (lambda a: type(a["error"])): (str, "POST /api/chat", "POST /api/generate", "POST /api/show"),
        (lambda a: (a["error"]["code"], a["error"]["type"])): ((408, "invalid_request_error"),
            "POST /completion", "POST /infill", "POST /slots/0"),
        problem: ((408, "Request Timeout"), "PUT /v1/admin/fairness"),
    }
    with Server("--body-timeout", "200") as s:
        asked = []
        for kind, (want, *routes) in kinds.items():
            for route in routes:
                c = s.connect()
                c.sendall(f"{route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{".encode())
                asked.append((c, route, kind, want))
        for c, route, kind, want in asked:
            head, _, text = read_all(c).partition(b"\r\n\r\n")
            assert b"Connection: close" in head and b"x-request-id: req_" in head, (route, head)
            equal(b"problem+json" in head, kind is problem, route)
            equal((int(head.split()[1]), kind(json.loads(text))), (408, want), route)
            c.close()
        equal(s.get("/healthz")[0], 200)


def test_a_model_is_found_by_its_aliases():
    with Server() as s:
        for name in ("demo", "demo:latest", "claude-sonnet-4"):
            status, _, text = s.get(f"/v1/models/{name}")
            equal((status, json.loads(text)["id"]), (200, "demo"), name)
        equal(s.get("/v1/models/gpt-4o")[0], 404)


def test_every_json_of_the_suite_gets_a_response_of_its_dialect():
    paths = sorted(glob.glob(os.path.join(SHARED, "json-bodies/test_parsing/*.json")))
    if not paths:
        print("     skipped: no JSON suite")
        return
    with Server() as s:
        for path in paths:
            name = os.path.basename(path)
            with open(path, "rb") as f:
                body = f.read()
            for route in (MESSAGES, "/api/chat", "/api/show", "/completion"):
                status, _, answer = s.request("POST", route, body)
                assert status == 400 or not name.startswith("n_"), (name, route, status)
                assert status in (200, 400), (name, route, status)
                assert status == 200 or "error" in json.loads(answer), (name, route)


if __name__ == "__main__":
    run(globals())
