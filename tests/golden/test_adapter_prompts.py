#!/usr/bin/env python3
"""Prompts that a server renders from OpenAI request bodies, compared with Python's jinja2. If a
template supports the request, the prompt is byte-identical to that of transformers, and no
such request is rejected. If a template omits something or has no tool support, prompts differ
intentionally; the number of equal prompts is listed here and must not decrease. Ends with `N
passed, N failed, N skipped`."""
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "tests/golden"))
import test_templates as reference  # noqa: E402  (restarts in the venv if needed)
from harness import Server  # noqa: E402

TOKENS = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}  # of the demo vocabulary

# 315 prompts per template: the 7 with an image are rejected, the others are adapted
EQUAL = {
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": 273,
    "GLM-4.6": 301,
    "GLM-4.7-Flash": 301,
    "HuggingFaceTB-SmolLM3-3B": 84,
    "Kimi-K2-Instruct": 308,
    "LFM2-8B-A1B": 210,
    "MiniMax-M2": 287,
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": 171,
    "Qwen-Qwen2.5-7B-Instruct": 280,
    "Qwen-Qwen3-0.6B": 259,
    "Qwen3-Coder": 287,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": 122,
    "deepseek-ai-DeepSeek-V3.1": 128,
    "google-gemma-2-2b-it": 54,
    "ibm-granite-granite-3.3-2B-Instruct": 210,
    "meta-llama-Llama-3.1-8B-Instruct": 280,
    "meta-llama-Llama-3.2-3B-Instruct": 280,
    "microsoft-Phi-3.5-mini-instruct": 85,
    "mistralai-Mistral-Nemo-Instruct-2407": 252,
    "openai-gpt-oss-120b": 226,
}


def config(paths):
    return "models:\n" + "".join(
        f"  - id: {p.stem}\n    path: {ROOT}/models/demo.gguf\n    backend: script\n"
        f"    template_path: {p}\n" for p in paths)


def prompts(server, source, model):
    """Yields (name of the conversation, prompt of jinja2 or None, prompt of the server or None)."""
    for name, messages in reference.CONVERSATIONS.items():
        for _, tools, kwargs, begins in reference.SETTINGS:
            body = {"model": model, "messages": reference.as_sent(messages),
                    "add_generation_prompt": begins, "chat_template_kwargs": kwargs}
            if tools:
                body["tools"] = tools
            status, _, text = server.request("POST", "/apply-template", json.dumps(body))
            reference.NOW = time.time()
            want = reference.reference(source, {
                "messages": json.loads(json.dumps(messages)), "tools": tools, "documents": None,
                "add_generation_prompt": begins, **TOKENS, **kwargs})[0]
            yield name, want, json.loads(text)["prompt"] if status == 200 else None


def main():
    paths = [p for p in sorted(reference.DATA.glob("*.jinja")) if p.stem in EQUAL]
    if not paths:
        reference.skip(f"no templates at {reference.DATA}")
    passed = failed = 0
    with Server(config=config(paths)) as s:
        for path in paths:
            equal, refused = 0, set()
            for name, want, got in prompts(s, path.read_text(encoding="utf-8"), path.stem):
                equal += want == got
                if want is not None and got is None and name != "image":
                    refused.add(name)
            good = equal >= EQUAL[path.stem] and not refused
            passed += good
            failed += not good
            print(f"{'ok    ' if good else 'FAILED'} {path.stem}: {equal} equal, at least "
                  f"{EQUAL[path.stem]} are known{', refused: ' + str(refused) if refused else ''}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
