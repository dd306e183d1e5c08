"""Which parts of the evidence are known.

Every reader adds an account to the evidence: which reader it was, and which parts are *unknown*, each with the reason. Any other part is
known: it was recorded, or there was none of it. An unknown part may still have content (two tool calls were recognised, a third was not),
which is correct but may be incomplete.

One rule decides what follows for verdicts: `checks/missing_evidence.py`.
"""

from typing import Literal

import msgspec

Part = Literal["tool_calls", "tool_arguments", "tool_results", "answer", "input", "turns", "usage", "nodes", "state"]

CALL_PARTS: tuple[Part, ...] = ("tool_calls", "tool_arguments", "tool_results")
"""The parts of evidence about tool calls."""
PARTS: tuple[Part, ...] = (*CALL_PARTS, "answer", "input", "turns", "usage", "nodes", "state")
"""Every part of evidence that an account speaks of, in the order reports show them."""

PART_NAMES: dict[Part, str] = {
    "tool_calls": "tool calls",
    "tool_arguments": "arguments of tool calls",
    "tool_results": "results of tool calls",
    "answer": "the answer",
    "input": "the input",
    "turns": "turns",
    "usage": "token usage",
    "nodes": "nodes",
    "state": "end state",
}
"""The name of a part in a sentence."""


UNSEEN_IN_A_PAGE = "the agent is a chat page in a browser, which is read from outside: no tool calls are recorded"
"""Why the tools of a browser agent are unknown (MCPLab)."""

PLAIN_READERS = frozenset(("", "plain", "mapping", "callable", "command", "http target"))
"""Readers of our own format: of a file, and of the result of a function, a program or an HTTP agent."""
MCPLAB_TRACE = "MCPLab trace"
"""The reader of MCPLab runs."""
NO_CALLS_IN_TURN = "records no tool calls, and other turns do"
"""Why the tools of a conversation are unknown: one of its turns was not seen. The other turns are not affected."""


UNKNOWN = ("unknown", "not known")
"""How results name an unknown part; those stored by earlier versions say `not known`."""


class PartState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The state of one part of an evidence."""

    status: Literal["recorded", "none", "unknown", "not known"]
    why: str | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether the part is unknown."""
        return self.status in UNKNOWN


class Known(msgspec.Struct, frozen=True, gc=False):
    """The state of an evidence, part by part, as results show it."""

    reader: str
    parts: dict[Part, PartState]
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Unrecognised fields that have no effect."""


class Account(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What is known about one evidence."""

    reader: str = ""
    """The reader, in words a user knows: `plain`, `n8n`, `otlp (OpenInference)`, `openai messages`, `http target`."""
    unknown: dict[Part, str] = {}
    """The parts that are unknown or incomplete, each with the reason."""
    notes: tuple[str, ...] = ()
    """Further notes of the reader: an unknown attribute, an ignored span."""
    seen_tools: tuple[str, ...] = ()
    """Tools of which every call is known although `tool_calls` is not: only calls of tools that a model's provider runs may be missing."""
    unplayed: tuple[str, ...] = ()
    """Scenario steps that did not happen, so the agent's reaction to them is unknown."""
    ignored: tuple[str, ...] = ()
    """Unrecognised fields that have no effect."""
    overridable: tuple[Part, ...] = ()
    """Unknown parts that the author can declare complete: something was not recognised, or model spans are missing."""
    unbuilt: tuple[Part, ...] = ()
    """Parts that were recorded but not built, because no check reads them."""
