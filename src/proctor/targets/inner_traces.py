"""Finds the trace that an answer carries.

It may be spans, OTLP, an n8n execution, a Flowise prediction, a map or list of nodes, or members with an `output` (each of them is a node).

Only some of these record tools by their contract. An object whose members have an `output`, or a text beside the id of a chat, may be
anybody's answer: nobody said that every tool is in it. There the tools (and steps) that are listed count, and that there were no others is
known only where the body itself tells of tools: a list of calls at its root or in a node, nodes of n8n's types, one of Flowise's lists. Who
knows that the agent answers as Mibo asks for says so with `answer_format: mibo`.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence import mibo
from proctor.evidence.platforms import flowise, n8n
from proctor.evidence.reading import read_document
from proctor.evidence.traces import read_otlp as otlp
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json
from proctor.targets.lost_messages import add_doubt

NO_TOOLS_TOLD = (
    'members with an "output" are read as steps of the agent, and nothing in the answer says that all tools are recorded: '
    'answer with "tool_calls", or say answer_format: mibo'
)
NO_TOOLS_TOLD_BY_FLOW = "the answer looks like one of Flowise and lists no tools: use a target of type flowise, or answer_format: flowise"
_DOUBTED: tuple[Part, ...] = ("tool_calls", "tool_arguments", "tool_results", "nodes")
_CALL_LISTS = ("tools_called", "tool_calls")
_N8N_TYPE = "n8n-nodes"


def trace_in(body: Json) -> list[Evidence] | None:
    """Return the trace that an answer carries, if it carries one. Raises `EvidenceError` for a broken one."""
    if not isinstance(body, dict):
        return None
    # Of Mibo's bodies only spans are unmistakable: `data` is a key of many answers, which are a trace only where nodes stand in it.
    if n8n.has_run_data(body) or otlp.sniff(body) or (mibo.sniff(body) and "spans" in body):
        return read_document(body)
    if flowise.sniff(body):
        told = any(isinstance(body.get(key), list) for key in flowise.LISTS)
        return _mark_tools(read_document(body), told, NO_TOOLS_TOLD_BY_FLOW)
    if mibo.sniff(body) and _find_nodes(body):
        return _mark_tools(mibo.read(body), _tells_of_tools(body), NO_TOOLS_TOLD)
    wrapped: dict[str, Json] = {"data": body}
    return _mark_tools(mibo.read(wrapped), _tells_of_tools(wrapped), NO_TOOLS_TOLD) if _find_nodes(wrapped) else None


def _mark_tools(found: list[Evidence], told: bool, why: str) -> list[Evidence]:
    return found if told else [add_doubt(evidence, _DOUBTED, why) for evidence in found]


def _find_nodes(document: dict[str, Any]) -> list[dict[str, Any]]:
    data = dict_or_empty(document.get("data"))
    members = data.values() if not list_of(data.get("nodes")) else list_of(data.get("nodes"))
    inner = dict_or_empty(data.get("data")).values()
    return [node for node in (*members, *inner) if isinstance(node, dict) and ("output" in node or "nodeName" in node)]


def _tells_of_tools(document: dict[str, Any]) -> bool:
    """Return whether a body says which tools were called, by a list of calls or by the types of its nodes."""
    return isinstance(dict_or_empty(document.get("data")).get("tool_calls"), list) or any(
        "nodeName" in node or _N8N_TYPE in str(node.get("type")) or any(isinstance(node.get(key), list) for key in _CALL_LISTS)
        for node in _find_nodes(document)
    )
