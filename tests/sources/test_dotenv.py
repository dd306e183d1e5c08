"""Variables out of `.env` files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InputError
from proctor.sources import dotenv
from proctor.sources.dotenv import parse_variables, with_dotenv
from tests.tables import rows


@rows("sources/cases/dotenv.yaml")
def test_a_file_of_variables_is_read(row: dict[str, Any]) -> None:
    assert parse_variables(row["text"]) == row["expect"]


def test_set_variables_are_never_changed_and_an_earlier_file_wins(tmp_path: Path) -> None:
    for name, text in (("a", "SET=file\nEMPTY=file\nONE=a\n"), ("b", "ONE=b\nTWO=b\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".env").write_bytes(b"\xef\xbb\xbf" + text.encode())
    files = [tmp_path / "a" / ".env", tmp_path / "b" / ".env"]
    known = with_dotenv({"SET": "shell", "EMPTY": ""}, files)
    assert known == {"SET": "shell", "EMPTY": "", "ONE": "a", "TWO": "b"}


def test_an_invalid_file_of_variables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dotenv, "LARGEST", 10)
    (tmp_path / ".env").write_text("A=12345678901")
    with pytest.raises(InputError, match="larger than"):
        with_dotenv({}, [tmp_path / ".env"])
