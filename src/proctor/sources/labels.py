"""Reads and writes labelled answers as lines of JSON: `{"answer": ..., "criterion": ..., "label": true}`.

A claim of a check other than `judged` is written as in a suite, next to the recorded run:
`{"check": "tone", "with": {...}, "evidence": {...}, "label": true}`. The check itself then poses the questions, so that calibration asks a
judge what the suite asks. A line without anything to judge is a problem.

All problems of all lines are reported at once, as `file:line:column`. Two lines that ask the same and disagree about the label are a
problem: whichever way a judge decides, it would be wrong. A duplicate line is skipped with a warning.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.checks.judged.semantic import Judged, pose_claim, settle_claim
from proctor.checks.registry import default_registry
from proctor.errors import CheckFault, EvidenceError, InputError, SpecError
from proctor.evidence.reading import read_document
from proctor.formats.text.building import UNUSABLE, build_struct
from proctor.formats.text.json_text import read_json
from proctor.formats.text.located import Located, Reading
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import is_finite, is_number
from proctor.model.judgement import LabelledAnswer, Material, PendingVerdict, Question, make_pending
from proctor.model.problem import Origin, Problem
from proctor.model.show import show
from proctor.model.typed import convert_to
from proctor.model.verdict import Verdict
from proctor.report.words.wording import count_noun
from proctor.sources.texts import read_bounded

MAX_LABELS_BYTES = 64 * 1024 * 1024
"""The largest file of labels that is read."""
MAX_LABELS = 100_000
"""Maximum labelled answers of one set: more than a real set has."""
MAX_PROBLEMS = 200
"""Problems that are shown; the total follows them."""
_NOTES = ("label", "id", "tags", "why", "batch")
_KEYS = ("answer", "criterion", "context", "kind", "reference", "rubric", "negative_constraints", "threshold", *_NOTES)
_CHECK_KEYS = ("check", "with", "evidence", *_NOTES)
_KINDS = ("quality", "semantic", "hallucination")
_INVISIBLE = re.compile(r"(?:\\[nrt]|[\s\u00ad\u200b-\u200f\u2060\ufeff])+")
_AT_QUOTE = re.compile(' ?" ?')
"""`semantic` is the name of `quality` in Mibo's suites."""
_SHOWN_PARTS = ("input", "text", "body", "tool_calls", "nodes", "turns", "context", "state", "simulated_user")
"""The parts of a run that a claim can show to a judge."""
_HINTS = {
    "criteria": "write it as `criterion`",
    "response": "write it as `answer`",
    "output": "write it as `answer`",
    "expected": "write it as `label`: true or false",
    "score": "a label is true or false; leave out answers people do not agree on",
}

_SHAPE = 'lines of {"answer": ..., "criterion": ..., "label": true or false}'


class Labels(msgspec.Struct, frozen=True):
    """The labels that were read, and warnings about them."""

    items: tuple[LabelledAnswer, ...]
    warnings: tuple[Problem, ...] = ()
    repeated: int = 0
    """The number of lines that repeat an earlier one and are left out."""


def read_labels(paths: Iterable[Path], check: str | None = None, *, in_one_form: bool = False) -> Labels:
    """Return the labelled answers of all files, in order; raises `InputError` with every problem.

    With `check` every line is about a claim of that check. With `in_one_form` every line requires a score, or none does, so that two lines
    that differ in this alone are one.
    """
    collector = _LabelCollector(check, in_one_form)
    for path in paths:
        text = _read_file(path)
        _require_lines(path, text)
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                collector.add_line(line.removesuffix("\r"), str(path), number)
    return collector.finish()


