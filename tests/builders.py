"""Evidence built by hand, in as few words as possible."""

from __future__ import annotations

from typing import Any

from proctor.model.evidence import Evidence, Node, ToolCall


def call(name: str, arguments: Any = None, **more: Any) -> ToolCall:
    """A tool call: `call("search", {"q": "x"})`."""
    return ToolCall(name=name, arguments={} if arguments is None else arguments, **more)


def node(name: str, output: Any = None, **more: Any) -> Node:
    """A step that ran: `node("AI Agent", {"text": "hi"}, tool_calls=(call("search"),))`."""
    return Node(name=name, output=output, **more)


def evidence(text: str | None = None, *calls: ToolCall | str, **more: Any) -> Evidence:
    """Evidence with tool calls recorded: `evidence("Done.", "search", call("pay", {"eur": 5}))`."""
    made = tuple(call(entry) if isinstance(entry, str) else entry for entry in calls)
    return Evidence(text=text, **{"tool_calls": made, **more})
