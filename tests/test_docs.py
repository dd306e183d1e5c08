"""The documentation is true: every command and program in it runs, every registered name is documented, generated pages are current.

`tests/executed_page.py` defines how a page is executed, `tests/lean_environment.py` what is installed: only what the page names above
its first command or program. `PROCTOR_REGEN=1` rewrites the outputs.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from docs import fidelity_rows, generate

import proctor
import proctor.checks
from proctor.actions.help import describe
from proctor.checks.registry import collect, iterate_builtin_modules
from proctor.cli.main import COMMANDS
from proctor.expressions.functions import FUNCTIONS
from proctor.formats.suites import DIALECTS
from proctor.matchers.compile import MATCHERS, compile_expected
from tests.executed_page import (
    FENCE,
    PAGES,
    ROOT,
    find_executed_blocks,
    find_requirements,
    is_executed,
    list_saved_files,
    page_id,
    run_page,
)
from tests.lean_environment import list_extras, make_lean_environment
from tests.report.test_ranges import check_table

DOCS = ROOT / "docs"
SRC = ROOT / "src" / "proctor"


def blocks(text: str, language: str) -> list[str]:
    return [match["body"] for match in FENCE.finditer(text) if match["language"] == language]


EXECUTED = [page for page in PAGES if is_executed(page)]


EXECUTED_LIVE = {
    *("author-criteria-from-a-coding-agent.md", "look-at-runs.md", "look-at-the-service.md"),
    *("compare-runs-in-the-browser.md", "look-at-traces.md"),
}
"""Pages whose commands do not end, or need a running service: the tests of `proctor mcp` and `proctor view` run them, and the browser
tests do what the others describe; `tests/live/browser/test_screenshots.py` makes their pictures."""


@pytest.fixture(scope="session")
def lean_python(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Path]:
    """The Python of an environment with only the requirements, made once for all pages with the same ones."""
    return functools.cache(lambda requirements: make_lean_environment(tmp_path_factory.mktemp("lean") / "environment", requirements))


def test_no_two_pages_use_the_same_port() -> None:
    # Pages run at the same time; the one of the default, 8700, is in commands that do not run.
    used = [port for page in EXECUTED for port in {*re.findall(r"\b87\d\d\b", page.read_text("utf-8"))} - {"8700", "8786"}]
    assert "8727" in used and len(used) == len(set(used))


@pytest.mark.in_turn
@pytest.mark.parametrize("page", EXECUTED, ids=page_id)
@pytest.mark.timeout(60)
def test_the_page_runs_as_shown_where_only_what_it_names_is_installed(
    page: Path, tmp_path: Path, lean_python: Callable[[tuple[str, ...]], Path]
) -> None:
    requirements = find_requirements(page.read_text(encoding="utf-8"))
    if "proctor-evals[dask]" in requirements and importlib.util.find_spec("distributed") is None:
        pytest.skip("the extra dask is not installed")
    done = run_page(lean_python(requirements), page, tmp_path / "here", write="PROCTOR_REGEN" in os.environ)
    assert done.returncode == 0, f"with {', '.join(requirements)}:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("requirement", "package", "found"),
    [
        ("proctor-evals", "msgspec pytest mcp httpx2 opentelemetry google", "msgspec"),
        ("proctor-evals[otlp]", "pytest opentelemetry.proto opentelemetry.sdk google.protobuf", "opentelemetry.proto google.protobuf"),
        ("proctor-evals[serve]", "httpx2 mcp fastapi starlette asyncpg openpyxl", "httpx2 mcp fastapi starlette"),
    ],
)
def test_packages_that_a_page_does_not_name_are_missing(requirement: str, package: str, found: str, tmp_path: Path) -> None:
    python = make_lean_environment(tmp_path / "environment", [requirement])
    program = "import importlib.util, proctor.cli, sys; print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name)))"
    done = subprocess.run([python, "-I", "-c", program, *package.split()], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```console\n$ proctor list\n```\n", ["proctor-evals"]),
        ("`pip install 'proctor-evals[mcp]'`\n```python\n1\n```\n`pip install late`\n", ["proctor-evals", "proctor-evals[mcp]"]),
        ("<!-- pip install hidden -->\n```sh\npip install -U proctor-evals 'b[c]' d   # e\n```\n", ["b[c]", "d", "proctor-evals"]),
        ("<!-- file: a.py -->\n```python\n1\n```\n`pip install proctor-evals`, `pip install .`, `pip install b`\n", ["b", "proctor-evals"]),
    ],
    ids=["nothing", "what is named later does not count", "in a block", "a saved file is not a program"],
)
def test_installed_packages_are_those_named_above_the_first_command(text: str, found: list[str]) -> None:
    assert list(find_requirements(text)) == found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_file_that_the_reader_saves_is_named_in_the_text_above_it(page: Path) -> None:
    hidden = [name for name, above in list_saved_files(page.read_text(encoding="utf-8")) if f"`{name}`" not in above]
    assert not hidden, "named in a comment alone"


NOT_THERE = re.compile(
    r"\.\.\.|\bcurl |\bdocker |\bmake |\bproctor (?:serve|view)\b|\bpg_dump |\$PROCTOR_DATABASE_URL|\.internal\b|127\.0\.0\.1"
    r"|proctor judge calibrate|proctor run mcplab/|--record |init --for |python -m tests\.|OTEL_EXPORTER_"
)
"""What a page needs and only other tests provide: a service, a model, a database, an agent over HTTP, a checkout, a framework."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "frameworks"], ids=page_id)
def test_a_command_that_could_be_executed_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    executed = {match.start() for match in find_executed_blocks(text)}
    for match in FENCE.finditer(text):
        if match["language"] in ("sh", "bash") and match.start() not in executed and not text[: match.start()].endswith("-->\n"):
            installs = all(line.startswith("pip install ") for line in match["body"].splitlines())
            assert installs or NOT_THERE.search(match["body"]), f"write <!-- run --> above it, or show what it prints:\n{match['body']}"


