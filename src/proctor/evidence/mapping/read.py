"""Reads a record by a mapping: the paths select the parts, and the result is read as plain evidence.

A path without a match, or with a value of the wrong kind, makes its part unknown, unless the author declares it complete. Of several values
`input` is the first, all others are the last; token counts and durations are added. What is not mapped is read under its usual name.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import msgspec

from proctor.errors import EvidenceError, SpecError
from proctor.evidence.mapping.lookup import (
    Holder,
    Position,
    explain_missing,
    find_list,
    find_position,
    find_root_key,
    find_summands,
    starts_at_list,
)
from proctor.evidence.mapping.parts import CallReader, TurnReader
from proctor.evidence.plain.record import ANSWERS, CALLS, INPUTS, read_plain
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import STATUS_FIELDS, find_failure, is_error, to_snake_case
from proctor.evidence.unknowns.markers import find_marker
from proctor.evidence.unknowns.unrecognised import HARMLESS
from proctor.evidence.values.access import read_number
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import Account
from proctor.model.evidence import Evidence, Json, Usage
from proctor.model.mapping import EvidenceMap, list_paths
from proctor.model.show import describe_value, shorten
from proctor.paths.json_path import CompiledPath, compile_path

READER = "mapping"
"""The reader that results name."""
_OTHERS = frozenset(("duration_ms", "http_status", "error", "case", "model", "context"))
"""Fields of a record that are no parts of their own; their names are those of a mapping."""
_ANSWERS, _CALLS = (*ANSWERS, "body"), (*CALLS, "actions", "steps")
_USUAL = frozenset((*_ANSWERS, *INPUTS, *_CALLS, *_OTHERS, "usage", "turns", "state", "available_tools", "now")) - {"case"}
_HTTP = frozenset(("http_status", "httpStatus", "status_code", "statusCode", "status"))
_SCALARS = (str, int, float, bool)


class Mapping:
    """A mapping whose paths are compiled."""

    def __init__(self, paths: EvidenceMap) -> None:
        """Raises `SpecError` with the field and the offset for a path that cannot be parsed."""
        compiled: dict[str, CompiledPath] = {}
        for field, text in list_paths(paths):
            try:
                compiled[field] = compile_path(text)
            except SpecError as error:
                raise error.move_to(f"map.{field}") from None
        self.group, self._record = compiled.pop("group", None), compiled.pop("record", None)
        self._paths = compiled
        self._calls = CallReader(paths.tool_calls) if paths.tool_calls is not None else None
        self._turns = TurnReader(paths.turns) if paths.turns is not None else None
        self._usage = {field.removeprefix("usage."): path for field, path in compiled.items() if field.startswith("usage.")}
        rooted = [path for field, path in compiled.items() if "." not in field or field.endswith(".each") or field.startswith("usage.")]
        self.over_list = self.group is None and any(map(starts_at_list, rooted))
        """Whether the paths select from a list, which then is one run."""
        has_answer = not {"text", "body"}.isdisjoint(compiled) or self._turns is not None
        self.has_run = has_answer or self._calls is not None
        """Whether the mapping contains the agent's answer or calls; otherwise it adds to a record of a known format."""
        maps_calls = self._calls is not None or (self._turns is not None and self._turns.calls is not None)
        maps_input = self._turns is not None or "input" in compiled
        mapped = ((has_answer, _ANSWERS), (maps_input, INPUTS), (maps_calls, _CALLS), (bool(self._usage), ("usage",)))
        usual = (name for is_mapped, names in mapped if is_mapped for name in names)
        self._taken = frozenset((*map(find_root_key, rooted), *usual))
        """Members of a record that are not read under their usual name."""
        self._find_shape = functools.lru_cache(maxsize=1_000)(self._make_shape)

    def read_all(self, document: Json) -> list[Evidence]:
        """Return the runs of a document: a list is one run if the paths select from it, otherwise each entry is a record or a line."""
        if not isinstance(document, list):
            return [self.read([document] if self.group is not None else document)]
        if self.group is None:
            return [self.read(document)] if self.over_list else [self.read(entry) for entry in document]
        for number, line in enumerate(document, 1):
            if self.find_group(line) is None:
                raise EvidenceError(self.explain_no_group(line, f"line {number}"))
        return [self.read(lines) for lines in self.group_lines(document).values()]

    def open_records(self, document: Json) -> list[Json] | None:
        """Return the documents that `record` selects, or None if it is not mapped. Raises `EvidenceError` if it finds none."""
        if self._record is None:
            return None
        entries = document if isinstance(document, list) and not starts_at_list(self._record) else [document]
        found: list[Json] = []
        for entry in entries:
            items, _, missing = find_list(Holder(entry), self._record)
            if missing is not None:
                raise EvidenceError(f"record: {missing.why}")
            # A list of messages is one document.
            found += Holder(entry).find(self._record) if self._record.steps is not None else items
        return [decode_container(item) for item in found]

    def group_lines(self, document: list[Json]) -> dict[str, list[Json]]:
        """Return the lines of each run."""
        runs: dict[str, list[Json]] = {}
        for line in document:
            if (name := self.find_group(line)) is not None:
                runs.setdefault(name, []).append(line)
        return runs

    def find_group(self, line: Json) -> str | None:
        """Return the run that a line belongs to, or None for a line of no run."""
        found = Holder(line).find(self.group) if self.group is not None else []
        return as_text(found[0]) if found else None

    def explain_no_group(self, line: Json, what: str = "the line") -> str:
        """Return why a line belongs to no run."""
        assert self.group is not None
        return f"{what} has no value of `group`: {explain_missing(Holder(line), self.group, what)}"

    def read(self, document: Json) -> Evidence:
        """Return one run. Raises `EvidenceError` if a path visits too much."""
        holder, unknowns = Holder(document), Unknowns()
        plain: dict[str, Any] = {}
        calls_end = self._read_calls(holder, plain, unknowns)
        input_end = self._read_input(holder, plain, unknowns)
        # Lines of a log may be in any order.
        self._read_answer(holder, plain, unknowns, (calls_end, input_end) if self.group is None else ())
        if self._turns is not None:
            plain["turns"] = self._turns.read(holder, unknowns)
        self._read_usage(holder, plain, unknowns)
        matched = self._read_scalars(holder, plain, unknowns)
        # The object that reports how the run ended: the record, or the last of several lines unless it is a call.
        ending = document
        if isinstance(document, list):
            ending = document[-1] if document and calls_end != ((), len(document) - 1) else None
        entry = ending if isinstance(ending, dict) else {}
        shape = self._find_shape(tuple(entry))
        rest = (
            {} if entry is not document else {key: value for key in shape.usual if (value := entry[key]) is not None and key not in matched}
        )
        # What is mapped decides.
        reporting = () if "error" in matched else [key for key in shape.reporting if "http_status" not in matched or key not in _HTTP]
        failure = find_failure({key: entry[key] for key in reporting}, own=True)
        if failure is not None:
            rest["error"] = rest.get("error") or failure
        evidence = read_plain({**rest, **plain})
        for key in shape.marking:
            marker = find_marker(key, entry[key], evidence.tool_calls or ()) if isinstance(entry[key], _SCALARS) else None
            if marker is not None and key != "has_more":  # the mapping names where the data is
                unknowns.mark_parts(marker.parts, f"`{shorten(key, 60)}`: {marker.why}")
        metadata = {**{key: entry[key] for key in shape.others}, **evidence.metadata}
        return msgspec.structs.replace(evidence, account=_close(evidence.account, unknowns, shape), metadata=metadata)

    def add_to(self, evidence: Evidence, document: Json) -> Evidence:
        """Return evidence of a known format with the parts that the mapping adds."""
        holder, unknowns, found = Holder(document), Unknowns(), dict[str, Any]()
        self._read_input(holder, found, unknowns)
        self._read_usage(holder, found, unknowns)
        self._read_scalars(holder, found, unknowns)
        if "usage" in found:
            found["usage"] = Usage(**found["usage"])
        if "error" in found:
            found["error"] = as_text(found["error"]) if is_error(found["error"]) else None
        account = evidence.account or Account("plain")
        unknown = {**{part: why for part, why in account.unknown.items() if part not in found}, **unknowns.unknown}
        notes = tuple(dict.fromkeys((*account.notes, *unknowns.notes)))
        return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown, notes=notes), **found)

    def _make_shape(self, keys: tuple[str, ...]) -> _Shape:
        reporting = tuple(key for key in keys if key not in self._taken)
        usual, others = tuple(key for key in reporting if key in _USUAL), tuple(key for key in reporting if key not in _USUAL)
        listed = [key for key in others if key not in HARMLESS]
        marking = tuple(key for key in listed if to_snake_case(key) not in STATUS_FIELDS)
        ignored = Unknowns()
        for key in listed:
            ignored.ignore(key)
        return _Shape(usual, others, marking, reporting, ignored.close_account(READER))

    def _read_calls(self, holder: Holder, plain: dict[str, Any], unknowns: Unknowns) -> Position | None:
        if self._calls is None:
            return None
        items, position, missing = find_list(holder, self._calls.each)
        if items or missing is None:
            plain["tool_calls"] = self._calls.read(items, unknowns)
        if missing is not None:
            missing.mark(("tool_calls",), unknowns)
        return position

    def _read_input(self, holder: Holder, plain: dict[str, Any], unknowns: Unknowns) -> Position | None:
        if (path := self._paths.get("input")) is None:
            return None
        values, position = _find_values(holder, path)
        if values:
            plain["input"] = values[0]
        else:
            unknowns.mark_unrecognised(("input",), explain_missing(holder, path))
        return position

    def _read_answer(self, holder: Holder, plain: dict[str, Any], unknowns: Unknowns, ends: tuple[Position | None, ...]) -> None:
        """Add the answer; `ends` are the positions of the last call and the last input."""
        for field, path in ((field, self._paths[field]) for field in ("text", "body") if field in self._paths):
            values, position = _find_values(holder, path)
            if not values:
                # Without any answer the agent had not finished, and more calls may have followed.
                unknowns.mark_parts(("answer", "tool_calls"), f"no answer is recorded: {explain_missing(holder, path)}")
            elif field == "body" or isinstance(values[-1], _SCALARS):
                plain[field] = decode_container(values[-1]) if field == "body" else as_text(values[-1])
            else:
                why = f"`{path.text}` found {describe_value(values[-1], 60)}, expected text; map it as `body` if the answer is JSON"
                unknowns.mark_unrecognised(("answer",), why)
            if position is not None and any(end is not None and end[0] == position[0] and end[1] > position[1] for end in ends):
                unknowns.mark_parts(("answer", "tool_calls"), "the record ends before the agent finished: more follows its last answer")

    def _read_usage(self, holder: Holder, plain: dict[str, Any], unknowns: Unknowns) -> None:
        counts: dict[str, int] = {}
        for field, path in self._usage.items():
            found = find_summands(holder, path)
            numbers = [number for number in map(read_number, found) if number is not None and number >= 0 and number == int(number)]
            if numbers and len(numbers) == len(found):
                counts[field] = int(sum(numbers))
            else:
                why = f"`{path.text}` found no whole number" if found else explain_missing(holder, path)
                unknowns.mark_unrecognised(("usage",), why)
        if counts:
            plain["usage"] = counts

    def _read_scalars(self, holder: Holder, plain: dict[str, Any], unknowns: Unknowns) -> set[str]:
        """Add what is no part of its own (the duration, the status, the case), and return what has a match; no match is noted."""
        matched: set[str] = set()
        for field in _OTHERS & self._paths.keys():
            path = self._paths[field]
            given = find_summands(holder, path) if field == "duration_ms" else holder.find_any(path)
            values = [value for value in given if value is not None] if field != "duration_ms" or not any(given) else given
            if given:
                matched.add(field)
            value = _CONVERT[field](values) if values else None
            if value is not None:
                plain[field] = value
            elif field != "error":
                unusable = f"`{path.text}` found {describe_value(values[-1], 60)}, which cannot be used here" if values else None
                unknowns.note(f"{field}: {unusable or explain_missing(holder, path)}")
        return matched


