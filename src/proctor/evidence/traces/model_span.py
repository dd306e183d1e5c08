"""One span, read: what a model was given and what it gave back, why it stopped, and whether its calls are known.

Attributes may be JSON text where a convention wants a structure; both are read. Names come from `vocabulary`, messages are read by
`span_messages`. What is not understood is kept by name in `Step.strange`.
"""

from __future__ import annotations

from proctor.evidence.otlp.spans import Span, SpanEvent
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.usage import read_count
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces import vocabulary_scopes as scopes
from proctor.evidence.traces.attribute_values import decode_attribute, has_beginning, unflatten
from proctor.evidence.traces.events import read_event_message
from proctor.evidence.traces.kind import find_kind
from proctor.evidence.traces.message_reader import MessageCache, ParsedMessages
from proctor.evidence.traces.offered_tools import is_hosted, list_offered_tools
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json, ToolCall, Usage

_PLACEHOLDER = "[Object]"
_SAYS_TOOLS = frozenset(
    ("tool_calls", "tool_call", "tool_use", "tool-calls", "tool-call", "tool_call_requested", "function_call", "tooluse")
)
"""Reasons to stop that mean: the model asked for tools."""
_LIMITS = frozenset(("length", "max_tokens", "max_output_tokens", "incomplete", "model_length", "model_context_window_exceeded"))
_BROKEN = frozenset(("", "error", "failed", "cancelled", "canceled", "in_progress"))
_STOP = frozenset(("stop",))
"""What providers say also together with calls, or after tools that they ran themselves."""


_CONTENT = frozenset((*names.GIVEN, *names.SAID, "output.value", *names.SAID_TEXT, *names.SAID_CALLS, *names.BOTH))
"""Every attribute in which messages may stand, but for those with a number in their names."""
_INDEXED = (*names.GIVEN_INDEXED, *names.SAID_INDEXED)
_FINISH_NAMES = frozenset(names.FINISH_REASONS)
_NO_REASON: frozenset[str] = frozenset()


