"""Runs with conversations, as a live run leaves them: a small one to look at and a large one to measure."""

from __future__ import annotations

import itertools
import random
from typing import Any

from proctor.model.case import Case
from proctor.model.evidence import Evidence, EvidenceTurn, Node, Source, State, StateFile, ToolCall, Usage
from proctor.model.result import CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.model.verdict import failed, passed
from tests.report import samples
from tests.report.samples import claim, decided, run_of

Entries = dict[tuple[str, int], RunEntry]


def entry_of(result: CaseResult, evidence: Evidence | None, **more: Any) -> RunEntry:
    """The stored entry of a result of a live run."""
    return RunEntry(
        case=result.case.id, attempt=result.attempt, outcome=result.outcome, verdicts=result.verdicts, evidence=evidence, **more
    )


def refund_conversation() -> Evidence:
    """Two turns in which the wrong order is looked up, one tool fails and another is called with the wrong amount."""
    lookup = ToolCall(
        name="lookup_order",
        server="shop",
        arguments={"id": 71},
        result={"content": [{"type": "text", "text": '{"id": 71, "customer": "Bea", "total": 90.0, "currency": "EUR"}'}]},
        duration_ms=112,
    )
    search = ToolCall(
        name="search", arguments={}, error="the argument 'query' is missing", error_kind="content-error", server="shop", duration_ms=9
    )
    refund = ToolCall(
        name="refund",
        server="payments",
        arguments={"order": 71, "eur": 90, "reason": "charged twice", "note": "Customer says that both charges were made on the same day."},
        result={"ok": True, "transaction": 9007199254740993, "steps": [{"at": f"09:0{n}", "did": f"booking step {n}"} for n in range(6)]},
        duration_ms=1840,
    )
    first = EvidenceTurn(
        input="Hello, I was charged twice for order 17.",
        text="I am sorry to hear that. I found your order and I am looking into it.",
        tool_calls=(lookup, search),
        http_status=200,
        duration_ms=1310,
        usage=Usage(input_tokens=412, output_tokens=38),
    )
    second = EvidenceTurn(
        input="Thank you. How much will I get back, and when?",
        text="I am sorry to hear that. Your refund is on its way and will reach your account within five working days; "
        "is there anything else?",
        tool_calls=(refund,),
        http_status=200,
        duration_ms=2904,
        usage=Usage(input_tokens=503, output_tokens=51),
    )
    return Evidence(
        text=second.text,
        tool_calls=(lookup, search, refund),
        turns=(first, second),
        duration_ms=4214,
        usage=Usage(input_tokens=915, output_tokens=89),
        context={"CUSTOMER": "Ann", "timezone": "Europe/Vienna"},
        available_tools=("lookup_order", "search", "refund", "notify"),
        metadata={"target": "shop", "model": "some-model"},
    )


def visit_workflow() -> Evidence:
    """A workflow of three steps, one of which failed."""
    find = ToolCall(name="find_slot", arguments={"doctor": "Riviera", "day": "2026-04-21"}, result={"slot": "09:00"}, duration_ms=40)
    return Evidence(
        input="Book me in with Dr. Rivera for the 21st",
        text='{"status": "booked", "doctor": "Dr. Riviera"}',
        nodes=(
            Node(name="Webhook", type="webhook", output={"body": {"message": "Book me in"}}, duration_ms=3),
            Node(
                name="AI Agent", type="agent", output={"text": "booked"}, tool_calls=(find,), duration_ms=2210, notes=("left as written",)
            ),
            Node(name="Send mail", type="emailSend", status="error", error="connection refused", duration_ms=15_020),
        ),
        tool_calls=(find,),
        http_status=200,
        state=State(files=(StateFile(path="outbound/visit.json", content={"status": "booked"}),)),
    )


def flaky_case(attempts: int = 5) -> list[CaseResult]:
    """A case that passes three times of five."""
    case = Case(
        id="greeting-in-german",
        name="The agent answers in the language of the customer",
        input="Guten Tag, wo ist mein Paket?",
        description="Whoever writes in German is answered in German, whatever language the product data is in.",
        tags={"test_dimension": "manners", "language": "de", "team": ["support", "logistics"]},
        assertions=(claim("the reply is in German", 61, check="response_matches"), claim("the parcel is looked up", 64)),
    )
    wrong = failed('expected text matching /\\b(Ihr|Paket)\\b/, found "Your parcel is on its way."', pointers=("$.text",))
    found = passed("track_parcel was called once", pointers=("$.tool_calls[0]",))
    good = passed("the answer matches /\\b(Ihr|Paket)\\b/", pointers=("$.text",))
    return [decided(case, good if number % 2 == 0 else wrong, found, attempt=number) for number in range(attempts)]


def parcel(good: bool, number: int) -> Evidence:
    """One attempt at the flaky case."""
    call = ToolCall(name="track_parcel", arguments={"number": f"00340{number}"}, result={"status": "on its way"}, duration_ms=210 + number)
    text = "Ihr Paket ist unterwegs." if good else "Your parcel is on its way."
    return Evidence(input="Guten Tag, wo ist mein Paket?", text=text, tool_calls=(call,), duration_ms=900.0 + 40 * number)


