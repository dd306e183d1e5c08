"""One span of a trace: its input, output and tokens, and, of a request to a model, the messages, the calls and why the model stopped.

Attributes may be JSON text where a convention wants a structure; both are read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.message import Message, Role
from proctor.evidence.shared.usage import find_count, find_usage, read_count, read_usage
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.attribute_shapes import decode_attribute, find_decoded, find_shape, find_value, unflatten, unquote
from proctor.evidence.traces.kind import find_kind, name_of_span
from proctor.evidence.traces.message_reader import MessageCache, ParsedMessages, join_last_text, read_event_message
from proctor.evidence.unknowns.statuses import find_stop, is_error, read_status
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json, ToolCall, Usage

_FINAL = split_words("stop end_turn stop_sequence eos end")
"""Finish reasons that exclude a request for tools."""
_STOPS_WITH_CALLS = ("gemini", "google", "vertex", "gcp", "ollama")
"""Providers that also report `stop` for an answer with calls."""
_UNFINISHED = frozenset(("", "in_progress"))
_NO_REASON: frozenset[str] = frozenset()
_NO_STEPS: dict[str | None, Step] = {}
_PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider")
_ANSWER_KEYS = ("text", "output", "message", "content", "response", "answer", "raw", "final_output", "final_answer", "result")
_QUESTION_KEYS = (
    *("question", "input", "query", "prompt", "message", "text", "user_message", "user_msg", "task", "content", "description"),
    *("input_args", "kwargs", "inputs", "args", "input_str"),
)
_MESSAGE_KEYS = frozenset(("messages", "contents", "replies", "generations", "choices", "candidates", "lc", "role", "llm_request"))
_MAX_DEPTH = 6
"""Levels to search for the question or the answer: frameworks wrap them only a few times."""
_NO_COUNTS = [None, None, None]
_WORDED_COUNT = re.compile(r"\b(\w{1,40})=(\d{1,12})\b")


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
    """The name that a tool span records; true until it is read, as are the fields below."""
    _usage: Usage | bool | None = True
    _input: str | bool | None = True
    _output: tuple[str | None, bool] | None = None

    def __init__(self, span: Span, cache: MessageCache) -> None:
        self.span = span
        self.attributes = span.attributes
        self.shape = shape = find_shape(span.attributes)
        self.names = shape.names
        self.kind = find_kind(span.name, span.attributes, shape)
        self.failed = span.failed or (bool(shape.failures) and any(map(self._reports_failure, shape.failures)))
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

    def _reports_failure(self, key: str) -> bool:
        value = self.attributes[key]
        if value in (None, ""):
            return False
        return read_status(value) == "failed" if key == vocabulary.STATUS_CODE else "." in key or is_error(value)

    @property
    def node_name(self) -> str:
        """The name of its node."""
        return name_of_span(self.span, self.kind, self.shape)

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

    def find_duration_ms(self) -> float | None:
        """Return how long the span took, or None if it has no times."""
        start, end = self.span.start_ns, self.span.end_ns
        return (end - start) / 1e6 if start and end >= start else None

    def has_ended(self) -> bool:
        """Return whether the span has an end, or has no times at all."""
        return bool(self.span.end_ns or not self.span.start_ns)

    # --- input and output as text, without the wrappers of frameworks

    def find_input_text(self) -> str | None:
        """Return the input as text: the last text of a user in it."""
        if isinstance(self._input, bool):
            keys = self.names["input_value"]
            parsed = self._read_event_texts(is_output=False) if self.span.events else None
            parsed = parsed or self._read_only_messages(keys, "user")
            value: Json = None
            if parsed is None:
                value, written = find_decoded(self.attributes, keys)
                parsed = self._find_messages(value, written, "user")
            self._input = _find_question(value) if parsed is None else parsed.find_last_question()
        return self._input

    def read_output(self) -> tuple[str | None, bool]:
        """Return the output as text, and whether the span returned only text or messages."""
        if self._output is None:
            value: Json = None
            messages = self._read_only_messages(self.names["output_value"], "assistant")
            if messages is None:
                value, written = self.decode_output()
                messages = self._find_messages(value, written, "assistant")
            text = find_value(self.attributes, self.names["output_text"])
            if not isinstance(text, str) or not text:
                parsed = (self._read_event_texts(is_output=True) if self.span.events else None) or messages
                text = _find_answer(value) if parsed is None else join_last_text(parsed.messages)
            self._output = text, value is None or isinstance(value, str) or messages is not None
        return self._output

    def decode_output(self) -> tuple[Json, Json]:
        """Return the output, decoded and as it is written."""
        value, written = find_decoded(self.attributes, self.names["output_value"])
        if isinstance(value, dict) and "kwargs" in value and {"outputs", "output", "kwargs"}.issuperset(value):
            value = written = find_first(value, "outputs", "output")  # Traceloop
        return value, written

    def build_output(self, text: str | None = None) -> Json:
        """Return the output of a node. A bare text becomes `{"text": ...}`, so that checks can select it by name."""
        if text is None and self.kind in ("model", "agent") and self.read_output()[1]:
            text = self.read_output()[0]
        return {"text": text} if text is not None else self.decode_output()[0]

    def find_forwarded_text(self) -> str | None:
        """Return the last text of a user in messages that the step passes to the next one."""
        value, _ = self.decode_output()
        content = find_first(value, "input", "messages") if isinstance(value, dict) else value
        parsed = self._find_messages(content, content, "user")
        return parsed.find_last_question() if parsed is not None else None

    def _read_event_texts(self, *, is_output: bool) -> ParsedMessages | None:
        parsed = ParsedMessages()
        role: Role = "assistant" if is_output else "user"
        for event in self.span.events:
            if event.name in vocabulary.OUTPUT_EVENTS if is_output else event.name == "gen_ai.user.message":
                keys = ("message", "body", "content", "gen_ai.completion") if is_output else ("content", "body", "message")
                content = decode_container(find_first(event.attributes, *keys))
                parsed.read({"role": role, "content": content} if isinstance(content, (str, list)) else content, role)
        return parsed if parsed.messages else None

    def _read_only_messages(self, keys: tuple[str, ...], role: Role) -> ParsedMessages | None:
        """Return the messages of the first attribute if it contains only messages, without decoding it twice."""
        written = self.attributes[keys[0]] if keys and keys[0] in vocabulary.ONLY_MESSAGES else None
        if not isinstance(written, str) or written[:1] != "[":
            return None
        parsed = self.cache.read(written, role)
        return parsed if parsed.has_content() else None

    def _find_messages(self, value: Json, written: Json, role: Role) -> ParsedMessages | None:
        """Return the messages in a value, which may be text, or None for any other value."""
        inner = written
        if isinstance(value, dict):
            if _MESSAGE_KEYS.isdisjoint(value):
                nested = [value[key] for key in ("output", "response", "result", "input", "update") if isinstance(value.get(key), dict)]
                if not nested or (_MESSAGE_KEYS | {"blocks"}).isdisjoint(nested[0]):
                    return None
                inner = nested[0]
        elif not (isinstance(value, list) and value and all(isinstance(entry, (dict, list)) for entry in value)):
            return None
        # Only the content of a quoted text is a structure.
        parsed = self.cache.read(value if isinstance(inner, str) and inner[:1] == '"' else inner, role)
        return parsed if parsed.has_content() else None

    # --- tokens

    def find_usage(self) -> Usage | None:
        """Return the tokens that the span itself reports."""
        if isinstance(self._usage, bool):
            self._usage = self._read_counts() or self._read_usage_objects()
        return self._usage

    def _read_counts(self) -> Usage | None:
        shape, attributes = self.shape, self.attributes
        if shape.usual_counts is not None:
            inputs, outputs = shape.usual_counts(attributes)
            if type(inputs) is int and type(outputs) is int and inputs >= 0 and outputs >= 0:
                return Usage(input_tokens=inputs, output_tokens=outputs)
        counts = [find_count(attributes, keys) if keys else None for keys in shape.counts] if shape.has_counts else _NO_COUNTS
        # A name without a usable number reports nothing; the tokens may be there in another form.
        return None if counts[:3] == _NO_COUNTS else _make_usage(*counts)

    def _read_usage_objects(self) -> Usage | None:
        for key in self.names["usage_objects"]:
            value = decode_attribute(self.attributes, key)
            if key == vocabulary.USAGE_TEXT and isinstance(value, str):
                value = {word: int(count) for word, count in _WORDED_COUNT.findall(value)}
            spent = dict_or_empty(value)
            # Langfuse splits `input` and `output` further.
            is_split = "input" in spent or "output" in spent
            found = (None if is_split else read_usage(spent)) or _read_usage_by_kind(spent)
            if found is not None:
                return found
        # Haystack and Genkit have the tokens in the replies themselves.
        output = find_first(self.attributes, *vocabulary.USAGE_IN_OUTPUT)
        if output is None:
            return None
        raw = dict_or_empty(decode_container(output))
        replies = list_of(raw.get("replies"))
        return read_usage(dict_or_empty(dict_or_empty(replies[0]).get("meta")).get("usage")) if replies else find_usage(raw)

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
        if not self.finish:
            return self.failed or not self.has_ended()
        if not self.finish.isdisjoint(_UNFINISHED) or "failed" in _find_stops(self.finish):
            return True
        # OpenInference also marks a request that follows a failed tool.
        return self.failed and (vocabulary.ERROR_TYPE in self.attributes or any(event.name == "exception" for event in self.span.events))

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
        attributes, shape, names = self.attributes, self.shape, self.names
        if names["finish"]:
            values = [decode_attribute(attributes, key) for key in names["finish"]]
            words = [word for value in values for word in (value if isinstance(value, list) else [value])]
            # Some print the member of an enumeration: `FinishReason.STOP`.
            self.finish = frozenset([word.lower().rpartition(".")[2] for word in words if isinstance(word, str) and word])
        # Wrong messages are worse than none: the answer then counts as not captured.
        if self.span.scope in vocabulary.UNRELIABLE:
            return
        if vocabulary.CHOICES in attributes or names["parameters"]:
            settings = (dict_or_empty(decode_attribute(attributes, key)).get("n") for key in names["parameters"])
            counts = map(read_count, (attributes.get(vocabulary.CHOICES), *settings))
            self.choices = next((count for count in counts if count is not None), 1) or 1
        # Each source only if the ones before have nothing: attributes with messages, the raw answer, the event with both sides, text and
        # calls in separate attributes, an event for each message, and last a whole conversation in one attribute.
        self.inputs = self._read_messages("input_messages", vocabulary.INDEXED_INPUT if shape.indexed_input else (), "user")
        self.outputs = self._read_messages("output_messages", vocabulary.INDEXED_OUTPUT if shape.indexed_output else (), "assistant")
        if "output.value" in attributes:
            self._prefer_raw_answer()
        for fields in self._list_details() if self.span.events else ():
            self._fill(
                self._read(fields.get("gen_ai.input.messages"), "user"), self._read(fields.get("gen_ai.output.messages"), "assistant")
            )
        if self.outputs is None and (names["output_text"] or names["output_calls"]):
            self.outputs = self._read(self._join_answer(), "assistant")
        if self.span.events and (self.inputs is None or self.outputs is None):
            inputs, outputs = ParsedMessages(), ParsedMessages()
            for event in self.span.events:
                is_output = event.name in vocabulary.OUTPUT_EVENTS
                (outputs if is_output else inputs).read(read_event_message(event), "assistant" if is_output else "user")
            self.unrecognised = [*self.unrecognised, *inputs.unrecognised, *outputs.unrecognised]
            self._fill(inputs.messages or None, outputs.messages or None)
        for key in names["conversations"]:
            if (self.inputs is None or self.outputs is None) and attributes[key] is not None:
                entries = list_of(decode_container(attributes[key]))
                chosen = [entry for entry in entries if dict_or_empty(entry).get("event.name") == "gen_ai.choice"]
                messages = self._read([entry for entry in entries if entry not in chosen], "user") or []
                answers = self._read(chosen, "assistant") or []
                # Without a choice event, the answer is the assistant's text after everything else.
                while not chosen and messages and messages[-1].role == "assistant":
                    answers.insert(0, messages.pop())
                self._fill(messages, answers or None)

    def list_answers(self) -> list[list[Message]]:
        """Return the answer from every place whose content is fully recognised: instrumentations may write several."""
        values = [unquote(self.attributes[key]) for key in self.names["output_messages"]]
        if len(values) != self.shape.answers or self.span.events:
            values += [unflatten(self.attributes, prefix) for prefix in vocabulary.INDEXED_OUTPUT] if self.shape.indexed_output else ()
            values.append(self._join_answer())
            values += [fields.get("gen_ai.output.messages") for fields in self._list_details()]
            values.append([read_event_message(event) for event in self.span.events if event.name in vocabulary.OUTPUT_EVENTS])
        answers = [self.cache.read(value, "assistant") for value in values if value not in (None, "", [], {})]
        return [parsed.messages for parsed in answers if parsed.has_content() and not parsed.unrecognised]

    def _join_answer(self) -> Json:
        """Return the answer of a span that has its text and its calls in separate attributes, as one message."""
        text, calls = find_value(self.attributes, self.names["output_text"]), find_value(self.attributes, self.names["output_calls"])
        return None if text is None and calls is None else {"role": "assistant", "content": text, "tool_calls": calls}

    def _list_details(self) -> list[dict[str, Json]]:
        events = (event.attributes for event in self.span.events if event.name == vocabulary.DETAILS_EVENT)
        return [{**fields, **dict_or_empty(fields.get("body"))} for fields in events]

    def _read(self, value: Json, role: Role) -> list[Message] | None:
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
                unrecognised = parsed.list_unrecognised() if only else parsed.unrecognised
                self.unrecognised = [*self.unrecognised, *unrecognised] if unrecognised else self.unrecognised
            if parsed.messages:
                self._note_ends(parsed.ends, role)
                return parsed.messages
        for prefix in indexed:
            entries = unflatten(self.attributes, prefix)
            if entries:
                parsed = self.cache.read([_with_role(entry) for entry in entries] if prefix == "gen_ai.prompt" else entries, role)
                self.unrecognised = [*self.unrecognised, *parsed.unrecognised]
                self._note_ends(parsed.ends, role)
                return parsed.messages
        return None

    def _note_ends(self, ends: Sequence[str], role: Role) -> None:
        if role != "assistant" or not ends:
            return
        if ends[-1] or (not self.finish and self.span.scope in vocabulary.NAMES_ENDS):
            self.finish |= {ends[-1]}
        if len(ends) > self.choices and self._runs_no_tools():
            self.choices = len(ends)  # Elsewhere one answer may be recorded in several messages.

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


def list_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls in messages."""
    return [call for message in messages for call in message.calls]


