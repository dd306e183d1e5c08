"""Recordings of agents in the shapes of real tools and people, each read with a mapping of at most eight lines or none.

`recordings/truth.yaml` lists for each run which claims pass, fail, or are unknown (code `missing_evidence`); claims under `not_pass` may
fail or be unknown.
"""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml

import proctor
from proctor.actions.checking.check import read_all_evidence
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict

FOLDER = Path(__file__).parent / "recordings"
RECORDINGS: list[dict[str, Any]] = yaml.load((FOLDER / "truth.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


@pytest.mark.parametrize("entry", RECORDINGS, ids=itemgetter("id"))
def test_each_claim_about_a_recording_has_its_true_outcome(entry: dict[str, Any], tmp_path: Path) -> None:
    assert list_wrong_claims(entry, tmp_path) == []


def test_every_file_has_a_truth_and_no_mapping_is_longer_than_eight_lines() -> None:
    assert {entry["file"] for entry in RECORDINGS} == {path.name for path in FOLDER.iterdir()} - {"truth.yaml", "README.md"}
    assert all(len(entry.get("evidence", {}).get("map", {})) <= 8 for entry in RECORDINGS)
    assert all(sum(map(len, list_claims(entry))) >= 4 for entry in RECORDINGS)


def list_wrong_claims(entry: dict[str, Any], folder: Path) -> list[str]:
    """Return each claim whose outcome differs from the truth, with the actual verdict."""
    evidences = read_recording(entry)
    if len(evidences) != len(entry["runs"]):
        return [f"expected {len(entry['runs'])} runs, found {len(evidences)}"]
    wrong: list[str] = []
    for number, (evidence, claims) in enumerate(zip(evidences, list_claims(entry), strict=True), 1):
        suite = folder / f"{number}.yaml"
        suite.write_text(yaml.safe_dump({"proctor": 1, "cases": [{"name": entry["id"], "expect": [claim for _, claim in claims]}]}))
        (result,) = proctor.check(proctor.load_suite(suite), evidence).cases
        for (expected, claim), verdict in zip(claims, result.verdicts, strict=True):
            if (actual := classify(verdict)) != expected and not (expected == "not_pass" and actual != "pass"):
                wrong.append(f"run {number}: {claim}: expected {expected}, found {actual}: {verdict.reason}")
    return wrong


def list_claims(entry: dict[str, Any]) -> list[list[tuple[str, dict[str, Any]]]]:
    """Return the claims of each run with their expected outcome."""
    return [[(outcome, claim) for outcome, claims in run.items() for claim in claims] for run in entry["runs"]]


def classify(verdict: Verdict) -> str:
    """Return `unknown` for a verdict on missing evidence, else its outcome."""
    return "unknown" if verdict.code == "missing_evidence" else verdict.outcome


def read_recording(entry: dict[str, Any]) -> list[Evidence]:
    """Return the runs of a recording, read with the `evidence` block of its entry."""
    path = FOLDER / entry["file"]
    declared = entry.get("evidence", {})
    options = {name: declared[key] for key, name in (("map", "mapping"), ("complete", "complete")) if key in declared}
    return read_all_evidence(path, **options)
