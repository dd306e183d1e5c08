"""What one span says: its kind, what went in and came out, tokens, and the tool it called.

Attributes may be JSON text where a convention wants a structure; both are read. Names come from `vocabulary`, messages are read by
`span_messages`. What is not understood is kept by name in `Step.strange`.
"""

from __future__ import annotations

import re
from typing import Any

from proctor.evidence import vocabulary as names
from proctor.evidence.conversation import Message, Role
from proctor.evidence.json_bytes import container_in, embedded
from proctor.evidence.shape import dict_of, first_of, list_of, text_or_none
from proctor.evidence.span_messages import Heard
from proctor.evidence.spans import NOT_UNDERSTOOD, Span, SpanEvent
from proctor.evidence.usage import count_of, read_usage, usage_in
from proctor.model.evidence import Json, ToolCall, Usage
from proctor.model.missing import MISSING

_INDEX = re.compile(r"^(\d{1,4})(?:\.(.+))?$", re.DOTALL)
_WORDED_COUNT = re.compile(r"\b(\w{1,40})=(\d{1,12})\b")
_MAX_SEGMENTS = 16
"""How deep a flattened name may nest; the conventions need eight."""
_PLACEHOLDER = "[Object]"
_AGENT_SPAN = re.compile(r"^(?:invoke_agent|agent_run|agent run|execute_task)\s+\[?([^\]]+)\]?$")
_SAYS_TOOLS = frozenset(
    ("tool_calls", "tool_call", "tool_use", "tool-calls", "tool-call", "tool_call_requested", "function_call", "tooluse")
)
"""Reasons to stop that mean: the model asked for tools."""
_STOP = frozenset(("stop",))
_HONEST_STOP = frozenset(("end_turn", "stop_sequence"))
"""Reasons that no provider gives together with a call. Gemini, OpenAI's Responses and servers that imitate OpenAI say `stop` even then."""

# Most spans carry few of the names that are looked for. Whether they have any at all is asked first: that is many times as fast.
_TOKENS = frozenset((*names.INPUT_TOKENS, *names.OUTPUT_TOKENS, *names.TOTAL_TOKENS))
_USAGE_OBJECTS = frozenset(names.USAGE_OBJECTS)
_SPEAKING = frozenset((*names.SAID_TEXT, "all_messages_events", "gen_ai.output.messages", "gen_ai.input.messages"))
"""Names that tell an answer, on a span that does not say what it is."""
_HAYSTACK_KINDS = {
    "haystack.agent.run": "agent",
    "haystack.agent.step.llm": "model",
    "haystack.agent.step.tool": "tool",
    "haystack.agent.step": "task",
    "haystack.pipeline.run": "workflow",
}
_LOGFIRE_KINDS = (
    ("Function: ", "tool"),
    ("Agent run", "agent"),
    ("MCP tools", "step"),
    ("Turn ", "task"),
    ("Task:", "task"),
    ("Handoff", "task"),
)
_TEMPLATE = "logfire.msg_template"


