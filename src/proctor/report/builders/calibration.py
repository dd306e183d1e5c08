"""The document of a calibration: figures, table, thresholds, tags, disagreements. May contain untrusted text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from proctor.model.judgement import JudgedAnswer
from proctor.report.document import model as doc
from proctor.report.words.wording import count_noun, show_number, write_p
from proctor.scoring.agreement import Figure as Measured
from proctor.scoring.calibration import Calibration, TagRow
from proctor.scoring.cutting import SweepRow, count_at_threshold
from proctor.scoring.intervals import Interval

MOST_ITEMS: Mapping[doc.Output, int] = {"terminal": 20, "html": 500}
"""Disagreements of each kind; the JSON has all."""
MOST_TAGS: Mapping[doc.Output, int] = {"terminal": 15, "html": 200}
_THRESHOLDS = 12
"""Thresholds in a terminal, with the current and the chosen one; a page has a chart."""
_GOOD = 0.6
"""Below this kappa a judge is not used to gate."""
_SWEPT = ("accuracy", "kappa", "precision", "recall", "f1")
_MORE = "and {rows} more, which the JSON report lists"


def build_calibration(result: Calibration, output: doc.Output) -> doc.Document:
    """Return the document of a calibration."""
    kappa, interval = result.table.kappa, result.figures["kappa"].interval
    # A mark is a judgement too, so it needs the whole interval: two labels may give a kappa of 1.
    tone: doc.Tone = "skip" if interval is None else "pass" if interval.low > _GOOD else "fail" if interval.high <= _GOOD else "uncertain"
    spent, amount = result.spent, spent_words(result)
    model = f"model {', '.join(spent.models)}" if spent.judges and spent.models and spent.judges != spent.models else ""
    threshold = "yes or no" if result.threshold is None else f"threshold {threshold_words(result.threshold)}"
    lists: list[tuple[str, str, Sequence[JudgedAnswer], doc.Tone]] = [
        ("False passes", FALSE_PASSES, result.false_passes, "fail"),
        ("False fails", FALSE_FAILS, result.false_fails, "fail"),
        ("Undecided", UNDECIDED, result.without_decision, "uncertain"),
    ]
    agreed = result.decided and not result.false_passes and not result.false_fails
    table = result.table
    rows = (
        doc.Row((("labelled right",), _count(table.true_pass, "pass"), _count(table.false_fail, "fail"))),
        doc.Row((("labelled wrong",), _count(table.false_pass, "fail"), _count(table.true_fail, "pass"))),
    )
    columns = (doc.Column(""), doc.Column("judge passes", number=True), doc.Column("judge fails", number=True))
    undecided = f"undecided: {undecided_words(result)} (neither right nor wrong)"
    return doc.Document(
        name=name_calibrated_judge(result),
        verdict=(tone, "no kappa" if kappa is None else f"kappa {value_words('kappa', kappa)}"),
        headline=write_headline(result),
        about=tuple(filter(None, (set_words(result), model, threshold))),
        blocks=(
            doc.Figures(tuple(_make_figure(name, figure) for name, figure in result.figures.items())),
            doc.Section(
                ("Confusion table",),
                (
                    doc.Table(columns, rows, kind="confusion"),
                    *([doc.Paragraph((undecided,), tone="uncertain")] if result.undecided else []),
                ),
            ),
            *_list_thresholds(result, output),
            *_list_tags(result.tags, output),
            *(section for kind in lists if kind[2] for section in [_make_items(result, output, *kind)]),
            *([doc.Paragraph(("The judge and the labels agree on every item that was decided.",))] if agreed else []),
        ),
        footer=method_words(result) + (f" Spent on the judge: {amount}." if amount else ""),
    )


def _make_figure(name: str, figure: Measured) -> doc.Figure:
    value = value_words(name, figure.value)
    return doc.Figure(TITLES[name], value, interval_words(name, figure), ABOUT[name], place_figure(name, figure))


def place_figure(name: str, figure: Measured) -> tuple[Interval, float] | None:
    """Return interval and value as shares of the scale, which begins at -1 for a kappa that may be negative."""
    if figure.value is None or figure.interval is None:
        return None
    low = -1.0 if name == "kappa" and figure.interval.low < 0 else 0.0

    def at(value: float) -> float:
        return (value - low) / (1 - low)

    return Interval(at(figure.interval.low), at(figure.interval.high)), at(figure.value)


def _count(count: int, tone: doc.Tone) -> doc.Line:
    return (doc.Text(f"{count:,}", tone=tone if count else None),)


def _list_thresholds(calibration: Calibration, output: doc.Output) -> Iterator[doc.Section]:
    advice = doc.Paragraph((doc.Text(advice_words(calibration), limit=600),))
    if calibration.threshold is None:
        if output == "html":
            yield doc.Section(("Threshold",), (advice,))
        return
    chosen = calibration.cut.threshold if calibration.cut is not None else None
    chart = [make_sweep_chart(calibration.sweep, calibration.threshold, chosen)] if calibration.sweep else []
    sweep = [_make_sweep(calibration, calibration.threshold)] if calibration.sweep and output == "terminal" else []
    yield doc.Section(("Threshold",), (*chart, *sweep, advice))


def make_sweep_chart(rows: Sequence[SweepRow], present: float, chosen: float | None, chosen_word: str = "chosen") -> doc.Chart:
    """Return accuracy and kappa over the threshold, as steps between scores."""
    lowest = min((row.table.kappa or 0.0 for row in rows), default=0.0)
    present_text = threshold_words(present)
    marks = [(present, "present", f"current {present_text}")]
    if chosen is not None and chosen != present:
        marks.append((chosen, "chosen", f"{chosen_word} {threshold_words(chosen)}"))
    return doc.Chart(
        caption=f"Accuracy and kappa for every threshold; current {present_text}",
        series=tuple(
            doc.Series(name, tuple((row.threshold, value) for row in rows if (value := getattr(row.table, name)) is not None))
            for name in ("accuracy", "kappa")
        ),
        ticks=tuple((step / 5, threshold_words(step / 5)) for step in range(6)),
        lowest=0.0 if lowest >= 0 else -0.5 if lowest >= -0.5 else -1.0,
        axis="Threshold",
        marks=tuple(marks),
        steps=True,
    )


def _make_sweep(calibration: Calibration, present: float) -> doc.Table:
    """Return some of the thresholds, including the current and the chosen one."""
    swept = list(calibration.sweep)
    step = max(1, -(-len(swept) // _THRESHOLDS))
    notes = {present: "present"}
    if calibration.cut is not None and calibration.cut.threshold != present:
        notes[calibration.cut.threshold] = "chosen"
    items = [(item.opinion.score, item.item.label) for item in calibration.items if item.decided]
    rows = {row.threshold: row for row in swept[::step]}
    # Computed again, because neither threshold needs to be an actual score.
    rows |= {threshold: SweepRow(threshold, count_at_threshold(items, threshold)) for threshold in notes}
    columns = (
        doc.Column("passes from", number=True),
        doc.Column("passes", number=True),
        *(doc.Column(TITLES[name], number=True) for name in _SWEPT),
        doc.Column(""),
    )
    return doc.Table(columns, tuple(_make_sweep_row(rows[threshold], notes.get(threshold, "")) for threshold in sorted(rows)))


def _make_sweep_row(row: SweepRow, note: str) -> doc.Row:
    figures = row.table.compute_figures()
    passes = f"{row.table.true_pass + row.table.false_pass:,}"
    cells = (threshold_words(row.threshold), passes, *(value_words(name, figures[name]) for name in _SWEPT))
    return doc.Row((*((cell,) for cell in cells), (f"← {note}",) if note else ()), strong=bool(note))


def _list_tags(tags: Sequence[TagRow], output: doc.Output) -> Iterator[doc.Section]:
    if not tags:
        return
    most = MOST_TAGS[output]
    counts = ("agree", "false passes", "false fails", "undecided")
    rows = [
        doc.Row(
            (
                (doc.Text(row.tag, limit=80),),
                (doc.Share(row.accuracy or 0.0),),
                (f"{row.agreed} of {row.items - row.undecided}",),
                *((str(count),) if count else () for count in (row.false_pass, row.false_fail, row.undecided)),
            )
        )
        for row in tags[:most]
    ]
    columns = (doc.Column("tag"), doc.Column(""), *(doc.Column(name, number=True) for name in counts))
    table = doc.Table(columns, tuple(rows), doc.Rest("and {rows} more tags", max(0, len(tags) - most)))
    yield doc.Section(("By tag",), (table,), about="the hardest first")


def _make_items(
    calibration: Calibration, output: doc.Output, title: str, about: str, items: Sequence[JudgedAnswer], tone: doc.Tone
) -> doc.Section:
    heading = (f"{title} ({len(items):,})",)
    if output == "terminal" and (fault := _find_common_fault(items, calibration)):
        return doc.Section(heading, (doc.Paragraph((doc.Text(fault, limit=400),)),), about)
    limit = MOST_ITEMS[output]
    rest = doc.Rest("and {rows} more, which the JSON and HTML reports list" if output == "terminal" else _MORE, max(0, len(items) - limit))
    rows = tuple(_make_item(item, tone, scored=calibration.threshold is not None) for item in items[:limit])
    return doc.Section(heading, (doc.Items(rows, rest, folded=True),), about)


def _find_common_fault(items: Sequence[JudgedAnswer], calibration: Calibration) -> str:
    """Return the fault that all items share, if any; then the list of items is not useful."""
    faults = {(item.opinion.code, item.opinion.reason) for item in items if not item.decided}
    is_common = len(faults) == 1 or (len({code for code, _ in faults}) == 1 and not calibration.decided)
    if len(items) < 2 or not is_common or any(item.decided for item in items):
        return ""
    # Reasons differ by the claim they quote.
    code, reason = min(faults, key=lambda fault: len(fault[1]))
    return f"{code}: {reason}"


def _make_item(answer: JudgedAnswer, tone: doc.Tone, *, scored: bool) -> doc.Item:
    item, opinion = answer.item, answer.opinion
    verdict = opinion_words(answer, scored=scored)
    rows: list[tuple[str, doc.Line]] = [("criterion", (doc.Value(item.criterion),)), ("answer", (doc.Value(item.answer),))]
    if item.context is not None:
        rows.append(("context", (doc.Value(item.context),)))
    rows.append(("judge", (doc.Value(f"{verdict}: {opinion.reason}" if opinion.reason else verdict),)))
    if item.why:
        rows.append(("label", (doc.Value(f"{'right' if item.label else 'wrong'}: {item.why}"),)))
    tags = [part for tag in item.tags[:12] for part in ("  ", doc.Text(tag, "note", limit=60))]
    title: doc.Line = (doc.Text(item.name, "strong", limit=80), *tags)
    return doc.Item(title, (doc.Facts(tuple(rows)),), tone, summary=(doc.Text(item.criterion, limit=240),))


TITLES = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1", "kappa": "kappa"}
ABOUT = {
    "accuracy": "how often judge and labels agree",
    "precision": "share of the judge's passes that are correct",
    "recall": "share of correct answers that the judge passes",
    "f1": "harmonic mean of precision and recall",
    "kappa": "agreement beyond chance",
}
FALSE_PASSES = "labelled wrong, but the judge passed it"
FALSE_FAILS = "labelled right, but the judge failed it"
UNDECIDED = "no verdict of the judge; not counted"
UNKNOWN = "–"

METHOD = (
    "Intervals: {confidence:.0%}, Bayesian bootstrap of {draws:,} draws, stratified by label, seed {seed}. "
    "Items without a verdict are not counted."
)


def method_words(calibration: Calibration) -> str:
    """Return how the intervals were computed."""
    return METHOD.format(confidence=calibration.confidence, draws=calibration.draws, seed=calibration.seed)


def name_calibrated_judge(calibration: Calibration) -> str:
    """Return the name of the judge: `gpt-4o-mini (prompt 1)`."""
    spent = calibration.spent
    names = spent.judges or spent.models
    prompt = f" (prompt {', '.join(spent.prompts)})" if spent.prompts else ""
    return (", ".join(names) or "the judge") + prompt


def set_words(calibration: Calibration) -> str:
    """Return the composition of the set: `128 labelled answers, 64 right and 64 wrong`."""
    correct = sum(item.item.label for item in calibration.items)
    total = len(calibration.items)
    return f"{count_noun(total, 'labelled answer')}, {correct:,} right and {total - correct:,} wrong"


def write_headline(calibration: Calibration) -> str:
    """Return the finding in one sentence."""
    kappa = calibration.table.kappa
    agreed = calibration.table.true_pass + calibration.table.true_fail
    if not calibration.decided:
        return "The judge decided nothing."
    interval = calibration.figures["kappa"].interval
    if kappa is None or interval is None:
        finding = "kappa means nothing, because all labels are the same: add answers of the other kind"
    else:
        strength = {"unknown": "", "none": "no "}.get(calibration.strength, f"{calibration.strength} ")
        finding = f"{strength}agreement beyond chance (kappa {value_words('kappa', kappa)}, {interval.low:.2f} to {interval.high:.2f})"
    return f"The judge agrees with {agreed:,} of {calibration.decided:,} labels; {finding}."


def value_words(name: str, value: float | None) -> str:
    """Return a figure: shares in percent, kappa as a number."""
    if value is None:
        return UNKNOWN
    return f"{value:.2f}" if name == "kappa" else f"{value:.1%}"


def interval_words(name: str, figure: Measured) -> str:
    """Return an interval: `85.2% to 95.1%`."""
    if figure.interval is None:
        return ""
    return f"{value_words(name, figure.interval.low)} to {value_words(name, figure.interval.high)}"


def threshold_words(value: float) -> str:
    """Return a threshold or score, as short as possible."""
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def undecided_words(calibration: Calibration) -> str:
    """Return items without a verdict by code: `2 judge_timeout, 1 judge_uncertain`."""
    return ", ".join(f"{count:,} {code}" for code, count in calibration.undecided.items())


def spent_words(calibration: Calibration) -> str:
    """Return the usage of the judge: `41,200 tokens, cost 0.0071, 12 cached`; empty if unknown."""
    spent = calibration.spent
    parts = [
        f"{spent.tokens:,} tokens" if spent.tokens is not None else "",
        f"cost {spent.cost:.4f}" if spent.cost is not None else "",
        f"{spent.remembered:,} cached" if spent.remembered else "",
    ]
    return ", ".join(part for part in parts if part)


def opinion_words(item: JudgedAnswer, *, scored: bool) -> str:
    """Return the verdict of the judge: `failed it with 0.35`, `passed it`, `judge_timeout`."""
    opinion = item.opinion
    if not item.decided:
        return opinion.code or "error"
    word = "passed it" if item.passed else "failed it"
    return f"{word} with {show_number(opinion.score)}" if scored else word


def advice_words(calibration: Calibration) -> str:
    """Return the advice about the threshold."""
    cut = calibration.cut
    if calibration.threshold is None:
        return "The judge answers yes or no, so there is no threshold."
    if cut is None:
        return "Too few items of each label, or too few different scores, to choose a threshold."
    chosen, present = threshold_words(cut.threshold), threshold_words(cut.present)
    held_out = (
        f"on items it was not chosen on, a chosen threshold gives kappa {value_words('kappa', cut.held_out_kappa)} and accuracy "
        f"{value_words('accuracy', cut.held_out_accuracy)}; the current one gives {value_words('kappa', cut.present_kappa)} and "
        f"{value_words('accuracy', cut.present_accuracy)}"
    )
    if cut.advice == "move":
        return f"Move the threshold from {present} to {chosen}: {held_out} ({write_p(cut.p_value)})."
    if cut.advice == "cannot_tell":
        maybe = f"{chosen} may be better, or it is chance ({write_p(cut.p_value)}); label more items"
        return f"Keep {present} for now: {maybe}. {held_out[0].upper()}{held_out[1:]}."
    if cut.threshold == cut.present:
        return f"Keep the threshold {present}: none is better."
    return f"Keep the threshold {present}: {held_out}."
