"""What a comparison of two runs says, in words: whether it is more than chance, by how much, and how amounts changed."""

from __future__ import annotations

from proctor.report.catalogue import Catalogue, speak
from proctor.scoring.amounts import AmountChange
from proctor.scoring.paired import Comparison


def describe_reason(comparison: Comparison, words: Catalogue) -> str:
    """Return why the verdict is what it is, with its figures; in English the same as `reason` of the comparison."""
    if words.language == "en":
        return comparison.reason
    if not comparison.cases:
        return words.say("compared.no_cases")
    figures = words.say(
        "compared.figures",
        effect=_write_points(comparison.effect, words),
        level=f"{1 - comparison.alpha:.0%}",
        low=_write_points(comparison.interval.low, words),
        high=_write_points(comparison.interval.high, words),
        p=words.write_figure(f"{comparison.p_value:.2g}"),
    )
    over = {"count": comparison.cases, "cases": str(comparison.cases), "figures": figures}
    return words.say(f"compared.{comparison.verdict}", **over, resolution=f"{100 * comparison.resolution:.0f}")


def describe_chance(comparison: Comparison, words: Catalogue) -> str:
    """Return whether the difference is more than chance, as sentences of their own."""
    if not comparison.cases:
        return words.say("chance.no_cases")
    named = comparison.verdict in ("regressed", "improved")
    # The test finds a change, and it is not called one for another reason.
    if not named and comparison.p_value <= comparison.alpha:
        return f"{describe_reason(comparison, words)}."
    return words.say(
        f"chance.{comparison.verdict}",
        points=words.write_number(100 * (abs(comparison.effect) if named else comparison.effect), 1),
        low=words.write_number(100 * comparison.interval.low, 1),
        high=words.write_number(100 * comparison.interval.high, 1),
        p=words.write_figure(f"{comparison.p_value:.2g}"),
        resolution=words.write_number(100 * comparison.resolution, 1),
    )


def describe_ratio(change: AmountChange, words: Catalogue | None = None) -> str:
    """Return how an amount changed case by case, which need not be how the two medians differ."""
    words = speak(words)
    verdict = words.say(f"amount.{change.verdict}")
    if change.ratio is None or change.interval is None:
        return verdict
    ratio, low, high = (words.write_figure(f"{share:.2f}") for share in (change.ratio, change.interval.low, change.interval.high))
    # Of one case, or of two batches, there is nothing to take case by case.
    name = "compared.ratio_one" if change.cases == 1 else "compared.ratio"
    return words.say(name, verdict=verdict, ratio=ratio, low=low, high=high)


def _write_points(share: float, words: Catalogue) -> str:
    return words.write_figure(f"{100 * share:+.1f}")
