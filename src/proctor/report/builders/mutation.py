"""The document of a measured suite: the detected share, kinds of faults, claims to add, survivors."""

from __future__ import annotations

from collections.abc import Iterator

from proctor.model.mutation import KIND_NAMES, FaultCounts, MutationResult, ProposedClaim
from proctor.report.document import model as doc
from proctor.report.words.wording import count_noun, write_percent
from proctor.scoring.intervals import Counts, Interval, wilson

_MOST: dict[doc.Output, int] = {"terminal": 15, "markdown": 30, "html": 500}
"""Rows of each list."""


def build_mutation(result: MutationResult, output: doc.Output, least: float | None = None) -> doc.Document:
    """Return the document; `least` is the share that the caller demands."""
    share = result.total.share
    tone: doc.Tone = "skip" if share is None else "fail" if least is not None and share < least else "pass" if share >= 0.8 else "uncertain"
    verdict = "no faults planted" if share is None else f"{write_percent(share)} detected"
    blocks: list[doc.Block] = []
    if share is not None:
        counts = Counts(result.total.planted, result.total.detected)
        interval = wilson(counts)
        about = f"{result.total.detected:,} of {result.total.planted:,} planted faults"
        words = f"{write_percent(interval.low)} to {write_percent(interval.high)}"
        blocks.append(
            doc.Figures((doc.Figure("detected", write_percent(share), words, about, (Interval(interval.low, interval.high), share)),))
        )
        blocks += [_make_kinds(result), *_list_proposals(result, output), *_list_cases(result, output), *_list_survivors(result, output)]
    blocks += _list_unused(result, output)
    skipped = [f"{count_noun(count, 'record')}: {why}" for why, count in result.skipped.items()]
    if result.judged:
        skipped.append(f"{count_noun(result.judged, 'claim')} left out: a judge would have to decide")
    if skipped:
        blocks.append(doc.Section(("Not measured",), (doc.Paragraph((doc.Text("; ".join(skipped), limit=600),)),)))
    free = f"; {result.total.free:,} more declared free variation" if result.total.free else ""
    records = f"{count_noun(result.records, 'record')} of {count_noun(len(result.cases), 'case')}"
    return doc.Document(
        name=result.suite_name,
        verdict=(tone, verdict),
        headline=f"{result.total.detected:,} of {count_noun(result.total.planted, 'fault')} detected in {records}{free}",
        blocks=tuple(blocks),
        about=tuple(filter(None, (result.suite_path, result.dialect))),
        footer="Faults are planted in recorded runs that pass; each is decided again without agent and model. The interval is Wilson's.",
    )


def _make_row(name: str, counts: FaultCounts) -> doc.Row:
    share = counts.share
    return doc.Row(
        (
            (doc.Text(name, limit=80),),
            (doc.Share(share),),
            (write_percent(share) if share is not None else "",),
            (str(counts.detected),),
            (str(counts.survived) if counts.survived else "",),
            (str(counts.free) if counts.free else "",),
        ),
        tone="fail" if counts.survived and not counts.detected else None,
    )


def _make_columns(name: str) -> tuple[doc.Column, ...]:
    return (doc.Column(name), doc.Column(""), *(doc.Column(each, number=True) for each in ("share", "detected", "survived", "free")))


def _make_kinds(result: MutationResult) -> doc.Section:
    rows = sorted(result.kinds.items(), key=lambda pair: pair[1].share if pair[1].share is not None else 2.0)
    table = doc.Table(_make_columns("fault"), tuple(_make_row(KIND_NAMES[kind], counts) for kind, counts in rows))
    return doc.Section(("Faults by kind",), (table,), about="the least detected first")


def _list_proposals(result: MutationResult, output: doc.Output) -> Iterator[doc.Section]:
    """Yield the claims to add, by case; each was decided on the original and on the faults that it would detect."""
    if not result.proposals:
        return
    items: list[doc.Item] = []
    for case in dict.fromkeys(each.case for each in result.proposals):
        mine = [each for each in result.proposals if each.case == case]
        shown = mine[: _MOST[output]]
        lines = [text for each in shown for text in (f"# {_count_kinds(each)}", each.line)]
        rest = f"and {len(mine) - len(shown)} more" if len(mine) > len(shown) else ""
        blocks: tuple[doc.Block, ...] = (doc.Code(tuple(lines), pasted=True), *((doc.Paragraph((rest,), muted=True),) if rest else ()))
        items.append(doc.Item((doc.Text(case, "strong", limit=120),), blocks))
    about = "each holds of the recorded runs and detects the survivors that it counts"
    convert = (
        "" if result.dialect == "native" else "; `proctor convert` writes this suite in the native format, where they belong under `expect`"
    )
    limit = _MOST[output]
    rest = doc.Rest("and {rows} more cases", max(0, len(items) - limit))
    yield doc.Section(("Claims to add",), (doc.Items(tuple(items[:limit]), rest),), about=about + convert)


def _count_kinds(claim: ProposedClaim) -> str:
    return f"{count_noun(claim.survivors, 'survivor')}: {', '.join(KIND_NAMES[kind] for kind in claim.kinds)}"


def _list_cases(result: MutationResult, output: doc.Output) -> Iterator[doc.Section]:
    if len(result.cases) < 2:
        return
    rows = sorted(result.cases.items(), key=lambda pair: pair[1].share if pair[1].share is not None else 2.0)
    limit = _MOST[output]
    rest = doc.Rest("and {rows} more cases", max(0, len(rows) - limit))
    table = doc.Table(_make_columns("case"), tuple(_make_row(case, counts) for case, counts in rows[:limit]), rest)
    yield doc.Section(("Cases",), (table,), about="the least detected first", folded=output == "html")


def _list_survivors(result: MutationResult, output: doc.Output) -> Iterator[doc.Section]:
    survivors = [fault for fault in result.faults if fault.status == "survived"]
    if not survivors or output == "terminal":
        return
    limit = _MOST[output]
    rows = tuple(
        doc.Row(
            (
                (doc.Text(fault.case, limit=80),),
                (KIND_NAMES[fault.kind],),
                (doc.Text(fault.place, limit=120),),
                (doc.Text(fault.record, limit=80),),
                (doc.Text(f"- {fault.claim}" if fault.claim else "none found", "code" if fault.claim else "muted", limit=400),),
            )
        )
        for fault in survivors[:limit]
    )
    columns = (doc.Column("case"), doc.Column("fault"), doc.Column("where"), doc.Column("record"), doc.Column("claim that detects it"))
    rest = doc.Rest("and {rows} more, which the JSON report lists", max(0, len(survivors) - limit))
    yield doc.Section((f"Survivors ({len(survivors):,})",), (doc.Table(columns, rows, rest),), folded=output == "html")


def _list_unused(result: MutationResult, output: doc.Output) -> list[doc.Block]:
    if not result.unused:
        return []
    limit = _MOST[output]
    rows = tuple(doc.Row(((doc.Text(case, limit=80),), (doc.Text(label, limit=160),))) for case, label in result.unused[:limit])
    rest = doc.Rest("and {rows} more", max(0, len(result.unused) - limit))
    table = doc.Table((doc.Column("case"), doc.Column("claim")), rows, rest)
    return [
        doc.Section((f"Claims that detected nothing ({len(result.unused):,} of {result.claims:,})",), (table,), folded=output == "html")
    ]
