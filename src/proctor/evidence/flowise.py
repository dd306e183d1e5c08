"""Predictions of Flowise: the answer of a chatflow or an agentflow, as its API returns it.

A chatflow lists `usedTools`; an agentflow lists what each node did in `agentFlowExecutedData`, older multi-agent flows in
`agentReasoning`. Nodes are known by their label, tools are nested in the node that used them. Tokens are summed over the nodes.
`json_match` and the like read the structured answer (`json`), else the JSON in the text, else the prediction itself.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.calls import read_arguments, says_error
from proctor.evidence.shape import dict_of, first_of, list_of, text_or_none
from proctor.evidence.text import as_text, json_in
from proctor.evidence.times import iso_of_ms
from proctor.evidence.usage import add_usage, usage_in
from proctor.model.evidence import Evidence, Json, Node, ToolCall

_IDS = ("chatId", "chatMessageId", "sessionId", "executionId", "memoryType")
_LISTS = ("agentFlowExecutedData", "usedTools", "agentReasoning")
# A node that waits for a person (`STOPPED`) has run; one that was cut off has failed.
_FAILED = ("ERROR", "TERMINATED", "TIMEOUT")


def sniff(document: Json) -> bool:
    """Whether this is a prediction."""
    if not isinstance(document, dict) or not ("text" in document or "json" in document or "agentFlowExecutedData" in document):
        return False
    if isinstance(document.get("agentFlowExecutedData"), list):
        return True
    named = "chatId" in document or "chatMessageId" in document
    return named and any(key in document for key in ("question", "sessionId", *_LISTS))


def read(document: Json) -> list[Evidence]:
    """The prediction as evidence."""
    entry = dict_of(document)
    nodes = [_node(dict_of(step)) for step in list_of(entry.get("agentFlowExecutedData"))]
    nodes = nodes or [_reasoning_node(dict_of(step)) for step in list_of(entry.get("agentReasoning")) if isinstance(step, dict)]
    calls = tuple(call for node in nodes for call in node.tool_calls) or _calls(entry.get("usedTools"), None)
    text = text_or_none(entry.get("text"))
    answer = entry.get("json")
    spoken = json_in(text)
    structured = answer if answer is not None else spoken if isinstance(spoken, (dict, list)) else None
    return [
        Evidence(
            case=text_or_none(entry.get("case")),
            input=entry.get("question"),
            text=text if text is not None else as_text(answer),
            body=structured if structured is not None else entry,
            tool_calls=calls,
            nodes=tuple(nodes),
            usage=usage_in(entry) or add_usage(node.usage for node in nodes),
            available_tools=_offered(entry),
            now=_started(entry),
            error=next((as_text(node.error) for node in nodes if node.status == "error"), None) if text is None else None,
            metadata={key: entry[key] for key in _IDS if entry.get(key) is not None},
        )
    ]


def _node(step: dict[str, Any]) -> Node:
    data = dict_of(step.get("data"))
    output, name = data.get("output"), as_text(first_of(step, "nodeLabel", "nodeId")) or ""
    duration = dict_of(dict_of(output).get("timeMetadata")).get("delta")
    failed = step.get("status") in _FAILED or says_error(data.get("error"))
    return Node(
        name=name,
        type=text_or_none(data.get("name")),
        status="error" if failed else "success",
        input=data.get("input"),
        output=output,
        tool_calls=_calls(first_of(dict_of(output), "usedTools"), name),
        duration_ms=duration if isinstance(duration, (int, float)) and not isinstance(duration, bool) else None,
        error=(data.get("error") or "the node failed") if failed else None,
        usage=usage_in(output),
    )


def _reasoning_node(step: dict[str, Any]) -> Node:
    name = as_text(first_of(step, "agentName", "nodeName", "nodeId")) or ""
    messages = [message for message in list_of(step.get("messages")) if isinstance(message, str)]
    return Node(
        name=name,
        type=text_or_none(step.get("nodeName")),
        output={"text": messages[-1]} if messages else None,
        tool_calls=_calls(step.get("usedTools"), name),
    )


def _calls(value: Json, node: str | None) -> tuple[ToolCall, ...]:
    # Flowise leaves nulls in these lists where an agent answered without a tool.
    used = [entry for entry in list_of(value) if isinstance(entry, dict) and isinstance(entry.get("tool"), str)]
    return tuple(
        ToolCall(
            name=entry["tool"],
            arguments=read_arguments(entry.get("toolInput")),
            result=entry.get("toolOutput"),
            error=entry.get("error") if says_error(entry.get("error")) else None,
            node=node,
        )
        for entry in used
    )


def _offered(entry: dict[str, Any]) -> tuple[str, ...] | None:
    """The tools the agents had; not recorded in chatflows."""
    outputs = [dict_of(dict_of(dict_of(step).get("data")).get("output")) for step in list_of(entry.get("agentFlowExecutedData"))]
    tools = [dict_of(tool).get("name") for output in outputs for tool in list_of(output.get("availableTools"))]
    return tuple(dict.fromkeys(name for name in tools if isinstance(name, str))) or None


def _started(entry: dict[str, Any]) -> str | None:
    for step in list_of(entry.get("agentFlowExecutedData")):
        output = dict_of(dict_of(dict_of(step).get("data")).get("output"))
        start = iso_of_ms(dict_of(output.get("timeMetadata")).get("start"))
        if start is not None:
            return start
    return None
