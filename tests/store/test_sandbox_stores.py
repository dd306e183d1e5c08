"""The contract of every store of sandboxes: in memory, and in either database."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from proctor.errors import StoreError
from proctor.model.evidence import StateRequest
from proctor.service.caches import SizedLruCache
from proctor.simulators.rows import Change, MemoryStore, Rows, SandboxFull, SandboxStore
from proctor.store.accounts.sandboxes import DatabaseStore, SandboxLimits
from proctor.store.sql.database import Database, open_database
from tests.conftest import DATABASES, make_database

T = TypeVar("T")
SEED: Rows = {"shop/orders": {"1": {"id": "1", "status": "open"}, "2": {"id": "2"}}, "shop/notes": {"a": {"id": "a"}}}
PAID = Change("shop/orders", "1", {"id": "1", "status": "paid"})


def event(path: str) -> StateRequest:
    return StateRequest(system="shop", method="PUT", path=path, status=200, body={"half": "\ud800"}, duration_ms=0.5)


def open_store(database: Database, *, organization: str = "org_1", rows: int = 1_000, most: int = 1_000_000) -> DatabaseStore:
    """A separate server as the database sees it: it shares no cache with another one."""
    return DatabaseStore(
        database,
        SizedLruCache(1_000),
        organization_id=organization,
        now=lambda: "2026-11-16T09:30:00.000Z",
        limits=SandboxLimits(rows=rows, bytes=most),
    )


class Place:
    """A store, and a way to do something with it."""

    def __init__(self, runner: asyncio.Runner, database: Database | None) -> None:
        self._runner = runner
        self._database = database
        self.store: SandboxStore = MemoryStore() if database is None else open_store(database)

    @property
    def database(self) -> Database:
        assert self._database is not None
        return self._database

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def load(self, sandbox: str = "s1") -> Rows:
        return self.run(self.store.load(sandbox)).rows

    def commit(self, *changes: Change, revision: int | None = None, sandbox: str = "s1", path: str = "/orders/1") -> bool:
        seen = self.run(self.store.load(sandbox)).revision if revision is None else revision
        return self.run(self.store.commit(sandbox, seen, changes, event(path)))

    def paths(self, sandbox: str = "s1") -> list[str]:
        return [one.path for one in self.run(self.store.list_events(sandbox))]


@pytest.fixture(params=["memory", *DATABASES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from make_place(request, tmp_path)


@pytest.fixture(params=DATABASES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The same, in a database."""
    yield from make_place(request, tmp_path)


