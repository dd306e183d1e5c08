"""Predictions of Flowise: the answer of a chatflow or an agentflow, as its API returns it.

A chatflow lists `usedTools`; an agentflow lists what each node did in `agentFlowExecutedData`, older multi-agent flows in
`agentReasoning`. Nodes are known by their label, tools are nested in the node that used them. Tokens are summed over the nodes.
`json_match` and the like read the structured answer (`json`), else the JSON in the text, else the prediction itself.

A prediction shows its tools by its own contract: none listed means none used. A member that Flowise does not write and that could
list them makes them unknown.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.calls import read_arguments, says_error
from proctor.evidence.shared.usage import add_usage, find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.members import describe_unknown_member, holds_more, list_unknown_members, split_words
from proctor.evidence.values.access import SHOWN, dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.text import as_text, parse_json
from proctor.evidence.values.times import write_ms_as_iso
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json, Node, ToolCall
from proctor.model.numbers import is_number
from proctor.model.show import kind_of, show

_IDS = ("chatId", "chatMessageId", "sessionId", "executionId", "memoryType")
LISTS = ("agentFlowExecutedData", "usedTools", "agentReasoning")
# A node that waits for a person (`STOPPED`) has run; one that was cut off has failed.
_FAILED = ("ERROR", "TERMINATED", "TIMEOUT")
_STATUSES = (*_FAILED, "FINISHED", "STOPPED", "INPROGRESS")
_PREDICTION = frozenset((*_IDS, *LISTS, "text", "json", "question", "case")) | split_words(
    "sourceDocuments fileAnnotations artifacts action isStreamValid followUpPrompts flowVariables usage usageMetadata apiMessageId"
)
_STEP = split_words("nodeId nodeLabel data previousNodeIds status")
_DATA = split_words("id name input output state chatHistory error")
_OUTPUT = split_words(
    "content timeMetadata usageMetadata responseMetadata usedTools availableTools calledTools toolCalls sourceDocuments artifacts"
    " fileAnnotations reasonContent isWaitingForHumanInput additionalKwargs question form http conditions json usage tokenUsage"
)
_REASONING = split_words(
    "agentName nodeName nodeId messages usedTools sourceDocuments artifacts instructions next state fileAnnotations data nodeLabel"
)
_USED = split_words("tool toolInput toolOutput sourceDocuments artifacts error")
_TOOLS: tuple[Part, ...] = ("tool_calls", "nodes")
_ALL: tuple[Part, ...] = ("answer", "tool_calls", "nodes", "usage", "turns")


def sniff(document: Json) -> bool:
    """Return whether this is a prediction."""
    if not isinstance(document, dict) or not ("text" in document or "json" in document or "agentFlowExecutedData" in document):
        return False
    if isinstance(document.get("agentFlowExecutedData"), list):
        return True
    # `text` beside a chat id is what any chat service answers; only Flowise adds one of these to it.
    named = "chatId" in document or "chatMessageId" in document
    return named and any(key in document for key in ("question", "sessionId", *LISTS))


def read(document: Json) -> list[Evidence]:
    """Return the evidence of one prediction."""
    entry = dict_or_empty(document)
    unknowns = Unknowns()
    _mark_prediction(entry, unknowns)
    nodes = [
        _read_node(step, f"$.agentFlowExecutedData[{index}]", unknowns)
        for index, step in _list_objects(entry, "agentFlowExecutedData", unknowns)
    ]
    # Older flows list their nodes here. Read only where the newer list is absent, so that no node counts twice.
    nodes = nodes or [
        _read_reasoning_node(step, f"$.agentReasoning[{index}]", unknowns)
        for index, step in _list_objects(entry, "agentReasoning", unknowns)
    ]
    # The root is asked only where no node tells of a tool, or a call that both tell would count twice.
    calls = tuple(call for node in nodes for call in node.tool_calls) or _read_calls(entry.get("usedTools"), None, "$.usedTools", unknowns)
    text = text_or_none(entry.get("text"))
    answer = entry.get("json")
    spoken = parse_json(text)
    structured = answer if answer is not None else spoken if isinstance(spoken, (dict, list)) else None
    reported = [node.usage for node in nodes]
    return [
        Evidence(
            case=text_or_none(entry.get("case")),
            input=entry.get("question"),
            text=text if text is not None else as_text(answer),
            body=structured if structured is not None else entry,
            tool_calls=calls,
            nodes=tuple(nodes),
            usage=find_usage(entry, unknowns) or add_usage(reported),
            available_tools=_list_offered_tools(entry),
            now=_find_start(entry),
            # A flow that answered in spite of a failed node did not break off; the failure stays with the node.
            error=next((as_text(node.error) for node in nodes if node.status == "error"), None) if text is None else None,
            account=unknowns.close_account("Flowise prediction"),
            metadata={key: entry[key] for key in _IDS if entry.get(key) is not None},
        )
    ]


def _mark_prediction(entry: dict[str, Any], unknowns: Unknowns) -> None:
    told = entry.get("text") is not None
    if told and not isinstance(entry["text"], str):
        unknowns.mark("answer", f"the text is {kind_of(entry['text'])} instead of text")
    for key in list_unknown_members(entry, _PREDICTION):
        why = describe_unknown_member("$", key, _PREDICTION, advice="")
        if holds_more(entry[key]):
            # Without a structured answer the JSON of the text, or the prediction itself, is what claims about fields read.
            unknowns.mark_parts(_ALL if not told or entry.get("json") is None else _ALL[1:], why)
        elif isinstance(entry[key], str) and not told:
            unknowns.mark("answer", why)


def _list_objects(entry: dict[str, Any], key: str, unknowns: Unknowns) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects of a list with their places, and doubt anything else in it."""
    value = entry.get(key)
    if value is not None and not isinstance(value, list):
        unknowns.mark_parts(_TOOLS, f"{key} is {kind_of(value)} instead of a list")
    for index, step in enumerate(list_of(value)):
        if step is not None and not isinstance(step, dict):
            unknowns.mark_parts(_TOOLS, f"{key}[{index}] is {kind_of(step)} instead of an object")
    return [(index, step) for index, step in enumerate(list_of(value)) if isinstance(step, dict)]


