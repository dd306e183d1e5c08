"""MCPJam documents as values, and the verdicts of their cases."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from proctor.checks.registry import default_registry
from proctor.formats.mcpjam import suite as mcpjam
from proctor.formats.text.json_text import read_json
from proctor.formats.text.located import Reading
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict


def read_document(document: Any) -> Suite:
    """The suite in a document; problems raise `InputError`, warnings are ignored."""
    text = json.dumps(document, indent=1)
    reading = Reading(file="evals.json", text=text)
    tree = read_json(text, reading)
    assert tree is not None
    suite = mcpjam.read(tree, reading, name="evals")
    return msgspec.structs.replace(suite, warnings=reading.finish())


def decide(case: Case, plain: Any) -> list[Verdict]:
    """The verdict of every assertion on evidence given as a plain mapping; those of a turn see only that turn."""
    evidence = msgspec.convert(plain, Evidence)
    verdicts: list[Verdict] = []
    for assertion in case.assertions:
        seen = evidence
        if assertion.turn is not None:
            assert evidence.turns is not None
            turn = evidence.turns[assertion.turn]
            seen = Evidence(text=turn.text, tool_calls=turn.tool_calls, nodes=turn.nodes)
        verdicts.append(default_registry().prepare(assertion.check, assertion.spec)(seen))
    return verdicts
