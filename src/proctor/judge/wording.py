"""Words the faults of a judge for suites that are not MCPLab's.

A judge words its faults as MCPLab does: `Agent check failed: judge "x" ... for batched agent checks`. Authors of other suites know nothing
of agent checks, and read `the judge "x" ...`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from proctor.cassettes.ports import Tape
from proctor.judge.reply import name_question
from proctor.model.evidence import Json
from proctor.model.judgement import Opinion, Question

_BEFORE = "Agent check failed: judge "
_AFTER = " for batched agent checks"
_NO_RESULT = "Judge did not return"


class _Judge(Protocol):
    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> Sequence[Opinion]: ...

    async def close(self) -> None: ...


class PlainlyWordedJudge:
    """A judge whose faults are reworded; fits `proctor.runner.ports.Judge`."""

    def __init__(self, judge: _Judge) -> None:
        self._judge = judge

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> list[Opinion]:
        """Return one opinion per question, in order."""
        opinions = await self._judge.judge(questions, case=case, attempt=attempt, tape=tape)
        return [reword_opinion(opinion, question) for opinion, question in zip(opinions, questions, strict=True)]

    async def close(self) -> None:
        """Close the connections."""
        await self._judge.close()


def reword_opinion(opinion: Opinion, question: Question) -> Opinion:
    """Return the opinion without MCPLab's wording, which is used only if the judge itself gave none."""
    if opinion.outcome == "error":
        reason = _reword_fault(opinion.reason)
    else:
        label = name_question(question)
        silent = opinion.reason.endswith((f"Agent check passed: {label}", f"Agent check failed: {label}"))
        reason = f"the judge decided {'yes' if opinion.outcome == 'pass' else 'no'} and gave no reason" if silent else opinion.reason
    samples = opinion.details.get("samples")
    reworded = [_reword_sample(sample) for sample in samples] if isinstance(samples, list) else samples
    if reason == opinion.reason and reworded == samples:
        return opinion
    return msgspec.structs.replace(
        opinion, reason=reason, details={**opinion.details, **({} if samples is None else {"samples": reworded})}
    )


def _reword_sample(sample: Json) -> Json:
    if not isinstance(sample, dict) or "code" not in sample or not isinstance(sample.get("reason"), str):
        return sample
    return {**sample, "reason": _reword_fault(sample["reason"])}


def _reword_fault(text: str) -> str:
    if text.startswith(_BEFORE):
        return "the judge " + text.removeprefix(_BEFORE).removesuffix(_AFTER).removesuffix(",")
    return f"the j{text[1:]}" if text.startswith(_NO_RESULT) else text
