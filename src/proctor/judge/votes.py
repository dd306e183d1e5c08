"""Combines several answers to one question into one opinion.

More than `quorum` of all requested ballots must have an answer. `majority`: the
side with more votes wins if its share of all ballots exceeds `agreement`, and the score is the median. `mean`: the mean of the scores is
compared with the threshold; a yes counts 1, a no 0, and the middle decides. A score within `margin` of the threshold, a share that does
not exceed `agreement`, and a tie of yes and no are uncertain. One answer is decided by the same rules: its share is 1.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from proctor.judge.reply import MAX_QUOTE, Fault, Item
from proctor.judge.settings import JudgeSettings
from proctor.model.evidence import Json, Usage
from proctor.model.judgement import Opinion, Question
from proctor.model.show import shorten

Prices = tuple[float, float]
"""The price of a million tokens: of the request, and of the reply."""


class Ballot(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of one model to one question."""

    model: str
    verdict: Item | Fault
    replies: tuple[str, ...] = ()
    """The replies it comes from: one, or two after a repair."""
    usage: Usage | None = None
    cost: float | None = None
    requests: tuple[dict[str, Json], ...] = ()
    """The requests that were sent for it, with their numbers: ballots on other questions may have the same ones."""
    cached: bool = False
    repaired: bool = False
    notes: tuple[str, ...] = ()


def combine_ballots(question: Question, ballots: Sequence[Ballot], settings: JudgeSettings) -> Opinion:
    """Return the combined opinion; its `details` explain how it was reached."""
    votes = [ballot.verdict for ballot in ballots if isinstance(ballot.verdict, Item)]
    details = _make_details(ballots)
    faults = [ballot.verdict for ballot in ballots if isinstance(ballot.verdict, Fault)]
    total = len(ballots)
    if faults and len(votes) <= settings.quorum * total:
        return _report_no_quorum(votes, faults, f"more than {settings.quorum * 100:g} % are needed", details)
    yes = sum(vote.passed for vote in votes)
    values = [float(vote.passed) if vote.score is None else vote.score for vote in votes]
    # Rounded, because in decimal arithmetic the mean of three times 0.8 is 0.8, not slightly less.
    mean = values[0] if len(values) == 1 else round(math.fsum(values) / len(values), 12)
    if settings.combine == "mean" and question.threshold is not None and faults:
        lowest, highest = sum(values) / total, (sum(values) + len(faults)) / total
        if not _reaches(lowest, question.threshold) and _reaches(highest, question.threshold):
            return _report_no_quorum(votes, faults, "the others could change the result", details)
    if question.choices and question.threshold is None:
        return _count_choices(question, votes, faults, total, settings, details)
    # The median is the score of a vote: it is on the same side of the threshold as the majority.
    score = mean if settings.combine == "mean" or question.threshold is None else statistics.median(values)
    details["agreement"] = max(yes, len(votes) - yes) / total
    if question.choices:
        # Between two choices, take the lower one.
        details["choice"] = list(question.choices)[int(score * (len(question.choices) - 1) + 1e-9)]
    if len(values) > 1:
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
        details["spread"] = {"range": max(values) - min(values), "stdev": deviation}
    uncertainty = _explain_uncertainty(question, yes, len(votes), score, total, settings)
    if uncertainty is not None:
        return _report_uncertain(uncertainty, score, faults, settings, details)
    if settings.combine == "majority" or question.threshold is None:
        passed = 2 * yes > total
    else:
        passed = _reaches(score, question.threshold)
    agreeing = [vote for vote in votes if vote.passed == passed] or votes
    reason = agreeing[0].reason if total == 1 else f"{len(agreeing)} of {total}: {agreeing[0].reason}"
    return Opinion(outcome="pass" if passed else "fail", score=score, reason=reason, details=details)


def _report_uncertain(why: str, score: float, faults: Sequence[Fault], settings: JudgeSettings, details: dict[str, Json]) -> Opinion:
    """Return the opinion of an uncertain judge; `uncertain: fail` fails it only if every ballot has an answer."""
    stopped = next((fault for fault in faults if fault.code == "judge_budget"), None)
    if stopped is not None:
        return Opinion(outcome="error", reason=f"{why}: {stopped.text}", code="judge_budget", details=details)
    failed = settings.uncertain == "fail" and not faults
    # An error has no score to average; the details have the score of every vote.
    return Opinion(
        outcome="fail" if failed else "error", score=score if failed else 0.0, reason=why, code="judge_uncertain", details=details
    )


def _count_choices(
    question: Question, votes: Sequence[Item], faults: Sequence[Fault], total: int, settings: JudgeSettings, details: dict[str, Json]
) -> Opinion:
    """Return the choice of the majority: more than half of the ballots, and more than `agreement`."""
    chosen, most = Counter(vote.choice for vote in votes if vote.choice is not None).most_common(1)[0]
    details["agreement"] = most / total
    least = max(0.5, settings.agreement)
    if least > 0.5 or settings.quorum > 0.5:
        # A comparison in two orders counts only the ballots that agree in both.
        details |= {"least_agreement": least, "least_quorum": settings.quorum}
    if most / total <= least:
        reason = f"the judge is uncertain: {most} of {total} choose {chosen}, and more than {least * 100:g} % must agree"
        return _report_uncertain(reason, 0.0, faults, settings, details)
    passed = chosen in question.accepted
    agreeing = next(vote.reason for vote in votes if vote.choice == chosen)
    return Opinion(
        outcome="pass" if passed else "fail",
        score=float(passed),
        reason=agreeing if total == 1 else f"{most} of {total}: {agreeing}",
        details={**details, "choice": chosen},
    )


