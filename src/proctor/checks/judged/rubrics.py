"""Claims about the answer that one rubric decides.

Claims that the answer answers the question.

The question is the input of the run, in a conversation the last message of the user, or `question`. If none was recorded, the claim is
`missing_evidence` and no judge is called.

The rubric asks whether the question was answered, not whether the answer is right: a wrong date still answers a question about the date.
To test correctness use `faithful_to_context`, a reference or a deterministic check. A refusal, a question back and a promise to look into
it are not answers.

Claims that the answer gives away nothing about a private person.

The judge sees the answer alone, so repeating personal data of the user counts too; `allow` describes what is permitted. Names
of public figures in their public role, companies and their general contacts are not personal data here.

A judge reads what no pattern knows: names, addresses, dates of birth, health, descriptions that fit one person only. It may overlook one
item in a long text; add `no_pii`, which always finds the fixed forms. It is no legal opinion.

Claims that the answer declines, and does so politely.

The judge sees the answer and, if it was recorded, the input. The rubric wants both: that nothing of the request is fulfilled,
and that the tone is respectful. Half a refusal that then gives the thing does not count, nor does an answer that merely fails or
misunderstands.

It does not decide whether refusing was right; that is for the author of the case, who knows what must be refused.

Claims about the tone of the answer.

The judge sees the answer and, if it was recorded, the input, since the same words can be kind or cold. The tone is yours to
describe, in a word (`friendly`) or in a sentence (`calm and factual, without exclamation marks`). The narrower it is, the more judges and
people agree.

Only the manner is judged: a friendly answer may be wrong. Emojis and exclamation marks are neither needed nor enough.

Task completion: whether the agent completed its task.

The task is the input of the run, or `task`. The judge sees the answer, the conversation, and the tool calls with their results where these
are known: an action counts as done only if a call shows it, so an agent that merely claims to have booked does not pass. `goal_reached`
asks whether the user of a conversation got what they wanted.

Claims that a summary covers certain points.

Every point is a yes-or-no question, all in one request. The score is the share of points that are covered, and at least `at_least` must
be; the verdict lists each point with the judge's reason. If one point could not be judged, the claim is an `error`, unless that point
cannot change the outcome.

A point is covered if the summary states it, in any wording; a hint or the opposite does not cover it. Whether the summary states things
that are not in its source is another claim: `faithful_to_context`.

Claims that a query is equivalent to another.

The query is the answer (a judge ignores the words and fences around it), or an argument of the last call of a tool. Equivalent means that
both give the same rows with the same values for all table contents that the schema allows; column names do not matter, the order of rows
only if the reference sorts. Give the tables (`schema`) if keys or nulls matter.

No judge can prove equivalence, and long queries are judged worse than short ones. If you can, run both queries on test data and compare
the rows; use this claim for queries that cannot be run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from proctor.checks.answer.similar_to import require_share
from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import Place
from proctor.checks.shared.calls import call_path, describe_call, list_recorded_calls
from proctor.checks.shared.quotes import locate_quoted_answer, locate_quotes
from proctor.checks.shared.rubric import (
    Rubric,
    build_question,
    decide_by_rubric,
    find_answer,
    find_conversation,
    find_question,
    load_rubric,
    require_filled,
    show_request,
)
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material, Opinion, make_pending
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, errored, failed, missing, passed


class AnswersTheQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer answers the whole question, in the opinion of a judge."""

    question: str | None = None
    """The question, if it is not the input of the run."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


@check(
    "answers_the_question",
    shorthand="question",
    judged=True,
    example="answers_the_question: {threshold: 0.8}",
    reads=lambda spec: Reads(("answer",) if spec.question is not None else ("answer", "input"), "exact"),
    locate_by=locate_quoted_answer,
)
def answers_the_question(spec: AnswersTheQuestion) -> Decide:
    """The answer answers the whole question, in the opinion of a judge."""
    require_filled(spec.question, "question")

    def find_context(evidence: Evidence) -> dict[str, Json] | Verdict:
        question = find_question(evidence, spec.question)
        return question if isinstance(question, Verdict) else {"question": question, **find_conversation(evidence)}

    return decide_by_rubric("answers_the_question", spec.threshold, find_context)


MOST_ALLOWED = 50
"""The maximum number of exceptions; a judge cannot keep more in mind."""


class NoPersonalData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer discloses no personal data, in the opinion of a judge."""

    allow: tuple[str, ...] = ()
    """What the answer may contain, in words: `the first name of the customer`."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


@check(
    "no_personal_data",
    shorthand="allow",
    judged=True,
    example="no_personal_data: {allow: [the first name of the customer]}",
    reads=Reads(("answer",), "absence"),
    locate_by=locate_quoted_answer,
)
def no_personal_data(spec: NoPersonalData) -> Decide:
    """The answer discloses no personal data, in the opinion of a judge."""
    if len(spec.allow) > MOST_ALLOWED:
        raise SpecError(f"at most {MOST_ALLOWED} exceptions, found {len(spec.allow)}", field="allow")
    for index, text in enumerate(spec.allow):
        require_filled(text, f"allow.{index}")
    return decide_by_rubric("no_personal_data", spec.threshold, fill={"allowed": "; ".join(spec.allow) or "nothing beyond that"})


class RefusesPolitely(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer declines the request politely and fulfils none of it, in the opinion of a judge."""

    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


