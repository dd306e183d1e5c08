"""Predictions of Flowise: the answer of a chatflow or an agentflow, as its API returns it.

A chatflow lists `usedTools`; an agentflow lists what each node did in `agentFlowExecutedData`, older multi-agent flows in `agentReasoning`.
The body is the structured answer (`json`), else the JSON in the text, else the prediction. No tool listed means that none was used.
"""

from __future__ import annotations

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
from proctor.model.show import show

_IDS = ("chatId", "chatMessageId", "sessionId", "executionId", "memoryType")
LISTS = ("agentFlowExecutedData", "usedTools", "agentReasoning")
_NODES: tuple[Part, ...] = ("nodes", *CALL_PARTS, "usage")
_Table = dict[str, Part | tuple[Part, ...] | None]
_PREDICTION: _Table = {
    **dict.fromkeys((*_IDS, "case", *HOLDERS), None),
    **dict.fromkeys(("text", "json"), "answer"),
    **dict.fromkeys(("agentFlowExecutedData", "agentReasoning"), _NODES),
    "usedTools": "tool_calls",
    "question": "input",
}
_STEP: _Table = {**dict.fromkeys(("nodeId", "nodeLabel", "status"), "nodes"), "data": _NODES}
_DATA: _Table = {
    **dict.fromkeys(("id", "state", "chatHistory"), None),
    **dict.fromkeys(("name", "input", "error"), "nodes"),
    "output": _NODES,
}
_OUTPUT: _Table = {
    **dict.fromkeys(("content", "timeMetadata", "availableTools", "calledTools", "toolCalls"), None),
    **dict.fromkeys(HOLDERS, "usage"),
    "usedTools": "tool_calls",
}
_REASONING: _Table = {**dict.fromkeys(("agentName", "nodeName", "nodeId", "messages"), "nodes"), "usedTools": "tool_calls"}
_USED: _Table = {"tool": "tool_calls", "toolInput": "tool_arguments", **dict.fromkeys(("toolOutput", "error"), "tool_results")}


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
    root = Fields(entry, "$", unknowns)
    steps = list(root.take_objects("agentFlowExecutedData", parts=_NODES))
    # Older flows list their nodes elsewhere. Read only where the newer list is absent, so that no node counts twice.
    nodes = list(map(_read_node, steps)) or list(map(_read_reasoning_node, root.take_objects("agentReasoning", parts=_NODES)))
    # The root is read only if no node lists a tool, or a call that both list would count twice.
    calls = tuple(call for node in nodes for call in node.tool_calls) or _read_calls(root, None)
    text = root.take_text("text", parts=("answer",))
    answer, spoken = entry.get("json"), parse_json(text)
    structured = answer if answer is not None else spoken if isinstance(spoken, (dict, list)) else entry
    has_answer = text is not None or answer is not None
    check_object(entry, _PREDICTION, "$", unknowns, listed={call.name for call in calls}, has_answer=has_answer)
    rest = list_unrecognised(entry, _PREDICTION)
    outputs = [dict_or_empty(dict_or_empty(step.value.get("data")).get("output")) for step in steps]
    starts = [dict_or_empty(output.get("timeMetadata")).get("start") for output in outputs]
    offered = [dict_or_empty(tool).get("name") for output in outputs for tool in list_of(output.get("availableTools"))]
    check_markers(entry, rest, calls, "$", unknowns)
    # A flow that answered after a failed node did finish; the failure stays with the node.
    failing = nodes if text is None else nodes[-1:]
    failed = next((as_text(node.error) for node in failing if node.status == "error"), None)
    if steps and (read_status(word := steps[-1].value.get("status")) == "running" or word == "STOPPED"):
        steps[-1].mark((*CALL_PARTS, "answer"), f".status: {show(word, 40)}, so the flow was not over")
    return [
        Evidence(
            case=text_or_none(entry.get("case")),
            input=entry.get("question"),
            text=text if text is not None else as_text(answer),
            body=structured,
            tool_calls=calls,
            nodes=tuple(nodes),
            usage=find_usage(entry, unknowns) or add_usage(node.usage for node in nodes),
            # Chatflows do not record them.
            available_tools=tuple(dict.fromkeys(name for name in offered if isinstance(name, str))) or None,
            now=next(filter(None, map(write_ms_as_iso, starts)), None),
            error=failed or find_failure({key: entry[key] for key in rest}),
            account=unknowns.close_account("Flowise prediction"),
            metadata={key: entry[key] for key in _IDS if entry.get(key) is not None},
        )
    ]


def _read_node(step: Fields) -> Node:
    unknowns, name = step.unknowns, _read_name(step, "nodeLabel", "nodeId")
    data = step.take_object("data", parts=_NODES) or Fields({}, step.at, unknowns)
    used = data.take_object("output", parts=_NODES) or Fields({}, f"{data.at}.output", unknowns)
    for fields, table in ((step, _STEP), (data, _DATA), (used, _OUTPUT)):
        check_object(fields.value, table, fields.at, unknowns)
    output, error = data.value.get("output"), data.value.get("error")
    duration = dict_or_empty(used.value.get("timeMetadata")).get("delta")
    failed = read_status(step.value.get("status")) == "failed" or says_error(error)
    calls = _read_calls(used, name)
    requested = [tool for key in ("calledTools", "toolCalls") for tool in list_of(used.value.get(key))]
    if not {text_or_none(dict_or_empty(tool).get("name")) for tool in requested} <= {call.name for call in calls}:
        used.mark(("tool_calls",), " names a requested tool that is not among those used")
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
            used.mark_wrong_type("tool", "text", tool, ("tool_calls",))
            continue
        check_object(used.value, _USED, used.at, used.unknowns)
        arguments = read_known_arguments(given, used.at, used.unknowns)
        for key in list_unrecognised(used.value, _USED) if given is None else ():
            if used.value[key] and isinstance(decode_container(used.value[key]), dict):
                used.unknowns.mark_unrecognised(("tool_arguments",), f"{used.at} has no toolInput; {key!r} may hold the arguments")
                arguments = None
        error = used.value.get("error") if says_error(used.value.get("error")) else None
        calls.append(ToolCall(name=tool, arguments=arguments, result=used.value.get("toolOutput"), error=error, node=node))
    return tuple(calls)