def _with_role(entry: Json) -> Json:
    """Return a message with its role if OpenLLMetry calls it unknown: a tool's result, or the pieces of an answer with calls."""
    message = dict_or_empty(entry)
    return {**message, "role": "assistant" if message.get("tool_calls") else "tool"} if message.get("role") == "unknown" else entry


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


def _find_question(value: Json, depth: int = 0) -> str | None:
    """Return the only text in the input of a function: `{"question": "..."}`, `{"args": ["..."], "kwargs": {}}`."""
    if isinstance(value, list):
        value = value[0] if len(value) == 1 or (value and "description" in dict_or_empty(value[0])) else None
    if depth > _MAX_DEPTH or not isinstance(value, (dict, list)):
        return text_or_none(value)
    members = dict_or_empty(value)
    inner = (decode_container(members[key]) for key in _QUESTION_KEYS if members.get(key) not in (None, "", [], {}))
    found = (text for entry in inner if (text := _find_question(entry, depth + 1)) is not None)
    # A function of one argument: its only text is the question, whatever its name.
    only = next((entry for entry in members.values() if isinstance(entry, str)), None) if len(members) == 1 else None
    return next(found, only)


def _find_answer(value: Json, depth: int = 0) -> str | None:
    """Return the answer in the output of a function, by the names that frameworks use for it."""
    if isinstance(value, list):
        value = value[-1] if value else None
    if depth > _MAX_DEPTH or not isinstance(value, (dict, list)):
        return text_or_none(value)
    members = dict_or_empty(value)
    if list_of(members.get("blocks")):
        parsed = ParsedMessages()
        parsed.read(members, "assistant")
        return join_last_text(parsed.messages)
    inner = (decode_container(members[key]) for key in _ANSWER_KEYS if members.get(key) is not None)
    return next((text for entry in inner if (text := _find_answer(entry, depth + 1)) is not None), None)


def _read_usage_by_kind(value: dict[str, Any]) -> Usage | None:
    """Return tokens that Langfuse splits by kind: `input`, `input_cached_tokens`, `output`, `output_reasoning_tokens`, ..."""
    inputs = {key: read_count(count) or 0 for key, count in value.items() if key.startswith("input")}
    outputs = [read_count(count) or 0 for key, count in value.items() if key.startswith("output")]
    if not inputs and not outputs:
        return None
    cached = sum(count for key, count in inputs.items() if "cached" in key or "cache_read" in key)
    written = sum(count for key, count in inputs.items() if "cache_creation" in key or "cache_write" in key)
    total = read_count(value.get("total"))
    return _make_usage(sum(inputs.values()) if inputs else None, sum(outputs) if outputs else None, total, cached, written)


def _make_usage(inputs: int | None, outputs: int | None, total: int | None, cached: int | None, written: int | None) -> Usage:
    return Usage(
        input_tokens=inputs,
        output_tokens=outputs,
        total_tokens=total,
        cached_input_tokens=cached or None,
        cache_write_tokens=written or None,
    )
