"""Metrics: a judge chooses one answer for each part of something, and the check counts.

The parts (the statements of an answer or of a reference, the passages that were retrieved) are found without a judge and numbered in the
material. Each is a question of its own with named choices, `PARTS_PER_REQUEST` of them in one request. The score is arithmetic over the
choices, and the verdict lists every part with its choice and reason. A part without a decision is never counted: the verdict is then the
error that it was not decided, unless the threshold is missed however it were decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from proctor.checks.metrics._statements import split_statements
from proctor.checks.shared.rubric import ContextFields, Rubric, build_question, find_answer, load_rubric
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material, Opinion, Question, make_pending
from proctor.model.show import count_rest, show
from proctor.model.verdict import TextRange, Verdict, failed, missing, passed

PARTS_PER_REQUEST: Final = 20
"""More results than this do not fit into one reply of a judge."""
CHARACTERS_PER_REQUEST: Final = 20_000
MOST_NAMED: Final = 3
"""Parts that a reason names; the details list all."""
_WHO: Final = ("judge", "models", "provider", "prompt_version", "cuts", "calibration")
_VOTES: Final = ("check_id", "samples", "agreement")


def find_passages(spec: ContextFields, evidence: Evidence) -> list[Json] | Verdict:
    """Return the passages of the context, in the order in which they were retrieved."""
    found = spec.find_in(evidence)
    if isinstance(found, Verdict):
        return found
    results: Json = found.value
    if not spec.context and spec.context_from in (None, "tool_results", "steps"):
        results = [entry.get("result", entry.get("output")) for entry in found.value if "error" not in entry]
        results = [passage for result in results for passage in _list_passages(result)]
    return _list_passages(results) or missing("retrieved passages")


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted, and how it becomes a score."""

    rubric: Rubric
    parts: str
    """What the parts are called in the material: `statements`, `passages`."""
    verb: str
    """What is counted of them, in a sentence: `supported`."""
    good: tuple[str, ...]
    """The choices that count for the score; the first one is what a plain yes means."""
    uncounted: tuple[str, ...] = ()
    """Choices that leave a part out of the count."""
    founded_in: str | None = None
    """The member of the context that a judge must quote for the first good choice."""
    compute: Callable[[Sequence[bool]], float] | None = None
    """The score of the parts in order; left out: the share of good ones."""

    @classmethod
    def load(cls, name: str, **fields: Json) -> Metric:
        """Return the metric whose text is the rubric `name`."""
        return cls(rubric=load_rubric(name), **fields)

    def ask(
        self,
        parts: Sequence[Json],
        context: dict[str, Json],
        *,
        threshold: float,
        whole: Json = None,
        reference: str | None = None,
        pointers: tuple[str, ...] = (),
    ) -> Verdict:
        """Return the verdict that waits for a choice on every part; `whole` is shown too where the parts take several requests."""
        questions: list[Question] = []
        batches = list(batch_parts(parts))
        for batch in batches:
            more = {"whole": whole} if whole is not None and len(batches) > 1 else {}
            material = Material(subject={str(number): part for number, part in batch}, name=self.parts, context={**context, **more})
            for number, _ in batch:
                question = build_question(self.rubric, material, fill={"number": str(number)}, reference=reference)
                accepted = (*self.good, *self.uncounted)
                questions.append(
                    msgspec.structs.replace(question, choices=self.rubric.choices, accepted=accepted, founded_in=self.founded_in)
                )
        return make_pending(questions, lambda opinions: self._settle(questions, opinions, parts, threshold, pointers))

    def ask_statements(self, evidence: Evidence, context: dict[str, Json], *, threshold: float) -> Verdict:
        """Return the verdict on the statements of the answer."""
        answer = find_answer(evidence)
        if isinstance(answer, Verdict):
            return answer
        in_json = isinstance(evidence.body, (dict, list)) and (evidence.text or "{").lstrip().startswith(("{", "["))
        statements = split_statements(evidence.body if in_json else answer.value)
        if not statements:
            return missing("statements in the answer")
        return self.ask(statements, context, threshold=threshold, whole=answer.value, pointers=(answer.pointer,))

    def _settle(
        self, questions: Sequence[Question], opinions: Sequence[Opinion], parts: Sequence[Json], threshold: float, pointers: tuple[str, ...]
    ) -> Verdict:
        choices = [question.read_choice(opinion) for question, opinion in zip(questions, opinions, strict=True)]
        counted = [choice in self.good for choice in choices if choice is not None and choice not in self.uncounted]
        met, total = sum(counted), len(counted)
        listed: list[Json] = [
            {
                "point": part,
                "choice": choice,
                "outcome": opinion.outcome,
                "reason": opinion.reason,
                "code": opinion.code,
                **describe_votes(opinion),
            }
            for part, choice, opinion in zip(parts, choices, opinions, strict=True)
        ]
        details = describe_judge(opinions[0])
        details |= {"rubric": {"name": self.rubric.name, "version": self.rubric.version}, "threshold": threshold}
        details |= {"points": listed, "met": met, "total": total}
        undecided = [index for index, choice in enumerate(choices) if choice is None]
        if undecided and (self.compute is not None or compute_share([*counted, *(True for _ in undecided)]) >= threshold - 1e-12):
            first = opinions[undecided[0]]
            reason = f"{len(undecided)} of {len(parts)} {self.parts} not decided: {show(parts[undecided[0]])}: {first.reason}"
            return Verdict("fail" if first.outcome == "fail" else "error", 0.0, reason, first.code or "judge_failed", details, pointers)
        score = (self.compute or compute_share)(counted)
        reason = f"{met} of {total} {self.parts} {self.verb}, score {score:.4g}, at least {threshold:g} expected"
        if score >= threshold - 1e-12 and not undecided:
            return passed(reason, score=score, details=details, pointers=pointers)
        bad = [
            (part, o.reason)
            for part, choice, o in zip(parts, choices, opinions, strict=True)
            if choice not in (None, *questions[0].accepted)
        ]
        examples = "; ".join(f"{show(part)} ({why})" for part, why in bad[:MOST_NAMED]) + count_rest(len(bad), MOST_NAMED, "; and")
        reason += f"; not {self.verb}: {examples}" if bad else ""
        return failed(reason, score=score, details=details, pointers=pointers)


