"""A missing module is reported with its extra if it has one, and unchanged otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proctor.cli.show.other_distributions import find_others
from proctor.cli.show.output import explain_missing
from tests.integration.running import proctor


@pytest.mark.parametrize("name", ["proctor.rest.gone", "fcntl", None])
def test_a_module_of_no_extra_is_reported_unchanged(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError, match="no such module"):
        explain_missing(ModuleNotFoundError("no such module", name=name), "`proctor serve`", "serve")


@pytest.mark.parametrize("name", ["uvicorn", "fastapi.routing"])
def test_a_missing_module_is_reported_with_its_extra(name: str) -> None:
    message = str(explain_missing(ModuleNotFoundError("no such module", name=name), "`proctor serve`", "serve"))
    assert message == "`proctor serve` needs the extra 'serve': pip install 'proctor-evals[serve]'"


@pytest.mark.parametrize(("command", "module"), [("serve", "proctor.rest.settings"), ("view", "proctor.rest.view")])
def test_a_broken_installation_is_no_missing_part(command: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = proctor(command)
    assert done.code == 3 and module in done.err and "pip install" not in done.err, done


@pytest.mark.parametrize(
    ("folder", "files", "found"),
    [
        ("proctor-0.8.dist-info", {"top_level.txt": "proctor\n"}, ["proctor"]),
        ("exam_proctor-1.0.dist-info", {"RECORD": "proctor/__init__.py,sha256=x,12\n"}, ["exam-proctor"]),
        ("proctor_evals-0.1.0.dist-info", {"RECORD": "proctor/__init__.py,sha256=x,12\n"}, []),
        ("other-1.0.dist-info", {"top_level.txt": "other\n"}, []),
        ("proctor_tools-1.0.dist-info", {"RECORD": "proctor_tools/__init__.py,sha256=x,12\n"}, []),
        ("proctor_broken-1.0.dist-info", {}, []),
    ],
)
def test_another_distribution_with_our_import_name_is_found(folder: str, files: dict[str, str], found: list[str], tmp_path: Path) -> None:
    (tmp_path / "proctor").mkdir()
    (tmp_path / folder).mkdir()
    for name, text in files.items():
        (tmp_path / folder / name).write_text(text)
    assert find_others([str(tmp_path), str(tmp_path / "missing")]) == found
