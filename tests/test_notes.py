"""Guides and design notes: their form, and that the files they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PATH = re.compile(r"`([a-z_]+/[\w./-]*\.(?:py|yaml|json|toml|css|js|html|md))`")
GUIDES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "tests/README.md",
    ROOT / "docs/how-to/write-a-check.md",
    ROOT / "docs/how-to/write-a-simulator.md",
    *sorted((ROOT / "design").glob("*.md")),
]
MODULE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")
FOREIGN = {"strands/agent/agent.py"}
"""Files of other packages, which docstrings name."""
SHOWN_ONLY = {"tests/simulators/test_doorbell.py", "tests/checks/test_brevity.py"}
"""Files that a guide makes."""


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_every_file_that_a_guide_names_is_there(path: Path) -> None:
    prose = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    homes = (ROOT, ROOT / "src/proctor", ROOT / "src/proctor/service", ROOT / "src/proctor/pages", ROOT / "tests", path.parent)
    # Capitals stand for what differs: `tests/checks/cases/NAME.yaml`.
    named = {name for name in PATH.findall(prose) if not re.search("[A-Z]{3}", name)} - SHOWN_ONLY
    assert [name for name in sorted(named) if not any((home / name).exists() for home in homes)] == []


def test_every_module_that_a_docstring_names_is_there() -> None:
    sources = [path for folder in ("src", "tests", "docs", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    # The end of a path counts, from any folder on.
    there = {"/".join(path.parts[start:]) for path in sources for start in range(-8, 0)} | FOREIGN
    assert [
        (path.relative_to(ROOT).as_posix(), name)
        for path in sources
        if path.is_relative_to(ROOT / "src")
        for name in MODULE.findall(path.read_text(encoding="utf-8"))
        if name not in there
    ] == []


@pytest.mark.parametrize("path", sorted((ROOT / "design").glob("*.md")), ids=lambda path: path.stem)
def test_a_design_note_has_its_four_parts_and_fits_a_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.stem not in ("architecture", "debts"):
        for part in ("## Question", "## Options", "## Choice", "## What would change our mind"):
            assert part in text, part
    by_hand = re.sub(r"<!-- generated: .*?<!-- end generated -->", "", text, flags=re.DOTALL)
    assert len(by_hand.splitlines()) <= 90


@pytest.mark.parametrize("path", sorted((ROOT / "changes").glob("*.md")), ids=lambda path: path.stem)
def test_a_change_note_is_named_by_its_kind_and_short(path: Path) -> None:
    assert re.fullmatch(r"[a-z0-9-]+\.(feature|fix|change|removal|doc)\.md", path.name)
    assert 1 <= len(path.read_text(encoding="utf-8").strip().splitlines()) <= 3
