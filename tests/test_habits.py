"""The habits that scripts keep: notes become a changelog, coverage becomes a table."""

from __future__ import annotations

import pytest
from docs.changelog import fold_notes

from tests.coverage_table import coverage_table


def test_notes_become_a_section_by_kind_above_the_earlier_ones() -> None:
    notes = {"b.fix.md": "A fix\nover two lines.\n", "a.feature.md": "A feature.\n", "c.fix.md": "Another fix.\n"}
    first = fold_notes("", notes, "0.1.0", "2026-01-02")
    assert first.split("## ", 1)[1] == (
        "0.1.0 (2026-01-02)\n\n### New\n\n* A feature.\n\n### Fixed\n\n* A fix over two lines.\n* Another fix.\n"
    )
    second = fold_notes(first, {"d.change.md": "A change."}, "0.2.0", "2026-02-03")
    assert [line for line in second.splitlines() if line.startswith("## ")] == ["## 0.2.0 (2026-02-03)", "## 0.1.0 (2026-01-02)"]
    assert second.count("# Changes") == 1


@pytest.mark.parametrize(("name", "version"), [("a.wish.md", "0.2.0"), ("a.md", "0.2.0"), ("a.fix.md", "0.1.0")])
def test_a_note_of_no_kind_and_a_version_that_is_there_are_refused(name: str, version: str) -> None:
    before = fold_notes("", {"x.fix.md": "A fix."}, "0.1.0", "2026-01-02")
    with pytest.raises(ValueError, match=r"KIND|already"):
        fold_notes(before, {name: "Something."}, version, "2026-02-03")


def test_the_least_covered_package_comes_first() -> None:
    def entry(lines: int, of: int) -> dict[str, dict[str, int]]:
        return {"summary": {"covered_lines": lines, "num_statements": of, "covered_branches": 0, "num_branches": 0}}

    table = coverage_table({"files": {"src/proctor/cli/main.py": entry(9, 10), "src/proctor/store/rows.py": entry(1, 10)}})
    assert table[0].split() == ["10.0%", "store"] and table[1].split() == ["90.0%", "cli"] and "50.0%" in table[-1]
