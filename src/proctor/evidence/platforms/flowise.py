"""Predictions of Flowise: `usedTools` of a chatflow, `agentFlowExecutedData` of an agentflow, `agentReasoning` of older ones."""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.calls import is_error, read_known_arguments
from proctor.evidence.shared.usage import HOLDERS, add_usage, find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import check_markers, mark_call, mark_removed
from proctor.evidence.unknowns.statuses import find_failure, read_status
from proctor.evidence.unknowns.unrecognised import FieldTable, check_object, list_objects, list_unrecognised
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none, write_ms_as_iso
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text, parse_json
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, Json, Node, ToolCall
from proctor.model.json_values import is_number
from proctor.model.show import show

_IDS = ("chatId", "chatMessageId", "sessionId", "executionId", "memoryType")
LISTS = ("agentFlowExecutedData", "usedTools", "agentReasoning")
_NODES: tuple[Part, ...] = ("nodes", *CALL_PARTS, "usage")
_PREDICTION: FieldTable = {
    **dict.fromkeys((*_IDS, "case", "question", *HOLDERS), None),
    **dict.fromkeys(("text", "json"), "answer"),
    **dict.fromkeys(("agentFlowExecutedData", "agentReasoning"), _NODES),
    "usedTools": "tool_calls",
}
_NODE: FieldTable = {
    **dict.fromkeys(split_words("nodeId nodeLabel status id state chatHistory name input error content timeMetadata availableTools"), None),
    **dict.fromkeys(("calledTools", "toolCalls", "agentName", "nodeName", "messages", *HOLDERS), None),
    **dict.fromkeys(("data", "output"), _NODES),
    "usedTools": "tool_calls",
}
"""The fields of a node, its data and its output."""
_USED: FieldTable = {"tool": "tool_calls", "toolInput": "tool_arguments", **dict.fromkeys(("toolOutput", "error"), "tool_results")}
_TYPES: dict[str, type] = {**dict.fromkeys((*LISTS, "messages"), list), **dict.fromkeys(("data", "output"), dict), "text": str}


def sniff(document: Json) -> bool:
    """Return whether this is a prediction."""
    entry = dict_or_empty(document)
    # Any chat service may answer `text` and a chat id; only Flowise adds one of these.
    is_chat = ("text" in entry or "json" in entry) and ("chatId" in entry or "chatMessageId" in entry)
    return isinstance(entry.get("agentFlowExecutedData"), list) or (
        is_chat and any(key in entry for key in ("question", "sessionId", *LISTS))
    )


def read(document: Json) -> list[Evidence]:
    """Return the evidence of one prediction."""
    entry, unknowns = dict_or_empty(document), Unknowns()
    steps = list_objects(entry.get("agentFlowExecutedData"), _NODES, "$.agentFlowExecutedData", unknowns)
    nodes = [_read_node(step, at, unknowns) for at, step in steps]
    # Older flows list their nodes elsewhere; read only if the newer list is missing, so that no node is counted twice.
    if not nodes:
        reasoning = list_objects(entry.get("agentReasoning"), _NODES, "$.agentReasoning", unknowns)
        nodes = [_read_reasoning_node(step, at, unknowns) for at, step in reasoning]
    # The root is read only if no node lists a tool; otherwise a call listed in both would be counted twice.
    calls = tuple(call for node in nodes for call in node.tool_calls) or _read_calls(entry, "$", None, unknowns)
    text, answer, unrecognised = text_or_none(entry.get("text")), entry.get("json"), list_unrecognised(entry, _PREDICTION)
    spoken, has_answer = parse_json(text), text is not None or answer is not None
    mark_removed(text, "answer", "the answer", unknowns)
    check_object(entry, _PREDICTION, "$", unknowns, _TYPES, listed={call.name for call in calls}, has_answer=has_answer)
    outputs = [dict_or_empty(dict_or_empty(step.get("data")).get("output")) for _, step in steps]
    starts = [dict_or_empty(output.get("timeMetadata")).get("start") for output in outputs]
    offered = [dict_or_empty(tool).get("name") for output in outputs for tool in list_of(output.get("availableTools"))]
    check_markers(entry, unrecognised, calls, "$", unknowns)
    # A flow that answered after a failed node finished; the failure stays with the node.
    failing = nodes if text is None else nodes[-1:]
    failed = next((as_text(node.error) for node in failing if node.status == "error"), None)
    if steps and (read_status(word := steps[-1][1].get("status")) == "running" or word == "STOPPED"):
        unknowns.mark_parts((*CALL_PARTS, "answer"), f"{steps[-1][0]}.status: {show(word, 40)}, so the flow was not over")
    return [
        Evidence(
            case=text_or_none(entry.get("case")),
            input=entry.get("question"),
            text=text if text is not None else as_text(answer),
            body=answer if answer is not None else spoken if isinstance(spoken, (dict, list)) else entry,
            tool_calls=calls,
            nodes=tuple(nodes),
            usage=find_usage(entry, unknowns) or add_usage(node.usage for node in nodes),
            # Chatflows do not record them.
            available_tools=tuple(dict.fromkeys(name for name in offered if isinstance(name, str))) or None,
            now=next(filter(None, map(write_ms_as_iso, starts)), None),
            error=failed or find_failure({key: entry[key] for key in unrecognised}),
            account=unknowns.close_account("Flowise prediction"),
            metadata={key: entry[key] for key in _IDS if entry.get(key) is not None},
        )
    ]


