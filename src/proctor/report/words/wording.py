"""Text shared by all reports: outcomes, places, scores and findings.

May contain untrusted text; each report escapes it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proctor.model.account import PART_NAMES, PARTS
from proctor.model.case import Assertion
from proctor.model.cost import TotalCost
from proctor.model.evidence import Cost, Json, Source
from proctor.model.problem import Origin
from proctor.model.result import CaseResult, CaseSummary, Incomplete, MissingAttempts, Unmet
from proctor.model.show import shorten, show, show_number
from proctor.model.verdict import Verdict
from proctor.scoring.intervals import wilson
from proctor.scoring.statistics import count_outcomes, summarize_suite

OUTCOME_NAMES = {"pass": "passed", "fail": "failed", "error": "error", "skip": "skipped"}
MARKS = {"pass": "✓", "fail": "✗", "error": "!", "skip": "–", "uncertain": "?"}
LABEL_WIDTH = 10
"""Columns of a label with the space after it."""
GROUPING_TAGS = ("test_dimension", "optimization_target")
"""Tags whose values reports group by."""

_ENDINGS = {
    "completed": "results are missing from its files",
    "interrupted": "the run was interrupted",
    "budget": "the run reached its limit",
    "running": "the run is not finished",
    "not_ended": "the run did not finish",
    "cancelled": "the run was cancelled",
    "failed": "the run failed",
}
"""Why a run lacks results, by its ending."""
_NOT_RECORDED = " not recorded in this evidence"
_MOST_LACKING = 4
"""Parts of the evidence that are named as unknown."""


class ReasonParts(msgspec.Struct, frozen=True):
    """The parts of a reason like `about: expected ..., found ...`."""

    about: str
    expected: str
    found: str


def split_reason(reason: str) -> ReasonParts | None:
    """Split a reason that clearly has one `expected` and one `found` on one line."""
    if "\n" in reason or reason.count("expected ") != 1:
        return None
    about, expected = reason.split("expected ")
    for separator in (", found ", "; found "):
        if expected.count("found ") == 1 and separator in expected:
            expected_value, actual = expected.split(separator)
            if expected_value and actual and (not about or about.endswith(": ")):
                return ReasonParts(about.removesuffix(": "), expected_value, actual)
    return None


def count_noun(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 case`, `2,000 cases`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def count_words(counts: Mapping[str, int]) -> str:
    """Return the counts by outcome: `2 failed, 1 error, 14 passed, 1 skipped`."""
    counted = [_count_outcome(name, counts[name]) for name in ("fail", "error", "pass", "skip") if counts.get(name)]
    return ", ".join(counted) or "nothing was checked"


def _count_outcome(outcome: str, number: int) -> str:
    return f"{number:,} {name_counted(outcome, number)}"


def name_counted(outcome: str, number: int) -> str:
    """Return the name of an outcome for a count: `errors`."""
    return "errors" if outcome == "error" and number != 1 else OUTCOME_NAMES[outcome]


def pad_label(label: str) -> str:
    """Return a padded label such as `expected`."""
    return f"{label:<{LABEL_WIDTH}}"


def pad_outcome_word(outcome: str) -> str:
    """Return an outcome in capitals, padded."""
    return f"{outcome.upper():<5}"


def unmet_words(unmet: Unmet) -> str:
    """Return what did not match: `2 cases without evidence, 1 record without a case`, or ""."""
    parts = [
        (unmet.cases_without_evidence, "case", "without evidence"),
        (unmet.records_without_case, "record", "without a case"),
        (unmet.records_not_selected, "record", "of cases that were not selected"),
    ]
    return ", ".join(f"{count_noun(number, noun)} {rest}" for number, noun, rest in parts if number)


def incomplete_words(incomplete: Incomplete | None) -> str:
    """Return what a run lacks: `incomplete: 3 of 5 attempts, 2 of 4 cases; the run was interrupted`, or ""."""
    if incomplete is None:
        return ""
    reason = _ENDINGS[incomplete.ended]
    if incomplete.attempts_planned is None or incomplete.cases_planned is None:
        return f"incomplete: {count_noun(incomplete.attempts_finished, 'result')}, total unknown; {reason}"
    attempts = f"{incomplete.attempts_finished:,} of {count_noun(incomplete.attempts_planned, 'attempt')}"
    return f"incomplete: {attempts}, {incomplete.cases_finished:,} of {count_noun(incomplete.cases_planned, 'case')}; {reason}"


def missing_words(missing: MissingAttempts, incomplete: Incomplete) -> str:
    """Return why a case has missing results: `2 of 5 attempts are missing: the run was interrupted`."""
    reason = _ENDINGS[incomplete.ended]
    if missing.planned == 1:
        return f"the only attempt is missing: {reason}"
    return f"{missing.planned - missing.finished:,} of {missing.planned:,} attempts are missing: {reason}"


def share_words(counts: Mapping[str, int]) -> str:
    """Return how many passed: `3 of 5 passed`; skipped ones are added but not counted."""
    passed, skipped = counts.get("pass", 0), counts.get("skip", 0)
    decided = passed + counts.get("fail", 0) + counts.get("error", 0)
    skips = _count_outcome("skip", skipped) if skipped or not decided else ""
    return ", ".join(part for part in (f"{passed:,} of {decided:,} passed" if decided else "", skips) if part)


def write_percent(share: float) -> str:
    """Return a percentage; 100 % and 0 % only if exact."""
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "99.9 %"
    return "0.1 %" if text == "0.0" and share > 0 else f"{text} %"


def describe_rate(counts: Mapping[str, int]) -> tuple[str, str]:
    """Return a pass rate, and its counts with the interval: `90.0 %` and `18 of 20, 69.9 % to 97.2 %, 2 errors`."""
    decided = count_outcomes(counts)
    undecided = [_count_outcome(outcome, counts[outcome]) for outcome in ("error", "skip") if counts.get(outcome)]
    if not decided.runs:
        return "not decided", ", ".join(undecided)
    bounds = wilson(decided)
    interval = f"{write_percent(bounds.low)} to {write_percent(bounds.high)}"
    return write_percent(decided.rate), ", ".join((f"{decided.passes:,} of {decided.runs:,}", interval, *undecided))


def pass_hat_words(repeated: Sequence[CaseSummary]) -> str:
    """Return the mean probability that k attempts all pass: `pass^2 80.0 %, pass^5 60.0 %`; empty if all pass."""
    pass_hat = summarize_suite({summary.id: count_outcomes(summary.counts) for summary in repeated}).pass_hat
    sizes = [k for k in (2, 3, 5, 10, max(pass_hat, default=0)) if k > 1 and k in pass_hat]
    return ", ".join(f"pass^{k} {100 * pass_hat[k]:.1f} %" for k in dict.fromkeys(sizes)) if any(pass_hat[k] < 1 for k in sizes) else ""


def score_words(score: float, counts: Mapping[str, int], *, undecided: bool = False) -> str:
    """Return `score 0.75`; next to an error, `score 0.75 of what was decided`.

    A full score next to an error is omitted: part of the run was not examined. So is a score of 0 if nothing was decided.
    """
    number = show_number(score)
    if not (undecided or counts.get("error", 0)):
        return f"score {number}"
    is_decided = score > 0 or counts.get("pass", 0) or counts.get("fail", 0)
    return f"score {number} of what was decided" if score < 1 and is_decided else ""


def has_undecided_claims(results: Iterable[CaseResult]) -> bool:
    """Return whether a claim of a failed case ended in an error."""
    return any(verdict.outcome == "error" for result in results if result.outcome in ("fail", "error") for verdict in result.verdicts)


def cost_words(cost: Cost | TotalCost | None) -> str:
    """Return `cost 0.0042 USD`, judge and user separate; `cost unknown: why`; empty without prices."""
    return "" if cost is None else f"cost {price_words(cost)}"


def price_words(cost: Cost | TotalCost) -> str:
    """Return the same without the word cost."""
    parts = [("agent", cost.agent), ("judge", cost.judge), ("user", cost.user)]
    if all(value is not None for _, value in parts):
        more = [f"{_write_amount(value)} for the {'simulated ' if payer == 'user' else ''}{payer}" for payer, value in parts[1:] if value]
        return " and ".join([f"{_write_amount(cost.agent)} {cost.currency}", *more])
    known = [f"{payer} {_write_amount(value)} {cost.currency}" for payer, value in parts if value]
    if isinstance(cost, TotalCost) and cost.known:
        return f"unknown ({cost.why}), at least {_write_amount(cost.known)} {cost.currency}"
    return f"unknown ({'; '.join(part for part in (', '.join(known), cost.why) if part)})"


def _write_amount(value: float | None) -> str:
    return write_small(value or 0)


def write_small(value: float) -> str:
    """Return an amount without an exponent: `1.25`, `0.0042`, `0.00008`."""
    if value == 0 or abs(value) >= 0.0001:
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.2f}"
    return f"{value:.{-int(math.log10(abs(value)) // 1)}f}"


def write_points(share: float, *, signed: bool = True) -> str:
    """Return a share in percentage points: `+12.5`, `−3`; `signed=False` leaves out the sign."""
    text = f"{abs(share) * 100:,.1f}".removesuffix(".0")
    return text if text == "0" or not signed else f"{'−' if share < 0 else '+'}{text}"


def write_p(p_value: float) -> str:
    """Return a p-value: `p = 0.012`, `p < 0.001`."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def weight_words(value: float) -> str:
    """Return a weight, as short as possible: 2, 0.5."""
    return f"{value:g}"


