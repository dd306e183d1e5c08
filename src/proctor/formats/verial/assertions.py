"""Verial's typed assertions (`assertion.assert`) as specs of our checks.

They are read in camelCase and snake_case, and shown in snake_case by Verial's REST API. Only names of the assertion language are converted.
Search parameters, correlation paths, columns and expected values belong to the author and to the systems under test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from proctor.checks.shared.fields import RowField, TextField
from proctor.checks.systems.effects import RequestMade, RequestNotMade, Unchanged
from proctor.checks.systems.entries import CdsCard, FaxDocument, MessageSent
from proctor.checks.systems.fhir import FhirField, FhirResource
from proctor.checks.systems.files import FilePresent
from proctor.checks.systems.portal import PortalRecord
from proctor.checks.systems.records import RecordsMatch
from proctor.checks.systems.segments import Hl7Message, X12Response
from proctor.checks.systems.voice import VoiceSaid
from proctor.formats.text.located import Located
from proctor.formats.verial.parts import Entity, Malformed, Parts, Translated, find_entity_field, read_path, to_snake_case
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, write_as_text
from proctor.model.show import nearest
from proctor.model.typed import convert_to

# --- Verial's assertions about what was done to simulated systems

SYSTEM_CLAIMS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "unchanged": ("unchanged", Unchanged),
    "request-made": ("request_made", RequestMade),
    "request-not-made": ("request_not_made", RequestNotMade),
}
"""Kinds of assertion about systems, each with its check and spec."""

_LISTS = ("besides", "allowed", "then")
"""Members that are lists; a single value is a list of one."""


def read_spec(parts: Parts, spec: type[msgspec.Struct]) -> msgspec.Struct:
    """Return the spec of an assertion. Raises `ValueError` for a member of the wrong form."""
    fields: dict[str, Json] = {}
    for name in spec.__struct_fields__:
        node = parts.take(name)
        if node is not None:
            value = parts.resolve(node)
            if name in _LISTS:
                value = [_name_members(entry) for entry in (cast("list[Json]", value) if isinstance(value, list) else [value])]
            fields[name] = value
    try:
        return convert_to(fields, spec)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _name_members(entry: Json) -> Json:
    if not isinstance(entry, dict):
        return entry
    members: dict[str, Json] = {}
    for key, value in cast("dict[str, Json]", entry).items():
        if to_snake_case(key) in members:
            raise ValueError(f"{to_snake_case(key)!r} and {key!r} are two spellings of one key")
        members[to_snake_case(key)] = value
    return members


_HL7_WORDS = ("message_type", "trigger_event", "control_id")
_PORTAL_WORDS = ("resource", "key", "value")
_MATCHES = ("first", "any", "all", "exactly_one")
_FORBIDDEN = ("not_contains", "must_not_contain", "forbidden")
CORRELATION_WORDS = frozenset((*_HL7_WORDS, *_PORTAL_WORDS))
"""Keys of `correlate_by` other than paths; also read in camelCase."""


def find_kind(text: str) -> str | None:
    """Return the assertion kind that a text names, in any casing, or None."""
    kind_name = to_snake_case(text).replace("_", "-")
    return kind_name if kind_name in KINDS else None


def translate(node: Located, kind: str, entity: Entity | None) -> Translated:
    """Return the spec of an assertion object of a known kind."""
    return KINDS[kind](Parts(node, kind, entity))


def _read_fhir_fields(parts: Parts) -> tuple[FhirField, ...]:
    fields: list[FhirField] = []
    for entry, row in parts.iterate_field_rows("fields", "assertions"):
        if "expected" not in row and "fhirpath" not in row:
            raise Malformed("a field needs 'expected'", entry)
        paths = {name: read_path(row[name]) for name in ("path", "fhirpath") if name in row}
        fields.append(FhirField(**paths, expected=parts.resolve(row["expected"]) if "expected" in row else msgspec.UNSET))
    return tuple(fields)


def _read_search(parts: Parts) -> dict[str, str]:
    search: dict[str, str] = {}
    for key, node in parts.read_object("search").items():
        value = parts.resolve(node)
        if value is None or isinstance(value, (dict, list)):
            raise Malformed(f"search.{key}: expected text, found {node.kind}", node)
        search[key] = write_as_text(value)
    return search


def _translate_portal(parts: Parts) -> Translated:
    correlation = parts.read_correlation(_PORTAL_WORDS)
    for key in correlation:
        if key not in _PORTAL_WORDS:
            near = nearest(key, _PORTAL_WORDS)
            raise Malformed(f"unknown key {key!r} in correlate_by", parts.fields["correlate_by"], near, key=key)
    resource, key = correlation.get("resource"), correlation.get("key")
    if not isinstance(resource, str) or not resource:
        raise Malformed("correlate_by needs 'resource', the name of a collection", parts.fields.get("correlate_by", parts.node))
    if key is not None and not isinstance(key, str):
        raise Malformed("correlate_by.key: expected the name of a column", parts.fields["correlate_by.key"])
    value: Json = correlation.get("value", msgspec.UNSET)
    if value is msgspec.UNSET and key is not None and parts.entity is not None:
        field_value = find_entity_field(parts.entity, key)
        value = msgspec.UNSET if field_value is MISSING else field_value
    for name in _PORTAL_WORDS:
        if f"correlate_by.{name}" in parts.fields:
            parts.fields[name] = parts.fields[f"correlate_by.{name}"]
    return parts.finish(
        "portal_record",
        PortalRecord(
            resource=resource,
            key=key,
            value=value,
            fields=tuple(RowField(path=path, expected=expected) for path, expected in parts.iterate_rows("assertions", "fields")),
            absent=parts.read_flag("absent"),
        ),
    )


_READERS: dict[str, Callable[[Parts], Json]] = {
    "absent": lambda parts: parts.read_flag("absent"),
    "contains": lambda parts: parts.read_texts("contains"),
    "not_contains": lambda parts: parts.read_texts(*_FORBIDDEN),
    "sender": lambda parts: parts.read_value("from", "sender"),
    "direction": lambda parts: parts.read_word("direction", "outbound", "inbound", "any"),
    "match": lambda parts: parts.read_word("match", *_MATCHES),
    "count": lambda parts: parts.read_count("count"),
    "where": lambda parts: {key: parts.resolve(value) for key, value in parts.read_object("where").items()},
    "path": lambda parts: parts.read_text("path", "path_pattern", "pattern", required=True),
    "resource_type": lambda parts: parts.read_text("resource_type", required=True),
    "collection": lambda parts: parts.read_text("collection", required=True),
    "transaction": lambda parts: parts.read_text("transaction", "transaction_set"),
    **{name: lambda parts, name=name: parts.read_text(name) for name in ("channel", "hook", "service")},
}
"""How a field of a spec is read; other fields are values or matchers."""


class ByFields(msgspec.Struct, frozen=True):
    """Reads a kind of assertion whose members are the fields of one spec."""

    check: str
    spec: type[msgspec.Struct]
    row: type[RowField] | type[TextField] = RowField
    words: tuple[str, ...] = ()
    """Keys of `correlate_by` other than paths."""
    readers: dict[str, Callable[[Parts], Json]] = {}
    """How fields are read that differ from other kinds."""

    def __call__(self, parts: Parts) -> Translated:
        """Return the spec of an assertion."""
        fields: dict[str, Json] = {}
        readers = {**_READERS, **self.readers}
        for name in self.spec.__struct_fields__:
            if name in readers:
                fields[name] = readers[name](parts)
            elif name == "fields":
                names = ("fields", "json_fields", "assertions") if self.check == "file_present" else ("fields", "assertions")
                fields[name] = tuple(self.row(path=path, expected=expected) for path, expected in parts.iterate_rows(*names))
            elif name == "correlate_by":
                fields[name] = parts.read_correlation(self.words)
            else:
                fields[name] = parts.read_value(name)
        return parts.finish(self.check, self.spec(**{name: value for name, value in fields.items() if value is not None}))


def _translate_system_claim(parts: Parts) -> Translated:
    check, spec = SYSTEM_CLAIMS[parts.kind]
    try:
        return parts.finish(check, read_spec(parts, spec))
    except ValueError as error:
        raise Malformed(f"{parts.kind}: {error}", parts.node) from None


BY_FIELDS: dict[str, ByFields] = {
    "fhir-resource-state": ByFields("fhir_resource", FhirResource, readers={"fields": _read_fhir_fields, "search": _read_search}),
    "voice-transcript": ByFields(
        "voice_said",
        VoiceSaid,
        readers={
            "speaker": lambda parts: parts.read_text("speaker"),
            "match": lambda parts: parts.read_word("match", "auto", "exact", "normalized", "semantic"),
            # With `absent`, no call may correlate: required phrases become forbidden.
            "contains": lambda parts: () if parts.read_flag("absent") else parts.read_texts("contains"),
            "not_contains": lambda parts: (
                *(parts.read_texts("contains") if parts.read_flag("absent") else ()),
                *parts.read_texts(*_FORBIDDEN),
            ),
        },
    ),
    "hl7-structural": ByFields("hl7_message", Hl7Message, TextField, _HL7_WORDS),
    "sftp-file-present": ByFields("file_present", FilePresent),
    "x12-response": ByFields("x12_response", X12Response, TextField),
    "fax-document": ByFields("fax_document", FaxDocument),
    "message-sent": ByFields("message_sent", MessageSent),
    "cds-card": ByFields("cds_card", CdsCard),
    "records-match": ByFields("records_match", RecordsMatch),
}
KINDS: dict[str, Callable[[Parts], Translated]] = {
    "portal-state-match": _translate_portal,
    **BY_FIELDS,
    **dict.fromkeys(SYSTEM_CLAIMS, _translate_system_claim),
}
"""All kinds of assertion: Verial's six, and ours for systems that have none in Verial."""


_ROWS = frozenset(("fields", "assertions", "json_fields"))


def spell_in_snake_case(assertion: Mapping[str, Json]) -> dict[str, Json]:
    """Return an assertion with its names in snake_case."""
    return {to_snake_case(name): _spell_member(to_snake_case(name), member) for name, member in assertion.items()}


def _spell_member(name: str, member: Json) -> Json:
    if name == "correlate_by" and isinstance(member, dict):
        stated = cast(dict[str, Json], member)
        return {to_snake_case(key) if to_snake_case(key) in CORRELATION_WORDS else key: value for key, value in stated.items()}
    if name in _ROWS and isinstance(member, list):
        rows = cast(list[Json], member)
        return [{to_snake_case(key): value for key, value in row.items()} if isinstance(row, dict) else row for row in rows]
    return member
