"""Records the telemetry of real JavaScript agent frameworks. usage: python -m tests.frameworks.js.record_js [NAME...]

Each row of combinations.json names a driver, the npm packages it needs and what its telemetry is known to lack. Packages are installed
under .frameworks/js/<set>; recordings, message lists and their truth are written under tests/evidence/frameworks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.frameworks.js.scrub import scrub_documents
from tests.frameworks.js.server import Desk, Recording
from tests.frameworks.js.truth import describe_messages, describe_traces

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
INSTALLED = ROOT / ".frameworks" / "js"
EVIDENCE = ROOT / "tests" / "evidence" / "frameworks"
Json = dict[str, Any]


def install_packages(name: str, packages: list[str]) -> Path:
    """Install a set of npm packages once and return its folder."""
    folder = INSTALLED / name
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "package.json"
    if not manifest.exists():
        manifest.write_text('{"private": true, "type": "module"}\n')
    done = folder / ".done"
    if not done.exists():
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--legacy-peer-deps", *packages], cwd=folder, check=True)
        done.touch()
    return folder


def read_versions(folder: Path, packages: list[str]) -> dict[str, str]:
    """Return the versions that npm installed."""
    return {name: json.loads((folder / "node_modules" / name / "package.json").read_text())["version"] for name in packages}


def run_driver(name: str, row: Json, folder: Path, recording: Recording) -> str:
    """Run a driver against a fresh server and return its output if it failed."""
    for source in HERE.glob("drive-*.mjs"):
        shutil.copy(source, folder)
    shutil.copytree(HERE / "lib", folder / "lib", dirs_exist_ok=True)
    shutil.copy(HERE / "scenarios.json", folder / "lib")
    with Desk(recording) as desk:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DESK_URL": desk.address,
            "SERVICE_NAME": name,
            "VARIANT": ",".join(row.get("variant", [])),
            **{key: value.replace("{desk}", desk.address) for key, value in row.get("environment", {}).items()},
        }
        command = ["node", *row.get("node", []), f"drive-{row['driver']}.mjs"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else f"exit {done.returncode}: {(done.stdout + done.stderr).strip()[-1500:]}"


def write_document(path: Path, document: Any, indent: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, ensure_ascii=False, indent=indent) + "\n")


def merge_document(path: Path, entries: Json) -> None:
    """Merge entries into a JSON object in a file."""
    known: Json = json.loads(path.read_text()) if path.exists() else {}
    write_document(path, known | entries, indent=1)


def sort_traces(traces: Json) -> Json:
    """Separate runs without tools, and turns with their own traces, from the scenarios that a suite has cases for."""
    plain = {trace: truth for trace, truth in traces.items() if truth["scenario"] == "plain"}
    apart = {trace: truth for trace, truth in traces.items() if "-" in truth["scenario"]}
    rest = {trace: truth for trace, truth in traces.items() if trace not in plain and trace not in apart}
    return {"traces": rest, "plain": plain} | ({"apart": apart} if apart else {})


def record_combination(name: str, row: Json, table: Json, evidence: Path) -> list[str]:
    """Record one combination and return notes to review."""
    folder = install_packages(row["set"], table["sets"][row["set"]])
    recording = Recording(table["scenarios"])
    output = run_driver(name, row, folder, recording)
    notes = [output] if output and not row.get("ends_at_error") else []
    notes += recording.problems
    if row.get("traces", True):
        requests = scrub_documents([document for _, document in recording.requests], ROOT)
        traces, remarks = describe_traces(row, recording)
        notes += remarks
        write_document(evidence / f"{name}.json", requests)
        entry = {
            "framework": row["framework"],
            "instrumentation": row["instrumentation"],
            "versions": read_versions(folder, row["versions"]),
            **sort_traces(traces),
        }
        merge_document(evidence / "truth-js.json", {name: entry})
    for kind, documents in recording.messages.items():
        promise = row["messages"][kind]
        write_document(evidence / "messages" / f"{kind}.json", scrub_documents(documents, ROOT))
        truth = describe_messages(promise, documents, recording) | {"versions": read_versions(folder, row["versions"])}
        merge_document(evidence / "messages" / "truth-js.json", {kind: truth})
    return notes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="combinations; all when none is named")
    parser.add_argument("--evidence", type=Path, default=EVIDENCE)
    options = parser.parse_args()
    table: Json = json.loads((HERE / "combinations.json").read_text())
    table["scenarios"] = json.loads((HERE / "scenarios.json").read_text())["scenarios"]
    failed = False
    for name in options.names or table["combinations"]:
        notes = record_combination(name, table["combinations"][name], table, options.evidence)
        failed |= bool(notes)
        print(f"{name}: recorded" + "".join(f"\n    {note}" for note in notes), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
