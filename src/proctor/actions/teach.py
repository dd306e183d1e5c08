"""Let people teach a judge: labels to fill in from a stored run, and examples that make it agree with people better.

Examples are proposed from labels that the judge decides otherwise than people. They are tried on labels that they were not chosen from:
the labels are dealt into folds, and the judge decides each fold with examples from the others. They are accepted only if kappa on these
held-out labels rises beyond chance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import msgspec

from proctor.actions.recheck import suite_to_recheck
from proctor.decide.questions import list_questions
from proctor.errors import InputError
from proctor.model.evidence import Json
from proctor.model.judgement import Question
from proctor.model.labelled import JudgedAnswer, LabelledAnswer
from proctor.model.verdict import Verdict
from proctor.scoring.agreement import SEED, Gain, measure_gain
from proctor.scoring.cutting import FOLDS, deal_folds
from proctor.scoring.draws import Draws
from proctor.store.run_files import RunFiles

MOST_EXAMPLES = 8
"""Examples that a judge is shown."""
ALPHA = 0.025
"""The chance up to which examples that help nothing are accepted."""

_T = TypeVar("_T")
Measure = Callable[[Sequence[LabelledAnswer], Sequence[LabelledAnswer]], Awaitable[Sequence[JudgedAnswer]]]
"""Asks a judge about some items while it is shown others as examples."""


# --- labels of a stored run ---------------------------------------------------------------------------------------------------


def list_run_labels(home: Path, run: str) -> list[dict[str, Json]]:
    """Return the claims of a stored run that a judge decided, as lines of a label file without their labels.

    What passed and what failed take turns, and the least certain come first. The decision of the judge is left out: it would suggest one.
    Raises `StoreError`, and `InputError` where the run has no such claim.
    """
    cases = {case.id: case for case in suite_to_recheck(home, run).cases}
    passed: list[tuple[float, dict[str, Json]]] = []
    failed: list[tuple[float, dict[str, Json]]] = []
    for entry in RunFiles(home).open(run).entries():
        case = cases.get(entry.case)
        if case is None or entry.evidence is None:
            continue
        asked = list_questions(case, entry.evidence)
        for position, verdict in enumerate(entry.verdicts):
            line = _write_line(f"{entry.case}.{entry.attempt}.{position}", asked.get(position, ()))
            if line is not None and _is_decided(verdict):
                (passed if verdict.outcome == "pass" else failed).append((abs(verdict.score - 0.5), line))
    lines = [line for _, line in _take_turns(sorted(failed, key=_get_first), sorted(passed, key=_get_first))]
    if not lines:
        raise InputError(f"the run {run!r} has no claim that a judge decided")
    return lines


def _is_decided(verdict: Verdict) -> bool:
    return verdict.outcome in ("pass", "fail") and "judge" in verdict.details


def _write_line(name: str, questions: Sequence[Question]) -> dict[str, Json] | None:
    """Return a line of a label file; nothing for a claim of several criteria, which has no one label."""
    if not questions or questions[0].forbidden or not all(each.forbidden for each in questions[1:]):
        return None
    first = questions[0]
    line: dict[str, Json] = {"id": name, "criterion": first.criterion, "answer": first.material.subject, "label": None}
    known = {
        "context": first.material.context,
        "kind": "hallucination" if first.grounded else None,
        "reference": first.reference,
        "rubric": first.rubric,
        "negative_constraints": [each.criterion for each in questions[1:]],
    }
    return {**line, **{key: value for key, value in known.items() if value}}


def _get_first(pair: tuple[float, dict[str, Json]]) -> float:
    return pair[0]


def _take_turns(*lists: Iterable[_T]) -> list[_T]:
    return [each for several in zip_longest(*lists) for each in several if each is not None]


# --- examples -----------------------------------------------------------------------------------------------------------------


class Improvement(msgspec.Struct, frozen=True, kw_only=True):
    """Examples for a judge, and whether they help."""

    accepted: bool
    gain: Gain
    """Of kappa on labels that the examples were not chosen from."""
    items: int
    undecided: tuple[int, int]
    """Without and with examples; an item without a decision counts as decided wrongly."""
    examples: tuple[LabelledAnswer, ...]
    """Chosen from all labels."""


async def improve(items: Sequence[LabelledAnswer], measure: Measure, *, folds: int = FOLDS, seed: int = SEED) -> Improvement:
    """Choose examples from labels and try them on held-out labels. Raises `InputError` where there are too few labels of a kind."""
    by_label = [[index for index, item in enumerate(items) if item.label is label] for label in (True, False)]
    if min(map(len, by_label)) < 2 * folds:
        raise InputError(f"expected at least {2 * folds} answers labelled true and as many labelled false, found {len(items)} in all")
    plain = await measure(items, ())
    taught: dict[int, JudgedAnswer] = {}
    for fold in deal_folds(by_label, folds, Draws(seed)):
        held_out = sorted(fold)
        seen = [items[index].answer for index in held_out]
        # The same answer twice in the labels is in no example for itself.
        training = [each for index, each in enumerate(plain) if index not in fold and each.item.answer not in seen]
        judged = await measure([items[index] for index in held_out], choose_examples(training))
        taught.update(zip(held_out, judged, strict=True))
    after = [taught[index] for index in range(len(items))]
    gain = measure_gain([item.label for item in items], [_decide(each) for each in plain], [_decide(each) for each in after], seed=seed)
    return Improvement(
        accepted=gain.p_value <= ALPHA,
        gain=gain,
        items=len(items),
        undecided=(sum(not each.decided for each in plain), sum(not each.decided for each in after)),
        examples=choose_examples(plain),
    )


def choose_examples(judged: Sequence[JudgedAnswer], most: int = MOST_EXAMPLES) -> tuple[LabelledAnswer, ...]:
    """Return answers to show: right and wrong ones by turns, of each those first that the judge decides otherwise than people."""
    misjudged_first = [each.item for each in sorted(judged, key=lambda each: each.agrees)]
    return tuple(_take_turns(*([item for item in misjudged_first if item.label is label] for label in (True, False)))[:most])


def _decide(judged: JudgedAnswer) -> bool:
    return judged.passed if judged.decided else not judged.item.label


def write_labels(items: Iterable[LabelledAnswer]) -> bytes:
    """Return labelled answers as lines of JSON, as label files hold them."""
    lines: list[bytes] = []
    for item in items:
        line: dict[str, Json] = msgspec.to_builtins(item)
        for name in ("grounded", "origin"):
            line.pop(name, None)
        lines.append(msgspec.json.encode({**line, **({"kind": "hallucination"} if item.grounded else {})}))
    return b"".join(line + b"\n" for line in lines)