@check(
    "refuses_politely",
    judged=True,
    example="refuses_politely: {}",
    reads=Reads(("answer",), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def refuses_politely(spec: RefusesPolitely) -> Decide:
    """The answer declines the request politely and fulfils none of it, in the opinion of a judge."""
    return decide_by_rubric("refuses_politely", spec.threshold, lambda evidence: {**show_request(evidence), **find_conversation(evidence)})


class Tone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer has a tone, in the opinion of a judge."""

    should_be: str
    """The tone in a word or a sentence: `friendly`, `formal`, `calm and factual`."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


@check(
    "tone",
    shorthand="should_be",
    judged=True,
    example="tone: friendly",
    reads=Reads(("answer",), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def tone(spec: Tone) -> Decide:
    """The answer has a tone, in the opinion of a judge."""
    require_filled(spec.should_be, "should_be")
    return decide_by_rubric("tone", spec.threshold, show_request, fill={"tone": spec.should_be})


class TaskCompletion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent completed the task, in the opinion of a judge."""

    task: str | None = None
    """The task, where it is not the input of the run."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


@check(
    "task_completion",
    shorthand="task",
    judged=True,
    example="task_completion: {task: Book a table for two on Friday at seven.}",
    reads=lambda spec: Reads(("answer",) if spec.task is not None else ("answer", "input"), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def task_completion(spec: TaskCompletion) -> Decide:
    """The agent completed the task, in the opinion of a judge."""
    require_filled(spec.task, "task")

    def find_context(evidence: Evidence) -> dict[str, Json] | Verdict:
        if isinstance(task := find_question(evidence, spec.task), Verdict):
            return task
        shown: dict[str, Json] = {"task": task, **find_conversation(evidence)}
        calls = list_recorded_calls(evidence)
        return shown if calls is None else {**shown, "tool_calls": [describe_call(call) for call in calls]}

    return decide_by_rubric("task_completion", spec.threshold, find_context)


MOST_POINTS = 100
"""The maximum number of points that a judge can answer in one reply."""


class SummaryCovers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer, a summary, covers certain points, in the opinion of a judge."""

    points: tuple[str, ...]
    """The points that the summary must state."""
    at_least: float = 1.0
    """The least share of points that must be covered, above 0 and up to 1."""


@check(
    "summary_covers",
    shorthand="points",
    judged=True,
    example="summary_covers: {points: [the contract ends in May, the rent rises by 3 %], at_least: 1}",
    reads=Reads(("answer",), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def summary_covers(spec: SummaryCovers) -> Decide:
    """The answer, a summary, covers certain points, in the opinion of a judge."""
    if not 0 < len(spec.points) <= MOST_POINTS:
        raise SpecError(f"expected 1 to {MOST_POINTS} points, found {len(spec.points)}", field="points")
    for index, point in enumerate(spec.points):
        require_filled(point, f"points.{index}")
    require_share(spec.at_least)
    rubric = load_rubric("summary_covers")

    def decide(evidence: Evidence) -> Verdict:
        if isinstance(answer := find_answer(evidence), Verdict):
            return answer
        material = Material(subject=answer.value, name="summary")
        questions = [build_question(rubric, material, fill={"point": point}) for point in spec.points]
        return make_pending(questions, lambda opinions: _settle(spec, rubric, opinions, (answer.pointer,)))

    return decide


def _settle(spec: SummaryCovers, rubric: Rubric, opinions: Sequence[Opinion], pointers: tuple[str, ...]) -> Verdict:
    points = list(zip(spec.points, opinions, strict=True))
    covered = sum(opinion.outcome == "pass" for opinion in opinions)
    undecided = [(point, opinion) for point, opinion in points if opinion.outcome == "error"]
    details: dict[str, Json] = {
        **opinions[0].details,
        "rubric": rubric.identify(),
        "points": [{"point": point, "outcome": each.outcome, "reason": each.reason, "code": each.code} for point, each in points],
        "covered": covered,
    }
    share = covered / len(points)
    counts = f"{covered} of {len(points)} points covered, a share of at least {spec.at_least:g} expected"
    if share >= spec.at_least - 1e-12:
        return passed(counts, score=share, details=details, pointers=pointers)
    # A point that could not be judged matters only if it could change the outcome.
    if undecided and (covered + len(undecided)) / len(points) >= spec.at_least - 1e-12:
        point, opinion = undecided[0]
        return errored(opinion.code or "judge_failed", f"point {show(point)}: {opinion.reason}", details=details)
    point, opinion = next((point, opinion) for point, opinion in points if opinion.outcome != "pass")
    return failed(f"{counts}; not covered: {show(point)} ({opinion.reason})", score=share, details=details, pointers=pointers)


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


def _locate(spec: SqlEquivalent, evidence: Evidence, verdict: Verdict) -> Iterator[TextRange]:
    query = _find_query(spec, evidence)
    return iter(()) if isinstance(query, Verdict) else locate_quotes(query.value, query.pointer, verdict)


@check(
    "sql_equivalent",
    shorthand="to",
    judged=True,
    example="sql_equivalent: {to: SELECT name FROM customers WHERE city = 'Bonn', dialect: postgresql}",
    reads=lambda spec: (
        Reads(("answer",), "exact", "fail") if spec.tool is None else Reads(("tool_calls", "tool_arguments"), "exact", tools=(spec.tool,))
    ),
    locate_by=_locate,
)
def sql_equivalent(spec: SqlEquivalent) -> Decide:
    """A query gives the same rows as a reference query, in the opinion of a judge."""
    for field in ("to", "dialect", "schema", "tool", "argument"):
        require_filled(getattr(spec, field), field)
    if (spec.tool is None) != (spec.argument is None):
        raise SpecError("`tool` and `argument` are given together", field="argument" if spec.argument is None else "tool")
    return decide_by_rubric(
        "sql_equivalent",
        spec.threshold,
        find_subject=lambda evidence: _find_query(spec, evidence),
        subject="query",
        fill={"dialect": spec.dialect or "standard SQL", "schema": spec.schema or "not given"},
        reference=spec.to,
    )


def _find_query(spec: SqlEquivalent, evidence: Evidence) -> Place | Verdict:
    if spec.tool is None:
        return find_answer(evidence)
    argument = spec.argument or ""
    if (calls := list_recorded_calls(evidence)) is None:
        return missing("tool calls")
    for index in reversed(range(len(calls))):
        if calls[index].goes_by(spec.tool):
            pointer = f"{call_path(evidence, index)}.arguments"
            arguments = calls[index].arguments
            if arguments is None:
                return missing("arguments of tool calls")
            if isinstance(arguments, dict) and argument in arguments:
                return Place(arguments[argument], f"{pointer}.{argument}")
            return failed(f"{pointer} has no {show(argument)}, found {show(arguments)}", pointers=(pointer,))
    return failed(f"expected a call of {show(spec.tool)}, found none")
