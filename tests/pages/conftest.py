"""The service with two runs of a shop's agent, used as browsers do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.world import World, WorldTemplate, copy_world, keep_world


@pytest.fixture
def url(sqlite_url: str) -> str:
    """An empty SQLite database. PostgreSQL is covered by browser tests (tests/live) and by the tests of each action."""
    return sqlite_url


@pytest.fixture(scope="session")
def world_template(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> WorldTemplate:
    """The initial data of every world."""
    return keep_world(sqlite_template, tmp_path_factory.mktemp("world-template"))


@pytest.fixture
def world(world_template: WorldTemplate, tmp_path: Path) -> Iterator[World]:
    with copy_world(world_template, tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def seen(world_template: WorldTemplate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The same for tests that only look."""
    with copy_world(world_template, tmp_path_factory.mktemp("pages")) as opened:
        yield opened
