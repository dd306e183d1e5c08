"""Says after a small run that passed what was not seen of the agent: a first pass must not be taken for more than it is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from proctor.model.evidence import Evidence
from proctor.model.run import RunEntry

_MOST = 3
"""Attempts of a first run; whoever has more cases knows by then what their agent tells."""


def tell_unrecorded(entries: Mapping[tuple[str, int], RunEntry], target: str | None) -> str | None:
    """Return a line about tool calls that nothing tells of; None for every other run."""
    if not 0 < len(entries) <= _MOST or any(entry.outcome != "pass" for entry in entries.values()):
        return None
    seen = [entry.evidence for entry in entries.values()]
    if not all(evidence is not None and evidence.error is None and not _tells_calls(evidence) for evidence in seen):
        return None
    asked = next((evidence.input for evidence in seen if evidence is not None and isinstance(evidence.input, str)), None)
    if asked is None or len(asked) > 200 or "\n" in asked:
        # The line is there to be copied into a shell; a long message, or one of several lines, would spoil it.
        asked = "MESSAGE"
    flag = f" --target {shlex.quote(target)}" if target is not None else ""
    return f"which tools were called is not recorded; how the agent can tell it: proctor try {shlex.quote(asked)}{flag}"


def _tells_calls(evidence: Evidence) -> bool:
    return evidence.tool_calls is not None or any(turn.tool_calls is not None for turn in evidence.turns or ())
