"""What a trace is made of, for whoever wants to know what was understood of it: `proctor describe trace FILE`.

Counted are spans by kind, requests to models with and without their content, tools, conversations, and attributes that no reader
uses. An attribute is *understood* when some table of `vocabulary` names it, or when it belongs to the general conventions of
OpenTelemetry and the settings of a request, which tell of nothing an agent did. Whatever else there is gets named, those that look
like an agent's work first, and counted by vocabulary: the word before the first dot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces.attributes import CONVERSATION, find_vocabulary, is_foreign, is_understood, looks_like_work
from proctor.evidence.traces.build import is_written_in
from proctor.evidence.traces.events import list_strange_events
from proctor.evidence.traces.exchanges import find_exchanges
from proctor.evidence.traces.kind import describe_kind, find_sign_of_work
from proctor.evidence.traces.tool_span import read_tool_call
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.traces.truncation import find_losses, without_broken
from proctor.evidence.values.access import text_or_none
from proctor.model.show import shorten, show

MOST_NAMED = 100
"""How many attributes, scopes, tools and other names a survey lists; the rest is counted."""
_LONGEST = 120
"""Characters of a name in a survey."""


class Counted(msgspec.Struct, frozen=True):
    """A name and how often it occurs."""

    name: str
    count: int


class TraceSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """What one trace is made of."""

    spans: int
    conventions: list[Counted]
    """The conventions found, with the number of spans that speak each."""
    scopes: list[Counted]
    """The instrumentations that wrote the spans."""
    kinds: list[Counted]
    """Spans by what they are; `other` tells of no agent's work, `not understood` could and is not understood."""
    requests: int
    """Requests to models, each once although several spans may tell of it."""
    requests_with_content: int
    """Those whose answer was captured."""
    tools: list[Counted]
    """Spans of tools, by the name of the tool."""
    conversations: list[str]
    """The ids of the conversations the spans say they belong to."""
    strange: list[str]
    """Pieces of messages that nobody understood."""
    not_understood: list[Counted]
    """Kinds of spans, events that could tell of a call, and attributes that no reader uses, those of an agent's work first."""
    vocabularies: list[Counted]
    """Vocabularies that nobody knows, by the number of their attributes in this trace."""
    lost: list[str] = []
    """What the spans do not carry whole: attributes beyond a limit, values that are cut."""
    left_out: int = 0
    """How many more names there are than are listed."""


def survey_trace(spans: Sequence[Span]) -> TraceSurvey:
    """Return what a trace is made of."""
    # As `build_evidence` reads it: broken values are left out before anything is counted.
    losses = find_losses(spans)
    tree = SpanTree(without_broken(spans, losses))
    exchanges = find_exchanges(tree)
    attributes = Counter(key for span in tree.spans for key in span.attributes if not is_understood(key))
    events = Counter(f"event {show(name)}" for span in tree.spans if tree.find_kind(span) != "tool" for name in list_strange_events(span))
    words = Counter(word for span in tree.spans if tree.find_kind(span) == "unknown" and (word := describe_kind(span)))
    unknown = [*words.most_common(), *events.most_common()]
    unknown += sorted(attributes.items(), key=lambda entry: (not looks_like_work(entry[0]), -entry[1], entry[0]))
    foreign = Counter(find_vocabulary(key) for span in tree.spans for key in span.attributes if not is_understood(key) and is_foreign(key))
    tools = Counter(read_tool_call(span, None).name for span in tree.list_kind("tool"))
    scopes = Counter(span.scope or "(not named)" for span in tree.spans)
    strange = list(dict.fromkeys(what for exchange in exchanges for step in exchange.steps for what in step.strange))
    talks = list(dict.fromkeys(talk for span in tree.spans for talk in _list_conversations(span)))
    lost = list(dict.fromkeys(loss.what for loss in losses))
    listed = (unknown, foreign, tools, scopes, strange, talks, lost)
    return TraceSurvey(
        spans=len(tree.spans),
        conventions=_count_entries((name, count) for name, count in _count_conventions(tree.spans).items() if count),
        scopes=_count_entries(scopes.most_common()),
        kinds=_count_entries(Counter(_find_kind(tree, span) for span in tree.spans).most_common()),
        requests=len(exchanges),
        requests_with_content=sum(bool(exchange.said) for exchange in exchanges),
        tools=_count_entries(tools.most_common()),
        conversations=[shorten(talk, _LONGEST) for talk in talks[:MOST_NAMED]],
        strange=[shorten(what, _LONGEST) for what in strange[:MOST_NAMED]],
        not_understood=_count_entries(unknown),
        vocabularies=_count_entries(foreign.most_common()),
        lost=[shorten(what, _LONGEST) for what in lost[:MOST_NAMED]],
        left_out=sum(max(0, len(some) - MOST_NAMED) for some in listed),
    )


def _count_entries(entries: Iterable[tuple[str, int]]) -> list[Counted]:
    return [Counted(shorten(name, _LONGEST), count) for name, count in list(entries)[:MOST_NAMED]]


def _find_kind(tree: SpanTree, span: Span) -> str:
    kind = tree.find_kind(span)
    if kind is None or kind == "unknown":
        return "other" if find_sign_of_work(span) is None else "not understood"
    return kind


def _count_conventions(spans: Sequence[Span]) -> dict[str, int]:
    return {convention.name: sum(is_written_in(span, convention) for span in spans) for convention in names.CONVENTIONS}


def _list_conversations(span: Span) -> Iterable[str]:
    for key in CONVERSATION:
        id = text_or_none(span.attributes.get(key))
        if id:
            yield id
