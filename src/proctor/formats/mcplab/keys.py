"""Which keys an MCPLab file may have, and the problems of others.

MCPLab's loader passes over a top-level key that it does not know. Here it is a warning, and an error where it is most likely a slip:
where a known key is near, or where it is a key of something else, so that its value would be ignored. Keys that begin
with `x-` are free.
"""

from __future__ import annotations

from typing import Final

from proctor.formats.text.located import Located, Reading

CONFIG_KEYS: Final = ("name", "description", "agents", "scenarios", "servers", "run_defaults", "snapshot_eval")
SCENARIO_KEYS: Final = (
    "id",
    "name",
    "description",
    "tags",
    "prompt",
    "mcp_servers",
    "servers",
    "attachments",
    "eval",
    "extract",
    "agent",
    "snapshot_eval",
)
REMOVED_KEYS: Final = {
    "server_refs": "no longer supported: write {ref: <id>} entries in 'mcp_servers' of the scenario",
    "agent_refs": "no longer supported: write {ref: <id>} entries in 'agents'",
    "scenario_refs": "no longer supported: write {ref: <id>} entries in 'scenarios'",
}
_OF_A_SCENARIO: Final = ("prompt", "mcp_servers", "attachments", "eval", "extract")
EVAL_KEYS: Final = (
    "tool_constraints",
    "tool_sequence",
    "tool_input_assertions",
    "response_assertions",
    "agent_assertions",
    "agent_context",
)
_MISPLACED: Final = {
    **{key: f"write {key!r} in the scenarios it is meant for" for key in _OF_A_SCENARIO},
    **{key: f"write {key!r} under 'eval' of a scenario" for key in EVAL_KEYS},
    "selected_agents": "write it under 'run_defaults'",
}


def check_config_keys(document: Located, reading: Reading) -> None:
    """Report the top-level keys of a config that are ignored."""
    reading.check_record_keys(document, CONFIG_KEYS, "an evaluation config", {**_MISPLACED, **REMOVED_KEYS})


def warn_of_snapshots(node: Located, reading: Reading) -> None:
    """Warn that `snapshot_eval` has no effect."""
    if node.get("snapshot_eval") is not None:
        message = "'snapshot_eval' was removed from MCPLab and has no effect"
        hint = "`proctor compare BASE CANDIDATE` shows what changed between two runs"
        reading.warn_at_key(node, "snapshot_eval", message, hint=hint, code="legacy_form")
