"""The checks of `make release`, on small wheels; the full run is on request, since it makes fifteen environments."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from docs.changelog import find_section, fold_changes
from supply_chain.release_trials import PROBES, list_pythons

import proctor
from supply_chain import release

METADATA = """\
Name: proctor-evals
Version: 1.2.3
License-Expression: Apache-2.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown

pip install proctor-evals
"""


def write_wheel(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "proctor_evals-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


FILES = {**dict.fromkeys(release.NEEDED, ""), "proctor_evals-1.2.3.dist-info/METADATA": METADATA}


def test_a_complete_wheel_has_no_problems(tmp_path: Path) -> None:
    assert release.check_wheel(write_wheel(tmp_path, FILES), "1.2.3") == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"proctor/py.typed": None}, "the wheel has no proctor/py.typed"),
        ({"proctor/__pycache__/a.pyc": ""}, "the wheel contains proctor/__pycache__/a.pyc"),
        ({"proctor/big.txt": "x" * (release.MAX_INSTALLED + 1)}, "the wheel installs"),
        ({"proctor_evals-1.2.3.dist-info/METADATA": METADATA.replace("1.2.3", "1.2.4")}, "Version is '1.2.4', expected '1.2.3'"),
        ({"proctor_evals-1.2.3.dist-info/METADATA": METADATA.replace("pip install", "get")}, "the description is not the README"),
    ],
)
def test_a_wrong_wheel_is_reported(change: dict[str, str | None], problem: str, tmp_path: Path) -> None:
    files = {name: text for name, text in {**FILES, **change}.items() if text is not None}
    assert problem in "\n".join(release.check_wheel(write_wheel(tmp_path, files), "1.2.3"))


def test_the_version_of_the_source_is_that_of_the_package() -> None:
    assert release.read_version() == proctor.__version__


def test_notes_are_folded_and_found_again(tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "a.feature.md").write_text("Something new.")
    assert fold_changes(tmp_path, "1.2.3", "2026-01-01") == 1
    assert fold_notes_left(tmp_path) == []
    assert find_section((tmp_path / "CHANGELOG.md").read_text(), "1.2.3") == "### New\n\n* Something new.\n"
    assert find_section("# Changes\n", "1.2.3") == ""


def fold_notes_left(folder: Path) -> list[str]:
    return [file.name for file in (folder / "changes").iterdir()]


def test_the_same_release_is_the_same_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[str] = []
    for name in ("one", "two"):
        tree = tmp_path / name
        (tree / "src" / "proctor").mkdir(parents=True)
        (tree / "changes").mkdir()
        (tree / release.VERSION_FILE).write_text('__version__ = "0.1.0"\n')
        (tree / "changes" / "a.fix.md").write_text("Better.")
        monkeypatch.setenv("GIT_COMMITTER_DATE", "@1790000000 +0000")
        monkeypatch.setenv("GIT_AUTHOR_DATE", "@1790000000 +0000")
        for command in (
            ["git", "init", "--quiet"],
            ["git", "config", "user.name", "A"],
            ["git", "config", "user.email", "a@example.org"],
            ["git", "add", "--all"],
            ["git", "commit", "--quiet", "--message", "First"],
        ):
            subprocess.run(command, cwd=tree, check=True)
        release.prepare_commit(tree, "0.2.0")
        assert release.read_version(tree) == "0.2.0"
        commits.append(subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, check=True, capture_output=True, text=True).stdout)
    assert commits[0] == commits[1]


def test_this_python_is_found_and_every_probe_names_known_extras() -> None:
    assert any(python.version == "3.11" for python in list_pythons()) or list_pythons()
    text = (release.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f"\n{extra} = [" in text for probe in PROBES for extra in probe.extras)
