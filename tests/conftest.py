"""Fixtures of more than one room."""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from proctor.service.hub import Hub
    from proctor.store.database import Database
    from tests.databases import TestDatabase
    from tests.postgres import Cluster

HERE = Path(__file__).parent
LIVE_ROOMS = {"batches", "live", "integration", "mcp_server", "rest", "service", "store", "targets"}
"""Where there are live tests. Who wants only those need not read the others, which takes every worker half a minute."""


def pytest_configure(config: pytest.Config) -> None:
    # How fast examples are made says how busy the machine is, not whether the test is right.
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")
    config.addinivalue_line("markers", "quiet: live, and held to milliseconds; `make test-live` runs it before the others and by itself")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    only_live = config.getoption("markexpr").split()[:1] == ["live"]
    return True if only_live and collection_path.parent == HERE and collection_path.name not in LIVE_ROOMS else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from looking through all tests and modules again and again, which was a tenth of all work."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.set_threshold(10_000, 20, 10)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests on real servers and of properties a minute, where they do not say themselves what they take; the longest begin first."""
    live = [item for item in items if item.get_closest_marker("live")]
    for item in live:
        if item.path.relative_to(HERE).parts[0] not in LIVE_ROOMS:
            raise pytest.UsageError(f"{item.nodeid} is live: name its room among LIVE_ROOMS in tests/conftest.py")
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(60))
    for item in items:
        # It tries hundreds of examples, and how long each takes is up to chance.
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(60))
    live.sort(key=_longest_first)
    items[:] = [*live, *(item for item in items if not item.get_closest_marker("live"))]


def _longest_first(item: pytest.Item) -> tuple[float, str]:
    mark = item.get_closest_marker("timeout")
    assert mark is not None
    return -mark.args[0], str(item.path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Hand out live tests as `tests/schedule.py` says."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.schedule import Schedule

    return Schedule(config, log)


_CHECKOUT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def forget_modules_of_the_test() -> Iterator[None]:
    """Forget what a test imported from a folder of its own: the `agent.py` of the next test is another one."""
    path, known = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    # Also where the path is as it was: a folder may have been taken away again, and what was imported from it is still here.
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        # The checkout may itself lie in the folder for temporary files.
        if file is not None and file.startswith(tempfile.gettempdir()) and not file.startswith(str(_CHECKOUT)):
            del sys.modules[name]


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


DATABASES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.live))


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database with all tables and nothing in them."""
    yield from _make_database(request, tmp_path)


@pytest.fixture(scope="module", params=DATABASES)
def shared_database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same, one for all tests of a file that change nothing in it."""
    yield from _make_database(request, tmp_path_factory.mktemp("shared"))


def _make_database(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "sqlite":
        path = folder / "proctor.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        path.chmod(0o600)
        yield f"sqlite:///{path}"
        return
    cluster: Cluster = request.getfixturevalue("postgres")
    url = cluster.new_database(request.getfixturevalue("postgres_template"))
    yield url
    cluster.drop_database(url)


@pytest.fixture(params=DATABASES)
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


@pytest.fixture
def anyio_backend() -> str:
    """Tests that are `async` run on the event loop of the standard library, which is the one that proctor runs on."""
    return "asyncio"


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[Database]:
    """A fresh database, open in the event loop of an `async` test."""
    from proctor.store.database import open_database

    database = await open_database(database_url)
    yield database
    await database.close()


@pytest.fixture
async def hub(opened: Database, tmp_path: Path) -> AsyncIterator[Hub]:
    """The service over a fresh database, without its doors and workers, in the event loop of an `async` test."""
    from proctor.service.hub import Hub
    from proctor.service.settings import ServiceSettings

    yield Hub(database=opened, settings=ServiceSettings(home=tmp_path))
