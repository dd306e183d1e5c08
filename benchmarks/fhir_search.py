"""A simulated FHIR server: what a search by an indexed parameter costs as the store grows, and what filling it costs, CPU.

Every search finds ten resources, whatever else is there, through a whole request: rows loaded, search, bundle, event. Filling is reading a
seed of 1,000 resources and beginning a sandbox on it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measure import cpu_seconds, interleaved
from benchmarks.report import Figure
from proctor.model.case import System
from proctor.simulators.exchange import Request
from proctor.simulators.ports import Surroundings
from proctor.simulators.rows import MemoryStore
from proctor.simulators.sandbox import Sandbox, provision_rows

FEW, MANY = 100, 10_000
SEARCHES = 50
"""Searches that are timed together: one alone is too short for the clock."""
_NOW = "2026-11-16T09:30:00.000Z"
QUERIES = {
    "id": [("_id", ",".join(f"o{number}" for number in range(10)))],
    "identifier": [("identifier", "urn:lab|rare")],
    "patient": [("patient", "Patient/rare")],
    "status": [("status", "preliminary")],
    "code": [("code", "http://loinc.org|rare")],
    "status and code, sorted": [("status", "preliminary"), ("code", "rare"), ("_sort", "-date")],
}


def _make_observation(number: int) -> dict[str, Any]:
    rare = number < 10
    return {
        "resourceType": "Observation",
        "id": f"o{number}",
        "identifier": [{"system": "urn:lab", "value": "rare" if rare else str(number)}],
        "status": "preliminary" if rare else "final",
        "code": {"coding": [{"system": "http://loinc.org", "code": "rare" if rare else f"c{number % 50}", "display": "Body weight"}]},
        "subject": {"reference": "Patient/rare" if rare else f"Patient/{number % 500}"},
        "effectiveDateTime": f"2026-11-{1 + number % 28:02}T09:00:00Z",
        "valueQuantity": {"value": 61.5, "unit": "kg", "system": "http://unitsofmeasure.org", "code": "kg"},
    }


def _make_surroundings() -> Surroundings:
    ids = itertools.count(1)
    return Surroundings(now=lambda: _NOW, new_id=lambda: f"new-{next(ids)}", seconds=lambda: 0.0)


def make_seed(count: int) -> list[Any]:
    return [_make_observation(number) for number in range(count)]


def fill_sandbox(seed: list[Any]) -> Sandbox:
    systems = (System(name="clinic", kind="fhir", seed=seed),)
    around = _make_surroundings()
    sandbox = Sandbox("s1", systems, MemoryStore(), around)
    asyncio.run(sandbox.provision(provision_rows(systems, around)))
    return sandbox


def _search(sandbox: Sandbox, query: list[tuple[str, str]]) -> Callable[[], object]:
    request = Request(method="GET", path="/Observation", query=tuple(query), base="http://clinic.test")

    async def ask() -> None:
        for _ in range(SEARCHES):
            answered = await sandbox.handle("clinic", request)
            assert b'"total":10,' in answered.body, answered.body[:200]

    asyncio.run(ask())
    return lambda: asyncio.run(ask())


def figures() -> Iterator[Figure]:
    """CPU of a search over many resources as a ratio to one over few, and of filling a sandbox in milliseconds."""
    few, many = fill_sandbox(make_seed(FEW)), fill_sandbox(make_seed(MANY))
    for name, query in QUERIES.items():
        best = interleaved({"few": _search(few, query), "many": _search(many, query)})
        note = f"{best['few'] / SEARCHES * 1e6:.0f} and {best['many'] / SEARCHES * 1e6:.0f} µs"
        yield Figure(f"FHIR search by {name}: {MANY:,} resources / {FEW}, CPU", best["many"] / best["few"], at_most=5, note=note)
    seed = make_seed(1_000)
    yield Figure("a sandbox with 1,000 FHIR resources, ms of CPU", cpu_seconds(lambda: fill_sandbox(seed)) * 1e3, at_most=50)
