"""The how-to page promises little code; its files and commands are executed with all other pages."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-pytest.md"
_FILE = re.compile(r"<!-- file: (?P<name>\S+) -->\n```\w+\n(?P<body>.*?)```", re.DOTALL)


def test_the_python_test_on_the_page_is_ten_lines() -> None:
    bodies = {file["name"]: file["body"] for file in _FILE.finditer(PAGE.read_text(encoding="utf-8"))}
    assert len([line for line in bodies["test_desk.py"].splitlines() if line]) <= 10
