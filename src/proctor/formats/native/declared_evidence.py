"""The key `evidence` of a suite, `proctor.yaml`, a target and an agent: a mapping and the parts that are complete."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proctor.errors import InputError, SpecError
from proctor.formats.text.building import UNUSABLE, build_struct
from proctor.formats.text.located import Located, Reading, locate_value
from proctor.model.account import PARTS, Part
from proctor.model.evidence import Json
from proctor.model.mapping import DeclaredEvidence, EvidenceSettings, list_paths
from proctor.model.show import nearest


def read_declared(node: Located | None, reading: Reading) -> DeclaredEvidence | None:
    """Return the declaration under `evidence`; problems are reported with the column inside a path."""
    if node is None:
        return None
    built = build_struct(EvidenceSettings, node, reading, "evidence")
    if built is UNUSABLE:
        return None
    assert isinstance(built, EvidenceSettings)
    try:
        if built.map is not None:
            from proctor.paths.json_path import compile_path  # slow to load, and most suites declare no paths

            for field, text in list_paths(built.map, "map."):
                try:
                    compile_path(text)
                except SpecError as error:
                    raise error.move_to(field) from None
    except SpecError as error:
        reading.report_spec_error(node, error)
        return None
    complete = node.get("complete")
    line = f":{complete.line}" if complete is not None and complete.line else ""
    return DeclaredEvidence(map=built.map, complete=built.complete, source=f"{reading.file or 'the suite'}{line}")


def build_declared(settings: Mapping[str, Json] | msgspec.Struct, *, source: str) -> DeclaredEvidence:
    """Return the declaration of a program or a stored agent. Raises `InputError` with every problem."""
    reading = Reading(file=None, text="")
    plain: Json = msgspec.to_builtins(settings)
    declared = read_declared(locate_value({key: value for key, value in plain.items() if value is not None}), reading)
    if declared is None:
        problems = [
            msgspec.structs.replace(each, origin=msgspec.structs.replace(each.origin, line=None, column=None)) for each in reading.problems
        ]
        raise InputError(problems[0].message if problems else "evidence: expected an object", problems)
    return DeclaredEvidence(map=declared.map, complete=declared.complete, source=source)


def parse_complete(text: str, source: str) -> DeclaredEvidence | None:
    """Return the declaration of `--complete tool_calls,answer`, or None for an empty text. Raises `InputError` for an unknown part."""
    words = [word for word in text.replace(" ", ",").split(",") if word]
    parts: list[Part] = [part for part in PARTS if part in words]
    for word in words:
        if word not in PARTS:
            close = nearest(word, PARTS, most=1)
            hint = f"; nearest: {close[0]}" if close else ""
            raise InputError(f"{source}: unknown part {word!r}{hint}; the parts are {', '.join(PARTS)}")
    return DeclaredEvidence(complete=tuple(parts), source=source) if parts else None


def write_declared(declared: EvidenceSettings) -> dict[str, Json]:
    """Return the key `evidence` as plain data, as written in a suite."""
    return msgspec.to_builtins(EvidenceSettings(map=declared.map, complete=declared.complete))
