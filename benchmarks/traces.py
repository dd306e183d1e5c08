"""The traces every throughput benchmark uses: six tool calls each, about one trace in twenty failing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

TOOLS = ("search", "lookup_order", "check_stock", "refund", "send_mail", "summarize")

SUITE = """\
proctor: 1
name: bench
cases:
  - id: refund
    expect:
      - tool_called: {name: refund, arguments: {order: 17, currency: EUR}}
      - tools_in_order: [lookup_order, refund, send_mail]
      - response_contains: refund processed
"""


def traces(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """`count` plain traces, the same for the same seed."""
    chance = random.Random(seed)
    made: list[dict[str, Any]] = []
    for number in range(count):
        names = list(TOOLS)
        if chance.random() < 0.017:
            names[1], names[3] = names[3], names[1]
        order = 17 if chance.random() < 0.983 else 18
        calls = [
            {
                "name": name,
                "arguments": {"order": order, "currency": "EUR", "note": f"step {position} of run {number}"},
                "result": {"ok": True, "total": chance.randrange(1000)},
                "duration_ms": chance.randrange(200),
            }
            for position, name in enumerate(names)
        ]
        text = "Refund processed. You will see it in three days." if chance.random() < 0.983 else "Something went wrong, sorry."
        made.append({"input": "I was charged twice", "text": text, "tool_calls": calls, "duration_ms": 1500})
    return made


def write_jsonl(path: Path, count: int, seed: int = 7) -> None:
    """The traces as a JSONL file, written in portions so that a million of them fit."""
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, count, 10_000):
            for trace in traces(min(10_000, count - start), seed + start):
                file.write(json.dumps(trace, separators=(",", ":")) + "\n")
