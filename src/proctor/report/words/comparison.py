"""Sentences about the comparison of two runs."""

from __future__ import annotations

from proctor.scoring.amounts import AmountChange
from proctor.scoring.paired import Comparison


def describe_chance(comparison: Comparison) -> str:
    """Return whether the pass rate changed beyond chance."""
    if not comparison.cases:
        return "No case has results in both runs."
    named = comparison.verdict in ("regressed", "improved")
    # Significant, but not called a change for another reason.
    if not named and comparison.p_value <= comparison.alpha:
        return f"{comparison.reason}."
    points = 100 * (abs(comparison.effect) if named else comparison.effect)
    figures = f"{points:,.1f} points ({100 * comparison.interval.low:,.1f} to {100 * comparison.interval.high:,.1f})"
    if named:
        fell = "fell" if comparison.verdict == "regressed" else "rose"
        return f"The pass rate {fell} by {figures}. This is more than chance: p = {comparison.p_value:.2g}."
    resolution = f"A change of {100 * comparison.resolution:,.1f} points"
    if comparison.verdict == "unchanged":
        return f"No change beyond chance: {figures}. {resolution} would have been seen."
    return f"Too little data to tell a change from chance: {figures}. {resolution} cannot be ruled out."


def describe_amount(change: AmountChange, higher: str = "more", lower: str = "less") -> str:
    """Return a change per case, which may differ from that of the medians: `15 % slower (1 – 35 %)`."""
    verdict = change.verdict.replace("_", " ")
    if change.ratio is None or change.interval is None:
        return verdict
    percent, low, high = (100 * (share - 1) for share in (change.ratio, change.interval.low, change.interval.high))
    if change.verdict == "higher":
        return f"{percent:,.0f} % {higher} ({low:,.0f} – {high:,.0f} %)"
    if change.verdict == "lower":
        return f"{-percent:,.0f} % {lower} ({-high:,.0f} – {-low:,.0f} %)"
    return f"{verdict}: {percent:+,.0f} % ({low:+,.0f} to {high:+,.0f} %)"
