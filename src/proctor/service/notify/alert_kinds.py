"""The kinds of alerts: the measured value, when each fires, its settings and its texts.

A new kind is an entry of `KINDS` and of `AlertKind`; one that counts neither results nor scheduled runs also needs a `Watched` with its
query in `store/accounts/alerts.py`. The query of a kind that measures a number, such as a duration, selects it as text in place of the
code, and needs a field of `Counts` that `judge_counts` fills from it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.service.refusals import Refusal
from proctor.store.accounts.alerts import Outcomes, select_results, select_scheduled_runs

AlertKind = Literal["pass_rate", "failing_case", "missing_evidence", "scheduled_run"]
LONGEST_WINDOW_S = 30 * 86_400


class Counts(msgspec.Struct, frozen=True):
    """Results in the window of a rule."""

    results: int
    """Decided results."""
    passed: int
    missing_evidence: int


class Watched(msgspec.Struct, frozen=True):
    """What rules count."""

    select: Callable[[Mapping[str, Any], Mapping[str, Any], str], Outcomes]
    """The query of a rule: its place, its settings, and the start of the window."""
    finding: str
    """The sentence of a message about the window, with counts in braces."""
    of_agents: bool = True
    """Whether a rule may be limited to one agent."""


RESULTS = Watched(select_results, "{failed} of {results} results did not pass")
SCHEDULED_RUNS = Watched(select_scheduled_runs, "{failed} of {results} scheduled runs did not pass", of_agents=False)


class Setting(msgspec.Struct, frozen=True):
    """A setting of a rule: a number, or an id."""

    about: str
    default: Json
    least: int = 0
    most: int = 1
    whole: bool = False
    id_of: Literal["case", "schedule"] | None = None

    def explain_wrong(self, value: Json) -> str | None:
        """Return what is wrong with a value."""
        if self.id_of is not None:
            return None if value is None or isinstance(value, str) else f"expected the id of a {self.id_of}"
        if not is_number(value):
            return "expected a number"
        return None if self.least <= value <= self.most else f"expected a number from {self.least} to {self.most}"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of alert. It fires when the comparison of the measured value with the setting named `limit` is true."""

    title: str
    about: str
    summary: str
    """When a rule fires, with its settings in braces; `window` is the length of the window."""
    settings: Mapping[str, Setting]
    limit: str
    measure: Callable[[Counts], float]
    fires: Callable[[float, float], bool]
    observed: str | None = None
    """The name of the measured value in messages."""
    is_share: bool = True
    """Whether the measured value is a share from 0 to 1."""
    watched: Watched = RESULTS

    @property
    def defaults(self) -> dict[str, Json]:
        """The settings of a rule without its own."""
        return {name: setting.default for name, setting in self.settings.items()}


_WINDOW = Setting("length of the time window", 3600, 1, LONGEST_WINDOW_S)
_MINIMUM = Setting("minimum sample size", 10, 1, 1_000_000, whole=True)
KINDS: dict[AlertKind, Kind] = {
    "pass_rate": Kind(
        title="Low pass rate",
        about="Fires when the pass rate in the window is below the threshold.",
        summary="pass rate below {below} within {window}, with at least {minimum} results",
        settings={"below": Setting("fires when the pass rate is below this, 0 to 1", 0.9), "window_s": _WINDOW, "minimum": _MINIMUM},
        limit="below",
        measure=lambda counts: counts.passed / counts.results,
        fires=operator.lt,
        observed="pass_rate",
    ),
    "failing_case": Kind(
        title="Failing case",
        about="Fires when a case fails this often in the window.",
        summary="{times} failed within {window}",
        settings={
            "case_id": Setting("limit the rule to one case", None, id_of="case"),
            "times": Setting("fires after this many failed results", 1, 1, 1_000_000, whole=True),
            "window_s": _WINDOW,
        },
        limit="times",
        measure=lambda counts: counts.results - counts.passed,
        fires=operator.ge,
        is_share=False,
    ),
    "missing_evidence": Kind(
        title="Missing evidence",
        about="Fires when the share of results with missing evidence in the window is above the threshold.",
        summary="more than {above} lack evidence within {window}, with at least {minimum} results",
        settings={
            "above": Setting("fires when the share of results with missing evidence is above this, 0 to 1", 0.1),
            "window_s": _WINDOW,
            "minimum": _MINIMUM,
        },
        limit="above",
        measure=lambda counts: counts.missing_evidence / counts.results,
        fires=operator.gt,
        observed="share",
    ),
    "scheduled_run": Kind(
        title="Scheduled run failed",
        about="Fires when a scheduled run failed or did not start in the window, and is resolved when the window has passed.",
        summary="{times} or more scheduled runs failed or did not start within {window}",
        settings={
            "schedule_id": Setting("limit the rule to one schedule", None, id_of="schedule"),
            "times": Setting("fires after this many runs", 1, 1, 1_000_000, whole=True),
            "window_s": msgspec.structs.replace(_WINDOW, default=86_400),
        },
        limit="times",
        measure=lambda counts: counts.results - counts.passed,
        fires=operator.ge,
        is_share=False,
        watched=SCHEDULED_RUNS,
    ),
}


def read_settings(kind: AlertKind, values: Mapping[str, Json]) -> dict[str, Json]:
    """Return settings with the defaults of their kind. Raises `Refusal` with every mistake."""
    known = KINDS[kind].settings
    fields: dict[str, list[str]] = {}
    for name, value in values.items():
        reason = known[name].explain_wrong(value) if name in known else f"unknown for a {kind} rule; known: {', '.join(known)}"
        if reason is not None:
            fields[f"settings.{name}"] = [reason]
    if fields:
        raise Refusal("VALIDATION_ERROR", "the settings are invalid", fields=fields)
    return {**KINDS[kind].defaults, **values}


def judge_counts(
    kind: AlertKind, settings: Mapping[str, Json], counts: Sequence[tuple[str, str | None, int]]
) -> tuple[dict[str, Json], float | None, bool | None]:
    """Return the counts, the measured value, and whether the rule fires; None for both if there are too few results."""
    decided = sum(count for outcome, _, count in counts if outcome != "skip")
    passed = sum(count for outcome, _, count in counts if outcome == "pass")
    lacking = sum(count for _, code, count in counts if code == "missing_evidence")
    figures: dict[str, Json] = {"results": decided, "passed": passed, "missing_evidence": lacking}
    if "minimum" in settings and decided < max(1, settings["minimum"]):
        return figures, None, None
    rule = KINDS[kind]
    value = rule.measure(Counts(decided, passed, lacking))
    if rule.observed is not None:
        figures[rule.observed] = value
    return figures, float(value), rule.fires(value, settings[rule.limit])
