"""The same cases in promptfoo, if installed: a CSV file with `__expected` columns, and an agent that echoes its input.

Both read the file, call the agent, decide every claim, store the results as by default and write one JSON document. Their verdicts are
compared row by row. `PROMPTFOO=/path/to/promptfoo` names the program, else it is looked for on the PATH.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import Figure

SIZES = tuple(int(each) for each in os.environ.get("PROCTOR_BENCH_PROMPTFOO_ROWS", "1000,10000").split(","))
ROUNDS = 2
AT_ONCE = 20
_WATCHER = """\
import json, resource, subprocess, sys, time
started = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
figures = [time.monotonic() - started, used.ru_utime + used.ru_stime, used.ru_maxrss]
print(json.dumps([*figures, done.returncode, done.stderr.decode()[-2000:]]))
"""
_AGENT = """\
def answer(message):
    return {"text": message, "model": "echo", "usage": {"input_tokens": 0, "output_tokens": 0}}
"""
_WORKSPACE = """\
targets: {echo: {type: callable, function: "echo_agent:answer"}}
prices: {echo: {input: 1, output: 1, currency: USD}}
"""


class Took(NamedTuple):
    """The cost of a command."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def find_promptfoo() -> str | None:
    """Return the program, where there is one."""
    return os.environ.get("PROMPTFOO") or shutil.which("promptfoo")


class Contest:
    """A folder in which both examine the same file."""

    def __init__(self, folder: Path, promptfoo: str, rows: Path, prompt: str) -> None:
        self._folder, self._promptfoo = folder, promptfoo
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(rows, folder / "tests.csv")
        config = {"prompts": [prompt], "providers": ["echo"], "tests": "file://tests.csv"}
        (folder / "promptfooconfig.yaml").write_text(json.dumps(config))
        (folder / "suite.yaml").write_text(json.dumps({"proctor": 1, "cases": {"from": "tests.csv", "prompt": prompt}}))
        (folder / "echo_agent.py").write_text(_AGENT)
        (folder / "proctor.yaml").write_text(_WORKSPACE)

    def run_promptfoo(self) -> Took:
        """Let promptfoo evaluate the file; its exit code 100 means that a test failed."""
        flags = ["--no-cache", "--no-table", "--no-progress-bar", "--no-share", "-j", str(AT_ONCE), "-o", "theirs.json"]
        return self._watch([self._promptfoo, "eval", "-c", "promptfooconfig.yaml", *flags], (0, 100))

    def run_proctor(self) -> Took:
        """Let proctor run the suite over the file."""
        flags = ["--quiet", "-j", str(AT_ONCE), "--format", "json", "--output", "ours.json"]
        return self._watch([sys.executable, "-m", "proctor", "run", "suite.yaml", *flags], (0, 1))

    def _watch(self, command: Sequence[str], allowed: tuple[int, ...]) -> Took:
        quiet = {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1", "PROMPTFOO_DISABLE_REMOTE_GENERATION": "true"}
        environment = {**os.environ, **quiet, "PROMPTFOO_CONFIG_DIR": str(self._folder / "kept"), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", _WATCHER, *command], cwd=self._folder, env=environment, capture_output=True, text=True, check=True
        )
        wall, cpu, peak, code, errors = json.loads(done.stdout.splitlines()[-1])
        if code not in allowed:
            raise RuntimeError(f"{' '.join(command)} ended with {code}: {errors}")
        return Took(wall, cpu, peak * (1 if sys.platform == "darwin" else 1024))

    def read_theirs(self) -> list[bool]:
        """Return whether each row passed in promptfoo."""
        results = json.loads((self._folder / "theirs.json").read_text())["results"]["results"]
        return [result["success"] for result in sorted(results, key=lambda result: result["testIdx"])]

    def read_ours(self) -> list[bool]:
        """Return whether each row passed in proctor."""
        return [case["outcome"] == "pass" for case in json.loads((self._folder / "ours.json").read_text())["cases"]]


def list_differences(contest: Contest) -> list[int]:
    """Return the numbers of the rows that both decided otherwise, from 1 on; both have run."""
    ours, theirs = contest.read_ours(), contest.read_theirs()
    assert len(ours) == len(theirs), (len(ours), len(theirs))
    return [number for number, (one, other) in enumerate(zip(ours, theirs, strict=True), 1) if one != other]


def _write_rows(path: Path, count: int) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "__expected", "__expected2"])
        # One in ten fails.
        for n in range(count):
            expected = f"contains:order {n if n % 10 else 'x'}"
            writer.writerow([f"Where is order {n}? It was sent on day {n % 30}, and nobody has seen it.", expected, r"regex:day \d+"])
    return path


def figures() -> Iterator[Figure]:
    """Ratios of promptfoo to proctor: above 1 promptfoo needs more."""
    program = find_promptfoo()
    if program is None:
        print("  promptfoo is not installed here and was not measured: put it on the PATH, or name it with PROMPTFOO=/path/to/promptfoo")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = _measure(Contest(folder / "one", program, _write_rows(folder / "one.csv", 1), "{{question}}"))
        yield _compare("one row, from the start of the program to its end: wall time", *(took.wall_s for took in start), unit="s")
        for size in SIZES:
            contest = Contest(folder / str(size), program, _write_rows(folder / f"{size}.csv", size), "{{question}}")
            ours, theirs = _measure(contest)
            per_case = [(took.wall_s - first.wall_s) / size * 1000 for took, first in zip((ours, theirs), start, strict=True)]
            yield _compare(f"{size:,} rows of csv: wall time", ours.wall_s, theirs.wall_s, unit="s")
            yield _compare(f"{size:,} rows of csv: wall time for each case beyond the start", *per_case, unit="ms")
            yield _compare(f"{size:,} rows of csv: CPU time", ours.cpu_s, theirs.cpu_s, unit="s")
            yield _compare(f"{size:,} rows of csv: peak memory", ours.peak_bytes / 2**20, theirs.peak_bytes / 2**20, unit="MB")


def _measure(contest: Contest) -> tuple[Took, Took]:
    """Return the best of ours and of theirs, turn by turn, after their verdicts were found to be the same."""
    ours: list[Took] = []
    theirs: list[Took] = []
    for _ in range(ROUNDS):
        ours.append(contest.run_proctor())
        theirs.append(contest.run_promptfoo())
        differences = list_differences(contest)
        assert not differences, f"rows {differences[:10]} were decided otherwise"
    best = [Took(*(min(figure) for figure in zip(*runs, strict=True))) for runs in (ours, theirs)]
    return best[0], best[1]


def _compare(what: str, ours: float, theirs: float, *, unit: str) -> Figure:
    return Figure(f"promptfoo / proctor, {what}", theirs / ours, note=f"{theirs:,.2f} and {ours:,.2f} {unit}")


def record(rows: Path, prompt: str) -> list[bool]:
    """Return the verdict of promptfoo on every row of a file."""
    program = find_promptfoo()
    assert program is not None, "promptfoo is not installed here"
    with tempfile.TemporaryDirectory() as name:
        contest = Contest(Path(name), program, rows, prompt)
        contest.run_promptfoo()
        return contest.read_theirs()


if __name__ == "__main__":
    # python -m benchmarks.promptfoo ROWS.csv PROMPT > verdicts.json
    print(json.dumps(record(Path(sys.argv[1]), sys.argv[2])))
