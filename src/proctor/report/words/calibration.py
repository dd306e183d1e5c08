"""Text shared by all calibration reports. May contain untrusted text."""

from __future__ import annotations

from proctor.model.labelled import JudgedAnswer
from proctor.report.words.wording import count_noun, number_words
from proctor.scoring.agreement import Figure
from proctor.scoring.calibration import Calibration

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


def judge_words(calibration: Calibration) -> str:
    """Return the name of the judge: `gpt-4o-mini (prompt 1)`."""
    spent = calibration.spent
    names = spent.judges or spent.models
    prompt = f" (prompt {', '.join(spent.prompts)})" if spent.prompts else ""
    return (", ".join(names) or "the judge") + prompt


def set_words(calibration: Calibration) -> str:
    """Return the composition of the set: `128 labelled answers, 64 right and 64 wrong`."""
    right = sum(one.item.label for one in calibration.items)
    total = len(calibration.items)
    return f"{count_noun(total, 'labelled answer')}, {right:,} right and {total - right:,} wrong"


def write_headline(calibration: Calibration) -> str:
    """Return the finding in one sentence."""
    kappa = calibration.table.kappa
    agreed = calibration.table.true_pass + calibration.table.true_fail
    if not calibration.decided:
        return "The judge decided nothing."
    if kappa is None:
        finding = "kappa cannot be computed: judge and labels have only one answer"
    else:
        interval = calibration.figures["kappa"].interval
        spans = f", {interval.low:.2f} to {interval.high:.2f}" if interval is not None else ""
        strength = "" if calibration.strength == "unknown" else f"{calibration.strength} "
        finding = f"{strength}agreement beyond chance (kappa {value_words('kappa', kappa)}{spans})"
    return f"The judge agrees with {agreed:,} of {calibration.decided:,} labels; {finding}."


def value_words(name: str, value: float | None) -> str:
    """Return a figure: shares in percent, kappa as a number."""
    if value is None:
        return UNKNOWN
    return f"{value:.2f}" if name == "kappa" else f"{value:.1%}"


def interval_words(name: str, figure: Figure) -> str:
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


def opinion_words(one: JudgedAnswer, *, scored: bool) -> str:
    """Return the verdict of the judge: `failed it with 0.35`, `passed it`, `judge_timeout`."""
    opinion = one.opinion
    if not one.decided:
        return opinion.code or "error"
    word = "passed it" if one.passed else "failed it"
    return f"{word} with {number_words(opinion.score)}" if scored else word


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
        return f"Move the threshold from {present} to {chosen}: {held_out} (p {cut.p_value:.2g})."
    if cut.advice == "cannot_tell":
        maybe = f"{chosen} may be better, or it is chance (p {cut.p_value:.2g}); label more items"
        return f"Keep {present} for now: {maybe}. {held_out[0].upper()}{held_out[1:]}."
    if cut.threshold == cut.present:
        return f"Keep the threshold {present}: none is better."
    return f"Keep the threshold {present}: {held_out}."
