"""A real Flowise with an account, a key, a model credential on the stub, and the flows that the tests use, all created with its own API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.platforms.server import ask, free_port, running, wanted

PASSWORD = "Only-for-tests-1!"
OWNER = {"name": "Test Owner", "email": "owner@example.com"}


class FlowiseWorld(msgspec.Struct):
    """The running server, and what was created in it."""

    url: str
    key: str
    """The key of the locked flow."""
    session: dict[str, str]
    """The headers of a logged-in user."""
    flows: dict[str, str] = {}
    """Flow ids by our name of the flow."""

    def trace(self, flow: str, *, endpoint: str, key: str, project: str) -> None:
        """Export the traces of a flow, as *Analyse Chatflow* does for Phoenix."""
        secret = {"phoenixApiKey": key, "phoenixEndpoint": endpoint}
        given = {"name": f"phoenix for {flow}", "credentialName": "phoenixApi", "plainDataObj": secret}
        credential = wanted(ask("POST", f"{self.url}/api/v1/credentials", given, self.session), "credential")["id"]
        analytic = {"phoenix": {"credentialId": credential, "projectName": project, "status": True}}
        place = f"{self.url}/api/v1/chatflows/{self.flows[flow]}"
        wanted(ask("PUT", place, {"analytic": json.dumps(analytic)}, self.session), "analytic")

    def predict(self, flow: str, question: str) -> Any:
        """Send a message to a flow, as a user's front end does."""
        return wanted(ask("POST", f"{self.url}/api/v1/prediction/{self.flows[flow]}", {"question": question}), flow)


@contextmanager
def flowise_running(home: Path, data: Path, model_url: str) -> Iterator[FlowiseWorld]:
    """Run Flowise with a fresh data folder while the block runs."""
    port = free_port()
    environment = {
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "APP_URL": f"http://127.0.0.1:{port}",
        "DATABASE_TYPE": "sqlite",
        "DATABASE_PATH": str(data),
        "SECRETKEY_PATH": str(data),
        "LOG_PATH": str(data / "logs"),
        "BLOB_STORAGE_PATH": str(data / "storage"),
        "DISABLE_FLOWISE_TELEMETRY": "true",
        # The model is on loopback, which Flowise blocks by default against server-side request forgery.
        "HTTP_SECURITY_CHECK": "false",
    }
    command = ["node", str(home / "node_modules/flowise/bin/run"), "start"]
    up = running(command, data=data, port=port, health="/api/v1/ping", healthy=lambda body: body == "pong", environment=environment)
    with up as url:
        yield _furnished(url, model_url)


def _furnished(url: str, model_url: str) -> FlowiseWorld:
    account = {"user": {**OWNER, "type": "pro", "credential": PASSWORD}}
    wanted(ask("POST", f"{url}/api/v1/account/register", account), "account")
    login = ask("POST", f"{url}/api/v1/auth/login", {"email": OWNER["email"], "password": PASSWORD})
    wanted(login, "login")
    session = {"cookie": "; ".join(cookie.split(";")[0] for cookie in login.cookies), "x-request-from": "internal"}

    def make(what: str, body: dict[str, Any]) -> Any:
        return wanted(ask("POST", f"{url}/api/v1/{what}", body, session), what)

    keys = make("apikey", {"keyName": "flow", "permissions": ["chatflows:view"]})
    key = next(entry for entry in keys if entry["keyName"] == "flow")
    world = FlowiseWorld(url, key["apiKey"], session)
    stub = make("credentials", {"name": "stub", "credentialName": "openAIApi", "plainDataObj": {"openAIApiKey": "sk-none"}})["id"]

    def define(name: str) -> dict[str, Any]:
        return wanted(ask("GET", f"{url}/api/v1/nodes/{name}", headers=session), name)

    for name, (kind, flow) in _flows(define, stub, f"{model_url}/v1").items():
        body = {"name": name, "type": kind, "deployed": True, "isPublic": False, "flowData": json.dumps(flow)}
        world.flows[name] = make("chatflows", {**body, **({"apikeyid": key["id"]} if name == "locked" else {})})["id"]
    return world


