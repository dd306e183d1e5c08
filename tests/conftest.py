"""Fixtures that several folders of tests use."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from proctor.service.hub import Hub
    from proctor.store.sql.database import Database
    from tests.databases import TestDatabase
    from tests.postgres import Cluster
    from tests.postgres_pool import DatabasePool

HERE = Path(__file__).parent
LIVE_PLACES = {
    "live",
    "rest",
    "service",
    "store",
    "batches/test_kills.py",
    "batches/test_s3.py",
    "batches/cluster/test_dask_deaths.py",
    "integration/test_ci_templates.py",
    "mcp_server/test_criteria.py",
    "targets/mcp_agent/test_results.py",
}
"""Folders and files with live tests. A run of live tests collects only these: collecting all takes every worker half a minute."""
ON_BOTH_DATABASES = {
    f"rest/{name}.py"
    for name in (
        "server/test_keys",
        "test_labels",
        "test_projects",
        "test_runs",
        "traces/test_public_traces",
        "verification/test_verification_runs",
    )
}
"""Files of `tests/rest` that use both databases; the others are about what happens above them, and use both in `make torture`."""
ON_REQUEST = os.environ.get("PROCTOR_ON_REQUEST") == "1"
COVERED_BY_REST = {
    f"service/{name}.py"
    for name in (
        "access/test_keys",
        "traces/test_intake",
        "traces/test_no_run",
        "traces/test_routing",
        "traces/test_unknown_agents",
        "verification/test_verifying",
    )
}
"""Files of `tests/service` whose statements `ON_BOTH_DATABASES` sends to PostgreSQL, too; they use both in `make torture`."""
KILLED_ON_POSTGRESQL = {
    f"live/{name}.py"
    for name in (
        "browser/test_pages_browser",
        "browser/test_settings_browser",
        "clients/test_mcplab_service",
        "crashes/test_run_restart",
        "crashes/test_schedule_kill",
    )
}
"""Files of `tests/live` that use both databases in `make torture` only."""
EVERY_DATABASE = os.environ.get("PROCTOR_EVERY_DATABASE") == "1"
SHARE = float(os.environ.get("PROCTOR_EXAMPLES", "0.2"))
"""The share of its examples that a property test tries, different ones in each run; `make torture` tries ten times as many."""
FEWEST = 15
ROWS = int(os.environ.get("PROCTOR_ROWS", "1"))
"""One in so many of the tests marked `in_turn` is tried, others after each commit. `.ci/run` sets it; otherwise all are tried."""
PATIENCE = 5
"""Time limits only catch tests that hang: a busy machine takes several times as long as a quiet one."""
HEAD_START_S = 8.0
"""Seconds that the first worker starts before the others if nothing is compiled yet."""


def pytest_configure(config: pytest.Config) -> None:
    # Tests must neither read nor write the suite cache of this user.
    os.environ["PROCTOR_SUITE_CACHE"] = "0"
    # The speed of generating examples depends on the load of the machine, not on the test.
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")
    # A shell without job control gives background jobs a Ctrl-C that is ignored, and `nohup` a hang-up: every command that a test starts
    # would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.addinivalue_line(
        "markers", "in_turn: a long test or a row of a long table; `.ci/run` tries a part of them, another one after each commit"
    )
    config.addinivalue_line("markers", "on_request: takes a minute or more; `make torture` runs it")
    config.addinivalue_line("markers", "quiet: live, and held to milliseconds; `make test-live` runs it before the others and by itself")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = config.getoption("markexpr").split()
    if wanted == ["not", "live"]:
        # If it is named on the command line, it is reported as deselected.
        return True if collection_path == HERE / "live" and not any("live" in word for word in config.args) else None
    is_place = collection_path.is_dir() or collection_path.name.startswith("test_")
    return True if wanted[:1] == ["live"] and is_place and HERE in collection_path.parents and not _may_be_live(collection_path) else None


@functools.cache
def _may_be_live(path: Path) -> bool:
    """Return whether there are live tests in a file, or below a folder."""
    named = path.relative_to(HERE).as_posix()
    return any(f"{place}/".startswith(f"{named}/") or named.startswith(f"{place}/") for place in LIVE_PLACES)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep the garbage collector from looking through all tests and modules again and again, which was a tenth of all work."""
    # In a new checkout the first worker compiles all tests and their imports; the others start later and reuse the result.
    if getattr(session.config, "workerinput", {"workerid": "gw0"})["workerid"] != "gw0" and _is_new(session.config):
        time.sleep(HEAD_START_S)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.set_threshold(10_000, 20, 10)


