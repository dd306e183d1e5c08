"""Judges a sample of the results of a batch, after everything else is decided.

Only the driver calls the judge, so that there is one rate limit and one budget; replies are stored in the output, so that a resumed batch
pays for each question only once. `results` has the deterministic verdicts only; `judged` has the sample, with complete verdicts.

The figures of the sample come from counts by case and by outcome of the deterministic checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import secrets
import tempfile
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from proctor.actions.checking.judged_check import decide_with_judge
from proctor.actions.judging.judge_settings import JudgeOptions
from proctor.actions.judging.judges import JudgeLike, make_judge, open_suite_judge
from proctor.actions.workspace.run_history import find_home
from proctor.batches.output_folder import JUDGED_TALLY, Manifest, OutputFolder, name_judged
from proctor.batches.output_store import OutputStore, write_bytes
from proctor.batches.result_table import ResultTable
from proctor.batches.sketch import Sketch
from proctor.batches.worker import Evaluator, Settings
from proctor.checks.registry import Registry
from proctor.errors import InputError
from proctor.model.batch import JudgedCase, JudgedRate
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Source
from proctor.model.result import CaseResult
from proctor.model.typed import decode_msgpack, make_json_decoder
from proctor.processes.threads import is_loop_running
from proctor.runner.ports import Judge
from proctor.scoring.intervals import Stratum, estimate_rate
from proctor.scoring.statistics import count_outcomes
from proctor.sources.datasets.cells import read_cells
from proctor.sources.datasets.files import import_arrow, open_file
from proctor.sources.datasets.plan import Partition

FOLDER = "judge"
_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{8,128}\.json")
"""The file name of a reply; entries of a pack with other names are not written."""
_MOST_PACKS = 20
"""The number of packs from which they are combined into one."""


class JudgeMemory:
    """Stored replies of the judge of one batch."""

    def __init__(self, store: OutputStore, path: Path, *, is_packed: bool) -> None:
        self.path = path
        """The folder of the judge's files."""
        self._store = store
        self._is_packed = is_packed
        self._known: set[str] = set()
        self._packs: list[str] = []
        if is_packed:
            self._unpack()

    def keep(self) -> None:
        """Store the replies of the judge since the last call."""
        new = [name for name in self._list_files() if name not in self._known] if self._is_packed else []
        if new:
            self._put(new)

    def finish(self) -> None:
        """Store the rest, and combine many packs into one."""
        self.keep()
        if len(self._packs) > _MOST_PACKS:
            old = list(self._packs)
            # The combined file is written before its parts are deleted: a crash in between leaves duplicates, which are harmless.
            self._put(sorted(self._known))
            for name in old:
                self._store.delete(name)

    def _unpack(self) -> None:
        self._packs = [f"{FOLDER}/{name}" for name in self._store.list(FOLDER) if name.endswith(".pack")]
        for pack in self._packs:
            data = self._store.read(pack)
            with contextlib.suppress(msgspec.MsgspecError):
                # An unreadable file is ignored: the judge is called again.
                for name, reply in decode_msgpack(data or b"", dict[str, bytes]).items():
                    # Others can write to the store of a pack: any other name could lead out of the folder.
                    if _NAME.fullmatch(name):
                        file = self.path / FOLDER / name
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(reply)
                        self._known.add(name)

    def _list_files(self) -> list[str]:
        root = self.path / FOLDER
        return sorted(name for file in root.rglob("*.json") if _NAME.fullmatch(name := file.relative_to(root).as_posix()))

    def _put(self, names: list[str]) -> None:
        pack = f"{FOLDER}/{secrets.token_hex(8)}.pack"
        replies = {name: (self.path / FOLDER / name).read_bytes() for name in names}
        write_bytes(self._store, pack, msgspec.msgpack.encode(replies))
        self._known.update(names)
        self._packs.append(pack)


@contextlib.contextmanager
def open_memory(store: OutputStore, place: str | Path) -> Generator[JudgeMemory]:
    """Open the memory of the output of a batch, which is a folder of this machine or an address."""
    if isinstance(place, Path):
        yield JudgeMemory(store, place, is_packed=False)
        return
    with tempfile.TemporaryDirectory(prefix="proctor-judge-") as folder:
        try:
            memory = JudgeMemory(store, Path(folder), is_packed=True)
        except OSError as error:
            raise InputError(f"cannot read {place!r}: {error}") from error
        yield memory


