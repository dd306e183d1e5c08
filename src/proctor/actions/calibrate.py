"""Ask a judge about answers that people have labelled, and say how far the two agree.

Every item is a question of its own, asked as a suite would ask it, so that what is measured is what is used. The label and the reason for
it stay here: no judge sees them. A rubric is asked with the fields and the evidence of each item, by the check itself.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from proctor.actions.demo import examples_folder
from proctor.actions.judge_settings import JudgeOptions
from proctor.actions.judges import OpenedJudge, open_home_judge
from proctor.cassettes.ports import LIVE, Tape
from proctor.checks import registry
from proctor.checks._rubric import VERSIONS
from proctor.errors import InputError
from proctor.model.judgement import Material, Opinion, PendingVerdict, Question, make_pending, make_verdict
from proctor.model.labelled import JudgedAnswer, LabelledAnswer
from proctor.model.verdict import Verdict
from proctor.runner.ports import Judge
from proctor.scoring.calibration import Calibration, summarize_calibration
from proctor.sources.rubric_labels import pose_item

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


def judge_to_calibrate(home: Path, options: JudgeOptions) -> OpenedJudge:
    """Return the judge that the workspace of `home`, the environment or the options name; raises `InputError` where none is."""
    opened = open_home_judge(home, os.environ, options=options)
    if opened is None:
        raise InputError(
            "there is no judge to calibrate\n"
            "  name one: --judge-model provider/name, `judge: {model: ...}` in proctor.yaml, or the variable PROCTOR_JUDGE_MODEL"
        )
    return opened


def question_of(item: LabelledAnswer, threshold: float | None) -> Question:
    """Return what a judge is asked about an item."""
    context = {} if item.context is None else {"context": item.context}
    return Question(criterion=item.criterion, material=Material(subject=item.answer, context=context), threshold=threshold)


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

    With `rubric` the items are those of `proctor.sources.rubric_labels`, and each is asked by that rubric.
    """
    opinions: list[Opinion | None] = [None] * len(items)
    # One iterator for all askers: each takes the next item that nobody has taken.
    waiting = iter(enumerate(items))

    async def ask(waiting: Iterator[tuple[int, LabelledAnswer]]) -> None:
        for index, item in waiting:
            pending = _pose(item, threshold) if rubric is None else pose_item(rubric, item, threshold)
            opinion = opinions[index] = await _ask(pending, judge, tape)
            if told is not None:
                told(JudgedAnswer(item=item, opinion=opinion))

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


def _pose(item: LabelledAnswer, threshold: float | None) -> PendingVerdict:
    """Return the verdict on an item that waits for one opinion."""
    return make_pending([question_of(item, threshold)], lambda opinions: make_verdict(opinions[0]))


async def _ask(verdict: Verdict, judge: Judge, tape: Tape) -> Opinion:
    """Return the opinion that a verdict comes to, once the judge has answered all its questions."""
    if isinstance(verdict, PendingVerdict):
        found = await judge.judge(verdict.questions, case=CASE, attempt=0, tape=tape)
        asked = len(verdict.questions)
        if len(found) != asked:
            raise ValueError(f"the judge gave {len(found)} opinions on {'one question' if asked == 1 else f'{asked} questions'}")
        verdict = verdict.settle_with(found)
    assert verdict.outcome != "skip", "no judge and no rubric skips"
    return Opinion(outcome=verdict.outcome, score=verdict.score, reason=verdict.reason, code=verdict.code, details=verdict.details)
