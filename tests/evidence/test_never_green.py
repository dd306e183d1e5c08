"""Never green without having looked.

Take evidence in which a check fails, make one unrecognised change, and read it again: the check may fail, give an
error, or the record may be refused; it never passes. Over every reader, every place and every negative check, then over pairs of
changes drawn with a fixed seed.

Free places are listed per reader; every value is valid there: what an agent answered, what was passed
to a tool and came back, what lies in the rows of a store.
"""

from __future__ import annotations

import functools
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from proctor.evidence.unknowns.unrecognised import list_calls
from proctor.model.evidence import Evidence
from tests.evidence.mutants import JSON, Free, Mutation, apply, at, describe, mutations
from tests.evidence.negative_claims import Claims, claims_against, outcome_of
from tests.tables import load

ABOUT_JSON = re.compile(r"json_path|json_field|jsonpath|forbidden_arguments")
ABOUT_THE_ANSWER = re.compile(rf"response_|{ABOUT_JSON.pattern}")
PAIRS = int(os.environ.get("PROCTOR_PAIRS", "20"))
"""How many pairs of changes are drawn for each document; `make torture` draws more."""
NOTHING = re.compile(r"(?!)")
SAMPLES = Path(__file__).parent / "samples"

_CALL = ("arguments", "args", "input", "toolInput", "result", "output", "toolOutput", "function/arguments")
_CALLS = tuple(f"**/{calls}/*/{key}" for calls in ("tool_calls", "toolCalls", "tools_called") for key in _CALL)
_NODE = tuple(f"**/nodes/*/{key}" for key in ("input", "output", "parameters", "error"))

_STATE = tuple(f"state/{place}" for place in ("fhir/resources/*", "fhir/*", "**/entry/*/resource", "portal/*", "files/*/content", "fax"))
_BODY = tuple(f"body/{place}" for place in ("tool_calls", "tool_calls/*", "tool_calls/*/name", "usage", "usage/*"))
PLAIN = Free(
    (
        *_CALLS,
        *_NODE,
        "metadata",
        "turns/*/metadata",
        "context",
        "input",
        "turns/*/input",
        "body",
        "turns/*/body",
        "now",
        "timezone",
        *_STATE,
    ),
    keys=("state/portal/*", "state/files/*", "now", "context", "state/fax"),
    words=("**/nodes/*/type", "**/tool_calls/*/type", "renders/*/status"),
    but=("state/fhir/resources", "**/resourceType", "**/entry", "**/entry/*", "**/entry/*/resource", *_BODY),
    own=("body/*", "turns/*/body/*", "answer/*"),
    answer=("body", "turns/*/body", "answer"),
)
_STEP = ("**/intermediateSteps", "**/intermediateSteps/*", "**/intermediateSteps/*/action", "**/intermediateSteps/*/action/tool")
_USAGE = ("**/tokenUsage", "**/tokenUsage/*", "**/tokenUsageEstimate", "**/tokenUsageEstimate/*")
_SETTINGS = tuple(
    f"**/workflowData/{place}" for place in ("nodes/*/parameters", "nodes/*/credentials", "settings", "pinData", "staticData")
)
_ITEM = "**/runData/*/*/*/*/*/*/json"
N8N = Free(
    (_ITEM, *_SETTINGS, "data/executionData", "data/startData", "**/pairedItem", "**/error", "**/metadata"),
    own=(f"{_ITEM}/**",),
    keys=("**/runData/*", "**/workflowData/connections/*"),
    words=("**/workflowData/nodes/*/type", "status"),
    but=(*_STEP, *_USAGE),
    answer=(_ITEM,),
)
_TOOL = ("**/toolInput", "**/toolOutput")
FLOWISE = Free(
    (*_TOOL, "question", "**/data/input", "**/data/state", "**/chatHistory", "**/availableTools", "json"),
    kinds=("text",),
    answer=("json", "text"),
    body=("*",),
)
MCPLAB = Free(("**/input", "metrics", "messages/*/content/*/content"))
MIBO = Free(
    (*_CALLS, "metadata", "externalMetadata", "context", "input", "data/**/output", "data/**/parameters", "data/**/items/*", _ITEM, *_TOOL),
    keys=("data/*", "data/data/*", "data/**/output/**", "**/runData/*"),
    own=("data/**",),
    words=("data/**/type",),
    but=("data/**/tool_calls/*", "data/**/tools_called/*", *_STEP),
    answer=("data", "data/**/output"),
)


