"""A real browser signs in to the payer portal on a service: below a sandbox and below a run, with and without keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.browser.chromium import CHROMIUM, launch_chromium
from tests.live.floods.test_tenant_floods import make_key
from tests.live.serving import Serving, serving
from tests.simulators import test_portal

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
CASE = {
    "assert": "portal-state-match",
    "correlate_by": {"resource": "prior_auth_requests", "key": "request_id"},
    "assertions": [{"path": "status", "expected": "approved"}],
}


def post(server: Serving, headers: dict[str, str], path: str, body: Any = None) -> Any:
    status, made = server.ask("POST", path, body, headers)
    assert status in (200, 201), made
    return made


def open_sandbox(server: Serving, headers: dict[str, str]) -> tuple[str, str]:
    """Make a sandbox with a portal; where it is, and the password."""
    seed = {**test_portal.SEED, "password": ""}
    simulator = post(server, headers, "/simulators", {"name": "payer", "type": "Payer", "config": {"seed": seed}})
    made = post(server, headers, "/sandboxes", {"simulator_id": simulator["id"]})
    return made["credentials"]["portal_url"].rstrip("/"), made["credentials"]["token"]


def start_run(server: Serving, headers: dict[str, str]) -> tuple[str, str]:
    """Start the task of a run that has a portal; where it is, and the password."""
    seed = {**test_portal.SEED, "password": ""}
    simulator = post(server, headers, "/simulators", {"name": "payer", "type": "Payer", "config": {"seed": seed}})
    environment = post(server, headers, "/environments", {"name": "clinic"})["id"]
    post(server, headers, f"/environments/{environment}/simulators/{simulator['id']}")
    benchmark = post(server, headers, "/benchmarks", {"name": "Prior auth", "environment_id": environment})["id"]
    task = post(server, headers, "/tasks", {"benchmark_id": benchmark, "name": "Ask", "task_item": {"instruction": "Ask."}})["id"]
    post(server, headers, "/criteria", {"task_id": task, "label": "Asked", "assertion": CASE})
    reference = post(server, headers, f"/benchmarks/{benchmark}/publish")["reference"]
    solver = post(server, headers, "/solvers", {"alias": "agent"})["id"]
    key = post(server, headers, f"/solvers/{solver}/api-keys")["key"]
    run = post(server, {"authorization": f"Bearer {key}"}, "/v1/benchmark-runs", {"benchmark": reference})
    token = run["bearer_token"]
    own = {"authorization": f"Bearer {token}"}
    post(server, own, f"/v1/task-runs/{run['task_runs'][0]['id']}/start")
    return server.url + run["endpoints"]["portal"], token


@pytest.mark.in_turn
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
@pytest.mark.parametrize("place", [open_sandbox, start_run])
@pytest.mark.parametrize("with_keys", [True, False])
def test_a_browser_signs_in_and_asks(tmp_path: Path, place: Any, with_keys: bool) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    headers = {"authorization": make_key(tmp_path, "clinic")["authorization"]} if with_keys else {}
    with serving(tmp_path) as server, playwright.sync_playwright() as started:
        url, password = place(server, headers)
        opened = launch_chromium(started)
        page = opened.new_page()
        page.goto(f"{url}/login")
        page.get_by_label("User name").fill("agent")
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="New request").click()
        page.get_by_label("Member ID").fill("W1")
        page.get_by_role("button", name="Continue").click()
        assert page.get_by_label("NPI of the ordering provider").count() == 1
        opened.close()