def _is_new(config: pytest.Config) -> bool:
    """Return whether many of the tests were never read here."""
    files = (file for file in HERE.rglob("test_*.py") if not pytest_ignore_collect(file, config))
    compiled = {file.name.partition(".")[0] for file in HERE.rglob("__pycache__/test_*.pyc")}
    return sum(file.stem not in compiled for file in files) > 50


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set time limits: those of the markers, a minute for live and property tests, else the default; times `PATIENCE`. Longest first."""
    left_out = [
        item
        for item in items
        if (not EVERY_DATABASE and _is_second_database(item))
        or (not ON_REQUEST and item.get_closest_marker("on_request"))
        or (ROWS > 1 and item.get_closest_marker("in_turn") and not _is_its_turn(item))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in gone]
    live = [item for item in items if item.get_closest_marker("live")]
    for item in live:
        if not _may_be_live(item.path):
            raise pytest.UsageError(f"{item.nodeid} is live: add its folder to LIVE_PLACES in tests/conftest.py")
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(60))
    for item in items:
        if _name_place(item.path).startswith("live/") and not item.get_closest_marker("live"):
            raise pytest.UsageError(f"{item.nodeid} is in tests/live/ and not marked live: nothing would run it")
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            _take_share(item)
    live.sort(key=_longest_first)
    for item in items:
        if mark := item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PATIENCE * mark.args[0]), append=False)
    begin_first = set(map(id, live))
    items[:] = [*live, *(item for item in items if id(item) not in begin_first)]


@functools.cache
def _name_place(path: Path) -> str:
    return path.relative_to(HERE).as_posix()


def _is_second_database(item: pytest.Item) -> bool:
    """Return whether a test uses a database that others of its kind try: PostgreSQL above it, and SQLite where a server is killed."""
    values, place = getattr(getattr(item, "callspec", None), "params", {}).values(), _name_place(item.path)
    if place in KILLED_ON_POSTGRESQL:
        return "sqlite" in values
    if "postgresql" not in values:
        return False
    is_covered = place in COVERED_BY_REST or (place.startswith("rest/") and place not in ON_BOTH_DATABASES)
    # Many tests of the service send the same statements: half of them, chosen by name, try PostgreSQL, too.
    return is_covered or (place.startswith("service/") and zlib.crc32(item.originalname.encode()) % 2 == 0)


def _is_its_turn(item: pytest.Item) -> bool:
    """Return whether a long test or a row of a long table is tried after this commit."""
    return zlib.crc32(f"{_find_commit()} {item.nodeid}".encode()) % ROWS == 0


@functools.cache
def _find_commit() -> str:
    """Return the id of the commit, the same in all workers; empty without git."""
    command = ["git", "-C", str(HERE), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _take_share(item: pytest.Item) -> None:
    test: Any = getattr(item.obj, "__func__", item.obj)  # type: ignore[attr-defined]  # a function of the test
    if not hasattr(test, "declared_examples"):  # one function may be several tests
        # As Hypothesis' own plugin changes the settings of a test.
        declared = test._hypothesis_internal_use_settings
        test.declared_examples = declared.max_examples
        test._hypothesis_internal_use_settings = settings(declared, max_examples=max(FEWEST, round(declared.max_examples * SHARE)))
    if SHARE > 1 or not item.get_closest_marker("timeout"):
        # How long each example takes is up to chance.
        item.add_marker(pytest.mark.timeout(60 * max(1, SHARE)), append=False)


def _longest_first(item: pytest.Item) -> tuple[float, str]:
    mark = item.get_closest_marker("timeout")
    assert mark is not None
    return -mark.args[0], str(item.path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report each test once per worker: its setup and teardown are reported only if they failed or durations were requested.

    Every report is written, sent and read by Python code, which takes as long as many a test.
    """
    if not hasattr(item.config, "workerinput") or item.config.getoption("durations"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Distribute live tests as in `tests/schedule.py`."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.schedule import Schedule

    return Schedule(config, log)


_CHECKOUT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def forget_modules_of_the_test() -> Iterator[None]:
    """Unload modules imported from a test's own folder: the next test has another `agent.py`."""
    path, known = list(sys.path), sys.modules.copy()
    yield
    sys.path[:] = path
    # Most tests import nothing new. Comparing thousands of names would take longer than many tests, and new modules come last.
    if len(sys.modules) == len(known) and next(reversed(sys.modules)) == next(reversed(known)):
        return
    # Even if the path is unchanged: a folder may have been removed from it while its modules are still loaded.
    for name in sys.modules.keys() - known.keys():
        file = getattr(sys.modules[name], "__file__", None)
        # The checkout and the environment may themselves lie in the folder for temporary files.
        if file is not None and file.startswith(tempfile.gettempdir()) and not file.startswith((str(_CHECKOUT), sys.prefix)):
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


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """The address of a copy of it, for tests to which it does not matter which database they use."""
    return _copy_sqlite(sqlite_template, tmp_path)


@pytest.fixture(scope="session")
def postgres_template(postgres: Cluster) -> str:
    """The name of a PostgreSQL database with all tables and nothing in them."""
    from tests.databases import make_tables

    url = postgres.new_database()
    make_tables(url)
    return url.rpartition("/")[2]


@pytest.fixture(scope="session")
def postgres_databases(postgres: Cluster, postgres_template: str) -> DatabasePool:
    """PostgreSQL databases with all tables and nothing in them, one test after the other."""
    from tests.postgres_pool import DatabasePool

    return DatabasePool(postgres, postgres_template)


DATABASES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.live))


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database with all tables and nothing in them."""
    yield from make_database(request, tmp_path)


@pytest.fixture(scope="module", params=DATABASES)
def shared_database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same, one for all tests of a file that change nothing in it."""
    yield from make_database(request, tmp_path_factory.mktemp("shared"))


