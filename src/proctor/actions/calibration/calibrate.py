"""Ask a judge about answers that people have labelled, and measure how far the two agree.

Every item is a question in the form that a suite would use, so that the calibration measures real use. No judge sees the label or the
reason for it.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.actions.help.demo import examples_folder
from proctor.actions.judging.judge_settings import JudgeOptions, show_example
from proctor.actions.judging.judges import OpenedJudge, open_home_judge
from proctor.cassettes.ports import LIVE, Tape
from proctor.checks import registry
from proctor.checks.shared.rubric import METRICS, VERSIONS
from proctor.decide.cost import list_requests, price_request
from proctor.errors import InputError
from proctor.judge.gated_model import JudgeSpending
from proctor.judge.stamps import ENOUGH, Stamp, write_stamp
from proctor.model.cost import PriceList, sum_known
from proctor.model.evidence import Json
from proctor.model.judgement import JudgedAnswer, LabelledAnswer, Opinion, PendingVerdict
from proctor.model.verdict import Verdict
from proctor.report.words.wording import count_noun
from proctor.runner.ports import Judge
from proctor.scoring.agreement import count_table, with_intervals
from proctor.scoring.calibration import Calibration, count_tokens, summarize_calibration
from proctor.sources.labels import pose_label

MIN_DECIDED = 0.95
"""The share of answers that must be decided for a gate to pass, for a calibration to be stored, and for a judge to be taught."""
CONCURRENCY = 8
RUBRICS = tuple(sorted(VERSIONS))
"""The rubrics that come with a labelled set."""
WITHOUT_SET = tuple(sorted(METRICS))
"""Checks with a rubric text but without a labelled set."""
IS_EXAMPLE = "label_is_example"
"""The code of labels that are left out because the judge sees their decision as an example."""
_STEPS = {
    "judge_unauthorized": "check the key of the model (`api_key`), and whether it may use the model",
    "judge_unreachable": "check the address of the model (`base_url`), and whether it is running",
    "judge_timeout": "try again later, or raise `timeout_s` of the judge",
    "judge_overloaded": "try again later, or ask less at once: --concurrency 1",
    "judge_rate_limited": "try again later, or ask less at once: --concurrency 1",
    "judge_bad_request": "check the name of the model (`model`), and what it accepts",
    "judge_budget": "raise --max-judge-calls",
}
"""The next step by error code of the judge; otherwise the replies are unusable."""
CASE = "calibrate"
"""The case id of cached replies: the same for all items, so that a moved line in the file still hits the cache."""


def starter_labels() -> Path:
    """Return the labelled set that comes with the package."""
    return examples_folder() / "judge" / "labels.jsonl"


def rubric_labels(rubric: str) -> Path:
    """Return the labelled set of a rubric that comes with the package."""
    return Path(registry.__file__).parent / "rubrics" / rubric / "labels.jsonl"


def judge_to_calibrate(home: Path, options: JudgeOptions, spent: JudgeSpending | None = None) -> OpenedJudge:
    """Return the judge that the workspace of `home`, the environment or the options name; raises `InputError` if there is none."""
    opened = open_home_judge(home, os.environ, options=options, spent=spent)
    if opened is None:
        raise InputError(
            "there is no judge to calibrate\n"
            "  name one: --judge-model provider/name, `judge: {model: ...}` in proctor.yaml, or the variable PROCTOR_JUDGE_MODEL"
        )
    return opened


def store_calibration(home: Path, judge: OpenedJudge, calibration: Calibration, *, today: str) -> str:
    """Store the calibration on criteria, which the verdicts of this judge then show; yes/no and scores are stored separately.

    Return why something was not stored, or "". Raises `StoreError`.
    """
    reasons: dict[str, None] = {}
    for scored in (False, True):
        # Claims of other checks use different prompts.
        items = [item for item in calibration.items if item.item.check is None and (item.item.threshold is not None) is scored]
        decided = [item for item in items if item.decided]
        if not items:
            continue
        if len(decided) < MIN_DECIDED * len(items):
            reasons[f"fewer than {MIN_DECIDED:.0%} of the answers are decided"] = None
            continue
        kappa = with_intervals(count_table((item.item.label, item.passed) for item in decided))["kappa"]
        if kappa.value is None or kappa.interval is None:
            reasons["kappa cannot be computed from labels that are all the same"] = None
            continue
        stamp = Stamp(
            models=judge.models,
            prompt=judge.prompt,
            kappa=kappa.value,
            low=kappa.interval.low,
            high=kappa.interval.high,
            labels=len(decided),
            threshold=_find_common([item.item.threshold for item in items]),
            samples=judge.settings.samples,
            date=today,
        )
        if not write_stamp(home, stamp):
            form = "scores" if scored else "yes or no"
            reasons[f"the stored calibration on {form} has more labels than {len(decided)}; with {ENOUGH} it is replaced"] = None
    return "; ".join(reasons)


def leave_out_examples(items: Sequence[LabelledAnswer], judge: OpenedJudge) -> list[LabelledAnswer]:
    """Return the items that are not among the examples of the judge, which show it the human decision."""

    def make_key(example: dict[str, Json]) -> bytes:
        return msgspec.json.encode([example.get("criterion"), example.get("answer")], order="sorted")

    if not judge.settings.decisions:
        return list(items)
    example_keys = set(map(make_key, judge.settings.decisions))
    remaining = [item for item in items if make_key(show_example(item)) not in example_keys]
    if not remaining:
        raise InputError(
            f"{IS_EXAMPLE}: every label is also an example of the judge\n  calibrate on labels that are not among its examples"
        )
    return remaining


def explain_undecided(judged: Sequence[JudgedAnswer]) -> str:
    """Return the commonest reason why answers are undecided, and the next step; empty if all are decided."""
    undecided = [answer.opinion for answer in judged if not answer.decided]
    if not undecided:
        return ""
    code = Counter(opinion.code or "error" for opinion in undecided).most_common(1)[0][0]
    reason = next(opinion.reason for opinion in undecided if (opinion.code or "error") == code)
    step = _STEPS.get(code, "`proctor judge calibrate LABELS --format json` lists the answers without a decision and why")
    return f"{code}: {reason}\n  {step}"


async def calibrate(
    items: Sequence[LabelledAnswer],
    judge: Judge,
    *,
    threshold: float | None = None,
    concurrency: int = CONCURRENCY,
    tape: Tape = LIVE,
    prices: PriceList | None = None,
    on_item: Callable[[JudgedAnswer], None] | None = None,
) -> Calibration:
    """Ask `judge` about every item in the form of its claim, several concurrently, and sum up. `on_item` is called with every item.

    With `threshold` all items that can have a score get one, whatever their own threshold is. `prices` override those of the models.
    """
    if threshold is not None:
        items = [msgspec.structs.replace(item, threshold=threshold) if item.check is None else item for item in items]
    forms: list[float | None] = [None] * len(items)
    opinions: list[Opinion | None] = [None] * len(items)
    # Items that share a request.
    batches: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        batches.setdefault(f"batch {item.batch}" if item.batch else f"item {index}", []).append(index)
    # All workers share one iterator: each takes the next free batch.
    waiting = iter(batches.values())

    async def ask(waiting: Iterator[list[int]]) -> None:
        for batch in waiting:
            posed = [pose_label(items[index], threshold) for index in batch]
            for index, verdict in zip(batch, posed, strict=True):
                first = verdict.questions[0] if isinstance(verdict, PendingVerdict) else None
                forms[index] = first.threshold if first is not None and not first.choices else None
            for index, opinion in zip(batch, await _ask(posed, judge, tape), strict=True):
                opinions[index] = opinion
                if on_item is not None:
                    on_item(JudgedAnswer(item=items[index], opinion=opinion))

    # A few workers take one item after another: a hundred thousand waiting tasks would use memory and be no faster.
    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(max(1, min(concurrency, len(items)))):
                workers.create_task(ask(waiting))
    except BaseExceptionGroup as broken:
        # A judge raises only if further requests are pointless; callers handle the first exception, not a group.
        raise broken.exceptions[0] from None
    judged = [JudgedAnswer(item=item, opinion=opinion) for item, opinion in zip(items, opinions, strict=True) if opinion is not None]
    # A threshold can be chosen only if all items have a score.
    summary = summarize_calibration(judged, threshold=None if None in forms else _find_common(forms))
    requests = list_requests(answer.opinion.details for answer in judged)
    if not requests:
        return summary
    # Items of a batch share requests, so their own figures cannot be added.
    tokens = [count for request in requests if (count := count_tokens(request.get("usage"))) is not None]
    cost, _ = sum_known(price_request(request, prices or PriceList()) for request in requests)
    return msgspec.structs.replace(summary, spent=msgspec.structs.replace(summary.spent, tokens=sum(tokens) if tokens else None, cost=cost))


def _find_common(thresholds: Sequence[float | None]) -> float | None:
    return Counter(thresholds).most_common(1)[0][0]


async def _ask(verdicts: Sequence[Verdict], judge: Judge, tape: Tape) -> list[Opinion]:
    questions = [question for verdict in verdicts if isinstance(verdict, PendingVerdict) for question in verdict.questions]
    found = list(await judge.judge(questions, case=CASE, attempt=0, tape=tape)) if questions else []
    if len(found) != len(questions):
        raise ValueError(f"the judge gave {len(found)} opinions on {count_noun(len(questions), 'question')}")
    answers, opinions = iter(found), list[Opinion]()
    for verdict in verdicts:
        if isinstance(verdict, PendingVerdict):
            verdict = verdict.settle_with([next(answers) for _ in verdict.questions])
        assert verdict.outcome != "skip", "no judge and no rubric skips"
        opinions.append(
            Opinion(outcome=verdict.outcome, score=verdict.score, reason=verdict.reason, code=verdict.code, details=verdict.details)
        )
    return opinions