class Step:
    """One span, read."""

    __slots__ = ("_usage", "finish", "given", "is_whole", "kind", "said", "span", "strange")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.kind = kind_of_span(span)
        self.strange: list[str] = []
        self.given: list[Message] | None = None
        """The messages a model was given; nothing where they were not captured."""
        self.said: list[Message] | None = None
        """What the model gave back."""
        self.finish: frozenset[str] = frozenset()
        """Why the model stopped, in lower case."""
        self.is_whole = False
        """Whether the answer is there as the provider gave it."""
        self._usage: Usage | None = None
        if self.kind == "model":
            self._read_exchange()

    @property
    def calls(self) -> list[ToolCall]:
        """The calls the model asked for."""
        return [call for message in self.said or () for call in message.calls]

    def text(self) -> str | None:
        """What the model said, as one text."""
        return spoken(self.said or ())

    def says_tools(self) -> bool:
        """Whether the model stopped in order to call tools."""
        return not self.finish.isdisjoint(_SAYS_TOOLS)

    def excludes_tools(self) -> bool:
        """Whether the reason to stop shows that the model asked for no tool."""
        return bool(self.finish) and self.finish <= _HONEST_STOP

    def knows_calls(self) -> bool:
        """Whether it is known which tools this request asked for."""
        if self.strange or self.hides_hosted_tools():
            return False
        if self.calls:
            return True
        if not self.text():
            # A model that said nothing and called nothing: whoever recorded it did not understand the answer.
            return self.excludes_tools() or self._names_no_call()
        return not self.says_tools()

    def _names_no_call(self) -> bool:
        """Whether the event of the answer, whose content was not captured, would name calls and names none."""
        if self.span.scope not in names.NAMES_CALLS or self.finish != _STOP:
            return False
        chosen = [dict_of(event.attributes.get("body")) for event in self.span.events if event.name in names.EVENT_SAID]
        return bool(chosen) and all(choice.get("message") == {} and choice.get("finish_reason") == "stop" for choice in chosen)

    def loses_calls(self) -> bool:
        """Whether there may be more calls in the answer than were recorded of it."""
        return bool(self.calls) and self.span.scope in names.KEEPS_ONE_CALL and (response_id(self.span) or "").startswith("resp_")

    def hides_hosted_tools(self) -> bool:
        """Whether the provider may have run tools of its own of which the answer, as it was recorded, does not tell."""
        if self.span.scope in names.DROPS_CALLS:
            return True
        if self.is_whole or any(call.server is not None or call.result is not None for call in self.calls):
            return False
        if any(not isinstance(attribute_value(self.span.attributes, key) or [], list) for key in names.OFFERED_LISTS):
            return True  # Something was offered, and nobody understands what.
        offered = offered_tools(self.span)
        if not offered and self.span.scope in names.DROPS_HOSTED and not _is_chat(self.span):
            return True
        return any(_is_hosted(tool) for tool in offered) and not any(message.results for message in self.said or ())

    def _read_exchange(self) -> None:
        attributes, events = self.span.attributes, self.span.events
        self.finish = finish_reasons(self.span)
        if self.span.scope in names.UNRELIABLE:
            return
        self.given = self._heard(names.GIVEN, names.GIVEN_INDEXED, "user")
        self.said = self._heard(names.SAID, names.SAID_INDEXED, "assistant")
        self._prefer_raw_answer()
        if any(event.name in names.EVENT_DETAILS for event in events):
            self._read_details(events)
        if self.said is None:
            self.said = self._spoken()
        if self.given is None or self.said is None:
            self._read_events(events)
        for key in names.BOTH:
            if (self.given is None or self.said is None) and attributes.get(key) is not None:
                self._read_both(attributes[key])

    def _heard(self, keys: tuple[str, ...], indexed: tuple[str, ...], role: Role) -> list[Message] | None:
        attributes = self.span.attributes
        for key in keys:
            value = attribute_value(attributes, key)
            if value is None or value in ({}, ""):
                continue
            heard = Heard()
            if key in names.ONLY_MESSAGES:
                heard.read_messages(value, role)
            else:
                heard.read(value, role)
            if not heard.messages:
                # No messages at all: another thing under the same name, or nothing that anybody understood.
                if key in names.ONLY_MESSAGES:
                    self.strange.extend(heard.strange)
                continue
            self.strange.extend(heard.strange)
            return heard.messages
        for prefix in indexed:
            entries = unflattened(attributes, prefix)
            if entries:
                heard = Heard()
                heard.read(entries, role)
                self.strange.extend(heard.strange)
                return heard.messages
        return None

    def _prefer_raw_answer(self) -> None:
        """Take the answer of the provider itself where a span carries it and it tells of more calls than the messages made of it."""
        raw = attribute_value(self.span.attributes, "output.value")
        raw = raw[0] if isinstance(raw, list) and len(raw) == 1 else raw
        if not isinstance(raw, dict) or not {"choices", "output", "content", "candidates"} & set(raw):
            return
        heard = Heard()
        heard.read(raw, "assistant")
        if not heard.messages or heard.strange:
            return
        # A list of blocks or items: what the provider itself ran would stand among them.
        self.is_whole = any(isinstance(raw.get(key), list) for key in ("content", "output"))
        if self.said is None or sum(len(message.calls) for message in heard.messages) > len(self.calls):
            self.said = heard.messages

    def _spoken(self) -> list[Message] | None:
        """What was said in attributes that hold the text and the calls apart."""
        attributes = self.span.attributes
        text = first_of(attributes, *names.SAID_TEXT)
        calls = attribute_value(attributes, names.SAID_CALLS[0])
        if text is None and calls is None:
            return None
        heard = Heard()
        heard.read({"role": "assistant", "content": text, "tool_calls": calls}, "assistant")
        self.strange.extend(heard.strange)
        return heard.messages

    def _read_details(self, events: tuple[SpanEvent, ...]) -> None:
        for event in events:
            if event.name not in names.EVENT_DETAILS:
                continue
            held = {**event.attributes, **dict_of(event.attributes.get("body"))}
            for key, role in (("gen_ai.input.messages", "user"), ("gen_ai.output.messages", "assistant")):
                if held.get(key) is None:
                    continue
                heard = Heard()
                heard.read(held[key], "user" if role == "user" else "assistant")
                self.strange.extend(heard.strange)
                if role == "user":
                    self.given = heard.messages if self.given is None else self.given
                else:
                    self.said = heard.messages if self.said is None else self.said

    def _read_events(self, events: tuple[SpanEvent, ...]) -> None:
        given, said = Heard(), Heard()
        for event in events:
            content = _event_message(event)
            if content is None:
                continue
            if event.name in names.EVENT_SAID:
                said.read(content, "assistant")
            else:
                given.read(content, "user")
        self.strange.extend((*given.strange, *said.strange))
        if self.given is None and given.messages:
            self.given = given.messages
        if self.said is None and said.messages:
            self.said = said.messages

    def _read_both(self, value: Json) -> None:
        entries = list_of(container_in(value))
        chosen = [entry for entry in entries if dict_of(entry).get("event.name") == "gen_ai.choice"]
        heard, said = Heard(), Heard()
        heard.read([entry for entry in entries if entry not in chosen], "user")
        said.read(chosen, "assistant")
        self.strange.extend((*heard.strange, *said.strange))
        messages = heard.messages
        while not chosen and messages and messages[-1].role == "assistant":
            said.messages.insert(0, messages.pop())
        if self.given is None:
            self.given = messages
        if self.said is None and said.messages:
            self.said = said.messages