def _report_no_quorum(votes: Sequence[Item], faults: Sequence[Fault], needed: str, details: dict[str, Json]) -> Opinion:
    """Return the error that too few ballots have an answer, or the fault itself if all of them have the same one."""
    if not votes:
        return Opinion(outcome="error", reason=faults[0].text, code=faults[0].code, details=details)
    total = len(votes) + len(faults)
    reason = f"{len(votes)} of {total} judgements were given, and {needed}: {faults[0].text}"
    codes = {fault.code for fault in faults}
    return Opinion(outcome="error", reason=reason, code=codes.pop() if len(codes) == 1 else "judge_no_quorum", details=details)


def _explain_uncertainty(question: Question, yes: int, votes: int, score: float, total: int, settings: JudgeSettings) -> str | None:
    threshold = question.threshold
    if threshold is not None and _is_near(score, threshold, settings.margin):
        return f"the judge is uncertain: the score {score:.4g} is within {settings.margin:g} of the threshold {threshold:g}"
    # For a mean the score decides, unless the suite requires agreement.
    if threshold is not None and settings.combine == "mean" and settings.agreement <= 0.5:
        return None
    if threshold is None and settings.combine == "mean" and _is_near(score, 0.5, settings.margin):
        return f"the judge is uncertain: {yes} of {votes} say yes, which is within {settings.margin:g} of the middle"
    most = max(yes, votes - yes) / total
    # No setting lets half of the votes outvote the other half.
    least = max(0.5, settings.agreement)
    if most > least:
        return None
    unanswered = f", {total - votes} gave no answer" if total > votes else ""
    return f"the judge is uncertain: {yes} of {total} say yes{unanswered}, and more than {least * 100:g} % must agree"


def _make_details(ballots: Sequence[Ballot]) -> dict[str, Json]:
    details: dict[str, Json] = {
        "samples": [_describe_ballot(ballot) for ballot in ballots],
        "replies": [reply for ballot in ballots for reply in ballot.replies],
    }
    spent = [ballot.usage for ballot in ballots if ballot.usage is not None]
    if spent:
        details["usage"] = write_usage(sum_usage(spent))
    costs = [ballot.cost for ballot in ballots if ballot.cost is not None]
    if costs:
        details["cost"] = math.fsum(costs)
    requests = {request["id"]: request for ballot in ballots for request in ballot.requests}
    if requests:
        details["judge_requests"] = list(requests.values())
    if all(ballot.cached for ballot in ballots):
        details["cached"] = True
    if any(ballot.repaired for ballot in ballots):
        details["repaired"] = True
    notes = dict.fromkeys(note for ballot in ballots for note in ballot.notes)
    if notes:
        details["notes"] = list(notes)
    return details


def _describe_ballot(ballot: Ballot) -> dict[str, Json]:
    verdict = ballot.verdict
    if isinstance(verdict, Fault):
        sample: dict[str, Json] = {"model": ballot.model, "code": verdict.code, "reason": verdict.text}
        if ballot.replies:
            sample["reply"] = shorten(ballot.replies[-1], MAX_QUOTE)
    else:
        sample = {"model": ballot.model, "passed": verdict.passed, "reason": verdict.reason}
        if verdict.score is not None:
            sample["score"] = verdict.score
        if verdict.choice is not None:
            sample["choice"] = verdict.choice
        if verdict.quotes:
            sample["quotes"] = [shorten(quote, MAX_QUOTE) for quote in verdict.quotes]
    if ballot.usage is not None:
        sample["usage"] = write_usage(ballot.usage)
    return sample


def _is_near(score: float, threshold: float, margin: float) -> bool:
    # In decimal arithmetic, where 0.75 is 0.05 away from 0.8.
    return margin > 0 and abs(score - threshold) <= margin + 1e-9


def _reaches(mean: float, threshold: float) -> bool:
    # The threshold of a rating is a fraction such as 1/3, which a mean misses by its rounding.
    return mean >= threshold - 1e-9


def sum_usage(usages: Sequence[Usage]) -> Usage:
    """Return the sum of the known counts."""
    if len(usages) == 1:
        return usages[0]

    def add(counts: Iterable[int | None]) -> int | None:
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    return Usage(
        input_tokens=add(usage.input_tokens for usage in usages),
        output_tokens=add(usage.output_tokens for usage in usages),
        total_tokens=add(usage.total() for usage in usages),
        cached_input_tokens=add(usage.cached_input_tokens for usage in usages),
        cache_write_tokens=add(usage.cache_write_tokens for usage in usages),
    )


def write_usage(usage: Usage) -> dict[str, Json]:
    """Return token counts for the details."""
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": usage.total()}
    counts |= {"cached_input_tokens": usage.cached_input_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {name: count for name, count in counts.items() if count is not None}


def compute_cost(usage: Usage | None, prices: Prices | None) -> float | None:
    """Return the cost of the tokens, or None if tokens or prices are unknown."""
    if usage is None or prices is None or (usage.input_tokens is None and usage.output_tokens is None):
        return None
    return ((usage.input_tokens or 0) * prices[0] + (usage.output_tokens or 0) * prices[1]) / 1_000_000
