"""A real server is killed between a write in a sandbox and the event of its request: both are stored, or neither.

The same moment without a server, on both databases, is in `tests/store/test_sandbox_crash.py`.
"""

from __future__ import annotations

from http.client import HTTPException
from pathlib import Path

import pytest

from tests.live.serving import Serving, serving

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
PATIENT = {"resourceType": "Patient", "name": [{"family": "Smith"}]}
DIES = """
import os, signal
from proctor.store.accounts import sandboxes

name_log_row = sandboxes._name_log_row

def die_before_the_event(sandbox, number):
    # The row of the sandbox has its new revision by now, and the log has no row for it yet.
    if number == int(os.environ["DIES_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return name_log_row(sandbox, number)

sandboxes._name_log_row = die_before_the_event
"""
"""Run by Python before the server itself."""


def write_until_killed(server: Serving, sandbox: str) -> int:
    """Write as an agent does, and return how many writes were acknowledged."""
    acknowledged = 0
    try:
        while True:
            status, _ = server.ask("POST", f"/sandboxes/{sandbox}/fhir/Patient", PATIENT)
            assert status == 201
            acknowledged += 1
    except (OSError, HTTPException):
        assert server.process.wait(30) == -9
        return acknowledged


@pytest.mark.on_request
def test_a_killed_server_keeps_a_write_with_its_event_or_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES, encoding="utf-8")
    paths = str(Path(__file__).parents[3] / "src")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{paths}")
    sandbox, acknowledged = "", 0
    for dies_at in (3, 5):
        monkeypatch.setenv("DIES_AT", str(dies_at))
        with serving(tmp_path) as server:
            if not sandbox:
                _, simulator = server.ask("POST", "/simulators", {"name": "clinic", "type": "FHIR"})
                sandbox = server.ask("POST", "/sandboxes", {"simulator_id": simulator["id"]})[1]["id"]
            acknowledged += write_until_killed(server, sandbox)
    monkeypatch.setenv("PYTHONPATH", paths)
    with serving(tmp_path) as server:
        status, _ = server.ask("POST", f"/sandboxes/{sandbox}/fhir/Patient", PATIENT)
        assert status == 201
        _, state = server.ask("GET", f"/sandboxes/{sandbox}/state")
        _, events = server.ask("GET", f"/sandboxes/{sandbox}/events")
    assert acknowledged == 4
    assert len(state["state"]["fhir"]["resources"]) == len(events["data"]) == acknowledged + 1
    numbers = [int(event["id"].rpartition("_")[2]) for event in reversed(events["data"])]
    assert numbers == [1, 2, 3, 4, 5], "the next one goes on where nothing is missing"
