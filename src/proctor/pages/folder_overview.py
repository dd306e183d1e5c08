"""What is going on in a folder of runs, for `proctor view`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from proctor.actions.history.compare import find_reason
from proctor.actions.history.overview import (
    MOST_TREND,
    Overview,
    SuiteChange,
    TrendPoint,
    TurnedCase,
    TurnedCases,
    find_turned,
    make_trend_point,
)
from proctor.actions.workspace.run_tally import RunTally
from proctor.model.run import RunEntry
from proctor.model.stamps import stamp_moment
from proctor.pages.folder_comparisons import IndexedRun
from proctor.pages.folder_suites import ReadSuite
from proctor.pages.ports import Record
from proctor.service.refusals import Refusal

_MOST_SUITES = 5
_NOTHING = TurnedCases(total=0, cases=())


def make_trend(runs: Sequence[Record]) -> tuple[TrendPoint, ...]:
    """Return the latest completed runs, oldest first; `runs` are newest first."""
    completed = [run for run in runs if run["status"] == "completed"]
    return tuple(make_trend_point(run, run["counts"]) for run in reversed(completed[:MOST_TREND]))


def make_folder_overview(project_id: str, runs: Sequence[Record], since: str | None, open_run: Callable[[str], IndexedRun]) -> Overview:
    """Return what is going on: `runs` are those of the folder, newest first."""
    moment = _read_moment(since)
    new = [run for run in runs if _is_since(run, moment)]
    counted: dict[str, int] = {}
    for run in new:
        counted[run["status"]] = counted.get(run["status"], 0) + 1
    return Overview(
        project_id=project_id,
        since=stamp_moment(moment.astimezone(UTC)),
        trend=make_trend(runs),
        alerts=None,
        new_runs=counted,
        more_runs=False,
        suites=_find_changes(new, [run for run in runs if not _is_since(run, moment)], open_run),
        reasons=(),
        more_reasons=0,
    )


def _read_moment(since: str | None) -> datetime:
    if since is None:
        return datetime.now(UTC) - timedelta(days=1)
    try:
        moment = datetime.fromisoformat(since)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refusal("VALIDATION_ERROR", "the time cannot be read", fields={"since": ["expected a time such as 2031-01-31"]}) from None


def _is_since(run: Record, moment: datetime) -> bool:
    try:
        at = datetime.fromisoformat(run["created_at"])
    except ValueError:
        return False
    return (at if at.tzinfo else at.replace(tzinfo=UTC)) >= moment


def _find_changes(new: Sequence[Record], old: Sequence[Record], open_run: Callable[[str], IndexedRun]) -> tuple[SuiteChange, ...]:
    completed = [run for run in new if run["status"] == "completed"]
    # Of equal keys the last one stays: reversed, that is the newest run of a suite, else the oldest.
    newest = {run["suite_name"]: run["id"] for run in reversed(completed)}
    oldest = {run["suite_name"]: run["id"] for run in completed}
    earlier = {run["suite_name"]: run["id"] for run in reversed(old) if run["status"] == "completed"}
    changes: list[SuiteChange] = []
    for suite, id in list(newest.items())[:_MOST_SUITES]:
        before = earlier.get(suite) or (oldest[suite] if oldest[suite] != id else None)
        changes.append(_compare_suite(suite, id, before, open_run))
    return tuple(changes)


def _compare_suite(suite_name: str, id: str, before_id: str | None, open_run: Callable[[str], IndexedRun]) -> SuiteChange:
    turned = (_NOTHING, _NOTHING, _NOTHING)
    if before_id is not None:
        run, before = open_run(id), open_run(before_id)
        # `remember` looks at the log of this run by itself; the log of the other one has to be part of the key.
        key = ("turned", before_id, before.log.stamp)
        turned = run.log.remember(key, lambda: _find_turned(before, run))
    return SuiteChange(
        suite_name=suite_name,
        run_id=id,
        before_id=before_id,
        newly_failing=turned[0],
        newly_passing=turned[1],
        newly_flaky=turned[2],
    )


def _find_turned(before: IndexedRun, run: IndexedRun) -> tuple[TurnedCases, TurnedCases, TurnedCases]:
    thresholds = {case.id: case.pass_threshold for case in run.suite.suite.cases if case.pass_threshold is not None}
    earlier, counts = (RunTally.of(one.log.iterate_digests()).count_by_case() for one in (before, run))
    turned = find_turned(earlier, counts, thresholds)
    return (_add_reasons(turned[0], run), *turned[1:])


def _add_reasons(turned: TurnedCases, run: IndexedRun) -> TurnedCases:
    told = tuple(_add_reason(one, _find_failed(run, one.case), run.suite) for one in turned.cases)
    return TurnedCases(total=turned.total, cases=told)


def _find_failed(run: IndexedRun, case: str) -> RunEntry | None:
    """Return the first attempt of a case that did not pass."""
    numbers = sorted(number for outcome in ("fail", "error") for number in run.log.find_numbers(outcome=outcome, case=case))
    entries = (run.log.read_digest(number) for number in numbers)
    return next((entry for entry in entries if entry.case == case), None)


def _add_reason(turned: TurnedCase, failed: RunEntry | None, suite: ReadSuite) -> TurnedCase:
    if failed is None:
        return turned
    return TurnedCase(case=turned.case, before=turned.before, after=turned.after, reason=find_reason(failed, suite.find_case(turned.case)))
