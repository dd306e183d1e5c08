"""One sandbox sends small requests that take long to answer: `/health` and another tenant hardly notice, and the service can be stopped.

`PROCTOR_FLOOD_ROUNDS` is the number of rounds; `make torture` has thirty, as in `test_tenant_floods.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.live.floods.floods import Watch
from tests.live.floods.test_slow_client_flood import p99
from tests.live.floods.test_tenant_floods import LEAST_S, ROUNDS, family_memory, make_key, settled_memory
from tests.live.serving import Serving, serving
from tests.simulators.heavy_requests import HEAVY, SEEDS, Heavy

TYPES = {"messages": "Message"}
EACH = 1 if ROUNDS == 1 else 3
"""How often each kind is sent."""
KINDS = dict(list(HEAVY.items())[:: 3 if ROUNDS == 1 else 1])
"""Every third kind where there is little time: `test_heavy_requests.py` answers each of them alone."""
pytestmark = [pytest.mark.live, pytest.mark.timeout(900 + 60 * ROUNDS)]
Headers = dict[str, str]


def open_sandbox(server: Serving, headers: Headers, kind: str, seed: Any) -> str:
    """Make a sandbox with a system of a kind; its address."""

    def post(path: str, body: Any = None) -> str:
        status, made = server.ask("POST", path, body, headers)
        assert status == 201, made
        return made["id"]

    named = {"name": kind, "type": TYPES.get(kind, kind)}
    sandbox = post("/sandboxes", {"simulator_id": post("/simulators", named)})
    post(f"/sandboxes/{sandbox}/datasets/{post('/datasets', {**named, 'data': seed})}")
    return f"/sandboxes/{sandbox}/{kind}"


def send(server: Serving, headers: Headers, root: str, heavy: Heavy) -> int:
    target = quote(heavy.target, safe="/?&=%:.,+_-")
    more = {**headers, "content-type": heavy.content_type}
    return server.ask(heavy.method, root + target, heavy.body or None, more)[0]


def work(server: Serving, headers: Headers, root: str) -> float:
    """Send a request of the quiet tenant; return its duration."""
    began = time.monotonic()
    status, answer = server.ask("GET", f"{root}/orders?_limit=5", headers=headers)
    assert status == 200 and len(answer["rows"]) == 5
    return time.monotonic() - began


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Serving, Headers, Headers]]:
    quiet, hostile = make_key(tmp_path, "quiet"), make_key(tmp_path, "flood")
    with serving(tmp_path) as server:
        yield server, {"authorization": quiet["authorization"]}, {"authorization": hostile["authorization"]}


@pytest.mark.on_request
def test_heavy_requests_of_one_sandbox_slow_no_one_else_down_by_more_than_three(service: tuple[Serving, Headers, Headers]) -> None:
    server, quiet_tenant, hostile = service
    own = open_sandbox(server, quiet_tenant, "records", {"orders": [{"id": number} for number in range(20)]})
    roots = {kind: open_sandbox(server, hostile, kind, SEEDS[kind]) for kind in SEEDS}
    with Watch(server.url) as calm:
        quiet = [work(server, quiet_tenant, own) for _ in range(150)]
    for heavy in KINDS.values():
        # A sandbox in use is in memory, so all of it is loaded before.
        send(server, hostile, roots[heavy.kind], heavy)
    before, peak = family_memory(server), 0
    slowest: dict[str, tuple[float, float]] = {}
    found: list[float] = []
    health: list[float] = []
    for name, heavy in [*KINDS.items()] * EACH:
        with ThreadPoolExecutor(1) as pool, Watch(server.url) as watch:
            sent = pool.submit(send, server, hostile, roots[heavy.kind], heavy)
            took = [work(server, quiet_tenant, own)]
            while not sent.done():
                took.append(work(server, quiet_tenant, own))
                peak = max(peak, family_memory(server))
            assert sent.result() in {200, 201, 400, 413, 422}, (name, sent.result())
        slowest[name] = (max(took), watch.slowest)
        found += took
        health += watch.took
    after = settled_memory(server, 1.3 * before)
    for name, (work_s, health_s) in sorted(slowest.items(), key=lambda item: -max(item[1]))[:8]:
        print(f"{name}: {work_s * 1000:.0f} ms another tenant, {health_s * 1000:.0f} ms health")
    print(f"another tenant: p99 {p99(quiet) * 1000:.0f} ms quiet, {p99(found) * 1000:.0f} ms flooded ({len(found)} requests)")
    print(f"health: p99 {p99(calm.took) * 1000:.0f} ms quiet, {p99(health) * 1000:.0f} ms flooded ({len(health)} requests)")
    print(f"memory: {before >> 20} MB before, {peak >> 20} at most, {after >> 20} after")
    assert p99(found) <= 3 * max(p99(quiet), LEAST_S)
    assert p99(health) <= 3 * max(p99(calm.took), LEAST_S)
    assert after <= 1.3 * before


@pytest.mark.in_turn
@pytest.mark.parametrize("name", ["pdf with many operators", pytest.param("transaction with conditions", marks=pytest.mark.on_request)])
def test_the_service_stops_while_a_heavy_request_is_answered(name: str, service: tuple[Serving, Headers, Headers]) -> None:
    server, _, hostile = service
    heavy = HEAVY[name]
    root = open_sandbox(server, hostile, heavy.kind, SEEDS[heavy.kind])
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send, server, hostile, root, heavy)
        time.sleep(0.5)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 20
        sent.exception()
