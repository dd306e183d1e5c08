"""Cases generated from recorded runs of real frameworks pass on their own group and on later runs, and detect planted faults."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path

import msgspec
import pytest

from proctor.actions.checking.mutate import mutate
from proctor.actions.generating.generate_traces import group_files
from proctor.checks.registry import default_registry
from proctor.decide.prepare import PreparedCase
from proctor.formats.suites import read_suite
from proctor.formats.text.yaml_text import to_yaml
from proctor.generation.observations import GroupFacts
from proctor.generation.proposals import GENERATED
from proctor.generation.trace_cases import Generated, GeneratedCase, TraceGrouping
from proctor.generation.trace_paths import FAILED, EffectNames, reduce_trace
from proctor.generation.volatile import find_rule
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, EvidenceTurn, Json, Node, State, StateChange, ToolCall, Usage
from tests.generation.messy_agent import make_run
from tests.generation.varied_traces import FRAMEWORKS, group_evidence, read_varied

HONEST = frozenset(("sequential", "parallel", "error", "multi", "streamed"))


def _read(found: Generated) -> Suite:
    return read_suite(to_yaml({"proctor": 1, "name": "generated", "cases": [case.document for case in found.cases]}), name="generated")


@pytest.mark.in_turn
@pytest.mark.timeout(60)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_generated_cases_hold_of_their_group_and_of_later_runs_and_detect_faults(framework: str) -> None:
    runs = list(read_varied(framework, 24, scenarios=HONEST))
    found = group_evidence((scenario, evidence) for scenario, evidence in runs)
    assert len(runs) >= 96 and len(found.cases) >= 4
    suite = _read(found)
    prepared = {case.id: PreparedCase(case, default_registry()) for case in suite.cases}
    paths = {case.path: case.document["id"] for case in found.cases}
    case_of = {scenario: paths[reduce_trace(evidence, EffectNames())] for scenario, evidence in runs if _is_usable(evidence)}
    assert [
        one.outcome for scenario, each in runs if scenario in case_of for one in [prepared[case_of[scenario]].decide(each)] if not one
    ] == []
    later = list(read_varied(framework, 8, start=1_000, scenarios=HONEST))
    alarms = [prepared[case_of[scenario]].decide(each) for scenario, each in later if scenario in case_of]
    assert sum(not one for one in alarms) <= 0.02 * len(alarms)
    # A real fault: the agent refunds ten times the amount, and the answer does not show it.
    sabotaged = read_varied(framework, 3, scenarios=frozenset(("sabotage",)))
    assert [1 for _, each in sabotaged if prepared[case_of["sequential"]].decide(each)] == []
    named = [(scenario, msgspec.structs.replace(each, case=case_of[scenario])) for scenario, each in runs if scenario in case_of]
    measured = mutate(suite, named, most=2)
    shares = [counts.share for counts in measured.cases.values() if counts.share is not None]
    assert statistics.median(shares) >= 0.8 and min(shares) >= 0.6


def test_cases_of_an_untidy_agent_raise_few_alarms_and_detect_most_faults() -> None:
    source = random.Random(1)
    runs = [make_run(source) for _ in range(800)]
    found = group_evidence((f"trace {at}", evidence) for at, evidence in enumerate(runs))
    suite = _read(found)
    prepared = {case.id: PreparedCase(case, default_registry()) for case in suite.cases}
    paths = {case.path: case.document["id"] for case in found.cases}
    named = [(case, msgspec.structs.replace(one, case=case)) for one in runs if (case := paths.get(reduce_trace(one, EffectNames())))]
    assert [one.text for case, one in named if not prepared[case].decide(one)] == []
    later = [(case, one) for one in (make_run(source) for _ in range(800)) if (case := paths.get(reduce_trace(one, EffectNames())))]
    alarms = [one.text for case, one in later if not prepared[case].decide(one)]
    assert len(later) > 700 and len(alarms) <= 0.02 * len(later)
    measured = mutate(suite, named, most=2)
    shares = [counts.share for counts in measured.cases.values() if counts.share is not None]
    assert statistics.median(shares) >= 0.8 and min(shares) >= 0.6


def _is_usable(evidence: Evidence) -> bool:
    return not (evidence.account is not None and evidence.account.unknown.keys() & {"tool_calls", "tool_arguments", "answer"})


def _make_runs(*calls: list[ToolCall], text: str = "Done for order {}.") -> list[tuple[str, Evidence]]:
    return [
        (f"trace {at}", Evidence(input=f"order {at + 100}", text=text.format(at + 100), tool_calls=tuple(each)))
        for at, each in enumerate(calls)
    ]


def _list_claims(runs: list[tuple[str, Evidence]]) -> list[Json]:
    (case,) = group_evidence(runs).cases
    return [{key: value for key, value in claim.items() if key != "because"} for claim in case.document["expect"]]


def _call(name: str, **arguments: Json) -> ToolCall:
    return ToolCall(name=name, arguments=arguments, result={"ok": True})


def test_an_argument_is_a_constant_copied_one_of_few_of_a_form_or_of_a_type() -> None:
    runs = _make_runs(
        *(
            [_call("book", id=at + 100, currency="EUR", size=("S", "M")[at % 2], code=f"B-{at}-x", note=f"note number {at * 7}", n=at / 2)]
            for at in range(24)
        )
    )
    claims = _list_claims(runs)
    expected = {
        "id": {"$type": "number"},
        "currency": "EUR",
        "size": {"$one_of": ["M", "S"]},
        "code": {"$regex": r"^B\-\d+\-x$"},
        "note": {"$type": "text"},
        "n": {"$type": "number"},
    }
    assert {"tool_called": {"name": "book", "arguments": expected, "strict": True}} in claims
    assert {"argument_copied": {"tool": "book", "argument": "id"}} in claims
    assert {"tool_call_count": {"name": "book", "count": 1}} in claims
    assert {"answer_repeats": {"tool": "book", "argument": "id"}} in claims


def test_every_call_of_a_repeated_tool_is_claimed_and_effects_count_without_failed_attempts() -> None:
    failed = ToolCall(name="refund", arguments={"id": 1}, error="timeout")
    runs = _make_runs(
        *(
            [_call("get_order", id=at)] * (1 + at % 2) + [failed] * (at % 3 == 0) + [_call("refund", id=at + 100, day=f"2026-01-{at + 10}")]
            for at in range(24)
        )
    )
    claims = _list_claims(runs)
    called = {claim["tool_called"]["name"]: claim["tool_called"] for claim in claims if "tool_called" in claim}
    assert called["get_order"]["every"] and "at_least" not in called["get_order"]
    assert called["refund"]["arguments"]["day"] == {"$regex": r"^\d{4}-\d{2}-\d{2}$", "$optional": True}
    assert {"tool_call_count": {"name": "refund", "count": 1, "succeeded": True}} in claims
    assert {"that": "all(tool_calls[*].name != 'get_order' or tool_calls[*].error == null)"} in claims
    suite = _read(group_evidence(runs))
    twice = msgspec.structs.replace(runs[1][1], tool_calls=(*(runs[1][1].tool_calls or ()), _call("refund", id=101, day="2026-01-11")))
    decide = PreparedCase(suite.cases[0], default_registry()).decide
    assert decide(runs[1][1]) and not decide(twice)


def test_an_answer_after_a_failed_call_must_say_so() -> None:
    failed = ToolCall(name="refund", arguments={}, error="not found")
    runs = [
        (f"trace {at}", Evidence(input=f"a {at}", text=("It was not refunded.", "No refund.")[at % 2], tool_calls=(failed,)))
        for at in range(24)
    ]
    claims = _list_claims(runs)
    assert [claim for claim in claims if "flags" in str(claim)] and not [claim for claim in claims if "response_contains" in claim]
    decide = PreparedCase(_read(group_evidence(runs)).cases[0], default_registry()).decide
    assert not decide(msgspec.structs.replace(runs[0][1], text="It was refunded."))


def test_an_argument_that_is_sometimes_missing_is_optional() -> None:
    claims = _list_claims(_make_runs(*([_call("book", **({"gift": True} if at % 2 else {}))] for at in range(6))))
    assert {"tool_called": {"name": "book", "arguments": {"gift": {"$exact": True, "$optional": True}}, "strict": True}} in claims


SECRET = "sk-abc12345678901234567890"


@pytest.mark.parametrize("place", ["input", "turns", "body", "argument", "named argument", "state"])
def test_no_secret_of_a_recording_is_written(place: str) -> None:
    text, named = f"Refund, my key is {SECRET}.", "hunter2-is-long"
    call = _call("refund", **({"note": SECRET} if place == "argument" else {"password": named} if place == "named argument" else {}))
    turns = (EvidenceTurn(input=text, text="Done.", tool_calls=(call,)), EvidenceTurn(input="Thanks", text="Bye.", tool_calls=()))
    change = StateChange(system="shop", change="changed", place="users/1", after={"password": named, "name": "Ada"})
    runs = [
        Evidence(
            input={"password": named} if place == "body" else text if place == "input" else f"Refund {at}",
            text="Done.",
            turns=turns if place == "turns" else None,
            tool_calls=(call,),
            state=State(changes=(change,)) if place == "state" else None,
        )
        for at in range(24)
    ]
    found = group_evidence((f"trace {at}", each) for at, each in enumerate(runs))
    (case,) = found.cases
    written = to_yaml(case.document)
    assert SECRET not in written and named not in written
    assert ("[redacted]" in written) == (place in ("input", "turns", "body"))
    prepared = PreparedCase(_read(found).cases[0], default_registry())
    assert all(prepared.decide(each) for each in runs)


def test_an_input_without_a_secret_is_preferred() -> None:
    runs = [
        ("a", Evidence(input=SECRET, text="ok", tool_calls=())),
        *((f"b{at}", Evidence(input=f"The longer question number {at}", text="ok", tool_calls=())) for at in range(3)),
    ]
    assert group_evidence(runs).cases[0].document["input"] == "The longer question number 0"


def test_the_input_of_a_case_has_the_words_of_most_inputs() -> None:
    inputs = ["Hi!", *(f"Please refund order {at}, it came late" for at in range(17, 22)), "Please refund order 5"]
    runs = [(f"trace {at}", Evidence(input=each, text="ok", tool_calls=())) for at, each in enumerate(inputs)]
    assert group_evidence(runs).cases[0].document["input"] == "Please refund order 17, it came late"


def test_a_long_constant_is_claimed_by_its_ends_or_its_type() -> None:
    runs = _make_runs(*([_call("save", text="One line of the text. " * 200, rows=[{"a": 1}] * 200)] for _ in range(4)))
    called = next(claim["tool_called"] for claim in _list_claims(runs) if "tool_called" in claim)
    assert called["arguments"]["text"].keys() == {"$starts_with", "$ends_with"} and called["arguments"]["rows"] == {"$type": "list"}
    assert len(str(called)) < 500


def test_a_sentence_that_few_answers_repeat_is_not_claimed() -> None:
    documents = ToolCall(name="search", arguments={}, result=[{"text": "Returns are free within 30 days."}])
    for count in (6, 24):
        found = group_evidence(_make_runs(*([documents] for _ in range(count)), text="{}: Returns are free within 30 days."))
        assert ("*.text" in str(found.cases[0].document)) == (count == 24)


def test_a_volatile_constant_becomes_a_pattern() -> None:
    claims = _list_claims(_make_runs(*([_call("book", key="123e4567-e89b-12d3-a456-426614174000")] for _ in range(4))))
    called = next(claim["tool_called"] for claim in claims if "tool_called" in claim)
    assert called["arguments"]["key"].keys() == {"$regex"}
    assert [find_rule(value) for value in ("2026-01-31", "sk-abcdefghijklmnop1234", 1234567890, "hello", 17)] == [
        *("date", "token", "long number"),
        *(None, None),
    ]


def test_unused_tools_with_effects_are_forbidden_and_reads_are_not() -> None:
    runs = [*_make_runs(*([_call("lookup_order")] for _ in range(4))), *_make_runs(*([_call("refund")] for _ in range(4)), text="No")]
    first = group_evidence(runs).cases[0]
    forbidden = [claim["tool_not_called"] for claim in first.document["expect"] if "tool_not_called" in claim]
    assert forbidden == ["refund"]


def test_paths_fold_reads_and_retries() -> None:
    failed = ToolCall(name="refund", arguments={}, error="try again")
    one = Evidence(input="a", tool_calls=(_call("get_b"), _call("get_a"), _call("get_b"), failed, _call("refund")))
    two = Evidence(input="a", tool_calls=(_call("get_a"), _call("get_b"), _call("refund")))
    assert reduce_trace(one, EffectNames()) == reduce_trace(two, EffectNames())
    assert reduce_trace(Evidence(input="a", tool_calls=(failed,)), EffectNames()).steps == (f"refund{FAILED}",)
    assert reduce_trace(one, EffectNames(changes=frozenset(("get_a",)))).steps == ("get_b", "get_a", "get_b", "refund")


def test_rare_paths_are_listed() -> None:
    usual = [[_call("get_order"), _call("refund")] for _ in range(20)]
    found = group_evidence(_make_runs(*usual, [_call("refund")], [_call("refund")], [_call("cancel")]))
    assert [(case.document["id"], case.runs) for case in found.cases] == [("get-order-refund", 20)]
    assert found.rare == (("refund (a case needs 3)", 2), ("cancel (a case needs 3)", 1))


def test_runs_that_cannot_be_used_are_counted() -> None:
    broken = Evidence(input="a", tool_calls=(), text="x", error="timeout")
    found = group_evidence([("a", broken), ("b", Evidence(text="x", tool_calls=())), ("c", Evidence(input="a", text="x"))])
    assert found.left_out == {
        "the run did not finish": 1,
        "the input was not recorded": 1,
        "the tool calls are not known completely": 1,
    }


def test_the_end_state_of_simulators_is_claimed() -> None:
    changes = (StateChange(system="shop", change="changed", place="orders/17", after={"id": "17", "status": "refunded"}),)
    runs = [
        (f"trace {at}", Evidence(input=f"order {at}", text="Done.", tool_calls=(_call("refund"),), state=State(changes=changes)))
        for at in range(4)
    ]
    claims = _list_claims(runs)
    assert {"unchanged": {"allowed": [{"place": "shop/orders/*", "change": "changed", "at_most": 1}]}} in claims
    assert {"that": "'refunded' in state.changes[*].after.status"} in claims


def test_a_conversation_is_written_as_turns() -> None:
    turns = (EvidenceTurn(input="Where is 17?", text="Shipped.", tool_calls=()), EvidenceTurn(input="Thanks", text="Bye.", tool_calls=()))
    runs = [(f"trace {at}", Evidence(input="Where is 17?", text="Bye.", tool_calls=(), turns=turns)) for at in range(3)]
    (case,) = group_evidence(runs).cases
    assert [turn["input"] for turn in case.document["turns"]] == ["Where is 17?", "Thanks"]
    assert case.document["id"] == "answer-without-tools-in-2-messages"


def test_the_same_runs_give_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    script = (
        "from tests.generation.varied_traces import group_evidence, read_varied\n"
        "from proctor.formats.text.yaml_text import to_yaml\n"
        "print(to_yaml([case.document for case in group_evidence(read_varied('strands-latest', 5)).cases]))\n"
    )
    written = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            cwd=Path(__file__).parents[2],
        ).stdout
        for seed in ("1", "2")
    }
    assert len(written) == 1 and b"argument_copied" in written.pop()


def test_memory_does_not_grow_with_the_number_of_runs() -> None:
    grouping = TraceGrouping()
    for at in range(2_000):
        for source, evidence in _make_runs([_call("book", id=at, note=f"n{at}")]):
            grouping.add(evidence, source)
    (group,) = getattr(grouping, "_groups").values()  # noqa: B009 - what is stored
    assert isinstance(group, GroupFacts) and group.runs == 2_000
    assert len(group.samples) <= 16 and len(group.inputs) <= 100 and len(group.sources) <= 3


def test_parquet_and_lines_give_the_same_cases(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    runs = _make_runs(*([_call("book", id=at + 100)] for at in range(5)))
    lines = [msgspec.json.encode(evidence).decode() for _, evidence in runs]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    folder = tmp_path / "history" / "day=2026-11-19"
    folder.mkdir(parents=True)
    parquet.write_table(arrow.table({"id": list("abcdef"), "record": [*lines, "{broken"]}), folder / "part-0.parquet")
    (folder / "notes.txt").write_text("not evidence")
    parquet.write_table(arrow.table({"outcome": ["pass"]}), folder / "results.parquet")
    (folder / "torn.parquet").write_bytes(b"PAR1")
    (by_line,) = group_files([str(tmp_path / "a.jsonl")]).cases
    found = group_files([str(tmp_path / "history")])
    (by_row,) = found.cases
    assert {**by_row.document, "description": ""} == {**by_line.document, "description": ""}
    ((why, count),) = found.left_out.items()
    assert count == 3 and why.startswith("the record cannot be read (first ")
    assert group_files([str(tmp_path / "a.jsonl"), str(folder / "part-0.parquet")]).runs == 10


def _make_orders(answer: str) -> list[tuple[str, Evidence]]:
    """Return runs of a workflow without an agent: an order is confirmed or rejected."""
    runs: list[tuple[str, Evidence]] = []
    for at in range(32):
        confirmed = at % 4 > 0
        names = ("Webhook", "Has quantity", *(("Reserve", "Confirm") if confirmed else ("Reject",)), "Respond")
        body: dict[str, Json] = {
            "status": "confirmed" if confirmed else "rejected",
            "total": at * 2.5,
            "id": f"O-{at}",
            "day": f"2026-01-{at + 1:02}",
            "size": "SML"[at // 4 % 3],
            **({"gift": {"card": at}} if at % 3 else {}),
        }
        nodes = tuple(Node(name=name, output=[{"at": at}]) for name in names)
        text = json.dumps(body) if answer == "text" else None
        runs.append((f"{at}", Evidence(input={"sku": f"W-{at}", "qty": at}, text=text, body=body, nodes=nodes, tool_calls=())))
    return runs


@pytest.mark.parametrize("answer", ["text", "body"])
def test_a_workflow_gets_a_case_for_each_branch_with_its_steps_and_the_members_of_its_answer(answer: str) -> None:
    runs = _make_orders(answer)
    found = group_evidence(runs)
    assert [case.document["id"] for case in found.cases] == [
        "webhook-has-quantity-reserve-confirm-respond",
        "webhook-has-quantity-reject-respond",
    ]
    confirmed = [{key: value for key, value in claim.items() if key != "because"} for claim in found.cases[0].document["expect"]]
    assert [one["node_called"] for one in confirmed if "node_called" in one] == [
        *("Webhook", "Has quantity", "Reserve", "Confirm", "Respond"),
        {"name": "Reject", "condition": "not_called"},
    ]
    properties = {
        "status": {"const": "confirmed"},
        "total": {"type": "number"},
        "id": {"type": "string", "pattern": r"^O\-\d+$"},
        "day": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        "size": {"enum": ["L", "M", "S"]},
        "gift": {"type": "object"},
    }
    assert not any("response_contains" in claim for claim in confirmed)
    schema = next(claim["json_schema"]["schema"] for claim in confirmed if "json_schema" in claim)
    assert schema["required"] == ["status", "total", "id", "day", "size"] and schema["properties"] == properties
    suite = _read(found)
    assert [case.custom_body for case in suite.cases] == [{"sku": "W-1", "qty": 1}, {"sku": "W-0", "qty": 0}]
    measured = mutate(suite, runs)
    assert min(counts.share or 0 for counts in measured.cases.values()) >= 0.6


def test_other_steps_and_failed_ones_are_another_path_whose_name_stays() -> None:
    steps = [("A", "B"), ("A", "C!"), ("A", "B", "C" * 70), ("A", "B", "D" * 70)]
    nodes = [tuple(Node(name=name) for name in names) for names in steps] + [(Node(name="A"), Node(name="B", status="error"))]
    runs = [(str(at), Evidence(input=f"order {at}", text="Done.", tool_calls=(), nodes=each)) for at, each in enumerate(nodes * 3)]
    names = {case.document["id"] for case in group_evidence(runs).cases}
    assert len(names) == 5 and names >= {"a-b", "a-c", "a-b-failed"}
    assert {case.document["id"] for at in range(5) for case in group_evidence(runs[at::5]).cases} == names


def test_messages_that_were_recorded_as_a_list_are_a_conversation() -> None:
    runs = [(f"{at}", Evidence(input=["Hello", f"Refund {at}"], text="Done.", tool_calls=())) for at in range(3)]
    suite = _read(group_evidence(runs))
    assert [turn.input for turn in suite.cases[0].turns] == ["Hello", "Refund 0"]


def test_a_plain_result_that_every_answer_repeats_is_claimed() -> None:
    runs = _make_runs(
        *([ToolCall(name="calculate", arguments={"term": f"{at}+1"}, result=str(at + 100))] for at in range(4)), text="It is {}."
    )
    assert {"answer_repeats": {"tool": "calculate", "path": ""}} in _list_claims(runs)


@pytest.mark.parametrize("runs", [1, 4])
def test_every_reason_is_one_of_a_generated_claim_and_names_the_least_limit(runs: int) -> None:
    evidence = Evidence(input="order 1", text="Done.", tool_calls=(_call("refund", id=1),), duration_ms=40, usage=Usage(input_tokens=9))
    (case,) = _group([evidence] * runs)
    reasons = [claim["because"] for claim in case.document["expect"]]
    assert [why for why in reasons if not any(words in why for words in GENERATED)] == []
    assert any(why.startswith("at least 1,000 ms, and 3 times the most that was seen, 40 ms, in ") for why in reasons)


def _group(runs: list[Evidence]) -> tuple[GeneratedCase, ...]:
    grouping = TraceGrouping()
    for at, evidence in enumerate(runs):
        grouping.add(evidence, str(at))
    return grouping.finish(least=1).cases