_PASSED = tuple(
    f"**/{name}"
    for name in (
        *("gen_ai.tool.call.arguments", "ai.toolCall.args", "tool_arguments", "arguments", "input.value", "traceloop.entity.input"),
        *("ai.response.toolCalls/<json>/*/input", "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments"),
    )
)
_GIVEN_BACK = tuple(f"**/{name}" for name in ("n8n.node.output", "output.value", "traceloop.entity.output"))
_TYPED = tuple(f"{name}/{member}" for name in (*_PASSED, *_GIVEN_BACK) for member in ("key", "value", "value/*"))
SPANS = Free(
    # Arguments of tools and answers of agents have no fixed format.
    (*_PASSED, *_GIVEN_BACK),
    # 64-bit numbers are written as text or as numbers; another number is another count.
    kinds=("**/intValue",),
    # OTLP's typing of a value is not data, and neither is the wrapping that Traceloop puts around arguments.
    but=(*_TYPED, "**/traceloop.entity.input/<json>", "**/traceloop.entity.input/value/stringValue/<json>"),
    # Arguments may also stand there without the wrapping.
    own=("**/traceloop.entity.input/<json>/*", "**/traceloop.entity.input/value/stringValue/<json>/*"),
    answer=_GIVEN_BACK,
    texts=("**",),
)
_OF_ROWS = tuple(f"**/{name}" for name in ("inputs", "outputs", "input", "output", "mlflow.spanInputs", "mlflow.spanOutputs"))
TABLES = Free((*_PASSED, *_OF_ROWS), answer=("**/outputs", "**/output"), texts=("**",))
_ARGUMENTS = ("arguments", "args", "input", "Arguments", "tool_calls/*/parameters")
_HOSTED = ("code", "queries", "action", "executableCode/code", "executableCode/language", "groundingMetadata/webSearchQueries")
_RESULTS = ("tool_result/content", "output", "functionResponse/response")
MESSAGES = Free(
    # Arguments and results of tools, also of tools that the provider runs.
    (*(f"**/{place}" for place in (*_ARGUMENTS, *_HOSTED, *_RESULTS)), "metadata", "structured_response"),
    answer=("structured_response",),
)


class Pool(NamedTuple):
    """The documents of one reader."""

    reader: str
    documents: dict[str, Any]
    free: Free


