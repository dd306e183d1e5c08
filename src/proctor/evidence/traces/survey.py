"""What a trace consists of, for `proctor describe trace FILE`: spans by kind, requests, tools, conversations, unrecognised attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.attribute_shapes import is_recognised, is_work, list_conventions
from proctor.evidence.traces.kind import describe_kind
from proctor.evidence.traces.request import find_exchanges
from proctor.evidence.traces.tool_span import find_tool_name
from proctor.evidence.traces.tree import read_tree
from proctor.evidence.traces.unknown_parts import is_unread_call
from proctor.evidence.values.access import text_or_none
from proctor.model.show import shorten, show

MOST_NAMED = 100
"""How many attributes, scopes, tools and other names a survey lists at most."""
_LONGEST = 120


class Counted(msgspec.Struct, frozen=True):
    """A name and how often it occurs."""

    name: str
    count: int


class TraceSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """What one trace consists of."""

    spans: int
    conventions: list[Counted]
    """The conventions found, with the number of spans that use each."""
    scopes: list[Counted]
    kinds: list[Counted]
    """Spans by kind; `other` spans have no agent work, `not understood` spans have some but an unrecognised kind."""
    requests: int
    """Requests to models, each once although several spans may record it."""
    requests_with_content: int
    tools: list[Counted]
    conversations: list[str]
    strange: list[str]
    not_understood: list[Counted]
    """Unrecognised kinds of spans, events that may be calls, and attributes that are not read, those of an agent's work first."""
    vocabularies: list[Counted]
    """Vocabularies that are not known, by the number of their attributes in this trace."""
    lost: list[str] = []
    """Lost data: attributes beyond a limit, values that are truncated."""
    left_out: int = 0


def survey_trace(spans: Sequence[Span]) -> TraceSurvey:
    """Return the survey of a trace."""
    tree, losses = read_tree(spans)
    steps, spans = tree.steps, [step.span for step in tree.steps]
    exchanges = find_exchanges(tree)
    attributes = Counter(key for span in spans for key in span.attributes if not is_recognised(key))
    events = Counter(
        f"event {show(event.name)}"
        for step in steps
        if step.kind != "tool"
        for event in step.span.events
        if is_unread_call(event.name, event.attributes)
    )
    named_kinds = [
        ("other" if step.shape.work is None else "not understood") if step.kind in (None, "unknown") else str(step.kind) for step in steps
    ]
    kinds = Counter(word for step in steps if step.kind == "unknown" and (word := describe_kind(step.span)))
    unrecognised = [*kinds.most_common(), *events.most_common()]
    unrecognised += sorted(attributes.items(), key=lambda entry: (not is_work(entry[0]), -entry[1], entry[0]))
    foreign = Counter(key.partition(".")[0] for key, count in attributes.items() for _ in range(count) if "." in key and not is_work(key))
    tools = Counter(find_tool_name(step) for step in steps if step.kind == "tool")
    scopes = Counter(span.scope or "(not named)" for span in spans)
    unknown_content = list(dict.fromkeys(what for exchange in exchanges for step in exchange.steps for what in step.unrecognised))
    named = (text_or_none(span.attributes.get(key)) for span in spans for key in vocabulary.CONVERSATION)
    conversations = list(dict.fromkeys(filter(None, named)))
    lost = list(dict.fromkeys(loss.what for loss in losses))
    used = Counter(name for span in spans for name in list_conventions(span.attributes, (span.scope,)))
    return TraceSurvey(
        spans=len(spans),
        conventions=_count_entries((name, used[name]) for name in vocabulary.CONVENTIONS if name in used),
        scopes=_count_entries(scopes.most_common()),
        kinds=_count_entries(Counter(named_kinds).most_common()),
        requests=len(exchanges),
        requests_with_content=sum(bool(exchange.outputs) for exchange in exchanges),
        tools=_count_entries(tools.most_common()),
        conversations=[shorten(id, _LONGEST) for id in conversations[:MOST_NAMED]],
        strange=[shorten(what, _LONGEST) for what in unknown_content[:MOST_NAMED]],
        not_understood=_count_entries(unrecognised),
        vocabularies=_count_entries(foreign.most_common()),
        lost=[shorten(what, _LONGEST) for what in lost[:MOST_NAMED]],
        left_out=sum(
            max(0, len(some) - MOST_NAMED) for some in (unrecognised, foreign, tools, scopes, unknown_content, conversations, lost)
        ),
    )


def _count_entries(entries: Iterable[tuple[str, int]]) -> list[Counted]:
    return [Counted(shorten(name, _LONGEST), count) for name, count in list(entries)[:MOST_NAMED]]