def make_place(request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    with asyncio.Runner() as runner:
        for url in [None] if request.param == "memory" else make_database(request, folder):
            database = None if url is None else runner.run(open_database(url))
            made = Place(runner, database)
            made.run(made.store.create("s1", SEED))
            yield made
            if database is not None:
                runner.run(database.close())


def test_a_change_is_stored_with_its_event(place: Place) -> None:
    assert place.commit(PAID, Change("shop/orders", "2", None))
    assert place.load()["shop/orders"] == {"1": {"id": "1", "status": "paid"}}
    assert place.run(place.store.list_events("s1")) == (event("/orders/1"),)


def test_a_change_on_older_rows_keeps_neither_itself_nor_its_event(place: Place) -> None:
    assert place.commit(PAID, revision=0)
    assert not place.commit(Change("shop/orders", "1", {"id": "1", "status": "lost"}), revision=0, path="/late")
    assert place.load()["shop/orders"]["1"] == {"id": "1", "status": "paid"}
    assert place.paths() == ["/orders/1"]


def test_an_event_without_changes_is_stored_on_any_rows(place: Place) -> None:
    assert place.commit(Change("shop/orders", "1", None), revision=0)
    assert place.commit(revision=0, path="/read")
    assert place.paths() == ["/orders/1", "/read"]


def test_rows_keep_their_order(place: Place) -> None:
    """A replaced row stays in its place; one that is removed and added again moves to the end."""
    place.commit(Change("shop/orders", "3", {"id": "3"}))
    place.commit(PAID)
    assert list(place.load()["shop/orders"]) == ["1", "2", "3"]
    place.commit(Change("shop/orders", "1", None))
    place.commit(Change("shop/orders", "1", {"id": "1"}))
    assert list(place.load()["shop/orders"]) == ["2", "3", "1"]


def test_a_reset_brings_back_the_rows_and_leaves_the_events(place: Place) -> None:
    place.commit(Change("shop/orders", "1", None), Change("shop/more", "x", {"id": "x"}))
    place.run(place.store.reset("s1"))
    assert {name: dict(rows) for name, rows in place.load().items() if rows} == SEED
    assert len(place.paths()) == 1
    assert not place.commit(Change("shop/orders", "2", None), revision=1), "what was seen before the reset is older rows"


def test_automatic_changes_are_part_of_the_baseline_and_no_request(place: Place) -> None:
    place.commit(PAID)
    note = {"step": "order_arrives"}
    assert place.run(place.store.advance("s1", 1, (Change("shop/orders", "9", {"id": "9"}),), note))
    assert not place.run(place.store.advance("s1", 1, (Change("shop/orders", "8", {"id": "8"}),), note)), "on older rows"
    assert list(place.load()["shop/orders"]) == ["1", "2", "9"] and place.load()["shop/orders"]["1"]["status"] == "paid"
    baseline = place.run(place.store.load_baseline("s1"))
    assert list(baseline["shop/orders"]) == ["1", "2", "9"] and baseline["shop/orders"]["1"]["status"] == "open"
    place.run(place.store.reset("s1"))
    assert place.load() == baseline
    assert place.paths() == ["/orders/1"]


def test_sandboxes_of_one_dataset_do_not_see_each_other(place: Place) -> None:
    place.run(place.store.create("s2", SEED))
    place.commit(Change("shop/orders", "1", None))
    assert "1" in place.load("s2")["shop/orders"]
    assert place.paths("s2") == []
    assert SEED["shop/orders"]["1"] == {"id": "1", "status": "open"}
    assert dict(place.run(place.store.load_baseline("s1"))) == SEED


def test_a_name_is_taken_once_and_forgotten_when_it_is_removed(place: Place) -> None:
    store = place.store
    with pytest.raises(StoreError, match="already"):
        place.run(store.create("s1", SEED))
    place.run(store.remove("s1"))
    for work in (store.load, store.load_baseline, store.reset, store.list_events, store.remove):
        with pytest.raises(StoreError, match="no sandbox"):
            place.run(work("s1"))  # type: ignore[arg-type]  # each is a coroutine of its own type
    with pytest.raises(StoreError, match="no sandbox"):
        place.commit(revision=0)
    place.run(store.create("s1", SEED))


def test_two_servers_serve_one_sandbox(stored: Place) -> None:
    other = open_store(stored.database)
    assert stored.run(other.load("s1")).rows == SEED
    assert stored.commit(PAID)
    assert not stored.run(other.commit("s1", 0, (Change("shop/orders", "1", None),), event("/late")))
    seen = stored.run(other.load("s1"))
    assert (seen.revision, seen.rows) == (1, stored.load())
    assert stored.run(other.commit("s1", 1, (Change("shop/orders", "3", {"id": "3"}),), event("/other")))
    assert list(stored.load()["shop/orders"]) == ["1", "2", "3"]
    stored.run(other.reset("s1"))
    stored.run(other.commit("s1", 3, (Change("shop/orders", "4", {"id": "4"}),), event("/after")))
    assert list(stored.load()["shop/orders"]) == ["1", "2", "4"]
    assert stored.run(open_store(stored.database).load("s1")).rows == stored.load(), "one that has read nothing before"


def test_a_sandbox_of_another_organization_is_none(stored: Place) -> None:
    foreign = open_store(stored.database, organization="org_2")
    for work in (foreign.load("s1"), foreign.reset("s1"), foreign.list_events("s1"), foreign.commit("s1", 0, (PAID,), event("/x"))):
        with pytest.raises(StoreError, match="no sandbox"):
            stored.run(work)
    assert stored.paths() == []


def test_a_write_that_fails_after_its_event_was_counted_leaves_nothing(stored: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The revision is counted up before the log is written: whatever ends the process in between ends the transaction."""
    from proctor.store.accounts import sandboxes

    def break_off(*_: object) -> None:
        raise RuntimeError

    seen = stored.run(stored.store.load("s1"))
    with monkeypatch.context() as patch:
        patch.setattr(sandboxes.sandbox_events, "insert", break_off)
        with pytest.raises(RuntimeError):
            stored.run(stored.store.commit("s1", seen.revision, (PAID,), event("/x")))
    assert stored.run(open_store(stored.database).load("s1")) == seen
    assert stored.paths() == []


def test_a_full_sandbox_takes_nothing_more_and_keeps_what_it_has(stored: Place) -> None:
    more = Change("shop/orders", "3", {"id": "3"})
    narrow = open_store(stored.database, rows=3)
    stored.run(narrow.load("s1"))
    with pytest.raises(SandboxFull, match="3 rows"):
        stored.run(narrow.commit("s1", 0, (more,), event("/x")))
    small = open_store(stored.database, most=250)
    with pytest.raises(SandboxFull, match="250 bytes"):
        stored.run(small.commit("s1", 0, (Change("shop/orders", "3", {"id": "3", "text": "".join(map(chr, range(1000)))}),), event("/x")))
    with pytest.raises(SandboxFull):
        stored.run(narrow.create("s9", {"shop/orders": {str(number): {} for number in range(4)}}))
    assert stored.load() == SEED and stored.paths() == []
