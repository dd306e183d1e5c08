"""Types of the verification API and their kinds of systems."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.service.verification.sandboxes.system_kinds import describe_access, describe_endpoints
from proctor.simulators.ports import find_simulator, list_kinds
from proctor.simulators.seeds import LIVE_TYPES, TYPES, find_kind, join_config


def test_every_kind_has_one_type_and_every_type_one_kind_or_none() -> None:
    assert sorted(kind for type in LIVE_TYPES if (kind := find_kind(type)) is not None) == sorted(list_kinds())
    assert set(LIVE_TYPES) <= set(TYPES) and len(set(TYPES)) == len(TYPES)


def test_values_for_a_token_are_shown_only_with_it() -> None:
    assert describe_access("fhir", "sb_1") == {
        "fhir_base_url": "/sandboxes/sb_1/fhir",
        "token_url": "/sandboxes/sb_1/fhir/token",
        "client_id": "sb_1",
        "mcp_url": "/sandboxes/sb_1/mcp",
    }
    assert describe_access("fhir", "sb_1", "secret")["client_secret"] == describe_access("fhir", "sb_1", "secret")["token"] == "secret"


def test_a_run_reaches_each_kind_by_its_own_name() -> None:
    assert describe_endpoints(["files", "records", "files"], "br_1") == {
        "files": "/v1/benchmark-runs/br_1/files",
        "files_inbox": "/v1/benchmark-runs/br_1/files/inbox",
        "records": "/v1/benchmark-runs/br_1/records",
        "mcp": "/v1/benchmark-runs/br_1/mcp",
    }
    assert describe_endpoints([], "br_1") == {}


JOINED: list[tuple[bool, Any, list[Any], list[Any]]] = [
    (False, None, [{"a": 1}], [{"a": 1}]),
    (False, {"seed": {"b": []}, "other": 1}, [{"a": []}], [{"b": []}, {"a": []}]),
    (False, {"other": 1}, [], []),
    (True, {"b": 1}, [{"a": 2}, {"c": 3}], [{"b": 1, "a": 2}, {"c": 3}]),
    (True, {"b": 1}, [[1]], [{"b": 1}, [1]]),
    (True, {"b": 1}, [], [{"b": 1}]),
    (True, {"b": 1, "seed": {"a": 2}}, [], [{"a": 2, "b": 1}]),
    (True, {"seed": [1]}, [{"a": 2}], [[1], {"a": 2}]),
    (True, {"seed": [1], "b": 2}, [], [{"seed": [1], "b": 2}]),
    (True, {"b": 1, "other": 2}, [], [{"b": 1}]),
    (True, {"other": 2}, [{"a": 2}], [{"a": 2}]),
]


@pytest.mark.parametrize(("takes", "config", "seeds", "expected"), JOINED)
def test_the_config_of_a_simulator_is_put_in_first(
    takes: bool, config: Any, seeds: list[Any], expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(find_simulator("records")), "config_names", ("a", "b") if takes else (), raising=False)
    assert join_config("records", config, seeds) == expected