def _read_node(step: dict[str, Any], at: str, unknowns: Unknowns) -> Node:
    data = dict_or_empty(step.get("data"))
    output, error = data.get("output"), data.get("error")
    used = dict_or_empty(output)
    for fields, place in ((step, at), (data, f"{at}.data"), (used, f"{at}.data.output")):
        check_object(fields, _NODE, place, unknowns, _TYPES)
    name = _read_name(step, at, unknowns, "nodeLabel", "nodeId")
    duration = dict_or_empty(used.get("timeMetadata")).get("delta")
    failed = read_status(step.get("status")) == "failed" or is_error(error)
    calls = _read_calls(used, f"{at}.data.output", name, unknowns)
    requested = [tool for key in ("calledTools", "toolCalls") for tool in list_of(used.get(key))]
    if not {text_or_none(dict_or_empty(tool).get("name")) for tool in requested} <= {call.name for call in calls}:
        unknowns.mark("tool_calls", f"{at}.data.output names a requested tool that is not among those used")
    return Node(
        name=name,
        type=text_or_none(data.get("name")),
        status="error" if failed else "success",
        input=data.get("input"),
        output=output,
        tool_calls=calls,
        duration_ms=duration if is_number(duration) else None,
        error=(error or "the node failed") if failed else None,
        usage=find_usage(output, unknowns),
    )


def _read_name(step: dict[str, Any], at: str, unknowns: Unknowns, *keys: str) -> str:
    name = find_first(step, *keys)
    if not isinstance(name, str):
        unknowns.mark_parts(("nodes", "tool_calls"), f"{at} has no name")
    return as_text(name) or ""


def _read_reasoning_node(step: dict[str, Any], at: str, unknowns: Unknowns) -> Node:
    check_object(step, _NODE, at, unknowns, _TYPES)
    name, messages = _read_name(step, at, unknowns, "agentName", "nodeName", "nodeId"), list_of(step.get("messages"))
    texts = [message for message in messages if isinstance(message, str)]
    if len(texts) < len(messages):
        unknowns.mark("nodes", f"{at}.messages: expected a list of texts")
    output = {"text": texts[-1]} if texts else None
    return Node(name=name, type=text_or_none(step.get("nodeName")), output=output, tool_calls=_read_calls(step, at, name, unknowns))


def _read_calls(holder: dict[str, Any], at: str, node: str | None, unknowns: Unknowns) -> tuple[ToolCall, ...]:
    """Read `usedTools`. Flowise leaves nulls in these lists where an agent answered without a tool."""
    calls: list[ToolCall] = []
    for place, used in list_objects(holder.get("usedTools"), ("tool_calls",), f"{at}.usedTools", unknowns):
        tool, given = used.get("tool"), used.get("toolInput")
        if not isinstance(tool, str):
            unknowns.mark("tool_calls", f"{place} does not name its tool")
            continue
        check_object(used, _USED, place, unknowns, _TYPES)
        arguments = read_known_arguments(given, place, unknowns)
        mark_call(tool, None, used.get("toolOutput"), place, unknowns)
        for key in list_unrecognised(used, _USED) if given is None else ():
            if used[key] and isinstance(decode_container(used[key]), dict):
                unknowns.mark_unrecognised(("tool_arguments",), f"{place} has no toolInput; {key!r} may hold the arguments")
                arguments = None
        error = used.get("error") if is_error(used.get("error")) else None
        calls.append(ToolCall(name=tool, arguments=arguments, result=used.get("toolOutput"), error=error, node=node))
    return tuple(calls)
