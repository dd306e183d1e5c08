"""What a batch warns of: figures that may be about less than somebody meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.batches.slices.sketch import MOST_REASONS, Sketch
from proctor.model.batch import CaseBatch
from proctor.model.show import nearest
from proctor.report.words.wording import count_noun

NO_RUN = "no_run"
"""The code of a result that is skipped because its trace is no run of an agent."""


def list_warnings(sketch: Sketch, by: Sequence[Sequence[str]] = ()) -> tuple[str, ...]:
    """Return what is to be looked at before the figures are believed; `by` are the tables that were asked for."""
    return (
        *_list_unknown_names(sketch),
        *_list_untold(sketch, by),
        *_list_incomplete(sketch),
        *_list_undecided(sketch),
        *_list_inexact(sketch),
    )


def describe_foreign(files: Sequence[str]) -> Iterator[str]:
    """Yield that files among the results were not written by the batch."""
    if files:
        there = "file" if len(files) == 1 else "files"
        yield (
            f"{len(files):,} {there} beside the results that this batch did not write ({files[0]}): whoever reads the folder "
            "reads rows twice, or rows of something else; take them away"
        )


def list_unanswered(cases: Sequence[CaseBatch], traces: int) -> Iterator[str]:
    """Yield that no trace answers some cases: nothing was looked at for them."""
    unanswered = [case.id for case in cases if not case.rate.counts]
    if unanswered and traces:
        told = f"{count_noun(len(unanswered), 'case')} ({_list_some(unanswered)})"
        yield f"none of {count_noun(traces, 'trace')} answers {told}: nothing is known of them"


def _list_some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def list_judge_warnings(cases: Sequence[CaseBatch], *, unpriced: bool) -> Iterator[str]:
    """Yield of which claims nothing is known because nobody was asked; `unpriced` where the judge did not tell its tokens."""
    if unpriced:
        yield "the judge does not tell how many tokens it takes, so --max-tokens cannot hold: the sample ends early; give --judge-sample"
    unseen = [case.id for case in cases if case.judged is not None and case.judged.of and not case.judged.judged]
    if unseen:
        told = f"{count_noun(len(unseen), 'case')} ({_list_some(unseen)})"
        yield f"the judge was asked about no result of {told}, which therefore did not pass; give a larger --judge-sample or --max-tokens"


def _list_unknown_names(sketch: Sketch) -> Iterator[str]:
    names = sketch.names
    if names is None:
        return
    for name in names.missing:
        close = nearest(name, names.keys)
        hint = f"; nearest: {close[0]!r}" if close else f"; they have {', '.join(names.keys[:10])}" if names.keys else ""
        yield f"--where asks for {name!r}, which none of {count_noun(names.lines, 'line')} has{hint}"
    for comparison, number in names.unlike.items():
        yield (
            f"--where compares {comparison}, and {number:,} of {count_noun(names.lines, 'line')} have something of another kind there, "
            "of which that is never true"
        )


def _list_untold(sketch: Sketch, by: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield that no trace tells what the summary is sliced by: most often the name is another one."""
    untold: dict[str, None] = {}
    for names in by:
        values = [one.values for one in sketch.tables[",".join(names)].held.items.values()] if ",".join(names) in sketch.tables else []
        untold |= {name: None for number, name in enumerate(names) if values and all(value[number] is None for value in values)}
    for name in untold:
        yield (
            f"--by {name!r}: none of {count_noun(sketch.traces, 'trace')} tells it; expected a column, a key of the folders or of the "
            "metadata, day, model or case"
        )


def _list_incomplete(sketch: Sketch) -> Iterator[str]:
    """Yield that traces may lack spans: of these nothing is said that spans which were not read could overturn."""
    if sketch.incomplete:
        yield (
            f"{sketch.incomplete:,} of {count_noun(sketch.traces, 'trace')} may lack spans that could not be read (see errors): "
            "what did not happen there is unknown; mend what is broken, or name the data set without it"
        )


def _list_undecided(sketch: Sketch) -> Iterator[str]:
    """Yield that traces told of no agent: a check that something did not happen has not looked at them."""
    skipped = max(
        (sum(reason.count for reason in case.reasons.items.values() if reason.code == NO_RUN) for case in sketch.cases.values()), default=0
    )
    if skipped:
        yield (
            f"{skipped:,} of {count_noun(sketch.traces, 'trace')} tell of no agent, model or tool: nothing was decided on them; "
            "where they are runs of an agent, --evidence-format names how they are written"
        )


def _list_inexact(sketch: Sketch) -> Iterator[str]:
    """Yield which tables have more entries than are held: counts of those that came late may be too low."""
    for names, table in sketch.tables.items():
        count = len(table.held.items)
        if table.held.floor:
            yield _describe_inexact(f"--by {names}: more than {2 * table.most:,} slices", table.held.floor, "traces of a slice")
        elif count > table.most:
            yield f"--by {names}: {count:,} slices, of which the {table.most:,} heaviest are shown and the others are counted together"
    cases = [(id, case.reasons.floor) for id, case in sketch.cases.items() if case.reasons.floor]
    if cases:
        told = (
            f"more than {2 * MOST_REASONS:,} different reasons in {count_noun(len(cases), 'case')} ({_list_some([id for id, _ in cases])})"
        )
        yield _describe_inexact(told, max(floor for _, floor in cases), "failures with one reason")
    if sketch.faults.floor:
        yield _describe_inexact(f"more than {2 * MOST_REASONS:,} different causes of errors", sketch.faults.floor, "errors with one cause")


def _describe_inexact(told: str, floor: int, what: str) -> str:
    return f"{told}: the heaviest are shown, and counts that are inexact are marked; up to {floor:,} {what} may be counted among the others"
