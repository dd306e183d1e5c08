"""Ask a judge about answers that people have labelled, and say how far the two agree.

Every item is a question of its own, asked as a suite would ask it, so that what is measured is what is used. The label and the reason for
it stay here: no judge sees them. A rubric is asked with the fields and the evidence of each item, by the check itself.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from proctor.actions.help.demo import examples_folder
from proctor.actions.judging.judge_settings import JudgeOptions
from proctor.actions.judging.judges import OpenedJudge, open_home_judge
from proctor.cassettes.ports import LIVE, Tape
from proctor.checks import registry
from proctor.checks.judged.semantic import Judged, pose_claim, settle_claim
from proctor.checks.shared.rubric import VERSIONS
from proctor.errors import InputError
from proctor.judge.gated_model import JudgeSpending
from proctor.judge.stamps import Stamp, write_stamp
from proctor.model.judgement import Material, Opinion, PendingVerdict, make_pending
from proctor.model.labelled import JudgedAnswer, LabelledAnswer
from proctor.model.verdict import Verdict
from proctor.report.words.wording import count_noun
from proctor.runner.ports import Judge
from proctor.scoring.calibration import Calibration, summarize_calibration
from proctor.sources.labels import pose_item

THRESHOLD = 0.8
"""The least passing score where none is given; the one of Mibo's semantic assertions."""
CONCURRENCY = 8
RUBRICS = tuple(sorted(VERSIONS))
"""The rubrics that come with a labelled set."""
CASE = "calibrate"
"""What remembered replies are filed under: the same for all items, so that moving a line in the file costs nothing."""


def starter_labels() -> Path:
    """Return the labelled set that comes with the package."""
    return examples_folder() / "judge" / "labels.jsonl"


def rubric_labels(rubric: str) -> Path:
    """Return the labelled set of a rubric that comes with the package."""
    return Path(registry.__file__).parent / "rubrics" / rubric / "labels.jsonl"


def judge_to_calibrate(home: Path, options: JudgeOptions, spent: JudgeSpending | None = None) -> OpenedJudge:
    """Return the judge that the workspace of `home`, the environment or the options name; raises `InputError` where none is."""
    opened = open_home_judge(home, os.environ, options=options, spent=spent)
    if opened is None:
        raise InputError(
            "there is no judge to calibrate\n"
            "  name one: --judge-model provider/name, `judge: {model: ...}` in proctor.yaml, or the variable PROCTOR_JUDGE_MODEL"
        )
    return opened


def store_calibration(home: Path, judge: OpenedJudge, found: Calibration, *, today: str) -> bool:
    """Store what was measured, so that the verdicts of this judge carry it; False if one with more labels is. Raises `StoreError`."""
    kappa = found.figures["kappa"]
    stamp = Stamp(
        models=judge.models,
        prompt=judge.prompt,
        kappa=kappa.value,
        low=kappa.interval.low if kappa.interval is not None else None,
        high=kappa.interval.high if kappa.interval is not None else None,
        labels=found.decided,
        threshold=found.threshold,
        samples=judge.settings.samples,
        date=today,
    )
    return write_stamp(home, stamp)


async def calibrate(
    items: Sequence[LabelledAnswer],
    judge: Judge,
    *,
    threshold: float | None = THRESHOLD,
    concurrency: int = CONCURRENCY,
    tape: Tape = LIVE,
    told: Callable[[JudgedAnswer], None] | None = None,
    rubric: str | None = None,
) -> Calibration:
    """Ask `judge` about every item, some at once, and sum up. With no threshold it is asked for yes or no. `told` hears of every item.

    With `rubric` the items are those of `proctor.sources.labels`, and each is asked by that rubric.
    """
    opinions: list[Opinion | None] = [None] * len(items)
    # One iterator for all askers: each takes the next item that nobody has taken.
    waiting = iter(_list_batches(items))

    async def ask(waiting: Iterator[list[int]]) -> None:
        for batch in waiting:
            posed = [
                pose_label(items[index], threshold) if rubric is None else pose_item(rubric, items[index], threshold) for index in batch
            ]
            for index, opinion in zip(batch, await _ask(posed, judge, tape), strict=True):
                opinions[index] = opinion
                if told is not None:
                    told(JudgedAnswer(item=items[index], opinion=opinion))

    # A few askers take the items one after another: a hundred thousand waiting tasks would be a burden and no faster.
    try:
        async with asyncio.TaskGroup() as askers:
            for _ in range(max(1, min(concurrency, len(items)))):
                askers.create_task(ask(waiting))
    except BaseExceptionGroup as broken:
        # A judge raises only where asking on is pointless; whoever called knows what to do with the first, and with no group.
        raise broken.exceptions[0] from None
    judged = [JudgedAnswer(item=item, opinion=opinion) for item, opinion in zip(items, opinions, strict=True) if opinion is not None]
    return summarize_calibration(judged, threshold=threshold)


def _list_batches(items: Sequence[LabelledAnswer]) -> list[list[int]]:
    """Return the positions of items that are asked together."""
    batches: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        batches.setdefault(f"batch {item.batch}" if item.batch else f"item {index}", []).append(index)
    return list(batches.values())


def pose_label(item: LabelledAnswer, threshold: float | None) -> PendingVerdict:
    """Return the verdict on an item that waits for its opinions, as the check `judged` makes it."""
    spec = Judged(
        criteria=item.criterion,
        threshold=threshold,
        kind="hallucination" if item.grounded else "quality",
        negative_constraints=item.negative_constraints,
        rubric=item.rubric,
        reference=item.reference,
    )
    material = Material(subject=item.answer, context={} if item.context is None else {"context": item.context})
    return make_pending(pose_claim(spec, material), lambda opinions: settle_claim(spec, opinions))


async def _ask(verdicts: Sequence[Verdict], judge: Judge, tape: Tape) -> list[Opinion]:
    """Return the opinions that verdicts come to, once the judge has answered all their questions."""
    questions = [question for verdict in verdicts if isinstance(verdict, PendingVerdict) for question in verdict.questions]
    found = list(await judge.judge(questions, case=CASE, attempt=0, tape=tape)) if questions else []
    if len(found) != len(questions):
        raise ValueError(f"the judge gave {len(found)} opinions on {count_noun(len(questions), 'question')}")
    heard, opinions = iter(found), list[Opinion]()
    for verdict in verdicts:
        if isinstance(verdict, PendingVerdict):
            verdict = verdict.settle_with([next(heard) for _ in verdict.questions])
        assert verdict.outcome != "skip", "no judge and no rubric skips"
        opinions.append(
            Opinion(outcome=verdict.outcome, score=verdict.score, reason=verdict.reason, code=verdict.code, details=verdict.details)
        )
    return opinions