NEEDS = {
    "serve": r"^\$? ?proctor (?:serve|view|keys|db|mcp)\b|localhost:8700",
    "live": r"\btype: (?:http|n8n|flowise)\b|--target http|^judge:|^proctor judge calibrate",
    # Without its own servers an agent has the tools of simulated systems, which have no wire.
    "mcp": r"\btype: mcp_agent\b(?=[\s\S]*\bservers:)|\bMCPClientManager\(|^\$? ?proctor run mcplab/",
}
"""The extras that a block needs, also if it needs a server, a model or a key that the tests do not have."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent in (ROOT, DOCS / "how-to", DOCS / "tutorial")], ids=page_id)
def test_an_extra_that_a_block_needs_is_named_above_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        named = list_extras(find_requirements(re.sub("<!-- run -->|(?<=```)(?:console|python)", "", text[: match.start()])))
        missing = [extra for extra, pattern in NEEDS.items() if re.search(pattern, match["body"], re.MULTILINE) and extra not in named]
        assert not missing, f"pip install 'proctor-evals[{missing[0]}]' is missing above:\n{match['body']}"


BY_NAME = re.compile(r"""(?:pip install|uv add|pipx install|PROCTOR_INSTALL: *)[^\n`#]*?[\s"']proctor(?:\[[\w,]+\])?(?![\w./\[-]|\s*@)""")
"""On the public index this name belongs to another project."""


INSTALLING = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "action.yml", *sorted((ROOT / "ci").rglob("*.yml"))]


@pytest.mark.parametrize("page", INSTALLING, ids=page_id)
def test_no_page_has_the_reader_install_the_other_project_of_that_name(page: Path) -> None:
    assert not BY_NAME.findall(page.read_text(encoding="utf-8")), "the distribution is proctor-evals"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install proctor", True),
        ("pip install 'proctor[live]'", True),
        ("pip install -U dspy proctor", True),
        ('PROCTOR_INSTALL: "proctor[live]"', True),
        ("PROCTOR_INSTALL: proctor[live]", True),
        ("pip install 'proctor-evals[live]'", False),
        ("pip install /path/to/proctor", False),
        ('PROCTOR_INSTALL: "proctor[live] @ git+https://example.com/proctor.git"', False),
        ("pip install .` next to proctor", False),
    ],
)
def test_an_installation_by_name_is_found(text: str, found: bool) -> None:
    assert bool(BY_NAME.search(text)) == found


