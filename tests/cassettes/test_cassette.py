"""Recording and replaying: the same answers without a network, and a clear message if a recording is missing."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.cassettes.cassette import CassetteMiss, Recorder, find_first_difference, open_tape
from proctor.cassettes.ports import Kind, Tape
from proctor.errors import InputError, StoreError, TargetError
from proctor.model.json_values import MISSING


def answering(answer: Any) -> Callable[[], Awaitable[Any]]:
    async def send() -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return send


async def never() -> Any:
    raise AssertionError("a replay must not send anything")


def record(path: Path, *exchanges: tuple[str, int, Kind, Any, Any], secrets: tuple[str, ...] = ()) -> None:
    """Record exchanges: case, attempt, kind, request, answer (an exception is raised)."""

    async def run() -> None:
        with open_tape(path, "record", secrets=secrets) as cassette:
            tapes: dict[tuple[str, int], Tape] = {}
            for case, attempt, kind, request, answer in exchanges:
                if (case, attempt) not in tapes:
                    tapes[case, attempt] = cassette.scope(case, attempt)
                try:
                    await tapes[case, attempt].exchange(kind, request, answering(answer))
                except Exception as error:
                    assert error is answer

    asyncio.run(run())


def play(tape: Tape, kind: Kind, request: Any) -> Any:
    return asyncio.run(tape.exchange(kind, request, never))  # type: ignore[arg-type]


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- replaying ---------------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False) | st.text(st.characters(), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(("chat", "tool", "http"))
EXCHANGES = st.lists(st.tuples(st.sampled_from(("a", "b")), st.integers(0, 1), KINDS, JSON, JSON), max_size=8)


@given(EXCHANGES)
@settings(max_examples=60, deadline=None)
@pytest.mark.timeout(60)
def test_a_recording_replays_exactly_and_repeatedly(tmp_path_factory: pytest.TempPathFactory, exchanges: list[Any]) -> None:
    path = tmp_path_factory.mktemp("cassette") / "c.jsonl"
    record(path, *exchanges)
    player = open_tape(path, "replay")
    for _ in range(2):
        tapes = {scope: player.scope(*scope) for scope in {(case, attempt) for case, attempt, *_ in exchanges}}
        for case, attempt, kind, request, answer in exchanges:
            got = play(tapes[case, attempt], kind, request)
            assert got == answer and json.dumps(got) == json.dumps(answer)
    assert player.list_unused() == () and player.describe_unused() is None


def test_the_file_is_human_readable(tmp_path: Path) -> None:
    path = tmp_path / "new" / "c.jsonl"
    record(
        path,
        ("a", 0, "chat", {"provider": "openai", "model": "m", "messages": [{"role": "user", "text": "Wie heißt du?"}]}, {"text": "Ann"}),
        ("a", 0, "tool", {"server": "shop", "tool": "look", "arguments": {}}, {}),
        ("a", 1, "http", {"method": "POST", "url": "http://h/x"}, TargetError("gone", code="unreachable", safe=True, retry_after_s=2)),
    )
    header, *rest = entries(path)
    assert header["proctor_cassette"] == 1 and header["created"].endswith("+00:00")
    assert [list(entry) for entry in rest] == [
        ["scope", "seq", "kind", "about", "request", "response"],
        ["scope", "seq", "kind", "about", "request", "response"],
        ["scope", "seq", "kind", "about", "request", "fault"],
    ]
    assert [entry["about"] for entry in rest] == ['openai m "Wie heißt du?"', "shop look", "POST http://h/x"]
    assert "Wie heißt du?" in path.read_text(encoding="utf-8")


def test_equal_requests_replay_in_order_and_others_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, ("a", 0, "tool", {"q": 1}, "first"), ("a", 0, "tool", {"q": 2}, "other"), ("a", 0, "tool", {"q": 1}, "second"))
    tape = open_tape(path, "replay").scope("a")
    assert [play(tape, "tool", {"q": n}) for n in (2, 1, 1)] == ["other", "first", "second"]


def test_concurrent_exchanges_are_numbered_in_starting_order(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    async def run() -> None:
        slow = asyncio.Event()

        async def late() -> str:
            await slow.wait()
            return "late"

        with open_tape(path, "record") as cassette:
            tape = cassette.scope("a")
            first = asyncio.create_task(tape.exchange("tool", {"q": 1}, late))
            await asyncio.sleep(0)
            await tape.exchange("tool", {"q": 1}, answering("early"))
            slow.set()
            await first

    asyncio.run(run())
    assert [(entry["seq"], entry["response"]) for entry in entries(path)[1:]] == [(1, "early"), (0, "late")]
    tape = open_tape(path, "replay").scope("a")
    assert [play(tape, "tool", {"q": 1}) for _ in range(2)] == ["late", "early"]


def test_every_repeat_has_its_own_recordings(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, *(("a", attempt, "chat", {"q": 1}, f"answer {attempt}") for attempt in range(3)))
    player = open_tape(path, "replay")
    assert [play(player.scope("a", attempt), "chat", {"q": 1}) for attempt in (2, 0, 1)] == ["answer 2", "answer 0", "answer 1"]


def test_key_order_and_spelling_of_numbers_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, ("a", 0, "chat", {"x": 1, "y": 0.0}, "yes"))
    assert play(open_tape(path, "replay").scope("a"), "chat", {"y": 0, "x": 1.0}) == "yes"


def test_a_modified_answer_is_replayed_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, ("a", 0, "tool", {}, {"items": [1]}))
    player = open_tape(path, "replay")
    play(player.scope("a"), "tool", {})["items"].append(2)
    assert play(player.scope("a"), "tool", {}) == {"items": [1]}


def test_faults_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(
        path,
        ("a", 0, "http", 1, TargetError("busy", code="rate_limited", safe=True, retry_after_s=3)),
        ("a", 0, "http", 2, TimeoutError()),
        ("a", 0, "http", 3, ValueError("what is this")),
        ("a", 0, "http", 4, TargetError("the key correct-horse is wrong")),
        secrets=("correct-horse",),
    )
    tape = open_tape(path, "replay").scope("a")
    with pytest.raises(TargetError, match="busy") as caught:
        play(tape, "http", 1)
    assert (caught.value.code, caught.value.safe, caught.value.retry_after_s) == ("rate_limited", True, 3)
    with pytest.raises(TimeoutError):
        play(tape, "http", 2)
    with pytest.raises(TargetError, match="ValueError: what is this"):
        play(tape, "http", 3)
    with pytest.raises(TargetError, match=r"the key \[redacted\] is wrong"):
        play(tape, "http", 4)


def test_a_cancelled_exchange_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    async def run() -> None:
        with open_tape(path, "record") as cassette:
            task = asyncio.create_task(cassette.scope("a").exchange("chat", {}, asyncio.Event().wait))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert len(entries(path)) == 1


def test_secrets_are_not_recorded_and_not_needed_for_replay(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    request = {
        "url": "http://h/?token=hunter2hunter2",
        "headers": {"Authorization": "Bearer hunter2hunter2"},
        "body": "I am hunter2hunter2",
    }
    record(path, ("a", 0, "http", request, {"echo": "hunter2hunter2"}), secrets=("hunter2hunter2",))
    assert "hunter2" not in path.read_text(encoding="utf-8")
    other = json.loads(json.dumps(request).replace("hunter2hunter2", "another-secret"))
    player = open_tape(path, "replay", secrets=["another-secret"])
    assert play(player.scope("a"), "http", other) == {"echo": "[redacted]"}


def test_a_request_built_from_a_scrubbed_answer_is_found(tmp_path: Path) -> None:
    # The tool returns a token; the model and then the tool receive it, as JSON and inside a text.
    def conversation(tape: Tape, send: Callable[[Any], Callable[[], Awaitable[Any]]]) -> Any:
        async def run() -> Any:
            login = await tape.exchange("tool", {"tool": "login"}, send({"token": "abc123"}))
            await tape.exchange("chat", {"messages": [{"role": "tool", "text": json.dumps(login)}]}, send({"text": "ok"}))
            return await tape.exchange("tool", {"tool": "look", "arguments": login}, send({"found": True}))

        return asyncio.run(run())

    path = tmp_path / "c.jsonl"
    with open_tape(path, "record") as cassette:
        conversation(cassette.scope("a"), answering)
    assert "abc123" not in path.read_text(encoding="utf-8")
    assert conversation(open_tape(path, "replay").scope("a"), lambda _: never) == {"found": True}


# --- misses ---------------------------------------------------------------------------------------------------------------------


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {
        "provider": "openai",
        "model": "m",
        "messages": [{"role": "system", "text": "Be brief."}, {"role": "user", "text": text}],
        **more,
    }


LONG = "The customer writes a long letter about an order. " * 10


@pytest.mark.parametrize(
    ("case", "attempt", "kind", "request_", "golden"),
    [
        (
            "refund",
            0,
            "chat",
            chat("Where is order 18?"),
            """no recording of this chat exchange of case 'refund', attempt 0 in CASSETTE: openai m "Where is order 18?"
  nearest: line 2: openai m "Where is order 17?"
  differs at $.messages[1].text
    recorded "Where is order 17?"
    now      "Where is order 18?"
  if the change is wanted, record it again with `--record`""",
        ),
        (
            "refund",
            0,
            "chat",
            chat("Where is order 17?", temperature=0.5),
            """no recording of this chat exchange of case 'refund', attempt 0 in CASSETTE: openai m "Where is order 17?"
  nearest: line 2: openai m "Where is order 17?"
  differs at $.temperature
    recorded nothing
    now      0.5
  if the change is wanted, record it again with `--record`""",
        ),
        (
            "refund",
            0,
            "chat",
            chat(LONG + "Thanks, Bob. " + LONG),
            """no recording of this chat exchange of case 'refund', attempt 0 in CASSETTE: openai m \
