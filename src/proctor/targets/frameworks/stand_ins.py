"""Texts that frameworks put in place of an answer when they stop an agent: they say nothing of what the agent would have answered.

Such a text is known by its words alone, so it is known wherever it stands: in a message, in the output of a run, or returned bare.

Tried with langchain 1.4, langgraph 1.2, smolagents 1.26: `tests/frameworks/returns.yaml`.
"""

from __future__ import annotations

import re

from proctor.model.evidence import Evidence
from proctor.targets.frameworks.found import EVERYTHING
from proctor.targets.lost_messages import add_doubt

_LONGEST = 400
"""Characters of a text that can be a stand-in; an answer that quotes one is longer."""
_STAND_INS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Sorry, need more steps to process this request\.$"), "the graph was stopped by its limit of steps (`recursion_limit`)"),
    (re.compile(r"Agent stopped due to .{1,40}$"), "the executor stopped the agent (`max_iterations`)"),
    (re.compile(r"Model call limits exceeded: (thread|run) limit \("), "the agent was stopped by its limit of model calls"),
    (re.compile(r".{1,80} call limit reached: (thread|run) limit exceeded \("), "the agent was stopped by its limit of tool calls"),
    (re.compile(r"Error in generating final LLM output: "), "the agent was stopped at `max_steps`, and its model gave no last answer"),
)


def mark_stand_in(evidence: Evidence) -> Evidence:
    """Return evidence in which answer and calls are unknown where its text is none of the agent's."""
    text = (evidence.text or "").strip() if len(evidence.text or "") <= _LONGEST else ""
    why = next((why for words, why in _STAND_INS if words.match(text)), None)
    return evidence if why is None else add_doubt(evidence, EVERYTHING, f"{why}, and says so in place of an answer", is_cause=True)
