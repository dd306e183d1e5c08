"""How a judge's reply is parsed, and that a reply has no other effect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.judge.reply import MAX_REPLY, Fault, Item, ReadReply, read_reply
from proctor.model.judgement import Material, Question
from tests.tables import rows

IDS = ("agent-check-1", "agent-check-2")


def questions(scored: bool = False) -> list[Question]:
    material = Material(subject="hello")
    return [
        Question(criterion=f"it {label}", label=label, material=material, threshold=0.8 if scored else None)
        for label in ("greets", "names the order")
    ]


def plain(read: ReadReply) -> list[Any]:
    out: list[Any] = []
    for item in read.items:
        if isinstance(item, Fault):
            out.append(item.code)
        else:
            out.append([item.passed, item.reason] if item.score is None else [item.score, item.passed, item.reason])
    return out


@rows("judge/cases/replies.yaml")
def test_a_reply_is_read_as_in_the_table(row: dict[str, Any]) -> None:
    read = read_reply(row["given"], questions(row.get("scored", False)), IDS, "grader")
    assert plain(read) == row["expect"]
    for item in read.items:
        assert not isinstance(item, Fault) or item.text
    whole = {item.code for item in read.items if isinstance(item, Fault)} & {"judge_not_json", "judge_bad_results", "judge_bad_item"}
    assert (read.fault is not None) == bool(whole)
    assert read.fault_code in {*whole, None}


DENIALS = (
    "does NOT meet", "Does not meet the criterion", "It is not met.", "Not met: no day.", "The check is unmet.", "Criterion unmet", "FALSE",
    "No day, therefore pass = false", "No day, so the result is false.", "Pass should be false.", "The answer violates the requirement.",
    "Das Kriterium ist nicht erfüllt.", "Nicht erfüllt.", "El criterio no se cumple.", "Le critère n'est pas rempli.",
)  # fmt: skip
OTHER_REASONS = (
    "It lists the states open, closed, failed.", "It says the payment failed.", "It names the day; true, not false.",
    "Fail-safe steps are named.",
    "It does not violate the criterion.", "The criterion is not violated.", "It says that the conditions are not met yet, as it should.",
    "Sie sagt, die Bedingungen seien nicht erfüllt.", "It does not meet anybody.",
    "Nothing fails here.", "It warns that the test result is false news.",
)  # fmt: skip


@pytest.mark.parametrize("scored", [False, True], ids=["yes", "score"])
@pytest.mark.parametrize(("reason", "denied"), [*((each, True) for each in DENIALS), *((each, False) for each in OTHER_REASONS)])
def test_a_reason_that_denies_a_yes_is_a_contradiction(reason: str, denied: bool, scored: bool) -> None:
    decision = {"score": 0.9} if scored else {"pass": True}
    reply = json.dumps({"results": [{"id": IDS[0], "reason": reason, **decision}]})
    item = read_reply(reply, questions(scored), IDS, "grader").items[0]
    assert (item.code if isinstance(item, Fault) else None) == ("judge_contradiction" if denied else None)


def test_a_question_without_a_label_is_named_by_its_criterion() -> None:
    (item,) = read_reply('{"results": []}', [Question(criterion="it greets", material=Material(subject=""))], IDS[:1], "grader").items
    assert item == Fault("judge_missing_result", 'Judge did not return a result for "it greets"')


def test_a_bad_score_is_shown() -> None:
    (item, _) = read_reply('{"results": [{"id": "agent-check-1", "reason": "x", "score": 7}]}', questions(True), IDS, "grader").items
    assert item == Fault(
        "judge_bad_score",
        'Agent check failed: judge "grader" returned the score 7, which is no number from 0 to 1, for "greets"',
    )


def test_a_very_long_reason_is_shortened() -> None:
    reply = json.dumps({"results": [{"id": IDS[0], "reason": "x" * 500_000, "pass": True}, {"id": IDS[1], "reason": "b", "pass": True}]})
    (item, _) = read_reply(reply, questions(), IDS, "grader").items
    assert isinstance(item, Item) and len(item.reason) < 5_000 and "more" in item.reason


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "text",
    [
        "{" * MAX_REPLY,
        "[" * MAX_REPLY,
        '{"a":' * (MAX_REPLY // 5),
        '"\\' * (MAX_REPLY // 2),
        '"\\"' * (MAX_REPLY // 3),
        "{}" * (MAX_REPLY // 2 - 10) + '"results"',
        '{"results":1}' * (MAX_REPLY // 13),
        "```" * (MAX_REPLY // 3),
        "," * (MAX_REPLY - 1) + "}",
        ", " * (MAX_REPLY // 2 - 1) + "}",
        "{," + " " * (MAX_REPLY - 4) + "x}",
        "9" * MAX_REPLY,
        '{"results": ' + "9" * 5_000 + "}",
        "x" * (MAX_REPLY + 1),
    ],
    ids=lambda text: f"{text[:12]}...{len(text)}",
)
@pytest.mark.timeout(30)
def test_a_reply_built_to_be_slow_is_read_quickly(text: str) -> None:
    # Quadratic work on a million characters would take minutes.
    read = read_reply(text, questions(), IDS, "grader")
    assert read.fault is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20) | st.sampled_from(IDS),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["results", "id", "pass", "score", "reason", "x"]), inner, max_size=5)
    ),
    max_leaves=20,
)
PIECES = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        '"',
        "\\",
        "```",
        "json",
        "```json",
        ",",
        ":",
        " ",
        "\n",
        '"results"',
        '"id"',
        '"pass"',
        "true",
        "NaN",
        "é",
        "\ud83d",
    ]
)


@settings(max_examples=300, deadline=None)
@given(text=st.text() | st.lists(PIECES).map("".join) | JSON.map(json.dumps), scored=st.booleans())
@pytest.mark.timeout(60)
def test_no_text_makes_the_reader_raise(text: str, scored: bool) -> None:
    read = read_reply(text, questions(scored), IDS, "grader")
    assert len(read.items) == 2
    for item in read.items:
        (item.text if isinstance(item, Fault) else item.reason).encode()


ENTRY = st.fixed_dictionaries(
    {"id": st.sampled_from(IDS), "reason": st.text(max_size=5), "pass": st.booleans()},
    optional={"score": st.floats() | st.integers() | st.booleans() | st.none() | st.text(max_size=3)},
)


@settings(max_examples=200, deadline=None)
@given(before=st.lists(ENTRY, max_size=4), added=ENTRY, scored=st.booleans())
@pytest.mark.timeout(60)
def test_a_valid_entry_affects_only_its_own_question(before: list[dict[str, Any]], added: dict[str, Any], scored: bool) -> None:
    def read(entries: list[dict[str, Any]]) -> tuple[Item | Fault, ...]:
        return read_reply(json.dumps({"results": entries}), questions(scored), IDS, "grader").items

    one, two = read(before), read([*before, added])
    for position, identifier in enumerate(IDS):
        if added["id"] != identifier:
            assert one[position] == two[position]
        elif any(entry["id"] == identifier for entry in before) and one[position] != two[position]:
            found = two[position]
            assert isinstance(found, Fault) and found.code == "judge_contradiction"
    # Its position does not count either, if no entry with its id comes before it.
    if not any(entry["id"] == added["id"] for entry in before):
        assert read([added, *before]) == two


@pytest.mark.parametrize("identifier", ["agent-check-3", ""])
def test_an_unrequested_entry_invalidates_the_others(identifier: str) -> None:
    expected = [{"id": each, "reason": "", "pass": True} for each in IDS]
    other = {"id": identifier, "reason": "", "pass": False}
    for entries in ([*expected, other], [other, *expected], [expected[0], other]):
        assert plain(read_reply(json.dumps({"results": entries}), questions(), IDS, "grader")) == ["judge_bad_item", "judge_bad_item"]
    assert plain(read_reply(json.dumps({"results": [other]}), questions(), IDS, "grader")) == ["judge_missing_result"] * 2


@settings(max_examples=100, deadline=None)
@given(before=st.lists(ENTRY, max_size=3), bad=st.none() | st.booleans() | st.text() | st.just({"id": 1}) | st.just([]))
def test_a_malformed_entry_invalidates_every_answer(before: list[dict[str, Any]], bad: object) -> None:
    read = read_reply(json.dumps({"results": [*before, bad]}), questions(), IDS, "grader")
    assert plain(read) == ["judge_bad_item", "judge_bad_item"]
