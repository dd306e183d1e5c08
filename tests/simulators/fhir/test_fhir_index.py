"""The search index of the FHIR server: it skips what cannot match, and changes no answer, whatever was written before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.codecs import fhir
from proctor.codecs.fhir import compile_search
from proctor.simulators.fhir.searching import Shelves
from proctor.simulators.rows import Change, Draft, Rows, apply_changes
from tests.simulators.workplace import Workplace

SEARCHES = [
    [("_id", "o7")],
    [("identifier", "urn:lab|3")],
    [("identifier", "3")],
    [("identifier", "urn:lab|")],
    [("patient", "Patient/2")],
    [("subject", "2")],
    [("subject:Patient", "2")],
    [("subject", "http://elsewhere.test/fhir/Patient/2")],
    [("subject", "urn:uuid:2")],
    [("subject", "Patient/2/_history/4")],
    [("subject:identifier", "urn:mrn|2")],
    [("status", "final,amended")],
    [("status:not", "final")],
    [("status:missing", "true")],
    [("code", "http://loinc.org|c1"), ("status", "final")],
    [("code", "|c1")],
    [("code", "c1,http://loinc.org|")],
    [("code:text", "weight")],
    [("code", "a\\|b\\,c")],
    [("subject", "Patient/2"), ("_sort", "-status")],
    [("subject.gender", "male"), ("status", "final")],
]
_REFERENCES = ["Patient/{}", "http://elsewhere.test/fhir/Patient/{}", "urn:uuid:{}", "Group/{}", "Patient/{}/_history/1", "{}"]


def make_observation(key: str, seed: int) -> dict[str, Any]:
    codes = [{"system": "http://loinc.org", "code": f"c{seed % 4}"}, {"code": ["a|b,c", "c1", "x"][seed % 3]}]
    made: dict[str, Any] = {
        "resourceType": "Observation",
        "id": key,
        "identifier": [{"system": "urn:lab", "value": str(seed % 7)}],
        "code": {"coding": codes[: 1 + seed % 2], "text": "Weight"},
        "subject": {"reference": _REFERENCES[seed % 6].format(seed % 5), "identifier": {"system": "urn:mrn", "value": str(seed % 5)}},
    }
    if seed % 11:
        made["status"] = ["final", "amended", "preliminary"][seed % 3]
    return made


def make_rows(count: int) -> Rows:
    changes = [Change("clinic/Observation", f"o{number}", make_observation(f"o{number}", number)) for number in range(count)]
    for number in range(5):
        patient = {"resourceType": "Patient", "id": str(number), "gender": "male" if number % 2 else "female"}
        changes.append(Change("clinic/Patient", str(number), patient))
    return apply_changes({}, tuple(changes))


def list_found(draft: Draft, search: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Return the results of a search with the index, and over a plain list of everything."""
    compiled = compile_search("Observation", search)
    plain = [*draft.list("Observation").values(), *draft.list("Patient").values()]
    indexed, whole = compiled.list_matches(Shelves(draft)), compiled.list_matches(plain)
    return [entry.name for entry in indexed], [entry.name for entry in whole]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: "&".join("=".join(pair) for pair in search))
def test_an_index_changes_no_answer(search: list[tuple[str, str]]) -> None:
    indexed, whole = list_found(Draft(make_rows(200), "clinic"), search)
    assert indexed == whole != []


_WRITES = st.lists(st.tuples(st.integers(0, 60), st.one_of(st.none(), st.integers(0, 400)), st.sampled_from("dcs")), max_size=40)


@settings(max_examples=150, deadline=None)
@given(writes=_WRITES, search=st.sampled_from(SEARCHES), most=st.sampled_from([2, 256]))
def test_an_index_follows_what_is_written(writes: list[Any], search: list[tuple[str, str]], most: int) -> None:
    """Put, replace, delete and restore rows; commit or drop drafts; search in between."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fhir, "_MOST_WRITTEN", most)
        rows = make_rows(40)
        draft = Draft(rows, "clinic")
        for number, seed, then in writes:
            key = f"o{number}"
            if seed is None:
                draft.remove("Observation", key)
            else:
                draft.put("Observation", key, make_observation(key, seed))
            if then == "c":
                rows = apply_changes(rows, draft.list_changes())
                draft = Draft(rows, "clinic")
            elif then == "d":
                draft = Draft(rows, "clinic")
            indexed, whole = list_found(draft, search)
            assert indexed == whole


@pytest.mark.parametrize(
    "search", [{"_id": "o7"}, {"identifier": "urn:lab|3"}, {"patient": "Patient/2"}, {"code": "c1", "status": "final"}]
)
def test_an_index_leaves_out_what_cannot_fit(search: dict[str, str]) -> None:
    draft = Draft(make_rows(700), "clinic")
    compiled = compile_search("Observation", search)
    looked = len(list(Shelves(draft).pick("Observation", compiled.clues)))
    assert looked < 300 and looked >= len(compiled.list_matches(Shelves(draft))) > 0
    # Recent writes are always searched.
    draft.put("Observation", "new", make_observation("new", 1))
    assert len(list(Shelves(draft).pick("Observation", compiled.clues))) == looked + 1


def test_a_search_inside_a_request_sees_what_the_request_wrote() -> None:
    clinic = Workplace("fhir", [make_observation(f"o{number}", number) for number in range(100)])
    assert clinic.get("/Observation?identifier=new")["total"] == 0
    new = {**make_observation("", 1), "identifier": [{"value": "new"}]}
    del new["id"]
    create = {"resource": new, "request": {"method": "POST", "url": "Observation"}}
    look = {"request": {"method": "GET", "url": "Observation?identifier=new"}}
    answered = clinic.ask("POST", "/", {"resourceType": "Bundle", "type": "transaction", "entry": [look, create]})
    assert b'"total":1' in answered.body
    assert clinic.get("/Observation?identifier=new")["total"] == 1
    clinic.ask("DELETE", "/Observation/o5")
    assert clinic.get("/Observation?_id=o5")["total"] == 0
