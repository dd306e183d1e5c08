"""Selects the cases for a trace: the active ones of its agent, limited by `when` and `sample`.

`when.input` is a regular expression for the input; `when.metadata` has required values by name or dotted path; `when.tags` must all be
among the tags of the metadata (a list, the keys of an object, or comma-separated text). All conditions must hold. `sample` selects a share
of the traces, always the same ones for the same case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from proctor.errors import CheckFault, SpecError
from proctor.evidence.values.text import as_text
from proctor.matchers.equal import deep_equal
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING
from proctor.paths.dotted import find_dotted
from proctor.patterns.engine import compile_pattern


class ActiveCase(msgspec.Struct, frozen=True, kw_only=True):
    """An active case, without its document."""

    id: str
    version: int
    project_id: str
    agent_id: str | None
    name: str
    when: dict[str, Json] | None
    sample: float


def is_selected(case: ActiveCase, trace_id: str, evidence: Evidence, metadata: Mapping[str, Json]) -> bool:
    """Return whether a trace is evaluated against a case."""
    if case.sample < 1 and not _is_sampled(case, trace_id):
        return False
    return case.when is None or _matches(case.when, evidence, metadata)


def _is_sampled(case: ActiveCase, trace_id: str) -> bool:
    # By hash, so that every worker selects the same traces. The id of the case makes samples of two cases independent.
    digest = hashlib.sha256(f"{case.id}\0{trace_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < case.sample * 2**64


def _matches(when: Mapping[str, Json], evidence: Evidence, metadata: Mapping[str, Json]) -> bool:
    pattern = when.get("input")
    if isinstance(pattern, str) and not _matches_input(pattern, evidence):
        return False
    wanted = when.get("metadata")
    if isinstance(wanted, dict) and not all(deep_equal(value, _look_up(metadata, name)) for name, value in wanted.items()):
        return False
    tags = when.get("tags")
    return not isinstance(tags, list) or set(map(str, tags)) <= _read_tags(metadata.get("tags"))


def _matches_input(pattern: str, evidence: Evidence) -> bool:
    text = as_text(evidence.input)
    if text is None:
        return False
    try:
        return compile_pattern(pattern).search(text) is not None
    except (SpecError, CheckFault):
        # A pattern that fails does not exclude a trace: a superfluous result is noticed, a missing one is not.
        return True


def _look_up(metadata: Mapping[str, Json], name: str) -> Json:
    # A name with dots, as in OpenTelemetry, is a name first and a path second.
    if name in metadata:
        return metadata[name]
    found = find_dotted(dict(metadata), name)
    return found if found is not MISSING else MISSING


def _read_tags(value: Json) -> set[str]:
    if isinstance(value, str):
        return {part.strip() for part in value.split(",")}
    if isinstance(value, (list, dict)):
        return {str(entry) for entry in value}
    return set()
