"""The end state of the systems an agent worked in, as plain evidence spells it.

Every family has a full form and the short forms people write: a list where the object would hold one list, one text where a
list of texts is expected, `path: content` for files, FHIR bundles in place of their resources. A family that is null was not
captured; an empty one was captured and is empty. Families we do not know are handed back to be kept in the metadata.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.shape import dict_of, first_of, list_at, list_of, object_at, text_at, wrong
from proctor.model.evidence import FhirState, Hl7State, Json, State, StateFile, VoiceState, VoiceTurn, X12State

FAMILIES = ("fhir", "hl7", "portal", "files", "voice", "x12")

_BUNDLE_DEPTH = 16


def read_state(value: Json, path: str) -> tuple[State, dict[str, Json]]:
    """The known families, and the rest as it came."""
    document = object_at(value, path)
    given = {family: document[family] for family in FAMILIES if document.get(family) is not None}
    state = State(
        fhir=_fhir(given["fhir"], f"{path}.fhir") if "fhir" in given else None,
        hl7=Hl7State(outbound=_texts(given["hl7"], "outbound", f"{path}.hl7")) if "hl7" in given else None,
        portal=_portal(given["portal"], f"{path}.portal") if "portal" in given else None,
        files=_files(given["files"], f"{path}.files") if "files" in given else None,
        voice=_voice(given["voice"], f"{path}.voice") if "voice" in given else None,
        x12=X12State(responses=_texts(given["x12"], "responses", f"{path}.x12")) if "x12" in given else None,
    )
    return state, {key: member for key, member in document.items() if key not in FAMILIES}


def flat_resources(values: list[Any], path: str) -> tuple[dict[str, Json], ...]:
    """FHIR resources in order, bundles replaced by what is in them."""
    found: list[dict[str, Json]] = []
    # A stack instead of recursion: (resource, where it stands, how many bundles it is in).
    waiting = [(value, f"{path}[{index}]", 0) for index, value in enumerate(values)][::-1]
    while waiting:
        value, at, depth = waiting.pop()
        resource = object_at(value, at)
        if resource.get("resourceType") != "Bundle":
            found.append(resource)
            continue
        if depth >= _BUNDLE_DEPTH:
            raise wrong(at, f"at most {_BUNDLE_DEPTH} bundles inside each other", "one more")
        entries = list_of(resource.get("entry"))
        inner = [(dict_of(entry).get("resource"), f"{at}.entry[{index}].resource", depth + 1) for index, entry in enumerate(entries)]
        waiting.extend(entry for entry in reversed(inner) if entry[0] is not None)
    return tuple(found)


def _fhir(value: Json, path: str) -> FhirState:
    if isinstance(value, list):
        return FhirState(resources=flat_resources(value, path))
    document = object_at(value, path)
    if "resourceType" in document:
        return FhirState(resources=flat_resources([document], path))
    resources = document.get("resources")
    if isinstance(resources, dict):
        # One resource or one bundle where the list would be.
        resources = [resources]
    return FhirState(
        resources=flat_resources(list_at(resources if resources is not None else [], f"{path}.resources"), f"{path}.resources")
    )


def _texts(value: Json, key: str, path: str) -> tuple[str, ...]:
    if isinstance(value, dict):
        path = f"{path}.{key}"
        value = value.get(key) if value.get(key) is not None else []
    if isinstance(value, str):
        return (value,)
    texts = [text_at(entry, f"{path}[{index}]") for index, entry in enumerate(list_at(value, path))]
    return tuple(text for text in texts if text is not None)


def _portal(value: Json, path: str) -> dict[str, list[dict[str, Json]]]:
    tables: dict[str, list[dict[str, Json]]] = {}
    for name, rows in object_at(value, path).items():
        if isinstance(rows, dict):
            tables[name] = [rows]
            continue
        at = f"{path}.{name}"
        tables[name] = [object_at(row, f"{at}[{index}]") for index, row in enumerate(list_at(rows, at))]
    return tables


def _files(value: Json, path: str) -> tuple[StateFile, ...]:
    if isinstance(value, dict):
        return tuple(StateFile(path=name, content=content) for name, content in value.items())
    files: list[StateFile] = []
    for index, entry in enumerate(list_at(value, path)):
        at = f"{path}[{index}]"
        name = text_at(object_at(entry, at).get("path"), f"{at}.path")
        if name is None:
            raise wrong(f"{at}.path", "text", None)
        files.append(StateFile(path=name, content=entry.get("content", "")))
    return tuple(files)


def _voice(value: Json, path: str) -> VoiceState:
    if isinstance(value, dict):
        path = f"{path}.turns"
        value = value.get("turns") if value.get("turns") is not None else []
    turns: list[VoiceTurn] = []
    for index, entry in enumerate(list_at(value, path)):
        at = f"{path}[{index}]"
        turn = object_at(entry, at)
        speaker = text_at(first_of(turn, "speaker", "role"), f"{at}.speaker")
        text = text_at(first_of(turn, "text", "content"), f"{at}.text")
        turns.append(VoiceTurn(speaker=speaker or "", text=text or ""))
    return VoiceState(turns=tuple(turns))
