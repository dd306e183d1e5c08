"""Runs the bundled examples, one suite per dialect, and copies them into a folder of the user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import proctor.examples
from proctor.actions.checking.check_stream import CheckStream
from proctor.actions.workspace.suites import load_suite
from proctor.errors import InputError
from proctor.model.result import RunResult
from proctor.sources.records import read_records

EXAMPLES = (
    ("native/suite.yaml", "native/evidence.jsonl", "Our own format; the second run did the wrong thing, and the report shows what"),
    ("mcplab/orders.yaml", "mcplab/trace.jsonl", "An MCPLab evaluation on the trace that MCPLab recorded"),
    ("mibo/calculator.json", "mibo/n8n-execution.json", "A Mibo test case on an execution as n8n's API returns it"),
    ("verial/appointment.json", "verial/state.json", "Verial criteria over the end state of two systems"),
    ("mcpjam/calculator.yaml", "mcpjam/messages.json", "An MCPJam suite file on a list of OpenAI messages"),
)


def examples_folder() -> Path:
    """Return the folder of the bundled examples."""
    return Path(proctor.examples.__path__[0])


def write_examples(folder: str | Path) -> list[Path]:
    """Copy the files of all examples into a folder, one below it per dialect; returns their paths. Raises `InputError`."""
    place = Path(folder)
    names = [name for suite, evidence, _ in EXAMPLES for name in (suite, evidence)]
    existing = [name for name in names if (place / name).exists()]
    if existing:
        raise InputError(f"{', '.join(existing)} in {str(place)!r} would be overwritten; name another folder")
    try:
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes((examples_folder() / name).read_bytes())
    except OSError as error:
        raise InputError(f"cannot write to {str(place)!r}: {error.strerror}") from error
    return [place / name for name in names]


def run_examples() -> Iterator[tuple[str, str, str, RunResult]]:
    """Check every example in turn; yields suite, evidence and description of each, and the result."""
    folder = examples_folder()
    for suite, evidence, about in EXAMPLES:
        stream = CheckStream(load_suite(folder / suite))
        yield suite, evidence, about, stream.finish(list(stream.over(read_records([str(folder / evidence)]))))
