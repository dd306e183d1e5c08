"""Claims that a query is equivalent to another.

The query is the answer (a judge ignores the words and fences around it), or an argument of the last call of a tool. Equivalent means that
both give the same rows with the same values for all table contents that the schema allows; column names do not matter, the order of rows
only if the reference sorts. Give the tables (`schema`) if keys or nulls matter.

No judge can prove equivalence, and long queries are judged worse than short ones. If you can, run both queries on test data and compare
the rows; use this claim for queries that cannot be run.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.calls import call_path, list_recorded_calls
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quotes
from proctor.checks.shared.rubric import Place, ask_rubric, find_answer, load_rubric, require_filled, require_threshold
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.judgement import Material
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, failed, missing


class SqlEquivalent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query gives the same rows as a reference query, in the opinion of a judge."""

    to: str
    """The reference query."""
    dialect: str | None = None
    """The dialect of SQL both are read as, such as `postgresql`; left out: the standard."""
    schema: str | None = None
    """The tables with their columns and keys, as `CREATE TABLE` or in words."""
    tool: str | None = None
    """Take the query from the last call of this tool, instead of the answer."""
    argument: str | None = None
    """The argument of that tool that holds the query."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


def _declare_reads(spec: SqlEquivalent) -> Reads:
    if spec.tool is None:
        return Reads(("answer",), "exact", "fail")
    return Reads(("tool_calls", "tool_arguments"), "exact", tools=(spec.tool,))


def _locate(spec: SqlEquivalent, evidence: Evidence, verdict: Verdict) -> Iterator[TextRange]:
    query = _find_query(spec, evidence)
    return iter(()) if isinstance(query, Verdict) else locate_quotes(query.value, query.pointer, verdict)


@check(
    "sql_equivalent",
    shorthand="to",
    judged=True,
    example="sql_equivalent: {to: SELECT name FROM customers WHERE city = 'Bonn', dialect: postgresql}",
    reads=_declare_reads,
    locate_by=_locate,
)
def sql_equivalent(spec: SqlEquivalent) -> Decide:
    """A query gives the same rows as a reference query, in the opinion of a judge."""
    for field in ("to", "dialect", "schema", "tool", "argument"):
        require_filled(getattr(spec, field), field)
    if (spec.tool is None) != (spec.argument is None):
        raise SpecError("`tool` and `argument` are given together", field="argument" if spec.argument is None else "tool")
    require_threshold(spec.threshold)
    rubric = load_rubric("sql_equivalent")
    fill = {"dialect": spec.dialect or "standard SQL", "schema": spec.schema or "not given"}

    def decide(evidence: Evidence) -> Verdict:
        query = _find_query(spec, evidence)
        if isinstance(query, Verdict):
            return query
        material = Material(subject=query.value, name="query")
        return ask_rubric(rubric, material, threshold=spec.threshold, fill=fill, reference=spec.to, pointers=(query.pointer,))

    return decide


def _find_query(spec: SqlEquivalent, evidence: Evidence) -> Place | Verdict:
    return find_answer(evidence) if spec.tool is None else _find_argument(spec.tool, spec.argument or "", evidence)


def _find_argument(tool: str, argument: str, evidence: Evidence) -> Place | Verdict:
    calls = list_recorded_calls(evidence)
    if calls is None:
        return missing("tool calls")
    for index in reversed(range(len(calls))):
        if calls[index].goes_by(tool):
            pointer = f"{call_path(evidence, index)}.arguments"
            arguments = calls[index].arguments
            if arguments is None:
                return missing("arguments of tool calls")
            if isinstance(arguments, dict) and argument in arguments:
                return Place(arguments[argument], f"{pointer}.{argument}")
            return failed(f"{pointer} has no {show(argument)}, found {show(arguments)}", pointers=(pointer,))
    return failed(f"expected a call of {show(tool)}, found none")
