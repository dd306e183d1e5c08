"""`[tool.proctor]` of a `pyproject.toml`: read, absent, or refused with its file; never an error of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import InputError
from proctor.sources.pyproject import has_workspace_table, read_workspace_table


def write(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[tool.other]\n",
        'description = """\n[tool.proctor]\ndefault_target = "x"\n"""\n',
        'description = """\n[tool.proctor]\n"""\n[tool.other]\n',
        "description = '''\n[tool.proctor]\n'''\ntool = 3\n",
    ],
)
def test_a_heading_inside_a_text_is_no_table(text: str, tmp_path: Path) -> None:
    assert read_workspace_table(write(tmp_path, text)) is None
    assert not has_workspace_table(tmp_path)


@pytest.mark.parametrize("mark", ["", "\ufeff", "# first\r\n"])
def test_the_table_is_read_whatever_precedes_it(mark: str, tmp_path: Path) -> None:
    assert read_workspace_table(write(tmp_path, f'{mark}[tool.proctor]\r\ndefault_target = "x"\r\n')) == {"default_target": "x"}
    assert has_workspace_table(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"[tool.proctor]\nx = {'9' * 5000}\n", "is no TOML: .*digits"),
        (f"[tool.proctor]\nx = {'[' * 5000}{']' * 5000}\n", "is no TOML: .*too deep"),
        ('x = """\n[tool.proctor]\n"""\ntool.proctor = 3\n', "tool.proctor: expected a table, found number 3"),
        ("[tool.proctor]\nx = \n", "is no TOML: Invalid value"),
    ],
)
def test_unreadable_text_is_refused_with_its_file(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_workspace_table(write(tmp_path, text))
    assert "pyproject.toml" in str(caught.value)
    assert has_workspace_table(tmp_path), "a table was intended"
