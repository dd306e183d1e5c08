"""One span, read as a request to a model: its input and output messages, why the model stopped, and whether its calls are known.

Attributes may be JSON text where a convention wants a structure; both are read. `message_reader` reads the messages, and what it does not
recognise is listed in `Step.unrecognised`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from proctor.evidence.otlp.spans import Span, SpanEvent
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.usage import read_count
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.kind import find_kind
from proctor.evidence.traces.message_reader import MessageCache, ParsedMessages
from proctor.evidence.traces.shape import decode_attribute, find_shape, find_value, unflatten
from proctor.evidence.unknowns.endings import find_stop
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json, ToolCall

_FINAL = split_words("stop end_turn stop_sequence eos end")
"""Reasons to stop that exclude a request for tools."""
_STOPS_WITH_CALLS = ("gemini", "google", "vertex", "gcp", "ollama")
"""Providers that report `stop` also for an answer with calls."""
_UNFINISHED = frozenset(("", "in_progress"))
_NO_REASON: frozenset[str] = frozenset()
_PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider")


@functools.lru_cache(maxsize=256)
def _find_stops(finish: frozenset[str]) -> frozenset[str | None]:
    return frozenset("tools" if word == "tool_call_requested" else find_stop(word) for word in finish)


class Step:
    """One span, read as a request to a model if it is one."""

    # Defaults of the class: most spans are no requests, and most requests have few of these.
    inputs: list[Message] | None = None
    """The messages that a model received; None if they were not captured."""
    outputs: list[Message] | None = None
    """The messages that the model returned."""
    calls: Sequence[ToolCall] = ()
    """The calls that the model requested."""
    text: str | None = None
    """The output of the model as one text."""
    finish = _NO_REASON
    """Why the model stopped, in lower case."""
    choices = 1
    """How many answers the model was asked for, or returned."""
    is_whole = False
    """Whether the answer is there as the provider returned it."""
    unrecognised: Sequence[str] = ()

    def __init__(self, span: Span, hearings: MessageCache) -> None:
        self.span = span
        self.shape = find_shape(span.attributes)
        self.kind = find_kind(span, self.shape)
        if self.kind == "model":
            self._hearings = hearings
            self._read_exchange()
            if self.outputs:
                self.calls, self.text = list_calls(self.outputs), join_last_text(self.outputs)

    def stopped_for_tools(self) -> bool:
        """Return whether the model stopped to call tools."""
        return bool(self.finish) and "tools" in _find_stops(self.finish)

    def explain_cut(self) -> str | None:
        """Explain why the answer is incomplete, or return None if the model finished or returned nothing."""
        if not self.outputs:
            return None
        if self.breaks_off():
            return "broke off: its span ended in an error, or it has no finish reason"
        stops = _find_stops(self.finish)
        return "was cut at the token limit" if "cut" in stops else "was cut by a content filter" if "filtered" in stops else None

    def breaks_off(self) -> bool:
        """Return whether the answer ended before the model finished, so that anything could have followed."""
        if not self.outputs:
            return False
        unfinished = bool(self.finish) and (not self.finish.isdisjoint(_UNFINISHED) or "failed" in _find_stops(self.finish))
        return unfinished or self._has_failed()

    def _has_failed(self) -> bool:
        """Return whether the request itself failed; OpenInference also marks a request that follows a failed tool."""
        span = self.span
        if not span.failed:
            return False
        return not self.finish or vocabulary.ERROR_TYPE in span.attributes or any(event.name == "exception" for event in span.events)

    def knows_calls(self) -> bool:
        """Return whether it is known which tools this request asked for: by its content, or by a finish reason that excludes tools."""
        if self.unrecognised:
            return False
        if self.calls:
            return True
        return not self.stopped_for_tools() if self.text else self._excludes_tools()

    def _excludes_tools(self) -> bool:
        if not self.finish or not self.finish <= _FINAL:
            return False
        provider = str(find_first(self.span.attributes, *_PROVIDER) or "").lower()
        return not any(word in provider for word in _STOPS_WITH_CALLS)

    def loses_calls(self) -> bool:
        """Return whether the answer may have more calls than were recorded of it."""
        # Ids that begin with `resp_` are those of OpenAI's Responses; its chat completions are recorded whole.
        if self.span.scope not in vocabulary.KEEPS_ONE_CALL or not self.calls:
            return False
        return (find_response_id(self) or "").startswith("resp_")

    def hides_hosted_tools(self) -> bool:
        """Return whether the provider may have run tools of its own that the recorded answer does not show."""
        if self.span.scope in vocabulary.DROPS_CALLS:
            return True
        if self.span.scope in vocabulary.DROPS_HOSTED:
            return not runs_no_tools(self)
        attributes, offered = self.span.attributes, self.shape.names["offered"]
        # A whole answer, or one that shows a call which the provider ran, would show any other as well.
        if (
            not (offered or self.shape.indexed_tools)
            or self.is_whole
            or any(call.server is not None or call.result is not None for call in self.calls)
        ):
            return False
        if any(not isinstance(decode_attribute(attributes, key) or [], list) for key in offered if key in vocabulary.OFFERED_LISTS):
            return True
        return any(is_hosted(tool) for tool in list_offered_tools(self)) and not any(message.results for message in self.outputs or ())

    def _read_exchange(self) -> None:
        span, shape = self.span, self.shape
        if shape.names["finish"]:
            self.finish = _read_finish_reasons(span.attributes, shape.names["finish"])
        # Wrong messages are worse than none: then the answer counts as not captured.
        if span.scope in vocabulary.UNRELIABLE:
            return
        if vocabulary.CHOICES in span.attributes or shape.names["parameters"]:
            self.choices = _count_requested_choices(self)
        if not span.events and not shape.has_content:
            return
        self.unrecognised = []
        # Each source only if the ones before have nothing: attributes with messages, the raw answer, the event with both sides, text and
        # calls in separate attributes, an event for each message, and last a whole conversation in one attribute.
        self.inputs = self._read_messages("input_messages", vocabulary.INDEXED_INPUT if shape.indexed_input else (), "user")
        self.outputs = self._read_messages("output_messages", vocabulary.INDEXED_OUTPUT if shape.indexed_output else (), "assistant")
        if "output.value" in span.attributes:
            self._prefer_raw_answer()
        for event in span.events:
            if event.name == vocabulary.DETAILS_EVENT:
                self._read_details(event)
        if self.outputs is None and (shape.names["output_text"] or shape.names["output_calls"]):
            self._read_text_and_calls()
        if span.events and (self.inputs is None or self.outputs is None):
            self._read_events(span.events)
        for key in shape.names["conversations"]:
            if (self.inputs is None or self.outputs is None) and span.attributes[key] is not None:
                self._read_conversation(span.attributes[key])

    def _parse(self, value: Json, role: Role) -> ParsedMessages:
        heard = ParsedMessages()
        heard.read(value, role)
        self.unrecognised = [*self.unrecognised, *heard.unrecognised]
        return heard

    def _read_messages(self, table: str, indexed: tuple[str, ...], role: Role) -> list[Message] | None:
        attributes = self.span.attributes
        for key in self.shape.names[table]:
            # The text itself if it is one of a structure: other spans may hold the same, which is then parsed once.
            value = attributes[key]
            value = decode_attribute(attributes, key) if isinstance(value, str) and value[:1] == '"' else value
            if value is None or value in ({}, ""):
                continue
            only = key in vocabulary.ONLY_MESSAGES
            heard = self._hearings.read_messages(value, role) if only else self._hearings.read(value, role)
            if heard.messages or (only and decode_container(value) != {}):
                self.unrecognised = [*self.unrecognised, *heard.unrecognised]
            if heard.messages:
                self._note_ends(heard, role)
                return heard.messages
        for prefix in indexed:
            entries = unflatten(attributes, prefix)
            if entries:
                heard = self._parse([_with_role(entry) for entry in entries] if prefix == "gen_ai.prompt" else entries, role)
                self._note_ends(heard, role)
                return heard.messages
        return None

    def _note_ends(self, heard: ParsedMessages, role: Role) -> None:
        """Take the finish reason from the messages."""
        if role != "assistant" or not heard.ends:
            return
        if heard.ends[-1] or (not self.finish and self.span.scope in vocabulary.NAMES_ENDS):
            self.finish |= {heard.ends[-1]}
        if len(heard.ends) > self.choices and runs_no_tools(self):
            self.choices = len(heard.ends)  # Elsewhere one answer may be recorded in several messages.

    def _prefer_raw_answer(self) -> None:
        """Use the provider's raw answer if it has more calls than the messages."""
        raw = decode_attribute(self.span.attributes, "output.value")
        raw = raw[0] if isinstance(raw, list) and len(raw) == 1 else raw
        if not isinstance(raw, dict) or not {"choices", "output", "content", "candidates"} & set(raw):
            return
        choices = list_of(raw.get("choices"))
        self.choices = max(self.choices, len(choices))
        reasons = [dict_or_empty(choice).get("finish_reason") for choice in choices] or ([raw.get("status")] if "output" in raw else [])
        self.finish |= {str(word or "").lower() for word in reasons if word or raw.get("object") == "chat.completion.chunk"}
        heard = ParsedMessages()
        heard.read(raw, "assistant")
        # A raw answer that is not wholly recognised must not replace messages that are.
        if not heard.messages or heard.unrecognised:
            return
        # A list of blocks or items: calls that the provider itself ran would be among them.
        self.is_whole = any(isinstance(raw.get(key), list) for key in ("content", "output"))
        # Instrumentations lose calls when they translate an answer, and never invent them.
        if self.outputs is None or len(list_calls(heard.messages)) > len(list_calls(self.outputs)):
            self.outputs = heard.messages

    def _read_text_and_calls(self) -> None:
        attributes = self.span.attributes
        text = find_value(attributes, self.shape.names["output_text"])
        calls = decode_attribute(attributes, vocabulary.OUTPUT_CALLS)
        if text is not None or calls is not None:
            self.outputs = self._parse({"role": "assistant", "content": text, "tool_calls": calls}, "assistant").messages

    def _read_details(self, event: SpanEvent) -> None:
        held = {**event.attributes, **dict_or_empty(event.attributes.get("body"))}
        if held.get("gen_ai.input.messages") is not None:
            inputs = self._parse(held["gen_ai.input.messages"], "user").messages
            self.inputs = inputs if self.inputs is None else self.inputs
        if held.get("gen_ai.output.messages") is not None:
            outputs = self._parse(held["gen_ai.output.messages"], "assistant").messages
            self.outputs = outputs if self.outputs is None else self.outputs

    def _read_events(self, events: Sequence[SpanEvent]) -> None:
        inputs, outputs = ParsedMessages(), ParsedMessages()
        for event in events:
            content = read_event_message(event)
            if content is not None:
                is_output = event.name in vocabulary.OUTPUT_EVENTS
                (outputs if is_output else inputs).read(content, "assistant" if is_output else "user")
        self.unrecognised = [*self.unrecognised, *inputs.unrecognised, *outputs.unrecognised]
        self.inputs = self.inputs if self.inputs is not None else inputs.messages or None
        self.outputs = self.outputs if self.outputs is not None else outputs.messages or None

    def _read_conversation(self, value: Json) -> None:
        entries = list_of(decode_container(value))
        chosen = [entry for entry in entries if dict_or_empty(entry).get("event.name") == "gen_ai.choice"]
        messages = self._parse([entry for entry in entries if entry not in chosen], "user").messages
        outputs = self._parse(chosen, "assistant").messages
        # Without an event of a choice nothing marks the answer: it is what the assistant said after everything else.
        while not chosen and messages and messages[-1].role == "assistant":
            outputs.insert(0, messages.pop())
        self.inputs = messages if self.inputs is None else self.inputs
        self.outputs = self.outputs if self.outputs is not None else outputs or None


