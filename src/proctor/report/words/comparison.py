"""What a comparison of two runs says, in words: whether it is more than chance, by how much, and how amounts changed."""

from __future__ import annotations

from proctor.scoring.amounts import AmountChange
from proctor.scoring.paired import Comparison


def describe_chance(comparison: Comparison) -> str:
    """Return whether the difference is more than chance, as sentences of their own."""
    if not comparison.cases:
        return "No case has results in both runs."
    named = comparison.verdict in ("regressed", "improved")
    # The test finds a change, and it is not called one for another reason.
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


def describe_ratio(change: AmountChange) -> str:
    """Return how an amount changed case by case, which need not be how the two medians differ."""
    verdict = change.verdict.replace("_", " ")
    if change.ratio is None or change.interval is None:
        return verdict
    ratio, low, high = (f"{share:.2f}" for share in (change.ratio, change.interval.low, change.interval.high))
    # Of one case, or of two batches, there is nothing to take case by case.
    return f"{verdict}; {'' if change.cases == 1 else 'case by case '}{ratio} times as much, {low} to {high}"
