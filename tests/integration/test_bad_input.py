"""Bad input: a clear message, the right exit code, never a traceback, never a hang."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

import proctor as package
from tests.integration.running import Done, proctor

SUITE = "{proctor: 1, cases: [{id: c, expect: [response_contains: hi]}]}"


def check(tmp_path: Path, data: bytes, name: str = "runs.jsonl", suite: str = SUITE) -> Done:
    (tmp_path / "suite.yaml").write_text(suite)
    (tmp_path / name).write_bytes(data)
    return proctor("check", tmp_path / "suite.yaml", tmp_path / name, "--format", "jsonl")


def reasons(done: Done) -> list[tuple[str, str]]:
    return [(result["outcome"], result["reason"] or "") for result in map(json.loads, done.out.splitlines())]


GOOD = b'{"text": "hi"}\n'


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b'{"text": NaN}', "NaN"),
        (b'{"text": "\xff\xfe"}', "UTF-8"),
        (b"[" * 100_000, "deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "deep"),
        (b"\x1f\x8b\x08\x00garbage", "gzip"),
        (b"\x00\x01\x02\x03", "binary"),
        (b"17", ""),
        (b'"text"', ""),
        (b"{}}", ""),
        (b'{"tool_calls": [{"name": 3}]}', "$.tool_calls[0].name"),
        (b'{"text": 5}', "$.text"),
        (b'{"something": "else entirely", "nothing": 1', ""),
    ],
)
def test_a_bad_line_spares_the_others(tmp_path: Path, line: bytes, word: str) -> None:
    done = check(tmp_path, GOOD + line + b"\n" + GOOD)
    outcomes = reasons(done)
    assert [outcome for outcome, _ in outcomes] == ["pass", "error", "pass"], done
    assert "runs.jsonl:2" in outcomes[1][1]
    assert word.lower() in outcomes[1][1].lower()
    assert "Traceback" not in done.err


def test_a_line_of_200_megabytes_spares_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit is lowered so that the test stays quick; the mechanism is the same.
    monkeypatch.setattr("proctor.sources.records.MAX_LINE_BYTES", 1_000_000)
    done = check(tmp_path, GOOD + b'{"text": "' + b"x" * 3_000_000 + b'"}\n' + GOOD)
    outcomes = reasons(done)
    assert [outcome for outcome, _ in outcomes] == ["pass", "error", "pass"]
    assert "longer than" in outcomes[1][1]


def test_a_gzip_file_is_recognised(tmp_path: Path) -> None:
    done = check(tmp_path, gzip.compress(GOOD * 10), name="runs.json")
    assert (reasons(done)[0][0], "gzip" in reasons(done)[0][1]) == ("error", True)
    assert done.code == 1


def test_a_gzip_binary_or_non_utf8_suite_is_recognised(tmp_path: Path) -> None:
    for data, word in ((gzip.compress(b"x"), "gzip"), (b"a\x00b", "binary"), (b"name: \xff\n", "UTF-8")):
        path = tmp_path / "suite.yaml"
        path.write_bytes(data)
        done = proctor("validate", path)
        assert (done.code, word in done.out) == (4, True), done


@pytest.mark.parametrize(("name", "text", "word"), [("a.json", "[]", "not a known suite"), ("a.jsonl", "\n", "no evidence in this file")])
def test_an_empty_file_is_not_valid(name: str, text: str, word: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    done = proctor("validate", tmp_path / name)
    assert (done.code, word in done.out) == (4, True), done


def test_a_suite_nested_100_000_deep_is_a_problem(tmp_path: Path) -> None:
    for name, text in (("s.json", "[" * 100_000), ("s.yaml", "[" * 100_000), ("t.json", '{"a":' * 100_000)):
        path = tmp_path / name
        path.write_text(text)
        done = proctor("validate", path)
        assert done.code == 4
        assert "deep" in done.out.lower(), done.out[:300]


def test_an_exploding_pattern_is_an_error_and_the_other_cases_are_decided(tmp_path: Path) -> None:
    suite = "{proctor: 1, cases: [{id: evil, expect: [{response_matches: '(a+)+$'}]}, {id: fine, expect: [response_contains: aaa]}]}"
    done = check(tmp_path, json.dumps({"text": "a" * 40 + "!"}).encode() + b"\n", suite=suite)
    evil, fine = map(json.loads, done.out.splitlines())
    assert (evil["outcome"], evil["assertions"][0]["code"]) == ("error", "regex_timeout")
    assert "(a+)+$" in evil["assertions"][0]["reason"]
    assert fine["outcome"] == "pass"


def test_all_problems_of_a_mistyped_suite_are_reported_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text("proctor: 1\nnam: x\ncases:\n  - id: a\n    expect:\n      - tool_caled: search\n      - response_contains: 3\n")
    for command in (["validate", path], ["check", path, path]):
        done = proctor(*command)
        text = done.out + done.err
        assert done.code == 4
        assert f"{path}:2:1: unknown key 'nam' in a suite" in text
        assert f"{path}:6:9: unknown check 'tool_caled'" in text
        assert "nearest: 'tool_called'" in text
        assert f"{path}:7:28: response_contains: expected text, found number 3" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "missing.yaml", "missing.json"],
        ["chek"],
        ["check", "a", "b", "--formt", "json"],
        ["check", "a", "b", "--format", "jsn"],
        ["describe", "chekcs"],
        ["describe", "check", "tool_caled"],
        ["convert", "missing.json"],
        ["validate", "missing.json"],
        ["check", "{suite}", "{suite}", "--evidence-format", "plian"],
        [],
    ],
)
def test_usage_errors_are_exit_4(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    done = proctor(*(word.format(suite=tmp_path / "suite.yaml") for word in arguments))
    assert done.code == 4, done
    assert "Traceback" not in done.err


def test_the_nearest_name_is_suggested() -> None:
    assert "check" in proctor("chek").err
    assert "--format" in proctor("check", "a", "b", "--formt", "json").err
    assert "jsonl" in proctor("check", "a", "b", "--format", "jsnl").err
    assert "tool_called" in proctor("describe", "check", "tool_caled").err


def test_missing_evidence_file_is_exit_4(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    done = proctor("check", tmp_path / "suite.yaml", tmp_path / "none.jsonl")
    assert (done.code, "none.jsonl" in done.err) == (4, True)


def test_an_internal_error_is_exit_3_without_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("proctor.cli.commands.check.load_remembered", broken)
    done = proctor("check", tmp_path / "suite.yaml", "-")
    assert done.code == 3
    assert "a bug" in done.err and "Traceback" not in done.err


def test_a_check_from_a_broken_suite_built_by_hand_is_an_input_error() -> None:
    with pytest.raises(package.InputError):
        package.check(
            package.Suite(
                name="s", cases=(package.Case(id="c", assertions=(package.Assertion(check="nope", spec=package.ToolCall(name="x")),)),)
            ),
            {},
        )


def test_a_hostile_suite_cannot_command_the_terminal_through_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text('proctor: 1\ncases: [] # \u202e\u009b2J\nnam: 1 # \u202e\u009b2J\n"\x1b]0;title\x07": 1\n')
    done = proctor("validate", path)
    assert done.code == 4
    assert not {char for char in done.out if (char < " " and char != "\n") or "\x7f" <= char < "\xa0" or char == "\u202e"}, done.out


@pytest.mark.parametrize("command", ["validate", "convert", "check"])
def test_a_lone_surrogate_in_a_suite_is_no_internal_error(tmp_path: Path, command: str) -> None:
    path, runs = tmp_path / "suite.json", tmp_path / "runs.jsonl"
    path.write_text(r'{"proctor": 1, "name": "\ud800", "cases": [{"id": "a\udc00", "expect": [{"response_contains": "x\ud800"}]}]}')
    runs.write_text('{"case": "a\\udc00", "text": "x\\ud800"}\n')
    extra = (runs, "--format", "json") if command == "check" else ()
    done = proctor(command, path, *extra)
    assert done.code == 0, done


def test_a_non_utf8_name_that_cannot_be_stored_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    latin = os.fsdecode(b"pr\xfcfung")
    suite = {"proctor": 1, "targets": {"a": {"type": "command", "command": ["echo", "hi"]}}, "cases": [{"id": "a", "input": "x"}]}
    Path(f"{latin}.json").write_text(json.dumps(suite))
    Path("plain.json").write_text(json.dumps(suite))
    Path(latin).mkdir()
    (Path(latin) / "e.jsonl").write_text('{"case": "a", "text": "y"}\n')
    done = proctor("run", f"{latin}.json", "--target", "a")
    assert done.code == 4 and "udcfcfung" in done.err and "is no UTF-8 text" in done.err
    assert not Path(".proctor/runs").exists(), "nothing is left"
    done = proctor("batch", "plain.json", latin, "--output", "out")
    assert done.code == 4 and "udcfcfung/e.jsonl" in done.err and "is no UTF-8 text" in done.err


def test_a_file_of_the_state_nested_100_000_deep_cannot_be_decided(tmp_path: Path) -> None:
    suite = "{proctor: 1, cases: [{id: c, expect: [{file_present: {path: a, fields: [{path: x, expected: 1}]}}]}]}"
    content = "[" * 100_000 + "]" * 100_000
    done = check(tmp_path, json.dumps({"state": {"files": [{"path": "a", "content": content}]}}).encode() + b"\n", suite=suite)
    assertion = json.loads(done.out)["assertions"][0]
    assert (assertion["outcome"], assertion["code"], "deep" in assertion["reason"]) == ("error", "json_limit", True)


def test_a_folder_cycle_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    runs = tmp_path / "runs"
    (runs / "inner").mkdir(parents=True)
    (runs / "a.jsonl").write_bytes(GOOD)
    (runs / "inner" / "back").symlink_to(runs, target_is_directory=True)
    os.mkfifo(runs / "pipe.jsonl")
    done = proctor("check", tmp_path / "suite.yaml", runs, "--format", "jsonl")
    assert (done.code, len(done.out.splitlines())) == (0, 1), done


def test_a_folder_that_may_not_be_opened_is_exit_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)

    def locked(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("proctor.sources.state_folder.is_state_folder", locked)
    done = proctor("check", tmp_path / "suite.yaml", tmp_path)
    assert (done.code, done.err) == (4, f"cannot use '{tmp_path}': Permission denied\n")


def test_a_state_folder_without_an_object_is_reported(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    state = tmp_path / "state"
    state.mkdir()
    (state / "evidence.json").write_text('{"state": 5}')
    done = proctor("check", tmp_path / "suite.yaml", state, "--format", "jsonl")
    assert json.loads(done.out.splitlines()[0])["code"] == "unreadable_evidence"
