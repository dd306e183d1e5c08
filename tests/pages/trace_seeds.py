"""Traces of a shop's agent for tests of pages: one with spans, one in one piece, and results that a judge had a part in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import proctor
from proctor.evidence.otlp.spans import Span, SpanGroup
from proctor.formats.suites import read_suite
from proctor.judge.scripted import ScriptedJudge
from proctor.model.evidence import Evidence
from proctor.report.data.json_text import CaseEncoder
from proctor.service.access.callers import LOCAL
from proctor.service.decisions.trace_evidence import read_evidence
from proctor.service.decisions.trace_verdicts import make_digest
from proctor.service.hub import Hub, stamp
from proctor.service.labels.claims import index_claims
from proctor.store.accounts.judged_claims import note_due_claims
from proctor.store.sql.compressed_json import compress_bytes, pack
from proctor.store.sql.tables import case_versions, cases, results, traces

JUDGED = """\
proctor: 1
name: apology
cases:
  - id: apology
    expect:
      - response_contains: refunded
      - judged: {criteria: The answer says sorry., threshold: 0.8}
      - judged: {criteria: The answer names the amount., threshold: 0.8}
"""
START = 1_794_700_000
QUESTION = "I was charged twice for order 17"
ANSWER = "Sorry about that. The second payment of 42.50 was refunded."


def make_spans(answer: str = ANSWER, *, question: str = QUESTION, more: int = 0, trace_id: str = "a" * 32) -> list[Span]:
    """An agent that calls a model and two tools, and answers; with `more` steps below it."""
    at = START * 1_000_000_000
    ms = 1_000_000

    def span(id: str, parent: str | None, name: str, begin: int, end: int, attributes: dict[str, Any], **other: Any) -> Span:
        place = {"start_ns": at + begin * ms, "end_ns": at + end * ms}
        return Span(trace_id=trace_id, id=id, parent_id=parent, name=name, attributes=attributes, **place, **other)

    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small", "gen_ai.usage.input_tokens": 320}
    refund = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "refund", "gen_ai.tool.call.arguments": '{"id": 17}'}
    lookup = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup_order", "gen_ai.tool.call.arguments": '{"id": 17}'}
    root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop", "input.value": question, "output.value": answer}
    found = [
        span("0000000000000001", None, "invoke_agent shop", 0, 2100, root),
        span("0000000000000002", "0000000000000001", "chat small", 10, 700, model),
        span("0000000000000003", "0000000000000001", "execute_tool lookup_order", 710, 830, lookup),
        span("0000000000000004", "0000000000000003", "SELECT orders", 720, 800, {"db.system": "postgresql"}),
        span(
            "0000000000000005", "0000000000000001", "execute_tool refund", 840, 1320, refund, failed=True, message="order 17 was paid once"
        ),
        span("0000000000000006", "0000000000000001", "chat small", 1330, 2090, model),
    ]
    for number in range(more):
        parent = "0000000000000004" if number % 10 == 0 else found[-1].id if number % 10 < 4 else "0000000000000006"
        found.append(span(f"f{number:015x}", parent, f"step {number}", 720 + number % 70, 721 + number % 79, {"step": number}))
    return found


async def add_trace(hub: Hub, mark: str, spans: Sequence[Span] | None = None, *, agent: int = 1, at: float = START, **more: Any) -> None:
    """Store a trace `trc_MARK` of an agent of `home`; without spans, its body is one piece."""
    body = {"data": {"input": QUESTION, "response": ANSWER}} if spans is None else [SpanGroup({"service.name": "shop"}, list(spans))]
    packed = pack(body)
    values = {
        "id": f"trc_{mark}",
        "organization_id": LOCAL.organization_id,
        "project_id": "proj_home",
        "agent_id": f"agent_home_{agent}",
        "external_id": f"request-{mark}",
        "format": "mibo" if spans is None else "otlp",
        "status": "evaluated",
        "size": len(packed),
        "body": packed,
        "input_text": QUESTION,
        # As the evaluator writes it; reading the evidence of thousands of spans would take long.
        "digest": make_digest(read_evidence([packed], None)) if spans is not None and len(spans) < 200 else None,
        "created_at": stamp(at),
        "updated_at": stamp(at),
        **more,
    }
    async with hub.database.writing() as connection:
        await connection.execute(traces.insert().values(values))


async def add_result(hub: Hub, mark: str, evidence: Evidence, decide: Any, *, at: float = START) -> str:
    """The case `case_apology` decided on the trace `trc_MARK`, with a judge; returns the outcome."""
    # `proctor.check` runs its own event loop.
    made = await asyncio.to_thread(proctor.check, read_suite(JUDGED, name="apology"), evidence, judge=ScriptedJudge(decide))
    result = made.cases[0]
    values = {
        "id": f"res_{mark}",
        "organization_id": LOCAL.organization_id,
        "project_id": "proj_home",
        "agent_id": "agent_home_1",
        "trace_id": f"trc_{mark}",
        "case_id": "case_apology",
        "case_version": 1,
        "case_key": "apology",
        "trace_revision": 1,
        "outcome": result.outcome,
        "score": result.score,
        "body": compress_bytes(CaseEncoder().encode(result)),
        "created_at": stamp(at),
        "updated_at": stamp(at),
    }
    async with hub.database.writing() as connection:
        await connection.execute(results.insert().values(values))
        await connection.execute(traces.update().where(traces.c.id == f"trc_{mark}").values(outcome=result.outcome))
        await note_due_claims(connection, "trace", [f"trc_{mark}"], stamp(at))
    while await index_claims(hub):
        pass
    return result.outcome


async def add_case(hub: Hub) -> None:
    """The case `case_apology`, two claims of which a judge decides."""
    at = {"created_at": stamp(START), "updated_at": stamp(START)}
    ours = {"id": "case_apology", "organization_id": LOCAL.organization_id, "project_id": "proj_home"}
    async with hub.database.writing() as connection:
        await connection.execute(cases.insert().values(**ours, name="apology", dialect="native", document=JUDGED, **at))
        version = {"case_id": "case_apology", "version": 1, "dialect": "native", "document": JUDGED, "created_at": stamp(START)}
        await connection.execute(case_versions.insert().values(version))


def score_by_words(question: Any) -> float:
    """A judge that looks for a word, and is never quite sure."""
    subject = str(question.material.subject).lower()
    wanted = "sorry" if "sorry" in question.criterion else "42.50"
    return 0.9 if wanted in subject else 0.3


async def seed_traces(hub: Hub) -> None:
    """Four traces: `shop` and `rude` with spans and judged results, `plain` in one piece, `waiting` not evaluated yet."""
    await add_case(hub)
    for number, (mark, answer) in enumerate((("shop", ANSWER), ("rude", "No. It was refunded."))):
        spans = make_spans(answer)
        await add_trace(hub, mark, spans, at=START + number, metadata={"env": mark})
        evidence = read_evidence([pack([SpanGroup({}, spans)])], None)
        await add_result(hub, mark, evidence, score_by_words, at=START + number)
    await add_trace(hub, "plain", at=START + 2, agent=2)
    await add_trace(hub, "waiting", make_spans(), at=START + 3, status="open", input_text=None)
