"""Sandboxes for tests: a fixed clock, counting ids, and requests in one line."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
from collections.abc import Iterable
from typing import Any

import msgspec

from proctor.codecs.http import decode_query
from proctor.model.case import Step, System
from proctor.model.evidence import State
from proctor.simulators.exchange import Request, Response
from proctor.simulators.ports import Surroundings, list_kinds
from proctor.simulators.rows import MemoryStore, SandboxStore
from proctor.simulators.sandbox import Sandbox, provision_rows

NOW = "2026-11-16T09:30:00.000Z"
BASE = "http://sandbox.test/clinic"


def make_surroundings() -> Surroundings:
    ids = itertools.count(1)
    return Surroundings(now=lambda: NOW, new_id=lambda: f"new-{next(ids)}", seconds=lambda: 0.0)


class Workplace:
    """One sandbox with one system, called without a wire."""

    def __init__(self, kind: str, seed: Any = None, *, scenario: tuple[Step, ...] = (), store: SandboxStore | None = None) -> None:
        self.systems = (System(name=kind, kind=kind, seed=seed, scenario=scenario),)
        self.kind = kind
        around = make_surroundings()
        self.sandbox = Sandbox("s1", self.systems, store or MemoryStore(), around)
        asyncio.run(self.sandbox.provision(provision_rows(self.systems, around)))

    def ask(self, method: str, target: str, body: Any = None, **headers: str) -> Response:
        """Ask `GET /path?query`; a body that is not bytes is sent as JSON."""
        path, _, query = target.partition("?")
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request(method=method, path=path, query=decode_query(query), headers=named, body=data, base=BASE)
        return asyncio.run(self.sandbox.handle(self.kind, request))

    def get(self, target: str) -> Any:
        """Return the JSON that a GET answers."""
        return read(self.ask("GET", target))

    def state(self) -> State:
        return asyncio.run(self.sandbox.read_state())


def read(response: Response) -> Any:
    return msgspec.json.decode(response.body)


def refusal(response: Response) -> tuple[int, str]:
    """Status and code of a refusal."""
    return response.status, read(response)["error"]["code"]


def find_own_tests(known: Iterable[str]) -> dict[str, Any]:
    """Return the test files `test_KIND.py` of third-party kinds, by kind: they have what the tests of all kinds need."""
    names = {kind: f"tests.simulators.test_{kind}" for kind in list_kinds() if kind not in known}
    return {kind: importlib.import_module(name) for kind, name in names.items() if importlib.util.find_spec(name) is not None}