def list_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls in messages."""
    return [call for message in messages for call in message.calls]


def _count_requested_choices(step: Step) -> int:
    """Return how many answers a model was asked for."""
    own = read_count(step.span.attributes.get(vocabulary.CHOICES))
    for key in step.shape.names["parameters"] if own is None else ():
        own = read_count(dict_or_empty(decode_attribute(step.span.attributes, key)).get("n"))
    return own or 1


def _with_role(entry: Json) -> Json:
    """Return a message with its role if OpenLLMetry calls it unknown: a tool's result, or the pieces of an answer with calls."""
    message = dict_or_empty(entry)
    return {**message, "role": "assistant" if message.get("tool_calls") else "tool"} if message.get("role") == "unknown" else entry


def join_last_text(messages: Sequence[Message]) -> str | None:
    """Return the last text of the assistant, joined if it came in pieces."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant" and message.text:
            texts.append(message.text)
        # Pieces of one answer follow each other: a call or a result between two texts separates them. Nothing before the last message of
        # a user answers it.
        if (message.role != "assistant" or message.calls or message.results) and (texts or message.role == "user"):
            break
    return "".join(reversed(texts)) if texts else None


def _read_finish_reasons(attributes: dict[str, Json], keys: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = set()
    for key in keys:
        value = decode_attribute(attributes, key)
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and word:
                found.add(word.lower().rpartition(".")[2])  # Some print the member of an enumeration: `FinishReason.STOP`.
    return frozenset(found)


def find_response_id(step: Step) -> str | None:
    """Return the provider's id of the answer; OpenInference has it only in the raw answer."""
    attributes = step.span.attributes
    own = text_or_none(find_value(attributes, step.shape.names["response_id"]))
    if own is not None or "output.value" not in attributes:
        return own
    raw = dict_or_empty(decode_attribute(attributes, "output.value"))
    if "llm_output" in raw:
        return text_or_none(dict_or_empty(raw["llm_output"]).get("id"))
    return text_or_none(raw.get("id")) if {"choices", "content", "output"} & set(raw) else None