def _mark_members(entry: dict[str, Any], known: frozenset[str], path: str, unknowns: Unknowns) -> None:
    """Doubt members that could list tools, or be the output, the state or the tokens of a node."""
    for key in list_unknown_members(entry, known):
        if holds_more(entry[key]) or isinstance(entry[key], str):
            parts: tuple[Part, ...] = ("tool_calls", "nodes", "usage") if holds_more(entry[key]) else ("nodes",)
            unknowns.mark_parts(parts, describe_unknown_member(path, key, known, advice=""))


def _read_node(step: dict[str, Any], path: str, unknowns: Unknowns) -> Node:
    data = _read_object(step, "data", path, unknowns)
    output, name = data.get("output"), _name_at(step, ("nodeLabel", "nodeId"), path, unknowns)
    _mark_members(step, _STEP, path, unknowns)
    _mark_members(data, _DATA, f"{path}.data", unknowns)
    if step.get("status") is not None and step["status"] not in _STATUSES:
        unknowns.mark("nodes", f"the status {show(step['status'], SHOWN)} at {path} is not understood")
    used = _read_object(data, "output", f"{path}.data", unknowns)
    _mark_members(used, _OUTPUT, f"{path}.data.output", unknowns)
    duration = dict_or_empty(used.get("timeMetadata")).get("delta")
    failed = step.get("status") in _FAILED or says_error(data.get("error"))
    calls = _read_calls(used.get("usedTools"), name, f"{path}.data.output.usedTools", unknowns)
    _mark_asked(used, calls, path, unknowns)
    return Node(
        name=name,
        type=text_or_none(data.get("name")),
        status="error" if failed else "success",
        input=data.get("input"),
        output=output,
        tool_calls=calls,
        duration_ms=duration if is_number(duration) else None,
        error=(data.get("error") or "the node failed") if failed else None,
        usage=find_usage(output, unknowns),
    )


