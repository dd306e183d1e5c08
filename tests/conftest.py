"""Fixtures of more than one room."""

from __future__ import annotations

import shutil
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


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with all tables and nothing in them: to copy it takes a tenth of the time that making one takes."""
    from tests.databases import make_tables

    path = tmp_path_factory.mktemp("template") / "proctor.db"
    make_tables(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres: Cluster) -> str:
    """The name of a PostgreSQL database with all tables and nothing in them."""
    from tests.databases import make_tables

    url = postgres.new_database()
    make_tables(url)
    return url.rpartition("/")[2]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.live)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database with all tables and nothing in them."""
    if request.param == "sqlite":
        path = tmp_path / "proctor.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        path.chmod(0o600)
        yield f"sqlite:///{path}"
        return
    cluster: Cluster = request.getfixturevalue("postgres")
    url = cluster.new_database(request.getfixturevalue("postgres_template"))
    yield url
    cluster.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.live)])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
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
