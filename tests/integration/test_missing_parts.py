"""Only what an extra brings is told as one; another module that is missing is told as what it is."""

from __future__ import annotations

import sys

import pytest

from proctor.cli.missing_parts import explain_missing
from tests.integration.running import proctor


@pytest.mark.parametrize("name", ["proctor.rest.gone", "fcntl", None])
def test_a_module_that_no_extra_brings_is_told_as_it_is(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError, match="no such module"):
        explain_missing(ModuleNotFoundError("no such module", name=name), "`proctor serve`", "serve")


@pytest.mark.parametrize("name", ["uvicorn", "fastapi.routing"])
def test_a_module_of_an_extra_is_told_with_it(name: str) -> None:
    told = str(explain_missing(ModuleNotFoundError("no such module", name=name), "`proctor serve`", "serve"))
    assert told == "`proctor serve` needs an optional part: pip install 'proctor[serve]'"


@pytest.mark.parametrize(("command", "module"), [("serve", "proctor.rest.settings"), ("view", "proctor.rest.view")])
def test_a_broken_installation_is_no_missing_part(command: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = proctor(command)
    assert done.code == 3 and module in done.err and "pip install" not in done.err, done
