"""Recognises exports of n8n and Flowise."""

from __future__ import annotations

from typing import Any

from proctor.actions.start.found import FoundExport
from proctor.model.evidence import Json


def read_n8n(document: dict[str, Any], name: str) -> FoundExport | None:
    """Return how a workflow is started, by its webhook or its chat; None for what is no export of n8n."""
    nodes = document.get("nodes")
    if not isinstance(nodes, list) or not isinstance(document.get("connections"), dict):
        return None
    typed = [node for node in nodes if isinstance(node, dict) and isinstance(node.get("type"), str)]
    if not any("n8n-nodes" in node["type"] for node in typed):
        return None
    address: str | None = None
    template: Json = None
    for node in typed:
        given = node.get("parameters")
        parameters: dict[str, Any] = given if isinstance(given, dict) else {}
        if node["type"].endswith(".webhook") and isinstance(parameters.get("path"), str):
            address = f"http://127.0.0.1:5678/webhook/{parameters['path']}"
        elif node["type"].endswith(".chatTrigger") and isinstance(node.get("webhookId"), str):
            address = f"http://127.0.0.1:5678/webhook/{node['webhookId']}/chat"
            template = {"action": "sendMessage", "chatInput": "{user_message}", "sessionId": "{session_id}", "requestId": "{request_id}"}
        if address is not None:
            break
    remarks = ["activate the workflow, and see that the address is that of your n8n"]
    if address is None:
        address = "http://127.0.0.1:5678/webhook/agent"
        remarks.insert(0, "the workflow has no Webhook or Chat Trigger node to start it by: add one, and write its address")
    settings: dict[str, Json] = {"type": "n8n", "webhook": address}
    if template is not None:
        settings["template"] = template
    return FoundExport(kind="n8n", file=name, settings=settings, remarks=tuple(remarks))


def read_flowise(document: dict[str, Any], name: str) -> FoundExport | None:
    """Return how a flow is asked; None for what is no export of Flowise."""
    nodes, edges = document.get("nodes"), document.get("edges")
    if not isinstance(nodes, list) or not isinstance(edges, list):
        return None
    inner = [node["data"] for node in nodes if isinstance(node, dict) and isinstance(node.get("data"), dict)]
    if not any("category" in data or "inputParams" in data or "inputAnchors" in data for data in inner):
        return None
    settings: dict[str, Json] = {"type": "flowise", "url": "http://127.0.0.1:3000", "flow": "${FLOWISE_FLOW}"}
    told = "set FLOWISE_FLOW to the id of the flow: it stands in the address of its page, and not in an export"
    return FoundExport(kind="flowise", file=name, settings=settings, remarks=(told,))
