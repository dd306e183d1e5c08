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
    ("broken", "order", "lost"),
    [
        (b'{"session": "s1", "kind": "tool", "na', (0, -1, 1, 2, 3), {"s1"}),
        (b'{"session": "s2", "kind": "tool", "na', (0, 1, 2, 3, -1), {"s2"}),
        (b'{"session": "s1", "kind": "tool", "na', (0, 2, -1, 3, 1), {"s1"}),
        (b"Traceback (most recent call last):", (0, 1, 2, -1, 3), {"s2"}),
        (b"Traceback (most recent call last):", (0, 2, -1, 3, 1), {"s1", "s2"}),
        (b"Traceback (most recent call last):", (0, 1, -1, 2, 3), set()),
    ],
    ids=("inside", "named-at-the-end", "named-inside-two", "inside-without-name", "inside-two", "between-runs"),
)
def test_a_line_that_is_not_json_leaves_its_run_unknown(broken: bytes, order: tuple[int, ...], lost: set[str], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join((*LINES, broken)[place] for place in order))
    records = list(read_records([str(path)], declared=DeclaredEvidence(map=msgspec.convert(MAP, EvidenceMap))))
    accounts = {record.source.id: record.evidence.account or Account() for record in records if record.evidence is not None}
    assert accounts.keys() == {"s1", "s2"}
    for part in ("tool_calls", "answer", "input"):
        assert {name for name, account in accounts.items() if part in account.unknown} == lost
    assert sum(record.error is not None for record in records) == 1