MOST_JUDGED = 100_000
"""The maximum results in a sample that is limited only by tokens."""


class Drawn(msgspec.Struct, frozen=True):
    """One result of the sample."""

    partition: int
    """Its number in the plan."""
    case: str
    outcome: str
    """Of the deterministic checks."""
    number: int
    """Its index among the results of this case and outcome in the partition."""


class PlaceInFile(msgspec.Struct, frozen=True):
    """The place of a trace in its partition, and the file: gathered traces come from different files."""

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
    """Return how many to draw from each stratum: equally many, as far as available."""
    remaining, shares = size, dict.fromkeys(strata, 0)
    open_ones = [stratum for stratum, number in strata.items() if number]
    while remaining and open_ones:
        each = max(1, remaining // len(open_ones))
        for stratum in open_ones:
            more = min(each, remaining, strata[stratum] - shares[stratum])
            shares[stratum] += more
            remaining -= more
        open_ones = [stratum for stratum in open_ones if shares[stratum] < strata[stratum]]
    return shares


def draw_sample(folder: OutputFolder, manifest: Manifest, strata: Strata, size: int) -> list[Drawn]:
    """Return the sample, ordered so that every prefix has its share of each stratum."""
    cases = list(dict.fromkeys(case for case, _ in strata))
    orders: dict[tuple[str, str], list[int]] = {}
    for stratum, number in share_out(strata, size).items():
        chance = random.Random("\0".join((manifest.suite.digest, *stratum)))
        orders[stratum] = chance.sample(range(strata[stratum]), number)
    positions = {stratum: sorted((position, rank) for rank, position in enumerate(order)) for stratum, order in orders.items()}
    chosen: dict[tuple[str, str], dict[int, Drawn]] = {stratum: {} for stratum in positions}
    before = dict.fromkeys(positions, 0)
    for partition, counts in _iterate_counts(folder, manifest, cases):
        for stratum, number in counts.items():
            waiting, end = positions[stratum], before[stratum] + number
            while waiting and waiting[0][0] < end:
                position, rank = waiting.pop(0)
                chosen[stratum][rank] = Drawn(partition, *stratum, position - before[stratum])
            before[stratum] = end
    ranked = [[by_rank[rank] for rank in sorted(by_rank)] for by_rank in chosen.values()]
    longest = max(map(len, ranked), default=0)
    return [entries[position] for position in range(longest) for entries in ranked if position < len(entries)]


def find_places(folder: OutputFolder, manifest: Manifest, partition: int, drawn: Iterable[Drawn]) -> list[tuple[Drawn, PlaceInFile]]:
    """Return the places of the traces of some results of one partition."""
    compute = import_arrow("pyarrow.compute")
    columns = ["case", "outcome", "file", "row", "offset", "run", "trace"]
    rows = folder.read_result(manifest.partitions[partition].id, columns)
    located: list[tuple[Drawn, PlaceInFile]] = []
    for draw in drawn:
        in_stratum = compute.and_(compute.equal(rows["case"], draw.case), compute.equal(rows["outcome"], draw.outcome))
        fitting = compute.indices_nonzero(in_stratum)
        (row,) = rows.slice(fitting[draw.number].as_py(), 1).to_pylist()
        located.append((draw, PlaceInFile(row["file"], row["row"], row["offset"], row["run"], row["trace"])))
    return located


def _iterate_counts(folder: OutputFolder, manifest: Manifest, cases: Sequence[str]) -> Iterator[tuple[int, Strata]]:
    for number, footer in enumerate(folder.read_footers(manifest.partitions)):
        if footer is not None and footer.suite == manifest.suite.digest:
            known = footer.sketch.cases
            yield number, {(case, outcome): count for case in cases if case in known for outcome, count in known[case].counts.items()}


_Key = tuple[int | None, int | None]
"""The row, or the byte offset if there is one."""


def read_traces(evaluator: Evaluator, partition: Partition, wanted: Collection[PlaceInFile]) -> dict[PlaceInFile, Evidence]:
    """Return the traces at these places, read as before; a trace that no longer exists is missing."""
    if partition.file.kind == "spans":
        return _read_gathered(evaluator, partition, wanted)
    if partition.parts:
        names = {part.file.name: part for part in partition.parts}
        by_file: dict[str, list[PlaceInFile]] = {}
        for place in wanted:
            by_file.setdefault(place.file, []).append(place)
        files = (read_traces(evaluator, names[name], places_in_file) for name, places_in_file in by_file.items())
        return {place: trace for traces in files for place, trace in traces.items()}
    places: dict[_Key, list[PlaceInFile]] = {}
    for place in wanted:
        places.setdefault((place.row if place.offset is None else None, place.offset), []).append(place)
    file = partition.file
    evaluator.reader.begin_file(file.local_lines)
    evidence: dict[PlaceInFile, Evidence] = {}
    for part in _narrow(partition, places):
        row = part.first_row
        for cells in read_cells(part, evaluator.settings.column, evaluator.choice):
            for number, record in enumerate(cells.records):
                row += 1
                offset = None if cells.offsets is None else cells.offsets[number]
                wanted_here = places.get((row if offset is None else None, offset))
                if wanted_here and isinstance(record, bytes):
                    traces = list(_read_record(evaluator, record, Source(file.name, row)))
                    read = {place: traces[place.run] for place in wanted_here if place.run < len(traces)}
                    evidence |= {place: trace for place, trace in read.items() if trace is not None}
            row += max(0, cells.lost - 1)
    return evidence


def _read_gathered(evaluator: Evaluator, partition: Partition, wanted: Collection[PlaceInFile]) -> dict[PlaceInFile, Evidence]:
    """Return traces of one share of the gathered spans, which exist until the batch is finished."""
    places = {place.trace: place for place in wanted}
    evidence: dict[PlaceInFile, Evidence] = {}
    for trace in evaluator.open_spills().read_share(partition.start, partition.end):
        place = places.get(trace.trace)
        if place is not None:
            # All spans belong to one trace, so there is one.
            (evidence[place],) = trace.read_evidence()
    return evidence


def _read_record(evaluator: Evaluator, record: bytes, source: Source) -> Iterator[Evidence | None]:
    evidence = evaluator.reader.decode_plain(record)
    if evidence is not None:
        yield evidence
    else:
        yield from (piece.evidence for piece in evaluator.reader.read_record(record, source))


def _narrow(partition: Partition, places: Collection[_Key]) -> Iterator[Partition]:
    """Return the parts of a partition that contain the places (row groups or lines); all of it if it can only be read whole."""
    file = partition.file
    if file.kind == "lines" and file.codec is None:
        for offset in sorted(offset for _, offset in places if offset is not None):
            yield msgspec.structs.replace(partition, start=offset, end=offset + 1)
    elif file.kind == "parquet":
        with open_file(file.root, file.path) as source, import_arrow("pyarrow.parquet").ParquetFile(source) as opened:
            sizes = [opened.metadata.row_group(group).num_rows for group in range(partition.start, partition.end)]
        first = partition.first_row
        for group, rows in enumerate(sizes, partition.start):
            if any(row is not None and first < row <= first + rows for row, _ in places):
                yield msgspec.structs.replace(partition, start=group, end=group + 1, first_row=first)
            first += rows
    else:
        yield partition


AT_ONCE = 64
"""Results whose traces are read and judged together; the judge limits its own concurrent requests."""


FIRST = 8
"""Results that are judged first if tokens are limited: their usage is not yet known."""


class JudgeBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the judged sample."""

    sample: int | None = None
    """The maximum number of results."""
    max_tokens: int | None = None
    """The maximum tokens; started requests are finished."""


def read_bounds(sample: int | None, max_tokens: int | None) -> JudgeBounds | None:
    """Return the given limits; None if there are none. Raises `InputError` for meaningless ones."""
    for name, value in (("judge_sample", sample), ("max_tokens", max_tokens)):
        if value is not None and value < 1:
            raise InputError(f"{name}: expected at least 1, found {value}")
    return None if sample is None and max_tokens is None else JudgeBounds(sample=sample, max_tokens=max_tokens)


def find_judge(suite: Suite, judge: JudgeLike, memory: Path) -> Judge | None:
    """Return the given judge, else that of the suite, the workspace or the environment; it caches replies below `memory`."""
    if judge is not None:
        return make_judge(judge, os.environ, home=memory)
    opened = open_suite_judge(suite, find_home(None), os.environ, JudgeOptions(memory=memory))
    return None if opened is None else opened.judge


def _list_judged_cases(suite: Suite, registry: Registry) -> dict[str, tuple[int, ...]]:
    numbers: dict[str, tuple[int, ...]] = {}
    for case in suite.cases:
        judged = tuple(number for number, a in enumerate(case.assertions) if registry.get_for(a.check, a.spec).judged)
        if judged:
            numbers[case.id] = judged
    return numbers


class JudgedSample:
    """The sample of one batch while it is judged."""

    def __init__(self, folder: OutputFolder, manifest: Manifest, settings: Settings, judge: Judge) -> None:
        self._folder, self._manifest, self._judge = folder, manifest, judge
        self._evaluator = Evaluator(settings, with_judge=True)
        self._judged = _list_judged_cases(self._evaluator.stream.suite, self._evaluator.registry)
        self._tokens = 0
        self._sketch = Sketch()
        self._results: dict[int, list[tuple[Drawn, PlaceInFile, Evidence, CaseResult]]] = {}

    async def judge(self, bounds: JudgeBounds, memory: JudgeMemory) -> JudgedTally:
        """Draw the sample, judge it, and write the result."""
        strata = count_strata(self._folder, self._manifest, list(self._judged))
        sample = draw_sample(self._folder, self._manifest, strata, bounds.sample or MOST_JUDGED)
        done = 0
        while done < len(sample) and (size := self._choose_size(bounds.max_tokens, done)):
            some = sample[done : done + size]
            await self._judge_some(some)
            # After every round, so that paid replies survive a crash in the next one.
            memory.keep()
            done += len(some)
        unpriced = bounds.max_tokens is not None and not self._tokens and done < len(sample)
        return msgspec.structs.replace(self._finish(strata), unpriced=unpriced)

    def _choose_size(self, max_tokens: int | None, done: int) -> int:
        """Return how many results to judge next: a started round is finished, so few if the budget is nearly spent."""
        if max_tokens is None:
            return AT_ONCE
        if not done:
            return FIRST
        # Without reported tokens, the budget would never end.
        remaining_tokens = max_tokens - self._tokens if self._tokens else 0
        return min(AT_ONCE, max(1, remaining_tokens * done // self._tokens)) if remaining_tokens > 0 else 0

    async def _judge_some(self, some: Sequence[Drawn]) -> None:
        sampled: list[tuple[Drawn, PlaceInFile, Evidence]] = []
        for partition in sorted({draw.partition for draw in some}):
            places = find_places(self._folder, self._manifest, partition, (draw for draw in some if draw.partition == partition))
            traces = read_traces(self._evaluator, self._manifest.partitions[partition], {place for _, place in places})
            sampled += [(draw, place, traces[place]) for draw, place in places if place in traces]
        results = await asyncio.gather(*(self._ask(draw.case, evidence) for draw, _, evidence in sampled))
        for (draw, place, evidence), result in zip(sampled, results, strict=True):
            self._tokens += sum(_count_tokens(verdict.details.get("usage")) for verdict in result.verdicts)
            self._results.setdefault(draw.partition, []).append((draw, place, evidence, result))

    async def _ask(self, case: str, evidence: Evidence) -> CaseResult:
        stream = self._evaluator.stream
        if stream.fixed_now is not None:
            evidence = msgspec.structs.replace(evidence, now=stream.fixed_now)
        cases = (stream.prepared.cases[position] for position in stream.prepared.find(evidence) or ())
        prepared = next(prepared_case for prepared_case in cases if prepared_case.case.id == case)
        return await decide_with_judge(prepared, evidence, self._judge, source=Source(), clock=stream.clock())

    def _finish(self, strata: Strata) -> JudgedTally:
        parts = {key: JudgedStratum(case=key[0], outcome=key[1], results=number) for key, number in strata.items()}
        for partition, results in self._results.items():
            self._write(partition, results)
            for draw, _, _, result in results:
                parts[draw.case, draw.outcome].add(result)
        return JudgedTally(
            suite=self._manifest.suite.digest, judged=self._judged, tokens=self._tokens, strata=list(parts.values()), sketch=self._sketch
        )

    def _write(self, partition: int, results: Iterable[tuple[Drawn, PlaceInFile, Evidence, CaseResult]]) -> None:
        planned = self._manifest.partitions[partition]
        part = self._folder.store.begin(name_judged(planned.id))
        table = ResultTable(part, None, self._sketch)
        try:
            for _, place, evidence, result in results:
                table.file = place.file
                table.add(result, evidence, place.row, place.offset, place.run, place.trace)
            table.finish({})
        except BaseException:
            table.close()
            part.unlink(missing_ok=True)
            raise
        self._folder.store.put(part, name_judged(planned.id))


def judge_sample(
    folder: OutputFolder, manifest: Manifest, settings: Settings, judge: Judge, bounds: JudgeBounds, memory: JudgeMemory
) -> JudgedTally:
    """Judge a sample, and return its result."""

    async def ask() -> JudgedTally:
        try:
            return await JudgedSample(folder, manifest, settings, judge).judge(bounds, memory)
        finally:
            # Closed first, which writes its last replies.
            await judge.close()
            memory.finish()

    return _run_alone(ask)


def _run_alone(work: Callable[[], Coroutine[Any, Any, JudgedTally]]) -> JudgedTally:
    """Run `work` to its end; in a new thread if a loop is running, as in a notebook, which a batch blocks anyway."""
    if not is_loop_running():
        return asyncio.run(work())
    with ThreadPoolExecutor(1, "judge") as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def _count_tokens(usage: object) -> int:
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) else 0


class JudgedStratum(msgspec.Struct, kw_only=True):
    """The judged results of one case and one outcome of the deterministic checks."""

    case: str
    outcome: str
    results: int
    """How many there are."""
    judged: int = 0
    """How many of them were judged."""
    counts: dict[str, int] = {}
    """The judged results by their final outcome."""
    checks: list[dict[str, int]] = []
    """The same for every assertion of the case."""

    def add(self, result: CaseResult) -> None:
        """Count one result of the sample."""
        self.judged += 1
        self.checks = self.checks or [{} for _ in result.case.assertions]
        outcomes = (result.outcome, *(verdict.outcome for verdict in result.verdicts))
        for counts, outcome in zip((self.counts, *self.checks), outcomes, strict=False):
            counts[outcome] = counts.get(outcome, 0) + 1


class JudgedTally(msgspec.Struct, kw_only=True):
    """The result of the whole sample."""

    suite: str
    """The digest of the suite."""
    judged: dict[str, tuple[int, ...]]
    """The cases with claims that need a judge, and the numbers of these assertions."""
    tokens: int
    strata: list[JudgedStratum]
    sketch: Sketch
    """Why judged results did not pass."""
    unpriced: bool = False
    """Whether the sample ended early because the judge reports no tokens although they are limited."""


_DECODER = make_json_decoder(JudgedTally)


def read_tally(folder: OutputFolder, suite: str) -> JudgedTally | None:
    """Return the result of the sample of this suite; None if there is none. Raises `InputError` if it cannot be read."""
    data = folder.store.read(JUDGED_TALLY)
    try:
        tally = None if data is None else _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise InputError(f"{folder.path}/{JUDGED_TALLY}: cannot be read: {error}; delete it, and give the command again") from error
    return tally if tally is not None and tally.suite == suite else None


def estimate_case(tally: JudgedTally, case: str, labels: Sequence[str]) -> JudgedCase | None:
    """Return the sampled figures of a case; None if it has nothing to judge."""
    if case not in tally.judged:
        return None
    strata = [stratum for stratum in tally.strata if stratum.case == case]
    checks = {
        labels[number]: _estimate(strata, [stratum.checks[number] if stratum.checks else {} for stratum in strata])
        for number in tally.judged[case]
        if number < len(labels)
    }
    return JudgedCase(
        judged=sum(stratum.judged for stratum in strata),
        of=sum(stratum.results for stratum in strata),
        rate=_estimate(strata, [stratum.counts for stratum in strata]),
        checks=checks,
    )


def _estimate(strata: Iterable[JudgedStratum], counts: Iterable[Mapping[str, int]]) -> JudgedRate | None:
    parts: list[Stratum] = []
    totals: dict[str, int] = {}
    for stratum, counted in zip(strata, counts, strict=True):
        parts.append(Stratum(stratum.results, stratum.judged, count_outcomes(counted)))
        for outcome, number in counted.items():
            totals[outcome] = totals.get(outcome, 0) + number
    estimate = estimate_rate(parts)
    if estimate is None:
        return None
    return JudgedRate(counts=totals, rate=estimate.rate, low=estimate.interval.low, high=estimate.interval.high)