"The customer writes a long letter about …(953 more)…ter about an order. "
  nearest: line 3: openai m "The customer writes a long letter about …(953 more)…ter about an order. "
  differs at $.messages[1].text
    recorded …"g letter about an order. Thanks, Ann. The customer writes a long letter about an order. The customer"…
    now      …"g letter about an order. Thanks, Bob. The customer writes a long letter about an order. The customer"…
  if the change is wanted, record it again with `--record`""",
        ),
        (
            "refund",
            2,
            "chat",
            chat("Where is order 17?"),
            """no recording of this chat exchange of case 'refund', attempt 2 in CASSETTE: openai m "Where is order 17?"
  only attempts 0 were recorded of this case
  nearest: line 2 (case 'refund', attempt 0): openai m "Where is order 17?"
  the same request, recorded for another attempt
  if the change is wanted, record it again with `--record`""",
        ),
        (
            "new",
            0,
            "tool",
            {"server": "shop", "tool": "look", "arguments": {"id": 18}},
            """no recording of this tool exchange of case 'new', attempt 0 in CASSETTE: shop look
  nothing was recorded of this case
  nearest: line 4 (case 'refund', attempt 0): shop look
  differs at $.arguments.id
    recorded 17
    now      18
  if the change is wanted, record it again with `--record`""",
        ),
        (
            "refund",
            0,
            "http",
            {"method": "GET", "url": "http://h/"},
            """no recording of this http exchange of case 'refund', attempt 0 in CASSETTE: GET http://h/
  if the change is wanted, record it again with `--record`""",
        ),
    ],
    ids=["another text", "a field more", "a long text", "another attempt", "another case", "another kind"],
)
def test_a_miss_shows_the_nearest_recording(tmp_path: Path, case: str, attempt: int, kind: Kind, request_: Any, golden: str) -> None:
    path = tmp_path / "c.jsonl"
    record(
        path,
        ("refund", 0, "chat", chat("Where is order 17?"), {"text": "a"}),
        ("refund", 0, "chat", chat(LONG + "Thanks, Ann. " + LONG), {"text": "b"}),
        ("refund", 0, "tool", {"server": "shop", "tool": "look", "arguments": {"id": 17}}, {}),
    )
    with pytest.raises(CassetteMiss) as caught:
        play(open_tape(path, "replay").scope(case, attempt), kind, request_)
    assert str(caught.value).replace(str(path), "CASSETTE") == golden
    assert isinstance(caught.value, TargetError) and caught.value.code == "cassette_miss" and not caught.value.safe


def test_a_request_repeated_more_often_than_recorded_is_a_miss(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, ("a", 0, "chat", {"q": 1}, "one"), ("a", 0, "chat", {"q": 2}, "two"))
    player = open_tape(path, "replay")
    tape = player.scope("a")
    play(tape, "chat", {"q": 1})
    for request in ({"q": 1}, {"q": 2}):
        with pytest.raises(CassetteMiss, match="line 2, already played\n  the same request, sent more often than it was recorded"):
            play(tape, "chat", request)
    assert len(player.misses) == 1
    assert play(player.scope("a"), "chat", {"q": 2}) == "two"


def test_secrets_are_not_in_a_miss(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, ("a", 0, "chat", {"q": 1}, "one"))
    with pytest.raises(CassetteMiss) as caught:
        play(open_tape(path, "replay", secrets=["hunter2hunter2"]).scope("a"), "chat", {"q": "hunter2hunter2", "api_key": "topsecret"})
    assert "hunter2" not in str(caught.value) and "topsecret" not in str(caught.value)


def test_the_first_difference_is_in_reading_order() -> None:
    assert find_first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) is None
    found = find_first_difference({"a": [1, {"b": 2}], "c": 1}, {"a": [1, {"b": 3}], "c": 2})
    assert found is not None and (found.path, found.recorded, found.now) == ("$.a[1].b", 2, 3)
    found = find_first_difference([1], [1, 2])
    assert found is not None and (found.path, found.recorded, found.now) == ("$[1]", MISSING, 2)
    found = find_first_difference({"a": 1}, {"a": True})
    assert found is not None and found.path == "$.a"
    found = find_first_difference({"a": [1]}, {"a": {"b": 1}})
    assert found is not None and found.path == "$.a"


def test_unused_recordings_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, *(("a", 0, "tool", {"tool": f"t{n}"}, n) for n in range(8)), ("b", 0, "tool", {"tool": "x"}, 1))
    player = open_tape(path, "replay")
    play(player.scope("a"), "tool", {"tool": "t0"})
    assert [entry.about for entry in player.list_unused()] == [f"t{n}" for n in range(1, 8)]
    report = player.describe_unused()
    assert report is not None
    assert report.startswith("7 recorded exchanges were never requested") and report.endswith(" and 4 more") and "\n" not in report
    assert ": case 'a', attempt 0: tool t1; " in report


# --- recording again --------------------------------------------------------------------------------------------------------------


def test_recording_a_scope_again_replaces_only_that_scope(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, ("a", 0, "chat", {"q": 1}, "old"), ("a", 0, "chat", {"q": 2}, "old"), ("b", 0, "chat", {"q": 1}, "kept"))
    record(path, ("a", 0, "chat", {"q": 1}, "new"), ("c", 0, "chat", {"q": 1}, "more"))
    assert [(entry["scope"]["case"], entry["response"]) for entry in entries(path)[1:]] == [("b", "kept"), ("a", "new"), ("c", "more")]
    assert [name.name for name in tmp_path.iterdir()] == ["c.jsonl"]


def test_a_retried_attempt_keeps_only_its_last_try(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    async def run() -> None:
        release = asyncio.Event()

        async def late() -> str:
            await release.wait()
            return "stale"

        with open_tape(path, "record") as cassette:
            stale = asyncio.create_task(cassette.scope("a").exchange("chat", {"q": 1}, late))
            await asyncio.sleep(0)
            await cassette.scope("a").exchange("chat", {"q": 1}, answering("fresh"))
            release.set()
            assert await stale == "stale"

    asyncio.run(run())
    assert [entry["response"] for entry in entries(path)[1:]] == ["fresh"]


def test_a_crashed_recorder_leaves_a_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, ("a", 0, "chat", {"q": 1}, "old"), ("b", 0, "chat", {"q": 1}, "kept"))
    script = f"""
