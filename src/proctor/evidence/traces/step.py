"""The spans of one trace as steps in a tree; a request to a model is read into its messages, its calls and why the model stopped.

Attributes may be JSON text where a convention wants a structure; both are read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from operator import attrgetter

from proctor.evidence.otlp.spans import Span, SpanEvent, is_event_only
from proctor.evidence.shared.message import Message, Role
from proctor.evidence.shared.usage import read_count
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.attribute_shapes import decode_attribute, find_shape, find_value, unflatten, unquote
from proctor.evidence.traces.kind import find_kind, name_of_span
from proctor.evidence.traces.message_reader import MessageCache, ParsedMessages, join_last_text
from proctor.evidence.traces.values import decode_output, find_input_text, read_output, read_span_usage
from proctor.evidence.unknowns.statuses import find_stop, is_error, read_status
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json, ToolCall, Usage

_get_start = attrgetter("start_ns")
_PLACEHOLDER = "[Object]"
"""The placeholder that Flowise writes on a root that it ends at once."""
_AGENT_NAME = re.compile(r"agent|assistant|\bbot\b|chat ?bot|copilot", re.IGNORECASE)
_FINAL = split_words("stop end_turn stop_sequence eos end")
"""Finish reasons that exclude a request for tools."""
_STOPS_WITH_CALLS = ("gemini", "google", "vertex", "gcp", "ollama")
"""Providers that also report `stop` for an answer with calls."""
_UNFINISHED = frozenset(("", "in_progress"))
_NO_REASON: frozenset[str] = frozenset()
_NO_STEPS: dict[str | None, Step] = {}
_PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider")


@functools.lru_cache(maxsize=256)
def _find_stops(finish: frozenset[str]) -> frozenset[str | None]:
    return frozenset("tools" if word == "tool_call_requested" else find_stop(word) for word in finish)


class Step:
    """One span, read as a request to a model if it is one."""

    # Class defaults: most spans are not requests, and most requests set few of these.
    parent: Step | None = None
    holder: Step | None = None
    """The nearest step above that is not a tool."""
    depth = 0
    inputs: list[Message] | None = None
    """The messages that a model received; None if they were not captured."""
    outputs: list[Message] | None = None
    calls: Sequence[ToolCall] = ()
    text: str | None = None
    model: str | None = None
    choices = 1
    """The number of answers requested or returned."""
    is_whole = False
    """Whether the answer is recorded as the provider returned it."""
    unrecognised: Sequence[str] = ()
    tool_name: str | bool | None = True
    """The name that a tool span records; true until it is read."""
    _node_name: str | None = None
    _usage: Usage | bool | None = True
    _input: str | bool | None = True
    _output: tuple[str | None, bool] | None = None

    def __init__(self, span: Span, cache: MessageCache) -> None:
        self.span = span
        self.attributes = span.attributes
        self.shape = shape = find_shape(span.attributes)
        self.names = shape.names
        self.kind = find_kind(span.name, span.attributes, shape)
        self.failed = span.failed or (bool(shape.failures) and _reports_failure(span.attributes, shape.failures))
        self.cache = cache
        self.children: list[Step] = []
        self.above = _NO_STEPS
        """The nearest step above of each kind."""
        self.finish = _NO_REASON
        """Why the model stopped, in lower case."""
        if self.kind == "model":
            model = find_value(span.attributes, shape.names["model_name"])
            # MLflow writes every attribute as JSON, so a name may have quotes.
            self.model = model.strip('"') if isinstance(model, str) else None
            if shape.has_request or span.events:
                self._read_request()
            if self.outputs:
                self.calls, self.text = list_calls(self.outputs), join_last_text(self.outputs)

    # --- its place, input, output and tokens

    @property
    def node_name(self) -> str:
        """The name of its node."""
        if self._node_name is None:
            self._node_name = name_of_span(self.span, self.kind, self.shape)
        return self._node_name

    def find_above(self, *kinds: str) -> Step | None:
        """Return the nearest step above that has one of these kinds."""
        found = [self.above[kind] for kind in kinds if kind in self.above]
        return max(found, key=lambda step: step.depth) if found else None

    def list_below(self) -> list[Step]:
        """Return all steps below."""
        found = list(self.children)
        for step in found:  # The list grows while it is read.
            found += step.children
        return found

    def find_usage(self) -> Usage | None:
        """Return the tokens that the span itself reports."""
        if isinstance(self._usage, bool):
            self._usage = read_span_usage(self.attributes, self.shape)
        return self._usage

    def find_input_text(self) -> str | None:
        """Return the input as text."""
        if isinstance(self._input, bool):
            self._input = find_input_text(self.span, self.names["input_value"], self.cache)
        return self._input

    def read_output(self) -> tuple[str | None, bool]:
        """Return the output as text, and whether the span returned only text or messages."""
        if self._output is None:
            self._output = read_output(self.span, self.names, self.cache)
        return self._output

    def find_duration_ms(self) -> float | None:
        """Return how long the span took, or None if it has no times."""
        start, end = self.span.start_ns, self.span.end_ns
        return (end - start) / 1e6 if start and end >= start else None

    def has_ended(self) -> bool:
        """Return whether the span has an end, or has no times at all."""
        return bool(self.span.end_ns or not self.span.start_ns)

    def build_output(self, text: str | None = None) -> Json:
        """Return the output of a node. A bare text becomes `{"text": ...}`, so that checks can select it by name."""
        if text is None and self.kind in ("model", "agent") and self.read_output()[1]:
            text = self.read_output()[0]
        return {"text": text} if text is not None else decode_output(self.attributes, self.names)[0]

    # --- how the request of a model ended

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
        """Return whether the answer ended before the model finished, so that more could have followed."""
        if not self.outputs:
            return False
        if self.finish and (not self.finish.isdisjoint(_UNFINISHED) or "failed" in _find_stops(self.finish)):
            return True
        if not self.finish and not self.has_ended():
            return True
        # OpenInference also marks a request that follows a failed tool.
        return self.failed and (
            not self.finish or vocabulary.ERROR_TYPE in self.attributes or any(event.name == "exception" for event in self.span.events)
        )

    def knows_calls(self) -> bool:
        """Return whether the requested tools are known: by content, or by a finish reason that excludes tools."""
        if self.unrecognised:
            return False
        if self.calls:
            return True
        if self.text:
            return not self.stopped_for_tools()
        if not self.finish or not self.finish <= _FINAL:
            return False
        provider = str(find_first(self.attributes, *_PROVIDER) or "").lower()
        return not any(word in provider for word in _STOPS_WITH_CALLS)

    def loses_calls(self) -> bool:
        """Return whether the answer may have unrecorded calls."""
        if self.span.scope in vocabulary.DROPS_CALLS:
            return True
        # Ids that begin with `resp_` are OpenAI's Responses; its chat completions are recorded completely.
        return self.span.scope in vocabulary.KEEPS_ONE_CALL and bool(self.calls) and (self.find_response_id() or "").startswith("resp_")

    def hides_hosted_tools(self) -> bool:
        """Return whether the provider may have run hosted tools that the recorded answer does not show."""
        if self.span.scope in vocabulary.DROPS_CALLS:
            return True
        if self.span.scope in vocabulary.DROPS_HOSTED:
            return not self._runs_no_tools()
        offered = self.names["offered"]
        # A complete answer, or one with a hosted call, would show all hosted calls.
        if not (offered or self.shape.indexed_tools) or self.is_whole or any(call.server or call.result is not None for call in self.calls):
            return False
        if any(not isinstance(decode_attribute(self.attributes, key) or [], list) for key in offered if key in vocabulary.OFFERED_LISTS):
            return True
        return any(map(_is_hosted, self.list_offered_tools())) and not any(message.results for message in self.outputs or ())

    def list_offered_tools(self) -> list[Json]:
        """Return the tools that a model was offered, if the span records them."""
        for key in self.names["offered"]:
            value = decode_attribute(self.attributes, key)
            if isinstance(value, dict):
                value = value.get("tools")
            elif key not in vocabulary.OFFERED_LISTS:
                continue
            if isinstance(value, list) and value:
                return value
        # OpenInference lists each tool in attributes of its own, `llm.tools.0.tool.json_schema` and so on.
        listed = unflatten(self.attributes, "llm.tools")
        return [decode_container(dict_or_empty(dict_or_empty(entry).get("tool")).get("json_schema")) for entry in listed]

    def find_response_id(self) -> str | None:
        """Return the provider's id of the answer; OpenInference has it only in the raw answer."""
        response_id = text_or_none(find_value(self.attributes, self.names["response_id"]))
        if response_id is not None or "output.value" not in self.attributes:
            return response_id
        raw = dict_or_empty(decode_attribute(self.attributes, "output.value"))
        if "llm_output" in raw:
            return text_or_none(dict_or_empty(raw["llm_output"]).get("id"))
        return text_or_none(raw.get("id")) if {"choices", "content", "output"} & set(raw) else None

    def _runs_no_tools(self) -> bool:
        """Return whether a request went to an OpenAI endpoint without hosted tools: chat completions, or older ones."""
        if self.span.name == "openai.chat" or (self.find_response_id() or "").startswith("chatcmpl"):
            return True
        return any(self.attributes.get(key) in words for key, words in vocabulary.RUNS_NO_TOOLS.items())

    # --- the messages of the request

    def _read_request(self) -> None:
        span, shape, names = self.span, self.shape, self.names
        if names["finish"]:
            keys = names["finish"]
            values = [decode_attribute(span.attributes, key) for key in keys]
            words = [word for value in values for word in (value if isinstance(value, list) else [value])]
            # Some print the member of an enumeration: `FinishReason.STOP`.
            self.finish = frozenset([word.lower().rpartition(".")[2] for word in words if isinstance(word, str) and word])
        # Wrong messages are worse than none: the answer then counts as not captured.
        if span.scope in vocabulary.UNRELIABLE:
            return
        if vocabulary.CHOICES in span.attributes or names["parameters"]:
            self.choices = _count_requested_choices(span.attributes, names["parameters"])
        # Each source only if the ones before have nothing: attributes with messages, the raw answer, the event with both sides, text and
        # calls in separate attributes, an event for each message, and last a whole conversation in one attribute.
        self.inputs = self._read_messages("input_messages", vocabulary.INDEXED_INPUT if shape.indexed_input else (), "user")
        self.outputs = self._read_messages("output_messages", vocabulary.INDEXED_OUTPUT if shape.indexed_output else (), "assistant")
        if "output.value" in span.attributes:
            self._prefer_raw_answer()
        for event in span.events:
            if event.name == vocabulary.DETAILS_EVENT:
                fields = {**event.attributes, **dict_or_empty(event.attributes.get("body"))}
                self._fill(
                    self._hear(fields.get("gen_ai.input.messages"), "user"), self._hear(fields.get("gen_ai.output.messages"), "assistant")
                )
        if self.outputs is None and (names["output_text"] or names["output_calls"]):
            text, calls = find_value(span.attributes, names["output_text"]), decode_attribute(span.attributes, vocabulary.OUTPUT_CALLS)
            if text is not None or calls is not None:
                self.outputs = self._hear({"role": "assistant", "content": text, "tool_calls": calls}, "assistant")
        if span.events and (self.inputs is None or self.outputs is None):
            self._read_events(span.events)
        for key in names["conversations"]:
            if (self.inputs is None or self.outputs is None) and span.attributes[key] is not None:
                entries = list_of(decode_container(span.attributes[key]))
                chosen = [entry for entry in entries if dict_or_empty(entry).get("event.name") == "gen_ai.choice"]
                messages = self._hear([entry for entry in entries if entry not in chosen], "user") or []
                outputs = self._hear(chosen, "assistant") or []
                # Without a choice event, the answer is the assistant's text after everything else.
                while not chosen and messages and messages[-1].role == "assistant":
                    outputs.insert(0, messages.pop())
                self._fill(messages, outputs or None)

    def list_answers(self) -> list[list[Message]]:
        """Return the answer from every place whose content is fully recognised: instrumentations may write several."""
        values = [unquote(self.attributes[key]) for key in self.names["output_messages"]]
        if len(values) == self.shape.answers and not self.span.events:
            return self._list_recognised(values)
        values += [unflatten(self.attributes, prefix) for prefix in vocabulary.INDEXED_OUTPUT] if self.shape.indexed_output else ()
        text, calls = find_value(self.attributes, self.names["output_text"]), find_value(self.attributes, self.names["output_calls"])
        values += [{"role": "assistant", "content": text, "tool_calls": calls}] if text is not None or calls is not None else ()
        for event in self.span.events:
            if event.name == vocabulary.DETAILS_EVENT:
                values.append({**event.attributes, **dict_or_empty(event.attributes.get("body"))}.get("gen_ai.output.messages"))
        values.append([read_event_message(event) for event in self.span.events if event.name in vocabulary.OUTPUT_EVENTS])
        return self._list_recognised(values)

    def _list_recognised(self, values: Sequence[Json]) -> list[list[Message]]:
        answers = [self.cache.read(value, "assistant") for value in values if value not in (None, "", [], {})]
        return [parsed.messages for parsed in answers if parsed.has_content() and not parsed.unrecognised]

    def _hear(self, value: Json, role: Role) -> list[Message] | None:
        if value is None:
            return None
        parsed = self.cache.read(value, role)
        self.unrecognised = [*self.unrecognised, *parsed.unrecognised]
        return parsed.messages

    def _fill(self, inputs: list[Message] | None, outputs: list[Message] | None) -> None:
        self.inputs = inputs if self.inputs is None else self.inputs
        self.outputs = outputs if self.outputs is None else self.outputs

    def _read_messages(self, table: str, indexed: tuple[str, ...], role: Role) -> list[Message] | None:
        for key in self.names[table]:
            # The raw text if it encodes a structure: other spans may have the same text, which is then parsed once.
            value = unquote(self.attributes[key])
            if value is None or value in ({}, ""):
                continue
            only = key in vocabulary.ONLY_MESSAGES
            parsed = self.cache.read(value, role)
            if parsed.messages or only:
                self.unrecognised = [*self.unrecognised, *(parsed.list_unrecognised() if only else parsed.unrecognised)]
            if parsed.messages:
                self._note_ends(parsed, role)
                return parsed.messages
        for prefix in indexed:
            entries = unflatten(self.attributes, prefix)
            if entries:
                parsed = self.cache.read([_with_role(entry) for entry in entries] if prefix == "gen_ai.prompt" else entries, role)
                self.unrecognised = [*self.unrecognised, *parsed.unrecognised]
                self._note_ends(parsed, role)
                return parsed.messages
        return None

    def _note_ends(self, heard: ParsedMessages, role: Role) -> None:
        if role != "assistant" or not heard.ends:
            return
        if heard.ends[-1] or (not self.finish and self.span.scope in vocabulary.NAMES_ENDS):
            self.finish |= {heard.ends[-1]}
        if len(heard.ends) > self.choices and self._runs_no_tools():
            self.choices = len(heard.ends)  # Elsewhere one answer may be recorded in several messages.

    def _prefer_raw_answer(self) -> None:
        """Use the provider's raw answer if it has more calls than the messages."""
        raw = decode_attribute(self.attributes, "output.value")
        raw = raw[0] if isinstance(raw, list) and len(raw) == 1 else raw
        if not isinstance(raw, dict) or not {"choices", "output", "content", "candidates"} & set(raw):
            return
        choices = list_of(raw.get("choices"))
        self.choices = max(self.choices, len(choices))
        reasons = [dict_or_empty(choice).get("finish_reason") for choice in choices] or ([raw.get("status")] if "output" in raw else [])
        self.finish |= {str(word or "").lower() for word in reasons if word or raw.get("object") == "chat.completion.chunk"}
        parsed = self.cache.read(raw, "assistant")
        # A raw answer that is only partly recognised must not replace messages that are recognised.
        if not parsed.messages or parsed.unrecognised:
            return
        # A list of blocks or items would contain hosted calls.
        self.is_whole = any(isinstance(raw.get(key), list) for key in ("content", "output"))
        # Instrumentations lose calls when they translate an answer, but never invent them.
        if self.outputs is None or len(list_calls(parsed.messages)) > len(list_calls(self.outputs)):
            self.outputs = parsed.messages

    def _read_events(self, events: Sequence[SpanEvent]) -> None:
        inputs, outputs = ParsedMessages(), ParsedMessages()
        for event in events:
            content = read_event_message(event)
            if content is not None:
                is_output = event.name in vocabulary.OUTPUT_EVENTS
                (outputs if is_output else inputs).read(content, "assistant" if is_output else "user")
        self.unrecognised = [*self.unrecognised, *inputs.unrecognised, *outputs.unrecognised]
        self._fill(inputs.messages or None, outputs.messages or None)


