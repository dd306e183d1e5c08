"""A stateless scripted model on loopback: its reply follows from the request alone.

Given an order number it calls `lookup_order` and repeats the result of the tool; any other question it answers at once. Many agents can
therefore use it concurrently, with the formats of OpenAI's chat and responses and of Gemini. Only the standard library is used.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterable
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from tests.frameworks.model import Handler, QuietServer, one
from tests.frameworks.shop import Step
from tests.frameworks.wires import ModelReply, gemini, openai_chat, openai_responses

TOOL = "lookup_order"
_NUMBERS = itertools.count(1)


def text_of(content: Any) -> str:
    """The text of a message's content in any format."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in content)
    return text_of(content.get("text") or content.get("content") or "") if isinstance(content, dict) else ""


def read_request(request: dict[str, Any]) -> tuple[str, int, list[str]]:
    """The last user message, the number of tool results after it, and the names of the tools."""
    question, results = "", 0
    given = request.get("messages") or request.get("input") or request.get("contents") or []
    for entry in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        parts = entry.get("parts") or (entry["content"] if isinstance(entry.get("content"), list) else [])
        if (
            entry.get("role") == "tool"
            or entry.get("type") == "function_call_output"
            or any("functionResponse" in part or "function_response" in part for part in parts if isinstance(part, dict))
        ):
            results += 1
        elif entry.get("role") in ("tool-response", "user"):
            text = text_of(entry.get("content") or entry.get("parts") or "")
            if text.startswith("Observation:"):
                results += 1
            elif text:
                question, results = text, 0
    tools = [one for tool in request.get("tools") or [] for one in tool.get("functionDeclarations") or [tool.get("function") or tool]]
    return question, results, [str(tool.get("name")) for tool in tools]


def find_output(request: dict[str, Any]) -> str:
    """The last tool result, if the request has nothing else."""
    given = request.get("input")
    return str(given[-1].get("output")) if isinstance(given, list) and given else ""


def decide(request: dict[str, Any]) -> Step:
    """The model's next step."""
    question, results, tools = read_request(request)
    if "[[ ## " in question:
        return decide_fields(question, find_state(request))
    # With `previous_response_id` only the tool results are sent again.
    found = re.findall(r"[Oo]rder (\d+)", question) or (re.findall(r"(\d+)", find_output(request))[:1] if results else [])
    tool = next((name for name in tools if name.endswith(TOOL)), None)
    if found and tool is not None and not results:
        return Step(calls=((tool, {"id": int(found[-1])}),))
    answer = f"Order {found[-1]} {find_state(request)}." if found else "I am the support agent of this shop."
    return Step(calls=(("final_answer", {"answer": answer}),)) if "final_answer" in tools else Step(text=answer)


def find_state(request: dict[str, Any]) -> str:
    """The status of the order in the tool result: that of the agents of `proctor init`, or that of the guides."""
    return "is on its way" if "on its way" in json.dumps(request) else "has shipped"


def decide_fields(question: str, state: str) -> Step:
    """The fields of dspy's ReAct."""
    number = re.search(r"[Oo]rder (\d+)", question)
    shown = number[1] if number else "?"
    if "`[[ ## next_tool_name ## ]]`" not in question:
        fields = {"reasoning": "All is done.", "answer": f"Order {shown} {state}."}
    elif "[[ ## observation_0 ## ]]" in question:
        fields = {"next_thought": "I know enough.", "next_tool_name": "finish", "next_tool_args": "{}"}
    else:
        fields = {"next_thought": "I look.", "next_tool_name": TOOL, "next_tool_args": json.dumps({"id": int(shown)})}
    return Step(text="".join(f"[[ ## {key} ## ]]\n{value}\n\n" for key, value in fields.items()) + "[[ ## completed ## ]]")


def answer(path: str, request: dict[str, Any]) -> tuple[str, Iterable[bytes]]:
    """Content type and body for one request."""
    route, streamed = path.split("?")[0], bool(request.get("stream"))
    step = decide(request)
    found = re.search(r"models/([^/:]+):(stream)?[gG]enerateContent", route)
    reply = ModelReply(step, step, next(_NUMBERS), 100, 10, found[1] if found else str(request.get("model") or "unknown"))
    if found:
        return ("text/event-stream", gemini.stream(reply)) if found[2] else ("application/json", one(gemini.whole(reply)))
    if route.endswith("/chat/completions"):
        return (
            ("text/event-stream", openai_chat.stream(reply, request)) if streamed else ("application/json", one(openai_chat.whole(reply)))
        )
    if route.endswith("/responses"):
        whole = openai_responses.whole(reply, request)
        return ("text/event-stream", openai_responses.stream(reply, request)) if streamed else ("application/json", one(whole))
    raise LookupError(f"no provider has the path {path}")


class OrderHandler(Handler):
    """One request to this model."""

    received: list[dict[str, Any]] | None = None

    def answer(self, request: dict[str, Any]) -> tuple[str, Iterable[bytes]]:
        if OrderHandler.received is not None:
            OrderHandler.received.append(request)
        return answer(self.path, request)


@contextmanager
def serve_orders(port: int = 0) -> Any:
    """Serve the model on loopback and yield its address."""
    server: ThreadingHTTPServer = QuietServer(("127.0.0.1", port), OrderHandler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def keep_requests() -> Any:
    """Record all requests while the block runs; yields the list."""
    OrderHandler.received = received = []
    try:
        yield received
    finally:
        OrderHandler.received = None
