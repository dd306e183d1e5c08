"""Claims that the user of a conversation reached their goal.

Decided `by: judge`, which sees the whole conversation and the goal; or `by: stop_when`, if that is a claim about the agent's answer or a
line of a script. The simulated user's own opinion does not count: the agent may have talked it into one.

A conversation that its user gave up, or that reached its turn limit, has not reached the goal, and no judge is called. One that broke off
is undecided.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.calls import list_recorded_calls
from proctor.checks.shared.quotes import locate_quotes
from proctor.checks.shared.rubric import list_exchanges, settle_one
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json, UserEnding
from proctor.model.json_values import is_finite
from proctor.model.judgement import Material, Question, make_pending
from proctor.model.show import shorten, show
from proctor.model.verdict import TextRange, Verdict, errored, failed, missing, passed

_POINTERS = ("$.turns",)
_LEFT = {"gave_up": "the user gave up", "turn_limit": "the user had no turn left"}
_LONGEST_REASON = 300
NO_GOAL = "goal_reached needs the goal that is judged"


class GoalReached(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The user of the conversation reached their goal."""

    goal: str = ""
    """What the user wants; left out: the goal of the case's simulated user."""
    by: Literal["judge", "stop_when"] | None = None
    """Who decides: a judge who sees the whole conversation, or that `stop_when` of the simulated user was reached. Left out: `stop_when` in
    a case whose user is a script or has a check as `stop_when`, else a judge."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""
    show_tool_results: bool = False
    """Whether the judge also sees which tools were called and what they gave back."""

    def needs_judge(self) -> bool:
        """Return whether this cannot be decided without a judge."""
        return self.by != "stop_when"


def _locate(spec: GoalReached, evidence: Evidence, verdict: Verdict) -> Iterator[TextRange]:
    if evidence.turns:
        return locate_quotes([{"input": turn.input, "text": turn.text, "body": turn.body} for turn in evidence.turns], "$.turns", verdict)
    return locate_quotes({"input": evidence.input, "text": evidence.text, "body": evidence.body}, "$", verdict)


@check(
    "goal_reached",
    shorthand="goal",
    judged=True,
    example="goal_reached: The customer knows when the refund arrives.",
    reads=lambda spec: Reads(("turns", "answer", *(("tool_calls", "tool_results") if spec.show_tool_results else ())), "exact", "fail"),
    locate_by=_locate,
)
def goal_reached(spec: GoalReached) -> Decide:
    """The user of the conversation reached their goal."""
    if spec.threshold is not None and not (is_finite(spec.threshold) and 0 <= spec.threshold <= 1):
        raise SpecError(f"the threshold is a number from 0 to 1, found {show(spec.threshold)}", field="threshold")

    def decide(evidence: Evidence) -> Verdict:
        user = evidence.simulated_user
        if user is not None and user.ended in _LEFT:
            return failed(
                f"the goal was not reached: {_LEFT[user.ended]} after {_count_turns(user)}{_quote_reason(user)}", pointers=_POINTERS
            )
        if user is not None and user.ended is None:
            return missing("the end of the conversation")
        if spec.by == "stop_when":
            if user is None:
                return missing("a simulated user")
            if user.by in ("stop_when", "script"):
                return passed(f"reached after {_count_turns(user)}{_quote_reason(user)}", pointers=_POINTERS)
            return failed(
                f"the user's model took the goal for reached after {_count_turns(user)}, and `stop_when` was not{_quote_reason(user)}",
                pointers=_POINTERS,
            )
        if not spec.goal.strip():
            return errored("unusable_spec", NO_GOAL)
        if (conversation := _list_exchanges(evidence)) is None:
            return missing("the conversation")
        question = Question(
            criterion=f"In this conversation the user reached this goal: {spec.goal}",
            material=Material(subject=conversation, name="conversation", context=_build_context(spec, evidence)),
            threshold=spec.threshold,
        )
        return make_pending([question], lambda opinions: settle_one(opinions[0], spec.threshold, _POINTERS))

    return decide


def _list_exchanges(evidence: Evidence) -> list[Json] | None:
    if evidence.turns:
        return list_exchanges(evidence)
    answer = evidence.text if evidence.text is not None else evidence.body
    return None if answer is None or evidence.input is None else [{"user": evidence.input, "agent": answer}]


def _build_context(spec: GoalReached, evidence: Evidence) -> dict[str, Json]:
    calls = list_recorded_calls(evidence) if spec.show_tool_results else None
    if calls is None:
        return {}
    results = [{"tool": call.name, "arguments": call.arguments, "result": call.result, "error": call.failure()} for call in calls]
    return {"tool_results": results}


def _count_turns(user: UserEnding) -> str:
    return f"{user.turns} turn{'' if user.turns == 1 else 's'}"


def _quote_reason(user: UserEnding) -> str:
    return f": {shorten(user.reason, _LONGEST_REASON)}" if user.reason else ""
