"""A third-party service of CDS Hooks, HealthChain, called by the simulated EHR."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from proctor.model.case import System
from tests.foreign import install_from_index
from tests.live.clients.simulated_sites import Site

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
SERVICE = """
from healthchain.gateway import CDSHooksService, HealthChainAPI
from healthchain.models.responses.cdsresponse import CDSResponse

app, cds = HealthChainAPI(), CDSHooksService()


@cds.hook("encounter-discharge", id="discharge", title="Discharge")
def summarize(request):
    return CDSResponse(cards=[])


@cds.hook("patient-view", id="allergies", title="Allergies")
def warn(request):
    summary = f"{request.context.patientId} is allergic to {request.prefetch['allergy']['code']['text']}"
    return CDSResponse(cards=[{"summary": summary, "indicator": "warning", "source": {"label": "Allergies"}}])


app.register_service(cds)
"""


@pytest.fixture
def service(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[str]:
    """The address of a service of HealthChain."""
    place = install_from_index(Path(pytestconfig.cache.mkdir("live-healthchain")), "healthchain==0.16.1")  # type: ignore[union-attr]
    (tmp_path / "agent.py").write_text(SERVICE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [place / "python", "-m", "uvicorn", "agent:app", "--port", str(port), "--log-level", "warning"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": "."})
    try:
        for _ in range(600):
            try:
                with urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/cds"
    finally:
        process.terminate()
        process.wait(timeout=20)


def ask(site: Site, path: str, body: object) -> Any:
    headers = {"authorization": f"Bearer {site.place.token}", "content-type": "application/json"}
    with urlopen(Request(site.variables["ehr_url"] + path, json.dumps(body).encode(), headers), timeout=20) as answer:
        return json.loads(answer.read())


def test_a_service_of_healthchain_is_discovered_called_and_given_feedback(sites: Any, service: str) -> None:
    site: Site = sites(System(name="ehr", kind="cds", seed={}))
    found = ask(site, "/services", {"discovery_url": f"{service}/cds-discovery", "services_url": f"{service}/cds-services"})["services"]
    assert {(one["id"], one["hook"], one["title"]) for one in found} == {
        ("discharge", "encounter-discharge", "Discharge"),
        ("allergies", "patient-view", "Allergies"),
    }
    context = {"user_id": "Practitioner/17", "patient_id": "ann"}
    answer = ask(site, "/hooks/patient-view", {**context, "prefetch": {"allergy": {"code": {"text": "penicillin"}}}})
    (card,) = answer["cards"]
    assert (card["summary"], card["indicator"], answer["problems"]) == ("ann is allergic to penicillin", "warning", [])
    given = ask(site, "/feedback", {"card": card["uuid"], "outcome": "overridden", "reason": {"code": "known"}})
    # It accepts no feedback, which is optional; the feedback to the EHR is stored with the card.
    assert (given["delivered"], given["problems"]) == (False, ["the service takes no feedback: it answers 404"])
    (card_state,) = site.state().cds.cards
    assert (card_state["service"], card_state["feedback"], card_state["feedback_reason"]) == ("allergies", "overridden", {"code": "known"})
    # It requires the user who views the patient, and reports a missing one.
    answer = ask(site, "/hooks/patient-view", {"patient_id": "ann"})
    assert (answer["cards"], answer["problems"]) == ([], ["allergies: the service answers 422"])
    assert ask(site, "/hooks/encounter-discharge", {**context, "encounter_id": "e1"})["cards"] == []
