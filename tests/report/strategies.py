"""Any result at all, with any text in it."""

from __future__ import annotations

from hypothesis import strategies as st

from proctor.checks.run.unsupported import Unsupported
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Source
from proctor.model.problem import Origin, Problem
from proctor.model.result import AxisScore, CaseResult, RunResult
from proctor.model.verdict import OUTCOMES, Verdict
from proctor.scoring.metrics import Tally

# Any text, with more harmful characters than by chance, lone surrogates included.
HARMFUL = "\x00\x1b\x9b\x07\n\r\t\u202e\u2066\u200b\u2028\ufeff\ud800\udfff\ufffe\uffff|`*_<>&@#$\\[]()~:/-\"' a1漢"
text = st.text(max_size=40) | st.text(alphabet=HARMFUL, max_size=40)
chosen = [
    "expected 1, found 2",
    "x: expected \x1b, found \u202e",
    "]]>",
    "\x1b[2J",
    "# a",
    "- a",
    "1. a",
    "```",
    "",
    " ",
    "a" * 5000,
    "漢" * 300,
]
words = st.one_of(text, st.sampled_from(chosen))
json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=8,
)
listed = ["field_results", "assertion_results", "phrase_results", "missing", "extra", "argument_mismatches", "out_of_order"]
known = [*listed, "expected", "actual", "traceback"]
parts = ["path", "phrase", "found", "turn", "passed", "name", "tool_name", "expected_args"]
rows = st.lists(st.dictionaries(st.sampled_from(parts), json, max_size=5), max_size=3)
details = st.dictionaries(st.sampled_from(known), st.one_of(json, rows), max_size=3)
verdicts = st.builds(
    Verdict, st.sampled_from(OUTCOMES), st.floats(0, 1), words, st.none() | words, details, st.lists(words, max_size=5).map(tuple)
)
origins = st.builds(Origin, file=st.none() | words, line=st.none() | st.integers(1), column=st.none() | st.integers(1), path=words)
assertions = st.builds(
    Assertion,
    check=words,
    spec=st.just(Unsupported(reason="a sample")),
    id=st.none() | words,
    label=words,
    advisory=st.booleans(),
    required=st.booleans(),
    turn=st.none() | st.integers(0, 5),
    origin=origins,
)
cases = st.builds(
    Case,
    id=words,
    name=words,
    tags=st.dictionaries(st.sampled_from(["test_dimension", "optimization_target", "other"]), json, max_size=2),
    assertions=st.lists(assertions, max_size=4).map(tuple),
)
sources = st.none() | st.builds(Source, file=st.none() | words, line=st.none() | st.integers(1), id=st.none() | words)
problems = st.builds(Problem, message=words, origin=origins, level=st.sampled_from(["error", "warning"]))


@st.composite
def results(draw: st.DrawFn) -> CaseResult:
    """One result of any shape."""
    case = draw(cases)
    return CaseResult(
        case,
        draw(st.sampled_from(OUTCOMES)),
        draw(st.none() | st.floats(0, 1)),
        tuple(draw(verdicts) for _ in case.assertions),
        draw(sources),
        draw(st.sampled_from([None, "pass", "partial", "fail"])),
        draw(st.none() | st.dictionaries(words, st.builds(AxisScore, st.floats(0, 1), st.floats(0, 10)), max_size=3)),
        draw(st.integers(0, 3)),
        {},
        draw(st.none() | words),
        draw(st.none() | words),
        draw(st.none() | words),
    )


@st.composite
def runs(draw: st.DrawFn) -> RunResult:
    """One run of any shape."""
    found = tuple(draw(st.lists(results(), max_size=4)))
    tally = Tally()
    for result in found:
        tally.add(result)
    return RunResult(
        suite_name=draw(words),
        suite_path=draw(st.none() | words),
        dialect=draw(words),
        run_id=draw(words),
        started_at=draw(words),
        outcome=tally.decide_outcome(),
        score=tally.score,
        counts=tally.counts,
        cases=found,
        summary=tuple(tally.list_summaries()) if draw(st.booleans()) else (),
        unmatched_evidence=tuple(draw(st.lists(json, max_size=3))),
        warnings=tuple(draw(st.lists(problems, max_size=3))),
    )
