"""A real n8n with an owner, keys, a model credential on the stub, and the workflows that the tests trigger, created with its own API."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.platforms.server import ask, free_port, running, wanted

OWNER = {"email": "owner@example.com", "firstName": "Test", "lastName": "Owner", "password": "Only-for-tests-1"}
BUILDER_SCOPES = ["workflow:create", "workflow:read", "workflow:activate", "credential:create"]
READER_SCOPES = ["execution:list"]
"""The scopes that a key for reading executions needs according to the documentation."""


class N8nWorld(msgspec.Struct):
    """The running server, and what was created in it."""

    url: str
    key: str
    """May only read executions."""
    workflows: dict[str, str] = {}
    """Workflow ids by our name of the workflow."""


@contextmanager
def n8n_running(home: Path, data: Path, model_url: str) -> Iterator[N8nWorld]:
    """Run n8n with a fresh data folder while the block runs."""
    port = free_port()
    environment = {
        "N8N_LISTEN_ADDRESS": "127.0.0.1",
        "N8N_HOST": "127.0.0.1",
        "N8N_PORT": str(port),
        "N8N_USER_FOLDER": str(data),
        "N8N_RUNNERS_BROKER_PORT": str(free_port()),
        "N8N_SECURE_COOKIE": "false",
        # No outgoing calls: no telemetry, no notices, no templates.
        "N8N_DIAGNOSTICS_ENABLED": "false",
        "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
        "N8N_TEMPLATES_ENABLED": "false",
        "N8N_PERSONALIZATION_ENABLED": "false",
        "N8N_COMMUNITY_PACKAGES_ENABLED": "false",
    }
    command = ["node", str(home / "node_modules/n8n/bin/n8n"), "start"]
    # Its health check succeeds before the API exists; until then the response is a text that n8n is starting.
    up = running(
        command, data=data, port=port, health="/rest/settings", healthy=lambda body: isinstance(body, dict), environment=environment
    )
    with up as url:
        yield _furnished(url, model_url)


def _furnished(url: str, model_url: str) -> N8nWorld:
    setup = ask("POST", f"{url}/rest/owner/setup", OWNER)
    wanted(setup, "owner setup")
    cookie = {"cookie": setup.cookies[0].split(";")[0]}

    def key(label: str, scopes: list[str]) -> str:
        made = ask("POST", f"{url}/rest/api-keys", {"label": label, "expiresAt": None, "scopes": scopes}, cookie)
        return wanted(made, "API key")["data"]["rawApiKey"]

    builder = {"x-n8n-api-key": key("builder", BUILDER_SCOPES)}
    world = N8nWorld(url, key("reader", READER_SCOPES))

    def credential(name: str, type: str, data: dict[str, Any]) -> dict[str, Any]:
        made = wanted(ask("POST", f"{url}/api/v1/credentials", {"name": name, "type": type, "data": data}, builder), "credential")
        return {type: {"id": made["id"], "name": name}}

    model = credential("stub", "openAiApi", {"apiKey": "sk-none", "url": f"{model_url}/v1", "header": False})
    header = credential("door", "httpHeaderAuth", {"name": "x-door", "value": "open-sesame"})
    for name, (nodes, connections) in _workflows(model, header, model_url).items():
        body = {"name": name, "nodes": nodes, "connections": connections, "settings": {"executionOrder": "v1"}}
        made = wanted(ask("POST", f"{url}/api/v1/workflows", body, builder), f"workflow {name}")
        wanted(ask("POST", f"{url}/api/v1/workflows/{made['id']}/activate", {}, builder), f"activate {name}")
        world.workflows[name] = made["id"]
    return world


Workflow = tuple[list[dict[str, Any]], dict[str, Any]]


def node(name: str, type: str, version: float, parameters: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One node of a workflow."""
    full = type if "." in type else f"n8n-nodes-base.{type}"
    id = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
    return {"id": id, "name": name, "type": full, "typeVersion": version, "position": [0, 0], "parameters": parameters or {}, **more}


