"""The end state of the systems an agent worked in, as plain evidence spells it.

Every family has a full form and the short forms people write: a list where the object would hold one list, one text where a
list of texts is expected, `path: content` for files, FHIR bundles in place of their resources. A family that is null was not
captured; an empty one was captured and is empty. Unrecognised families are ignored, listed and kept in the metadata; one that is a
near miss of a family makes the end state unknown.

A family without the field that holds its content, and with an unrecognised one, was not captured. Resources, rows and utterances without
content make the end state unknown. So do FHIR bundles that hold a part of a search, resources that are marked as parts, and errors of a
server in place of resources.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from proctor.codecs.fhir_types import RESOURCE_TYPES
from proctor.errors import EvidenceError
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import list_unrecognised
from proctor.evidence.values.access import find_first, list_at, list_texts, read_object, read_text, wrong_kind_error
from proctor.evidence.values.near_miss import is_misspelt
from proctor.model.evidence import (
    CdsState,
    FaxState,
    FhirState,
    Hl7State,
    Json,
    MessagesState,
    State,
    StateChange,
    StateFile,
    StateRequest,
    VoiceState,
    VoiceTurn,
    X12State,
)
from proctor.model.show import shorten, show
from proctor.model.typed import convert_to

_T = TypeVar("_T", StateRequest, StateChange)

FAMILIES = ("fhir", "hl7", "portal", "files", "voice", "x12", "fax", "messages", "cds", "records", "requests", "changes", "systems")

_BUNDLE_DEPTH = 16
"""Bundles inside each other; they are opened by recursion."""


_TYPES_FOLDED = {name.casefold(): name for name in RESOURCE_TYPES}
_CDS = ("services", "invocations", "feedback")
_SECOND_NAMES = {"body": "text", "to_number": "to", "from_number": "from"}
"""Other names of fields of faxes and messages."""


def read_state(value: Json, path: str, unknowns: Unknowns) -> tuple[State, dict[str, Json]]:
    """Read the known families, and return the rest as it is."""
    document = read_object(value, path)
    given = {family: document[family] for family in FAMILIES if document.get(family) is not None}
    state = State(
        fhir=_read_fhir(given["fhir"], f"{path}.fhir", unknowns) if "fhir" in given else None,
        hl7=Hl7State(outbound=sent) if (sent := _read_texts(given.get("hl7"), "outbound", f"{path}.hl7", unknowns)) is not None else None,
        portal=_read_tables(given["portal"], f"{path}.portal", unknowns) if "portal" in given else None,
        files=_read_files(given["files"], f"{path}.files", unknowns) if "files" in given else None,
        voice=_read_voice(given["voice"], f"{path}.voice", unknowns) if "voice" in given else None,
        x12=X12State(responses=sent) if (sent := _read_texts(given.get("x12"), "responses", f"{path}.x12", unknowns)) is not None else None,
        fax=_read_fax(given["fax"], f"{path}.fax", unknowns) if "fax" in given else None,
        messages=_read_messages(given["messages"], f"{path}.messages", unknowns) if "messages" in given else None,
        cds=_read_cds(given["cds"], f"{path}.cds", unknowns) if "cds" in given else None,
        records=_read_tables(given["records"], f"{path}.records", unknowns) if "records" in given else None,
        requests=_read_entries(given["requests"], StateRequest, f"{path}.requests") if "requests" in given else None,
        changes=_read_entries(given["changes"], StateChange, f"{path}.changes") if "changes" in given else None,
        systems=list_texts(given["systems"], f"{path}.systems") if "systems" in given else None,
    )
    _check_names(document, FAMILIES, path, unknowns)
    return state, {key: member for key, member in document.items() if key not in FAMILIES}


def _check_names(entry: dict[str, Any], names: tuple[str, ...], path: str, unknowns: Unknowns) -> None:
    """List unrecognised fields; a near miss of a name that is missing makes the state unknown."""
    for key in list_unrecognised(entry, names):
        # Short names are one letter away from too many others.
        near = [name for name in names if is_misspelt(key, (name,)) and (len(name) > 3 or key.startswith(name))]
        if any(entry.get(name) is None for name in near) and entry[key] is not None:
            unknowns.mark_unrecognised(("state",), f"{show(shorten(key, 60))} at {path} is not read; did you mean {near[0]!r}?")
        else:
            unknowns.ignore(key)


def flatten_resources(values: list[Any], path: str, unknowns: Unknowns | None = None) -> tuple[dict[str, Json], ...]:
    """Return FHIR resources in order, with bundles replaced by their entries."""
    found: list[dict[str, Json]] = []
    bundles: list[tuple[str, dict[str, Json]]] = []
    # A stack instead of recursion: (resource, its place, how many bundles it is in).
    waiting = [(value, f"{path}[{index}]", 0) for index, value in enumerate(values)][::-1]
    while waiting:
        value, at, depth = waiting.pop()
        resource = read_object(value, at)
        if resource.get("resourceType") != "Bundle":
            found.append(resource)
            if unknowns is not None and (why := _find_flaw(resource)):
                unknowns.mark("state", f"{at} {why}")
            continue
        if depth >= _BUNDLE_DEPTH:
            raise wrong_kind_error(at, f"at most {_BUNDLE_DEPTH} bundles inside each other", "one more")
        bundles.append((at, resource))
        inner = [(resource, place, depth + 1) for resource, place in _list_bundle(resource, at, unknowns)]
        waiting.extend(reversed(inner))
    if unknowns is not None and (why := _find_missing_page(bundles)):
        unknowns.mark("state", why)
    return tuple(found)


def _find_flaw(resource: dict[str, Json]) -> str:
    """Return why a resource cannot be read, or is incomplete; empty if it is complete."""
    kind = resource.get("resourceType")
    if not isinstance(kind, str):
        return "has no resourceType"
    if kind not in RESOURCE_TYPES and (meant := _TYPES_FOLDED.get(kind.casefold())):
        return f"has the resourceType {kind!r}; did you mean {meant!r}?"
    if kind == "OperationOutcome" and any(issue.get("severity") in ("error", "fatal") for issue in _list_objects(resource.get("issue"))):
        return "reports an error: resources may not have been captured"
    meta = resource.get("meta")
    if isinstance(meta, dict) and any(tag.get("code") == "SUBSETTED" for tag in _list_objects(cast("Json", meta.get("tag")))):
        return "is marked SUBSETTED: only a part of it was captured"
    return ""


def _find_missing_page(bundles: list[tuple[str, dict[str, Json]]]) -> str:
    """Return why bundles, each with its place, do not hold all results of a search; empty if they do."""
    links = [(at, link) for at, bundle in bundles for link in _list_objects(bundle.get("link"))]
    captured = {link.get("url") for _, link in links if link.get("relation") == "self" and isinstance(link.get("url"), str)}
    for at, link in links:
        if link.get("relation") == "next" and not (isinstance(url := link.get("url"), str) and url in captured):
            return f"{at} is one page of a search, and a next one was not captured"
    # Pages of one search all have its total; included resources are not counted in it.
    counts: dict[int, int] = {}
    for _, bundle in bundles:
        if isinstance(total := bundle.get("total"), int):
            modes = (entry.get("search") for entry in _list_objects(bundle.get("entry")))
            counts[total] = counts.get(total, 0) + sum(not isinstance(mode, dict) or mode.get("mode", "match") == "match" for mode in modes)
    for at, bundle in bundles:
        if isinstance(total := bundle.get("total"), int) and total > counts[total]:
            return f"{at} has {counts[total]} of {total} results of a search"
    return ""


def _list_objects(value: Json) -> list[dict[str, Json]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _list_bundle(bundle: dict[str, Json], at: str, unknowns: Unknowns | None) -> list[tuple[Json, str]]:
    """Return the resources of a bundle and their places."""
    entries = bundle.get("entry")
    for key, value in bundle.items() if entries is None else ():
        if unknowns is not None and any("resource" in entry for entry in _list_objects(value)):
            unknowns.mark_unrecognised(("state",), f"{show(shorten(key, 60))} at {at} is not read; did you mean 'entry'?")
    inner: list[tuple[Json, str]] = []
    for index, given in enumerate(list_at(entries, f"{at}.entry") if entries is not None else ()):
        place = f"{at}.entry[{index}]"
        entry = read_object(given, place)
        if entry.get("resource") is not None:
            inner.append((entry["resource"], f"{place}.resource"))
        # An entry of a response or a history reports what was done instead.
        elif unknowns is not None and entry and "request" not in entry and "response" not in entry:
            unknowns.mark("state", f"{place} has no resource")
    return inner


def _find_content(value: dict[str, Any], key: str, path: str, unknowns: Unknowns) -> Json:
    """Return the content of a family, or None if it was not captured: it is missing, and something else is there."""
    content = value.get(key)
    _check_names(value, (key,), path, unknowns)
    if content is not None or not list_unrecognised(value, (key,)):
        # An object without fields was captured and holds nothing.
        return [] if content is None else content
    return None


def _read_fhir(value: Json, path: str, unknowns: Unknowns) -> FhirState | None:
    if isinstance(value, list):
        return FhirState(resources=flatten_resources(value, path, unknowns))
    document = read_object(value, path)
    if "resourceType" in document:
        return FhirState(resources=flatten_resources([document], path, unknowns))
    resources = _find_content({key: document[key] for key in document if key != "served"}, "resources", path, unknowns)
    if resources is None:
        return None
    if document.get("served") is True:
        rows = list_at(resources, f"{path}.resources")
        return FhirState(resources=tuple(read_object(row, f"{path}.resources[{index}]") for index, row in enumerate(rows)), served=True)
    # One resource or one bundle may be written in place of the list.
    listed = [resources] if isinstance(resources, dict) else list_at(resources, f"{path}.resources")
    return FhirState(resources=flatten_resources(listed, f"{path}.resources", unknowns))


def _read_texts(value: Json, key: str, path: str, unknowns: Unknowns) -> tuple[str, ...] | None:
    if isinstance(value, dict):
        value, path = _find_content(value, key, path, unknowns), f"{path}.{key}"
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    texts = [read_text(entry, f"{path}[{index}]") for index, entry in enumerate(list_at(value, path))]
    if None in texts:
        unknowns.mark("state", f"{path}[{texts.index(None)}] is null")
    return tuple(text for text in texts if text is not None)


def _read_entries(value: Json, kind: type[_T], path: str) -> tuple[_T, ...]:
    """Read requests or changes as a run stores them; one of another form is rejected, as claims would be decided on half of them."""
    entries: list[_T] = []
    for index, entry in enumerate(list_at(value, path)):
        try:
            entries.append(convert_to(read_object(entry, f"{path}[{index}]"), kind))
        except msgspec.ValidationError as error:
            raise EvidenceError(f"{path}[{index}]: {error}") from None
    return tuple(entries)


def _read_fax(value: Json, path: str, unknowns: Unknowns) -> FaxState | None:
    entries = _read_objects(value, "documents", path, unknowns)
    return None if entries is None else FaxState(documents=tuple(map(_use_first_names, entries)))


def _read_messages(value: Json, path: str, unknowns: Unknowns) -> MessagesState | None:
    entries = _read_objects(value, "messages", path, unknowns)
    return None if entries is None else MessagesState(messages=tuple(map(_use_first_names, entries)))


def _read_cds(value: Json, path: str, unknowns: Unknowns) -> CdsState | None:
    if isinstance(value, dict):
        value = {key: value[key] for key in value if key == "cards" or key not in _CDS or value.get("cards") is None}
    entries = _read_objects(value, "cards", path, unknowns)
    return None if entries is None else CdsState(cards=tuple(entries))


def _read_objects(value: Json, name: str, path: str, unknowns: Unknowns) -> list[dict[str, Json]] | None:
    """Return the objects of a family: a list, or an object with the list under this name."""
    if isinstance(value, dict):
        value, path = _find_content(value, name, path, unknowns), f"{path}.{name}"
        if value is None:
            return None
    return [read_object(entry, f"{path}[{index}]") for index, entry in enumerate(list_at(value, path))]


def _use_first_names(entry: dict[str, Json]) -> dict[str, Json]:
    return {first if (first := _SECOND_NAMES.get(name, name)) not in entry else name: member for name, member in entry.items()}


def _read_tables(value: Json, path: str, unknowns: Unknowns) -> dict[str, list[dict[str, Json]]]:
    tables: dict[str, list[dict[str, Json]]] = {}
    for name, rows in read_object(value, path).items():
        at = f"{path}.{name}"
        if isinstance(rows, dict):
            # One row in short; an object of nothing but rows is a portal, one level too deep.
            if rows and all(isinstance(member, dict) or _is_list_of_objects(member) for member in rows.values()):
                unknowns.mark("state", f"{at} holds collections instead of rows")
            tables[name] = [rows]
            continue
        tables[name] = [read_object(row, f"{at}[{index}]") for index, row in enumerate(list_at(rows, at))]
    return tables


def _is_list_of_objects(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def _read_files(value: Json, path: str, unknowns: Unknowns) -> tuple[StateFile, ...]:
    if isinstance(value, dict):
        for name, content in value.items():
            inside = [content] if isinstance(content, dict) else content if _is_list_of_objects(content) else []
            # A name without a dot or a slash, with a structure under it, is more likely a folder than a file of JSON.
            named = "." in name or "/" in name
            if (not named and isinstance(content, (dict, list))) or any(
                "path" in entry or any("." in key or "/" in key for key in entry) for entry in inside
            ):
                unknowns.mark("state", f"{path}.{name} may hold files instead of the content of one")
        return tuple(StateFile(path=name, content=content) for name, content in value.items())
    files: list[StateFile] = []
    for index, entry in enumerate(list_at(value, path)):
        at = f"{path}[{index}]"
        name = read_text(read_object(entry, at).get("path"), f"{at}.path")
        if name is None:
            raise wrong_kind_error(f"{at}.path", "text", None)
        files.append(StateFile(path=name, content=entry.get("content", "")))
    return tuple(files)


def _read_voice(value: Json, path: str, unknowns: Unknowns) -> VoiceState | None:
    if isinstance(value, dict):
        value, path = _find_content(value, "turns", path, unknowns), f"{path}.turns"
        if value is None:
            return None
    turns: list[VoiceTurn] = []
    for index, entry in enumerate(list_at(value, path)):
        at = f"{path}[{index}]"
        turn = read_object(entry, at)
        speaker = read_text(find_first(turn, "speaker", "role"), f"{at}.speaker")
        text = read_text(find_first(turn, "text", "content"), f"{at}.text")
        if text is None or (speaker is None and list_unrecognised(turn, ("text", "content"))):
            unknowns.mark("state", f"{at} has no {'text' if text is None else 'speaker'}")
        turns.append(VoiceTurn(speaker=speaker or "", text=text or ""))
    return VoiceState(turns=tuple(turns))