def runs_no_tools(step: Step) -> bool:
    """Return whether a request went to an endpoint of OpenAI that runs no tools: chat completions, or those before."""
    if step.span.name == "openai.chat" or (find_response_id(step) or "").startswith("chatcmpl"):
        return True
    return any(step.span.attributes.get(key) in words for key, words in vocabulary.RUNS_NO_TOOLS.items())


def find_duration_ms(span: Span) -> float | None:
    """Return how long a span took, or None if it has no times."""
    return (span.end_ns - span.start_ns) / 1e6 if span.start_ns and span.end_ns >= span.start_ns else None


# --- events


def read_event_message(event: SpanEvent) -> Json:
    """Return the message of an event, or None if it has none or its content was not captured."""
    role = vocabulary.INPUT_EVENTS.get(event.name)
    if role is None and event.name not in vocabulary.OUTPUT_EVENTS:
        return None
    role = role or "assistant"
    content = decode_container(find_first(event.attributes, *vocabulary.EVENT_CONTENT))
    if isinstance(content, dict) and not {"role", "tool_calls", "content", "message"}.isdisjoint(content):
        inner = decode_container(content.get("message")) if "message" in content else content
        if inner is not None and not isinstance(inner, (dict, str)):
            return {"role": role, "content": inner}
        if isinstance(inner, dict) and isinstance(inner.get("content"), dict) and "parts" in inner["content"]:
            inner = inner["content"]  # Gemini
        if isinstance(inner, dict) and "role" in inner:
            return inner
        return {"role": role, **dict_or_empty(inner)} if inner else None
    if isinstance(content, list) and content and "role" in dict_or_empty(content[0]):
        return content
    calls = event.attributes.get("tool_calls")
    if content is None and calls is None:
        return None
    id = find_first(event.attributes, "id", "tool_call_id")
    return {
        "role": role,
        "content": content,
        **({"tool_calls": calls} if calls is not None else {}),
        **({"tool_call_id": id} if id else {}),
    }


