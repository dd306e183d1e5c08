"""`/api/comparisons`: several runs side by side."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query
from pydantic import BaseModel, Field

from proctor.actions.history.compare_several import MOST_RUNS
from proctor.rest.route_parts import TheCaller, TheHub, make_router
from proctor.rest.routes.runs import Comparison, Outcome
from proctor.scoring.paired import LEAST_ALPHA
from proctor.service.runs import comparisons

router = make_router("runs")
_RUNS = f"2 to {MOST_RUNS} runs of one project, separated by commas, the base first: ids, names, `@tag`, `latest` or `previous`"
Runs = Annotated[str, Query(description=_RUNS, max_length=2_000)]


class CaseCounts(BaseModel):
    """Decided and passed attempts of a case."""

    runs: int
    passes: int


class AgainstBase(BaseModel):
    """One run compared with the base."""

    found: Comparison = Field(description="comparison of these two runs alone")
    adjusted_p: float = Field(description="the p-value of the difference, adjusted after Holm for the number of comparisons")
    more_than_chance: bool = Field(description="whether the change is significant after adjustment")


class CaseAcross(BaseModel):
    """A case that changed in at least one of the runs."""

    case: str
    group: Literal[
        "newly failing", "regressed", "flaky in the candidate", "newly passing", "improved", "only in the base", "only in the candidate"
    ] = Field(description="the worst change in any of the runs")
    base: CaseCounts | None
    candidates: list[CaseCounts | None] = Field(description="in each of the other runs")
    reasons: list[str] = Field(description="for each of the other runs, why it is newly failing there; else empty")


class SeveralRuns(BaseModel):
    """Several runs, each compared with the first."""

    comparisons: list[AgainstBase]
    cases: list[CaseAcross] = Field(description="every case that changed, newly failing first")


class AttemptOutcome(BaseModel):
    """One attempt of a case."""

    id: str
    attempt: int
    outcome: Outcome


class DiffPiece(BaseModel):
    """A piece of a text diff."""

    kind: Literal["same", "removed", "added", "left_out"] = Field(description="left_out: not shown, or not compared")
    text: str
    characters: int


class Answer(BaseModel):
    """The answer in one run."""

    run_id: str
    result_id: str | None = Field(description="the shown attempt; null if the run has none")
    attempt: int | None
    attempts: list[AttemptOutcome] = Field(description="available attempts; at most 100")
    outcome: Outcome | None
    reason: str
    text: str | None = Field(description="the answer, shortened")
    characters: int = Field(description="length of the full answer")
    is_same: bool = Field(description="whether it equals the answer of the base")
    difference: list[DiffPiece] = Field(description="word diff from the answer of the base")


class Answers(BaseModel):
    """The answers to one case in several runs."""

    case: str
    answers: list[Answer] = Field(description="one for each run, the base first")


@router.get("/api/comparisons", response_model=SeveralRuns)
async def compare_several_runs(
    hub: TheHub,
    caller: TheCaller,
    runs: Runs,
    alpha: Annotated[float, Query(ge=LEAST_ALPHA, lt=1, description="significance level of each comparison")] = 0.05,
) -> object:
    """Compare several runs with the first of them: changed cases, and whether the change is significant."""
    return await comparisons.compare_several_runs(hub, caller, split_words(runs), alpha=alpha)


@router.get("/api/comparisons/answers", response_model=Answers)
async def compare_answers(
    hub: TheHub,
    caller: TheCaller,
    runs: Runs,
    case: Annotated[str, Query(description="id of the case")],
    attempt: Annotated[
        int | None,
        Query(ge=0, le=2**31, description="attempt; default: the first that passed in the base, the first that did not in the others"),
    ] = None,
) -> object:
    """Show the answers to a case in several runs, as word diffs from the first run."""
    found = await comparisons.read_answers(hub, caller, split_words(runs), case, attempt=attempt)
    answers: list[Any] = msgspec.to_builtins(found)
    return {"case": case, "answers": answers}


def split_words(text: str) -> list[str]:
    """Split a list at commas."""
    return [word for word in (part.strip() for part in text.split(",")) if word]
