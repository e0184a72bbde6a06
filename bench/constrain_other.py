#!/usr/bin/env python3
"""constrain_other.py ENGINE VOCABULARY: llguidance or xgrammar with the protocol of
bench/constrain_engine.c, for bench/constrain.py. Objects without additionalProperties are open and
whitespace is free in both, as JSON Schema specifies; one thread; no cache of compiled grammars."""
import json
import struct
import sys
import time

import numpy as np


def read_vocabulary(path):
    """(tokens as bytes, id of the end token)"""
    with open(path, "rb") as f:
        data = f.read()
    n, end = struct.unpack_from("<II", data)
    tokens, at = [], 8
    for _ in range(n):
        (length,) = struct.unpack_from("<I", data, at)
        tokens.append(data[at + 4:at + 4 + length])
        at += 4 + length
    return tokens, end


class Llguidance:
    def __init__(self, tokens, end):
        import llguidance
        self.library, self.end = llguidance, end

        class Tokenizer:
            eos_token_id, bos_token_id = end, None
            special_token_ids = [k for k, token in enumerate(tokens) if not token]

            def __call__(self, text):
                return []  # text is never tokenised: the driver sends token ids
        Tokenizer.tokens = [token or b"<s%d>" % k for k, token in enumerate(tokens)]
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer()))
        self.bits = np.zeros((len(tokens) + 31) // 32, dtype=np.int32)

    def compile(self, schema):
        grammar = self.library.LLMatcher.grammar_from_json_schema(
            schema, overrides={"whitespace_flexible": True})
        compiled = self.library.LLMatcher(self.tokenizer, grammar, log_level=0)
        if compiled.is_error():
            raise ValueError(compiled.get_error())
        return compiled

    def matcher(self, compiled):
        matcher, at, size = compiled.deep_copy(), self.bits.ctypes.data, self.bits.nbytes
        return lambda: matcher.unsafe_compute_mask_ptr(at, size), matcher.consume_token, matcher.is_accepting


class Xgrammar:
    def __init__(self, tokens, end):
        import xgrammar
        self.library, self.end = xgrammar, end
        info = xgrammar.TokenizerInfo(tokens, stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = np.zeros((1, (len(tokens) + 31) // 32), dtype=np.int32)

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, strict_mode=False)

    def matcher(self, compiled):
        matcher, bits = self.library.GrammarMatcher(compiled), self.bits
        accepts = lambda: matcher.is_terminated() or matcher.accept_token(self.end)  # noqa: E731
        return lambda: matcher.fill_next_token_bitmask(bits), matcher.accept_token, accepts


def run_test(functions, test, samples):
    """Whether the tokens are permitted and the text is complete after them."""
    mask, push, accepts = functions
    clock = time.perf_counter_ns
    for token in test["ids"]:
        if test["valid"]:
            start = clock()
            mask()
            is_permitted = push(token)
            samples.append((clock() - start) / 1e3)
        else:
            is_permitted = push(token)
        if not is_permitted:
            return False
    if test["valid"]:
        start = clock()
        mask()
        samples.append((clock() - start) / 1e3)
    return bool(accepts())


def run_file(engine, request):
    result = {"error": None, "accepted": [], "mask_us": []}
    schema = json.dumps(request["schema"], ensure_ascii=False)
    start = time.perf_counter_ns()
    try:
        compiled = engine.compile(schema)
        functions = engine.matcher(compiled)
        result["compile_us"] = (time.perf_counter_ns() - start) / 1e3
        for test in request["tests"]:
            result["accepted"].append(run_test(functions or engine.matcher(compiled), test, result["mask_us"]))
            functions = None
    except Exception as e:  # of the library: the schema is refused
        result.setdefault("compile_us", (time.perf_counter_ns() - start) / 1e3)
        result["error"] = f"{type(e).__name__}: {e}"[:500]
    return result


def main():
    engine = {"llguidance": Llguidance, "xgrammar": Xgrammar}[sys.argv[1]](*read_vocabulary(sys.argv[2]))
    for line in sys.stdin:
        print(json.dumps(run_file(engine, json.loads(line))), flush=True)


main()
