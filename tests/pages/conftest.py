"""The service with two runs of a shop's agent, asked as browsers ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.world import KeptWorld, World, copy_world, keep_world


@pytest.fixture
def url(sqlite_url: str) -> str:
    """An empty database. What pages ask of PostgreSQL is asked by the browser (tests/live), and of the verbs by their own tests."""
    return sqlite_url


@pytest.fixture(scope="session")
def kept_world(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> KeptWorld:
    """What every world begins with."""
    return keep_world(sqlite_template, tmp_path_factory.mktemp("kept-world"))


@pytest.fixture
def world(kept_world: KeptWorld, tmp_path: Path) -> Iterator[World]:
    with copy_world(kept_world, tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def seen(kept_world: KeptWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The same for tests that only look."""
    with copy_world(kept_world, tmp_path_factory.mktemp("pages")) as opened:
        yield opened
