"""Verdicts of a judge on a sample: counts by case and by outcome of the deterministic checks, and the figures made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proctor.batches.output.output_folder import OutputFolder
from proctor.batches.slices.sketch import Sketch
from proctor.errors import InputError
from proctor.model.batch import JudgedCase, JudgedRate
from proctor.model.result import CaseResult
from proctor.model.typed import make_json_decoder
from proctor.scoring.sampled_rate import Stratum, estimate_rate
from proctor.scoring.statistics import count_outcomes


class JudgedStratum(msgspec.Struct, kw_only=True):
    """The judged results of one case and one outcome of the deterministic checks."""

    case: str
    outcome: str
    results: int
    """How many there are."""
    judged: int = 0
    """How many of them were judged."""
    counts: dict[str, int] = {}
    """The judged ones by their outcome with the judge."""
    checks: list[dict[str, int]] = []
    """The same for every assertion of the case."""

    def add(self, result: CaseResult) -> None:
        """Count one result of the sample."""
        self.judged += 1
        self.checks = self.checks or [{} for _ in result.case.assertions]
        for counts, outcome in zip((self.counts, *self.checks), (result.outcome, *(one.outcome for one in result.verdicts)), strict=False):
            counts[outcome] = counts.get(outcome, 0) + 1


class JudgedTally(msgspec.Struct, kw_only=True):
    """The result of the whole sample."""

    suite: str
    """The digest of the suite."""
    judged: dict[str, tuple[int, ...]]
    """The cases with claims that need a judge, and which of their assertions these are."""
    tokens: int
    strata: list[JudgedStratum]
    sketch: Sketch
    """Why judged results did not pass."""
    unpriced: bool = False
    """Whether the sample ended early because the judge reports no tokens, which have a budget."""


_DECODER = make_json_decoder(JudgedTally)


def write_tally(folder: OutputFolder, tally: JudgedTally) -> None:
    """Store the result of the sample."""
    folder.write_judged_tally(msgspec.json.encode(tally))


def read_tally(folder: OutputFolder, suite: str) -> JudgedTally | None:
    """Return the result of the sample of this suite; None if there is none. Raises `InputError` if it cannot be read."""
    data = folder.read_judged_tally()
    try:
        tally = None if data is None else _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise InputError(f"{folder.path}/judged.json: cannot be read: {error}; delete it, and give the command again") from error
    return tally if tally is not None and tally.suite == suite else None


def estimate_case(tally: JudgedTally, case: str, labels: Sequence[str]) -> JudgedCase | None:
    """Return the sampled figures of a case; None if it has nothing to judge."""
    if case not in tally.judged:
        return None
    strata = [one for one in tally.strata if one.case == case]
    checks = {
        labels[number]: _estimate(strata, [one.checks[number] if one.checks else {} for one in strata])
        for number in tally.judged[case]
        if number < len(labels)
    }
    return JudgedCase(
        judged=sum(one.judged for one in strata),
        of=sum(one.results for one in strata),
        rate=_estimate(strata, [one.counts for one in strata]),
        checks=checks,
    )


def _estimate(strata: Iterable[JudgedStratum], counts: Iterable[Mapping[str, int]]) -> JudgedRate | None:
    parts: list[Stratum] = []
    together: dict[str, int] = {}
    for one, found in zip(strata, counts, strict=True):
        parts.append(Stratum(one.results, one.judged, count_outcomes(found)))
        for outcome, number in found.items():
            together[outcome] = together.get(outcome, 0) + number
    estimate = estimate_rate(parts)
    if estimate is None:
        return None
    return JudgedRate(counts=together, rate=estimate.rate, low=estimate.interval.low, high=estimate.interval.high)