def _name_at(step: dict[str, Any], keys: tuple[str, ...], path: str, unknowns: Unknowns) -> str:
    name = find_first(step, *keys)
    if not isinstance(name, str):
        unknowns.mark_parts(_TOOLS, f"{path} has no name")
    return as_text(name) or ""


def _read_object(entry: dict[str, Any], key: str, path: str, unknowns: Unknowns) -> dict[str, Any]:
    value = entry.get(key)
    if value is not None and not isinstance(value, dict):
        unknowns.mark_parts(("tool_calls", "nodes", "usage"), f"{path}.{key} is {kind_of(value)} instead of an object")
    return dict_or_empty(value)


def _mark_asked(output: dict[str, Any], calls: tuple[ToolCall, ...], path: str, unknowns: Unknowns) -> None:
    """Doubt tools that the model asked for and that nothing tells to have been used."""
    used = {call.name for call in calls}
    for key in ("calledTools", "toolCalls"):
        for asked in list_of(output.get(key)):
            if text_or_none(dict_or_empty(asked).get("name")) not in used:
                unknowns.mark("tool_calls", f"{key} at {path} names a tool that is not among those used")


def _read_reasoning_node(step: dict[str, Any], path: str, unknowns: Unknowns) -> Node:
    name = _name_at(step, ("agentName", "nodeName", "nodeId"), path, unknowns)
    messages = [message for message in list_of(step.get("messages")) if isinstance(message, str)]
    if step.get("messages") is not None and (not isinstance(step["messages"], list) or len(messages) < len(step["messages"])):
        unknowns.mark("nodes", f"the messages at {path} are not a list of texts")
    _mark_members(step, _REASONING, path, unknowns)
    return Node(
        name=name,
        type=text_or_none(step.get("nodeName")),
        output={"text": messages[-1]} if messages else None,
        tool_calls=_read_calls(step.get("usedTools"), name, f"{path}.usedTools", unknowns),
    )


def _read_calls(value: Json, node: str | None, path: str, unknowns: Unknowns) -> tuple[ToolCall, ...]:
    if value is not None and not isinstance(value, list):
        unknowns.mark("tool_calls", f"{path} is {kind_of(value)} instead of a list")
    # Flowise leaves nulls in these lists where an agent answered without a tool.
    used = [(index, entry) for index, entry in enumerate(list_of(value)) if entry is not None]
    return tuple(call for index, entry in used if (call := _call(entry, node, f"{path}[{index}]", unknowns)) is not None)


def _call(entry: Json, node: str | None, path: str, unknowns: Unknowns) -> ToolCall | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("tool"), str):
        unknowns.mark("tool_calls", f"{path} does not name its tool")
        return None
    strange = list_unknown_members(entry, _USED)
    if strange:
        unknowns.mark("tool_results", describe_unknown_member(path, strange[0], _USED, advice=""))
    known = entry.get("toolInput") is not None or not strange
    if not known:
        unknowns.mark("tool_arguments", describe_unknown_member(path, strange[0], _USED, advice=""))
    return ToolCall(
        name=entry["tool"],
        arguments=read_arguments(entry.get("toolInput")) if known else None,
        result=entry.get("toolOutput"),
        error=entry.get("error") if says_error(entry.get("error")) else None,
        node=node,
    )


def _list_offered_tools(entry: dict[str, Any]) -> tuple[str, ...] | None:
    """Return the names of the tools the agents had, or None for chatflows, which do not record them."""
    outputs = [
        dict_or_empty(dict_or_empty(dict_or_empty(step).get("data")).get("output")) for step in list_of(entry.get("agentFlowExecutedData"))
    ]
    tools = [dict_or_empty(tool).get("name") for output in outputs for tool in list_of(output.get("availableTools"))]
    return tuple(dict.fromkeys(name for name in tools if isinstance(name, str))) or None


def _find_start(entry: dict[str, Any]) -> str | None:
    for step in list_of(entry.get("agentFlowExecutedData")):
        output = dict_or_empty(dict_or_empty(dict_or_empty(step).get("data")).get("output"))
        start = write_ms_as_iso(dict_or_empty(output.get("timeMetadata")).get("start"))
        if start is not None:
            return start
    return None
