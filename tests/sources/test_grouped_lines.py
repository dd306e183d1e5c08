"""Lines of a log that a mapping joins to runs by `group`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from proctor.model.account import Account
from proctor.model.mapping import DeclaredEvidence, EvidenceMap
from proctor.sources.records import read_records

MAP = {"group": "$.session", "input": "$[?@.kind == 'ask'].text", "text": "$[?@.kind == 'answer'].text", "tool_calls": "$[?@.tool]"}
LINES = (
    b'{"session": "s1", "kind": "ask", "text": "Refund?"}',
    b'{"session": "s1", "kind": "answer", "text": "Done."}',
    b'{"session": "s2", "kind": "ask", "text": "Hello?"}',
    b'{"session": "s2", "kind": "answer", "text": "Hi."}',
)


@pytest.mark.parametrize(
    ("broken", "place", "lost"),
    [
        (b'{"session": "s1", "kind": "tool", "na', 1, {"s1"}),
        (b'{"session": "s2", "kind": "tool", "na', 4, {"s2"}),
        (b"Traceback (most recent call last):", 3, {"s2"}),
        (b"Traceback (most recent call last):", 2, set()),
    ],
    ids=("inside", "named-at-the-end", "inside-without-name", "between-runs"),
)
def test_a_line_that_is_not_json_leaves_its_run_unknown(broken: bytes, place: int, lost: set[str], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join((*LINES[:place], broken, *LINES[place:])))
    records = list(read_records([str(path)], declared=DeclaredEvidence(map=msgspec.convert(MAP, EvidenceMap))))
    accounts = {record.source.id: record.evidence.account or Account() for record in records if record.evidence is not None}
    assert accounts.keys() == {"s1", "s2"}
    for part in ("tool_calls", "answer", "input"):
        assert {name for name, account in accounts.items() if part in account.unknown} == lost
    assert sum(record.error is not None for record in records) == 1