def spoken(messages: list[Message] | tuple[Message, ...]) -> str | None:
    """Return what the assistant said last, put together where it came in pieces."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant" and message.text:
            texts.append(message.text)
        if message.role != "assistant" or message.calls or message.results:
            if texts:
                break
            if message.role == "user":
                break
    return "".join(reversed(texts)) if texts else None


def kind_of_span(span: Span) -> str | None:
    """Return `tool`, `agent`, `model`, another word of ours, or nothing where a span does not say what it is."""
    attributes = span.attributes
    if not attributes:
        return None
    if span.name in _HAYSTACK_KINDS:
        return _HAYSTACK_KINDS[span.name]
    if not names.KIND_NAMES.isdisjoint(attributes):
        told = _told_kind(attributes)
        if told not in ("tool", None, "model", "agent") and _is_tool(attributes):
            return "tool"
        if told == "tool" and (span.name in names.NOT_TOOLS or text_or_none(first_of(attributes, *names.TOOL_NAME)) in names.NOT_TOOLS):
            return "step"
        if told is not None:
            return told
    if _is_tool(attributes):
        return "tool"
    if _TEMPLATE in attributes:
        for start, kind in _LOGFIRE_KINDS:
            if str(attributes[_TEMPLATE]).startswith(start) or span.name.startswith(start):
                return kind
    if span.name.endswith(".mcp"):
        return "tool" if span.name.startswith("tools/call") else "mcp"  # Traceloop
    if not names.MODEL_MARKS.isdisjoint(attributes):
        return "model"
    component = text_or_none(attributes.get("haystack.component.type"))
    if component is not None:
        return "model" if component.endswith(("Generator", "GeneratorAdapter")) else "step"
    if not _SPEAKING.isdisjoint(attributes):
        return "agent"
    return None


def _told_kind(attributes: dict[str, Json]) -> str | None:
    """What a span says it is, by the first word that is known; `unknown` where it says something nobody knows."""
    unknown: str | None = None
    for key in names.KIND:
        word = _unquoted(attributes.get(key))
        if word is None:
            continue
        if isinstance(word, str):
            kind = names.KINDS.get(word) or names.KINDS.get(word.lower()) or _other_kind(key, word)
            if kind is not None:
                return kind
        unknown = "unknown"
    return unknown


def _other_kind(key: str, word: str) -> str | None:
    """A word of a convention that may grow: AI SDK's operations, and methods of MCP."""
    if key == "ai.operationId":
        return "model" if ".do" in word else "agent"
    if key == "mcp.method.name":
        return "mcp"
    if key == "llm.request.type":
        return "model"
    return None


def _is_tool(attributes: dict[str, Json]) -> bool:
    if not names.TOOL_MARKS.isdisjoint(attributes):
        name = text_or_none(first_of(attributes, *names.TOOL_MARKS))
        return bool(name) and name not in names.NOT_TOOLS
    return "tool.name" in attributes and "tool.arguments" in attributes


