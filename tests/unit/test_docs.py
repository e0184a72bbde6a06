#!/usr/bin/env python3
"""The documents agree with the program: functions, folders, options, metrics, routes and links."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import program, run


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def sources():
    for base, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in names:
            if name.endswith((".c", ".h", ".def")):
                yield read(os.path.join(base, name))


def test_every_function_of_the_life_of_a_request_exists():
    code = "\n".join(sources())
    missing = []
    for name in re.findall(r"`([a-z_0-9]+)`", read("src/README.md")):
        if "_" in name and not re.search(rf"^[^\n#]*\b{name}\(", code, re.M):
            missing.append(name)
    assert not missing, f"named in src/README.md, found nowhere: {missing}"


def test_steps_of_a_layer_are_listed_in_the_order_of_layer_forward():
    code = read("src/model/layer.c")
    section = read("src/model/README.md").split("## One layer")[1].split("\n## ")[0]
    section = section.split("If a layer has experts next to")[0]
    rows = [row.split(" | ") for row in section.splitlines() if row.startswith("| ")]
    listed = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row[1])]
    called = []
    for name in ("attention_mixer", "add_mixer", "layer_forward", "feed_forward", "experts"):
        body = re.search(rf"\n(?:static )?(?:void|bool) {name}\(.*?\n}}", code, re.S).group(0)
        called += re.findall(r"\b((?:rms|qkv|qk|kv|o|ffn|moe)_\w+|rope|scale_queries|values|attention)\(", body)
    assert len(called) > 12 and listed == called, f"src/model/README.md lists {listed}, the code calls {called}"


def test_fields_without_effect_are_listed():
    names = re.findall(r'^NO_EFFECT\("([^"]+)"', read("src/api/common/no_effect.def"), re.M)
    section = read("docs/dialects.md").split("## Fields without effect")[1].split("\n## ")[0]
    listed = set(re.findall(r"`([a-z_.]+)`", section))
    assert len(names) > 5 and set(names) <= listed, set(names) - listed


# Names of parts that do not exist yet; a name leaves this list with the first line of its code.
PLANNED = {"constraint_", "grammar_", "mask", "model_pool_", "rate_limit_", "trace_", "transfer_"}


def is_name_in_use(name, words, tags):
    """`struct x` is a tag, `x_` a prefix of identifiers or of their part after the module's prefix."""
    if name.startswith("struct "):
        return name.split()[1] in tags
    if name.endswith("_"):
        return any(word.startswith(name) or f"_{name[:-1]}" in word for word in words)
    return any(word == name or word.endswith(f"_{name.lstrip('_')}") for word in words)


def test_types_and_prefixes_of_the_glossary_exist():
    code = re.sub(r"/\*.*?\*/", "", "\n".join(sources()), flags=re.S)
    words = set(re.findall(r"[A-Za-z_]\w*", code))
    tags = set(re.findall(r"(?:struct|enum) (\w+)", code))
    names = []
    for row in read("docs/glossary.md").splitlines():
        cells = row.split(" | ")
        names += re.findall(r"`([^`]+)`", cells[2]) if len(cells) == 4 else []
    assert len(names) > 60
    missing = [n for n in names if n not in PLANNED and not is_name_in_use(n, words, tags)]
    assert not missing, f"listed in docs/glossary.md, not in src: {missing}"


def test_the_readme_counts_the_output_formats():
    counts = []
    for flag in ("--tool-call-parser", "--reasoning-parser"):
        failed = subprocess.run([program("inferfluxd"), "--store", "none", flag, "nope", "--model", "models/demo.gguf"],
            capture_output=True, text=True, cwd=ROOT)
        known = failed.stderr.strip().split("is not one of: ")[1].split(", ")
        counts.append(len(known) - known.count("null"))
    assert f"parsed in {counts[0]} and {counts[1]} formats" in read("README.md"), counts


def test_every_folder_is_listed():
    readme = read("README.md")
    for name in sorted(os.listdir(os.path.join(ROOT, "src"))):
        if os.path.isdir(os.path.join(ROOT, "src", name)):
            assert f"{name}/" in readme, f"README.md: the map lacks {name}/"