def _reports_failure(attributes: dict[str, Json], keys: tuple[str, ...]) -> bool:
    values = [(key, attributes[key]) for key in keys if attributes[key] not in (None, "")]
    return any(read_status(value) == "failed" if key == vocabulary.STATUS_CODE else "." in key or is_error(value) for key, value in values)


def list_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls in messages."""
    return [call for message in messages for call in message.calls]


def _count_requested_choices(attributes: dict[str, Json], keys: tuple[str, ...]) -> int:
    count = read_count(attributes.get(vocabulary.CHOICES))
    for key in keys if count is None else ():
        count = read_count(dict_or_empty(decode_attribute(attributes, key)).get("n"))
    return count or 1


def _with_role(entry: Json) -> Json:
    """Return a message with its role if OpenLLMetry calls it unknown: a tool's result, or the pieces of an answer with calls."""
    message = dict_or_empty(entry)
    return {**message, "role": "assistant" if message.get("tool_calls") else "tool"} if message.get("role") == "unknown" else entry


def read_event_message(event: SpanEvent) -> Json:
    """Return the message of an event, or None if it has none or its content was not captured."""
    role = vocabulary.INPUT_EVENTS.get(event.name) or ("assistant" if event.name in vocabulary.OUTPUT_EVENTS else None)
    if role is None:
        return None
    content = decode_container(find_first(event.attributes, *vocabulary.EVENT_CONTENT))
    if isinstance(content, dict) and not {"role", "tool_calls", "content", "message"}.isdisjoint(content):
        inner = decode_container(content.get("message")) if "message" in content else content
        if inner is not None and not isinstance(inner, (dict, str)):
            return {"role": role, "content": inner}
        if isinstance(inner, dict) and isinstance(inner.get("content"), dict) and "parts" in inner["content"]:
            inner = inner["content"]  # Gemini
        return {"role": role, **dict_or_empty(inner)} if inner else None
    if isinstance(content, list) and content and "role" in dict_or_empty(content[0]):
        return content
    calls, id = event.attributes.get("tool_calls"), find_first(event.attributes, "id", "tool_call_id")
    if content is None and calls is None:
        return None
    given = {"tool_calls": calls, "tool_call_id": id or None}
    return {"role": role, "content": content, **{key: value for key, value in given.items() if value is not None}}


