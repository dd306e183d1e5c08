"""Datasets of DeepEval (`EvaluationDataset.save_as`, JSON) as suites.

A golden has an input and what a metric may need: an expected output, expected tools, contexts. DeepEval names the metrics in Python
code, so only two claims follow from the file: the expected tools were called (its `ToolCorrectnessMetric`, by name), and a judge finds
the answer equal to the expected output (its usual `GEval` "Correctness"). Contexts become variables of the case.
"""

from __future__ import annotations

from proctor.formats.native.drafting import Claim, build_assertion, make_slug, make_unique
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json

CORRECT = "The answer states the same facts as the reference, and does not contradict it."
_OWN_KEYS = ("actual_output", "expected_output", "retrieval_context", "expected_tools", "tools_called")


def sniff(document: Located) -> bool:
    """Return whether this is a list of goldens: objects with `input` and a field that only DeepEval has."""
    return document.is_list and any(
        node.get("input") is not None and any(node.get(key) is not None for key in _OWN_KEYS) for node in document.items()
    )


def read(document: Located, reading: Reading, *, name: str) -> Suite:
    """Return the dataset as a suite; problems go to the reading."""
    used: set[str] = set()
    nodes = (node for node in document.items() if reading.require_object(node, "a golden") is not None)
    cases = [_read_golden(reading, node, number, used) for number, node in enumerate(nodes, start=1)]
    return Suite(name=name, dialect="deepeval", cases=tuple(cases))


# DeepEval writes every field, many of them null.
def _read_golden(reading: Reading, node: Located, number: int, used: set[str]) -> Case:
    title = reading.require_text(node.find("name"), "'name'") or ""
    expected = reading.require_text(node.find("expected_output"), "'expected_output'")
    tools = reading.require_list(node.find("expected_tools"), "'expected_tools'")
    built = []
    if tools is not None and tools.value:
        names = [reading.need_text(tool, "name", "an expected tool") for tool in tools.items()]
        claim = Claim("tool_calls_match", {"calls": [{"name": name} for name in names if name is not None], "arguments": "ignore"})
        built.append(build_assertion(reading, tools, claim, f"expected tools · {', '.join(filter(None, names))}"[:200]))
    if expected:
        claim = Claim("judged", {"criteria": CORRECT, "reference": expected, "show_prompt": True})
        built.append(build_assertion(reading, node, claim, "expected output"))
    contexts: dict[str, Json] = {
        key: member.plain() for key in ("context", "retrieval_context") if (member := node.find(key)) is not None and member.value
    }
    metadata = node.find("additional_metadata")
    tags: Json = metadata.plain() if metadata is not None else None
    return Case(
        id=make_unique(make_slug(title) if title else f"golden-{number}", used),
        name=title,
        description=reading.require_text(node.find("comments"), "'comments'") or "",
        input=reading.need_text(node, "input", "a golden"),
        context=contexts,
        tags=tags if isinstance(tags, dict) else {},
        assertions=tuple(assertion for assertion in built if assertion is not None),
        origin=reading.origin(node),
    )
