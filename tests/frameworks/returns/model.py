"""The scripted model of these agents: what it says follows from the request, and it keeps what it asked for.

A message names what is to happen (`shop.py`). The model asks for the tools, hands over to an expert where there is one, fills in a form
where the request demands one, breaks with an error of the API, or never ends.
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
from tests.frameworks.wires import Said, gemini, openai_chat, openai_responses

INPUT_TOKENS, OUTPUT_TOKENS = 100, 10
FORM = {"order_id": 17, "order_status": "shipped"}
PIECE = "Order 17 has"
"""What there is of an answer that is cut."""
MAX_STEPS = 8
"""Even a model that is asked to go on forever gives in."""
_NUMBERS = itertools.count(1)
_ANSWER_TOOLS = ("final_answer",)


@dataclass
class Seen:
    """What the model was asked, and what it asked for, since the last time this was cleared."""

    requests: int = 0
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    bodies: list[Any] = field(default_factory=list)
    said: str = ""
    """What the user of the last request said."""

    def clear(self) -> None:
        self.requests, self.calls, self.tools, self.bodies, self.said = 0, [], [], [], ""


SEEN = Seen()


@dataclass
class Asked:
    """One request, in the words of no provider."""

    said: str
    """What the user said last."""
    called: list[str]
    """Tools that were called since."""
    results: int
    tools: dict[str, dict[str, Any]]
    """Name to parameters."""
    wants_form: bool


def read_request(request: dict[str, Any]) -> Asked:
    """Return what matters of a request to OpenAI's chat or responses, or to Gemini."""
    said, called, results = "", [], 0
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
            said, called, results = text.rpartition("New task:")[2], [], 0
    if not said and results:
        # With `previous_response_id` only the results of tools are sent again.
        said = SEEN.said or f"Where is {str(given[-1].get('output')).partition(':')[0]}?"
    SEEN.said = said
    offered = [] if request.get("tool_choice") == "none" else request.get("tools") or []
    listed = [one for tool in offered for one in tool.get("functionDeclarations") or [tool.get("function") or tool]]
    tools = {str(tool.get("name")): tool.get("parameters") or tool.get("parametersJsonSchema") or {} for tool in listed}
    settings = request.get("generationConfig") or {}
    schema = request.get("response_format") or (request.get("text") or {}).get("format") or settings.get("responseSchema")
    schema = schema or settings.get("responseJsonSchema")
    return Asked(said, called, results, tools, "order_status" in json.dumps(schema or ""))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def decide(request: dict[str, Any]) -> Step:
    """What the model says next. Raises `LookupError` where the API breaks."""
    asked = read_request(request)
    if "[[ ## " in asked.said:
        return decide_fields(asked.said)
    numbers = [int(found) for found in re.findall(r"order (\d+)", asked.said)]
    steps = max(asked.results, len([name for name in asked.called if is_shop(name)]))
    if "break" in asked.said and steps:
        raise LookupError("the model breaks, as it was asked to")
    lookup, pay, over = find(asked, "lookup_order"), find(asked, "refund"), find_handoff(asked)
    if "expert" in asked.said and over is not None and lookup is None and not asked.called and not asked.results:
        return Step(calls=((over, fill(asked.tools[over])),))
    if "forever" in asked.said and lookup and steps < MAX_STEPS:
        return Step(calls=((lookup, {"id": numbers[0] + steps}),))
    done = any(is_shop(name) for name in asked.called) or (asked.results > 0 and not asked.called)
    if numbers and not done and "Refund" in asked.said and pay:
        return Step(calls=((pay, {"id": numbers[0]}),))
    if numbers and not done and "Refund" not in asked.said and lookup:
        wanted = numbers if "Compare" in asked.said else numbers[-1:]
        return Step(calls=tuple((lookup, {"id": number}) for number in wanted))
    end = find_end(asked.said)
    return Step(text=PIECE, end=end) if end else answer_with(asked, say(asked.said, numbers))


def find_end(said: str) -> str:
    """Return why the model stops in the middle of its answer, where it is asked to."""
    return "length" if "at length" in said else "content_filter" if "forbidden" in said else ""


def is_shop(name: str) -> bool:
    return name.endswith(("lookup_order", "refund"))


def find(asked: Asked, tool: str) -> str | None:
    return next((name for name in asked.tools if name.endswith(tool)), None)


