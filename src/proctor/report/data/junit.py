"""A run as JUnit XML, the one format every CI system reads.

One `testsuite` per run, one `testcase` per result, and at most one `failure`, `error` or `skipped` in it: several would be counted
several times. Failures that a gate lets through are `skipped`. Test cases have unique names, because CI systems identify them by
nothing else. Times are always 0: durations of the agent are in the evidence, and deciding is fast. Characters that
XML 1.0 does not allow are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from proctor.model.cost import TotalCost
from proctor.model.evidence import Cost
from proctor.model.result import AssertionResult, CaseResult, RunResult
from proctor.model.show import shorten
from proctor.report.words.findings import write_findings
from proctor.report.words.neutral import to_lines, to_one_line
from proctor.report.words.wording import (
    MARKS,
    assertion_notes,
    assertion_title,
    case_remark,
    case_title,
    evidence_place,
    incomplete_words,
    join_title_and_reason,
    missing_words,
    origin_place,
    show_number,
)

_MOST_ASSERTIONS = 100
"""Assertions per case."""
_MOST_POINTERS = 10
"""Pointers per assertion."""
_ELEMENTS = {"fail": "failure", "error": "error", "skip": "skipped"}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def render_junit(run: RunResult) -> str:
    """Return the whole run as one XML document."""
    outcomes = Counter("skip" if run.let_through and result.outcome != "pass" else result.outcome for result in run.cases)
    missing = list(_write_missing_cases(run, f"{run.suite_name}/{run.dialect}"))
    counts = {"tests": len(run.cases) + len(missing), "failures": outcomes["fail"], "errors": outcomes["error"] + len(missing), "time": 0}
    totals = _write_attributes({key: str(value) for key, value in counts.items()})
    skipped = _write_attributes({"skipped": str(outcomes["skip"])})
    name = _write_attributes({"name": run.suite_name or "suite"})
    stamp = _write_attributes({"timestamp": run.started_at}) if run.started_at else ""
    classname = f"{run.suite_name}/{run.dialect}"
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites{name}{totals}>", f"  <testsuite{name}{totals}{skipped}{stamp}>"]
    lines += _write_properties(_run_facts(run), indent="    ")
    for title, result in zip(_make_unique_names(run.cases), run.cases, strict=True):
        lines += _test_case(title, classname, result, run.let_through)
    for test_case in missing:
        lines += test_case
    return "\n".join([*lines, "  </testsuite>", "</testsuites>", ""])


def _write_missing_cases(run: RunResult, classname: str) -> Iterator[list[str]]:
    """Yield an error for every case with missing attempts: they must not look passed."""
    incomplete = run.incomplete
    if incomplete is None:
        return
    # Which cases lack attempts is unknown; without this test case the run would look complete.
    if not incomplete.missing:
        yield _write_error_case("(the whole run)", classname, incomplete_words(incomplete))
    for each in incomplete.missing:
        name = each.case.id if each.planned == 1 else f"{each.case.id} [missing attempts]"
        yield _write_error_case(to_one_line(name), classname, missing_words(each, incomplete))


def _write_error_case(name: str, classname: str, message: str) -> list[str]:
    attributes = _write_attributes({"message": message, "type": "incomplete"})
    return [
        f"    <testcase{_write_attributes({'name': name, 'classname': classname, 'time': '0'})}>",
        f"      <error{attributes}>{_write_text(to_one_line(message))}</error>",
        "    </testcase>",
    ]


def _run_facts(run: RunResult) -> dict[str, str]:
    facts = {
        "dialect": run.dialect,
        "outcome": run.outcome,
        "score": show_number(run.score) if run.score is not None else "",
        "run_id": run.run_id,
        "suite_path": run.suite_path or "",
        **_list_costs(run.cost),
        "let_through": run.let_through,
        "incomplete": incomplete_words(run.incomplete),
        **{name: str(getattr(run.unmet, name)) for name in run.unmet.__struct_fields__},
    }
    return {name: value for name, value in facts.items() if value}


def _list_case_facts(result: CaseResult) -> dict[str, str]:
    facts = {
        "score": show_number(result.score) if result.score is not None else "",
        "verdict": result.verdict or "",
        **{f"axis:{name}": show_number(axis.score) for name, axis in (result.axes or {}).items()},
        **_list_costs(result.cost),
        "evidence": evidence_place(result.source) or "",
    }
    return {name: value for name, value in facts.items() if value}


def _list_costs(cost: Cost | TotalCost | None) -> dict[str, str]:
    """Return the costs of agent, judge and simulated user; unknown ones with the reason."""
    if cost is None:
        return {}
    parts = {"cost:agent": cost.agent, "cost:judge": cost.judge} | ({"cost:user": cost.user} if cost.user != 0 else {})
    properties = {name: f"unknown: {cost.why}" if value is None else f"{value:.10g}" for name, value in parts.items()}
    return {**properties, "cost:currency": cost.currency}


def _make_unique_names(results: Iterable[CaseResult]) -> list[str]:
    """Return the id of each case, with evidence or attempt if it has several results."""
    all_results = list(results)
    several = Counter(result.case.id for result in all_results)
    used: set[str] = set()
    copies: Counter[str] = Counter()
    names: list[str] = []
    for result in all_results:
        name = case_title(result)[0]
        if several[result.case.id] > 1 and result.case.id:
            place = evidence_place(result.source)
            name = f"{name} [{place}]" if place else f"{name} [attempt {result.attempt + 1}]"
        name = to_one_line(name)  # shortened names must differ too
        base_name = name
        while name in used:
            # Counted per name, to avoid a quadratic search.
            copies[base_name] += 1
            name = f"{base_name} #{copies[base_name] + 1}"
        used.add(name)
        names.append(name)
    return names


def _test_case(name: str, classname: str, result: CaseResult, let_through: str = "") -> list[str]:
    lines = [f"    <testcase{_write_attributes({'name': name, 'classname': classname, 'time': '0'})}>"]
    facts = "\n".join(to_one_line(f"{name}: {value}", 600) for name, value in _list_case_facts(result).items())
    element = _ELEMENTS.get(result.outcome)
    if element is not None:
        message = _write_message(result)
        if let_through and element != "skipped":
            # Like pytest's expected failures: a successful job must not show failed tests.
            element, message = "skipped", f"{result.outcome}, let through: {message}"
        kind = "" if element == "skipped" else _write_attributes({"type": _find_kind(result)})
        text = _write_text("\n".join(_write_story(result)))
        lines.append(f"      <{element}{_write_attributes({'message': message})}{kind}>{text}</{element}>")
    # Not as properties: the schema of Jenkins has none for test cases.
    return [*lines, *([f"      <system-out>{_write_text(facts)}</system-out>"] if facts else []), "    </testcase>"]


def _find_kind(result: CaseResult) -> str:
    """Return one word for the problem: the code of the case or its first error, else the failed check."""
    if result.code:
        return result.code
    for entry in result.failures():
        if entry.outcome == result.outcome:
            return entry.verdict.code or entry.assertion.check
    return result.outcome


def _write_message(result: CaseResult) -> str:
    """Return the first line that a CI system shows."""
    remark = case_remark(result)
    if remark is not None:
        return to_one_line(remark)
    entries = [entry for entry in result.assertions if entry.outcome == result.outcome and not entry.assertion.advisory]
    if not entries:
        return result.outcome
    first = to_one_line(join_title_and_reason(entries[0].assertion, entries[0].reason), 300)
    return first if len(entries) == 1 else f"{first} (and {len(entries) - 1} more)"


def _write_story(result: CaseResult) -> list[str]:
    """Return everything that failed, with its source."""
    case_id, name = case_title(result)
    lines = [to_one_line(f"{case_id}: {name}" if name else case_id)]
    place = evidence_place(result.source)
    if place is not None:
        lines.append(to_one_line(f"evidence: {place}"))
    remark = case_remark(result)
    if remark is not None:
        lines += to_lines(remark)
    outcomes = ("skip",) if result.outcome == "skip" else ("fail", "error")
    entries = [entry for entry in result.assertions if entry.outcome in outcomes]
    for entry in entries[:_MOST_ASSERTIONS]:
        lines += _write_assertion(entry)
    if len(entries) > _MOST_ASSERTIONS:
        lines.append(f"… {len(entries) - _MOST_ASSERTIONS} more")
    return lines


def _write_assertion(entry: AssertionResult) -> list[str]:
    assertion, verdict = entry.assertion, entry.verdict
    notes = assertion_notes(assertion, verdict)
    lines = ["", to_one_line(f"{MARKS[verdict.outcome]} {assertion_title(assertion)}" + (f" [{notes}]" if notes else ""))]
    lines += [f"    {line}" for line in to_lines(verdict.reason, limit=4000, most_lines=40)]
    lines += [f"    {to_one_line(line, 1000)}" for line in write_findings(verdict)]
    if verdict.pointers:
        lines.append(f"    at {to_one_line(', '.join(shorten(pointer) for pointer in verdict.pointers[:_MOST_POINTERS]), 1000)}")
    place = origin_place(assertion.origin)
    return lines if place is None else [*lines, f"    written {to_one_line(place)}"]


def _write_properties(facts: Mapping[str, str], *, indent: str) -> list[str]:
    if not facts:
        return []
    entries = [f"{indent}  <property{_write_attributes({'name': name, 'value': value})}/>" for name, value in facts.items()]
    return [f"{indent}<properties>", *entries, f"{indent}</properties>"]


def _write_attributes(values: Mapping[str, str]) -> str:
    return "".join(f' {name}="{to_one_line(value, 600).translate(_ESCAPES)}"' for name, value in values.items())


def _write_text(text: str) -> str:
    # Every line is escaped; the line breaks between them are ours.
    return text.translate(_ESCAPES)
