"""One turn of a conversation, seen as evidence of its own."""

from __future__ import annotations

from proctor.model.evidence import Evidence


def turn_evidence(evidence: Evidence, turn: int) -> Evidence | None:
    """What happened in turn `turn` (from 0); nothing when the evidence has no such turn.

    Evidence without turns is one exchange, so it is its own turn 0.
    """
    turns = evidence.turns
    if turns is None:
        return evidence if turn == 0 else None
    if turn >= len(turns):
        return None
    observed = turns[turn]
    recorded = any(one.tool_calls is not None or one.nodes is not None for one in turns)
    return Evidence(
        case=evidence.case,
        input=observed.input,
        text=observed.text,
        body=observed.body,
        # Among turns, one that records tools makes them observable in all.
        tool_calls=() if recorded and observed.tool_calls is None and observed.nodes is None else observed.tool_calls,
        nodes=observed.nodes,
        http_status=observed.http_status,
        duration_ms=observed.duration_ms,
        usage=observed.usage,
        context=evidence.context,
        available_tools=evidence.available_tools,
        renders=evidence.renders,
        now=evidence.now,
        timezone=evidence.timezone,
        state=evidence.state,
        model=evidence.model,
        account=evidence.account,
        metadata=observed.metadata or evidence.metadata,
    )
