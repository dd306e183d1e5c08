"""What every store of sandboxes keeps to; a new one joins `STORES`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proctor.errors import StoreError
from proctor.model.evidence import StateRequest
from proctor.simulators.rows import Change, Rows
from proctor.simulators.store import MemoryStore, SandboxStore

STORES: list[Callable[[], SandboxStore]] = [MemoryStore]
SEED: Rows = {"shop/orders": {"1": {"id": "1", "status": "open"}, "2": {"id": "2"}}, "shop/notes": {"a": {"id": "a"}}}


def event(path: str) -> StateRequest:
    return StateRequest(system="shop", method="PUT", path=path, status=200)


@pytest.fixture(params=STORES, ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest) -> SandboxStore:
    made: SandboxStore = request.param()
    asyncio.run(made.create("s1", SEED))
    return made


def load(store: SandboxStore, sandbox: str = "s1") -> Rows:
    return asyncio.run(store.load(sandbox)).rows


def commit(store: SandboxStore, *changes: Change, revision: int | None = None, sandbox: str = "s1", path: str = "/orders/1") -> bool:
    seen = asyncio.run(store.load(sandbox)).revision if revision is None else revision
    return asyncio.run(store.commit(sandbox, seen, changes, event(path)))


def test_a_change_is_kept_with_its_event(store: SandboxStore) -> None:
    assert commit(store, Change("shop/orders", "1", {"id": "1", "status": "paid"}), Change("shop/orders", "2", None))
    assert load(store)["shop/orders"] == {"1": {"id": "1", "status": "paid"}}
    assert asyncio.run(store.list_events("s1")) == (event("/orders/1"),)


def test_a_change_on_older_rows_keeps_neither_itself_nor_its_event(store: SandboxStore) -> None:
    assert commit(store, Change("shop/orders", "1", {"id": "1", "status": "paid"}), revision=0)
    assert not commit(store, Change("shop/orders", "1", {"id": "1", "status": "lost"}), revision=0, path="/late")
    assert load(store)["shop/orders"]["1"] == {"id": "1", "status": "paid"}
    assert [one.path for one in asyncio.run(store.list_events("s1"))] == ["/orders/1"]


def test_an_event_without_changes_is_kept_on_any_rows(store: SandboxStore) -> None:
    assert commit(store, Change("shop/orders", "1", None), revision=0)
    assert commit(store, revision=0, path="/read")
    assert [one.path for one in asyncio.run(store.list_events("s1"))] == ["/orders/1", "/read"]


def test_rows_keep_their_order(store: SandboxStore) -> None:
    """A row that is replaced stays in its place; one that is removed and added again goes to the end."""
    commit(store, Change("shop/orders", "3", {"id": "3"}))
    commit(store, Change("shop/orders", "1", {"id": "1", "status": "paid"}))
    assert list(load(store)["shop/orders"]) == ["1", "2", "3"]
    commit(store, Change("shop/orders", "1", None))
    commit(store, Change("shop/orders", "1", {"id": "1"}))
    assert list(load(store)["shop/orders"]) == ["2", "3", "1"]


def test_a_reset_brings_back_the_rows_and_leaves_the_events(store: SandboxStore) -> None:
    commit(store, Change("shop/orders", "1", None), Change("shop/more", "x", {"id": "x"}))
    asyncio.run(store.reset("s1"))
    assert {name: dict(rows) for name, rows in load(store).items() if rows} == SEED
    assert len(asyncio.run(store.list_events("s1"))) == 1
    assert not commit(store, Change("shop/orders", "2", None), revision=1), "what was seen before the reset is older rows"


def test_sandboxes_of_one_dataset_do_not_see_each_other(store: SandboxStore) -> None:
    asyncio.run(store.create("s2", SEED))
    commit(store, Change("shop/orders", "1", None))
    assert "1" in load(store, "s2")["shop/orders"]
    assert asyncio.run(store.list_events("s2")) == ()
    assert SEED["shop/orders"]["1"] == {"id": "1", "status": "open"}
    assert dict(asyncio.run(store.load_baseline("s1"))) == SEED


def test_a_name_is_taken_once_and_forgotten_when_it_is_removed(store: SandboxStore) -> None:
    with pytest.raises(StoreError, match="already"):
        asyncio.run(store.create("s1", SEED))
    asyncio.run(store.remove("s1"))
    for work in (store.load, store.load_baseline, store.reset, store.list_events, store.remove):
        with pytest.raises(StoreError, match="no sandbox"):
            asyncio.run(work("s1"))  # type: ignore[arg-type]  # each is a coroutine of its own type
    asyncio.run(store.create("s1", SEED))
