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
    """How many attempts of a case were decided, and how many of them passed."""

    runs: int
    passes: int


class AgainstBase(BaseModel):
    """One run compared with the base."""

    found: Comparison = Field(description="as if only these two had been compared")
    adjusted_p: float = Field(description="the p-value of the difference, adjusted after Holm for the number of comparisons")
    more_than_chance: bool = Field(description="whether it regressed or improved, also when all comparisons are counted")


class CaseAcross(BaseModel):
    """One case that changed in at least one of the runs."""

    case: str
    group: Literal[
        "newly failing", "regressed", "flaky in the candidate", "newly passing", "improved", "only in the base", "only in the candidate"
    ] = Field(description="the worst of what it did in any of the runs")
    base: CaseCounts | None
    candidates: list[CaseCounts | None] = Field(description="in each of the other runs")
    reasons: list[str] = Field(description="for each of the other runs, why it is newly failing there; empty where it is not")


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
    """A stretch of text."""

    kind: Literal["same", "removed", "added", "left_out"] = Field(description="left_out: not shown, or not compared")
    text: str
    characters: int


class Answer(BaseModel):
    """What was answered in one run."""

    run_id: str
    result_id: str | None = Field(description="the attempt that is shown; null where the run has none")
    attempt: int | None
    attempts: list[AttemptOutcome] = Field(description="what there is to choose from; at most 100")
    outcome: Outcome | None
    reason: str
    text: str | None = Field(description="the answer, shortened")
    characters: int = Field(description="how long it is")
    is_same: bool = Field(description="whether it is the answer of the base, to the letter")
    difference: list[DiffPiece] = Field(description="in words, from the answer of the base to this one")


class Answers(BaseModel):
    """What was answered to one case in several runs."""

    case: str
    answers: list[Answer] = Field(description="one for each run, the base first")


@router.get("/api/comparisons", response_model=SeveralRuns)
async def compare_several_runs(
    hub: TheHub,
    caller: TheCaller,
    runs: Runs,
    alpha: Annotated[float, Query(ge=LEAST_ALPHA, lt=1, description="the chance of a false alarm of each comparison")] = 0.05,
) -> object:
    """Compare several runs with the first of them: what changed, and whether it is more than chance."""
    return await comparisons.compare_several_runs(hub, caller, split_words(runs), alpha=alpha)


@router.get("/api/comparisons/answers", response_model=Answers)
async def compare_answers(
    hub: TheHub,
    caller: TheCaller,
    runs: Runs,
    case: Annotated[str, Query(description="id of the case")],
    attempt: Annotated[
        int | None,
        Query(ge=0, le=2**31, description="which one; left out: of the base the first that passed, of the others the first that did not"),
    ] = None,
) -> object:
    """Show what was answered to a case in several runs, as the difference in words from the first of them."""
    found = await comparisons.read_answers(hub, caller, split_words(runs), case, attempt=attempt)
    told: list[Any] = msgspec.to_builtins(found)
    return {"case": case, "answers": told}


def split_words(text: str) -> list[str]:
    """Return the words of a list with commas."""
    return [word for word in (part.strip() for part in text.split(",")) if word]
