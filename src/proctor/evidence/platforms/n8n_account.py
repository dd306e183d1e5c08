"""What an n8n execution must be made of, so that what is not in it is known not to have been.

An execution shows its tools by its own contract: no run of a tool node and no intermediate step means that no tool was called. That holds
as long as every run is of a kind we know (its connection types), belongs to a node of the workflow, and has no member that n8n does
not write. Everything under `json` belongs to the nodes; only an agent's own output may tell of calls, in its `intermediateSteps`.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.workflow import is_ai
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.members import (
    describe_unknown_member,
    holds_more,
    list_unknown_members,
    may_hold_call,
    split_words,
)
from proctor.evidence.values.access import SHOWN, dict_or_empty, list_of
from proctor.evidence.values.near_miss import is_misspelt
from proctor.model.account import Part
from proctor.model.evidence import Json
from proctor.model.show import kind_of, shorten, show

_EXECUTION = split_words(
    "id finished mode retryOf retrySuccessId status createdAt startedAt stoppedAt deletedAt workflowId waitTill storedAt data workflowData"
    " customData annotation case workflowName workflowVersionId jsonSizeBytes nextCursor"
)
_RECORD = split_words(
    "startTime executionIndex source hints executionTime executionStatus data inputOverride metadata error redaction"
    " usedDynamicCredentials attemptedDynamicCredentials"
)
_SOURCE = split_words("previousNode previousNodeOutput previousNodeRun")
_ITEM = split_words("json binary pairedItem error metadata evaluationData redaction sendMessage index")
_WORKFLOW = split_words(
    "id name active activeVersionId activeVersion isArchived createdAt updatedAt nodes connections settings staticData pinData meta tags"
    " versionId versionCounter triggerCount shared description parentFolder homeProject sharedWithProjects nodeGroups scopes"
)
_DEFINITION = split_words(
    "parameters id name type typeVersion position credentials disabled notes notesInFlow continueOnFail onError retryOnFail maxTries"
    " waitBetweenTries alwaysOutputData executeOnce webhookId color issues extendsCredential rewireOutputLogTo forceCustomOperation"
)
_CONNECTIONS = split_words(
    "main ai_tool ai_languageModel ai_memory ai_agent ai_chain ai_document ai_embedding ai_outputParser ai_retriever ai_reranker"
    " ai_textSplitter ai_vectorStore"
)
_STATUSES = split_words("success error canceled crashed new running unknown waiting")
_OPEN = split_words("new running unknown waiting")
"""Of a run that is said to be one of these nobody knows how it ended."""
_AGENT_OUTPUT = split_words("output text intermediateSteps message content response usage tokenUsage")
_STEP_NAMES = ("tool", "toolName", "tool_name", "toolInput", "toolCallId", "function")
_EVERY: tuple[Part, ...] = ("tool_calls", "tool_arguments", "tool_results", "answer", "input", "usage", "nodes")


def mark_execution(document: dict[str, Any], runs: dict[str, Any], path: str, unknowns: Unknowns) -> None:
    """Note everything in an execution that is not understood and could be a call, a node or the answer."""
    workflow = document.get("workflowData")
    # Only where the workflow is missing can an unknown member be the workflow under another name.
    if not isinstance(workflow, dict):
        for key in list_unknown_members(document, _EXECUTION):
            if holds_more(document[key]):
                _mark(describe_unknown_member(path, key, _EXECUTION, advice=""), unknowns)
        if workflow is not None:
            _mark(f"workflowData is {kind_of(workflow)} instead of an object", unknowns)
    _mark_workflow(dict_or_empty(workflow), runs, unknowns)
    for name, records in runs.items():
        at = f"runData.{shorten(name, 60)}"
        if not isinstance(records, list):
            _mark(f"{at} is {kind_of(records)} instead of a list of runs", unknowns)
        for index, record in enumerate(list_of(records)):
            if not isinstance(record, dict):
                _mark(f"{at}[{index}] is {kind_of(record)} instead of a run", unknowns)
                continue
            _mark_record(record, f"{at}[{index}]", unknowns)
            _mark_kind(name, record, dict_or_empty(workflow), f"{at}[{index}]", unknowns)


def mark_agent_output(node_type: str | None, items: list[Json], name: str, unknowns: Unknowns) -> None:
    """Note what the output of an agent may tell of calls elsewhere than in its intermediate steps."""
    if node_type is not None and not is_ai(node_type):
        return
    for item in items:
        for key, value in dict_or_empty(item).items():
            if key not in _AGENT_OUTPUT and (may_hold_call(key, value, _STEP_NAMES) or is_misspelt(key, ("intermediateSteps",))):
                why = f"{show(shorten(key, 60))} in the output of {show(name, SHOWN)} may tell of tool calls and is not understood"
                unknowns.mark("tool_calls", why)
        steps = dict_or_empty(item).get("intermediateSteps")
        if steps is not None and not isinstance(steps, list):
            unknowns.mark("tool_calls", f"intermediateSteps of {show(name, SHOWN)} is {kind_of(steps)} instead of a list")


def _mark(why: str, unknowns: Unknowns) -> None:
    unknowns.mark_parts(_EVERY, why)


def _mark_workflow(workflow: dict[str, Any], runs: dict[str, Any], unknowns: Unknowns) -> None:
    nodes, connections = workflow.get("nodes"), workflow.get("connections")
    if not isinstance(nodes, list) or not isinstance(connections, dict):
        for key in list_unknown_members(workflow, _WORKFLOW):
            if holds_more(workflow[key]):
                _mark(describe_unknown_member("workflowData", key, _WORKFLOW, advice=""), unknowns)
    for key, value, kind in (("nodes", nodes, list), ("connections", connections, dict)):
        if value is not None and not isinstance(value, kind):
            _mark(f"workflowData.{key} is {kind_of(value)}, which is not understood", unknowns)
    defined: set[str] = set()
    for index, node in enumerate(list_of(nodes)):
        name = dict_or_empty(node).get("name")
        if not isinstance(name, str):
            _mark(f"workflowData.nodes[{index}] has no name", unknowns)
        elif name in runs:
            defined.add(name)
            _mark_definition(node, f"workflowData.nodes[{index}]", unknowns)
    for name in runs:
        if isinstance(nodes, list) and name not in defined:
            _mark(f"{show(name, SHOWN)} ran and is no node of the workflow", unknowns)


def _mark_definition(node: dict[str, Any], path: str, unknowns: Unknowns) -> None:
    if not isinstance(node.get("type"), str):
        _mark(f"{path} has no type", unknowns)
    parameters = node.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        _mark(f"the parameters at {path} are {kind_of(parameters)} instead of an object", unknowns)
    for key in list_unknown_members(node, _DEFINITION):
        if parameters is None and holds_more(node[key]):
            _mark(describe_unknown_member(path, key, _DEFINITION, advice=""), unknowns)


def _mark_record(record: dict[str, Any], path: str, unknowns: Unknowns) -> None:
    for key in list_unknown_members(record, _RECORD):
        _mark(describe_unknown_member(path, key, _RECORD, advice=""), unknowns)
    status = record.get("executionStatus")
    if status is not None and not (isinstance(status, str) and status in _STATUSES):
        _mark(f"the status {show(status, SHOWN)} at {path} is not understood", unknowns)
    elif status in _OPEN:
        unknowns.mark("tool_results", f"the run at {path} did not end: its status is {show(status)}")
    for key in ("data", "inputOverride"):
        _mark_items(record.get(key), f"{path}.{key}", unknowns)
    sources = record.get("source")
    if sources is not None and not isinstance(sources, list):
        _mark(f"the source at {path} is {kind_of(sources)} instead of a list", unknowns)
    if any(not _is_source(source) for source in list_of(sources)):
        _mark(f"the source at {path} is not understood", unknowns)
    for key in ("executionIndex", "startTime"):
        if record.get(key) is not None and not isinstance(record[key], (int, float)):
            _mark(f"{key} at {path} is {kind_of(record[key])} instead of a number", unknowns)


def _is_source(value: Json) -> bool:
    """Return whether this says which run a run came from, or that it came from none."""
    if not value:
        return value is None or isinstance(value, dict)
    return (
        isinstance(value, dict)
        and isinstance(value.get("previousNode"), str)
        and isinstance(value.get("previousNodeRun") or 0, int)
        and not list_unknown_members(value, _SOURCE)
    )


def _mark_items(data: Json, path: str, unknowns: Unknowns) -> None:
    """Note what is not of the form `{<connection type>: [[{json: ...}]]}`."""
    if data is not None and not isinstance(data, dict):
        _mark(f"{path} is {kind_of(data)} instead of an object", unknowns)
    for kind, outputs in dict_or_empty(data).items():
        if kind not in _CONNECTIONS:
            _mark(describe_unknown_member(path, kind, _CONNECTIONS, advice=""), unknowns)
        if outputs is not None and not isinstance(outputs, list):
            _mark(f"{path}.{kind} is {kind_of(outputs)} instead of a list", unknowns)
        for branch in list_of(outputs):
            if branch is not None and not isinstance(branch, list):
                _mark(f"an output at {path}.{kind} is {kind_of(branch)} instead of a list of items", unknowns)
            for item in list_of(branch):
                if not isinstance(item, dict) or "json" not in item or list_unknown_members(item, _ITEM):
                    _mark(f"an item at {path}.{kind} is not understood", unknowns)


def _mark_kind(name: str, record: dict[str, Any], workflow: dict[str, Any], path: str, unknowns: Unknowns) -> None:
    """Note a run that could be one of a tool, or could not: one without data is told by how its node is wired."""
    # Data stand under their connection type, which says what the node is.
    if dict_or_empty(record.get("data")) or dict_or_empty(record.get("inputOverride")):
        return
    connections = workflow.get("connections")
    wired = dict_or_empty(connections).get(name)
    if wired is not None and (not isinstance(wired, dict) or not _CONNECTIONS.issuperset(wired)):
        _mark(f"how {show(name, SHOWN)} is wired is not understood", unknowns)
    if wired is None and (not isinstance(connections, dict) or _is_tool_type(name, workflow)):
        _mark(f"{path} has no data, and nothing says whether it is the run of a tool", unknowns)


def _is_tool_type(name: str, workflow: dict[str, Any]) -> bool:
    node_type = next((node.get("type") for node in list_of(workflow.get("nodes")) if dict_or_empty(node).get("name") == name), None)
    own = str(node_type).rsplit(".", 1)[-1]
    return own.startswith("tool") or own.endswith("Tool")