class _Shape(NamedTuple):
    """What depends only on the keys of a record: which members have a usual name, are not read, may report loss or failure."""

    usual: tuple[str, ...]
    others: tuple[str, ...]
    marking: tuple[str, ...]
    reporting: tuple[str, ...]
    account: Account
    """The account of a record of which everything is known."""


def _find_values(holder: Holder, path: CompiledPath) -> tuple[list[Json], Position | None]:
    """Return the values of a path that are not null, and the position of the last one in the list it is selected from."""
    if path.steps is not None:
        return holder.find(path), None
    nodes, document = holder.find_nodes(path)
    nodes = [node for node in nodes if node[0] is not None]
    return [node[0] for node in nodes], find_position(nodes[-1], document) if nodes else None


def _add_numbers(values: list[Json]) -> float | None:
    numbers = [number for number in map(read_number, values) if number is not None]
    return sum(numbers) if len(numbers) == len(values) and min(numbers) >= 0 else None


def _read_whole(values: list[Json]) -> int | None:
    number = read_number(values[-1])
    return int(number) if number is not None and number == int(number) else None


_CONVERT: dict[str, Any] = {
    "duration_ms": _add_numbers,
    "http_status": _read_whole,
    **dict.fromkeys(("case", "model"), lambda values: as_text(values[-1]) if isinstance(values[-1], _SCALARS) else None),
    "error": lambda values: values[-1],
    "context": lambda values: found if isinstance(found := decode_container(values[-1]), dict) else None,
}


def _close(account: Account | None, unknowns: Unknowns, shape: _Shape) -> Account:
    """Return the account of a record after reading by paths, with what the plain reader found unknown."""
    if account is not None:
        mine = frozenset(unknowns.unknown)
        for part, why in account.unknown.items():
            if part in account.overridable:
                unknowns.mark_unrecognised((part,), why)
            # A call without arguments is null in plain evidence; the reason that names the path is better.
            elif part not in mine or part not in ("tool_arguments", "tool_results"):
                unknowns.mark(part, why)
        for note in account.notes:
            unknowns.note(note)
    if not (unknowns.unknown or unknowns.notes):
        return shape.account
    return msgspec.structs.replace(unknowns.close_account(READER), ignored=shape.account.ignored)


@functools.lru_cache(maxsize=64)
def compile_mapping(paths: EvidenceMap) -> Mapping:
    """Return a mapping ready to read records, compiled once. Raises `SpecError` for a path that cannot be parsed."""
    return Mapping(paths)
