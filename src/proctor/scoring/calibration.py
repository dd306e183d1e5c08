"""Computes everything that a calibration report shows about a judge.

An item the judge could not decide (it was down, its reply was unusable, it was uncertain) is neither right nor wrong: it is counted
separately and excluded from all figures. So a judge that often cannot decide may still agree well; reports show both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.judgement import JudgedAnswer
from proctor.scoring.agreement import DRAWS, SEED, Figure, Table, count_table, with_intervals
from proctor.scoring.cutting import FOLDS, REPEATS, ChosenCut, Scored, SweepRow, choose_cut, sweep_thresholds
from proctor.scoring.intervals import Counts, Interval, wilson

MOST_SWEPT = 200
"""The maximum number of rows of the sweep; of more distinct scores, evenly spaced ones are shown."""
_MOST_DEALT = 200_000
"""The maximum of items times repeats in the cross-validation: a hundred thousand labels are split twice, a few hundred twenty times."""

Strength = Literal["none", "slight", "fair", "moderate", "substantial", "almost perfect", "unknown"]


class TagRow(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the judge on one kind of item."""

    tag: str
    items: int
    agreed: int
    false_pass: int
    false_fail: int
    undecided: int
    accuracy: float | None
    interval: Interval | None
    """Wilson's interval of the accuracy."""


class JudgeCost(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's identity and cost, according to its opinions."""

    judges: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    """The versions of the instruction."""
    tokens: int | None = None
    """Tokens of replies that did not come from the cache."""
    cost: float | None = None
    remembered: int = 0
    """Items that were answered from the cache at no cost."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one judge on one set of labels."""

    items: tuple[JudgedAnswer, ...]
    threshold: float | None
    """The lowest score that passed; None if the judge decided yes or no."""
    table: Table
    figures: dict[str, Figure]
    strength: Strength
    """The term of Landis and Koch (1977) for such a kappa; `unknown` if its interval spans two of their classes."""
    undecided: dict[str, int]
    """The number of undecided items, by code."""
    sweep: tuple[SweepRow, ...]
    cut: ChosenCut | None
    tags: tuple[TagRow, ...]
    spent: JudgeCost
    confidence: float
    draws: int
    seed: int
    left_out: dict[str, int] = {}
    """Labels that were not sent to the judge, by code."""

    @property
    def decided(self) -> int:
        """Items with a decision."""
        return self.table.total

    @property
    def false_passes(self) -> list[JudgedAnswer]:
        """Items that the judge passed and people call wrong."""
        return [item for item in self.items if item.decided and item.passed and not item.item.label]

    @property
    def false_fails(self) -> list[JudgedAnswer]:
        """Items that the judge failed and people call right."""
        return [item for item in self.items if item.decided and not item.passed and item.item.label]

    @property
    def without_decision(self) -> list[JudgedAnswer]:
        """Items that the judge could not decide."""
        return [item for item in self.items if not item.decided]


def summarize_calibration(
    judged: Sequence[JudgedAnswer], *, threshold: float | None, confidence: float = 0.95, draws: int = DRAWS, seed: int = SEED
) -> Calibration:
    """Return the figures of a judge from its opinions on labelled answers."""
    decided = [detail for detail in judged if detail.decided]
    table = count_table((detail.item.label, detail.passed) for detail in decided)
    figures = with_intervals(table, confidence=confidence, draws=draws, seed=seed)
    scored: list[Scored] = [(detail.opinion.score, detail.item.label) for detail in decided] if threshold is not None else []
    repeats = max(2, min(REPEATS, _MOST_DEALT // max(1, len(scored))))
    details = [detail.opinion.details for detail in judged]
    # A cached reply was paid for when it was first requested.
    uncached = [detail for detail in details if detail.get("cached") is not True]
    tokens = [count for detail in uncached if (count := count_tokens(detail.get("usage"))) is not None]
    costs = [cost for detail in uncached if is_number(cost := detail.get("cost"))]
    return Calibration(
        items=tuple(judged),
        threshold=threshold,
        table=table,
        figures=figures,
        strength=_name_strength_of(figures["kappa"]),
        undecided=dict(Counter(detail.opinion.code or "error" for detail in judged if not detail.decided).most_common()),
        sweep=tuple(sweep_thresholds(scored, most=MOST_SWEPT)),
        cut=choose_cut(scored, threshold, folds=FOLDS, repeats=repeats, seed=seed) if threshold is not None else None,
        tags=tuple(_list_tag_rows(judged)),
        spent=JudgeCost(
            judges=_list_names(detail.get("judge") for detail in details),
            models=_list_names(detail.get("models") or detail.get("model") for detail in details),
            prompts=_list_names(detail.get("prompt_version") for detail in details),
            tokens=sum(tokens) if tokens else None,
            cost=math.fsum(costs) if costs else None,
            remembered=len(details) - len(uncached),
        ),
        confidence=confidence,
        draws=draws,
        seed=seed,
    )


def _name_strength_of(kappa: Figure) -> Strength:
    """Return the term for a kappa, if its whole interval has the same one."""
    if kappa.interval is None or (word := name_strength(kappa.interval.low)) != name_strength(kappa.interval.high):
        return "unknown"
    return word


def name_strength(kappa: float | None) -> Strength:
    """Return the term of Landis and Koch for a kappa."""
    if kappa is None:
        return "unknown"
    bounds: tuple[tuple[float, Strength], ...] = ((0.0, "none"), (0.2, "slight"), (0.4, "fair"), (0.6, "moderate"), (0.8, "substantial"))
    for most, word in bounds:
        if kappa <= most:
            return word
    return "almost perfect"


def _list_tag_rows(judged: Sequence[JudgedAnswer]) -> Iterable[TagRow]:
    """Return one row per tag, the worst first."""
    by_tag: dict[str, list[JudgedAnswer]] = {}
    for item in judged:
        for tag in dict.fromkeys(item.item.tags):
            by_tag.setdefault(tag, []).append(item)
    rows = [_make_tag_row(tag, items) for tag, items in by_tag.items()]
    # A tag without any decision has no accuracy and comes last.
    return sorted(rows, key=lambda row: (row.accuracy if row.accuracy is not None else 2.0, -row.items, row.tag))


def _make_tag_row(tag: str, items: Sequence[JudgedAnswer]) -> TagRow:
    decided = [item for item in items if item.decided]
    agreed = sum(item.agrees for item in decided)
    return TagRow(
        tag=tag,
        items=len(items),
        agreed=agreed,
        false_pass=sum(item.passed and not item.item.label for item in decided),
        false_fail=sum(item.item.label and not item.passed for item in decided),
        undecided=len(items) - len(decided),
        accuracy=agreed / len(decided) if decided else None,
        interval=wilson(Counts(len(decided), agreed)) if decided else None,
    )


def _list_names(values: Iterable[Json]) -> tuple[str, ...]:
    """Return the distinct texts among the values, or in lists among them."""
    names = (name for value in values for name in (value if isinstance(value, (list, tuple)) else (value,)))
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def count_tokens(usage: Json) -> int | None:
    """Return the tokens of `usage`: the total, else input plus output."""
    if not isinstance(usage, dict):
        return None
    if isinstance(usage.get("total_tokens"), int):
        return usage["total_tokens"]
    parts = [usage[name] for name in ("input_tokens", "output_tokens") if isinstance(usage.get(name), int)]
    return sum(parts) if parts else None
