"""One harmless field anywhere changes no account.

Insert one unrecognised field into any object of any recorded format and read again: every part of the evidence is the same, and so
is what is unknown. Only the list of ignored fields, notes and metadata may differ. `PROCTOR_HARMLESS_PLACES` sets how many places are
tried; they are spread evenly over formats and documents with a fixed seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from proctor.model.evidence import Evidence
from tests.evidence.harmless import ATTRIBUTES, NAMES, VALUES, Document, Insertion, Place, documents, is_attribute, names_at
from tests.evidence.mutants import JSON

PLACES = int(os.environ.get("PROCTOR_HARMLESS_PLACES", "3000"))
FORMATS = tuple(documents())
SHOWN = 10
PARTS = ("tool_calls", "text", "body", "input", "usage", "turns", "nodes", "state", "error")


def read(value: Any, read_as: str | None) -> list[Evidence] | str:
    """The evidence of a document, or why it is rejected."""
    try:
        return read_document(value, format=read_as)
    except EvidenceError as error:
        return error.message


def parts_of(evidence: Evidence) -> dict[str, Any]:
    """Every part of an evidence, and its unknown parts."""
    found = {part: msgspec.to_builtins(getattr(evidence, part)) for part in PARTS}
    for entry in (*(found["turns"] or ()), *(found["nodes"] or ())):
        for key in ("metadata", "notes"):
            entry.pop(key, None)
    return found | {"unknown": dict(evidence.account.unknown) if evidence.account is not None else {}}


def _without(value: Any, name: str) -> Any:
    if isinstance(value, str) and value.endswith("}"):
        # An object as text: a JSON answer, or the body of an error.
        prefix, brace, written = value.partition("{")
        with contextlib.suppress(ValueError):
            return prefix, _without(json.loads(brace + written), name)
        return value
    if isinstance(value, dict):
        return {key: _without(member, name) for key, member in value.items() if key != name}
    return [_without(member, name) for member in value] if isinstance(value, (list, tuple)) else value


@cache
def prepare(document: Document) -> tuple[Any, list[dict[str, Any]], list[list[Place]]]:
    """A document, its parts, and its places grouped by their form; no groups for a document that is not read."""
    value = document.load()
    found = read(value, document.read_as)
    if isinstance(found, str) or not found:
        return value, [], []
    groups: dict[tuple[Any, ...], list[Place]] = {}
    for place in document.find_places(value):
        form = tuple("*" if isinstance(step, int) or "runData" in place[index - 1 : index] else step for index, step in enumerate(place))
        groups.setdefault(form, []).append(place)
    return value, [parts_of(evidence) for evidence in found], list(groups.values())


def insertions(format: str) -> Iterator[tuple[Document, Insertion]]:
    """The share of a format: its documents in turns, and in each of them every form of places alike."""
    share = PLACES // len(FORMATS) + (FORMATS.index(format) < PLACES % len(FORMATS))
    draw = random.Random(format)
    waiting = draw.sample(documents()[format], len(documents()[format]))
    for _ in range(share):
        document = next(document for document in iter(lambda: waiting.pop(0), None) if prepare(document)[2])
        waiting.append(document)
        value, _, groups = prepare(document)
        place = draw.choice(draw.choice(groups))
        names = [name for name in (ATTRIBUTES + NAMES if is_attribute(place) else NAMES) if name not in names_at(value, place)]
        inserted = Insertion(place, draw.choice(names), draw.choice(VALUES))
        if not (isinstance(inserted.value, dict) and is_call_without_arguments(value, place)):
            yield document, inserted


def is_call_without_arguments(value: Any, place: Place) -> bool:
    """Return whether a place is a call without recorded arguments: an object next to its name may be the arguments."""
    for step in place:
        value = json.loads(value) if step == JSON else value[step]
    names = isinstance(value, dict) and not {"name", "tool", "toolName"}.isdisjoint(value)
    return names and {"arguments", "args", "input", "parameters", "toolInput", "function"}.isdisjoint(value)


def find_changes(document: Document, insertion: Insertion) -> list[str]:
    """The differences after an insertion, except the inserted field in parts that are passed on unchanged."""
    value, before, _ = prepare(document)
    found = read(insertion.into(value), document.read_as)
    if isinstance(found, str):
        return [f"rejected: {found.splitlines()[0]}"]
    after = [parts_of(evidence) for evidence in found]
    if len(before) != len(after):
        return [f"{len(before)} runs became {len(after)}"]
    return [
        f"{part}: {old[part]!r:.150} became {new[part]!r:.150}"
        for old, new in zip(before, after, strict=True)
        for part in old
        if old[part] != new[part] and _without(old[part], insertion.name) != _without(new[part], insertion.name)
    ]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.timeout(60 + PLACES // 50)
def test_a_harmless_field_changes_no_evidence_and_makes_nothing_unknown(format: str) -> None:
    tried, wrong = 0, []
    for document, insertion in insertions(format):
        tried += 1
        if changes := find_changes(document, insertion):
            wrong.append(f"{document.format}, {document.name}: {insertion}\n    " + "\n    ".join(changes[:3]))
    assert not wrong, f"{len(wrong)} of {tried} places\n" + "\n".join(wrong[:SHOWN])


def test_the_places_are_spread_over_all_formats() -> None:
    assert len(FORMATS) >= 40
    assert len(set(NAMES)) >= 25


@pytest.mark.parametrize(
    "document",
    [
        {"text": "hi", "tool_calls": [], "cache_hint": 5},
        {"text": "hi", "tool_calls": [{"name": "lookup", "arguments": {}, "cache_hint": 5}]},
        {"turns": [{"input": "hi", "text": "hello", "tool_calls": [], "cache_hint": 5}]},
        {"data": {"text": "hi", "tool_calls": []}, "cache_hint": 5},
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}], "cache_hint": 5},
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello", "cache_hint": 5}],
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "text", "text": "hello", "cache_hint": 5}]}],
    ],
    ids=["root", "call", "turn", "mibo", "envelope", "message", "block"],
)
def test_an_ignored_field_is_listed(document: Any) -> None:
    [evidence] = read_document(document)
    ignored: tuple[str, ...] = getattr(evidence.account, "ignored", ())
    assert any("cache_hint" in entry for entry in ignored)
