"""Foreign software is installed once and completely, however many workers request it at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.foreign import install_once


def test_workers_that_ask_at_once_install_once_and_all_find_the_whole(tmp_path: Path) -> None:
    everyone, installs = threading.Barrier(4), []

    def install(folder: Path) -> None:
        installs.append(folder)
        (folder / "index.js").touch()
        threading.Event().wait(0.05)
        (folder / "what index.js imports").touch()

    def ask(_number: int) -> list[str]:
        everyone.wait()
        return sorted(path.name for path in install_once(tmp_path / "server", "server 1.0", install).iterdir())

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(4)))
    assert found == [[".installed", "index.js", "what index.js imports"]] * 4
    assert len(installs) == 1


def test_an_installation_that_broke_off_or_is_of_another_version_is_repeated(tmp_path: Path) -> None:
    def break_off(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no route to the registry")

    with pytest.raises(OSError, match="no route"):
        install_once(tmp_path / "server", "server 1.0", break_off)
    for version in ("server 1.0", "server 2.0"):
        folder = install_once(tmp_path / "server", version, lambda folder: (folder / "whole").touch())
        assert sorted(path.name for path in folder.iterdir()) == [".installed", "whole"]
