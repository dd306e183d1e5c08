"""Forms of visitors whom nobody knows (any more): anybody may send one, so a crowd of them costs little and denies nobody anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import StoreError
from proctor.pages.forms import FORM_KIND, LARGEST_FORM
from proctor.rest import security
from proctor.service.hub import Hub
from tests.rest.services import Service

BACK = "Your input"


class Visit:
    """One request of a visitor with a cookie that is no session, as the server hands it to the application."""

    def __init__(self, app: Any, address: str, body: bytes, *, sent: int | None = None, reads: bool = True, **more: str | None) -> None:
        self._app = app
        self._parts = [body if sent is None else body[:sent]]
        self._is_whole = sent is None
        self._reads = reads
        self.stands_still = False
        """Whether nothing more comes from the visitor, or nothing more is read."""
        self.status = 0
        self.text = ""
        path, method = more.pop("path", None) or "/ui/projects/new", more.pop("method", None) or "POST"
        headers = {"host": "127.0.0.1", "content-type": FORM_KIND, "content-length": str(len(body)), "cookie": "proctor_session=was-one"}
        given = headers | {name.replace("_", "-"): value for name, value in more.items()}
        self._scope = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
            "query_string": b"", "client": (address, 1), "server": ("127.0.0.1", 80),
            "headers": [(name.encode(), value.encode()) for name, value in given.items() if value is not None],
        }  # fmt: skip

    async def _receive(self) -> dict[str, Any]:
        if self._parts:
            return {"type": "http.request", "body": self._parts.pop(), "more_body": not self._is_whole}
        await self._stand_still()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"").decode()
        if not self._reads:
            await self._stand_still()

    async def _stand_still(self) -> None:
        self.stands_still = True
        await asyncio.Event().wait()

    async def make(self) -> Visit:
        """Make the request and wait for the answer."""
        await self._app(self._scope, self._receive, self._send)
        return self


@pytest.fixture
def closed(sqlite_template: Path, tmp_path: Path) -> Iterator[Service]:
    """A service that has keys."""
    database = tmp_path / "p.db"
    database.write_bytes(sqlite_template.read_bytes())
    with Service(f"sqlite:///{database}", tmp_path) as service:
        service.keys()
        yield service


async def stand_in_the_way(visits: list[Visit], use: Callable[[], Awaitable[None]]) -> None:
    """Do something while all of these visits stand still."""
    crowd = [asyncio.create_task(visit.make()) for visit in visits]
    try:
        async with asyncio.timeout(4):
            while not all(visit.stands_still for visit in visits):
                await asyncio.sleep(0.01)
        await use()
    finally:
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("own_address", [False, True], ids=["one address", "an address each"])
@pytest.mark.parametrize("reads", [True, False], ids=["half sent", "never read"])
def test_a_crowd_takes_the_form_of_nobody_else(closed: Service, own_address: bool, reads: bool) -> None:
    async def use(hub: Hub) -> None:
        address = "10.0.0.{}" if own_address else "10.0.0.1"
        body = b"proof=0&name=" + b"x" * 190_000
        sent = 150_000 if reads else None
        crowd = [Visit(closed.app, address.format(number), body, sent=sent, reads=reads) for number in range(40)]

        async def look() -> None:
            for size in (10, 100_000):
                found = await Visit(closed.app, "10.0.1.1", b"proof=0&name=mine&description=" + b"y" * size).make()
                assert found.status == 401 and BACK in found.text and "mine" in found.text
            health = Visit(closed.app, "10.0.1.1", b"", method="GET", path="/health", content_length=None)
            assert (await health.make()).status == 200

        await stand_in_the_way(crowd, look)
        # When they have gone, nothing of the room is taken.
        for _ in range(25):
            assert BACK in (await Visit(closed.app, "10.0.0.1", body).make()).text

    closed.run(use)


def test_what_finds_no_room_is_only_told(sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "LATE_FORM_BYTES", 1_000)
    (tmp_path / "p.db").write_bytes(sqlite_template.read_bytes())
    with Service(f"sqlite:///{tmp_path / 'p.db'}", tmp_path) as service:
        service.keys()

        async def use(hub: Hub) -> None:
            for _ in range(3):
                large = await Visit(service.app, "10.0.0.1", b"proof=0&name=" + b"x" * 2_000).make()
                assert large.status == 401 and BACK not in large.text
                small = await Visit(service.app, "10.0.0.1", b"proof=0&name=" + b"x" * 900).make()
                assert small.status == 401 and BACK in small.text

        service.run(use)


def test_a_form_that_does_not_come_in_time_is_only_told(closed: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "LATE_FORM_S", 0.05)

    async def use(hub: Hub) -> None:
        async with asyncio.timeout(3):
            found = await Visit(closed.app, "10.0.0.1", b"proof=0&name=mine&description=yours", sent=18).make()
        assert found.status == 401 and "mine" not in found.text

    closed.run(use)


@pytest.mark.parametrize(
    "more",
    [
        {"method": "PUT"},
        {"method": "DELETE"},
        {"path": "/ui/login", "content_length": "5000"},
        {"path": "/ui/logout"},
        {"content_length": str(LARGEST_FORM + 1)},
        {"content_length": "9" * 30},
        {"content_length": "\u00b2"},
        {"content_length": None, "transfer_encoding": "chunked"},
        {"content_encoding": "gzip"},
        {"content_type": "multipart/form-data; boundary=b"},
        {"content_type": None},
        {"cookie": None},
        {"cookie": "proctor_session="},
        {"cookie": "__Host-proctor_session=x"},
        {"cookie": "proctor_sessions=x; session"},
    ],
    ids=str,
)
def test_only_what_our_pages_send_from_a_session_is_received(
    closed: Service, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> bytes:
        raise AssertionError("it was received")

    monkeypatch.setattr(security, "_read_body", refuse)

    async def use(hub: Hub) -> None:
        found = await Visit(closed.app, "10.0.0.1", b"proof=0&name=mine", **more).make()
        assert found.status == 401 and "mine" not in found.text

    closed.run(use)


def test_a_body_that_is_larger_than_it_said_is_only_told(closed: Service) -> None:
    async def use(hub: Hub) -> None:
        found = await Visit(closed.app, "10.0.0.1", b"proof=0&name=mine&x=" + b"x" * LARGEST_FORM, content_length="18").make()
        assert found.status == 401 and "mine" not in found.text

    closed.run(use)


@pytest.mark.parametrize("away", [False, True], ids=["session over", "database away"])
def test_forms_are_given_back_so_often_and_others_are_not_concerned(closed: Service, away: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*_: object) -> None:
        raise StoreError("the database did not answer")

    monkeypatch.setattr(security, "_FORMS_PER_MINUTE", 3)
    if away:
        monkeypatch.setattr(security, "find_session_caller", gone)

    async def use(hub: Hub) -> None:
        found = [await Visit(closed.app, "10.0.0.1", b"proof=0&name=mine").make() for _ in range(5)]
        assert {one.status for one in found} == {503 if away else 401}
        assert [BACK in one.text for one in found] == [True] * 3 + [False] * 2
        assert BACK in (await Visit(closed.app, "10.0.0.2", b"proof=0&name=mine").make()).text

    closed.run(use)
