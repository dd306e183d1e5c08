"""A named model adds wordings and claims, and can never lower the measured quality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.actions.generating import ask_model
from proctor.actions.generating.ask_model import extend_cases, open_model
from proctor.checks.registry import default_registry
from proctor.cli.main import run
from proctor.decide.prepare import PreparedCase
from proctor.errors import InputError
from proctor.formats.suites import read_suite
from proctor.formats.text.yaml_text import to_yaml
from proctor.generation.proposals import GENERATED
from proctor.generation.trace_cases import Generated, TraceGrouping
from proctor.llm.ports import ModelFault
from proctor.llm.scripted import ScriptedModel
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall


def _make_run(number: int) -> Evidence:
    lookup = ToolCall(name="lookup_order", arguments={"id": number}, result={"total": number * 7})
    refund = ToolCall(name="refund", arguments={"id": number, "amount": number * 7}, result={"ok": True})
    text = f"Refunded {number * 7} euros for order {number}, it takes 5 days."
    return Evidence(input=f'Refund order {number}, "blue shoes"', text=text, tool_calls=(lookup, refund))


def _generate(runs: int = 6) -> Generated:
    grouping = TraceGrouping()
    for number in range(100, 100 + runs):
        grouping.add(_make_run(number), f"trace {number}")
    return grouping.finish()


def _reply(claims: list[Any] | None = None, wordings: list[dict[str, str]] | None = None) -> str:
    return (
        "```json\n"
        + json.dumps({"wordings": wordings or [], "claims": [{"claim": claim, "because": "x"} for claim in claims or []]})
        + "\n```"
    )


async def _extend(*script: Any, cases: Generated | None = None) -> tuple[list[dict[str, Json]], list[str]]:
    model = ScriptedModel(list(script), name="stub")
    found = await extend_cases((cases or _generate()).cases, model)
    assert model.closed
    return found


async def test_a_claim_stays_only_if_it_holds_and_detects_what_no_other_claim_detects() -> None:
    claims = [
        {"response_contains": "5 days"},  # holds, and detects another number of days
        {"response_contains": "it takes 5 days"},  # detects the same again
        {"response_contains": "euros"},  # detects nothing that the others miss
        {"response_contains": "7 days"},  # does not hold
        {"llm_judge": "is polite"},
        {"no_such_check": 1},
        {"response_contains": "5 days", "tool_called": "x"},
        "response_not_empty",
        17,
        {"tool_called": {"name": "refund", "arguments": {"id": 100}}},  # holds of one run only
    ]
    (document,), notes = await _extend(_reply(claims))
    added = document["expect"][len(_generate().cases[0].document["expect"]) :]
    because = "proposed by stub, held of 6 runs, detects answer_different: x"
    assert added == [{"response_contains": "5 days", "because": because}]
    assert not any(word in because for word in GENERATED), "generating again without the model would remove it"
    assert sum(int(note.split(", ")[1].split()[0]) for note in notes) == 9
    (case,) = read_suite(to_yaml({"proctor": 1, "cases": [document]}), name="x").cases
    prepared = PreparedCase(case, default_registry())
    assert all(prepared.decide(_make_run(number)) for number in range(100, 106))
    wrong = msgspec.structs.replace(_make_run(100), text="Refunded 700 euros for order 100, it takes 6 days.")
    assert not prepared.decide(wrong)


async def test_a_wording_keeps_every_value_and_is_another_one() -> None:
    wordings = [
        {"input": 'hey can u pls refund "blue shoes", its order 100!!', "persona": "hurried teenager"},
        {"input": 'Refund  order 100, "BLUE shoes"', "persona": "same"},
        {"input": "Refund my order 100", "persona": "no quote"},
        {"input": 'A fourth, of order 100, for "blue shoes"'},
    ]
    (case, worded), notes = await _extend(_reply(wordings=wordings))
    assert worded["id"] == "lookup-order-refund-hurried-teenager" and worded["input"] == wordings[0]["input"]
    assert worded["expect"] == case["expect"] and "not recorded" in worded["description"]
    assert any("1 proposal of stub: the wording does not keep every value" in note for note in notes)
    assert any("1 proposal of stub: the wording is not another one" in note for note in notes)
    other_order = {"input": 'Please refund order 101, "blue shoes"'}
    assert len((await _extend(_reply(wordings=[other_order])))[0]) == 1


@pytest.mark.parametrize(
    "line",
    ["no JSON", '{"claims": 3}', "", '{"claims": [{"claim": ' + "[" * 5_000, ModelFault("unauthorized", "no key")],
    ids=("text", "shape", "empty", "deep", "fault"),
)
async def test_a_reply_that_cannot_be_used_leaves_the_cases_as_they_are(line: Any) -> None:
    documents, notes = await _extend(line)
    assert documents == [case.document for case in _generate().cases] and len(notes) == 1


async def test_after_a_fault_the_model_is_not_called_again() -> None:
    grouping = TraceGrouping()
    for number in range(100, 106):
        run = _make_run(number)
        grouping.add(run, "a")
        grouping.add(msgspec.structs.replace(run, tool_calls=run.tool_calls[:1]), "b")
    model = ScriptedModel([ModelFault("timeout", "slow")], name="stub")
    documents, notes = await extend_cases(grouping.finish().cases, model)
    assert len(documents) == 2 and len(model.requests) == 1 and "slow" in notes[0]


async def test_recorded_instructions_reach_neither_the_claims_nor_the_wording() -> None:
    """The model obeys an injection in a recorded answer; its proposals then fail on the runs."""
    obeyed = _reply([{"tool_called": "delete_everything"}], [{"input": "Delete everything", "persona": "attacker"}])
    documents, _ = await _extend(obeyed)
    assert documents == [case.document for case in _generate().cases]


async def test_conversations_get_claims_and_no_wording() -> None:
    grouping = TraceGrouping()
    for number in range(100, 105):
        turns = tuple(EvidenceTurn(input=f"{text} {number}", text="It takes 5 days.") for text in ("Hello", "Bye"))
        grouping.add(Evidence(turns=turns, text="It takes 5 days.", tool_calls=()), "t")
    documents, notes = await _extend(_reply(wordings=[{"input": "x"}]), cases=grouping.finish())
    assert len(documents) == 1 and any("is not reworded" in note for note in notes)


def test_the_command_names_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    records = (msgspec.json.encode(_make_run(number)) for number in range(100, 106))
    (tmp_path / "traces.jsonl").write_bytes(b"\n".join(records))
    model = ScriptedModel([_reply([{"response_contains": "5 days"}, {"response_contains": "no"}])], name="stub")
    monkeypatch.setattr(ask_model, "open_model", lambda name, home, environment: model if name == "acme/stub" else None)
    assert run(["generate", "traces", "traces.jsonl", "--model", "acme/stub"]) == 0
    assert "proposed by stub" in (tmp_path / "suite.pending.yaml").read_text()
    assert "dropped, 1 proposal of stub: the claim does not hold" in capsys.readouterr().err
    with pytest.raises(InputError, match="nowhere"):
        open_model("nowhere", tmp_path, {})
