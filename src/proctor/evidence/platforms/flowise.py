"""Predictions of Flowise: the answer of a chatflow or an agentflow, as its API returns it.

A chatflow lists `usedTools`; an agentflow lists what each node did in `agentFlowExecutedData`, older multi-agent flows in
`agentReasoning`. Nodes are known by their label, tools are nested in the node that used them. Tokens are summed over the nodes.
`json_match` and the like read the structured answer (`json`), else the JSON in the text, else the prediction itself.

A prediction lists its tools by its own contract: none listed means none used.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.calls import read_known_arguments, says_error
from proctor.evidence.shared.usage import HOLDERS, add_usage, find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import find_failure, read_status
from proctor.evidence.unknowns.fields import Fields
from proctor.evidence.unknowns.markers import check_markers
from proctor.evidence.unknowns.unrecognised import check_object, list_unrecognised
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text, parse_json
from proctor.evidence.values.times import write_ms_as_iso
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, Json, Node, ToolCall
from proctor.model.numbers import is_number
from proctor.model.show import kind_of

_IDS = ("chatId", "chatMessageId", "sessionId", "executionId", "memoryType")
LISTS = ("agentFlowExecutedData", "usedTools", "agentReasoning")
_NODES: tuple[Part, ...] = ("nodes", *CALL_PARTS, "usage")
_PREDICTION: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys((*_IDS, "case", *HOLDERS), None),
    **dict.fromkeys(("text", "json"), "answer"),
    **dict.fromkeys(("agentFlowExecutedData", "agentReasoning"), _NODES),
    "usedTools": "tool_calls",
    "question": "input",
}
_STEP: dict[str, Part | tuple[Part, ...] | None] = {**dict.fromkeys(("nodeId", "nodeLabel", "status"), "nodes"), "data": _NODES}
_DATA: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys(("id", "state", "chatHistory"), None),
    **dict.fromkeys(("name", "input", "error"), "nodes"),
    "output": _NODES,
}
_OUTPUT: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys(("content", "timeMetadata", "availableTools", "calledTools", "toolCalls"), None),
    **dict.fromkeys(HOLDERS, "usage"),
    "usedTools": "tool_calls",
}
_REASONING: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys(("agentName", "nodeName", "nodeId", "messages"), "nodes"),
    "usedTools": "tool_calls",
}
_USED: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys(("toolOutput", "error"), "tool_results"),
    "tool": "tool_calls",
    "toolInput": "tool_arguments",
}


def sniff(document: Json) -> bool:
    """Return whether this is a prediction."""
    if not isinstance(document, dict) or not ("text" in document or "json" in document or "agentFlowExecutedData" in document):
        return False
    if isinstance(document.get("agentFlowExecutedData"), list):
        return True
    # Any chat service may answer `text` and a chat id; only Flowise adds one of these.
    named = "chatId" in document or "chatMessageId" in document
    return named and any(key in document for key in ("question", "sessionId", *LISTS))


def read(document: Json) -> list[Evidence]:
    """Return the evidence of one prediction."""
    entry, unknowns = dict_or_empty(document), Unknowns()
    root = Fields(entry, "$", unknowns)
    steps = list(root.take_objects("agentFlowExecutedData", parts=_NODES))
    # Older flows list their nodes elsewhere. Read only where the newer list is absent, so that no node counts twice.
    nodes = [_read_node(step) for step in steps] or [
        _read_reasoning_node(step) for step in root.take_objects("agentReasoning", parts=_NODES)
    ]
    # The root is read only if no node lists a tool, or a call that both list would count twice.
    calls = tuple(call for node in nodes for call in node.tool_calls) or _read_calls(root, None)
    text = root.take_text("text", parts=("answer",))
    answer, spoken = entry.get("json"), parse_json(text)
    structured = answer if answer is not None else spoken if isinstance(spoken, (dict, list)) else None
    has_answer = text is not None or answer is not None
    check_object(entry, _PREDICTION, "$", unknowns, listed={call.name for call in calls}, has_answer=has_answer)
    rest = list_unrecognised(entry, _PREDICTION)
    check_markers(entry, rest, calls, "$", unknowns)
    # A flow that answered in spite of a failed node did finish; the failure stays with the node.
    failed = next((as_text(node.error) for node in nodes if node.status == "error"), None) if text is None else None
    return [
        Evidence(
            case=text_or_none(entry.get("case")),
            input=entry.get("question"),
            text=text if text is not None else as_text(answer),
            body=structured if structured is not None else entry,
            tool_calls=calls,
            nodes=tuple(nodes),
            usage=find_usage(entry, unknowns) or add_usage(node.usage for node in nodes),
            available_tools=_list_offered_tools(steps),
            now=next((start for step in steps if (start := _find_start(step)) is not None), None),
            error=failed or find_failure({key: entry[key] for key in rest}),
            account=unknowns.close_account("Flowise prediction"),
            metadata={key: entry[key] for key in _IDS if entry.get(key) is not None},
        )
    ]


def _read_node(step: Fields) -> Node:
    unknowns, name = step.unknowns, _read_name(step, "nodeLabel", "nodeId")
    data = step.take_object("data", parts=_NODES) or Fields({}, step.at, unknowns)
    used = Fields(dict_or_empty(data.value.get("output")), f"{data.at}.output", unknowns)
    check_object(step.value, _STEP, step.at, unknowns)
    check_object(data.value, _DATA, data.at, unknowns)
    check_object(used.value, _OUTPUT, used.at, unknowns)
    output, error = data.value.get("output"), data.value.get("error")
    if output is not None and not isinstance(output, dict):
        data.mark_wrong_type("output", "an object", output, _NODES)
    duration = dict_or_empty(used.value.get("timeMetadata")).get("delta")
    failed = read_status(step.value.get("status")) == "failed" or says_error(error)
    calls = _read_calls(used, name)
    _check_requested(used, calls)
    return Node(
        name=name,
        type=text_or_none(data.value.get("name")),
        status="error" if failed else "success",
        input=data.value.get("input"),
        output=output,
        tool_calls=calls,
        duration_ms=duration if is_number(duration) else None,
        error=(error or "the node failed") if failed else None,
        usage=find_usage(output, unknowns),
    )


def _read_name(step: Fields, *keys: str) -> str:
    name = find_first(step.value, *keys)
    if not isinstance(name, str):
        step.mark(("nodes", "tool_calls"), " has no name")
    return as_text(name) or ""


def _check_requested(output: Fields, calls: tuple[ToolCall, ...]) -> None:
    """Mark the calls if the model requested a tool that is not among those used."""
    used = {call.name for call in calls}
    for key in ("calledTools", "toolCalls"):
        for requested in list_of(output.value.get(key)):
            if text_or_none(dict_or_empty(requested).get("name")) not in used:
                output.mark(("tool_calls",), f".{key} names a tool that is not among those used")


def _read_reasoning_node(step: Fields) -> Node:
    name = _read_name(step, "agentName", "nodeName", "nodeId")
    messages = step.take_list("messages", parts=("nodes",))
    texts = [message for message in messages if isinstance(message, str)]
    if len(texts) < len(messages):
        step.mark(("nodes",), ".messages: expected a list of texts")
    check_object(step.value, _REASONING, step.at, step.unknowns)
    return Node(
        name=name,
        type=text_or_none(step.value.get("nodeName")),
        output={"text": texts[-1]} if texts else None,
        tool_calls=_read_calls(step, name),
    )


def _read_calls(holder: Fields, node: str | None) -> tuple[ToolCall, ...]:
    """Read `usedTools`. Flowise leaves nulls in these lists where an agent answered without a tool."""
    calls: list[ToolCall] = []
    for used in holder.take_objects("usedTools", parts=("tool_calls",)):
        tool, given = used.value.get("tool"), used.value.get("toolInput")
        if not isinstance(tool, str):
            used.mark(("tool_calls",), ".tool: expected text, found " + kind_of(tool))
            continue
        check_object(used.value, _USED, used.at, used.unknowns)
        arguments = read_known_arguments(given, used.at, used.unknowns)
        for key in list_unrecognised(used.value, _USED) if given is None else ():
            if used.value[key] and isinstance(decode_container(used.value[key]), dict):
                used.unknowns.mark_unrecognised(("tool_arguments",), f"{used.at} has no toolInput; {key!r} may hold the arguments")
                arguments = None
        error = used.value.get("error")
        calls.append(
            ToolCall(
                name=tool, arguments=arguments, result=used.value.get("toolOutput"), error=error if says_error(error) else None, node=node
            )
        )
    return tuple(calls)


def _find_output(step: Fields) -> dict[str, Any]:
    return dict_or_empty(dict_or_empty(step.value.get("data")).get("output"))


def _list_offered_tools(steps: list[Fields]) -> tuple[str, ...] | None:
    """Return the names of the tools the agents had, or None for chatflows, which do not record them."""
    tools = [dict_or_empty(tool).get("name") for step in steps for tool in list_of(_find_output(step).get("availableTools"))]
    return tuple(dict.fromkeys(name for name in tools if isinstance(name, str))) or None


def _find_start(step: Fields) -> str | None:
    return write_ms_as_iso(dict_or_empty(_find_output(step).get("timeMetadata")).get("start"))