def _is_hosted(tool: Json) -> bool:
    """Return whether the provider runs a tool itself: the tool has its own type, or no name."""
    if isinstance(tool, list):
        return True
    entry = dict_or_empty(tool)
    kind = entry.get("type")
    if isinstance(kind, str) and kind not in ("function", "object", "tool", "FunctionTool"):
        return True
    named = find_first(entry, "name", "function", "functionDeclarations", "function_declarations", "toolSpec", "tool")
    return bool(entry) and named is None and ("name" in entry or not {"parameters", "input_schema", "properties"} & set(entry))


class SpanTree:
    """One trace. Steps are in order of their start, or as listed if any has no time; the first without a parent is the root."""

    def __init__(self, spans: Sequence[Span]) -> None:
        # Log records may refer to spans that were sampled out; they are not in the tree.
        listed = [span for span in spans if not (span.events and is_event_only(span))]
        # A root that only marks the beginning is left out, and its children are roots.
        spans = [span for span in listed if span.parent_id is not None or span.attributes.get("output.value") != _PLACEHOLDER] or listed
        spans = sorted(spans, key=_get_start) if all(map(_get_start, spans)) else spans
        cache = MessageCache()
        self.by_id = by_id = {span.id: Step(span, cache) for span in spans}
        self.steps = list(by_id.values())
        hidden = {span.id for span in listed} - by_id.keys() if len(listed) > len(spans) else ()
        self.roots: list[Step] = []
        self.orphans: list[Step] = []
        """Roots whose parent is missing from the trace."""
        for step in self.steps:
            parent_id = step.span.parent_id
            if parent_id in by_id:
                step.parent = parent = by_id[parent_id]
                parent.children.append(step)
                continue
            self.roots.append(step)
            if parent_id is not None and parent_id not in hidden:
                self.orphans.append(step)
        for root in self.roots:
            # A root without a kind is an agent if its name is like an agent's or it has an input or output, and it runs tools.
            if root.kind in (None, "step") and (
                root.names["input_value"] or root.names["output_value"] or _AGENT_NAME.search(root.span.name)
            ):
                root.kind = "agent" if any(step.kind == "tool" for step in root.list_below()) else root.kind
        if _place_below(self.roots) < len(self.steps):
            # Parents in a circle: the first of them is a root.
            for step in self.steps:
                if step.parent is not None and not step.depth:
                    step.parent.children.remove(step)
                    step.parent = None
                    self.roots.append(step)
                    _place_below([step])
        self.root = self.roots[0] if self.roots else None
        self._by_kind: dict[str | None, list[Step]] = {}
        for step in self.steps:
            self._by_kind.setdefault(step.kind, []).append(step)
        self.kinds = self._by_kind.keys()

    def list_kind(self, kind: str) -> list[Step]:
        """Return the steps of a kind, in order."""
        return self._by_kind.get(kind, [])

    def has_kind(self, kinds: Iterable[str]) -> bool:
        """Return whether there is a step of one of these kinds."""
        return not self.kinds.isdisjoint(kinds)


def _place_below(roots: Sequence[Step]) -> int:
    """Set the ancestors of the steps below these, and return the number of steps reached."""
    reached = list(roots)
    for step in reached:  # The list grows while it is read.
        if step.children:
            above = {**step.above, step.kind: step}
            holder = step.holder if step.kind == "tool" else step
            for child in step.children:
                child.above, child.holder, child.depth = above, holder, step.depth + 1
            reached += step.children
    return len(reached)
