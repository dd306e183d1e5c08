"""A run as JUnit XML, the one format every CI system reads.

One `testsuite` per run, one `testcase` per result, and at most one `failure`, `error` or `skipped` in it: several would be counted
several times. Test cases have unique names, because CI systems tell them apart by nothing else. No time is written but 0: what
was measured is in the evidence, and deciding takes none worth reporting. Characters that XML 1.0 cannot carry are shown escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from proctor.model.result import AssertionResult, CaseResult, RunResult
from proctor.model.show import shorten
from proctor.report.findings import finding_lines
from proctor.report.neutral import one_line, several_lines
from proctor.report.wording import (
    MARKS,
    assertion_notes,
    assertion_title,
    case_remark,
    case_title,
    evidence_place,
    in_one_line,
    incomplete_words,
    missing_words,
    number_words,
    origin_place,
)

_MOST_ASSERTIONS = 100
_MOST_POINTERS = 10
_ELEMENTS = {"fail": "failure", "error": "error", "skip": "skipped"}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def render_junit(run: RunResult) -> str:
    """The whole run as one XML document."""
    outcomes = Counter(result.outcome for result in run.cases)
    missing = list(_missing_cases(run, f"{run.suite_name}/{run.dialect}"))
    totals = _attributes(
        {
            "tests": str(len(run.cases) + len(missing)),
            "failures": str(outcomes["fail"]),
            "errors": str(outcomes["error"] + len(missing)),
            "skipped": str(outcomes["skip"]),
            "time": "0",
        }
    )
    name = _attributes({"name": run.suite_name or "suite"})
    stamp = _attributes({"timestamp": run.started_at}) if run.started_at else ""
    classname = f"{run.suite_name}/{run.dialect}"
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites{name}{totals}>", f"  <testsuite{name}{totals}{stamp}>"]
    lines += _properties(_run_facts(run), indent="    ")
    for title, result in zip(_unique_names(run.cases), run.cases, strict=True):
        lines += _test_case(title, classname, result)
    for test_case in missing:
        lines += test_case
    return "\n".join([*lines, "  </testsuite>", "</testsuites>", ""])


def _missing_cases(run: RunResult, classname: str) -> Iterator[list[str]]:
    """An error for every case that lacks attempts: what did not end must not look as if it had passed."""
    incomplete = run.incomplete
    if incomplete is None:
        return
    if not incomplete.missing:
        yield _error_case("(the whole run)", classname, incomplete_words(incomplete))
    for each in incomplete.missing:
        name = each.case.id if each.planned == 1 else f"{each.case.id} [missing attempts]"
        yield _error_case(one_line(name), classname, missing_words(each, incomplete))


def _error_case(name: str, classname: str, message: str) -> list[str]:
    told = _attributes({"message": message, "type": "incomplete"})
    return [
        f"    <testcase{_attributes({'name': name, 'classname': classname, 'time': '0'})}>",
        f"      <error{told}>{_text(one_line(message))}</error>",
        "    </testcase>",
    ]


def _run_facts(run: RunResult) -> dict[str, str]:
    facts = {"dialect": run.dialect, "outcome": run.outcome}
    if run.score is not None:
        facts["score"] = number_words(run.score)
    if run.run_id:
        facts["run_id"] = run.run_id
    if run.suite_path:
        facts["suite_path"] = run.suite_path
    if run.incomplete is not None:
        facts["incomplete"] = incomplete_words(run.incomplete)
    for name in run.unmet.__struct_fields__:
        facts[name] = str(getattr(run.unmet, name))
    return facts


def _case_facts(result: CaseResult) -> dict[str, str]:
    facts: dict[str, str] = {}
    if result.score is not None:
        facts["score"] = number_words(result.score)
    if result.verdict is not None:
        facts["verdict"] = result.verdict
    for name, axis in (result.axes or {}).items():
        facts[f"axis:{name}"] = number_words(axis.score)
    place = evidence_place(result.source)
    if place is not None:
        facts["evidence"] = place
    return facts


def _unique_names(results: Iterable[CaseResult]) -> list[str]:
    """The id of each case; where a case has several results, with the evidence or the attempt."""
    everything = list(results)
    several = Counter(result.case.id for result in everything)
    used: set[str] = set()
    copies: Counter[str] = Counter()
    names: list[str] = []
    for result in everything:
        name = case_title(result)[0]
        if several[result.case.id] > 1 and result.case.id:
            place = evidence_place(result.source)
            name = f"{name} [{place}]" if place else f"{name} [attempt {result.attempt + 1}]"
        name = one_line(name)  # what two long names are cut to must differ as well
        plain = name
        while name in used:
            copies[plain] += 1
            name = f"{plain} #{copies[plain] + 1}"
        used.add(name)
        names.append(name)
    return names


def _test_case(name: str, classname: str, result: CaseResult) -> list[str]:
    lines = [f"    <testcase{_attributes({'name': name, 'classname': classname, 'time': '0'})}>"]
    lines += _properties(_case_facts(result), indent="      ")
    element = _ELEMENTS.get(result.outcome)
    if element is not None:
        kind = "" if element == "skipped" else _attributes({"type": _kind(result)})
        text = _text("\n".join(_story(result)))
        lines.append(f"      <{element}{_attributes({'message': _message(result)})}{kind}>{text}</{element}>")
    return [*lines, "    </testcase>"]


def _kind(result: CaseResult) -> str:
    """One word for the trouble: the code of the case or of its first error, else the check that failed."""
    if result.code:
        return result.code
    for entry in result.failures():
        if entry.outcome == result.outcome:
            return entry.verdict.code or entry.assertion.check
    return result.outcome


def _message(result: CaseResult) -> str:
    """The first line a CI system shows."""
    remark = case_remark(result)
    if remark is not None:
        return one_line(remark)
    entries = [entry for entry in result.assertions if entry.outcome == result.outcome and not entry.assertion.advisory]
    if not entries:
        return result.outcome
    first = one_line(in_one_line(entries[0].assertion, entries[0].reason), 300)
    return first if len(entries) == 1 else f"{first} (and {len(entries) - 1} more)"


def _story(result: CaseResult) -> list[str]:
    """Everything that did not hold, with where it was written."""
    case_id, name = case_title(result)
    lines = [one_line(f"{case_id}: {name}" if name else case_id)]
    place = evidence_place(result.source)
    if place is not None:
        lines.append(one_line(f"evidence: {place}"))
    remark = case_remark(result)
    if remark is not None:
        lines += several_lines(remark)
    wanted = ("skip",) if result.outcome == "skip" else ("fail", "error")
    entries = [entry for entry in result.assertions if entry.outcome in wanted]
    for entry in entries[:_MOST_ASSERTIONS]:
        lines += _assertion(entry)
    if len(entries) > _MOST_ASSERTIONS:
        lines.append(f"… {len(entries) - _MOST_ASSERTIONS} more")
    return lines


def _assertion(entry: AssertionResult) -> list[str]:
    assertion, verdict = entry.assertion, entry.verdict
    notes = assertion_notes(assertion, verdict)
    lines = ["", one_line(f"{MARKS[verdict.outcome]} {assertion_title(assertion)}" + (f" [{notes}]" if notes else ""))]
    lines += [f"    {line}" for line in several_lines(verdict.reason, limit=4000, most_lines=40)]
    lines += [f"    {one_line(line, 1000)}" for line in finding_lines(verdict)]
    if verdict.pointers:
        lines.append(f"    at {one_line(', '.join(shorten(pointer) for pointer in verdict.pointers[:_MOST_POINTERS]), 1000)}")
    place = origin_place(assertion.origin)
    return lines if place is None else [*lines, f"    written {one_line(place)}"]


def _properties(facts: Mapping[str, str], *, indent: str) -> list[str]:
    if not facts:
        return []
    entries = [f"{indent}  <property{_attributes({'name': name, 'value': value})}/>" for name, value in facts.items()]
    return [f"{indent}<properties>", *entries, f"{indent}</properties>"]


def _attributes(values: Mapping[str, str]) -> str:
    return "".join(f' {name}="{one_line(value, 600).translate(_ESCAPES)}"' for name, value in values.items())


def _text(text: str) -> str:
    # Every line was made harmless on its own; the line breaks between them are ours.
    return text.translate(_ESCAPES)