def evidence_place(source: Source | None) -> str | None:
    """Return the source of evidence: `file:line`, with its id if needed."""
    if source is None:
        return None
    place = source.file or ""
    if source.line is not None:
        place = f"{place or '<input>'}:{source.line}"
    if source.id and source.line is None:
        place = f"{place} ({source.id})" if place else source.id
    return place or None


def origin_place(origin: Origin) -> str | None:
    """Return a position in a file, if any: `suite.yaml:12:7`."""
    if origin.file is None and origin.line is None:
        return None
    return str(origin)


def case_title(result: CaseResult) -> tuple[str, str]:
    """Return id and name of a case; the name is empty if it adds nothing.

    An unreadable record has no case: its position is used as the id.
    """
    if not result.case.id:
        return evidence_place(result.source) or "(no case)", result.case.name
    return summary_title(result.case.id, result.case.name)


def summary_title(case_id: str, name: str) -> tuple[str, str]:
    """Return the same as `case_title` from id and name."""
    return case_id or "(no case)", "" if name == case_id else name


def assertion_title(assertion: Assertion) -> str:
    """Return the title of an assertion: label, id or check, with its turn first."""
    title = assertion.label.strip() or assertion.id or assertion.check
    return title if assertion.turn is None else f"turn {assertion.turn + 1:,} · {title}"


