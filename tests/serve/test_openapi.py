"""The OpenAPI document is true: generated requests never break the service, and what it answers is what the document says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS, load_all_checks

from proctor.serve.app import make_app
from proctor.serve.settings import ServeSettings
from proctor.service.hub import ServiceSettings
from tests.serve import verification_seeds
from tests.serve.listening import Listening
from tests.serve.seeds import sow
from tests.serve.services import make_keys

DOCUMENT: dict[str, Any] = make_app(ServeSettings(service=ServiceSettings(home=Path("unused")))).openapi()
OPERATIONS = sorted(f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods)
# Data that fits its schema may be refused for reasons that no schema can say: a document that is no suite, a project that is not there.
# That keys are needed is the matter of the authorization table, and the check does not know keys that it did not send itself.
UNWANTED = {"positive_data_acceptance", "ignored_auth"}
# Most generated ids name nothing. With these every other request finds what it is about.
REAL = {
    "project_id": "proj_home",
    "agent_id": "agent_home_1",
    "case_id": "case_home",
    "trace_id": "trc_home",
    "result_id": "res_home",
    "key_id": "key_home",
    "run_id": "run_home",
    **verification_seeds.REAL,
}


class Fuzzed:
    """One service for all operations, with one of everything in it."""

    def __init__(self, running: Listening) -> None:
        self.key = running.run(make_keys)["organization"]
        running.run(sow)
        self.schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json")


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    home = tmp_path_factory.mktemp("openapi")
    with Listening(f"sqlite:///{home / 'proctor.db'}", home, requests_per_minute=0) as running:
        yield Fuzzed(running)


@pytest.mark.live
@pytest.mark.timeout(120)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_generated_requests_are_answered_as_the_document_says(operation: str, fuzzed: Fuzzed) -> None:
    load_all_checks()
    unwanted = [CHECKS.get_one(name) for name in UNWANTED]
    method, path = operation.split(" ")

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(case=fuzzed.schema[path][method].as_strategy(), real=st.booleans())
    def examine(case: Any, real: bool) -> None:
        if real and method != "DELETE" and case.meta.generation.mode == schemathesis.GenerationMode.POSITIVE:
            for place in (case.path_parameters, case.query, case.body):
                if isinstance(place, dict):
                    place.update({name: id for name, id in REAL.items() if isinstance(place.get(name), str)})
        case.call_and_validate(headers={"authorization": f"Bearer {fuzzed.key}"}, excluded_checks=unwanted, timeout=10)

    examine()


def test_every_operation_says_what_is_answered_when_it_is_refused() -> None:
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