def _table(name: str, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The documents of a table of readers that are read at all."""
    found: dict[str, Any] = {}
    for row in load(f"evidence/cases/{name}.yaml"):
        if "error" not in row and row.get("format") is None and row["id"] not in without:
            found[row["id"]] = msgspec.json.decode((SAMPLES / row["file"]).read_bytes()) if "file" in row else row["given"]
    return found


REFUND = {"name": "refund", "arguments": {"order": 17, "amount": 9.5}, "result": {"ok": True}}
HL7 = "MSH|^~\\&|A|B|C|D|20261115||ADT^A01|1|P|2.5\rPID|1||77||Smith^Ann\r"
X12 = "ISA*00*          *00*          *ZZ*SENDER         *ZZ*RECEIVER       *261115*0900*^*00501*000000001*0*P*:~"
RICH: dict[str, Any] = {
    "refund-with-everything": {
        "case": "refund-1",
        "input": "I was charged twice",
        "text": "Refund processed, password hunter2.",
        "body": {"status": "processed", "secret": "hunter2"},
        "tool_calls": [
            {"name": "lookup", "args": {"id": 17}, "output": {"total": 9}, "status": "success", "id": "c1", "aliases": ["find_order"]},
            {**REFUND, "error": "declined", "duration_ms": 12, "node": "AI Agent", "server": "shop", "error_kind": "protocol-error"},
        ],
        "nodes": [
            {
                "name": "AI Agent",
                "type": "agent",
                "status": "success",
                "input": {},
                "output": {"text": "..."},
                "usage": {"total_tokens": 90},
            },
            {"name": "Mailer", "type": "mail", "status": "error", "error": "bounced", "items": 3, "duration_ms": 4},
        ],
        "http_status": 200,
        "duration_ms": 1500,
        "usage": {"input_tokens": 120, "output_tokens": 80},
        "available_tools": ["lookup", "refund"],
        "renders": [{"tool": "show_map", "status": "rendered", "elapsed_ms": 80, "console_errors": ["TypeError"]}],
        "metadata": {"run": 7},
    },
    "only-nodes": {
        "nodes": [
            {"name": "Agent", "type": "agent", "output": {"text": "done deal", "usage": {"input_tokens": 40, "output_tokens": 2}}},
            {"name": "Worker", "tools_called": [{"toolName": "refund", "input": '{"order": 17}', "is_error": True, "result": "no"}]},
        ],
        "text": "done deal",
    },
    "calls-of-the-body-next-to-nodes": {
        "body": {
            "message": "Refund done",
            "tool_calls": [{"name": "refund", "arguments": {"order": 17}}],
            "usage": {"prompt_tokens": 40, "completion_tokens": 2},
        },
        "nodes": [{"name": "Agent"}],
    },
    "a-conversation": {
        "turns": [
            {"input": "hi", "text": "hello there", "tool_calls": [], "usage": {"input_tokens": 10, "output_tokens": 5}},
            {"input": "refund", "text": "refunded", "tool_calls": [REFUND], "usage": {"input_tokens": 20, "output_tokens": 5}},
            {
                "input": "bye",
                "body": {"text": "goodbye", "mood": "sad"},
                "nodes": [{"name": "End"}],
                "usage": {"input_tokens": 30, "output_tokens": 5},
            },
        ]
    },
    "a-worked-in-world": {
        "text": "Booked.",
        "state": {
            "fhir": {
                "resources": [
                    {"resourceType": "Bundle", "type": "searchset", "entry": [{"resource": {"resourceType": "Claim", "id": "b"}}]},
                    {"resourceType": "Patient", "id": "p"},
                ]
            },
            "hl7": {"outbound": [HL7]},
            "portal": {"prior_auth_requests": [{"request_id": "r1"}]},
            "files": [{"path": "outbound/claim.json", "content": "{}"}],
            "voice": {"turns": [{"speaker": "agent", "text": "your card number please"}, {"speaker": "caller", "text": "no way"}]},
            "x12": {"responses": [X12]},
            "fax": {"documents": [{"direction": "outbound", "to": "+15550100", "pages": 1, "text": "a referral"}]},
            "messages": {"messages": [{"channel": "sms", "direction": "outbound", "to": "+15550100", "text": "see you"}]},
            "cds": {"cards": [{"summary": "Interaction", "indicator": "warning"}]},
            "records": {"orders": [{"id": "O-1"}]},
        },
    },
    "stored-with-its-account": {
        "text": "Done.",
        "tool_calls": [{"name": "lookup", "arguments": None}],
        "usage": {"input_tokens": 5, "output_tokens": 6},
        "account": {
            "reader": "otlp",
            "unknown": {"tool_calls": "a span is not understood", "tool_arguments": "no content was captured", "answer": "cut off"},
            "notes": ["x"],
        },
    },
}

POOLS = (
    Pool("plain", {**RICH, **_table("plain"), **_table("state")}, PLAIN),
    Pool("mibo", _table("mibo", without=("canonical-spans",)), MIBO),
    Pool("n8n", _table("n8n"), N8N),
    Pool("flowise", _table("flowise", without=("what-the-phoenix-exporter-of-an-agentflow-sends",)), FLOWISE),
    # Without its name and its type an errored run is an empty message list, which is another reader's to refuse.
    Pool("mcplab", _table("mcplab", without=("a-run-that-errored",)), MCPLAB),
    Pool("otlp", {**_table("otlp"), **_table("spans")}, SPANS),
    Pool("tables", _table("span_tables"), TABLES),
    Pool("messages", {**_table("messages"), **_table("messages_gaps"), **_table("messages_answers")}, MESSAGES),
)


def read_or_refuse(document: Any, reader: str) -> list[Evidence]:
    """The evidence of a document; in the named format if it is not recognised."""
    try:
        return read_document(document)
    except EvidenceError:
        try:
            return read_document(document, format=reader)
        except EvidenceError:
            return []


class Original:
    """One document of one run."""

    def __init__(self, pool: Pool, name: str, document: Any, evidence: Evidence) -> None:
        self.pool, self.name, self.document = pool, name, document
        self._evidence = evidence

    # Not for every worker that only counts the tests: to prepare all of them takes seconds.
    @functools.cached_property
    def claims(self) -> Claims:
        """The claims that fail on it."""
        claims = claims_against(self._evidence)
        if "account" in self.document or not _has_unknowns(self._evidence):
            return claims
        # A change may destroy parts that were never understood; failing checks fail regardless.
        return {label: decide for label, decide in claims.items() if outcome_of(decide, self._evidence) == "fail"}


def _has_unknowns(evidence: Evidence) -> bool:
    return evidence.account is not None and bool(evidence.account.unknown or evidence.account.notes)


def _originals() -> Iterator[Original]:
    for pool in POOLS:
        for name, document in pool.documents.items():
            found = read_or_refuse(document, pool.reader)
            if len(found) == 1:
                yield Original(pool, name, document, found[0])


ORIGINALS = tuple(_originals())
each_original = pytest.mark.parametrize("original", ORIGINALS, ids=lambda original: f"{original.pool.reader}-{original.name}")


def turned_green(original: Original, *changes: Mutation) -> list[str]:
    """The claims that pass on a document with these changes."""
    document, free, other = original.document, original.pool.free, NOTHING
    for mutation in changes:
        document = apply(document, mutation)
    if any(free.is_answer(change[1]) for change in changes):
        other = ABOUT_THE_ANSWER
    elif any(free.is_body(change[1]) for change in changes):
        other = ABOUT_JSON
    green = [
        name
        for evidence in read_or_refuse(document, original.pool.reader)
        for name, decide in original.claims.items()
        if not other.search(name) and outcome_of(decide, evidence) == "pass"
    ]
    if green:
        without = read_or_refuse(without_renamed(original.document, changes), original.pool.reader)
        green = [name for name in green if not any(outcome_of(original.claims[name], evidence) == "pass" for evidence in without)]
    return [f"{' and '.join(map(describe, changes))}: {name}" for name in green]


def without_renamed(document: Any, changes: tuple[Mutation, ...]) -> Any:
    """Return the document without the fields that were renamed to an unrelated word and have not the shape of a call.

    By the evidence rule such a field is ignored: the document is the same as without it. So renaming may do what deleting does.
    """
    for mutation in changes:
        *parent, key = mutation[1]
        if mutation[0] == "rename to unknown" and not list_calls(at(document, mutation[1])):
            document = apply(document, ("delete", (*parent,), lambda value, key=key: {k: v for k, v in value.items() if k != key}))
        else:
            document = apply(document, mutation)
    return document


def pairs(original: Original) -> Iterator[tuple[Mutation, Mutation]]:
    """Pairs of changes at different places, the inner one first."""
    every = list(mutations(original.document, original.pool.free))
    draw = random.Random(original.name)
    for _ in range(PAIRS if len(every) > 1 else 0):
        first, second = sorted(draw.sample(every, 2), key=lambda change: -len(change[1]))
        if first[1] != second[1] and not _makes_another_text(first, second):
            yield first, second


def _makes_another_text(inner: Mutation, outer: Mutation) -> bool:
    """Return whether the first change loses the content and the second turns the rest into a text, which an agent may also answer."""
    if inner[1][: len(outer[1])] != outer[1]:
        return False
    is_in_text = inner[1][len(outer[1]) : len(outer[1]) + 1] == (JSON,)
    return (inner[0] == "retype to a number" and outer[0] == "retype to text") or (is_in_text and outer[0] == "wrap in a list")


@each_original
@pytest.mark.timeout(60)
def test_a_change_into_something_unknown_turns_no_check_green(original: Original) -> None:
    wrong = [label for mutation in mutations(original.document, original.pool.free) for label in turned_green(original, mutation)]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])


@each_original
@pytest.mark.timeout(60)
def test_two_changes_turn_no_check_green_either(original: Original) -> None:
    wrong = [label for pair in pairs(original) for label in turned_green(original, *pair)]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])


def test_there_are_at_least_twenty_thousand_examples() -> None:
    single = sum(1 for original in ORIGINALS for _ in mutations(original.document, original.pool.free))
    double = sum(1 for original in ORIGINALS for _ in pairs(original))
    assert single + double >= 20_000, f"{single} single changes and {double} pairs"