def describe_judge(opinion: Opinion) -> dict[str, Json]:
    """Return who judged, for the verdict over several opinions; each of them has votes of its own."""
    return {key: opinion.details[key] for key in _WHO if key in opinion.details}


def describe_votes(opinion: Opinion) -> dict[str, Json]:
    """Return the votes of one opinion among several."""
    return {key: opinion.details[key] for key in _VOTES if key in opinion.details}


def compute_share(values: Sequence[bool]) -> float:
    """Return the share of true values; 1 where there are none, as nothing is wrong then."""
    return sum(values) / len(values) if values else 1.0


def locate_statements(spec: msgspec.Struct, evidence: Evidence, verdict: Verdict) -> Iterator[TextRange]:
    """Yield the statements of the answer that decided: those with the outcome of the verdict."""
    answer = find_answer(evidence)
    points: Json = verdict.details.get("points")
    if isinstance(answer, Verdict) or not isinstance(answer.value, str) or not isinstance(points, list):
        return
    start = 0
    for point in points:
        begin = answer.value.find(point["point"], start)
        if begin >= 0:
            start = begin + len(point["point"])
            if point["outcome"] == verdict.outcome:
                yield TextRange(answer.pointer, begin, start)


def _list_passages(value: Json) -> list[Json]:
    """Return the members of a list, also of the only list in an object or of one written as JSON text; else the value itself."""
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    # A block of text, as MCP wraps what a tool gives back.
    text: Json = alone.get("text") if isinstance(alone, dict) and alone.get("type") == "text" else alone
    if isinstance(text, str) and text.lstrip().startswith(("[", "{")):
        try:
            inner = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            inner = None
        found = _list_passages(inner)
        if isinstance(inner, (list, dict)) and found != [inner]:
            return found
    lists = [member for member in value.values() if isinstance(member, list)] if isinstance(value, dict) else []
    if isinstance(value, list) or len(lists) == 1:
        return [member for member in (value if isinstance(value, list) else lists[0]) if member not in (None, "", {}, [])]
    return [] if value in (None, "", {}) else [value]


def batch_parts(parts: Sequence[Json]) -> Iterator[list[tuple[int, Json]]]:
    """Yield the numbered parts of one request after the other."""
    batch: list[tuple[int, Json]] = []
    size = 0
    for number, part in enumerate(parts, 1):
        length = len(part) if isinstance(part, str) else len(msgspec.json.encode(part))
        if batch and (len(batch) == PARTS_PER_REQUEST or size + length > CHARACTERS_PER_REQUEST):
            yield batch
            batch, size = [], 0
        batch.append((number, part))
        size += length
    yield batch
