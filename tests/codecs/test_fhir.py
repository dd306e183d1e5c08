"""FHIR search: tables over published example resources, and refused searches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.codecs.fhir import ServedResources, compile_search
from proctor.codecs.fhir_parameters import list_parameters, list_resource_types
from proctor.errors import CheckFault, SpecError
from tests.tables import rows

SAMPLES = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((Path(__file__).parent / "samples" / "fhir").glob("*.json"))]


def find(resource_type: str, search: dict[str, str], store=SAMPLES) -> list[str]:
    return [found.name for found in compile_search(resource_type, search).find(store)]


@rows("codecs/cases/fhir_search.yaml")
def test_a_search_finds(row):
    assert find(row["type"], row["search"], row.get("store", SAMPLES)) == row["expect"]


@rows("codecs/cases/fhir_dates.yaml")
def test_a_date_fits(row):
    resource = {"resourceType": "CarePlan", "id": "c", "period": row["given"]}
    assert bool(find("CarePlan", {"date": row["search"]}, [resource])) is row["expect"]


def test_places_lead_into_the_store():
    store = [{"resourceType": "Task", "id": "a"}, {"resourceType": "Bundle", "entry": [{"resource": {"resourceType": "Task", "id": "b"}}]}]
    assert [found.place for found in compile_search("Task", {}).find(store)] == ["resources[0]", "resources[1].entry[0].resource"]


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"pateint": "1"}, "search parameter 'pateint' of Appointment is not supported; nearest: patient"),
        ({"patient.shoe": "x"}, "'shoe'"),
        ({"status.name": "x"}, "'status' of Appointment is not a reference"),
        ({"actor.shoe": "x"}, "no resource type has the search parameter 'shoe'"),
        ({"patient.link.link.link.name": "x"}, "at most 3 references"),
        ({"_include": "Appointment:status"}, "'status' is not a reference parameter of Appointment"),
        ({"_has": "x"}, "'_has'"),
        ({"_sort": "colour"}, "'colour'"),
        ({"status:in": "x"}, "modifier ':in'"),
        ({"date:exact": "2026"}, "modifier ':exact'"),
    ],
)
def test_unimplemented_searches_are_refused_and_never_ignored(search, message):
    with pytest.raises(CheckFault) as caught:
        compile_search("Appointment", search)
    assert caught.value.code == "unsupported_search"
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("resource_type", "search", "field"),
    [
        ("Appointment", {"date": "tomorrow"}, "search.date"),
        ("Appointment", {"date": "2026-13"}, "search.date"),
        ("Observation", {"value-quantity": "much"}, "search.value-quantity"),
        ("Observation", {"value-quantity": "1e9999"}, "search.value-quantity"),
        ("Appointment", {"status:missing": "maybe"}, "search.status:missing"),
        ("Appointment", {"_count": "-1"}, "search._count"),
    ],
)
def test_a_value_of_the_wrong_form_names_its_field(resource_type, search, field):
    with pytest.raises(SpecError) as caught:
        compile_search(resource_type, search)
    assert caught.value.field == field


def test_every_row_of_the_table_can_be_searched_and_sorted_by():
    values = {"date": "2026", "number": "1", "quantity": "1"}
    count = 0
    for resource_type in list_resource_types():
        for name, parameter in list_parameters(resource_type).items():
            compile_search(resource_type, {name: values.get(parameter.kind, "x"), "_sort": name}).find(SAMPLES)
            count += 1
    assert count > 700


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "participant",
                    "actor",
                    "reference",
                    "status",
                    "start",
                    "end",
                    "identifier",
                    "system",
                    "value",
                    "coding",
                    "code",
                    "meta",
                    "tag",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["participant", "status", "start", "identifier", "meta", "entry"]), JSON, max_size=4), max_size=4
    ),
    st.booleans(),
)
@pytest.mark.timeout(60)
def test_a_search_never_breaks_on_odd_resources(resources, bundled):
    store = [{**resource, "resourceType": "Bundle" if bundled else "Appointment"} for resource in resources]
    search = {"patient": "Patient/1", "status:not": "booked", "date": "ge2026", "identifier": "a|b", "_tag": "x", "_sort": "-date,status"}
    assert len(compile_search("Appointment", search).find(store)) <= len(store)
    assert len(compile_search("Appointment", {}).find(store)) == (0 if bundled else len(store))


def test_bundles_nested_beyond_reason_end():
    bundle: object = {"resourceType": "Task", "id": "deep"}
    for _ in range(500):
        bundle = {"resourceType": "Bundle", "entry": [{"resource": bundle}]}
    assert find("Task", {}, [bundle]) == []


class _CountingStore(ServedResources):
    picked = 0

    def pick(self, resource_type, clues):
        self.picked += 1
        return super().pick(resource_type, clues)


def test_a_chain_that_names_no_types_looks_at_each_type_once_for_each_link():
    # Each of the three references may point at any type: followed one by one that would be tens of thousands of searches.
    store = _CountingStore(
        [
            {"resourceType": "Patient", "id": "p", "identifier": [{"value": "7"}]},
            {"resourceType": "Encounter", "id": "e", "subject": {"reference": "Patient/p"}},
            {"resourceType": "Observation", "id": "o", "encounter": {"reference": "Encounter/e"}, "subject": {"reference": "Patient/p"}},
            {"resourceType": "Observation", "id": "other", "encounter": {"reference": "Encounter/x"}},
            {"resourceType": "Task", "id": "t", "focus": {"reference": "Observation/o"}},
            {"resourceType": "Task", "id": "u", "focus": {"reference": "Observation/other"}},
        ]
    )
    search = compile_search("Task", {"focus.encounter.subject.identifier": "7"})
    assert [found.name for found in search.find(store)] == ["Task/t"]
    assert store.picked <= 3 * len(list_resource_types()) + 1


def test_more_chains_than_anybody_needs_are_refused():
    pairs = [("subject.identifier", "7")] * 20
    assert compile_search("Task", pairs).chains
    with pytest.raises(CheckFault, match="at most 20"):
        compile_search("Task", [*pairs, ("subject.identifier", "7")])


def test_unknown_types_are_not_cached():
    assert list_parameters("Nothing1") is list_parameters("Nothing2")
    assert list_parameters("Task") is list_parameters("Task") is not list_parameters("Nothing1")