def live_run() -> tuple[RunResult, Entries]:
    """One of everything, with the conversations of a live run."""
    trouble = samples.troubled_run()
    repeats = flaky_case()
    run = run_of(
        *trouble.cases,
        *repeats,
        warnings=samples.WARNINGS,
        unmatched_evidence=samples.UNMATCHED,
        started_at="2026-11-15T09:00:00Z",
        suite_name="Refunds & visits",
    )
    entries: Entries = {}
    conversations = {"refund-twice": refund_conversation(), "book-visit": visit_workflow()}
    for result in trouble.cases:
        if result.case.id in conversations:
            entries[result.case.id, 0] = entry_of(
                result, conversations[result.case.id], started_at="2026-11-15T09:00:02Z", duration_ms=4310.0, reason=result.reason
            )
    for result in repeats:
        entries[result.case.id, result.attempt] = entry_of(result, parcel(result.passed, result.attempt), duration_ms=950.0)
    return run, entries


HOSTILE = "</script><img src=x onerror=\"fetch('http://127.0.0.1:9/stolen')\"><b>'\"&{{7*7}}\u202egnp.exe\x1b[2J\ud800"
"""Text that does harm wherever it is taken for anything but text."""


def hostile_run() -> tuple[RunResult, Entries]:
    """The same hostile text in every place that takes text."""
    case = Case(
        id=HOSTILE,
        name=f"name {HOSTILE}",
        description=HOSTILE,
        tags={HOSTILE: HOSTILE, "test_dimension": [HOSTILE]},
        assertions=(claim(HOSTILE, 3, file=HOSTILE, check=HOSTILE), claim(HOSTILE, 4, file=HOSTILE)),
    )
    result = decided(
        case,
        failed(f"expected {HOSTILE}, found {HOSTILE}", code=HOSTILE, details={HOSTILE: HOSTILE}, pointers=(HOSTILE,)),
        failed(HOSTILE, details={"expected": HOSTILE, "actual": {HOSTILE: [HOSTILE]}, "hint": HOSTILE}),
        source=Source(file=HOSTILE, line=1, id=HOSTILE),
        reason=HOSTILE,
        code=HOSTILE,
        extracted={HOSTILE: HOSTILE},
    )
    call = ToolCall(name=HOSTILE, server=HOSTILE, arguments={HOSTILE: HOSTILE}, result=HOSTILE, error=HOSTILE, error_kind=HOSTILE)
    step = Node(name=HOSTILE, type=HOSTILE, status=HOSTILE, input=HOSTILE, output=HOSTILE, notes=(HOSTILE,), tool_calls=(call,))
    evidence = Evidence(
        input=HOSTILE, text=HOSTILE, body=HOSTILE, error=HOSTILE, nodes=(step,), tool_calls=(call,), context={HOSTILE: HOSTILE}
    )
    run = run_of(
        result, suite_name=HOSTILE, suite_path=HOSTILE, run_id=HOSTILE, started_at=HOSTILE, dialect=HOSTILE, unmatched_evidence=(HOSTILE,)
    )
    return run, {(case.id, 0): entry_of(result, evidence, started_at=HOSTILE)}


def large_run(cases: int = 10_000, failures: int = 500, *, seed: int = 3) -> tuple[RunResult, Entries]:
    """A run of many conversations in which no two are alike; words follow the frequencies of a language, ids are random."""
    chance = random.Random(seed)
    words = _vocabulary(chance)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    entries: Entries = {}
    results: list[CaseResult] = []

    def text(count: int) -> str:
        return " ".join(chance.choices(words, cum_weights=weights, k=count)).capitalize() + "."

    broken = set(chance.sample(range(cases), failures))
    for number in range(cases):
        evidence = _conversation(chance, text)
        claims = (claim("the order is looked up first", 10 + number * 6), claim("the reply says when", 12 + number * 6), claim("quick", 13))
        case = Case(
            id=f"case-{number:05d}",
            name=text(5),
            input=evidence.input,
            tags={"test_dimension": chance.choice(("refunds", "delivery", "account", "invoice")), "language": chance.choice(("en", "de"))},
            assertions=claims,
        )
        second = (
            failed(f'expected text containing "{text(2)}", found "{evidence.text}"', pointers=("$.text",))
            if number in broken
            else passed("the answer contains it", pointers=("$.text",))
        )
        result = decided(case, passed("lookup_order was called", pointers=("$.tool_calls[0]",)), second, passed("took 812 ms"))
        results.append(result)
        entries[case.id, 0] = entry_of(
            result, evidence, started_at=f"2026-11-15T09:{number % 60:02d}:00Z", duration_ms=chance.uniform(300, 4000)
        )
    return run_of(*results, suite_name="A large suite", started_at="2026-11-15T09:00:00Z"), entries


def _vocabulary(chance: random.Random) -> list[str]:
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "ar", "en", "ing")]
    return list(dict.fromkeys("".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(3000)))


def _conversation(chance: random.Random, text: Any) -> Evidence:
    order = chance.randrange(10**8)
    calls = (
        ToolCall(
            name="lookup_order",
            arguments={"id": order, "trace": f"{chance.getrandbits(64):016x}"},
            result={"customer": text(2), "total": round(chance.uniform(5, 500), 2), "note": text(12)},
            duration_ms=chance.uniform(20, 300),
        ),
        ToolCall(name="search_help", arguments={"query": text(6)}, result=[text(15), text(15)], duration_ms=chance.uniform(20, 300)),
    )
    usage = Usage(input_tokens=chance.randrange(200, 900), output_tokens=chance.randrange(20, 200))
    return Evidence(input=text(20), text=text(45), tool_calls=calls, http_status=200, duration_ms=chance.uniform(300, 4000), usage=usage)