def ai(name: str, type: str, version: float, parameters: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One node of the AI package."""
    return node(name, f"@n8n/n8n-nodes-langchain.{type}", version, parameters, **more)


def webhook(path: str, mode: str = "lastNode", **parameters: Any) -> dict[str, Any]:
    """The node that starts a workflow."""
    given = {"httpMethod": "POST", "path": path, "responseMode": mode, "options": {}, **parameters}
    return node("Webhook", "webhook", 2.1, given, webhookId=str(uuid.uuid5(uuid.NAMESPACE_URL, path)))


def wires(*lines: tuple[str, str] | tuple[str, str, str]) -> dict[str, Any]:
    """Connections: from, to, and the kind if it is not `main`."""
    made: dict[str, Any] = {}
    for source, to, *kind in lines:
        how = kind[0] if kind else "main"
        made.setdefault(source, {}).setdefault(how, [[]])[0].append({"node": to, "type": how, "index": 0})
    return made


def _agent(trigger: dict[str, Any], version: float, message: str, session: str, model: dict[str, Any], **options: Any) -> Workflow:
    nodes = [
        trigger,
        ai("AI Agent", "agent", version, {"promptType": "define", "text": message, "options": {"systemMessage": "You sell.", **options}}),
        ai("Model", "lmChatOpenAi", 1.2, {"model": {"__rl": True, "mode": "id", "value": "stub-model"}, "options": {}}, credentials=model),
        ai("Calculator", "toolCalculator", 1),
        ai("Memory", "memoryBufferWindow", 1.3, {"sessionIdType": "customKey", "sessionKey": session}),
    ]
    return nodes, wires(
        (trigger["name"], "AI Agent"),
        ("Model", "AI Agent", "ai_languageModel"),
        ("Calculator", "AI Agent", "ai_tool"),
        ("Memory", "AI Agent", "ai_memory"),
    )


def _workflows(model: dict[str, Any], header: dict[str, Any], model_url: str) -> dict[str, Workflow]:
    message, session = "={{ $json.body.chatInput }}", "={{ $json.body.sessionId }}"
    chat = ai("Chat", "chatTrigger", 1.4, {"public": True, "options": {"responseMode": "lastNode"}}, webhookId="chat-for-tests")
    return {
        "orders": _orders(model_url),
        "agent-1": _agent(webhook("agent-1"), 1.9, message, session, model, returnIntermediateSteps=True),
        "agent-2": _agent(webhook("agent-2"), 2.2, message, session, model),
        "agent-3": _agent(webhook("agent-3"), 3.1, message, session, model),
        "agent-3-steps": _agent(webhook("agent-3-steps"), 3.1, message, session, model, returnIntermediateSteps=True),
        "chat": _agent(chat, 3.1, "={{ $json.chatInput }}", "={{ $json.sessionId }}", model),
        "stream": _agent(webhook("stream", "streaming"), 3.1, message, session, model),
        "later": (
            [webhook("later", "onReceived"), node("Wait", "wait", 1.1, {"amount": 2, "unit": "seconds"}), _edit("Done", message)],
            wires(("Webhook", "Wait"), ("Wait", "Done")),
        ),
        "locked": (
            [webhook("locked", authentication="headerAuth") | {"credentials": header}, _edit("Done", message)],
            wires(("Webhook", "Done")),
        ),
    }


def _edit(name: str, value: str, field: str = "output") -> dict[str, Any]:
    return node(name, "set", 3.4, {"assignments": {"assignments": [{"id": "1", "name": field, "value": value, "type": "string"}]}})


def _orders(model_url: str) -> Workflow:
    """No AI: a request to the shop, and a response with a custom status."""
    request = {
        "method": "POST",
        "url": f"={model_url}/shop/{{{{ $json.item }}}}",
        "sendBody": True,
        "specifyBody": "json",
        "jsonBody": "={{ { item: $json.item, amount: 2 } }}",
    }
    answer = {
        "respondWith": "json",
        "responseBody": "={{ { message: 'Order of ' + $json.order.item + ' confirmed', stock: $json.stock } }}",
        "options": {"responseCode": 201},
    }
    nodes = [
        webhook("orders", "responseNode"),
        _edit("Read", "={{ $json.body.chatInput }}", "item"),
        node("Shop", "httpRequest", 4.2, request),
        node("Respond", "respondToWebhook", 1.4, answer),
    ]
    return nodes, wires(("Webhook", "Read"), ("Read", "Shop"), ("Shop", "Respond"))
