"""The three comparisons written by hand in a hurry: the yardstick of the throughput benchmark."""

from __future__ import annotations

from typing import Any


def check_all(traces: list[dict[str, Any]]) -> list[tuple[bool, bool, bool]]:
    """For each parsed trace: called with arguments, called in order, answer contains."""
    verdicts: list[tuple[bool, bool, bool]] = []
    for trace in traces:
        calls = trace["tool_calls"]
        called = False
        for call in calls:
            if call["name"] == "refund":
                arguments = call["arguments"]
                if arguments.get("order") == 17 and arguments.get("currency") == "EUR":
                    called = True
                    break
        wanted = ("lookup_order", "refund", "send_mail")
        position = 0
        for call in calls:
            if call["name"] == wanted[position]:
                position += 1
                if position == 3:
                    break
        contains = "refund processed" in trace["text"].lower()
        verdicts.append((called, position == 3, contains))
    return verdicts