# --- offered tools


def list_offered_tools(step: Step) -> list[Json]:
    """Return the tools that a model was offered, as far as a span records them."""
    attributes = step.span.attributes
    for key in step.shape.names["offered"]:
        value = decode_attribute(attributes, key)
        if isinstance(value, dict):
            value = value.get("tools")
        elif key not in vocabulary.OFFERED_LISTS:
            continue
        if isinstance(value, list) and value:
            return value
    # OpenInference lists each tool in attributes of its own, `llm.tools.0.tool.json_schema` and so on.
    listed = unflatten(attributes, "llm.tools")
    return [decode_container(dict_or_empty(dict_or_empty(entry).get("tool")).get("json_schema")) for entry in listed]


def is_hosted(tool: Json) -> bool:
    """Return whether the provider runs a tool itself: the tool has a type of its own, or no name."""
    if isinstance(tool, list):
        return True
    entry = dict_or_empty(tool)
    kind = entry.get("type")
    if isinstance(kind, str) and kind not in ("function", "object", "tool", "FunctionTool"):
        return True
    named = find_first(entry, "name", "function", "functionDeclarations", "function_declarations", "toolSpec", "tool")
    return bool(entry) and named is None and ("name" in entry or not {"parameters", "input_schema", "properties"} & set(entry))


def has_schema(tool: Json) -> bool:
    """Return whether an offered tool describes its arguments, as a tool of the application does."""
    return any(isinstance(dict_or_empty(tool).get(key), dict) for key in ("input_schema", "parameters"))