def test_configuration_and_metrics_are_generated():
    made = subprocess.run([program("inferfluxd"), "--print-docs"], capture_output=True, text=True,
        check=True).stdout
    config, metrics = made.split("# Metrics\n")
    assert config == read("docs/configuration.md"), "run: make docs"
    assert "# Metrics\n" + metrics == read("docs/metrics.md"), "run: make docs"


def test_every_flag_is_in_help_and_manual():
    text = subprocess.run([program("inferfluxd"), "--help"], capture_output=True, text=True,
        check=True).stdout
    manual = read("docs/man/inferfluxd.8")
    flags = re.findall(r'"([a-z-]+)", "INFERFLUX_', read("src/cmd/options.def").replace("\n    ", " "))
    assert len(flags) > 25
    for flag in flags:
        assert f"--{flag}" in text, flag
        assert flag.replace("-", "\\-") in manual or flag in manual, f"manual lacks --{flag}"


def test_commands_of_the_readme_exist():
    targets = read("Makefile") + read("tools/targets.mk")
    text = read("README.md") + read("CONTRIBUTING.md")
    for target in re.findall(r"(?:^|`)make ([a-z]+)", text, re.M):
        assert re.search(rf"^{target}\b[^\n]*:", targets, re.M) or re.search(
            rf"^\.PHONY:.*\b{target}\b", targets, re.M) or f" {target}" in targets, target


def test_every_route_is_described():
    described = read("docs/dialects.md")
    routes = re.findall(r'\{ "([A-Z]+)", "([^"]+)", SCOPE_(\w+)', read("src/serve/routes.c"))
    assert len(routes) > 25
    for method, path, scope in routes:
        shown = path.replace("*", "{id}") + "`"
        row = next((line for line in described.splitlines() if line.startswith("|")
            and (f"`{shown}" in line or f" {shown}" in line) and f"`{method} " in line), None)
        assert row, f"docs/dialects.md: no {method} {path}"
        assert scope.lower() == row.split("|")[2].strip(), f"docs/dialects.md: the key of {path}"


def test_counts_of_security_tests_are_current():
    sys.path.insert(0, os.path.join(ROOT, "tests/hostile"))
    import counts

    assert counts.table() == counts.in_document()[1], "run: make docs"


# Files of other projects, which a comment names as the source of a format.
FOREIGN = re.compile(r"vllm/|tests/tool_parsers/|gigachat3_")


def test_files_named_in_comments_and_readmes_exist():
    """A name may lack the first folders: `sched/sched.h` is src/engine/sched/sched.h."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
        check=True).stdout.split()
    ends = {"/".join(name.split("/")[i:]) for name in names for i in range(name.count("/") + 1)}
    missing, n = [], 0
    for path in names:
        if not os.path.exists(os.path.join(ROOT, path)):
            continue
        if path.endswith("README.md") or path.startswith("docs/") and path.endswith(".md"):
            found = re.findall(r"`((?:\w+/)*[a-z]\w+\.(?:c|h|py|def))`", read(path))
        elif path.endswith((".c", ".h", ".def")):
            comments = " ".join(re.findall(r"/\*.*?\*/", read(path), re.S))
            found = re.findall(
                r"(?<![\w*<%/.-])((?:[a-z_0-9]+/)*[a-z][a-z_0-9]+\.(?:c|h|py|def))\b", comments)
        else:
            continue
        n += len(found)
        missing += [f"{path}: {name}" for name in set(found) - ends if not FOREIGN.match(name)]
    assert n > 500 and not missing, missing


def test_links_between_documents_are_valid():
    for path in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md",
            "docs/decisions.md", "docs/dialects.md", "docs/performance.md",
            "docs/security-testing.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", read(path)):
            target = os.path.join(ROOT, os.path.dirname(path), link)
            assert os.path.exists(target), f"{path}: {link}"


if __name__ == "__main__":
    run(globals())
