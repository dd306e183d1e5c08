"""The documentation is true: every command and program in it runs, every registered name is documented, generated pages are current.

A page is executed from top to bottom in an empty folder. `<!-- file: NAME -->` before a block writes it, `<!-- copy: EXAMPLE NAME -->`
copies a bundled example, `<!-- init -->` writes the files of `proctor init`, `<!-- plugin -->` installs the package that the page has
described so far. In `console` blocks the output must be what the page shows; `...` stands for anything. `PROCTOR_REGEN=1` writes the
outputs anew.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs import fidelity_rows, generate

import proctor
import proctor.checks
from proctor.actions import describe
from proctor.actions.init import init
from proctor.checks.registry import collect, iterate_builtin_modules
from proctor.cli.main import COMMANDS, run
from proctor.expressions.functions import FUNCTIONS
from proctor.formats.suites import DIALECTS
from proctor.matchers.compile import MATCHERS, compile_expected

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SRC = ROOT / "src" / "proctor"
EXAMPLES = SRC / "examples"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

_DIRECTIVE = re.compile(r"<!-- (?P<verb>file|copy|init|plugin)(?:: (?P<rest>.*?))? -->\n")
_FENCE = re.compile(r"```(?P<language>\w*)\n(?P<body>.*?)```", re.DOTALL)
_PART = re.compile(f"{_DIRECTIVE.pattern}|{_FENCE.pattern.replace('language', 'tongue')}", re.DOTALL)


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    return [match["body"] for match in _FENCE.finditer(text) if match["language"] == language]


class Execution:
    """One page being executed in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder.with_name(f"{folder.name}-site")
        shims = folder.with_name(f"{folder.name}-bin")
        shims.mkdir()
        shim = shims / "proctor"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proctor "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PROCTOR_", "COV"))}
        self.environment = {**clean, "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(self.site), "NO_COLOR": "1"}
        self.names: dict[str, object] = {}

    def directive(self, verb: str, rest: str) -> None:
        if verb == "copy":
            example, name = rest.split()
            shutil.copy(EXAMPLES / example, self.folder / name)
        elif verb == "init":
            init(self.folder)
        elif verb == "plugin":
            self._install()

    def write(self, name: str, body: str) -> None:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(body, encoding="utf-8")

    def _install(self) -> None:
        """What `pip install .` would leave behind, without pip and without a network."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        info = self.site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
        lines = [
            line
            for group, points in project["entry-points"].items()
            for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for module in project["entry-points"]["proctor.checks"].values():
            shutil.copy(self.folder / f"{module}.py", self.site)

    def console(self, body: str) -> str:
        """Run the commands of a block; the block as it should be."""
        out: list[str] = []
        for command, shown in _commands(body):
            printed = self._run(command)
            found = re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE).strip("\n")
            shown = shown.strip("\n")
            pattern = ".*".join(re.escape(part) for part in shown.split("..."))
            if not re.fullmatch(pattern, found, re.DOTALL):
                assert os.environ.get("PROCTOR_REGEN"), f"$ {command}\nthe page shows:\n{shown}\nit printed:\n{found}"
                shown = found
            out += [f"$ {command}", *([shown] if shown else [])]
        return "\n".join(out) + "\n"

    def _run(self, command: str) -> str:
        """What a command prints. Ours run in this process unless a plugin was installed: starting Python takes longer."""
        ours = re.fullmatch(r'proctor ([^;|&]*)(; echo "exit code \$\?")?', command)
        if ours is not None and not self.site.exists():
            code, printed = _in_process(shlex.split(ours[1]))
            if ours[2]:
                return f"{printed}exit code {code}\n"
            assert code == 0, f"$ {command}\nended with {code}:\n{printed}"
            return printed
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=30,
        )
        assert done.returncode == 0, f"$ {command}\nended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def python(self, body: str, page: str) -> None:
        exec(compile(body, page, "exec"), self.names)  # noqa: S102 - the program is ours, from our own page


def _in_process(arguments: list[str]) -> tuple[int, str]:
    caught = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(caught), contextlib.redirect_stderr(caught):
        code = run(arguments)
    caught.seek(0)
    return code, caught.read()


def _commands(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def execute(page: Path, folder: Path) -> None:
    text = page.read_text(encoding="utf-8")
    execution = Execution(folder)
    target: str | None = None
    pieces: list[str] = []
    at = 0
    for match in _PART.finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        piece = match[0]
        if match["verb"] == "file":
            target = match["rest"]
        elif match["verb"]:
            execution.directive(match["verb"], match["rest"] or "")
        elif target is not None:
            execution.write(target, match["body"])
            target = None
        elif match["tongue"] == "console":
            piece = f"```console\n{execution.console(match['body'])}```"
        elif match["tongue"] == "python":
            execution.python(match["body"], page_id(page))
        pieces.append(piece)
    if os.environ.get("PROCTOR_REGEN"):
        page.write_text("".join([*pieces, text[at:]]), encoding="utf-8")


EXECUTED = [page for page in PAGES if re.search(r"```(?:console|python)\n", page.read_text(encoding="utf-8"))]


EXECUTED_LIVE = {"author-criteria-from-a-coding-agent.md"}
"""Pages whose programs talk to a running service, and are run by the live tests."""


@pytest.mark.parametrize("page", EXECUTED, ids=page_id)
def test_every_command_and_program_on_the_page_runs_as_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    execute(page, folder)


def test_the_pages_that_promise_to_be_executed_are() -> None:
    names = {page_id(page) for page in EXECUTED}
    assert {"README.md", "docs/tutorial/first-suite.md", "docs/how-to/write-a-check.md", "docs/how-to/check-in-python.md"} <= names
    assert {page.name for page in EXECUTED} | EXECUTED_LIVE >= {page.name for page in (DOCS / "how-to").glob("*.md")}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_suite_and_every_json_on_the_page_can_be_read(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for body in blocks(text, "yaml"):
        if re.search(r"^proctor: 1$", body, re.MULTILINE) and "tool_caled" not in body and "words_within" not in body:
            assert proctor.parse_suite(body).cases, body
    for body in blocks(text, "json"):
        document = json.loads(body)
        if page.name in ("README.md", "evidence.md") or "tool_calls" in document:
            assert proctor.read_evidence(document) is not None


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_on_the_page_leads_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
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
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {"".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_") for heading in headings}


# --- generated pages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*generate.WHOLE, *generate.MIXED])
def test_the_generated_page_is_up_to_date(path: str) -> None:
    assert (DOCS / path).read_text(encoding="utf-8") == wanted_pages()[path], "run `make docs`"


@functools.cache
def wanted_pages() -> dict[str, str]:
    return generate.pages()


@pytest.mark.parametrize("path", [path for path in (*generate.WHOLE, *generate.MIXED) if path.endswith(".md")])
def test_a_generated_page_says_so_in_its_first_line(path: str) -> None:
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
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
            words = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if name in ("CheckFault", "errored", "skipped") and node.args:
                words.append(node.args[0])
            if name == "skip_case" and len(node.args) > 1:
                words.append(node.args[1])
            for word in words:
                for constant in ast.walk(word):
                    if isinstance(constant, ast.Constant) and re.fullmatch(r"[a-z]+(?:_[a-z0-9]+)*", str(constant.value)):
                        found.setdefault(str(constant.value), f"{path.relative_to(SRC)}:{node.lineno}")
    return found


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
        from proctor.formats.mcplab_rules import _INPUT_KEYS, _RESPONSE_KEYS, EVAL_KEYS  # pyright: ignore[reportPrivateUsage]

        return {*EVAL_KEYS, *_INPUT_KEYS, *_RESPONSE_KEYS, "required_tools", "forbidden_tools"}
    if dialect == "mcpjam":
        from proctor.formats.mcpjam_predicates import PREDICATES
        from proctor.formats.mcpjam_steps import _STEP_KEYS, _WIDGET_ASSERTIONS  # pyright: ignore[reportPrivateUsage]

        return {*PREDICATES, *_STEP_KEYS, *_WIDGET_ASSERTIONS}
    if dialect == "verial":
        from proctor.formats.verial_assertions import KINDS

        return set(KINDS)
    source = ast.parse((SRC / "formats" / "mibo_assertions.py").read_text(encoding="utf-8"))
    targets = next(
        node.value
        for node in ast.walk(source)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute) and node.target.attr == "_targets"
    )
    assert isinstance(targets, ast.Dict)
    from proctor.formats.mibo_assertions import _CALL, _CALL_CONDITIONS, _FIELD_CONDITIONS, _LIMITS, _SEMANTIC  # pyright: ignore[reportPrivateUsage]

    names = {key.value for key in targets.keys if isinstance(key, ast.Constant)}
    return {*names, *_CALL, *_CALL_CONDITIONS, *_FIELD_CONDITIONS, *_LIMITS, *_SEMANTIC}


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


def test_every_difference_from_an_original_says_why() -> None:
    assert fidelity_rows.rows(), "no conformance rows were found"
    assert not fidelity_rows.complaints()


# --- the how-to of adding a check, inside the house --------------------------------------------------------------------------


def test_the_check_of_the_guide_works_in_the_tree_with_one_file_and_one_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (DOCS / "how-to" / "write-a-check.md").read_text(encoding="utf-8")
    check, its_test = blocks(guide, "python")
    (tmp_path / "brevity.py").write_text(check, encoding="utf-8")
    monkeypatch.setattr(proctor.checks, "__path__", [*proctor.checks.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "proctor.checks.brevity", raising=False)
    registry = collect(iterate_builtin_modules())
    assert "words_within" in registry
    names: dict[str, object] = {}
    exec(compile(its_test, "docs/how-to/write-a-check.md", "exec"), names)  # noqa: S102 - the program is ours, from our own page
    names["default_registry"] = lambda: registry
    tests = [value for name, value in names.items() if name.startswith("test_") and callable(value)]
    assert len(tests) == 2
    for one in tests:
        one()
    monkeypatch.delitem(sys.modules, "proctor.checks.brevity")


# --- design notes and change notes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "design").glob("*.md")), ids=lambda path: path.stem)
def test_a_design_note_has_its_four_parts_and_fits_a_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.stem != "debts":
        for part in ("## Question", "## Options", "## Choice", "## What would change our mind"):
            assert part in text, part
    by_hand = re.sub(r"<!-- generated: .*?<!-- end generated -->", "", text, flags=re.DOTALL)
    assert len(by_hand.splitlines()) <= 90


@pytest.mark.parametrize("path", sorted((ROOT / "changes").glob("*.md")), ids=lambda path: path.stem)
def test_a_change_note_is_named_by_its_kind_and_short(path: Path) -> None:
    assert re.fullmatch(r"[a-z0-9-]+\.(feature|fix|change|removal|doc)\.md", path.name)
    assert 1 <= len(path.read_text(encoding="utf-8").strip().splitlines()) <= 3
