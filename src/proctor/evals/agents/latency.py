"""Where the time of prompts went: of one, and the spread over many."""

from __future__ import annotations

import msgspec


class LatencyBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one prompt went, in milliseconds."""

    e2e_ms: float = 0.0
    """From the prompt to its result."""
    llm_ms: float = 0.0
    """Waiting for the model."""
    mcp_ms: float = 0.0
    """Waiting for tools."""


class LatencyStats(msgspec.Struct, frozen=True, kw_only=True):
    """The spread of some times; all zeros where there are none."""

    min: float = 0.0
    max: float = 0.0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    count: int = 0


class LatencySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The spread of the three parts of time."""

    e2e: LatencyStats = LatencyStats()
    llm: LatencyStats = LatencyStats()
    mcp: LatencyStats = LatencyStats()
    per_iteration: tuple[LatencyBreakdown, ...] = ()
    """One entry per prompt, in order."""
