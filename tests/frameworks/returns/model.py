"""The scripted model of these agents: its reply follows from the request, and it records the calls it requests.

A message names the behaviour (`shop.py`). The model calls the tools, hands over to an expert if there is one, fills in a form
if the request requires one, fails with an error of the API, or never ends.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.frameworks.model import Handler, QuietServer, one
from tests.frameworks.order_model import text_of
from tests.frameworks.shop import Step
from tests.frameworks.wires import ModelReply, gemini, openai_chat, openai_responses

INPUT_TOKENS, OUTPUT_TOKENS = 100, 10
FORM = {"order_id": 17, "order_status": "shipped"}
PIECE = "Order 17 has"
"""The text of a truncated answer."""
MAX_STEPS = 8
"""The limit of steps even if the message asks for an endless run."""
_NUMBERS = itertools.count(1)
_ANSWER_TOOLS = ("final_answer",)


@dataclass
class Seen:
    """The requests of the model and the calls it requested, since the last `clear`."""

    requests: int = 0
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    bodies: list[Any] = field(default_factory=list)
    question: str = ""
    """The user message of the last request."""

    def clear(self) -> None:
        self.requests, self.calls, self.tools, self.bodies, self.question = 0, [], [], [], ""


SEEN = Seen()


@dataclass
class ParsedRequest:
    """One request, independent of the provider."""

    question: str
    """The last user message."""
    called: list[str]
    """Tools called since then."""
    results: int
    tools: dict[str, dict[str, Any]]
    """Parameters by name."""
    wants_form: bool


def read_request(request: dict[str, Any]) -> ParsedRequest:
    """Parse a request to OpenAI's chat or responses, or to Gemini."""
    question, called, results = "", [], 0
    given = request.get("messages") or request.get("input") or request.get("contents") or []
    for entry in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        parts = [part for part in entry.get("parts") or _list(entry.get("content")) if isinstance(part, dict)]
        names = [call["function"]["name"] for call in entry.get("tool_calls") or []]
        names += [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        if entry.get("type") == "function_call":
            names.append(entry["name"])
        called += names
        is_result = entry.get("role") == "tool" or entry.get("type") == "function_call_output"
        answers = [part for part in parts if "functionResponse" in part]
        text = "" if names or is_result else text_of(entry.get("content") or entry.get("parts") or "")
        if is_result or answers:
            results += len(answers) or 1
        elif text.startswith("Observation:") and "New task:" not in text:
            results += 1
        elif entry.get("role") == "user" and re.search(r"order \d+|who are you", text) and not text.startswith("For context:"):
            question, called, results = text.rpartition("New task:")[2], [], 0
    if not question and results:
        # With `previous_response_id` only the tool results are sent again.
        question = SEEN.question or f"Where is {str(given[-1].get('output')).partition(':')[0]}?"
    SEEN.question = question
    offered = [] if request.get("tool_choice") == "none" else request.get("tools") or []
    listed = [one for tool in offered for one in tool.get("functionDeclarations") or [tool.get("function") or tool]]
    tools = {str(tool.get("name")): tool.get("parameters") or tool.get("parametersJsonSchema") or {} for tool in listed}
    settings = request.get("generationConfig") or {}
    schema = request.get("response_format") or (request.get("text") or {}).get("format") or settings.get("responseSchema")
    schema = schema or settings.get("responseJsonSchema")
    return ParsedRequest(question, called, results, tools, "order_status" in json.dumps(schema or ""))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def decide(request: dict[str, Any]) -> Step:
    """The model's next step. Raises `LookupError` if the API is to fail."""
    parsed = read_request(request)
    if "[[ ## " in parsed.question:
        return decide_fields(parsed.question)
    numbers = [int(found) for found in re.findall(r"order (\d+)", parsed.question)]
    steps = max(parsed.results, len([name for name in parsed.called if is_shop(name)]))
    if "break" in parsed.question and steps:
        raise LookupError("the model breaks, as the script requires")
    lookup, pay, over = find(parsed, "lookup_order"), find(parsed, "refund"), find_handoff(parsed)
    if "expert" in parsed.question and over is not None and lookup is None and not parsed.called and not parsed.results:
        return Step(calls=((over, fill(parsed.tools[over])),))
    if "forever" in parsed.question and lookup and steps < MAX_STEPS:
        return Step(calls=((lookup, {"id": numbers[0] + steps}),))
    done = any(is_shop(name) for name in parsed.called) or (parsed.results > 0 and not parsed.called)
    if numbers and not done and "Refund" in parsed.question and pay:
        return Step(calls=((pay, {"id": numbers[0]}),))
    if numbers and not done and "Refund" not in parsed.question and lookup:
        wanted = numbers if "Compare" in parsed.question else numbers[-1:]
        return Step(calls=tuple((lookup, {"id": number}) for number in wanted))
    end = find_end(parsed.question)
    return Step(text=PIECE, end=end) if end else answer_with(parsed, say(parsed.question, numbers))


def find_end(question: str) -> str:
    """Return the finish reason of a truncated answer, if the message asks for one."""
    return "length" if "at length" in question else "content_filter" if "forbidden" in question else ""


def is_shop(name: str) -> bool:
    return name.endswith(("lookup_order", "refund"))


def find(parsed: ParsedRequest, tool: str) -> str | None:
    return next((name for name in parsed.tools if name.endswith(tool)), None)


def find_handoff(parsed: ParsedRequest) -> str | None:
    return next((name for name in parsed.tools if re.search("transfer|hand_?off|delegate|expert", name, re.IGNORECASE)), None)


def fill(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments for a tool that hands over."""
    wanted = {key: kind for key, kind in (schema.get("properties") or {}).items() if key in (schema.get("required") or [key])}
    names = {key: "expert" for key in wanted if re.search("agent|coworker|to_|target|name", key)}
    kinds = {key: (kind or {}).get("type", "string") for key, kind in wanted.items()}
    texts = {key: names.get(key, "Where is order 17?") for key, kind in kinds.items() if kind in ("string", "STRING")}
    # Haystack hands messages to an agent.
    return {**texts, **({"messages": [{"role": "user", "content": [{"text": "Where is order 17?"}]}]} if "messages" in kinds else {})}


def say(question: str, numbers: list[int]) -> str:
    """The final answer of the model."""
    if "who are you" in question or not numbers:
        return "I am the support agent of this shop."
    if "Refund" in question:
        return f"Order {numbers[0]} could not be refunded."
    return f"Orders {numbers[0]} and {numbers[1]} have shipped." if "Compare" in question else f"Order {numbers[-1]} has shipped."


def answer_with(parsed: ParsedRequest, text: str) -> Step:
    """An answer in the format that the request wants."""
    form = next((name for name, schema in parsed.tools.items() if "order_status" in json.dumps(schema)), None)
    if form is not None:
        return Step(calls=((form, dict(FORM)),))
    if parsed.wants_form:
        return Step(text=json.dumps(FORM))
    final = next((name for name in parsed.tools if name in _ANSWER_TOOLS), None)
    return Step(calls=((final, {"answer": text}),)) if final else Step(text=text)


def decide_fields(prompt: str) -> Step:
    """The fields of dspy's ReAct."""
    question = prompt[prompt.index("[[ ## question ## ]]") :] if "[[ ## question ## ]]" in prompt else prompt
    task = question.split("[[ ## ", 2)[1] if question.count("[[ ## ") > 1 else question
    numbers = [int(found) for found in re.findall(r"order (\d+)", task)]
    steps = len(set(re.findall(r"\[\[ ## observation_(\d+) ## \]\]", prompt)))
    if "break" in task and steps:
        raise LookupError("the model breaks, as the script requires")
    wanted = len(numbers) if "Compare" in task else 1 if numbers else 0
    if "`[[ ## next_tool_name ## ]]`" not in prompt:
        fields = {"reasoning": "All is done."} if "`[[ ## reasoning ## ]]`" in prompt else {}
        fields |= {"form": json.dumps(FORM)} if "`[[ ## form ## ]]`" in prompt else {"answer": say(task, numbers)}
    elif steps >= wanted and "forever" not in task:
        fields = {"next_thought": "I know enough.", "next_tool_name": "finish", "next_tool_args": "{}"}
    else:
        name = "refund" if "Refund" in task else "lookup_order"
        number = numbers[0] + steps if "forever" in task else numbers[steps]
        SEEN.calls.append((name, {"id": number}))
        fields = {"next_thought": "I look.", "next_tool_name": name, "next_tool_args": json.dumps({"id": number})}
    end = find_end(task) if "answer" in fields else ""
    if end:
        return Step(text=f"[[ ## reasoning ## ]]\nAll is done.\n\n[[ ## answer ## ]]\n{PIECE}", end=end)
    return Step(text="".join(f"[[ ## {key} ## ]]\n{value}\n\n" for key, value in fields.items()) + "[[ ## completed ## ]]")


def answer(path: str, request: dict[str, Any]) -> tuple[str, Iterable[bytes]]:
    """Content type and body for one request."""
    route, streamed = path.split("?")[0], bool(request.get("stream"))
    found = re.search(r"models/([^/:]+):(stream)?[gG]enerateContent", route)
    with SEEN.lock:
        SEEN.bodies.append(request)
        step = decide(request)
        SEEN.requests += 1
        SEEN.calls += step.calls
    model = found[1] if found else str(request.get("model") or "unknown")
    reply = ModelReply(step, step, next(_NUMBERS), INPUT_TOKENS, OUTPUT_TOKENS, model)
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


class ReturnsHandler(Handler):
    """One request to this model."""

    def answer(self, request: dict[str, Any]) -> tuple[str, Iterable[bytes]]:
        return answer(self.path, request)


@contextmanager
def serve() -> Iterator[str]:
    """Serve the model on loopback and yield its address."""
    server = QuietServer(("127.0.0.1", 0), ReturnsHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
