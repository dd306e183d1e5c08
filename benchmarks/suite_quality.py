"""What suites detect: the table in docs/explanation/mutation.md, of the suites that come with proctor and of public ones.

    python -m benchmarks.suite_quality [FOLDER] [--write]

FOLDER has public suites: `*.csv` and `*.yaml` of promptfoo (`tests` and `defaultTest`), and datasets of pydantic-evals. They are other
people's, so they are not in this repository; the table names them. A suite of promptfoo is written as the CSV file that promptfoo
reads, and is converted with `proctor convert`. Claims that are code are left out. The recordings are short answers that pass.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

import proctor
from proctor.actions.checking.convert import convert
from proctor.actions.checking.mutate import Named, mutate, read_recordings
from proctor.actions.workspace.suites import load_suite
from proctor.evidence.reading import read_document
from proctor.formats.native.text import write_native
from proctor.formats.suites import read_suite
from proctor.model.case import Suite
from proctor.model.mutation import MutationResult
from proctor.report.words.wording import write_percent
from proctor.scoring.intervals import Counts, wilson

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "mutation.md"
BEGIN, END = "<!-- measured: suites -->", "<!-- end measured -->"
EXAMPLES = Path(proctor.__file__).parent / "examples"
BUNDLED = {
    "native": ("suite.yaml", "evidence.jsonl"),
    "MCPLab": ("orders.yaml", "trace.jsonl"),
    "Mibo": ("calculator.json", "n8n-execution.json"),
    "Verial": ("appointment.json", "state.json"),
    "MCPJam": ("calculator.yaml", "messages.json"),
}
_JSON_ANSWER = {"name": "Anne", "born": 1720, "story": "I went to sea when I was ten years old."}


class Measured(NamedTuple):
    """A measured suite, and how many faults survive after its proposed claims were added."""

    name: str
    found: MutationResult
    left: int
    without_claim: int


def measure(name: str, suite: Suite, evidence: Sequence[Named]) -> Measured:
    """Measure a suite, add every proposed claim to it, and measure again."""
    native = read_suite(write_native(suite), name=suite.name)
    found = mutate(native, evidence)
    cases = [
        msgspec.structs.replace(
            case, assertions=(*case.assertions, *(_read_claim(each.line) for each in found.proposals if each.case == case.id))
        )
        for case in native.cases
    ]
    after = mutate(msgspec.structs.replace(native, cases=tuple(cases)), evidence)
    assert after.records == found.records, name
    without = sum(one.status == "survived" and not one.claim for one in found.faults)
    return Measured(name, found, after.total.survived, without)


def _read_claim(line: str) -> Any:
    suite = read_suite(f"proctor: 1\ncases:\n  - id: a\n    expect:\n      {line}\n", name="claim")
    return suite.cases[0].assertions[0]


def measure_bundled() -> Iterator[Measured]:
    """Measure the suites that come with proctor."""
    for dialect, (suite_file, evidence_file) in BUNDLED.items():
        suite = load_suite(EXAMPLES / dialect.lower() / suite_file)
        yield measure(f"bundled, {dialect}", suite, list(read_recordings([str(EXAMPLES / dialect.lower() / evidence_file)], suite)))


def measure_public(folder: Path) -> Iterator[Measured]:
    """Measure the public suites of a folder."""
    for path in sorted(folder.iterdir()):
        document = yaml.safe_load(path.read_text()) if path.suffix == ".yaml" else None
        if document is not None and "cases" in document:
            suite, rows = load_suite(path), [case.get("expected_output") for case in document["cases"]]
            answers = [each if isinstance(each, str) else json.dumps(each) for each in rows]
        else:
            text = path.read_text() if document is None else write_csv(document)
            suite, answers = read_csv(text), [write_answer(row) for row in csv.DictReader(io.StringIO(text))]
        suite = msgspec.structs.replace(suite, cases=tuple(map(_drop_code, suite.cases)))
        records = [
            {"case": case.id, "text": answer, "tool_calls": [], "duration_ms": 800, "usage": {"input_tokens": 90, "output_tokens": 30}}
            for case, answer in zip(suite.cases, answers, strict=True)
        ]
        yield measure(
            path.stem.replace("promptfoo-", "promptfoo ").replace("evals-", "evals "),
            suite,
            [(path.name, one) for record in records for one in read_document(record)],
        )


def _drop_code(case: Any) -> Any:
    decided = [each for each in case.assertions if each.check not in ("unsupported", "cost_within")]
    return msgspec.structs.replace(case, assertions=tuple(decided))


def write_csv(document: dict[str, Any]) -> str:
    """Return a promptfoo configuration as the CSV file that promptfoo reads."""
    shared = (document.get("defaultTest") or {}).get("assert") or []
    templates = document.get("assertionTemplates") or {}
    tests = [
        (test.get("vars") or {}, [templates[each["$ref"].rpartition("/")[2]] if "$ref" in each else each for each in claims])
        for test in document["tests"]
        for claims in [[*(test.get("assert") or []), *shared]]
    ]
    most = max(len(claims) for _, claims in tests)
    columns = [*dict.fromkeys(name for names, _ in tests for name in names), *(f"__expected{number + 1}" for number in range(most))]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    for names, claims in tests:
        writer.writerow({**names, **{f"__expected{number + 1}": write_cell(claim) for number, claim in enumerate(claims)}})
    return text.getvalue()


def write_cell(claim: dict[str, Any]) -> str:
    """Return a claim as a cell of promptfoo's CSV."""
    bound = f"({claim['threshold']})" if "threshold" in claim else ""
    value = claim.get("value")
    return f"{claim['type']}{bound}" + ("" if value is None else f":{','.join(map(str, value)) if isinstance(value, list) else value}")


