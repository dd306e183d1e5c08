"""Reads labelled answers, and labels for a rubric, from files of JSON lines.

For a rubric: `{"with": {...}, "evidence": {...}, "label": true}`. `with` has the fields of the rubric as in a suite, `evidence` is one
recorded run in the plain form. An item whose evidence lacks what the rubric needs is a problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from proctor.checks.registry import default_registry
from proctor.errors import CheckFault, EvidenceError, InputError, SpecError
from proctor.evidence.reading import read_document
from proctor.formats.text.building import UNUSABLE, build_struct
from proctor.formats.text.json_text import read_json
from proctor.formats.text.located import Located, Reading
from proctor.model.evidence import Json
from proctor.model.judgement import PendingVerdict
from proctor.model.labelled import LabelledAnswer
from proctor.model.problem import Origin, Problem
from proctor.model.show import show
from proctor.model.typed import convert_to
from proctor.model.verdict import Verdict
from proctor.sources.texts import read_bounded

# Labelled answers: `{"answer": ..., "criterion": ..., "label": true}`.

MAX_LABELS_BYTES = 64 * 1024 * 1024
"""The largest file of labels that is read."""
MAX_LABELS = 100_000
"""Labelled answers of one calibration at most."""
MAX_PROBLEMS = 200
"""Problems that are shown; the rest is counted."""
_KEYS = ("answer", "criterion", "label", "context", "kind", "reference", "rubric", "negative_constraints", "batch", "id", "tags", "why")
_KINDS = ("semantic", "hallucination")
_HINTS = {
    "criteria": "write it as `criterion`",
    "response": "write it as `answer`",
    "output": "write it as `answer`",
    "expected": "write it as `label`: true or false",
    "score": "a label is true or false; leave out answers people do not agree on",
}

_SHAPE = 'lines of {"answer": ..., "criterion": ..., "label": true or false}'


class Labels(msgspec.Struct, frozen=True):
    """What was read, and what is odd about it."""

    items: tuple[LabelledAnswer, ...]
    warnings: tuple[Problem, ...] = ()


ReadItem = Callable[[Located, Reading], LabelledAnswer | None]
"""Reads one line; reports its problems, and returns nothing where there are any."""


def read_labels(paths: Iterable[Path], read_item: ReadItem | None = None) -> Labels:
    """Return the labelled answers of all files, in order; raises `InputError` with every problem there is."""
    found = _LabelCollector(read_item or _read_item)
    for path in paths:
        text = _read_file(path)
        _require_lines(path, text)
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                found.add_line(line.removesuffix("\r"), str(path), number)
    return found.finish()


class _LabelCollector:
    """Everything read so far."""

    def __init__(self, read_item: ReadItem) -> None:
        self._read_item = read_item
        self._items: list[LabelledAnswer] = []
        self._problems: list[Problem] = []
        self._by_question: dict[str, LabelledAnswer] = {}
        self._ids: dict[str, Origin] = {}

    def add_line(self, line: str, file: str, number: int) -> None:
        reading = Reading(file=file, text=line)
        node = read_json(line, reading)
        item = self._read_item(node, reading) if node is not None else None
        # A line is read as a document of its own, in which every origin is line 1.
        self._problems += [msgspec.structs.replace(one, origin=_move_to_line(one.origin, number)) for one in reading.problems]
        if item is None or node is None or any(problem.level == "error" for problem in reading.problems):
            return
        item = msgspec.structs.replace(item, origin=Origin(file=file, line=number, column=node.column))
        self._find_repeats(item, line)
        self._items.append(item)

    def _find_repeats(self, item: LabelledAnswer, line: str) -> None:
        """Look for the same question, and for the same id, further up."""
        # As text, since answers may be objects, and a dictionary finds a repetition without comparing each with each.
        key = json.dumps(
            [item.answer, item.criterion, item.context, item.grounded, item.reference, item.rubric, item.negative_constraints],
            sort_keys=True,
        )
        known = self._by_question.setdefault(key, item)
        if known is not item:
            if known.label != item.label:
                self._add_problem(
                    item, line, f"the same answer and criterion have the other label at {known.origin}", "contradicting_label"
                )
            else:
                self._add_problem(item, line, f"the same as {known.origin}, so it counts twice", "repeated_label", warning=True)
        if item.id:
            first = self._ids.setdefault(item.id, item.origin)
            # By identity: where the id is new, `setdefault` returns this very origin.
            if first is not item.origin:
                self._add_problem(item, line, f"the id {item.id!r} is already used at {first}", "duplicate_id")

    def _add_problem(self, item: LabelledAnswer, line: str, message: str, code: str, *, warning: bool = False) -> None:
        self._problems.append(
            Problem(message=message, origin=item.origin, excerpt=line, level="warning" if warning else "error", code=code)
        )

    def finish(self) -> Labels:
        errors = [problem for problem in self._problems if problem.level == "error"]
        if errors:
            raise InputError(f"{len(errors)} problems", list(_bound_problems(self._problems)))
        if not self._items:
            raise InputError(f"no labelled answers: expected {_SHAPE}")
        if len(self._items) > MAX_LABELS:
            raise InputError(f"{len(self._items):,} labelled answers; at most {MAX_LABELS:,} are read")
        return Labels(tuple(self._items), tuple(_bound_problems(self._problems)))


def _read_item(node: Located, reading: Reading) -> LabelledAnswer | None:
    if reading.require_object(node, "a labelled answer") is None:
        return None
    reading.check_keys(node, _KEYS, "a labelled answer", hints=_HINTS)
    answer = _read_answer(reading.require_member(node, "answer", "a labelled answer"), reading, "answer")
    criterion = _read_filled_text(reading.require_member(node, "criterion", "a labelled answer"), reading, "criterion")
    label = reading.require_boolean(reading.require_member(node, "label", "a labelled answer"), "label")
    notes = {**read_notes(node, reading), **_read_claim(node, reading)}
    context = node.get("context")
    if answer is None or criterion is None or label is None:
        return None
    return LabelledAnswer(
        answer=answer, criterion=criterion, label=label, context=context.plain() if context is not None else None, **notes
    )


def _read_claim(node: Located, reading: Reading) -> dict[str, Json]:
    """Return the optional fields of a claim."""
    kind = reading.require_text(node.get("kind"), "kind")
    if kind is not None and kind not in _KINDS:
        reading.error(node.get("kind") or node, f"kind: expected {' or '.join(_KINDS)}, found {kind!r}", code="unknown_kind")
    texts = {name: reading.require_list(node.get(name), name) for name in ("rubric", "negative_constraints")}
    return {
        "grounded": kind == "hallucination",
        "reference": reading.require_text(node.get("reference"), "reference"),
        "batch": reading.require_text(node.get("batch"), "batch") or "",
        **{
            name: tuple(filter(None, (_read_filled_text(one, reading, name) for one in found.items())))
            for name, found in texts.items()
            if found
        },
    }


def read_notes(node: Located, reading: Reading) -> dict[str, Json]:
    """Return the optional notes of a label: `id`, `tags` and `why`."""
    name, why = reading.require_text(node.get("id"), "id"), reading.require_text(node.get("why"), "why")
    tags = reading.require_list(node.get("tags"), "tags")
    words = [_read_filled_text(tag, reading, "a tag") for tag in tags.items()] if tags is not None else []
    return {"id": name or "", "tags": tuple(word for word in words if word is not None), "why": why or ""}


def _read_answer(node: Located | None, reading: Reading, what: str) -> Json:
    """Return an answer: text, an object or a list, nothing else."""
    if node is None or isinstance(node.value, (str, dict, list)):
        return node.plain() if node is not None else None
    reading.error(node, f"{what}: expected text, an object or a list, found {node.kind}", code="wrong_type")
    return None


def _read_filled_text(node: Located | None, reading: Reading, what: str) -> str | None:
    text = reading.require_text(node, what)
    if text is not None and node is not None and not text.strip():
        reading.error(node, f"{what}: it cannot be empty", code="empty_text")
        return None
    return text


def _move_to_line(origin: Origin, line: int) -> Origin:
    return msgspec.structs.replace(origin, line=line)


def _bound_problems(problems: list[Problem]) -> Iterator[Problem]:
    """Yield the problems, errors before warnings where not all can be shown."""
    if len(problems) > MAX_PROBLEMS:
        # The words happen to sort as they should, `error` before `warning`; each kind stays in the order of the files.
        problems = sorted(problems, key=lambda problem: problem.level)
    yield from problems[:MAX_PROBLEMS]
    if len(problems) > MAX_PROBLEMS:
        yield Problem(message=f"and {len(problems) - MAX_PROBLEMS:,} more problems", level=problems[MAX_PROBLEMS].level)


def _require_lines(path: Path, text: str) -> None:
    """Raise `InputError` for a file that has no lines at all, rather than one error for each of its lines."""
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    document = path.suffix.lower() in (".yaml", ".yml") or bool(lines and lines[0] in ("{", "["))
    if document or (len(lines) > 1 and not any(line.startswith("{") for line in lines)):
        raise InputError(
            f"{str(path)!r} holds no lines of JSON; labelled answers are {_SHAPE}\n"
            "  a set to start from: proctor judge starter > labels.jsonl"
        )


def _read_file(path: Path) -> str:
    data = read_bounded(path, MAX_LABELS_BYTES)
    if data is None:
        raise InputError(f"{path}: more than {MAX_LABELS_BYTES // 2**20} MB is too large for a file of labels")
    if data[:2] == b"\x1f\x8b":
        raise InputError(f"{path}: this is a gzip file; unpack it first")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise InputError(f"{path}:{line}:{column}: not UTF-8 text") from error


_RUBRIC_KEYS = ("with", "evidence", "label", "id", "tags", "why")
_WHAT = "an item of a rubric"


def read_rubric_labels(paths: Iterable[Path], rubric: str) -> Labels:
    """Return the items of all files, in order; raises `InputError` with every problem there is."""
    return read_labels(paths, lambda node, reading: _read_rubric_item(rubric, node, reading))


def pose_item(rubric: str, item: LabelledAnswer, threshold: float | None = None) -> Verdict:
    """Return the rubric's verdict for an item, which waits for the judge. With `threshold` the judge gives a score."""
    spec = convert_to(item.context["with"], default_registry().get(rubric).spec)
    if threshold is not None:
        if not hasattr(spec, "threshold"):
            raise SpecError(f"{rubric} asks for yes or no and has no threshold", field="threshold")
        spec = msgspec.structs.replace(spec, threshold=threshold)
    return _decide(rubric, spec, item.context["evidence"])


def _decide(rubric: str, spec: msgspec.Struct, evidence: Json) -> Verdict:
    (read,) = read_document(evidence, format="plain")
    return default_registry().prepare(rubric, spec)(read)


def _read_rubric_item(rubric: str, node: Located, reading: Reading) -> LabelledAnswer | None:
    if reading.require_object(node, _WHAT) is None:
        return None
    reading.check_keys(node, _RUBRIC_KEYS, _WHAT)
    label = reading.require_boolean(reading.require_member(node, "label", _WHAT), "label")
    evidence = reading.require_object(reading.require_member(node, "evidence", _WHAT), "evidence")
    notes = read_notes(node, reading)
    # Without `with` every field has its default; a required one is reported as missing, with the line.
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
        reading.error(evidence, f"a judge has nothing to decide here: {verdict.reason}", code="nothing_to_judge")
        return None
    given = msgspec.to_builtins(built)
    return LabelledAnswer(
        answer=verdict.questions[0].material.subject,
        criterion=f"{rubric}: {show(given, 400)}" if given else rubric,
        label=label,
        context={"with": given, "evidence": evidence.plain()},
        **notes,
    )
