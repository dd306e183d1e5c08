"""Faults are planted deterministically, and every proposed claim detects its fault."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from benchmarks.suite_quality import PAGE, measure_bundled, write_table

import proctor
from proctor.actions.checking.mutate import mutate, read_recordings
from proctor.actions.workspace.suites import load_suite
from proctor.cli.main import run
from proctor.errors import InputError
from proctor.evidence.reading import read_document
from proctor.formats.native.text import write_native
from proctor.formats.suites import read_suite
from proctor.model.account import Account
from proctor.model.case import Assertion, Suite
from proctor.model.evidence import (
    Evidence,
    EvidenceTurn,
    FhirState,
    Json,
    Node,
    State,
    StateChange,
    StateFile,
    ToolCall,
    Usage,
)
from proctor.model.mutation import KIND_NAMES, MutationResult
from proctor.mutation.call_edits import list_calls
from proctor.mutation.faults import plant_faults
from proctor.mutation.measure import read_claim
from proctor.mutation.tool_effects import find_effect
from proctor.report.builders.mutation import build_mutation
from proctor.report.document.html import write_html

EXAMPLES = Path(proctor.__file__).parent / "examples"
BUNDLED = {
    "native": ("suite.yaml", "evidence.jsonl"),
    "mcplab": ("orders.yaml", "trace.jsonl"),
    "mibo": ("calculator.json", "n8n-execution.json"),
    "verial": ("appointment.json", "state.json"),
    "mcpjam": ("calculator.yaml", "messages.json"),
}
RICH = Evidence(
    input="Refund order 17",
    text="Refunded 42.5 for order 17. Anything else that we can do for you?",
    tool_calls=(
        ToolCall(name="lookup_order", arguments={"id": 17}, result={"total": 42.5}),
        ToolCall(name="refund", arguments={"id": 17, "amount": 42.5, "note": "late", "lines": [1, 2]}, result={"ok": True}),
    ),
    nodes=(Node(name="Agent", tool_calls=()), Node(name="Mail")),
    duration_ms=900,
    usage=Usage(input_tokens=100, output_tokens=20),
    state=State(
        records={"orders": [{"id": "17", "status": "refunded"}]},
        fhir=FhirState(resources=({"resourceType": "Task", "id": "1", "status": "done"},)),
        files=(StateFile(path="a.txt", content="text"),),
        changes=(StateChange(system="shop", change="changed", place="orders/17", after={"id": "17", "status": "refunded"}),),
        systems=("shop",),
    ),
)


def test_every_kind_is_planted_and_changes_the_evidence() -> None:
    faults = list(plant_faults(RICH, ("delete_order",)))
    assert {fault.kind for fault in faults} == KIND_NAMES.keys()
    assert all(fault.evidence != RICH for fault in faults)


def test_the_same_input_gives_the_same_faults() -> None:
    first, second = ([msgspec.json.encode(fault.evidence) for fault in plant_faults(RICH)] for _ in range(2))
    assert first == second


def test_the_claims_to_add_can_be_pasted_together_from_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "The text of the document, in full length. " * 100
    lines = [
        {
            "input": f"store document {at}",
            "text": f"Stored document {at} for you, thank you.",
            "tool_calls": [{"name": "save", "arguments": {"id": at, "content": long, "key": "sk-abc12345678901234567890"}, "result": {}}],
        }
        for at in range(20, 24)
    ]
    evidence, suite = tmp_path / "week.jsonl", tmp_path / "suite.yaml"
    evidence.write_text("".join(json.dumps(line) + "\n" for line in lines))
    begin = "proctor: 1\ncases:\n  - id: a\n    expect:\n      - tool_called: save\n"
    suite.write_text(begin)
    assert run(["mutate", str(suite), str(evidence)]) == 0
    _, _, shown = capsys.readouterr().out.partition("Claims to add")
    block = [line for line in shown.split("\n\n")[0].splitlines() if line.startswith("      ")]
    assert len(block) >= 10 and not any("sk-abc" in line for line in block)
    suite.write_text(begin + "\n".join(block) + "\n")
    assert run(["check", str(suite), str(evidence)]) == 0
    capsys.readouterr()
    assert run(["mutate", str(suite), str(evidence), "--fail-under", "100"]) == 0


def test_unknown_parts_get_no_faults() -> None:
    unknown = msgspec.convert({"unknown": {"tool_calls": "why", "answer": "why", "state": "why"}}, Account)
    kinds = {fault.kind for fault in plant_faults(msgspec.structs.replace(RICH, account=unknown))}
    assert kinds == {"step_dropped", "slow", "costly"}


@pytest.mark.parametrize("nested", ["turns", "nodes"])
def test_calls_are_changed_at_every_place_that_records_them(nested: str) -> None:
    assert RICH.tool_calls is not None
    first, second = RICH.tool_calls
    parts: dict[str, Json] = {
        "turns": (EvidenceTurn(input="a", text="b", tool_calls=(first,)), EvidenceTurn(input="c", text="d", tool_calls=(second,))),
        "nodes": (Node(name="a", tool_calls=(first,)), Node(name="b", tool_calls=(second,))),
    }
    own = RICH.tool_calls if nested == "turns" else None
    evidence = Evidence(tool_calls=own, **{nested: parts[nested]})
    for fault in plant_faults(evidence):
        if not fault.tool:
            continue
        inside = [call for part in getattr(fault.evidence, nested) for call in part.tool_calls]
        assert inside == list(list_calls(fault.evidence)) != list(list_calls(evidence)), fault.kind


JSON = '{"status": "refunded", "rows": [{"amount": 42.5, "is late": true}], "note": "The money arrives in a few days."}'


@pytest.mark.parametrize(
    "text", [JSON, json.dumps(json.loads(JSON), separators=(",", ":")), f"```json\n{JSON}\n```", json.dumps(json.loads(JSON), indent=2)]
)
def test_members_of_a_json_answer_are_changed_and_the_answer_stays_json(text: str) -> None:
    (evidence,) = (each for _, each in read_recordings_of({"input": "a", "text": text, "tool_calls": []}))
    changed = {fault.path: json.loads(_unfence(fault.evidence.text)) for fault in plant_faults(evidence) if fault.path.startswith("$")}
    assert changed.keys() == {"$.status", "$.rows[0].amount", '$.rows[0]["is late"]', "$.note"}
    assert all(document != json.loads(_unfence(text)) for document in changed.values())
    for fault in plant_faults(evidence):
        if fault.path and evidence.body is not None:
            # Checks of the body see the same answer as checks of the text.
            assert fault.evidence.body == (json.loads(fault.evidence.text or "") if fault.path.startswith("$") else None), fault.place


def read_recordings_of(*records: Json) -> list[tuple[str, Evidence]]:
    return [("record", evidence) for record in records for evidence in read_document(record)]


def _unfence(text: str | None) -> str:
    return (text or "").removeprefix("```json\n").removesuffix("\n```")


@pytest.mark.parametrize("answer", [{"text": JSON}, {"body": json.loads(JSON)}, {"text": f"```json\n{JSON}\n```"}, {"body": [1, "two"]}])
def test_a_claim_is_proposed_for_every_survivor_in_a_json_answer(answer: dict[str, Json]) -> None:
    (named,) = read_recordings_of({"case": "a", "input": "a", "tool_calls": [], **answer})
    found = _measure(_write("      - no_tool_errors\n"), [named[1]])
    assert found.kinds["answer_different"].survived >= 2
    assert [one for one in found.faults if one.status == "survived" and not one.claim] == []


def test_a_claim_on_a_member_detects_faults_in_it_and_no_others() -> None:
    ((_, evidence),) = read_recordings_of({"case": "a", "input": "a", "text": JSON, "tool_calls": []})
    found = _measure(_write("      - json_path: {path: $.status, equals: refunded}\n"), [evidence])
    survived = {one.place for one in found.faults if one.status == "survived" and one.kind == "answer_different"}
    assert survived == {"the answer, rows[0].amount", 'the answer, rows[0]["is late"]', "the answer, note"}


def test_numbers_of_a_text_are_changed_and_those_of_a_list_are_not() -> None:
    evidence = Evidence(input="a", text="Your orders:\n1. Order 17 cost 42.50 EUR.\n2. Order A-9 is late.", tool_calls=())
    texts = [fault.evidence.text for fault in plant_faults(evidence) if "," in fault.place and fault.kind == "answer_different"]
    assert texts == [
        "Your orders:\n1. Order 18 cost 42.50 EUR.\n2. Order A-9 is late.",
        "Your orders:\n1. Order 17 cost 42.51 EUR.\n2. Order A-9 is late.",
    ]


def _measure(suite: Suite, evidence: str | list[Evidence]) -> MutationResult:
    named = read_recordings([evidence], suite) if isinstance(evidence, str) else [(f"record {n}", each) for n, each in enumerate(evidence)]
    return mutate(suite, named)


@pytest.mark.parametrize("dialect", BUNDLED)
def test_the_proposed_claims_detect_the_survivors_of_bundled_suites(dialect: str) -> None:
    """Each claim is added to the converted suite: its records still pass, and its survivors are detected."""
    suite_file, evidence_file = (EXAMPLES / dialect / name for name in BUNDLED[dialect])
    suite = read_suite(write_native(load_suite(suite_file)), name="converted")
    before = _measure(suite, str(evidence_file))
    assert before.total.planted > 5 and before.total.survived
    assert [one for one in before.faults if one.status == "survived" and not one.claim] == []
    added = [
        msgspec.structs.replace(
            case,
            assertions=(*case.assertions, *(claim for each in before.proposals if each.case == case.id if (claim := _read(each.line)))),
        )
        for case in suite.cases
    ]
    after = _measure(msgspec.structs.replace(suite, cases=tuple(added)), str(evidence_file))
    assert after.records == before.records
    assert after.total.survived == 0
    assert after.total.planted == before.total.planted


def test_the_table_of_the_docs_has_the_measured_figures_of_bundled_suites() -> None:
    """`python -m benchmarks.suite_quality FOLDER --write` writes it."""
    page = PAGE.read_text()
    assert [row for row in write_table(list(measure_bundled())).splitlines() if row not in page] == []


def _read(line: str) -> Assertion | None:
    suite = read_suite(f"proctor: 1\ncases:\n  - id: a\n    expect:\n      {line}\n", name="claim")
    return suite.cases[0].assertions[0]


def _write(claims: str, varies: str = "[]") -> Suite:
    return read_suite(f"proctor: 1\ncases:\n  - id: a\n    settings: {{varies: {varies}}}\n    expect:\n{claims}", name="test")


def test_declared_variation_is_counted_separately() -> None:
    claims = "      - tool_called: {name: refund, arguments: {amount: {$gt: 0}}}\n"
    plain = _measure(_write(claims), [RICH])
    free = [one.place for one in plain.faults if one.status == "free"]
    assert free == ["call 2, refund, amount"]
    declared = _measure(_write(claims, "[calls_swapped, 'call_repeated:lookup_order', lookup_order.id]"), [RICH])
    assert declared.kinds["calls_swapped"].free == 1 and declared.kinds["call_repeated"].free == 1
    assert declared.total.detected == plain.total.detected
    assert declared.total.planted < plain.total.planted


@pytest.mark.parametrize("entry", ["calls_swaped", "call_repeat:refund"])
def test_an_unknown_kind_of_declared_variation_is_a_mistake(entry: str) -> None:
    with pytest.raises(InputError, match="nearest: 'call"):
        _measure(_write("      - tool_called: refund\n", f"['{entry}']"), [RICH])


def test_records_that_do_not_pass_are_counted_and_not_used() -> None:
    found = _measure(_write("      - tool_called: cancel\n"), [RICH])
    assert found.total.planted == 0
    assert found.skipped == {"the record does not pass its case": 1}


def test_claims_that_detect_nothing_are_listed() -> None:
    found = _measure(_write("      - tool_called: refund\n      - tool_not_called: nothing\n"), [RICH])
    assert list(found.unused) == [("a", "tool_not_called · nothing")]


def test_a_claim_that_cannot_be_read_is_not_proposed() -> None:
    assert read_claim({"tool_called": {"name": ""}}) is None
    assert read_claim("no_tool_errors") is not None


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("getOrder", "reads"),
        ("crm.search_all", "reads"),
        ("order_refund", "changes"),
        ("mcp__shop__delete", "changes"),
        ("blob", "unknown"),
    ],
)
def test_the_first_verb_of_a_name_decides_its_effect(name: str, effect: str) -> None:
    assert find_effect(name) == effect


def test_the_command_writes_every_format_and_fails_under_a_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite, evidence = (str(EXAMPLES / "native" / name) for name in BUNDLED["native"])
    assert run(["mutate", suite, evidence, "--format", "json", "--output", str(tmp_path / "a.json")]) == 0
    assert run(["mutate", suite, evidence, "--format", "json", "--output", str(tmp_path / "b.json")]) == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    document = json.loads((tmp_path / "a.json").read_bytes())
    assert document["schema"] == "proctor.mutation/1"
    assert document["total"]["detected"] + document["total"]["survived"] == len(document["faults"])
    assert run(["mutate", suite, evidence, "--fail-under", "99"]) == 1
    assert "--fail-under demands 99 %" in capsys.readouterr().err
    assert run(["mutate", suite, evidence, "-k", "nothing"]) == 5
    assert run(["mutate", suite, "nothing.jsonl"]) == 4
    assert "no such file or folder: 'nothing.jsonl'" in capsys.readouterr().err


def test_the_page_escapes_what_it_shows() -> None:
    found = _measure(
        _write("      - tool_called: refund\n"), [msgspec.structs.replace(RICH, text="<script>alert(1)</script> and more words")]
    )
    assert "<script>alert" not in write_html(build_mutation(found, "html"))


def test_a_stored_run_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text("targets: {}\n")
    suite = tmp_path / "suite.yaml"
    suite.write_text("proctor: 1\ncases:\n  - {id: a, input: hello, expect: [response_contains: hello]}\n")
    (tmp_path / "agent.py").write_text("def answer(message):\n    return message\n")
    assert run(["run", "suite.yaml", "--target", "agent:answer", "--quiet"]) == 0
    assert run(["mutate", "suite.yaml", "latest", "--format", "json"]) == 0
    assert '"answer_empty"' in capsys.readouterr().out