def _copy_sqlite(template: Path, folder: Path) -> str:
    path = folder / "proctor.db"
    shutil.copyfile(template, path)
    path.chmod(0o600)
    return f"sqlite:///{path}"


def make_database(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """Make a database with all tables: of the kind that the parameter of a fixture names."""
    if request.param == "sqlite":
        yield _copy_sqlite(request.getfixturevalue("sqlite_template"), folder)
        return
    databases: DatabasePool = request.getfixturevalue("postgres_databases")
    url = databases.take()
    yield url
    databases.give_back(url)


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
    """A fresh database; see `tests/databases.py`."""
    from tests.databases import TestDatabase

    return TestDatabase(database_url, tmp_path)


@pytest.fixture
def anyio_backend() -> str:
    """Tests that are `async` run on the event loop of the standard library, which is the one that proctor runs on."""
    return "asyncio"


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[Database]:
    """A fresh database, open in the event loop of an `async` test."""
    from proctor.store.sql.database import open_database

    database = await open_database(database_url)
    yield database
    await database.close()


@pytest.fixture
async def hub(opened: Database, tmp_path: Path) -> AsyncIterator[Hub]:
    """The service over a fresh database, without its entry points and workers, in the event loop of an `async` test."""
    from proctor.service.hub import Hub
    from proctor.service.settings import ServiceSettings

    yield Hub(database=opened, settings=ServiceSettings(home=tmp_path))
