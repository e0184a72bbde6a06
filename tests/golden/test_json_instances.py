#!/usr/bin/env python3
"""Instances of hypothesis-jsonschema, as generated and changed at random, read with the acceptor of their
schema: values that jsonschema and jsonschema-rs refuse are not accepted, and values that both accept are,
if the output policy can write them. INSTANCES is the number of instances per schema."""
import json
import os
import random
import subprocess
import sys
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "venv", "bin", "python")
if os.path.exists(VENV) and "INFERFLUX_VENV" not in os.environ:
    os.environ["INFERFLUX_VENV"] = "1"
    os.execv(VENV, [VENV, *sys.argv])

sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import build_dir, run  # noqa: E402

warnings.simplefilter("ignore")
import hypothesis  # noqa: E402
import jsonschema  # noqa: E402
import jsonschema_rs  # noqa: E402
from hypothesis_jsonschema import from_schema  # noqa: E402

COUNT = int(os.environ.get("INSTANCES", 15))
SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}, "b": {"pattern": "^[ab]{2,5}$"}},
     "required": ["a"], "additionalProperties": {"type": "null"}},
    {"type": "array", "items": {"enum": [1, "a", None, True]}, "uniqueItems": True, "minItems": 1},
    {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "multipleOf": 5}]},
    {"oneOf": [{"required": ["a"], "type": "object"}, {"required": ["b"], "type": "object"}]},
    {"type": "object", "patternProperties": {"^x": {"type": "boolean"}}, "minProperties": 1, "maxProperties": 3,
     "additionalProperties": False},
    {"type": "array", "contains": {"type": "string"}, "maxItems": 4},
    {"type": "object", "properties": {"k": {"const": "x"}, "v": {}}, "required": ["k", "v"],
     "if": {"properties": {"v": {"type": "string"}}}, "then": {"maxProperties": 2}},
    {"not": {"type": ["object", "string"]}},
    {"type": "number", "exclusiveMinimum": -1.5, "maximum": 1000},
    {"type": "object", "propertyNames": {"maxLength": 2}, "dependentRequired": {"a": ["b"]}},
]
SCALARS = [None, True, 0, 1, -7, 2.5, "", "a", "ab", "x", [], {}]


def generated(schema):
    found = []

    @hypothesis.settings(max_examples=COUNT, database=None, derandomize=True, deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate])
    @hypothesis.given(from_schema(schema))
    def collect(value):
        found.append(value)

    collect()
    return found


def mutated(value, r):
    """The value with one change at a random place."""
    if isinstance(value, list) and r.random() < 0.8:
        k, new = r.randrange(len(value) + 1), list(value)
        if k == len(new):
            return new + [r.choice(new + SCALARS)]
        new[k:k + 1] = [] if r.random() < 0.3 else [mutated(new[k], r)]
        return new
    if isinstance(value, dict) and r.random() < 0.8:
        key = r.choice([*value, "a", "b", "xy"])
        if key in value and r.random() < 0.4:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated(value.get(key), r)}
    return r.choice(SCALARS)


def is_writable(value):
    """Whether the output policy can write it: integers without fraction, numbers of at most 40 digits,
    strings without control characters."""
    if isinstance(value, dict):
        return all(map(is_writable, value)) and all(map(is_writable, value.values()))
    if isinstance(value, list):
        return all(map(is_writable, value))
    if isinstance(value, float):
        return not value.is_integer() and "e" not in repr(value)
    if isinstance(value, int):
        return len(str(abs(value))) <= 40
    return not isinstance(value, str) or value.isprintable()


def accepted(requests):
    lines = "".join(json.dumps({"schema": s, "tests": values, "any_order": True}) + "\n" for s, values in requests)
    made = subprocess.run([os.path.join(build_dir(), "tools/check_json_values")], input=lines, text=True,
        capture_output=True)
    assert made.returncode == 0, made.stderr[-2000:]
    for (schema, _), line in zip(requests, made.stdout.splitlines()):
        assert line.startswith("ok "), (schema, line)
        yield [digit == "1" for digit in line.split()[1]]


def test_instances():
    r = random.Random(1)
    requests = []
    for schema in SCHEMAS:
        values = generated(schema)
        requests.append((schema, values + [mutated(v, r) for v in values for _ in range(4)]))
    n_valid = n_invalid = n_narrow = 0
    for (schema, values), verdicts in zip(requests, accepted(requests)):
        plain = jsonschema.Draft202012Validator(schema)
        other = jsonschema_rs.Draft202012Validator(schema)
        for value, is_accepted in zip(values, verdicts):
            valid = {plain.is_valid(value), other.is_valid(value)}
            if valid == {False}:
                n_invalid += 1
                assert not is_accepted, f"accepted: {value} by {schema}"
            elif valid == {True}:
                n_valid += 1
                n_narrow += not is_accepted
                assert is_accepted or not is_writable(value), f"refused: {value} by {schema}"
    print(f"  {n_valid} valid, {n_narrow} of them not written by the output policy; {n_invalid} invalid")
    assert n_valid > 10 * COUNT and n_invalid > 5 * COUNT and n_narrow * 2 < n_valid


if __name__ == "__main__":
    run(globals())
