"""The OpenAPI document is true: generated requests never break the service, and its answers match the document."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from tests.rest import verification_seeds
from tests.rest.listening import Listening
from tests.rest.openapi_document import DOCUMENT
from tests.rest.seeds import sow_place
from tests.rest.server.test_authorization import ROWS, expected, route_of
from tests.rest.services import fill_place, make_keys

EXAMPLES = int(os.environ.get("PROCTOR_SCHEMA_EXAMPLES", "3"))
"""Requests that are generated for each operation; `make torture` has more."""
OPERATIONS = sorted(f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods)
# Data that fits its schema may be refused for reasons that no schema can say: a document that is no suite, a project that is not there.
# That keys are needed is the matter of the authorization table, and the check does not know keys that it did not send itself.
UNWANTED = {"positive_data_acceptance", "ignored_auth"}
# Most generated ids are unknown. With these every other request finds its object.
REAL: dict[str, Any] = {
    "project_id": "proj_home",
    "agent_id": "agent_home_1",
    "case_id": "case_home",
    "annotation_id": "ann_home",
    "trace_id": "trc_home",
    "external_id": "home",
    "result_id": "res_home",
    "key_id": "key_home",
    "resource_id": "key_home",
    "run_id": "run_home",
    "base": "run_home",
    "alert_id": "alr_home",
    "schedule_id": "sch_home",
    "proposal_id": "prop_home",
    "version": 1,
    "q": "home",
    **verification_seeds.REAL,
}
# Parameters of the same name with another meaning.
REAL_AT: dict[str, dict[str, Any]] = {
    "/api/projects/{project_id}/secrets/{name}": {"name": "TOKEN"},
    "/sandboxes/{sandbox_id}/datasets/{dataset_id}": {"dataset_id": "dsb_home"},
    "/environments/{environment_id}/datasets/{dataset_id}": {"dataset_id": "dsb_home"},
    "/api/runs/{run_id}/results/{result_id}": {"result_id": "att_home"},
    "/solvers/{solver_id}/api-keys/{key_id}": {"key_id": "skey_home"},
    "/leaderboard/{slug}": {"slug": "bench-home"},
    "/shared/{token}": {"token": "vrl_shr_home"},
}
ENDLESS = {"/api/traces/events"}
"""Streams that do not end while a client listens; they are requested without following."""


def in_place(place: str, value: Any) -> Any:
    """The same with the ids of another place than `home`."""
    text = json.dumps(value).replace("_home", f"_{place}").replace("-home", f"-{place}")
    return json.loads(text)


class Fuzzed:
    """One service for all operations.

    Each that changes something gets a place of its own with one of everything, so that none takes away what another needs.
    """

    def __init__(self, running: Listening) -> None:
        # Imported here: it takes a second, and the other tests of this file do not need it.
        import requests
        import schemathesis
        from schemathesis.checks import CHECKS, load_all_checks

        load_all_checks()
        self._session = requests.Session()
        self._unwanted = [CHECKS.get_one(name) for name in UNWANTED]
        self._fitting = schemathesis.GenerationMode.POSITIVE
        self.key = running.run(make_keys)["organization"]
        self.schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json", timeout=60)
        self._running = running
        self._places = 0

    def place(self, method: str) -> str:
        """The organization an operation is tested in; all reads share one."""
        if method == "GET":
            return self._read_place
        self._places += 1
        return self._make(f"place{self._places}")

    @functools.cached_property
    def _read_place(self) -> str:
        return self._make("read")

    def _make(self, place: str) -> str:
        async def make(hub: Hub) -> None:
            await fill_place(hub, LOCAL, place)
            await sow_place(hub, LOCAL, place)
            hub.agent_cache.forget(LOCAL.organization_id)

        self._running.run(make)
        return place

    def fits(self, case: Any) -> bool:
        """Whether a request is one that the document allows."""
        return case.meta.generation.mode == self._fitting

    def call(self, case: Any) -> int:
        headers = {"authorization": f"Bearer {self.key}"}
        return case.call_and_validate(session=self._session, headers=headers, excluded_checks=self._unwanted, timeout=10).status_code


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    home = tmp_path_factory.mktemp("openapi")
    options = {"requests_per_minute": 0, "metrics_organization": LOCAL.organization_id}
    with Listening(f"sqlite:///{home / 'proctor.db'}", home, **options) as running:
        yield Fuzzed(running)


@pytest.mark.in_turn
@pytest.mark.live
@pytest.mark.timeout(120 + EXAMPLES)
@pytest.mark.parametrize("operation", OPERATIONS if EXAMPLES > 3 else OPERATIONS[::2])
def test_generated_requests_are_answered_as_documented(operation: str, fuzzed: Fuzzed) -> None:
    method, path = operation.split(" ")
    known = in_place(fuzzed.place(method), REAL | REAL_AT.get(path, {}))
    found: list[int] = []

    def examine(case: Any, real: bool) -> None:
        real = real and fuzzed.fits(case)
        if real:
            case.path_parameters.update({name: known[name] for name in case.path_parameters or ()})
            for place in (case.query, case.body):
                if isinstance(place, dict):
                    place.update({name: id for name, id in known.items() if isinstance(place.get(name), str)})
            if path in ENDLESS:
                case.query["follow"] = "false"
        status = fuzzed.call(case)
        if real:
            found.append(status)

    for examples in (EXAMPLES, 5 * EXAMPLES):
        generated = given(case=fuzzed.schema[path][method].as_strategy(), real=st.sampled_from([True, False]))(examine)
        settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)(
            generated
        )()
        if "{" not in path or any(status != 404 for status in found):
            return
    pytest.fail(f"all of them were about nothing: {found}")


def _succeeding() -> list[dict[str, Any]]:
    """Rows of the authorization table that an organization key has success with, of operations in the document."""
    return [row for row in ROWS if expected(row, "own")["organization"] < 300 and route_of(row) in OPERATIONS]


@pytest.mark.in_turn
@pytest.mark.live
@pytest.mark.parametrize("row", _succeeding(), ids=lambda row: row["id"])
def test_successful_requests_are_answered_as_documented(row: dict[str, Any], fuzzed: Fuzzed) -> None:
    method, template = route_of(row).split(" ")
    place = fuzzed.place(method)
    address = urlsplit(in_place(place, row.get("path", template)))
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)
    matched = re.fullmatch(pattern, address.path)
    assert matched is not None
    more: dict[str, Any] = {"path_parameters": matched.groupdict(), "query": dict(parse_qsl(address.query))}
    if "body" in row:
        more |= {"body": in_place(place, row["body"]), "media_type": "application/json"}
    assert fuzzed.call(fuzzed.schema[template][method].Case(**more)) == expected(row, "own")["organization"]


def test_every_operation_has_a_request_that_succeeds_and_every_address_a_real_one() -> None:
    # The table sends each row with several keys, and the second of two equal proposals is a conflict: another test creates one.
    assert sorted(set(OPERATIONS) - {route_of(row) for row in _succeeding()}) == ["POST /api/proposals"]
    for path in DOCUMENT["paths"]:
        assert set(re.findall(r"\{(\w+)\}", path)) <= set(REAL | REAL_AT.get(path, {})), path


def test_every_operation_documents_its_refusals() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            place = f"{method} {path}"
            assert "422" not in operation["responses"], place
            assert operation.get("summary") and operation.get("description"), place
            assert {"400", "500", "503"} <= set(operation["responses"]), place
            if operation.get("security"):
                assert {"401", "403", "429"} <= set(operation["responses"]), place


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))
