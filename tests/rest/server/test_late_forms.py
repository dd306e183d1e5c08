"""Forms without a valid session: anyone may send one, so many of them cost little and block no one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
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
        self.stalled = False
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
        self.stalled = True
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


@pytest.mark.parametrize("away", [False, True], ids=["session over", "database away"])
def test_a_form_is_returned_up_to_the_limit(closed: Service, away: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*_: object) -> None:
        raise StoreError("the database did not answer")

    if away:
        monkeypatch.setattr(security, "find_session_caller", gone)

    async def use(hub: Hub) -> None:
        for limit in (1, 0, 1):
            monkeypatch.setattr(security, "LATE_FORMS", limit)
            found = await Visit(closed.app, "10.0.0.1", b"proof=0&name=mine").make()
            assert found.status == (503 if away else 401) and (BACK in found.text) is bool(limit)

    closed.run(use)


def test_a_form_that_arrives_too_slowly_gets_the_status_only(closed: Service, monkeypatch: pytest.MonkeyPatch) -> None:
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

    monkeypatch.setattr(security, "_read_form", refuse)

    async def use(hub: Hub) -> None:
        found = await Visit(closed.app, "10.0.0.1", b"proof=0&name=mine", **more).make()
        assert found.status == 401 and "mine" not in found.text

    closed.run(use)


def test_a_body_larger_than_declared_gets_the_status_only(closed: Service) -> None:
    async def use(hub: Hub) -> None:
        found = await Visit(closed.app, "10.0.0.1", b"proof=0&name=mine&x=" + b"x" * LARGEST_FORM, content_length="18").make()
        assert found.status == 401 and "mine" not in found.text

    closed.run(use)
