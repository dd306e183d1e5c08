"""Small requests that ask for much work, or for a large answer, are refused or answered within bounds."""

from __future__ import annotations

import time

import pytest

from proctor.simulators.kinds.fax import read_document
from proctor.work import MOST_STEPS
from tests.simulators.heavy_requests import HEAVY, SEEDS, Heavy
from tests.simulators.workplace import Workplace, read

MOST_ANSWER = 25_000_000
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def places() -> dict[str, Workplace]:
    return {}


@pytest.mark.in_turn
@pytest.mark.parametrize("heavy", [pytest.param(heavy, id=name) for name, heavy in HEAVY.items() if heavy.kind != "fax"])
def test_a_heavy_request_takes_seconds_at_most(heavy: Heavy, places: dict[str, Workplace]) -> None:
    place = places.setdefault(heavy.kind, Workplace(heavy.kind, SEEDS[heavy.kind])) if heavy.kind not in places else places[heavy.kind]
    began = time.process_time()
    response = place.ask(heavy.method, heavy.target, heavy.body, content_type=heavy.content_type)
    assert time.process_time() - began < 8
    assert len(response.body) < MOST_ANSWER
    assert response.status < 500


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "name",
    [
        "batch of large answers",
        "batch of 200 large answers",
        "batch of histories",
        "transaction with conditions",
        "search with many conditions",
        "search with many values",
        "search with many sort keys",
    ],
)
def test_a_fhir_request_beyond_the_bounds_is_refused_and_keeps_nothing(name: str, places: dict[str, Workplace]) -> None:
    heavy = HEAVY[name]
    place = places.setdefault("fhir", Workplace("fhir", SEEDS["fhir"])) if "fhir" not in places else places["fhir"]
    before = place.get("/Patient?_summary=count")["total"]
    response = place.ask(heavy.method, heavy.target, heavy.body)
    assert (response.status, read(response)["issue"][0]["code"]) == (400, "too-costly")
    assert place.get("/Patient?_summary=count")["total"] == before
    assert place.state().requests[-2].status == 400


@pytest.mark.parametrize("name", ["records with many sort keys", "records with many filters", "records with many values"])
def test_a_list_of_records_beyond_the_bounds_is_refused(name: str) -> None:
    response = Workplace("records", SEEDS["records"]).ask("GET", HEAVY[name].target)
    assert (response.status, read(response)["error"]["code"]) == (400, "too_costly")


@pytest.mark.in_turn
@pytest.mark.parametrize("name", ["pdf with many operators", "pdf that unpacks to much"])
def test_a_pdf_that_takes_too_long_has_no_text(name: str) -> None:
    response = Workplace("fax", {}).ask("POST", HEAVY[name].target, HEAVY[name].body)
    assert response.status == 201 and read(response)["note"].startswith("the document cannot be read")


def test_a_document_is_read_without_the_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    seen: list[object] = []
    run = subprocess.run

    def watch(*args: object, **given: object) -> object:
        seen.append(given["env"])
        return run(*args, **given)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", watch)
    assert read_document(b"%PDF-1.4 broken") is not None and seen == [{}]


def test_one_answer_has_as_many_bytes_as_the_steps_allow() -> None:
    assert MOST_STEPS * 16 < MOST_ANSWER
