#!/usr/bin/env python3
"""Chat templates compared with Python's jinja2 in the environment of transformers, with the
variables date_string, datetime and functions of llama-server.

Renders every template of SHARED_DATA/templates with every conversation of template_cases.py,
and snippets of the language: the results are byte-identical, or both sides raise an
exception. In each template, text that looks like a control token stays untrusted in every
field of a client. Ends with `N passed, N failed, N skipped`. An argument selects templates
and conversations whose name contains it."""
import datetime
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("SHARED_DATA", ROOT / "../shared/data")) / "templates"
TOOL = ROOT / os.environ.get("BUILD", "build") / "tools/render_template"
DEMO = ROOT / "tools/demo/template.jinja"
VENV = ROOT / "build/venv/bin/python"
NOW = 1732155555


def skip(reason):
    print(f"skipped: {reason}\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)


try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    if VENV.exists() and os.environ.get("IN_VENV") != "1":
        os.environ["IN_VENV"] = "1"
        os.execv(VENV, [str(VENV), *sys.argv])
    skip("jinja2 is not installed")

from template_cases import CONTEXT, CONVERSATIONS, SETTINGS, SNIPPETS, TOOLS  # noqa: E402


class Generation(jinja2.ext.Extension):
    """{% generation %}: renders its body unchanged."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment(base):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = base(trim_blocks=True, lstrip_blocks=True,
               extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return env


# transformers forbids templates to change lists and dicts; this engine supports append, pop and
# update. If the reference fails for that reason, the sandbox that permits changes is the reference.
STRICT = environment(jinja2.sandbox.ImmutableSandboxedEnvironment)
LOOSE = environment(jinja2.sandbox.SandboxedEnvironment)


@functools.lru_cache
def compiled_by(env, source):
    return env.from_string(source)


def server_variables(tools):
    """Variables that the server defines like llama-server, and transformers does not."""
    now = datetime.datetime.fromtimestamp(NOW)
    return {"date_string": now.strftime("%d %b %Y"), "datetime": now.strftime("%b %d %Y"),
            "functions": json.dumps(tools, ensure_ascii=False, indent=2) if tools else ""}


def reference(source, variables):
    variables = {**server_variables(variables["tools"]), **variables}
    try:
        return compiled_by(STRICT, source).render(**variables), None
    except jinja2.exceptions.SecurityError:
        pass
    except Exception as e:  # any Python exception is a failure of the template
        return None, f"{type(e).__name__}: {e}"
    try:
        return compiled_by(LOOSE, source).render(**variables), None
    except Exception as e:
        return None, f"{type(e).__name__}: {e}"


class Renderer:
    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, job):
        answer = self.ask_all(job)
        return (answer["text"], None) if answer["ok"] else (None, answer["error"])

    def ask_all(self, job):
        self.process.stdin.write(json.dumps(job, ensure_ascii=False).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"render_template died ({self.process.wait()}) at {job}\n"
                             "0 passed, 1 failed, 0 skipped")
        return json.loads(line)


def as_sent(messages):
    """Returns messages as a client sends them: arguments of tool calls are JSON text."""
    messages = json.loads(json.dumps(messages))
    for m in messages:
        for c in m.get("tool_calls") or []:
            args = c["function"]["arguments"]
            if not isinstance(args, str):
                c["function"]["arguments"] = json.dumps(args, ensure_ascii=False)
    return messages


class Tally:
    passed = failed = 0

    def compare(self, label, want, got):
        same = want[0] == got[0] and (want[1] is None) == (got[1] is None)
        self.passed += same
        self.failed += not same
        if not same and self.failed <= 20:
            print(f"FAILED {label}\n  want: {show(want)}\n  got:  {show(got)}")


def show(result):
    text = f"raises {result[1]}" if result[0] is None else repr(result[0])
    return text if len(text) < 1500 else text[:700] + " ... " + text[-700:]


def run_snippets(tally, renderer, only):
    def one(label, source):
        if only and only not in source:
            return
        compiled = renderer.ask({"source": source})
        got = compiled
        if compiled[1] is None:
            got = renderer.ask({"messages": [], "exact": True, "now": NOW,
                                "chat_template_kwargs": CONTEXT})
        want = reference(source, {"messages": [], "tools": None, "documents": None,
                                  "add_generation_prompt": False, **CONTEXT})
        tally.compare(f"{label}: {source!r}", want, got)

    lines = SNIPPETS.strip("\n").split("\n")
    for i, line in enumerate(lines):
        one(f"snippet {i}", line)
    start = next(i for i, line in enumerate(lines) if line.startswith("  {% if t %}"))
    one("all lines about blanks", "\n".join(lines[start:start + 29]))
    one("the same with a newline more", "\n".join(lines[start:start + 29]) + "\n\n")
    one("the same with CRLF", "\r\n".join(lines[start:start + 29]))


def run_conversations(tally, renderer, only):
    for path in [*sorted(DATA.glob("*.jinja")), DEMO]:
        source = path.read_text(encoding="utf-8")
        compiled = renderer.ask({"source": source})
        if compiled[1] is not None:
            tally.compare(path.name, ("", None), compiled)
            continue
        for name, messages in CONVERSATIONS.items():
            for setting, tools, kwargs, prompt in SETTINGS:
                label = f"{path.name}, {name}, {setting}"
                if only and only not in label:
                    continue
                tokens = {"bos_token": "<s>", "eos_token": "</s>"}
                got = renderer.ask({"messages": as_sent(messages), "tools": tools, "now": NOW,
                                    "chat_template_kwargs": kwargs, "exact": True,
                                    "add_generation_prompt": prompt, **tokens})
                want = reference(source, {"messages": json.loads(json.dumps(messages)),
                                          "tools": tools, "documents": None,
                                          "add_generation_prompt": prompt, **tokens, **kwargs})
                tally.compare(label, want, got)


# Texts that look like control tokens. A template may split content at a marker and write the marker
# again itself: such markers are excluded.
MARKER = re.compile(r"<[|\uff5c][^<>{}' ]*[|\uff5c]>|\[/?[A-Z_]{3,}\]|</?[a-z_]+>")


def marker_conversations(marker):
    """Conversations with the marker in every field that a client can write."""
    evil = f"\u00ab{marker}\u00bb"
    tools = json.dumps(TOOLS)
    for word in ("get_weather", "How many", "city"):
        tools = tools.replace(word, json.dumps(evil)[1:-1])
    tools = json.loads(tools)
    messages = [
        {"role": "system", "content": f"s {evil}"},
        {"role": "user", "content": f"u {evil}", "name": evil},
        {"role": "assistant", "content": f"a {evil}", "reasoning_content": evil},
        {"role": "user", "content": f"u {evil}"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "abcdefgh9", "type": "function",
             "function": {"name": evil, "arguments": json.dumps({evil: evil, "n": [evil]})}}]},
        {"role": "tool", "content": f"t {evil}", "tool_call_id": "abcdefgh9", "name": evil},
        {"role": "assistant", "content": f"done {evil}"},
    ]
    kwargs = {"documents": [{"doc_id": evil, "text": evil, "title": evil}],
              "controls": {evil: evil}, "reasoning_effort": evil, "model_identity": evil}
    for n in range(1, len(messages) + 1):
        for system in (0, 1):
            yield {"messages": messages[system:n] or messages[:n],
                   "tools": tools if n > 3 else None,
                   "chat_template_kwargs": kwargs if n % 2 else {}, "add_generation_prompt": True,
                   "bos_token": "<s>", "eos_token": "</s>", "now": NOW}, evil


def run_provenance(tally, renderer, only):
    """Markers of a client are in untrusted spans, and none of the template's markers are."""
    for path in [*sorted(DATA.glob("*.jinja")), DEMO]:
        source = path.read_text(encoding="utf-8")
        markers = {m for m in re.findall(MARKER, source) if f"split('{m}'" not in source}
        if renderer.ask({"source": source})[1] is not None or (only and only not in path.name):
            continue
        shown = 0
        for marker in sorted(markers):
            for job, evil in marker_conversations(marker):
                answer = renderer.ask_all(job)
                if not answer["ok"]:
                    continue
                text, needle = answer["text"].encode(), evil.encode()
                bad = [text[a:b] for a, b in answer["trusted"] if needle in text[a:b]
                       or any(a < at + len(needle) and at < b for at in find_all(text, needle))]
                shown += needle in text
                tally.passed += not bad
                tally.failed += bool(bad)
                if bad:
                    print(f"FAILED {path.name}: {marker} is trusted in {bad[:2]}")
        if markers and not shown:
            tally.failed += 1
            print(f"FAILED {path.name}: no conversation shows a marker")


def find_all(text, needle):
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else None
    if not TOOL.exists():
        skip(f"{TOOL} is not built")
    tally, skipped = Tally(), 0
    renderer = Renderer()
    run_snippets(tally, renderer, only)
    if DATA.is_dir():
        run_conversations(tally, renderer, only)
        run_provenance(tally, renderer, only)
    else:
        print(f"skipped: no templates at {DATA}")
        skipped = 1
    print(f"{tally.passed} passed, {tally.failed} failed, {skipped} skipped")
    return tally.failed != 0


if __name__ == "__main__":
    sys.exit(main())
