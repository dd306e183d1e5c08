"""How often `compare` cries wolf and how often it sees a real drop, by simulation.

`python -m benchmarks.statistics_power [COMPARISONS]` prints the table of docs/explanation/statistics.md; ends with exit code 1 if
more than 5 % of the comparisons in which nothing changed were called a change.
"""

from __future__ import annotations

import random
import sys
from collections import Counter

import msgspec
from tests.scoring.references import compute_power

from proctor.scoring.intervals import Counts
from proctor.scoring.paired import compare_runs

DROPS = (0.0, 0.05, 0.1, 0.2)
SUITES = ("alike", "mixed")
DESIGNS = ((20, 1), (20, 3), (20, 5), (50, 1), (50, 3), (50, 5), (100, 1), (100, 3), (100, 5), (200, 1), (200, 3), (200, 5))
BASE_RATE = 0.85


class Simulated(msgspec.Struct, frozen=True):
    """The results of many comparisons of one design."""

    comparisons: int
    verdicts: dict[str, int]
    covered: int
    """Intervals that contain the true difference."""

    def share(self, *verdicts: str) -> float:
        return sum(self.verdicts.get(verdict, 0) for verdict in verdicts) / self.comparisons


def true_rates(suite: str, cases: int, generator: random.Random) -> list[float]:
    """`alike`: every case passes 85 of 100 times. `mixed`: most nearly always, some rarely, few in between; 85 of 100 on average."""
    if suite == "alike":
        return [BASE_RATE] * cases
    return [generator.betavariate(0.85, 0.15) for _ in range(cases)]


def simulate(suite: str, cases: int, repeats: int, drop: float, comparisons: int, *, seed: int = 1) -> Simulated:
    """Compare two simulated runs again and again; the pass rate of every case is `drop` lower in the second, or zero."""
    generator = random.Random(f"{seed} {suite} {cases} {repeats} {drop}")
    verdicts: Counter[str] = Counter()
    covered = 0
    for _ in range(comparisons):
        before = true_rates(suite, cases, generator)
        after = [max(0.0, rate - drop) for rate in before]
        comparison = compare_runs(_run(before, repeats, generator), _run(after, repeats, generator))
        verdicts[comparison.verdict] += 1
        covered += (sum(after) - sum(before)) / cases in comparison.interval
    return Simulated(comparisons, dict(verdicts), covered)


def _run(rates: list[float], repeats: int, generator: random.Random) -> dict[str, Counts]:
    return {str(case): Counts(repeats, sum(generator.random() < rate for _ in range(repeats))) for case, rate in enumerate(rates)}


def main(arguments: list[str]) -> int:
    """Simulate and print."""
    comparisons = int(arguments[0]) if arguments else 400
    changed = quiet = 0
    print("| cases | repeats | suite | false alarms | drop of 5 | of 10 | of 20 | formula for 5, 10, 20 | intervals right |")
    print("|---|---|---|---|---|---|---|---|---|")
    for cases, repeats in DESIGNS:
        for suite in SUITES:
            found = [simulate(suite, cases, repeats, drop, comparisons) for drop in DROPS]
            changed += sum(found[0].verdicts.get(verdict, 0) for verdict in ("regressed", "improved"))
            quiet += found[0].comparisons
            seen = " | ".join(f"{one.share('regressed'):.0%}" for one in found[1:])
            formula = ", ".join(f"{compute_power(cases, repeats, BASE_RATE, drop):.0%}" for drop in DROPS[1:])
            right = sum(one.covered for one in found) / sum(one.comparisons for one in found)
            alarms = found[0].share("regressed", "improved")
            print(f"| {cases} | {repeats} | {suite} | {alarms:.1%} | {seen} | {formula} | {right:.1%} |", flush=True)
    print(f"{changed / quiet:.2%} of {quiet} comparisons in which nothing changed were called a change", file=sys.stderr)
    return 1 if changed > 0.05 * quiet else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
