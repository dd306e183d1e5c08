"""A program as the agent: its input, its output, and that no process is left."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.errors import InputError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section
from proctor.model.evidence import Evidence
from proctor.targets.build import build_target
from proctor.targets.local import command as module
from proctor.targets.shared.faults import TargetFault
from tests.tables import rows
from tests.targets.loopback import attempt


def drive(words: list[str], go: Any, *, references: References | None = None, trusted: bool = True, **more: Any) -> Evidence:
    section = Section.of({"type": "command", "command": words, **more}, trusted=trusted)
    return asyncio.run(build_target("agent", section, references).run(go, LIVE))


def fault(words: list[str], go: Any, **more: Any) -> TargetFault:
    with pytest.raises(TargetFault) as caught:
        drive(words, go, **more)
    return caught.value


def has_ended(pid: int) -> bool:
    """Whether a process soon ends, or is a zombie that its parent has not collected."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
    return False


@rows("targets/cases/command_answers.yaml")
def test_program_output_is_read_as_evidence(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "out").write_text(row["printed"])
    errors = f"printf %s {shlex.quote(row['errors'])} >&2; " if "errors" in row else ""
    words = ["sh", "-c", f"{errors}cat {tmp_path}/out; exit {row.get('code', 0)}"]
    wanted = row["expect"]
    if "fault" in wanted:
        found = fault(words, attempt("hi"))
        assert (found.code, wanted["message"] in found.message) == (wanted["fault"], True), found.message
        return
    evidence = drive(words, attempt("hi"))
    assert evidence.text == wanted["text"]
    assert (None if evidence.tool_calls is None else [call.name for call in evidence.tool_calls]) == wanted["tool_calls"]
    assert evidence.case == "case-1" and evidence.duration_ms is not None and evidence.account is not None
    assert wanted.get("unknown", "") in evidence.account.unknown.get("tool_calls", "")


def test_the_message_goes_to_standard_input_or_an_argument_and_to_no_shell() -> None:
    message = 'two words; $(touch x) "quoted" {session_id}'
    assert drive(["cat"], attempt(message)).text == message
    assert drive(["printf", "%s|", "{input}", "-{session_id}-"], attempt(message)).text == f"{message}|-session-a-0001-|"


def test_a_single_text_is_split_like_in_a_shell() -> None:
    assert drive(["printf %s 'a b'"], attempt("x")).text == "a b"
    with pytest.raises(InputError, match="cannot be split into words"):
        drive(["printf 'a"], attempt("x"))


def test_turns_share_a_session_and_are_counted() -> None:
    evidence = drive(["sh", "-c", 'printf "%s %s %s" "$(cat)" $PROCTOR_TURN $PROCTOR_SESSION_ID'], attempt("one", "two"))
    assert [turn.text for turn in evidence.turns or ()] == ["one 0 session-a-0001", "two 1 session-a-0001"]


@pytest.mark.parametrize(
    ("words", "more", "source"), [(["{messages}"], {}, "sys.argv[1]"), ([], {"stdin": "{messages}"}, "sys.stdin.read()")]
)
def test_a_stateless_program_gets_the_whole_conversation(words: list[str], more: dict[str, str], source: str) -> None:
    code = f'import json, sys; messages = json.loads({source}); print([f\'{{m["role"][0]}}: {{m["content"]}}\' for m in messages][-3:])'
    evidence = drive([sys.executable, "-c", code, *words], attempt("eins", "zwei \u00e9"), **more)
    assert [turn.text for turn in evidence.turns or ()] == [
        "['u: eins']",
        """['u: eins', "a: ['u: eins']", 'u: zwei \u00e9']""",
    ]


def test_standard_input_may_be_a_template() -> None:
    assert drive(["cat"], attempt("hi"), stdin='{"text": "{input} of {session_id}"}').text == "hi of session-a-0001"
    assert drive(["sh", "-c", 'echo "$1:$(cat)"', "sh", "{input}"], attempt("hi"), stdin="more").text == "hi:more"


def test_a_body_of_the_case_is_sent_as_json() -> None:
    assert drive(["cat"], attempt(body={"text": "so", "tool_calls": []})).tool_calls == ()


def test_workspace_programs_get_the_environment_and_suite_programs_a_safe_subset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENT_KEY", "sesame-open")
    shown = ["sh", "-c", 'echo "[$AGENT_KEY]$(test -n "$PATH" && echo path)"']
    assert drive(shown, attempt("x")).text == "[sesame-open]path"
    assert drive(shown, attempt("x"), trusted=False).text == "[]path"


def test_secrets_given_to_a_program_are_redacted_in_its_output() -> None:
    known = References({"KEY": "sesame-open"})
    shown = drive(["sh", "-c", "echo it is $TOKEN"], attempt("x"), references=known, env={"TOKEN": "${KEY}"})
    assert shown.text == "it is [redacted]"
    error = fault(["sh", "-c", "echo it is $TOKEN >&2; exit 1"], attempt("x"), references=known, env={"TOKEN": "${KEY}"})
    assert "sesame-open" not in error.message and "[redacted]" in error.message


def test_a_missing_program_is_reported_with_its_folder(tmp_path: Path) -> None:
    found = fault(["no-such-program-here"], attempt("x"), cwd=str(tmp_path))
    assert found.code == "unreachable" and "no-such-program-here" in found.message and str(tmp_path) in found.message


def test_a_slow_program_is_ended_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    began = time.monotonic()
    found = fault(["sh", "-c", f"sleep 300 & echo $! > {mark}; wait"], attempt("x"), timeout_s=0.3)
    assert found.code == "timeout" and "0.3 s" in found.message and time.monotonic() - began < 10
    assert has_ended(int(mark.read_text()))


def test_a_slow_program_is_ended_with_children_in_another_session(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    found = fault(["sh", "-c", f"setsid sh -c 'echo $$ > {mark}; exec sleep 300' & wait"], attempt("x"), timeout_s=0.5)
    assert found.code == "timeout" and has_ended(int(mark.read_text()))


def test_background_processes_of_a_program_neither_delay_it_nor_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.targets.local.command._GRACE_S", 0.2)
    mark = tmp_path / "pid"
    evidence = drive(["sh", "-c", f"sleep 300 & echo $! > {mark}; echo done"], attempt("x"), timeout_s=30)
    assert evidence.text == "done"
    assert has_ended(int(mark.read_text()))


def test_a_program_that_prints_endlessly_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OUTPUT_BYTES", 100_000)
    assert fault(["yes"], attempt("x")).code == "too_large"


def test_large_messages_and_answers_are_complete() -> None:
    message = "x" * 3_000_000
    assert drive(["cat"], attempt(message)).text == message


def test_a_program_that_ignores_its_message_can_answer() -> None:
    assert drive(["sh", "-c", "exec <&-; echo done"], attempt("x" * 1_000_000)).text == "done"


def test_only_the_end_of_standard_error_is_reported() -> None:
    script = "import sys; sys.stderr.write('be' 'gin ' + 'x' * 100_000 + ' the e' 'nd'); sys.exit(1)"
    found = fault([sys.executable, "-c", script], attempt("x"))
    assert "the end" in found.message and "begin" not in found.message and len(found.message) < 2_000


def test_binary_output_is_no_answer() -> None:
    assert fault(["printf", "\\377\\376"], attempt("x")).code == "bad_answer"
