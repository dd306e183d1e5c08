"""Which results of a batch a judge is asked about: a sample, drawn from each outcome of the deterministic checks by itself.

Footers say how many results of each case have which outcome. Positions are drawn among these, so that only partitions are opened in which
one was drawn. The same data and the same suite give the same sample.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proctor.batches.output.output_folder import Manifest, OutputFolder
from proctor.sources.datasets.files import import_arrow

MOST_JUDGED = 100_000
"""Results in a sample that is bounded by tokens alone."""


class Drawn(msgspec.Struct, frozen=True):
    """One result of the sample."""

    partition: int
    """Its number in the plan."""
    case: str
    outcome: str
    """Of the deterministic checks."""
    number: int
    """Which of the results of this case and outcome in the partition, from 0."""


class PlaceInFile(msgspec.Struct, frozen=True):
    """Where the trace of a result stands in its partition, and in which file: of gathered spans each trace has its own."""

    file: str
    row: int | None
    offset: int | None
    run: int
    trace: str | None


Strata = dict[tuple[str, str], int]
"""How many results there are, by case and outcome."""


def count_strata(folder: OutputFolder, manifest: Manifest, cases: Sequence[str]) -> Strata:
    """Return how many results of these cases have which outcome."""
    strata: Strata = {}
    for _, counts in _iterate_counts(folder, manifest, cases):
        for stratum, number in counts.items():
            strata[stratum] = strata.get(stratum, 0) + number
    return strata


def share_out(strata: Strata, size: int) -> Strata:
    """Return how many are drawn from each stratum: as many from each, as far as it has them."""
    left, wanted = size, dict.fromkeys(strata, 0)
    open_ones = [stratum for stratum, number in strata.items() if number]
    while left and open_ones:
        each = max(1, left // len(open_ones))
        for stratum in open_ones:
            more = min(each, left, strata[stratum] - wanted[stratum])
            wanted[stratum] += more
            left -= more
        open_ones = [stratum for stratum in open_ones if wanted[stratum] < strata[stratum]]
    return wanted


def draw_sample(folder: OutputFolder, manifest: Manifest, strata: Strata, size: int) -> list[Drawn]:
    """Return the sample, in an order in which every beginning of it has its share of each stratum."""
    cases = list(dict.fromkeys(case for case, _ in strata))
    orders: dict[tuple[str, str], list[int]] = {}
    for stratum, number in share_out(strata, size).items():
        chance = random.Random("\0".join((manifest.suite.digest, *stratum)))
        orders[stratum] = chance.sample(range(strata[stratum]), number)
    wanted = {stratum: sorted((position, rank) for rank, position in enumerate(order)) for stratum, order in orders.items()}
    found: dict[tuple[str, str], dict[int, Drawn]] = {stratum: {} for stratum in wanted}
    before = dict.fromkeys(wanted, 0)
    for partition, counts in _iterate_counts(folder, manifest, cases):
        for stratum, number in counts.items():
            waiting, end = wanted[stratum], before[stratum] + number
            while waiting and waiting[0][0] < end:
                position, rank = waiting.pop(0)
                found[stratum][rank] = Drawn(partition, *stratum, position - before[stratum])
            before[stratum] = end
    return list(_interleave([[drawn[rank] for rank in sorted(drawn)] for drawn in found.values()]))


def find_places(folder: OutputFolder, manifest: Manifest, partition: int, drawn: Iterable[Drawn]) -> list[tuple[Drawn, PlaceInFile]]:
    """Return where the traces of some results of one partition stand."""
    compute = import_arrow("pyarrow.compute")
    columns = ["case", "outcome", "file", "row", "offset", "run", "trace"]
    rows = folder.read_result(manifest.partitions[partition].id, columns)
    found: list[tuple[Drawn, PlaceInFile]] = []
    for one in drawn:
        fitting = compute.indices_nonzero(compute.and_(compute.equal(rows["case"], one.case), compute.equal(rows["outcome"], one.outcome)))
        (row,) = rows.slice(fitting[one.number].as_py(), 1).to_pylist()
        found.append((one, PlaceInFile(row["file"], row["row"], row["offset"], row["run"], row["trace"])))
    return found


def _iterate_counts(folder: OutputFolder, manifest: Manifest, cases: Sequence[str]) -> Iterator[tuple[int, Strata]]:
    for number, footer in enumerate(folder.read_footers(manifest.partitions)):
        if footer is not None and footer.suite == manifest.suite.digest:
            known = footer.sketch.cases
            yield number, {(case, outcome): count for case in cases if case in known for outcome, count in known[case].counts.items()}


def _interleave(lists: Sequence[list[Drawn]]) -> Iterator[Drawn]:
    for position in range(max(map(len, lists), default=0)):
        yield from (one[position] for one in lists if position < len(one))
