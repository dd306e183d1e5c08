"""The digest of an attempt agrees with its body, and stays small for any evidence."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.actions.history.compare import find_reason
from proctor.errors import StoreError
from proctor.model.evidence import Cost, Evidence, Usage
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict
from proctor.store.runs.entry_digests import LARGEST_DIGEST, make_digest, read_digest
from proctor.store.sql.compressed_json import compress_bytes, to_json

LARGE = "x" * 1_000_000
PASS = Verdict("pass", 1.0, "found", None, {"seen": LARGE}, ("$.text",))
FAIL = Verdict("fail", 0.0, "'a' is not in 'b'", "missing_evidence", {"seen": LARGE}, ("$.text",))
ENTRIES = {
    "bare": RunEntry(case="a", outcome="pass"),
    "passed": RunEntry(case="a", attempt=3, outcome="pass", score=1.0, verdicts=(PASS, PASS), evidence=Evidence(text=LARGE)),
    "failed": RunEntry(
        case="a",
        outcome="fail",
        verdict="FAIL",
        verdicts=(PASS, FAIL, FAIL),
        evidence=Evidence(text=LARGE, duration_ms=12.5, usage=Usage(input_tokens=3, output_tokens=4)),
        started_at="2031-01-01T00:00:00.000Z",
        duration_ms=20.0,
        cost=Cost(agent=0.25, judge=0.0),
        extracted={"seen": LARGE},
    ),
    "broke": RunEntry(
        case="ä\0", outcome="error", code="no_answer", reason="nobody answers", verdicts=(Verdict("error", 0.0, "r", "no_answer"),)
    ),
}


@pytest.mark.parametrize("has_digest", [True, False], ids=["from the digest", "from the body"])
@pytest.mark.parametrize("name", ENTRIES)
def test_a_digest_agrees_with_its_entry(name: str, has_digest: bool) -> None:
    entry = ENTRIES[name]
    data = to_json(entry)
    digest = make_digest(data)
    assert digest is not None and len(digest) < 500
    row: dict[str, Any] = {"digest": digest, "body": None} if has_digest else {"digest": None, "body": compress_bytes(data)}
    found = read_digest(row)
    for field in ("case", "attempt", "outcome", "score", "verdict", "code", "reason", "started_at", "duration_ms", "cost"):
        assert getattr(found, field) == getattr(entry, field), field
    assert find_reason(found, None) == find_reason(entry, None)
    assert found.find_agent_ms() == entry.find_agent_ms()
    usages = [None if one.evidence is None else one.evidence.usage for one in (found, entry)]
    assert usages[0] == usages[1]


def test_verdicts_before_the_one_that_failed_keep_their_places() -> None:
    found = read_digest({"digest": make_digest(to_json(ENTRIES["failed"])), "body": None})
    assert [(verdict.outcome, verdict.reason, verdict.code) for verdict in found.verdicts] == [
        ("pass", "", None),
        ("fail", "'a' is not in 'b'", "missing_evidence"),
    ]


def test_an_attempt_with_a_very_long_reason_has_no_digest_and_its_body_is_read() -> None:
    entry = RunEntry(case="a", outcome="error", reason="r" * LARGEST_DIGEST)
    assert make_digest(to_json(entry)) is None
    assert read_digest({"digest": None, "body": compress_bytes(to_json(entry))}) == entry


@pytest.mark.parametrize(
    "row", [{"digest": b"{", "body": None}, {"digest": None, "body": compress_bytes(b"[]")}, {"digest": None, "body": b"?"}]
)
def test_damaged_digests_are_a_store_error(row: dict[str, Any]) -> None:
    with pytest.raises(StoreError):
        read_digest(row)
