"""Tools that only hand over the answer: how some frameworks have a model answer in a given form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.evidence import vocabulary as names
from proctor.evidence.shape import dict_of, list_of
from proctor.evidence.span_calls import Made
from proctor.evidence.span_json import attribute_value
from proctor.evidence.span_tool import tool_name
from proctor.evidence.span_tree import SpanTree
from proctor.evidence.spans import Span


def without_outputs(tree: SpanTree, made: Sequence[Made]) -> list[Made]:
    """Return the calls without those of tools that the trace itself says to be none; a listed one that ran is a function of its own."""
    handing = {tool_name(span) for span in tree.of_kind("tool") if span.name in names.OUTPUT_TOOLS}
    listed = {name for span in tree.of_kind("model") for name in _listed_outputs(span)}
    return [entry for entry in made if entry.call.name not in handing and (entry.executed or entry.call.name not in listed)]


def _listed_outputs(span: Span) -> Iterator[str]:
    for key, member in names.OUTPUT_LISTS.items():
        if key in span.attributes:
            for tool in list_of(dict_of(attribute_value(span.attributes, key)).get(member)):
                yield str(dict_of(tool).get("name"))
