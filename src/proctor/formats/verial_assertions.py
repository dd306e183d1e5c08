"""Verial's typed assertions (`assertion.assert`) as specs of our checks.

An assertion that does not parse is not an error of the file: Verial writes a failed criterion that says so, and so does the reader.
Here that is `Malformed`, with the place and the nearest right word. An unknown key counts as malformed, too: a condition that is
left out would let a claim pass that its author narrowed down.

Names are read in snake_case and camelCase. `{entity.field}` in `search`, `correlate_by` and `expected` is replaced from the entity
the criterion is bound to: alone it keeps its JSON type, inside longer text (and in a search) it is written as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from proctor.checks._fields import RowField, TextField
from proctor.checks.fhir import FhirField, FhirResource
from proctor.checks.files import FilePresent
from proctor.checks.hl7 import Hl7Message
from proctor.checks.portal import PortalRecord
from proctor.checks.voice import VoiceSaid
from proctor.checks.x12 import X12Response
from proctor.formats.located import Located, Reading
from proctor.formats.verial_system_claims import SYSTEM_CLAIMS, find_entity_field, read_spec, write_plain_text
from proctor.model.evidence import Json
from proctor.model.missing import MISSING
from proctor.model.show import nearest, show

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLACEHOLDER = re.compile(r"\{entity\.([A-Za-z0-9_.-]{1,200})\}")
_REMARKS = ("assert", "description", "label", "name", "comment", "notes", "id", "simulator_id", "sandbox_id", "version")
_DEEPEST = 100
"""Levels of an expected value; they are walked by recursion."""

Entity = Mapping[str, Json]


class Malformed(Exception):
    """An assertion that no spec can be made of: why, where, and the nearest right word."""

    def __init__(self, message: str, node: Located, near: tuple[str, ...] = (), *, key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.near = near
        self.key = key
        """The key of `node` that is wrong, where the key itself is."""


class Translated(msgspec.Struct, frozen=True):
    """An assertion understood: the check, its spec, and where the fields of the spec were written."""

    check: str
    spec: msgspec.Struct
    fields: dict[str, Located]


def to_snake_case(key: str) -> str:
    """Return `correlateBy` as `correlate_by`."""
    # A longer key is no name of ours and need not be taken apart.
    return _HUMPS.sub("_", key).lower() if len(key) <= 200 else key


def list_members(node: Located) -> dict[str, Located]:
    """Return the members of an object under their names in snake_case."""
    return {to_snake_case(key): value for key, value in node.members()}


def find_kind(text: str) -> str | None:
    """Return the assertion kind a text names, in any casing, or None when it names none."""
    wanted = to_snake_case(text).replace("_", "-")
    return wanted if wanted in KINDS else None


def translate(node: Located, kind: str, entity: Entity | None) -> Translated:
    """Return the spec of an assertion object of a known kind."""
    return KINDS[kind](_Parts(node, kind, entity))


class _Parts:
    """The members of one assertion, asked for by name; what nobody asks for is unknown."""

    def __init__(self, node: Located, kind: str, entity: Entity | None) -> None:
        self.node = node
        self.kind = kind
        self.entity = entity
        self.members = list_members(node)
        self.fields: dict[str, Located] = {}
        self._asked: set[str] = set()

    def finish(self, check: str, spec: msgspec.Struct) -> Translated:
        """Return the result, after a look for keys that nobody asked for."""
        for key, _ in self.node.members():
            if to_snake_case(key) not in self._asked and to_snake_case(key) not in _REMARKS:
                raise Malformed(f"unknown key {key!r} in {self.kind}", self.node, nearest(to_snake_case(key), self._asked), key=key)
        return Translated(check, spec, self.fields)

    def take(self, *names: str) -> Located | None:
        """Return the member under the first of its names; null counts as left out."""
        self._asked.update(names)
        found = [self.members[name] for name in names if name in self.members and self.members[name].value is not None]
        if len(found) > 1:
            raise Malformed(
                f"{' and '.join(name for name in names if name in self.members)} say the same in a {self.kind} assertion", found[1]
            )
        if found:
            self.fields[names[0]] = found[0]
        return found[0] if found else None

    def read_text(self, *names: str, required: bool = False) -> str | None:
        """Return a text; a number is taken for one, as `271` is."""
        node = self.take(*names)
        if node is None:
            if required:
                raise Malformed(f"a {self.kind} assertion needs {names[0]!r}", self.node)
            return None
        value = self.resolve(node)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise Malformed(f"{names[0]}: expected text, found {node.kind}", node)
        return str(value)

    def read_flag(self, name: str) -> bool:
        """Return true or false; a flag that is left out is false."""
        node = self.take(name)
        if node is None:
            return False
        if not isinstance(node.value, bool):
            raise Malformed(f"{name}: expected true or false, found {node.kind}", node)
        return node.value

    def read_texts(self, *names: str) -> tuple[str, ...]:
        """Return a list of texts; a single one is taken for a list."""
        node = self.take(*names)
        if node is None:
            return ()
        entries = list(node.items()) if node.is_list else [node]
        for index, entry in enumerate(entries):
            self.fields[f"{names[0]}.{index}"] = entry
            if not isinstance(entry.value, str):
                raise Malformed(f"{names[0]}: expected texts, found {entry.kind}", entry)
        return tuple(str(self.resolve(entry)) for entry in entries)

    def read_object(self, name: str) -> dict[str, Located]:
        """Return the members of an object; left out it has none."""
        node = self.take(name)
        if node is None:
            return {}
        if not node.is_object:
            raise Malformed(f"{name}: expected an object, found {node.kind}", node)
        found = dict(node.members())
        self.fields.update({f"{name}.{key}": value for key, value in found.items()})
        return found

    def iterate_field_rows(self, *names: str) -> Iterator[tuple[Located, dict[str, Located]]]:
        """Yield the entries of a field list, each with its members."""
        node = self.take(*names)
        if node is None:
            return
        if not node.is_list:
            raise Malformed(f"{names[0]}: expected a list, found {node.kind}", node)
        for index, entry in enumerate(node.items()):
            row = list_members(entry)
            if not entry.is_object:
                raise Malformed(f"{names[0]}[{index}]: expected an object with path and expected, found {entry.kind}", entry)
            for key, _ in entry.members():
                if to_snake_case(key) not in ("path", "expected", "fhirpath"):
                    raise Malformed(f"unknown key {key!r} in a field", entry, nearest(key, ("path", "expected", "fhirpath")), key=key)
            self.fields[f"fields.{index}"] = entry
            self.fields.update({f"fields.{index}.{key}": value for key, value in row.items()})
            yield entry, row

    def iterate_rows(self, *names: str) -> Iterator[tuple[str, Json]]:
        """Yield the path and the expected value of each field."""
        for entry, row in self.iterate_field_rows(*names):
            for key in ("path", "expected"):
                if key not in row:
                    raise Malformed(f"a field needs {key!r}", entry)
            yield _read_path(row["path"]), self.resolve(row["expected"])

    def resolve(self, node: Located) -> Json:
        """Return the value with its entity placeholders replaced."""
        return _replace(node.plain(), node, self.entity, 0)

    def read_correlation(self, aliases: tuple[str, ...] = ()) -> dict[str, Json]:
        """Read `correlate_by`; aliases are read in camelCase, too, every other key as written."""
        return {
            to_snake_case(key) if to_snake_case(key) in aliases else key: self.resolve(value)
            for key, value in self.read_object("correlate_by").items()
        }


def _read_path(node: Located) -> str:
    if not isinstance(node.value, str) or not node.value:
        raise Malformed(f"path: expected text, found {node.kind}", node)
    return node.value


def _replace(value: Json, node: Located, entity: Entity | None, depth: int) -> Json:
    if depth > _DEEPEST:
        raise Malformed(f"nested more than {_DEEPEST} deep", node)
    if isinstance(value, dict):
        return {key: _replace(entry, node, entity, depth + 1) for key, entry in value.items()}
    if isinstance(value, list):
        return [_replace(entry, node, entity, depth + 1) for entry in value]
    if not isinstance(value, str) or "{entity." not in value:
        return value
    whole = _PLACEHOLDER.fullmatch(value)
    if whole is not None:
        return _read_entity_field(whole.group(1), node, entity)
    return _PLACEHOLDER.sub(lambda match: write_plain_text(_read_entity_field(match.group(1), node, entity)), value)


def _read_entity_field(name: str, node: Located, entity: Entity | None) -> Json:
    if entity is None:
        raise Malformed(f"{{entity.{name}}}: the criterion is bound to no entity", node)
    value = find_entity_field(entity, name)
    if value is MISSING:
        raise Malformed(f"{{entity.{name}}}: the entity has no field {name!r}", node, nearest(name, entity))
    return value


def _translate_fhir(parts: _Parts) -> Translated:
    fields: list[FhirField] = []
    for entry, row in parts.iterate_field_rows("fields", "assertions"):
        if "expected" not in row and "fhirpath" not in row:
            raise Malformed("a field needs 'expected'", entry)
        fields.append(
            FhirField(
                path=_read_path(row["path"]) if "path" in row else None,
                fhirpath=_read_path(row["fhirpath"]) if "fhirpath" in row else None,
                expected=parts.resolve(row["expected"]) if "expected" in row else msgspec.UNSET,
            )
        )
    match = parts.take("match")
    if match is not None and match.value not in ("first", "any", "all", "exactly_one"):
        raise Malformed(f"match: expected first, any, all or exactly_one, found {show(match.plain())}", match)
    count = parts.take("count")
    if count is not None and (isinstance(count.value, bool) or not isinstance(count.value, int)):
        raise Malformed(f"count: expected a whole number, found {count.kind}", count)
    search: dict[str, str] = {}
    for key, node in parts.read_object("search").items():
        value = parts.resolve(node)
        if value is None or isinstance(value, (dict, list)):
            raise Malformed(f"search.{key}: expected text, found {node.kind}", node)
        search[key] = write_plain_text(value)
    return parts.finish(
        "fhir_resource",
        FhirResource(
            resource_type=parts.read_text("resource_type", required=True) or "",
            search=search,
            fields=tuple(fields),
            match=match.value if match is not None else "first",
            count=count.value if count is not None else None,
            absent=parts.read_flag("absent"),
        ),
    )


def _translate_hl7(parts: _Parts) -> Translated:
    return parts.finish(
        "hl7_message",
        Hl7Message(
            correlate_by=parts.read_correlation(("message_type", "trigger_event", "control_id")),
            fields=tuple(TextField(path=path, expected=expected) for path, expected in parts.iterate_rows("fields", "assertions")),
            absent=parts.read_flag("absent"),
        ),
    )


def _translate_portal(parts: _Parts) -> Translated:
    correlation = parts.read_correlation(("resource", "key", "value"))
    for key in correlation:
        if key not in ("resource", "key", "value"):
            near = nearest(key, ("resource", "key", "value"))
            raise Malformed(f"unknown key {key!r} in correlate_by", parts.fields["correlate_by"], near, key=key)
    resource, key = correlation.get("resource"), correlation.get("key")
    if not isinstance(resource, str) or not resource:
        raise Malformed("correlate_by needs 'resource', the name of a collection", parts.fields.get("correlate_by", parts.node))
    if key is not None and not isinstance(key, str):
        raise Malformed("correlate_by.key: expected the name of a column", parts.fields["correlate_by.key"])
    value: Json = correlation.get("value", msgspec.UNSET)
    if value is msgspec.UNSET and key is not None and parts.entity is not None:
        found = find_entity_field(parts.entity, key)
        value = msgspec.UNSET if found is MISSING else found
    for name in ("resource", "key", "value"):
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


def _translate_file(parts: _Parts) -> Translated:
    return parts.finish(
        "file_present",
        FilePresent(
            path=parts.read_text("path", "path_pattern", "pattern", required=True) or "",
            fields=tuple(
                RowField(path=path, expected=expected) for path, expected in parts.iterate_rows("fields", "json_fields", "assertions")
            ),
            absent=parts.read_flag("absent"),
        ),
    )


def _translate_voice(parts: _Parts) -> Translated:
    contains = parts.read_texts("contains")
    forbidden = parts.read_texts("not_contains", "must_not_contain", "forbidden")
    match = parts.take("match")
    if match is not None and match.value not in ("auto", "exact", "normalized", "semantic"):
        raise Malformed(f"match: expected auto, exact, normalized or semantic, found {show(match.plain())}", match)
    if parts.read_flag("absent"):
        # Nothing may correlate: what would have to be said must not be.
        contains, forbidden = (), (*contains, *forbidden)
    return parts.finish(
        "voice_said",
        VoiceSaid(
            speaker=parts.read_text("speaker"),
            contains=contains,
            not_contains=forbidden,
            match=match.value if match is not None else "auto",
        ),
    )


def _translate_x12(parts: _Parts) -> Translated:
    return parts.finish(
        "x12_response",
        X12Response(
            transaction=parts.read_text("transaction", "transaction_set"),
            correlate_by=parts.read_correlation(),
            fields=tuple(TextField(path=path, expected=expected) for path, expected in parts.iterate_rows("fields", "assertions")),
            absent=parts.read_flag("absent"),
        ),
    )


def _translate_system_claim(parts: _Parts) -> Translated:
    check, spec = SYSTEM_CLAIMS[parts.kind]
    try:
        return parts.finish(check, read_spec(parts, spec))
    except ValueError as error:
        raise Malformed(f"{parts.kind}: {error}", parts.node) from None


KINDS: dict[str, Callable[[_Parts], Translated]] = {
    "fhir-resource-state": _translate_fhir,
    "hl7-structural": _translate_hl7,
    "portal-state-match": _translate_portal,
    "sftp-file-present": _translate_file,
    "voice-transcript": _translate_voice,
    "x12-response": _translate_x12,
    **dict.fromkeys(SYSTEM_CLAIMS, _translate_system_claim),
}
"""The kinds of assertion there are."""


def report(reading: Reading, problem: Malformed) -> None:
    """Warn about an assertion that will fail because it is not understood."""
    message = f"{problem.message}; the criterion will fail"
    if problem.key is not None:
        reading.warn_at_key(problem.node, problem.key, message, nearest=problem.near, code="unsupported_assertion")
    else:
        reading.warn(problem.node, message, nearest=problem.near, code="unsupported_assertion")


def decode_text(text: str, node: Located) -> Located:
    """Return the JSON inside a text, every value placed where the text stands."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Malformed(f"the assertion is text that begins like JSON, but is none: {error}", node) from None
    return _place_value(value, node, 0)


def _place_value(value: Json, node: Located, depth: int) -> Located:
    if depth > _DEEPEST:
        raise Malformed(f"the assertion is nested more than {_DEEPEST} deep", node)
    inner: Json = value
    if isinstance(value, dict):
        inner = {key: _place_value(entry, node, depth + 1) for key, entry in value.items()}
    elif isinstance(value, list):
        inner = [_place_value(entry, node, depth + 1) for entry in value]
    return Located(value=inner, line=node.line, column=node.column, path=node.path, width=node.width)