def test_the_pages_that_promise_to_be_executed_are() -> None:
    names = {page_id(page) for page in EXECUTED}
    assert {"README.md", "docs/tutorial/first-suite.md", "docs/how-to/write-a-check.md", "docs/how-to/check-in-python.md"} <= names
    assert {page.name for page in EXECUTED} | EXECUTED_LIVE >= {page.name for page in (DOCS / "how-to").glob("*.md")}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_suite_and_every_json_on_the_page_can_be_read(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for body in blocks(text, "yaml"):
        # Cases from data are read by the commands of their page, in the folder of their files.
        if re.search(r"^proctor: 1$", body, re.MULTILINE) and not re.search("tool_caled|words_within|words?_at_most|from: ", body):
            assert proctor.parse_suite(body).cases, body
    for body in blocks(text, "json"):
        document = json.loads(body)
        if page.name in ("README.md", "evidence.md") or "tool_calls" in document:
            assert proctor.read_evidence(document) is not None


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_on_the_page_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{page_id(page)}: {target}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), f"{page_id(page)}: {target}"


@functools.cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {"".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_") for heading in headings}


# --- generated pages ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_the_generated_pages_are_up_to_date() -> None:
    # One test, so that one worker makes all pages once.
    old = [path for path, page in generate.pages().items() if (DOCS / path).read_text(encoding="utf-8") != page]
    assert not old, "run `make docs`"


@pytest.mark.parametrize("path", [path for path in (*generate.WHOLE, *generate.MIXED) if path.endswith(".md")])
def test_a_generated_page_is_marked_in_its_first_line(path: str) -> None:
    first = (DOCS / path).read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("<!--") and "`python -m docs.generate`" in first


@pytest.mark.parametrize(("page", "kind"), [("checks.md", "checks"), ("matchers.md", "matchers"), ("functions.md", "functions")])
def test_every_registered_name_has_its_section(page: str, kind: str) -> None:
    headings = anchors(DOCS / "reference" / page)
    missing = [entry.name for entry in describe.KINDS[kind][1]() if entry.name.lower() not in headings]
    assert not missing, f"docs/reference/{page} has no section for {', '.join(missing)}"


def test_every_evidence_format_command_and_dialect_is_documented() -> None:
    evidence = (DOCS / "reference" / "evidence.md").read_text(encoding="utf-8")
    assert not [entry.name for entry in describe.evidence() if f"| `{entry.name}` |" not in evidence]
    commands = anchors(DOCS / "reference" / "command-line.md")
    assert not [command.name for command in COMMANDS if f"proctor-{command.name}" not in commands]
    pages = {dialect: DOCS / "reference" / ("native-format.md" if dialect == "native" else f"{dialect}.md") for dialect in DIALECTS}
    assert not [dialect for dialect, page in pages.items() if not page.exists()]
    guides = [DOCS / "how-to" / f"move-from-{dialect}.md" for dialect in DIALECTS if dialect != "native"]
    assert not [guide.name for guide in guides if not guide.exists()]


def test_every_page_is_reachable_from_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    unlinked = [page_id(page) for page in DOCS.rglob("*.md") if page.name != "README.md" and str(page.relative_to(DOCS)) not in index]
    assert not unlinked


def test_the_navigation_of_the_site_names_every_page_once() -> None:
    named = re.findall(r"- (?:[\w ]+: )?([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_every_example_of_a_matcher_or_function_can_be_used() -> None:
    for entry in MATCHERS.values():
        compile_expected(entry.example)
        compile_expected(entry.short)
    for function in FUNCTIONS.values():
        compile_expected({"$expr": function.example})


# --- words that the code uses ------------------------------------------------------------------------------------------------


def code_words() -> dict[str, str]:
    """Every code a verdict, a result or a problem can carry, with a place that uses it."""
    found: dict[str, str] = {}
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SRC.rglob("*.py"))}
    named = {
        target.id: node.value.value
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
            words = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if name in ("CheckFault", "errored", "skipped") and node.args:
                words.append(node.args[0])
            if name == "skip_case" and len(node.args) > 1:
                words.append(node.args[1])
            for word in words:
                for part in ast.walk(word):
                    code = part.value if isinstance(part, ast.Constant) else named.get(part.id) if isinstance(part, ast.Name) else None
                    if isinstance(code, str) and re.fullmatch(r"[a-z]+(?:_[a-z0-9]+)*", code):
                        found.setdefault(code, f"{path.relative_to(SRC)}:{node.lineno}")
    return found


@pytest.mark.timeout(60)
def test_every_code_in_the_source_is_explained_and_no_other() -> None:
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([a-z0-9_]+)` \|", page, re.MULTILINE))
    used = code_words()
    assert not {word: place for word, place in used.items() if word not in explained}, "not explained in docs/reference/errors.md"
    everywhere = "\n".join(path.read_text(encoding="utf-8") for path in SRC.rglob("*.py"))
    assert not [word for word in explained if f'"{word}"' not in everywhere], "explained in docs/reference/errors.md but not in the source"


def dialect_words(dialect: str) -> set[str]:
    """The words of a dialect that become checks, out of its reader."""
    if dialect == "mcplab":
        from proctor.formats.mcplab.rules import _INPUT_KEYS, _RESPONSE_KEYS, EVAL_KEYS  # pyright: ignore[reportPrivateUsage]

        return {*EVAL_KEYS, *_INPUT_KEYS, *_RESPONSE_KEYS, "required_tools", "forbidden_tools"}
    if dialect == "mcpjam":
        from proctor.formats.mcpjam.predicates import PREDICATES
        from proctor.formats.mcpjam.suite import _STEP_KEYS, _WIDGET_ASSERTIONS  # pyright: ignore[reportPrivateUsage]

        return {*PREDICATES, *_STEP_KEYS, *_WIDGET_ASSERTIONS}
    if dialect == "verial":
        from proctor.formats.verial.assertions import KINDS

        return set(KINDS)
    from proctor.formats.mibo.assertions import _CALL, _SEMANTIC, _TARGETS, CALL_CONDITIONS, FIELD_CONDITIONS, LIMITS  # pyright: ignore[reportPrivateUsage]

    return {*_TARGETS, *_CALL, *CALL_CONDITIONS, *FIELD_CONDITIONS, *LIMITS, *_SEMANTIC}


@pytest.mark.parametrize("dialect", [dialect for dialect in DIALECTS if dialect != "native"])
def test_every_rule_of_a_dialect_is_on_its_page(dialect: str) -> None:
    page = (DOCS / "reference" / f"{dialect}.md").read_text(encoding="utf-8")
    words = dialect_words(dialect)
    assert words
    assert not sorted(word for word in words if not re.search(rf"[`.]{re.escape(word)}[`:]", page))


def test_every_public_name_is_mentioned_somewhere() -> None:
    prose = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    twins = {name for name in proctor.__all__ if name.startswith("explain_")}
    unmentioned = [name for name in proctor.__all__ if name not in twins and not re.search(rf"\b{name}\b", prose)]
    assert not unmentioned


# --- fidelity ----------------------------------------------------------------------------------------------------------------


def test_every_difference_from_an_original_has_a_reason() -> None:
    assert fidelity_rows.rows(), "no conformance rows were found"
    assert not fidelity_rows.complaints()


# --- the how-to of adding a check to proctor --------------------------------------------------------------------------


def test_the_check_of_the_guide_works_in_the_tree_with_one_file_and_one_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (DOCS / "how-to" / "write-a-check.md").read_text(encoding="utf-8")
    # Before them stand two that need no tree: a file of own checks, and a package.
    check, its_test = blocks(guide, "python")[-2:]
    (tmp_path / "length").mkdir()
    (tmp_path / "length/__init__.py").touch()
    (tmp_path / "length/brevity.py").write_text(check, encoding="utf-8")
    monkeypatch.setattr(proctor.checks, "__path__", [*proctor.checks.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "proctor.checks.length.brevity", raising=False)
    registry = collect(iterate_builtin_modules())
    assert "words_within" in registry
    check_table(registry)
    names: dict[str, object] = {}
    exec(compile(its_test, "docs/how-to/write-a-check.md", "exec"), names)  # noqa: S102 - the program is ours, from our own page
    names["default_registry"] = lambda: registry
    tests = [value for name, value in names.items() if name.startswith("test_") and callable(value)]
    assert len(tests) == 2
    for one in tests:
        one()
    monkeypatch.delitem(sys.modules, "proctor.checks.length.brevity")