class _LabelCollector:
    def __init__(self, check: str | None, in_one_form: bool) -> None:
        self._check = check
        self._in_one_form = in_one_form
        self._repeated: list[Problem] = []
        self._items: list[LabelledAnswer] = []
        self._problems: list[Problem] = []
        self._by_question: dict[tuple[str, bool], LabelledAnswer] = {}
        self._ids: dict[str, Origin] = {}
        self._unlabelled: list[Origin] = []

    def add_line(self, line: str, file: str, number: int) -> None:
        reading = Reading(file=file, text=line)
        node = read_json(line, reading)
        if node is not None and isinstance(node.value, dict) and (label := node.get("label")) is not None and label.value is None:
            self._unlabelled.append(Origin(file=file, line=number, column=node.column))
            return
        item = _read_line(node, reading, self._check) if node is not None else None
        # A line was read as a separate document, so every position in it has line 1.
        self._problems += [
            msgspec.structs.replace(problem, origin=msgspec.structs.replace(problem.origin, line=number)) for problem in reading.problems
        ]
        has_errors = any(problem.level == "error" for problem in reading.problems)
        if item is None or node is None or has_errors:
            return
        item = msgspec.structs.replace(item, origin=Origin(file=file, line=number, column=node.column))
        if not self._find_repeats(item, line):
            self._items.append(item)

    def _find_repeats(self, item: LabelledAnswer, line: str) -> bool:
        """Check for an earlier line with the same id, and return whether an earlier line has the same question, which counts once."""
        # As text, because answers may be objects, and a dictionary finds repetitions without comparing all pairs. Another
        # threshold makes no other question: the judge gives the same score.
        scored = item.threshold is not None and not self._in_one_form
        claim = (item.context, item.grounded, item.reference, item.rubric, item.negative_constraints, item.check, scored)
        key = json.dumps([item.answer, item.criterion, *claim], sort_keys=True, ensure_ascii=False)
        # White space and invisible characters make no other question.
        key = _AT_QUOTE.sub('"', _INVISIBLE.sub(" ", key))
        known = self._by_question.setdefault((key, item.label), item)
        opposite = self._by_question.get((key, not item.label))
        if opposite is not None and opposite.threshold == item.threshold:
            self._add_problem(item, line, f"the same answer and criterion have the other label at {opposite.origin}", "contradicting_label")
        elif known is not item:
            message = f"the same as {known.origin}, so it is left out"
            self._repeated.append(Problem(message=message, origin=item.origin, excerpt=line, level="warning", code="repeated_label"))
        if item.id and known is item:
            first = self._ids.setdefault(item.id, item.origin)
            # By identity: if the id is new, `setdefault` returns this very origin.
            if first is not item.origin:
                self._add_problem(item, line, f"the id {item.id!r} is already used at {first}", "duplicate_id")
        return known is not item

    def _add_problem(self, item: LabelledAnswer, line: str, message: str, code: str) -> None:
        self._problems.append(Problem(message=message, origin=item.origin, excerpt=line, code=code))

    def finish(self) -> Labels:
        if self._repeated:
            first, count = self._repeated[0], len(self._repeated)
            message = f"{count:,} lines repeat an earlier one and are left out, the first here: {first.message}"
            self._problems.append(
                first if count == 1 else msgspec.structs.replace(first, message=message.removesuffix(", so it is left out"))
            )
        if self._unlabelled:
            message = f"{count_noun(len(self._unlabelled), 'line')} without a label left out, the first here"
            step = 'write true or false in place of `"label": null`'
            # Only the first line: a newly written file has no labels at all.
            level = "warning" if self._items else "error"
            self._problems.append(Problem(message=message, origin=self._unlabelled[0], level=level, code="unlabelled", hint=step))
        errors = [problem for problem in self._problems if problem.level == "error"]
        if errors:
            raise InputError(f"{len(errors)} problems", list(_bound_problems(self._problems)))
        if not self._items:
            raise InputError(f"no labelled answers: expected {_SHAPE}")
        if len(self._items) > MAX_LABELS:
            raise InputError(f"{len(self._items):,} labelled answers; at most {MAX_LABELS:,} are read")
        return Labels(tuple(self._items), tuple(_bound_problems(self._problems)), len(self._repeated))


def _read_line(node: Located, reading: Reading, check: str | None = None) -> LabelledAnswer | None:
    if reading.require_object(node, "a labelled answer") is None:
        return None
    if check is not None or node.get("check") is not None:
        return _read_claim_of_check(node, reading, check)
    reading.check_keys(node, _KEYS, "a labelled answer", hints=_HINTS)
    answer = _read_answer(reading.require_member(node, "answer", "a labelled answer"), reading, "answer")
    criterion = _read_filled_text(reading.require_member(node, "criterion", "a labelled answer"), reading, "criterion")
    label = reading.require_boolean(reading.require_member(node, "label", "a labelled answer"), "label")
    notes = {**_read_notes(node, reading), **_read_claim(node, reading)}
    context = node.get("context")
    if answer is None or criterion is None or label is None:
        return None
    return LabelledAnswer(
        answer=answer, criterion=criterion, label=label, context=context.plain() if context is not None else None, **notes
    )