def join_title_and_reason(assertion: Assertion, reason: str) -> str:
    """Return `title: reason`, without a full stop after the title."""
    return f"{assertion_title(assertion).removesuffix('.')}: {reason}"


def assertion_notes(assertion: Assertion, verdict: Verdict) -> str:
    """Return Mibo's name of the assertion, its weight, and why it was not decided, if any."""
    notes = [
        shorten(" ".join(assertion.rule.values()), 80) if "target" in assertion.rule else "",
        "advisory" if assertion.advisory else "",
        "required" if assertion.required else "",
        f"score {show_number(verdict.score)}" if 0 < verdict.score < 1 else "",
        verdict.code or "",
    ]
    return ", ".join(note for note in notes if note)


def case_remark(result: CaseResult) -> str | None:
    """Return the reason of the case as a whole, if its assertions do not show it."""
    if result.reason:
        return f"{result.reason} [{result.code}]" if result.code else result.reason
    if result.code:
        return result.code
    if not result.case.assertions:
        return "nothing is asserted in this case"
    return None


def unknown_words(result: CaseResult, run_id: str = "") -> tuple[str, str] | None:
    """Return which evidence a case lacks and the command that shows it, or None.

    `run_id` is the run of the result.
    """
    lacking: dict[str, None] = {}
    for verdict in result.verdicts:
        if verdict.code != "missing_evidence":
            continue
        unknown = verdict.details.get("unknown", verdict.details.get("not_known"))
        if isinstance(unknown, dict):
            lacking.update((PART_NAMES[part], None) for part in PARTS if part in unknown)
        elif verdict.reason.endswith(_NOT_RECORDED):
            lacking[verdict.reason.removesuffix(_NOT_RECORDED)] = None
    if not lacking:
        return None
    names = list(lacking)
    more = f" and {len(names) - _MOST_LACKING:,} more" if len(names) > _MOST_LACKING else ""
    command = f"proctor show {run_id or 'RUN'} --evidence" if result.source is None else "proctor check ... --explain"
    return f"unknown: {', '.join(names[:_MOST_LACKING])}{more}", command


def skip_words(reason: str) -> str:
    """Return why something was skipped, without repeating that it was."""
    return reason.removeprefix("skipped: ")


def unmatched_words(record: Json) -> str:
    """Return one line about evidence without a matching case."""
    if not isinstance(record, dict):
        return show(record)
    line = record.get("line")
    source = Source(
        file=record["file"] if isinstance(record.get("file"), str) else None,
        line=line if isinstance(line, int) else None,
        id=record["id"] if isinstance(record.get("id"), str) else None,
    )
    place = evidence_place(source)
    case = record.get("case")
    claim = f"names the case {show(case, 80)}" if case is not None else ""
    return ": ".join(part for part in (place, claim) if part) or show(record)
