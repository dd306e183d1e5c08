"""Tools that only hand over the answer: how some frameworks have a model answer in a given form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces.attribute_values import decode_attribute
from proctor.evidence.traces.join_calls import Made
from proctor.evidence.traces.tool_span import find_tool_name
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.values.access import dict_or_empty, list_of


def without_outputs(tree: SpanTree, made: Sequence[Made]) -> list[Made]:
    """Return the calls without those that only hand over the answer; a listed tool that ran is a real call."""
    handing = {find_tool_name(span) for span in tree.list_kind("tool") if span.name in names.OUTPUT_TOOLS}
    listed = {name for span in tree.list_kind("model") for name in _iterate_outputs(span)}
    return [entry for entry in made if entry.call.name not in handing and (entry.executed or entry.call.name not in listed)]


def _iterate_outputs(span: Span) -> Iterator[str]:
    for key, member in names.OUTPUT_LISTS.items():
        if key in span.attributes:
            for tool in list_of(dict_or_empty(decode_attribute(span.attributes, key)).get(member)):
                yield str(dict_or_empty(tool).get("name"))