def _read_claim(node: Located, reading: Reading) -> dict[str, Json]:
    """Return the optional fields of a claim other than its criterion."""
    kind = reading.require_text(node.get("kind"), "kind")
    if kind is not None and kind not in _KINDS:
        reading.error(node.get("kind") or node, f"kind: expected {' or '.join(_KINDS)}, found {kind!r}", code="unknown_kind")
    texts = {name: reading.require_list(node.get(name), name) for name in ("rubric", "negative_constraints")}
    return {
        "grounded": kind == "hallucination",
        "reference": reading.require_text(node.get("reference"), "reference"),
        "threshold": _read_threshold(node.get("threshold"), reading),
        **{
            name: tuple(filter(None, (_read_filled_text(item, reading, name) for item in found.items())))
            for name, found in texts.items()
            if found
        },
    }


def _read_threshold(node: Located | None, reading: Reading) -> float | None:
    if node is None or node.value is None:
        return None
    value: Json = node.plain()
    if not is_number(value) or not (is_finite(value) and 0 <= value <= 1):
        reading.error(node, f"threshold: expected a number from 0 to 1, found {show(value)}", code="wrong_threshold")
        return None
    return float(value)


def _read_claim_of_check(node: Located, reading: Reading, wanted: str | None) -> LabelledAnswer | None:
    what = f"a label of {wanted}" if wanted is not None else "a label with `check`"
    reading.check_keys(node, _CHECK_KEYS, what)
    named = node.get("check")
    name = reading.require_text(named, "check") if named is not None else wanted
    label = reading.require_boolean(reading.require_member(node, "label", what), "label")
    evidence = reading.require_object(reading.require_member(node, "evidence", what), "evidence")
    notes = _read_notes(node, reading)
    if name is None:
        return None
    if wanted is not None and name != wanted:
        reading.error(named or node, f"this label is about {show(name)}, and --rubric names {wanted}", code="other_check")
        return None
    try:
        # Without `with`, every field has its default; a missing required field is reported at the line.
        fields = node.get("with") or msgspec.structs.replace(node, value={})
        built = build_struct(default_registry().get(name).spec, fields, reading, name)
        if label is None or evidence is None or built is UNUSABLE:
            return None
        verdict = _decide(name, built, evidence.plain())
    except (SpecError, EvidenceError, CheckFault) as error:
        reading.error(node, str(error), code="unusable_item")
        return None
    if not isinstance(verdict, PendingVerdict):
        reading.error(evidence, f"there is nothing to judge: {verdict.reason}", code="nothing_to_judge")
        return None
    settings = msgspec.to_builtins(built)
    return LabelledAnswer(
        answer=verdict.questions[0].material.subject,
        criterion=f"{name}: {show(settings, 400)}" if settings else name,
        label=label,
        check=name,
        context={"with": settings, "evidence": evidence.plain()},
        **notes,
    )


def pose_label(item: LabelledAnswer, threshold: float | None = None) -> Verdict:
    """Return the verdict on an item before its opinions, as the check of its claim makes it.

    With `threshold` a claim that is decided by yes or no, or by a score, gets a score.
    """
    if item.check is not None:
        spec = convert_to(item.context["with"], default_registry().get(item.check).spec)
        verdict = _decide(item.check, spec, item.context["evidence"])
        if (
            threshold is not None
            and hasattr(spec, "threshold")
            and not (isinstance(verdict, PendingVerdict) and verdict.questions[0].choices)
        ):
            verdict = _decide(item.check, msgspec.structs.replace(spec, threshold=threshold), item.context["evidence"])
        return verdict
    claim = Judged(
        criteria=item.criterion,
        threshold=item.threshold if threshold is None else threshold,
        kind="hallucination" if item.grounded else "quality",
        negative_constraints=item.negative_constraints,
        rubric=item.rubric,
        reference=item.reference,
    )
    # The members of an object are the parts of a context by name, as a claim shows them.
    context: dict[str, Json] = item.context if isinstance(item.context, dict) else {} if item.context is None else {"context": item.context}
    return make_pending(pose_claim(claim, Material(subject=item.answer, context=context)), lambda opinions: settle_claim(claim, opinions))


