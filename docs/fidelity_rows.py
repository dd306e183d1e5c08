"""The differences from the original systems, out of the tables of `tests/conformance/`.

A row there is one thing an original system was asked, with its answer (`original`) and ours (`expect`). Where the two differ,
the row says `why`, and it appears on the fidelity page. Each system says its answers in its own words (`passed`, a list of
failure messages): words that mean the same are equal, and where the two answers cannot be compared at all, a `why` is what makes a
difference. A row that differs and does not say why is complained about.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tests.tables import load

ROOT = Path(__file__).parent.parent
CONFORMANCE = ROOT / "tests" / "conformance"

DIALECTS = {"mcplab": "MCPLab", "mibo": "Mibo", "verial": "Verial", "mcpjam": "MCPJam"}
"""What the folders of rows begin with, and the name of the system behind each."""

_SAME = {"passed": "pass", "failed": "fail", True: "pass", False: "fail", "true": "pass", "false": "fail"}
"""Words of the originals and ours that mean the same."""


@functools.cache
def rows() -> tuple[tuple[str, str, dict[str, Any]], ...]:
    """Every row that compares, as (dialect, file, row), in a fixed order."""
    return tuple(_rows())


def _rows() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path in sorted(CONFORMANCE.rglob("*.yaml")):
        inside = path.relative_to(CONFORMANCE)
        try:
            found = load(str(path.relative_to(ROOT / "tests")))
        except (yaml.YAMLError, KeyError, TypeError):
            continue  # no table of rows; whoever reads it as one will say so
        dialect = next((dialect for dialect in DIALECTS if inside.parts[0].startswith(dialect)), "")
        yield from ((dialect, str(inside), row) for row in found if "original" in row and "expect" in row)


def is_open(row: dict[str, Any]) -> bool:
    """Whether the original does not say, so that ours is a choice and no difference."""
    return row["original"] is None and isinstance(row["expect"], dict)


def differs(row: dict[str, Any]) -> bool:
    """Whether ours is another answer than the original's."""
    if is_open(row):
        return False
    surely = _surely_differs(_in_our_words(row["original"]), _in_our_words(row["expect"]))
    return bool(row.get("why")) if surely is None else surely


def _surely_differs(original: object, ours: object) -> bool | None:
    """Whether two answers differ; nothing where one says more than the other, or says it in other terms."""
    if original == "raises" and isinstance(ours, str) and ours.endswith("Error"):
        return False
    if isinstance(original, dict) and isinstance(ours, dict):
        parts = [_surely_differs(original[key], ours[key]) for key in original.keys() & ours.keys()]
        if any(parts):
            return True
        return False if original.keys() == ours.keys() and None not in parts else None
    if type(original) is not type(ours):
        return None
    return bool(original != ours)


def _in_our_words(value: object) -> object:
    if isinstance(value, list):
        return [_in_our_words(entry) for entry in value]
    if isinstance(value, dict):
        return {"outcome" if key == "passed" else key: _in_our_words(entry) for key, entry in value.items()}
    return _SAME.get(value, value) if isinstance(value, (str, bool)) else value


def complaints() -> list[str]:
    """Rows that differ and do not say why, and rows that no section takes."""
    found = [
        f"tests/conformance/{file}: row {row['id']!r} differs from the original and has no `why`"
        for _, file, row in rows()
        if differs(row) and not str(row.get("why") or "").strip()
    ]
    files = sorted({file for dialect, file, _ in rows() if dialect not in DIALECTS})
    return found + [f"tests/conformance/{file}: the fidelity page has no section for these rows" for file in files]


def differences() -> str:
    """One section per dialect, one row per difference; then the rows where the original does not say."""
    lines: list[str] = []
    for dialect, name in DIALECTS.items():
        mine = [row for owner, _, row in rows() if owner == dialect]
        different, silent = [row for row in mine if differs(row)], [row for row in mine if is_open(row)]
        lines += ["", f"### {name}", "", _tally(len(mine), len(different), len(silent))]
        if different:
            lines += ["", "| case | original | proctor | why |", "|---|---|---|---|"]
            lines += [_row(_case(row), _answer(row["original"]), _answer(row["expect"]), _sentence(row.get("why"))) for row in different]
        if silent:
            lines += ["", f"Where {name} does not say:", "", "| case | proctor | note |", "|---|---|---|"]
            lines += [_row(_case(row), _answer(row["expect"]), _sentence(row.get("why"))) for row in silent]
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _tally(rows_in_all: int, different: int, silent: int) -> str:
    alike = rows_in_all - different - silent
    said = [f"{alike} with the same answer", f"{different} with another"] + ([f"{silent} where it does not say"] if silent else [])
    return f"{rows_in_all} rows, taken from its documentation or observed: {', '.join(said)}."


def _case(row: dict[str, Any]) -> str:
    source = str(row.get("source") or "").partition(":")[2].strip() or str(row.get("source") or "")
    return f"`{row['id']}`" + (f"<br>{_prose(source)}" if source else "")


def _answer(value: object) -> str:
    """An answer in a cell, shortened; words as they are, other values as they would be written."""
    if isinstance(value, dict):
        value = {key: entry for key, entry in value.items() if key not in ("evidence", "message", "reasons")}
    text = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True).strip()
    text = " ".join(text.removesuffix("...").split())
    shown = text if len(text) <= 120 else f"{text[:117]}..."
    return f"`{shown}`".replace("|", "\\|") if shown else "(empty text)"


def _prose(value: object) -> str:
    return " ".join(str(value or "").split()).replace("|", "\\|")


def _sentence(value: object) -> str:
    text = _prose(value).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else ""
