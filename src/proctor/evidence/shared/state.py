"""The end state of the systems an agent worked in, in full and in the short forms people write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from proctor.codecs.fhir_matching import RESOURCE_TYPES
from proctor.codecs.transcript import read_call
from proctor.errors import EvidenceError
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import list_unrecognised
from proctor.evidence.values.access import find_first, list_at, list_texts, read_object, read_text, wrong_kind_error
from proctor.model import evidence as model
from proctor.model.evidence import Json, State
from proctor.model.show import shorten, show
from proctor.model.typed import convert_to

_TYPES_FOLDED = {name.casefold(): name for name in RESOURCE_TYPES}
_SECOND_NAMES = {"body": "text", "to_number": "to", "from_number": "from"}
_Reader = Callable[[Json, str, Unknowns], Any]


def read_state(value: Json, path: str, unknowns: Unknowns) -> tuple[State, dict[str, Json]]:
    """Read the known families, and return the others unchanged."""
    document = read_object(value, path)
    families = {
        family: _READERS[family](document[family], f"{path}.{family}", unknowns) for family in FAMILIES if document.get(family) is not None
    }
    others = {key: member for key, member in document.items() if key not in FAMILIES}
    for key in list_unrecognised(others, ()):
        unknowns.ignore(key)
    return State(**families), others


def _flatten_resource(value: Json, at: str, unknowns: Unknowns, bundles: list[tuple[str, dict[str, Json]]]) -> Iterator[dict[str, Json]]:
    """Yield FHIR resources in order, with bundles replaced by their entries; `bundles` are those above."""
    resource = read_object(value, at)
    if resource.get("resourceType") != "Bundle":
        yield resource
        if why := _find_flaw(resource):
            unknowns.mark("state", f"{at} {why}")
        return
    bundles.append((at, resource))
    entries = resource.get("entry")
    for key, member in resource.items() if entries is None else ():
        if any("resource" in entry for entry in _list_objects(member)):
            unknowns.mark_unrecognised(("state",), f"{show(shorten(key, 60))} at {at} is not read; did you mean 'entry'?")
    for index, given in enumerate(list_at(entries, f"{at}.entry") if entries is not None else ()):
        place = f"{at}.entry[{index}]"
        entry = read_object(given, place)
        if entry.get("resource") is not None:
            yield from _flatten_resource(entry["resource"], f"{place}.resource", unknowns, bundles)
        # An entry of a response or a history reports an operation instead.
        elif entry and "request" not in entry and "response" not in entry:
            unknowns.mark("state", f"{place} has no resource")


def _find_flaw(resource: dict[str, Json]) -> str:
    """Return why a resource is unreadable or incomplete, or an empty text if it is complete."""
    kind, meta = resource.get("resourceType"), resource.get("meta")
    if not isinstance(kind, str):
        return "has no resourceType"
    if kind not in RESOURCE_TYPES and (meant := _TYPES_FOLDED.get(kind.casefold())):
        return f"has the resourceType {kind!r}; did you mean {meant!r}?"
    if kind == "OperationOutcome" and any(issue.get("severity") in ("error", "fatal") for issue in _list_objects(resource.get("issue"))):
        return "reports an error: resources may not have been captured"
    tags = _list_objects(cast("Json", meta.get("tag"))) if isinstance(meta, dict) else []
    return "is marked SUBSETTED: only a part of it was captured" if any(tag.get("code") == "SUBSETTED" for tag in tags) else ""


def _find_missing_page(bundles: list[tuple[str, dict[str, Json]]]) -> str:
    """Return why bundles (given with their paths) lack results of a search, or an empty text if they are complete."""
    links = [(at, link.get("relation"), link.get("url")) for at, bundle in bundles for link in _list_objects(bundle.get("link"))]
    captured = [url for _, relation, url in links if relation == "self" and isinstance(url, str)]
    for at, relation, url in links:
        if relation == "next" and url not in captured:
            return f"{at} is one page of a search, and a next one was not captured"
    # All pages of a search have its total, which does not count included resources.
    counts: dict[int, int] = {}
    for _, bundle in bundles:
        if isinstance(total := bundle.get("total"), int):
            modes = (entry.get("search") for entry in _list_objects(bundle.get("entry")))
            counts[total] = counts.get(total, 0) + sum(not isinstance(mode, dict) or mode.get("mode", "match") == "match" for mode in modes)
    lacking = ((at, total) for at, bundle in bundles if isinstance(total := bundle.get("total"), int) and total > counts[total])
    return next((f"{at} has {counts[total]} of {total} results of a search" for at, total in lacking), "")


def _list_objects(value: Json) -> list[dict[str, Json]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _find_content(value: dict[str, Any], key: str) -> Json:
    """Return the content of a family, or None if it was not captured: its key is missing, and others are present."""
    # An empty object was captured and has no content.
    return value.get(key) if value.get(key) is not None or list_unrecognised(value, (key,)) else []


def _read_fhir(value: Json, path: str, unknowns: Unknowns) -> model.FhirState | None:
    served = False
    if isinstance(value, dict) and "resourceType" not in value:
        served = value.get("served") is True
        value = _find_content({key: value[key] for key in value if key != "served"}, "resources")
        path = f"{path}.resources"
    if value is None:
        return None
    # One resource or one bundle may be written in place of the list.
    listed = [value] if isinstance(value, dict) else list_at(value, path)
    if served:
        return model.FhirState(resources=tuple(_read_rows(listed, path)), served=True)
    bundles: list[tuple[str, dict[str, Json]]] = []
    resources = [one for index, entry in enumerate(listed) for one in _flatten_resource(entry, f"{path}[{index}]", unknowns, bundles)]
    if why := _find_missing_page(bundles):
        unknowns.mark("state", why)
    return model.FhirState(resources=tuple(resources))


def _read_rows(value: Json, path: str) -> list[dict[str, Json]]:
    return [read_object(row, f"{path}[{index}]") for index, row in enumerate(list_at(value, path))]


def _read_family(kind: Callable[..., Any], key: str, read: _Reader) -> _Reader:
    """Return the reader of a family: a list, or an object with the list under this key."""

    def read_family(value: Json, path: str, unknowns: Unknowns) -> Any:
        if isinstance(value, dict):
            value, path = _find_content(value, key), f"{path}.{key}"
        return None if value is None else kind(**{key: tuple(read(value, path, unknowns))})

    return read_family


def _read_texts(value: Json, path: str, unknowns: Unknowns) -> list[str]:
    listed = [value] if isinstance(value, str) else list_at(value, path)
    texts = [read_text(entry, f"{path}[{index}]") for index, entry in enumerate(listed)]
    if None in texts:
        unknowns.mark("state", f"{path}[{texts.index(None)}] is null")
    return [text for text in texts if text is not None]


def _convert_rows(value: Json, path: str, kind: type[Any]) -> tuple[Any, ...]:
    """Return requests or changes as a run stores them; others are rejected, because the data would be incomplete."""
    try:
        return tuple(convert_to(row, kind) for row in _read_rows(value, path))
    except msgspec.ValidationError as error:
        raise EvidenceError(f"{path}: {error}") from None


def _read_renamed(value: Json, path: str, unknowns: Unknowns) -> list[dict[str, Json]]:
    rows = _read_rows(value, path)
    return [{first if (first := _SECOND_NAMES.get(key, key)) not in row else key: row[key] for key in row} for row in rows]


def _read_tables(value: Json, path: str, unknowns: Unknowns) -> dict[str, list[dict[str, Json]]]:
    tables = read_object(value, path)
    for name, rows in tables.items():
        # One row in short; an object of nothing but rows is a portal, one level too deep.
        if isinstance(rows, dict) and rows and all(isinstance(row, dict) or _is_list_of_objects(row) for row in rows.values()):
            unknowns.mark("state", f"{path}.{name} holds collections instead of rows")
    return {name: [rows] if isinstance(rows, dict) else _read_rows(rows, f"{path}.{name}") for name, rows in tables.items()}


def _is_list_of_objects(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def _read_files(value: Json, path: str, unknowns: Unknowns) -> tuple[model.StateFile, ...]:
    if isinstance(value, dict):
        for name, content in value.items():
            inside = [content] if isinstance(content, dict) else content if _is_list_of_objects(content) else []
            # A name without a dot or a slash and with an object as value is more likely a folder than a JSON file.
            is_folder = "." not in name and "/" not in name and isinstance(content, (dict, list))
            if is_folder or any("path" in entry or any("." in key or "/" in key for key in entry) for entry in inside):
                unknowns.mark("state", f"{path}.{name} may hold files instead of the content of one")
        return tuple(model.StateFile(path=name, content=content) for name, content in value.items())
    rows = _read_rows(value, path)
    for index, entry in enumerate(rows):
        if not isinstance(entry.get("path"), str):
            raise wrong_kind_error(f"{path}[{index}].path", "text", entry.get("path"))
    return tuple(model.StateFile(path=entry["path"], content=entry.get("content", "")) for entry in rows)


def _read_voice(value: Json, path: str, unknowns: Unknowns) -> model.VoiceState | None:
    """Read turns, or `calls` that have their turns in them; other fields of an object apply to all of its turns."""
    if isinstance(value, dict) and isinstance(value.get("calls"), list) and value.get("turns") is None:
        rows = enumerate(_read_rows(value["calls"], f"{path}.calls"))
        calls = [_read_voice(call, f"{path}.calls[{index}]", unknowns) for index, call in rows]
        return model.VoiceState(turns=tuple(turn for call in calls if call is not None for turn in call.turns))
    around: dict[str, Json] = {}
    if isinstance(value, dict):
        around = value if "id" not in value else {"call": value["id"], **value}
        is_call = any(read_call(value).values())
        value, path = value.get("turns") if is_call else _find_content(value, "turns"), f"{path}.turns"
        if value is None and not is_call:
            return None
    turns: list[model.VoiceTurn] = []
    for index, turn in enumerate(_read_rows(value or [], path)):
        at = f"{path}[{index}]"
        speaker = read_text(find_first(turn, "speaker", "role"), f"{at}.speaker")
        text = read_text(find_first(turn, "text", "content"), f"{at}.text")
        if text is None or (speaker is None and list_unrecognised(turn, ("text", "content"))):
            unknowns.mark("state", f"{at} has no {'text' if text is None else 'speaker'}")
        turns.append(model.VoiceTurn(speaker=speaker or "", text=text or "", **read_call(turn, around)))
    return model.VoiceState(turns=tuple(turns))


_READERS: dict[str, _Reader] = {
    "fhir": _read_fhir,
    "hl7": _read_family(model.Hl7State, "outbound", _read_texts),
    "portal": _read_tables,
    "files": _read_files,
    "voice": _read_voice,
    "x12": _read_family(model.X12State, "responses", _read_texts),
    "fax": _read_family(model.FaxState, "documents", _read_renamed),
    "messages": _read_family(model.MessagesState, "messages", _read_renamed),
    "cds": _read_family(model.CdsState, "cards", lambda value, path, unknowns: _read_rows(value, path)),
    "records": _read_tables,
    "requests": lambda value, path, unknowns: _convert_rows(value, path, model.StateRequest),
    "changes": lambda value, path, unknowns: _convert_rows(value, path, model.StateChange),
    "systems": lambda value, path, unknowns: list_texts(value, path),
}
FAMILIES = tuple(_READERS)