def node(definition: dict[str, Any], number: int, inputs: dict[str, Any], *, label: str | None = None, **more: Any) -> dict[str, Any]:
    """One node as the canvas would save it."""
    id = f"{definition['name']}_{number}"
    fields = {name: definition.get(name) for name in ("name", "type", "version", "baseClasses", "category", "description")}
    defaults = {given["name"]: given["default"] for given in definition.get("inputs") or () if "default" in given}
    data = {
        **fields,
        "id": id,
        "label": label or definition["label"],
        "inputParams": definition.get("inputs") or [],
        "inputAnchors": [],
        "inputs": {**defaults, **inputs},
        "outputs": {},
        "outputAnchors": [],
        **more,
    }
    shape = "agentFlow" if definition.get("category") == "Agent Flows" else "customNode"
    return {"id": id, "type": shape, "position": {"x": 0, "y": 0}, "width": 300, "height": 100, "data": data}


def flow(nodes: list[dict[str, Any]], *wires: tuple[str, str]) -> dict[str, Any]:
    """The nodes and their connections."""
    edges = [
        {"id": f"{source}-{to}", "source": source, "target": to, "sourceHandle": f"{source}-output", "targetHandle": f"{to}-input"}
        for source, to in wires
    ]
    return {"nodes": nodes, "edges": edges, "viewport": {"x": 0, "y": 0, "zoom": 1}}


def instance(id: str) -> str:
    """How an input refers to another node."""
    return f"{{{{{id}.data.instance}}}}"


def _flows(define: Any, credential: str, base: str) -> dict[str, tuple[str, dict[str, Any]]]:
    # Counting tokens of a streamed answer would make Flowise fetch a table from the internet.
    chat = {"modelName": "stub-model", "basepath": base, "temperature": 0, "streaming": False}
    model = node(define("chatOpenAI"), 0, chat, credential=credential)
    memory = node(define("bufferMemory"), 0, {})
    chain = node(define("conversationChain"), 0, {"model": instance("chatOpenAI_0"), "memory": instance("bufferMemory_0")})
    talk = flow([model, memory, chain], ("chatOpenAI_0", "conversationChain_0"), ("bufferMemory_0", "conversationChain_0"))
    calculator = node(define("calculator"), 0, {})
    given = {"model": instance("chatOpenAI_0"), "memory": instance("bufferMemory_0"), "tools": [instance("calculator_0")]}
    agent = node(define("toolAgent"), 0, given)
    tools = flow([model, memory, calculator, agent], *((id, "toolAgent_0") for id in ("chatOpenAI_0", "bufferMemory_0", "calculator_0")))
    return {
        "talk": ("CHATFLOW", talk),
        "locked": ("CHATFLOW", talk),
        "tools": ("CHATFLOW", tools),
        "agentflow": ("AGENTFLOW", _agentflow(define, credential, chat)),
        "shop": ("AGENTFLOW", _shop(define, base.removesuffix("/v1"))),
    }


def _agentflow(define: Any, credential: str, chat: dict[str, Any]) -> dict[str, Any]:
    given = {
        "agentModel": "chatOpenAI",
        "agentModelConfig": {**chat, "agentModel": "chatOpenAI", "FLOWISE_CREDENTIAL_ID": credential, "credential": credential},
        "agentMessages": [{"role": "system", "content": "You sell."}],
        "agentTools": [{"agentSelectedTool": "calculator", "agentSelectedToolConfig": {"agentSelectedTool": "calculator"}}],
        "agentEnableMemory": True,
        "agentMemoryType": "allMessages",
        "agentReturnResponseAs": "userMessage",
    }
    start = node(define("startAgentflow"), 0, {"startInputType": "chatInput"})
    agent = node(define("agentAgentflow"), 0, given, label="Order Agent")
    return flow([start, agent], ("startAgentflow_0", "agentAgentflow_0"))


def _shop(define: Any, url: str) -> dict[str, Any]:
    """No model: a request to the shop, and a reply built from its response."""
    request = {
        "method": "POST",
        "url": f"{url}/shop/order",
        "bodyType": "json",
        "body": '{"item": "{{ question }}"}',
        "responseType": "text",
    }
    nodes = [
        node(define("startAgentflow"), 0, {"startInputType": "chatInput"}),
        node(define("httpAgentflow"), 0, request, label="Shop"),
        node(define("directReplyAgentflow"), 0, {"directReplyMessage": "The shop says: {{ httpAgentflow_0 }}"}, label="Reply"),
    ]
    return flow(nodes, ("startAgentflow_0", "httpAgentflow_0"), ("httpAgentflow_0", "directReplyAgentflow_0"))