def _decide(check: str, spec: msgspec.Struct, evidence: Json) -> Verdict:
    (read,) = read_document(evidence, format="plain")
    return default_registry().prepare(check, spec)(read)


def write_line(id: str, check: str, spec: msgspec.Struct, evidence: Evidence, questions: Sequence[Question]) -> dict[str, Json] | None:
    """Return a claim as a line without its label, or None if no line would ask a judge these questions.

    A claim of `judged` becomes a criterion and an answer if these are all it takes, any other claim its check with the recorded run.
    """
    first = questions[0]
    known = {
        "context": first.material.context,
        "kind": "hallucination" if first.grounded else None,
        "reference": first.reference,
        "rubric": first.rubric,
        "negative_constraints": [question.criterion for question in questions[1:]],
    }
    plain: dict[str, Json] = {"criterion": first.criterion, "answer": first.material.subject, "label": None}
    plain |= {} if first.threshold is None else {"threshold": first.threshold}
    plain |= {key: value for key, value in known.items() if value}
    run = {part: value for part in _SHOWN_PARTS if (value := getattr(evidence, part)) is not None}
    in_full: dict[str, Json] = {"check": check, "with": msgspec.to_builtins(spec), "evidence": msgspec.to_builtins(run), "label": None}
    expected = msgspec.json.encode(questions)
    for form in (plain, in_full):
        line = {"id": id, **form}
        if msgspec.json.encode(_list_questions(line)) == expected:
            return line
    return None


def _list_questions(line: dict[str, Json]) -> Sequence[Question]:
    """Return the questions of a line; none if it cannot be read."""
    text = msgspec.json.encode({**line, "label": True}).decode()
    reading = Reading(file="", text=text)
    node = read_json(text, reading)
    item = _read_line(node, reading) if node is not None else None
    verdict = pose_label(item) if item is not None and not reading.problems else None
    return verdict.questions if isinstance(verdict, PendingVerdict) else ()


def write_labels(items: Iterable[LabelledAnswer]) -> bytes:
    """Return labelled answers as lines of JSON."""
    lines: list[bytes] = []
    for item in items:
        line: dict[str, Json] = msgspec.to_builtins(item)
        keys, extra = (_KEYS, {"kind": "hallucination"} if item.grounded else {}) if item.check is None else (_CHECK_KEYS, item.context)
        lines.append(msgspec.json.encode({**{key: value for key, value in line.items() if key in keys}, **extra}))
    return b"".join(line + b"\n" for line in lines)


def _read_notes(node: Located, reading: Reading) -> dict[str, Json]:
    """Return the notes of a label: `id`, `tags`, `why` and `batch`."""
    name, why = reading.require_text(node.get("id"), "id"), reading.require_text(node.get("why"), "why")
    tags = reading.require_list(node.get("tags"), "tags")
    words = [_read_filled_text(tag, reading, "a tag") for tag in tags.items()] if tags is not None else []
    batch = reading.require_text(node.get("batch"), "batch")
    return {"id": name or "", "tags": tuple(word for word in words if word is not None), "why": why or "", "batch": batch or ""}


def _read_answer(node: Located | None, reading: Reading, what: str) -> Json:
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


def _bound_problems(problems: list[Problem]) -> Iterator[Problem]:
    """Yield the problems; errors come before warnings if not all can be shown."""
    if len(problems) > MAX_PROBLEMS:
        # `error` sorts before `warning`; each kind stays in the order of the files.
        problems = sorted(problems, key=lambda problem: problem.level)
    yield from problems[:MAX_PROBLEMS]
    if len(problems) > MAX_PROBLEMS:
        yield Problem(message=f"and {len(problems) - MAX_PROBLEMS:,} more problems", level=problems[MAX_PROBLEMS].level)


def _require_lines(path: Path, text: str) -> None:
    """Raise one `InputError` for a file that is not JSON Lines, instead of one error per line."""
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
