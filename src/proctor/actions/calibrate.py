"""Ask a judge about answers that people have labelled, and say how far the two agree.

Every item is a question of its own, asked as a suite would ask it, so that what is measured is what is used. The label and the reason for
it stay here: no judge sees them.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from proctor.actions.demo import examples_folder
from proctor.actions.judges import JudgeOptions, OpenedJudge, open_home_judge
from proctor.cassettes.ports import LIVE, Tape
from proctor.errors import InputError
from proctor.model.judgement import Material, Opinion, Question
from proctor.model.labelled import JudgedAnswer, LabelledAnswer
from proctor.runner.ports import Judge
from proctor.scoring.calibration import Calibration, summarize_calibration

THRESHOLD = 0.8
"""The least passing score where none is given; the one of Mibo's semantic assertions."""
CONCURRENCY = 8
CASE = "calibrate"
"""What remembered replies are filed under: the same for all items, so that moving a line in the file costs nothing."""


def starter_labels() -> Path:
    """The labelled set that comes with the package."""
    return examples_folder() / "judge" / "labels.jsonl"


def judge_to_calibrate(home: Path, options: JudgeOptions) -> OpenedJudge:
    """The judge that the workspace of `home`, the environment or the options name; raises `InputError` where none is."""
    opened = open_home_judge(home, os.environ, options=options)
    if opened is None:
        raise InputError(
            "there is no judge to calibrate\n"
            "  name one: --judge-model provider/name, `judge: {model: ...}` in proctor.yaml, or the variable PROCTOR_JUDGE_MODEL"
        )
    return opened


def question_of(item: LabelledAnswer, threshold: float | None) -> Question:
    """What a judge is asked about an item."""
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
) -> Calibration:
    """Ask `judge` about every item, some at once, and sum up. With no threshold it is asked for yes or no. `told` hears of every item."""
    opinions: list[Opinion | None] = [None] * len(items)
    waiting = iter(enumerate(items))

    async def ask(waiting: Iterator[tuple[int, LabelledAnswer]]) -> None:
        for index, item in waiting:
            found = await judge.judge((question_of(item, threshold),), case=CASE, attempt=0, tape=tape)
            if len(found) != 1:
                raise ValueError(f"the judge gave {len(found)} opinions on one question")
            opinions[index] = found[0]
            if told is not None:
                told(JudgedAnswer(item=item, opinion=found[0]))

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
