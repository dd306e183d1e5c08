"""Reads what people decided for a rubric from files of JSON lines: `{"with": {...}, "evidence": {...}, "label": true}`.

`with` holds the fields of the rubric as a suite would give them, `evidence` one recorded run in the plain form. An item whose evidence
lacks what the rubric needs is a problem: no judge would be asked about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from proctor.checks.registry import default_registry
from proctor.errors import CheckFault, EvidenceError, SpecError
from proctor.evidence.reading import read_document
from proctor.formats.text.building import UNUSABLE, build_struct
from proctor.formats.text.located import Located, Reading
from proctor.model.evidence import Json
from proctor.model.judgement import PendingVerdict
from proctor.model.labelled import LabelledAnswer
from proctor.model.show import show
from proctor.model.typed import convert_to
from proctor.model.verdict import Verdict
from proctor.sources.labels import Labels, read_labels, read_notes

_KEYS = ("with", "evidence", "label", "id", "tags", "why")
_WHAT = "an item of a rubric"


def read_rubric_labels(paths: Iterable[Path], rubric: str) -> Labels:
    """Return the items of all files, in order; raises `InputError` with every problem there is."""
    return read_labels(paths, lambda node, reading: _read_item(rubric, node, reading))


def pose_item(rubric: str, item: LabelledAnswer, threshold: float | None = None) -> Verdict:
    """Return what the rubric makes of an item: a verdict that waits for the judge. With `threshold` the judge is asked for a score."""
    spec = convert_to(item.context["with"], default_registry().get(rubric).spec)
    if threshold is not None:
        if not hasattr(spec, "threshold"):
            raise SpecError(f"{rubric} asks for yes or no and has no threshold", field="threshold")
        spec = msgspec.structs.replace(spec, threshold=threshold)
    return _decide(rubric, spec, item.context["evidence"])


def _decide(rubric: str, spec: msgspec.Struct, evidence: Json) -> Verdict:
    (read,) = read_document(evidence, format="plain")
    return default_registry().prepare(rubric, spec)(read)


def _read_item(rubric: str, node: Located, reading: Reading) -> LabelledAnswer | None:
    if reading.require_object(node, _WHAT) is None:
        return None
    reading.check_keys(node, _KEYS, _WHAT)
    label = reading.require_boolean(reading.require_member(node, "label", _WHAT), "label")
    evidence = reading.require_object(reading.require_member(node, "evidence", _WHAT), "evidence")
    notes = read_notes(node, reading)
    # Without `with` every field is as a suite leaves it; one that is required is then told as missing, at the line.
    fields = node.get("with") or msgspec.structs.replace(node, value={})
    built = build_struct(default_registry().get(rubric).spec, fields, reading, rubric)
    if label is None or evidence is None or built is UNUSABLE:
        return None
    try:
        verdict = _decide(rubric, built, evidence.plain())
    except (SpecError, EvidenceError, CheckFault) as error:
        reading.error(node, str(error), code="unusable_item")
        return None
    if not isinstance(verdict, PendingVerdict):
        reading.error(evidence, f"no judge would be asked about this: {verdict.reason}", code="nothing_to_judge")
        return None
    given = msgspec.to_builtins(built)
    return LabelledAnswer(
        answer=verdict.questions[0].material.subject,
        criterion=f"{rubric}: {show(given, 400)}" if given else rubric,
        label=label,
        context={"with": given, "evidence": evidence.plain()},
        **notes,
    )
