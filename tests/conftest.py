"""Fixtures of more than one room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.databases import TestDatabase
    from tests.postgres import Cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL server of this session."""
    from tests.postgres import Cluster, programs

    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.live)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database that is not made yet (SQLite), or empty (PostgreSQL)."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'proctor.db'}"
        return
    cluster: Cluster = request.getfixturevalue("postgres")
    url = cluster.new_database()
    yield url
    cluster.drop_database(url)


@pytest.fixture
def database(database_url: str, tmp_path: Path) -> TestDatabase:
    """A fresh database: `tests/databases.py` says how to use it."""
    from tests.databases import TestDatabase

    return TestDatabase(database_url, tmp_path)