def read_csv(text: str) -> Suite:
    """Return a CSV file of promptfoo as a suite, by `proctor convert`."""
    columns = next(csv.reader(io.StringIO(text)))
    prompt = " ".join(f"{{{{{name}}}}}" for name in columns if not name.startswith("__"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tests.csv").write_text(text)
        Path(folder, "suite.yaml").write_text(json.dumps({"proctor": 1, "cases": {"from": "tests.csv", "prompt": prompt}}))
        native, _ = convert(Path(folder, "suite.yaml"))
    return read_suite(native, name="promptfoo")


def write_answer(row: dict[str, str]) -> str:
    """Return a short answer that passes the claims of a row."""
    words: list[str] = []
    is_json, begin = False, "This is what I found out"
    for cell in (value for name, value in row.items() if name.startswith("__expected") and value):
        kind, _, value = cell.partition(":")
        is_json = is_json or kind == "is-json"
        if kind == "equals":
            return value
        if kind == "starts-with":
            begin = value
        if kind in ("contains", "icontains", "contains-any"):
            words.append(value.split(",")[0] if kind == "contains-any" else value)
    if is_json:
        return json.dumps({**_JSON_ANSWER, **({"found": words} if words else {})})
    return f"{begin}: {' and '.join(words) or 'nothing special'}. I hope that it helps you."


def write_table(rows: Sequence[Measured]) -> str:
    """Return the table of the docs."""
    lines = [
        "| suite | cases | claims | planted | detected | after adding the proposed claims |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        total = row.found.total
        if total.share is None:
            why = f"{row.found.judged} for a judge" if row.found.judged else "all in code"
            lines.append(f"| {row.name} | 0 | 0 | 0 | no claim is decided without a judge or code ({why}) | |")
            continue
        interval = wilson(Counts(total.planted, total.detected))
        share = f"{write_percent(total.share)} ({write_percent(interval.low)} to {write_percent(interval.high)})"
        after = f"{write_percent(1 - row.left / total.planted)}" + (f"; {row.without_claim} without a claim" if row.without_claim else "")
        lines.append(f"| {row.name} | {len(row.found.cases)} | {row.found.claims} | {total.planted} | {share} | {after} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and with `--write` replace the table of the docs."""
    folders = [each for each in sys.argv[1:] if each != "--write"]
    rows = [*measure_bundled(), *(row for folder in folders for row in measure_public(Path(folder)))]
    table = write_table(rows)
    print(table)
    if "--write" in sys.argv:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