def could_tell_of_work(span: Span) -> str | None:
    """Return the first attribute of a span that may tell of an agent's work, for a span of which nobody knows what it is."""
    if NOT_UNDERSTOOD in span.attributes:
        return NOT_UNDERSTOOD
    for key in span.attributes:
        if key.startswith(names.GENAI_PREFIXES) and key not in names.HARMLESS and not key.startswith(names.HARMLESS_PREFIXES):
            return key
    return None


def finish_reasons(span: Span) -> frozenset[str]:
    """Return why a model stopped, in lower case."""
    attributes = span.attributes
    found: set[str] = set()
    for key in names.FINISH_REASONS:
        value = attribute_value(attributes, key)
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and word:
                found.add(word.lower().rpartition(".")[2])
    return frozenset(found)


def usage_of_span(span: Span) -> Usage | None:
    """Return the tokens a span itself reports."""
    attributes = span.attributes
    if not _TOKENS.isdisjoint(attributes):
        counts = [_count(attributes, table) for table in (names.INPUT_TOKENS, names.OUTPUT_TOKENS, names.TOTAL_TOKENS)]
        if counts != [None, None, None]:
            return Usage(input_tokens=counts[0], output_tokens=counts[1], total_tokens=counts[2])
    if isinstance(words := attributes.get(names.USAGE_WORDS), str):
        return read_usage({key: int(count) for key, count in _WORDED_COUNT.findall(words)})
    if _USAGE_OBJECTS.isdisjoint(attributes):
        return _usage_of_messages(span)
    for key in names.USAGE_OBJECTS:
        value = dict_of(attribute_value(attributes, key))
        found = read_usage(value) or _usage_by_kind(value)
        if found is not None:
            return found
    return None


def _usage_by_kind(value: dict[str, Any]) -> Usage | None:
    """Langfuse splits tokens by kind: `input`, `input_cached_tokens`, `output`, `output_reasoning_tokens`, ..."""
    inputs = [count_of(count) or 0 for key, count in value.items() if key.startswith("input")]
    outputs = [count_of(count) or 0 for key, count in value.items() if key.startswith("output")]
    if not inputs and not outputs:
        return None
    return Usage(input_tokens=sum(inputs) if inputs else None, output_tokens=sum(outputs) if outputs else None)


def _usage_of_messages(span: Span) -> Usage | None:
    """Haystack keeps tokens in the replies themselves."""
    held = first_of(span.attributes, "haystack.agent.step.llm.output", "haystack.component.output", "genkit:output")
    raw = dict_of(container_in(held)) if held is not None else {}
    replies = list_of(raw.get("replies"))
    return read_usage(dict_of(dict_of(replies[0]).get("meta")).get("usage")) if replies else usage_in(raw)


def _count(attributes: dict[str, Json], table: tuple[str, ...]) -> int | None:
    for key in table:
        if key in attributes:
            count = count_of(attributes[key])
            if count is not None:
                return count
    return None


def attribute_value(attributes: dict[str, Json], key: str) -> Json:
    """Return an attribute decoded: a structure out of its JSON text, a text out of its quotes."""
    value = attributes.get(key)
    if isinstance(value, str):
        return _unquoted(container_in(value))
    return value


def _unquoted(value: Json) -> Json:
    # MLflow writes every attribute as JSON, so its texts stand in quotes.
    if isinstance(value, str) and value[:1] == '"':
        inner = embedded(value)
        return value if inner is MISSING else inner
    return value


def unflattened(attributes: dict[str, Json], prefix: str) -> list[Json]:
    """Return `prefix.0.message.role` and the like as a list of nested objects."""
    start = f"{prefix}."
    flat = {key[len(start) :]: value for key, value in attributes.items() if key.startswith(start)}
    return list_of(_nested(flat, 0)) if flat else []


def _nested(flat: dict[str, Json], depth: int) -> Json:
    """Put names with dots together again: numbers index lists, everything else is a member."""
    if depth > _MAX_SEGMENTS:
        return flat
    groups: dict[str, dict[str, Json]] = {}
    leaves: dict[str, Json] = {}
    for key, value in flat.items():
        head, dot, rest = key.partition(".")
        if dot:
            groups.setdefault(head, {})[rest] = value
        else:
            leaves[head] = value
    inner: dict[str, Json] = {**leaves, **{head: _nested(group, depth + 1) for head, group in groups.items()}}
    if inner and all(_INDEX.match(head) for head in inner):
        return [inner[head] for head in sorted(inner, key=int)]
    for wrapper in ("message", "tool_call", "message_content"):
        if set(inner) == {wrapper} and isinstance(inner[wrapper], dict):
            return inner[wrapper]
    return inner


