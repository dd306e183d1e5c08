"""The service with two runs of a shop's agent, asked as browsers ask."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.world import World


@pytest.fixture
def url(sqlite_template: Path, tmp_path: Path) -> str:
    """An empty database. What pages ask of PostgreSQL is asked by the browser (tests/live), and of the verbs by their own tests."""
    shutil.copyfile(sqlite_template, tmp_path / "proctor.db")
    (tmp_path / "proctor.db").chmod(0o600)
    return f"sqlite:///{tmp_path / 'proctor.db'}"


@pytest.fixture
def world(url: str, tmp_path: Path) -> Iterator[World]:
    with World(url, tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def seen(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The same for tests that only look."""
    home = tmp_path_factory.mktemp("pages")
    shutil.copyfile(sqlite_template, home / "proctor.db")
    with World(f"sqlite:///{home / 'proctor.db'}", home) as opened:
        yield opened