class Step:
    """One span, read as a request to a model."""

    __slots__ = ("_hearings", "_usage", "choices", "finish", "given", "is_whole", "kind", "said", "span", "strange")

    def __init__(self, span: Span, hearings: MessageCache) -> None:
        self.span = span
        self._hearings = hearings
        self.kind = find_kind(span)
        self.strange: list[str] = []
        self.given: list[Message] | None = None
        """The messages a model was given; nothing where they were not captured."""
        self.said: list[Message] | None = None
        """What the model gave back."""
        self.finish = _NO_REASON
        """Why the model stopped, in lower case."""
        self.choices = 1
        """How many answers the model was asked for, or gave."""
        self.is_whole = False
        """Whether the answer is there as the provider gave it."""
        self._usage: Usage | None = None
        if self.kind == "model":
            self._read_exchange()

    @property
    def calls(self) -> list[ToolCall]:
        """The calls the model asked for."""
        return [call for message in self.said or () for call in message.calls]

    def join_text(self) -> str | None:
        """Return what the model said, as one text."""
        return find_last_spoken(self.said or ())

    def says_tools(self) -> bool:
        """Return whether the model stopped in order to call tools."""
        return bool(self.finish) and not self.finish.isdisjoint(_SAYS_TOOLS)

    def explain_cut(self) -> str | None:
        """Explain why the answer is not whole, or return None if the model came to its end or said nothing."""
        if not self.said:
            return None
        if self.breaks_off():
            return "broke off: its span ended in an error, or it has no reason to stop"
        return "was cut at the limit of tokens" if not self.finish.isdisjoint(_LIMITS) else None

    def breaks_off(self) -> bool:
        """Return whether the answer ended before the model had come to an end, so that anything could have followed."""
        return bool(self.said) and (self._has_failed() or not self.finish.isdisjoint(_BROKEN))

    def _has_failed(self) -> bool:
        """Return whether the request itself failed; OpenInference also marks a request that follows a failed tool."""
        told = names.ERROR_TYPE in self.span.attributes or any(event.name == "exception" for event in self.span.events)
        return self.span.failed and (told or not self.finish)

    def knows_calls(self) -> bool:
        """Return whether it is known which tools this request asked for."""
        if self.strange:
            return False
        if self.calls:
            return True
        if not self.join_text():
            # A model that said nothing and called nothing: whoever recorded it did not understand the answer.
            return self._names_no_call()
        return not self.says_tools()

    def _names_no_call(self) -> bool:
        """Return whether the answer's event, which names calls even without content, names none."""
        if self.span.scope not in scopes.NAMES_CALLS or self.finish != _STOP:
            return False
        chosen = [dict_or_empty(event.attributes.get("body")) for event in self.span.events if event.name in names.EVENT_SAID]
        return bool(chosen) and all(choice.get("message") == {} and choice.get("finish_reason") == "stop" for choice in chosen)

    def loses_calls(self) -> bool:
        """Return whether there may be more calls in the answer than were recorded of it."""
        # Ids that begin with `resp_` are those of OpenAI's Responses; its chat completions are recorded whole.
        return bool(self.calls) and self.span.scope in scopes.KEEPS_ONE_CALL and (find_response_id(self.span) or "").startswith("resp_")

    def hides_hosted_tools(self) -> bool:
        """Return whether the provider may have run tools of its own that the recorded answer does not show."""
        if self.span.scope in scopes.DROPS_CALLS:
            return True
        if self.span.scope in scopes.DROPS_HOSTED:
            return not _runs_no_tools(self.span)
        # A whole answer, or one that shows a call which the provider ran, would have shown any other as well.
        if self.is_whole or any(call.server is not None or call.result is not None for call in self.calls):
            return False
        attributes = self.span.attributes
        if any(not isinstance(decode_attribute(attributes, key) or [], list) for key in names.OFFERED_LISTS if key in attributes):
            return True  # Something was offered, and nobody understands what.
        return any(is_hosted(tool) for tool in list_offered_tools(self.span)) and not any(message.results for message in self.said or ())

    def _read_exchange(self) -> None:
        attributes, events = self.span.attributes, self.span.events
        self.finish = finish_reasons(self.span)
        # What was certainly not said is worse than nothing: without messages the answer counts as not captured.
        if self.span.scope in scopes.UNRELIABLE:
            return
        self.choices = max(self.choices, _count_choices_wanted(self.span))
        # Many requests are recorded without content, and that is found out in one step.
        if not events and _CONTENT.isdisjoint(attributes) and not has_beginning(attributes, _INDEXED):
            return
        # Each source only where the ones before told nothing: attributes with messages, the raw answer, the event with both sides, text and
        # calls apart, an event for each message, and last a whole conversation in one attribute.
        self.given = self._read_messages(names.GIVEN, names.GIVEN_INDEXED, "user")
        self.said = self._read_messages(names.SAID, names.SAID_INDEXED, "assistant")
        self._prefer_raw_answer()
        if events and any(event.name in names.EVENT_DETAILS for event in events):
            self._read_details(events)
        if self.said is None:
            self.said = self._read_spoken()
        if events and (self.given is None or self.said is None):
            self._read_events(events)
        for key in names.BOTH:
            if (self.given is None or self.said is None) and attributes.get(key) is not None:
                self._read_both(attributes[key])

    def _read_messages(self, keys: tuple[str, ...], indexed: tuple[str, ...], role: Role) -> list[Message] | None:
        attributes = self.span.attributes
        for key in keys:
            if key not in attributes:
                continue
            # The text itself where it is one of a structure: other spans may hold the same.
            value = attributes[key]
            value = decode_attribute(attributes, key) if isinstance(value, str) and value[:1] == '"' else value
            if value is None or value in ({}, ""):
                continue
            only = key in names.ONLY_MESSAGES
            heard = self._hearings.read_messages(value, role) if only else self._hearings.read(value, role)
            if not heard.messages:
                # No messages at all: another thing under the same name, or nothing that anybody understood.
                if only and decode_container(value) != {}:
                    self.strange.extend(heard.unrecognised)
                continue
            self.strange.extend(heard.unrecognised)
            self._note_ends(heard, role)
            return heard.messages
        # Flattened attributes are tried last: building them anew costs a walk over all attributes.
        for prefix in indexed if has_beginning(attributes, indexed) else ():
            entries = unflatten(attributes, prefix)
            if entries:
                if prefix == "gen_ai.prompt":
                    entries = [_with_role(entry) for entry in entries]
                heard = ParsedMessages()
                heard.read(entries, role)
                self.strange.extend(heard.unrecognised)
                self._note_ends(heard, role)
                return heard.messages
        return None

    def _note_ends(self, heard: ParsedMessages, role: Role) -> None:
        """Keep why the model stopped where its messages say so."""
        if role != "assistant" or not heard.ends:
            return
        if heard.ends[-1] or (not self.finish and self.span.scope in scopes.NAMES_ENDS):
            self.finish |= {heard.ends[-1]}
        if _runs_no_tools(self.span):
            self.choices = max(self.choices, len(heard.ends))  # Elsewhere one answer may be told in several messages.

    def _prefer_raw_answer(self) -> None:
        """Use the provider's raw answer if the span carries it and it has more calls than the messages."""
        if "output.value" not in self.span.attributes:
            return
        raw = decode_attribute(self.span.attributes, "output.value")
        raw = raw[0] if isinstance(raw, list) and len(raw) == 1 else raw
        if not isinstance(raw, dict) or not {"choices", "output", "content", "candidates"} & set(raw):
            return
        choices = list_of(raw.get("choices"))
        self.choices = max(self.choices, len(choices))
        told = (
            [dict_or_empty(choice).get("finish_reason") for choice in choices] or [raw.get("status")] if "output" in raw or choices else []
        )
        self.finish |= {str(word or "").lower() for word in told if word or raw.get("object") == "chat.completion.chunk"}
        heard = ParsedMessages()
        heard.read(raw, "assistant")
        # A raw answer that is not wholly understood must not replace messages that are.
        if not heard.messages or heard.unrecognised:
            return
        # A list of blocks or items: what the provider itself ran would stand among them.
        self.is_whole = any(isinstance(raw.get(key), list) for key in ("content", "output"))
        # Instrumentations lose calls when they translate an answer, never invent them: the telling with more calls is the truer one.
        if self.said is None or sum(len(message.calls) for message in heard.messages) > len(self.calls):
            self.said = heard.messages

    def _read_spoken(self) -> list[Message] | None:
        """Read what was said from attributes that hold the text and the calls apart."""
        attributes = self.span.attributes
        text = find_first(attributes, *names.SAID_TEXT)
        calls = decode_attribute(attributes, names.SAID_CALLS[0])
        if text is None and calls is None:
            return None
        heard = ParsedMessages()
        heard.read({"role": "assistant", "content": text, "tool_calls": calls}, "assistant")
        self.strange.extend(heard.unrecognised)
        return heard.messages

    def _read_details(self, events: tuple[SpanEvent, ...]) -> None:
        for event in events:
            if event.name not in names.EVENT_DETAILS:
                continue
            held = {**event.attributes, **dict_or_empty(event.attributes.get("body"))}
            for key, role in (("gen_ai.input.messages", "user"), ("gen_ai.output.messages", "assistant")):
                if held.get(key) is None:
                    continue
                heard = ParsedMessages()
                heard.read(held[key], "user" if role == "user" else "assistant")
                self.strange.extend(heard.unrecognised)
                if role == "user":
                    self.given = heard.messages if self.given is None else self.given
                else:
                    self.said = heard.messages if self.said is None else self.said

    def _read_events(self, events: tuple[SpanEvent, ...]) -> None:
        given, said = ParsedMessages(), ParsedMessages()
        for event in events:
            content = read_event_message(event)
            if content is None:
                continue
            if event.name in names.EVENT_SAID:
                said.read(content, "assistant")
            else:
                given.read(content, "user")
        self.strange.extend((*given.unrecognised, *said.unrecognised))
        if self.given is None and given.messages:
            self.given = given.messages
        if self.said is None and said.messages:
            self.said = said.messages

    def _read_both(self, value: Json) -> None:
        entries = list_of(decode_container(value))
        chosen = [entry for entry in entries if dict_or_empty(entry).get("event.name") == "gen_ai.choice"]
        heard, said = ParsedMessages(), ParsedMessages()
        heard.read([entry for entry in entries if entry not in chosen], "user")
        said.read(chosen, "assistant")
        self.strange.extend((*heard.unrecognised, *said.unrecognised))
        messages = heard.messages
        # Without an event of a choice nothing marks the answer: it is what the assistant says behind everything else.
        while not chosen and messages and messages[-1].role == "assistant":
            said.messages.insert(0, messages.pop())
        if self.given is None:
            self.given = messages
        if self.said is None and said.messages:
            self.said = said.messages