def _event_message(event: SpanEvent) -> Json:
    """Return the message an event carries; nothing where it is another event, or its content was not captured."""
    role = names.EVENT_ROLES.get(event.name)
    if role is None and event.name not in names.EVENT_SAID:
        return None
    content = container_in(first_of(event.attributes, *names.EVENT_CONTENT))
    if isinstance(content, dict) and ("role" in content or "tool_calls" in content or "content" in content or "message" in content):
        inner = container_in(content.get("message")) if "message" in content else content
        if inner is not None and not isinstance(inner, (dict, str)):
            return {"role": role or "assistant", "content": inner}
        if isinstance(inner, dict) and isinstance(inner.get("content"), dict) and "parts" in inner["content"]:
            inner = inner["content"]  # Gemini
        return inner if isinstance(inner, dict) and "role" in inner else {"role": role or "assistant", **dict_of(inner)} if inner else None
    if isinstance(content, list) and content and "role" in dict_of(content[0]):
        return content
    calls = event.attributes.get("tool_calls")
    if content is None and calls is None:
        return None
    id = first_of(event.attributes, "id", "tool_call_id")
    return {
        "role": role or "assistant",
        "content": content,
        **({"tool_calls": calls} if calls is not None else {}),
        **({"tool_call_id": id} if id else {}),
    }


def offered_tools(span: Span) -> list[Json]:
    """Return the tools a model was offered, as far as a span tells."""
    attributes = span.attributes
    for key in names.OFFERED:
        value = attribute_value(attributes, key)
        if isinstance(value, dict):
            value = value.get("tools")
        elif key not in names.OFFERED_LISTS:
            continue
        if isinstance(value, list) and value:
            return value
    return [container_in(dict_of(dict_of(entry).get("tool")).get("json_schema")) for entry in unflattened(attributes, "llm.tools")]


def _is_chat(span: Span) -> bool:
    """Whether a request went to OpenAI's chat completions, which run no tools of their own."""
    return (response_id(span) or "").startswith("chatcmpl") or span.name == "openai.chat"


def _is_hosted(tool: Json) -> bool:
    """Whether the provider runs a tool itself: it is of a type of its own, or nothing names it."""
    if isinstance(tool, list):
        return True  # Nobody knows what this is.
    entry = dict_of(tool)
    kind = entry.get("type")
    if isinstance(kind, str) and kind not in ("function", "custom", "object", "tool", "FunctionTool"):
        return True
    named = first_of(entry, "name", "function", "functionDeclarations", "function_declarations", "toolSpec", "tool")
    return bool(entry) and named is None and ("name" in entry or not {"parameters", "input_schema", "properties"} & set(entry))


def response_id(span: Span) -> str | None:
    """Return the provider's id of the answer a span tells of; OpenInference has it in the raw answer only."""
    own = text_or_none(first_of(span.attributes, *names.RESPONSE_ID))
    if own is not None or "output.value" not in span.attributes:
        return own
    raw = dict_of(attribute_value(span.attributes, "output.value"))
    if "llm_output" in raw:
        return text_or_none(dict_of(raw["llm_output"]).get("id"))
    return text_or_none(raw.get("id")) if {"choices", "content", "output"} & set(raw) else None


def only_begins(span: Span) -> bool:
    """Whether a root does nothing but mark the beginning: Flowise ends its own at once, with this in place of an answer."""
    return span.attributes.get("output.value") == _PLACEHOLDER


def duration_ms(span: Span) -> float | None:
    """Return how long a span took; nothing if it has no times."""
    return (span.end_ns - span.start_ns) / 1e6 if span.start_ns and span.end_ns >= span.start_ns else None


def name_of_span(span: Span, kind: str | None) -> str:
    """Return the name of the node a span is: an agent's own name, n8n's name of the node, else the span's."""
    attributes = span.attributes
    own = text_or_none(attributes.get(names.N8N_NAME))
    if own is not None:
        return own
    if kind in ("agent", "task", "chain"):
        for key in names.AGENT_NAME if kind == "agent" else ():
            value = _unquoted(attributes.get(key))
            if isinstance(value, str) and value:
                return value
        named = _AGENT_SPAN.match(span.name)
        if named is not None:
            return named.group(1)
    return span.name