import asyncio, os
from proctor.cassettes.cassette import open_tape
async def main():
    cassette = open_tape({str(path)!r}, "record")
    async def send(): return "new"
    await cassette.scope("a").exchange("chat", {{"q": 1}}, send)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=30).returncode == -9
    with path.open("ab") as file:
        file.write(b'{"scope": {"case": "b", "attempt": 0}, "seq": 1, "ki')
    player = open_tape(path, "replay")
    assert play(player.scope("a"), "chat", {"q": 1}) == "new"
    assert play(player.scope("b"), "chat", {"q": 1}) == "kept"
    record(path, ("c", 0, "chat", {"q": 1}, "more"))
    assert [entry["response"] for entry in entries(path)[1:]] == ["kept", "new", "more"]


def test_a_full_disk_is_a_store_error_and_the_file_ends_with_a_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.jsonl"
    real = os.write

    def full(file: int, data: Any) -> int:
        if len(data) < 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, bytes(data)[:40])

    async def run() -> None:
        with open_tape(path, "record") as cassette:
            tape = cassette.scope("a")
            await tape.exchange("chat", {"q": 1}, answering("one"))
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", full)
                with pytest.raises(StoreError, match="cannot be written: No space left on device"):
                    await tape.exchange("chat", {"q": 2}, answering("two"))
            await tape.exchange("chat", {"q": 3}, answering("three"))

    asyncio.run(run())
    assert [entry["response"] for entry in entries(path)[1:]] == ["one", "three"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_disk_that_is_full_from_the_start_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="/dev/full cannot be written: No space left on device"):
        open_tape("/dev/full", "record")