def _count_choices_wanted(span: Span) -> int:
    """Return how many answers a model was asked for."""
    own = read_count(span.attributes.get(names.CHOICES))
    for key in names.PARAMETERS if own is None else ():
        own = read_count(dict_or_empty(decode_attribute(span.attributes, key)).get("n")) if key in span.attributes else own
    return own or 1


def _with_role(entry: Json) -> Json:
    """Name the speaker if OpenLLMetry calls the role unknown: a tool's result, or the pieces of an answer with calls."""
    message = dict_or_empty(entry)
    return {**message, "role": "assistant" if message.get("tool_calls") else "tool"} if message.get("role") == "unknown" else entry


def find_last_spoken(messages: list[Message] | tuple[Message, ...]) -> str | None:
    """Return what the assistant said last, joined if it came in pieces."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant" and message.text:
            texts.append(message.text)
        # Pieces of one answer follow each other: a call or a result between two texts parts them.
        # What a user said last is answered by nothing that stands before it.
        if message.role != "assistant" or message.calls or message.results:
            if texts:
                break
            if message.role == "user":
                break
    return "".join(reversed(texts)) if texts else None


def finish_reasons(span: Span) -> frozenset[str]:
    """Return why a model stopped, in lower case."""
    attributes = span.attributes
    if _FINISH_NAMES.isdisjoint(attributes):
        return _NO_REASON
    found: set[str] = set()
    for key in names.FINISH_REASONS:
        if key not in attributes:
            continue
        value = decode_attribute(attributes, key)
        # Some instrumentations print the member of an enumeration: `FinishReason.STOP`.
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and word:
                found.add(word.lower().rpartition(".")[2])
    return frozenset(found)


def find_response_id(span: Span) -> str | None:
    """Return the provider's id of the answer; OpenInference has it in the raw answer only."""
    own = text_or_none(find_first(span.attributes, *names.RESPONSE_ID))
    if own is not None or "output.value" not in span.attributes:
        return own
    raw = dict_or_empty(decode_attribute(span.attributes, "output.value"))
    if "llm_output" in raw:
        return text_or_none(dict_or_empty(raw["llm_output"]).get("id"))
    return text_or_none(raw.get("id")) if {"choices", "content", "output"} & set(raw) else None


def _runs_no_tools(span: Span) -> bool:
    """Return whether a request went to an endpoint of OpenAI that runs no tools: chat completions, or those before."""
    if (find_response_id(span) or "").startswith("chatcmpl") or span.name == "openai.chat":
        return True
    return any(span.attributes.get(key) in words for key, words in scopes.RUNS_NO_TOOLS.items())


def only_begins(span: Span) -> bool:
    """Return whether a root only marks the beginning: Flowise ends its own at once, with a marker in place of an answer."""
    return span.attributes.get("output.value") == _PLACEHOLDER


def find_duration_ms(span: Span) -> float | None:
    """Return how long a span took, or None if it has no times."""
    return (span.end_ns - span.start_ns) / 1e6 if span.start_ns and span.end_ns >= span.start_ns else None