def find_handoff(asked: Asked) -> str | None:
    return next((name for name in asked.tools if re.search("transfer|hand_?off|delegate|expert", name, re.IGNORECASE)), None)


def fill(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments for a tool that hands over."""
    wanted = {key: kind for key, kind in (schema.get("properties") or {}).items() if key in (schema.get("required") or [key])}
    names = {key: "expert" for key in wanted if re.search("agent|coworker|to_|target|name", key)}
    kinds = {key: (kind or {}).get("type", "string") for key, kind in wanted.items()}
    texts = {key: names.get(key, "Where is order 17?") for key, kind in kinds.items() if kind in ("string", "STRING")}
    # Haystack hands messages to an agent.
    return {**texts, **({"messages": [{"role": "user", "content": [{"text": "Where is order 17?"}]}]} if "messages" in kinds else {})}


def say(said: str, numbers: list[int]) -> str:
    """What the model answers in the end."""
    if "who are you" in said or not numbers:
        return "I am the support agent of this shop."
    if "Refund" in said:
        return f"Order {numbers[0]} could not be refunded."
    return f"Orders {numbers[0]} and {numbers[1]} have shipped." if "Compare" in said else f"Order {numbers[-1]} has shipped."


def answer_with(asked: Asked, text: str) -> Step:
    """An answer in the form that the request wants."""
    form = next((name for name, schema in asked.tools.items() if "order_status" in json.dumps(schema)), None)
    if form is not None:
        return Step(calls=((form, dict(FORM)),))
    if asked.wants_form:
        return Step(text=json.dumps(FORM))
    final = next((name for name in asked.tools if name in _ANSWER_TOOLS), None)
    return Step(calls=((final, {"answer": text}),)) if final else Step(text=text)


def decide_fields(said: str) -> Step:
    """The fields of dspy's ReAct."""
    question = said[said.index("[[ ## question ## ]]") :] if "[[ ## question ## ]]" in said else said
    asked = question.split("[[ ## ", 2)[1] if question.count("[[ ## ") > 1 else question
    numbers = [int(found) for found in re.findall(r"order (\d+)", asked)]
    steps = len(set(re.findall(r"\[\[ ## observation_(\d+) ## \]\]", said)))
    if "break" in asked and steps:
        raise LookupError("the model breaks, as it was asked to")
    wanted = len(numbers) if "Compare" in asked else 1 if numbers else 0
    if "`[[ ## next_tool_name ## ]]`" not in said:
        fields = {"reasoning": "All is done."} if "`[[ ## reasoning ## ]]`" in said else {}
        fields |= {"form": json.dumps(FORM)} if "`[[ ## form ## ]]`" in said else {"answer": say(asked, numbers)}
    elif steps >= wanted and "forever" not in asked:
        fields = {"next_thought": "I know enough.", "next_tool_name": "finish", "next_tool_args": "{}"}
    else:
        name = "refund" if "Refund" in asked else "lookup_order"
        number = numbers[0] + steps if "forever" in asked else numbers[steps]
        SEEN.calls.append((name, {"id": number}))
        fields = {"next_thought": "I look.", "next_tool_name": name, "next_tool_args": json.dumps({"id": number})}
    end = find_end(asked) if "answer" in fields else ""
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
    said = Said(step, step, next(_NUMBERS), INPUT_TOKENS, OUTPUT_TOKENS, model)
    if found:
        return ("text/event-stream", gemini.stream(said)) if found[2] else ("application/json", one(gemini.whole(said)))
    if route.endswith("/chat/completions"):
        return ("text/event-stream", openai_chat.stream(said, request)) if streamed else ("application/json", one(openai_chat.whole(said)))
    if route.endswith("/responses"):
        whole = openai_responses.whole(said, request)
        return ("text/event-stream", openai_responses.stream(said, request)) if streamed else ("application/json", one(whole))
    raise LookupError(f"no provider has the path {path}")


class ReturnsHandler(Handler):
    """One request to this model."""

    def answer(self, request: dict[str, Any]) -> tuple[str, Iterable[bytes]]:
        return answer(self.path, request)


@contextmanager
def serve() -> Iterator[str]:
    """Serve the model on loopback; gives its address."""
    server = QuietServer(("127.0.0.1", 0), ReturnsHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
