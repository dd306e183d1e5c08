"""Files of labelled answers: every problem with its place, nothing hostile gets far."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.actions.calibration.calibrate import starter_labels
from proctor.errors import InputError
from proctor.sources import labels
from proctor.sources.labels import read_labels

GOOD = '{"answer": "42", "criterion": "It is a number.", "label": true}'


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "labels.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def complaints(folder: Path, text: str | bytes) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_labels([write(folder, text)])
    if not caught.value.problems:
        return [str(caught.value)]
    return [problem.write_headline().replace(f"{folder}/", "") for problem in caught.value.problems]


def test_every_field_of_a_line_is_read(tmp_path: Path) -> None:
    line = {
        "id": "a", "answer": {"status": "open"}, "criterion": "It is open.", "label": False,
        "context": ["x", 1], "tags": ["negation", "shop"], "why": "it is not",
    }  # fmt: skip
    first, second = read_labels([write(tmp_path, f"\ufeff{GOOD}\r\n\n  \n{json.dumps(line)}\n")]).items
    assert (first.answer, first.criterion, first.label, first.name, first.context) == ("42", "It is a number.", True, "line 1", None)
    assert (second.answer, second.label, second.context, second.tags, second.why) == (
        {"status": "open"}, False, ["x", 1], ("negation", "shop"), "it is not",
    )  # fmt: skip
    assert (second.name, second.origin.line) == ("a", 4)


def test_all_problems_are_reported_at_once_with_their_places(tmp_path: Path) -> None:
    lines = [
        GOOD,
        '{"answer": "x", "criterion": "y"}',
        '{"answer": 7, "criterion": "  ", "label": "yes"}',
        "not json",
        '["a list"]',
        '{"answer": "x", "criterion": "y", "label": true, "lable": false}',
        '{"answer": "x", "criterion": "z", "label": true, "tags": ["", 3], "id": 4}',
        '{"answer": "x", "criterion": "y", "label": true, "label": false}',
        '{"answer": "x", "criterion": "y", "label": tru',
    ]
    found = complaints(tmp_path, "\n".join(lines))
    places = [line.split(": ")[0] for line in found]
    assert Counter(place.split(":")[1] for place in places) == {"2": 1, "3": 3, "4": 1, "5": 1, "6": 1, "7": 3, "8": 1, "9": 1}
    assert found[0] == "labels.jsonl:2:1: a labelled answer needs 'label'"
    assert "labels.jsonl:3:12: answer: expected text, an object or a list, found number" in found
    assert "labels.jsonl:3:28: criterion: it cannot be empty" in found
    assert 'labels.jsonl:3:43: label: expected true or false, found text "yes"' in found
    assert any(line.startswith("labels.jsonl:6:51: unknown key 'lable'") for line in found)


def test_the_nearest_key_and_the_next_step_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_labels([write(tmp_path, '{"answer": "x", "criteria": "y", "label": true}')])
    message = str(caught.value)
    assert "nearest: 'criterion'" in message and "write it as `criterion`" in message
    assert '{"answer": "x", "criteria"' in message, "the line itself is shown"


def test_two_lines_that_contradict_each_other_are_a_problem_and_a_repeated_one_a_warning(tmp_path: Path) -> None:
    other = GOOD.replace("true", "false")
    found = complaints(tmp_path, f"{GOOD}\n{other}\n")
    assert found[0].startswith("labels.jsonl:2:1: the same answer and criterion have the other label at ")
    read = read_labels([write(tmp_path, f"{GOOD}\n{GOOD}\n")])
    assert len(read.items) == 1, "it was decided once"
    assert [warning.code for warning in read.warnings] == ["repeated_label"]
    read = read_labels([write(tmp_path, f"{GOOD}\n" * 100)])
    assert (len(read.items), read.repeated) == (1, 99)
    assert [warning.message[:42] for warning in read.warnings] == ["99 lines repeat an earlier one and are lef"]
    both = f"{GOOD}\n" + json.dumps({**json.loads(GOOD), "threshold": 0.5})
    assert [len(read_labels([write(tmp_path, both)], in_one_form=one).items) for one in (False, True)] == [2, 1]
    row = json.loads(GOOD)
    spaced = [{**row, "answer": row["answer"] + end} for end in ("", " ", "\n", "\u200b", " \u200b ")]
    lines = "\n".join(map(json.dumps, spaced))
    assert len(read_labels([write(tmp_path, lines)]).items) == 1, "no judge sees these differences"
    named = json.dumps({**row, "id": "a"})
    assert len(read_labels([write(tmp_path, f"{named}\n{named}\n")]).items) == 1
    scored = "\n".join(json.dumps({**row, "threshold": number / 10}) for number in range(10))
    assert len(read_labels([write(tmp_path, scored)]).items) == 1, "one score, at ten thresholds"
    strict = json.dumps({**row, "threshold": 0.9, "label": not row["label"]})
    assert len(read_labels([write(tmp_path, f"{scored}\n{strict.replace('0.9', '0.95')}")]).items) == 2, "too little for a higher threshold"
    with_context = GOOD.replace('"label"', '"context": "c", "label"').replace("true", "false")
    assert len(read_labels([write(tmp_path, f"{GOOD}\n{with_context}\n")]).items) == 2, "another context is another question"


def test_an_id_is_unique_over_all_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text('{"id": "a", "answer": "x", "criterion": "y", "label": true}\n')
    two.write_text('{"id": "a", "answer": "z", "criterion": "y", "label": true}\n')
    with pytest.raises(InputError, match=r"two\.jsonl:1:1: the id 'a' is already used at .*one\.jsonl:1:1"):
        read_labels([one, two])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no labelled answers"),
        (b"\n \n", "no labelled answers"),
        (b'{"answer": "\xff"}', ":1:13: not UTF-8 text"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"[" * 100_000, "nested more than"),
        (b'{"answer": "x", "criterion": "y", "label": true, "context": ' + b"[" * 5000, "nested more than"),
        (b"\x00\x00", "labels.jsonl:1:1"),
    ],
    ids=["empty", "blank", "not utf-8", "gzip", "deep", "deep context", "binary"],
)
def test_hostile_files_are_refused_with_a_reason(tmp_path: Path, data: bytes, message: str) -> None:
    assert message in complaints(tmp_path, data)[0]


def test_a_file_that_is_not_there_or_is_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nothing\.jsonl"):
        read_labels([tmp_path / "nothing.jsonl"])
    with pytest.raises(InputError, match="cannot read"):
        read_labels([tmp_path])


def test_sizes_and_numbers_of_problems_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = complaints(tmp_path, "{}\n" * 500)
    assert len(found) == labels.MAX_PROBLEMS + 1
    assert found[-1] == "and 1,300 more problems"
    monkeypatch.setattr(labels, "MAX_LABELS", 1)
    assert "at most 1" in complaints(tmp_path, f"{GOOD}\n{GOOD.replace('42', '43')}\n")[0]
    monkeypatch.setattr(labels, "MAX_LABELS_BYTES", 10)
    assert "too large" in complaints(tmp_path, GOOD)[0]


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "labels.jsonl"
    path.write_bytes(data)
    with pytest.raises(InputError):
        read_labels([path])


# --- the set that comes with the package ---------------------------------------------------------------------------------------------


def test_the_starter_set_is_large_balanced_and_explained() -> None:
    read = read_labels([starter_labels()])
    assert len(read.items) >= 120 and not read.warnings
    assert sum(item.label for item in read.items) * 2 == len(read.items)
    assert all(item.id and item.tags and item.why for item in read.items)


def test_every_kind_of_difficulty_of_the_starter_set_has_both_labels() -> None:
    items = read_labels([starter_labels()]).items
    hard = {
        "negation", "partial", "invented numbers", "refusal", "hedging", "other question", "units", "dates", "politeness",
        "other language", "injection", "long", "structured", "grounding",
    }  # fmt: skip
    kinds = Counter((item.tags[0], item.label) for item in items)
    assert {tag for tag, _ in kinds} == hard
    assert all(kinds[tag, True] == kinds[tag, False] >= 3 for tag in hard)
    assert all(len(str(item.answer)) > 900 for item in items if item.tags[0] == "long")


def test_the_length_of_an_answer_does_not_give_its_label_away() -> None:
    # A judge that prefers long answers, or short ones, must not look good here.
    items = read_labels([starter_labels()]).items
    middle = sorted(len(str(item.answer)) for item in items)[len(items) // 2]
    longer = sum((len(str(item.answer)) > middle) == item.label for item in items)
    assert 0.35 < longer / len(items) < 0.65


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("suite.yaml", "proctor: 1\nname: refunds\ncases:\n  - id: a\n    expect: [judged: is good]\n"),
        ("suite.json", '{\n  "proctor": 1,\n  "cases": [\n    {"id": "a", "input": "b"}\n  ]\n}\n'),
        ("labels.json", '[\n  {"answer": "a", "criterion": "b", "label": true}\n]\n'),
        ("notes.txt", "Some notes\nabout labels.\n"),
    ],
)
def test_a_file_without_json_lines_is_reported_in_one_sentence(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read_labels([tmp_path / name])
    assert not caught.value.problems
    message = str(caught.value)
    assert f"{name}' holds no lines of JSON" in message and '{"answer": ..., "criterion": ..., "label": true or false}' in message
    assert "proctor judge starter > labels.jsonl" in message


def test_a_suite_among_labels_is_recognised_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "suite.yml").write_text("{proctor: 1, cases: []}\n")
    with pytest.raises(InputError, match=r"suite\.yml' holds no lines of JSON"):
        read_labels([tmp_path / "suite.yml"])


def test_a_line_that_is_nearly_json_is_reported_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text("# labels\n{'answer': 'a'}\n")
    with pytest.raises(InputError) as caught:
        read_labels([tmp_path / "labels.jsonl"])
    assert {problem.origin.line for problem in caught.value.problems} == {1, 2}