def test_a_disk_too_full_to_compact_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.jsonl"
    record(path, ("a", 0, "chat", {"q": 1}, "old"))

    def fails(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        record(path, ("a", 0, "chat", {"q": 1}, "new"))
    assert [name.name for name in tmp_path.iterdir()] == ["c.jsonl"]
    assert play(open_tape(path, "replay").scope("a"), "chat", {"q": 1}) == "new"
    record(path)
    assert [entry["response"] for entry in entries(path)[1:]] == ["new"]


def test_a_file_changed_while_recording_is_a_store_error(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    record(path, ("a", 0, "chat", {"q": 1}, "old"))
    cassette = open_tape(path, "record")
    cassette.scope("a")
    path.write_text("[]\n", encoding="utf-8")
    with pytest.raises(StoreError, match=r"c\.jsonl was changed while it was recorded"):
        cassette.close()
    path.unlink()
    record(path, ("a", 0, "chat", {"q": 1}, "old"))
    with pytest.raises(ZeroDivisionError), open_tape(path, "record") as again:
        again.scope("a")
        path.unlink()
        raise ZeroDivisionError  # the first error is reported


def test_two_recorders_do_not_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with open_tape(path, "record"), pytest.raises(InputError, match="is being recorded by another process"):
        open_tape(path, "record")
    record(path, ("a", 0, "chat", {}, 1))


def test_a_link_is_followed_and_the_file_mode_preserved(tmp_path: Path) -> None:
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    record(real, ("a", 0, "chat", {}, "old"))
    real.chmod(0o640)
    link.symlink_to(real)
    record(link, ("a", 0, "chat", {}, "new"))
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert entries(real)[1]["response"] == "new"


def test_closing_twice_and_writing_after_it_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    cassette = open_tape(path, "record")
    tape = cassette.scope("a")
    cassette.close()
    cassette.close()
    assert asyncio.run(tape.exchange("chat", {}, answering("late"))) == "late"  # type: ignore[arg-type]
    assert len(entries(path)) == 1


def test_deeply_nested_values_cannot_be_recorded(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    with open_tape(tmp_path / "c.jsonl", "record") as cassette, pytest.raises(TargetError, match="nested more than 256 levels deep"):
        asyncio.run(cassette.scope("a").exchange("tool", {}, answering(deep)))  # type: ignore[arg-type]


# --- unusable files --------------------------------------------------------------------------------------------------------

HEADER = '{"proctor_cassette": 1, "created": "x", "proctor": "0"}\n'
ENTRY = '{"scope": {"case": "a"}, "seq": 0, "kind": "chat", "request": 1, "response": 2}\n'


@pytest.mark.parametrize(
    ("text", "expected_error"),
    [
        ("", "FILE:1: not a cassette: it is empty"),
        ("\n", "FILE:1: not a cassette: it is empty"),
        ("half a li", "FILE:1: not a cassette: its first line has no end"),
        ("{}\n", 'FILE:1: not a cassette: its first line does not say {"proctor_cassette": 1}'),
        ("[]\n", "FILE:1: not a cassette: its first line does not say"),
        ("name: yaml\n", "FILE:1:1: not JSON: expecting value"),
        (
            HEADER.replace("1,", "2,", 1),
            'FILE:1: a cassette of version 2, written by proctor "0"; this is proctor VERSION, which reads version 1\n'
            "  record it again with `--record`",
        ),
        (HEADER.replace("1,", "true,", 1), "FILE:1: a cassette of version true"),
        (HEADER + ENTRY + '{"scope": \n' + ENTRY, "FILE:3:11: not JSON: expecting value"),
        (HEADER + "\n" + ENTRY.replace('"seq": 0, ', ""), "FILE:3: not an entry of a cassette: Object missing required field `seq`"),
        (HEADER + ENTRY.replace("chat", "smoke"), "FILE:2: not an entry of a cassette: Invalid enum value 'smoke'"),
        (HEADER + '{"begin": 3}\n', "FILE:2: not an entry of a cassette: Expected `object`, got `int`"),
        (HEADER + ENTRY.replace("1,", "[" * 90_000 + "]" * 90_000 + ","), "FILE:2: nested more than 256 levels deep"),
        (HEADER + ENTRY.replace("1,", "[" * 300 + "]" * 300 + ","), "FILE:2: nested more than 256 levels deep"),
        (HEADER + ENTRY.replace("1,", "1" * 5000 + ","), "FILE:2: not JSON that can be used"),
        (HEADER + "\udcff\n", "FILE:2:1: not UTF-8 text: byte 0xff"),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("mode", ["replay", "record"])
def test_an_invalid_cassette_is_refused_with_its_line(tmp_path: Path, text: str, expected_error: str, mode: Any) -> None:
    from proctor import __version__

    path = tmp_path / "c.jsonl"
    content = text.encode("utf-8", "surrogateescape")
    path.write_bytes(content)
    if not content and mode == "record":
        return record(path)
    with pytest.raises(InputError) as caught:
        open_tape(path, mode)
    assert str(caught.value).replace(str(path), "FILE").startswith(expected_error.replace("VERSION", __version__))
    assert path.read_bytes() == content
    return None


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no cassette .*; `--record` makes one"):
        open_tape(tmp_path / "none.jsonl", "replay")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        open_tape(tmp_path, "replay")
    with pytest.raises(InputError, match="cannot be opened for recording: Is a directory"):
        open_tape(tmp_path, "record")


def test_a_refused_file_is_unlocked(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text("{}\n")
    for _ in range(2):
        with pytest.raises(InputError, match="not a cassette"):
            Recorder(path)


def test_a_judge_marker_is_named_only_if_nothing_else_differs() -> None:
    one, other = (f"<<<DATA {letter * 32}>>>" for letter in "ab")
    found = find_first_difference([f"{one} x", "greets"], [f"{other} x", "thanks"])
    assert found is not None and (found.path, found.recorded, found.now) == ("$[1]", "greets", "thanks")
    found = find_first_difference([one, "greets"], [other, "greets"])
    assert found is not None and found.path == "$[0]"
