"""Traces per CPU second on one core: against a hand-written loop, against a peer, and from file to file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

import proctor
from benchmarks.hand_written import check_all
from benchmarks.measure import cpu_seconds, interleaved
from benchmarks.peers import pydantic_evals_run
from benchmarks.report import Figure
from benchmarks.traces import SUITE, traces, write_jsonl

COUNT = 10_000
PEER_COUNT = 1_000


def figures() -> Iterator[Figure]:
    """Ratios of traces per CPU second."""
    suite = proctor.parse_suite(SUITE)
    parsed = traces(COUNT)
    evidence = [proctor.read_evidence(trace) for trace in parsed]
    by_hand = check_all(parsed)
    ours = proctor.check(suite, evidence)
    verdicts = [tuple(verdict.outcome == "pass" for verdict in case.verdicts) for case in ours.cases]
    assert verdicts == by_hand, "proctor and the hand-written loop disagree"
    best = interleaved({"hand": lambda: check_all(parsed), "proctor": lambda: proctor.check(suite, evidence)}, 7)
    rate = COUNT / best["proctor"]
    yield Figure(
        "in memory: proctor / hand-written loop, traces per CPU second",
        best["hand"] / best["proctor"],
        at_least=0.65,
        note=f"{rate:,.0f} against {COUNT / best['hand']:,.0f} traces/s",
    )
    yield from _peer(suite)
    yield from _files()


def _peer(suite: proctor.Suite) -> Iterator[Figure]:
    parsed = traces(PEER_COUNT)
    peer = pydantic_evals_run(parsed)
    if peer is None:
        print("  (pydantic-evals is not installed: `make bench-peers` measures it too)")
        return
    evidence = [proctor.read_evidence(trace) for trace in parsed]
    assert peer() == sum(v.outcome == "pass" for case in proctor.check(suite, evidence).cases for v in case.verdicts), (
        "verdict counts differ"
    )
    best = interleaved({"peer": peer, "proctor": lambda: proctor.check(suite, evidence)}, 3)
    yield Figure("in memory: proctor / pydantic-evals, traces per CPU second", best["peer"] / best["proctor"], at_least=3)


def _files() -> Iterator[Figure]:
    from proctor.cli.main import run

    with tempfile.TemporaryDirectory() as folder:
        suite, source, results = Path(folder, "suite.yaml"), Path(folder, "traces.jsonl"), Path(folder, "results.jsonl")
        suite.write_text(SUITE)
        write_jsonl(source, COUNT)

        def decode() -> None:
            decoder = msgspec.json.Decoder()
            with source.open("rb") as file:
                for line in file:
                    decoder.decode(line)

        def check() -> None:
            run(["check", str(suite), str(source), "--format", "jsonl", "--quiet", "--output", str(results)])

        best = interleaved({"decode": decode, "check": check}, 7)
        lines = results.read_bytes().splitlines()
        passed = sum(line.count(b'"outcome":"pass"') for line in lines)
        expected = sum(
            sum(row) + all(row) for row in check_all(msgspec.json.decode(b"[" + b",".join(source.read_bytes().splitlines()) + b"]"))
        )
        assert (len(lines), passed) == (COUNT, expected), "the written results disagree with the hand-written loop"
        note = f"{COUNT / best['check']:,.0f} traces/s, {os.path.getsize(source) / best['check'] / 1e6:.0f} MB/s"
        yield Figure("file to file: proctor check / msgspec decoding alone, CPU", best["check"] / best["decode"], at_most=2.4, note=note)


def profile() -> None:
    """Where the time goes, for optimising: `python -m benchmarks.throughput`."""
    import cProfile
    import pstats

    suite = proctor.parse_suite(SUITE)
    evidence = [proctor.read_evidence(trace) for trace in traces(COUNT)]
    profiler = cProfile.Profile()
    profiler.runcall(proctor.check, suite, evidence)
    pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(15)
    print(cpu_seconds(lambda: proctor.check(suite, evidence)))


if __name__ == "__main__":
    profile()
