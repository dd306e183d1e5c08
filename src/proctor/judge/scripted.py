"""A judge that decides by a function, and replies of a scripted model: for tests, examples and dry runs."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence

from proctor.cassettes.ports import Tape
from proctor.errors import InputError, StoreError
from proctor.llm.ports import ChatRequest
from proctor.model.evidence import Json
from proctor.model.judgement import Opinion, Question
from proctor.model.show import exception_text, show

Decision = bool | float | str | Opinion
"""Yes or no, a score from 0 to 1, one of the choices, or the whole opinion."""


_ID = re.compile(r'"id":"(check-[0-9]+-[0-9a-f]{12})"')


def list_ids(request: ChatRequest) -> list[str]:
    """Return the ids of the checks in a request to a judge, in the order of its list."""
    return _ID.findall(request.messages[-1].text)


class ScriptedJudge:
    """Answers each question with a function, and lists the questions."""

    def __init__(self, decide: Callable[[Question], Decision | Awaitable[Decision]]) -> None:
        self._decide = decide
        self.questions: list[Question] = []
        self.closed = False

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> list[Opinion]:
        """Return one opinion per question, in order; the tape is not used."""
        self.questions.extend(questions)
        return [await self._decide_one(question) for question in questions]

    async def _decide_one(self, question: Question) -> Opinion:
        """Return the opinion on one question: an error if the function raises or returns an invalid decision."""
        try:
            decision = self._decide(question)
            return _make_opinion(question, await decision if isinstance(decision, Awaitable) else decision)
        except (AssertionError, InputError, StoreError):
            raise  # a test that asserts on the questions, or an unusable recording: the run cannot continue
        except Exception as error:
            reason = f"the judge function failed: {type(error).__name__}: {exception_text(error)}"
            return Opinion(outcome="error", reason=reason, code="judge_error", details={"judge": "scripted"})

    async def close(self) -> None:
        """Set `closed`."""
        self.closed = True


def _make_opinion(question: Question, decision: Decision) -> Opinion:
    if isinstance(decision, Opinion):
        return decision
    details: dict[str, Json] = {"judge": "scripted"}
    if isinstance(decision, str) and question.choices:
        if decision not in question.choices:
            raise ValueError(f"a scripted judge chooses one of {', '.join(question.choices)}; it chose {decision!r}")
        details["choice"], decision = decision, question.score_choice(decision)
        decision = decision if question.threshold is not None else bool(decision)
    score = float(decision) if isinstance(decision, (bool, int, float)) else math.nan
    if not 0 <= score <= 1:
        raise ValueError(f"expected true, false, a number from 0 to 1 or an `Opinion`, found {show(decision, 80)}")
    # A plain yes or no is the best or the worst score; without a threshold, a score of at least one half is a yes.
    threshold = 0.5 if question.threshold is None else question.threshold
    passed = decision if isinstance(decision, bool) else score >= threshold
    answer = f"{score:.4g}"
    if isinstance(decision, bool):
        answer = "yes" if passed else "no"
    reason = f"the judge function decided: {details.get('choice', answer)}"
    return Opinion(outcome="pass" if passed else "fail", score=score, reason=reason, details=details)
