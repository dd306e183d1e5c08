"""A Python function as the agent."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.errors import InputError, SpecError
from proctor.formats.workspace_file import Section
from proctor.model.evidence import Evidence, ToolCall
from proctor.targets.build import build_target
from proctor.targets.local import agent_objects
from proctor.targets.local.callable import CallableTarget, load_function
from proctor.targets.shared.faults import TargetFault
from tests.targets import functions
from tests.targets.loopback import attempt


def drive(function: Any, go: Any, **more: Any) -> Evidence:
    return asyncio.run(CallableTarget("agent", function, **more).run(go, LIVE))


def test_a_function_that_answers_text_is_an_agent() -> None:
    evidence = drive(functions.shout, attempt("hello"))
    assert (evidence.case, evidence.input, evidence.text) == ("case-1", "hello", "HELLO")
    assert evidence.duration_ms is not None and evidence.tool_calls is None


def test_an_async_function_gets_its_arguments_in_every_turn() -> None:
    evidence = drive(functions.whisper, attempt("ONE", "TWO", context={"A": 1}))
    assert evidence.turns is not None and [turn.text for turn in evidence.turns] == ["one", "two"]
    assert [call.arguments for call in evidence.tool_calls or ()] == [
        {"context": {"A": 1}, "before": 0},
        {"context": {"A": 1}, "before": 1},
    ]


def test_arbitrary_keyword_arguments_get_every_value() -> None:
    seen: dict[str, Any] = {}

    def agent(message: str, **rest: Any) -> str:
        seen.update(rest)
        return message

    drive(agent, attempt("hi"))
    assert seen == {"context": {}, "session_id": "session-a-0001", "request_id": "request-a-0001", "turn": 0, "history": []}


def test_a_body_of_the_case_is_passed_unchanged() -> None:
    assert drive(lambda body: f"{body['n']}", attempt(body={"n": 5})).text == "5"


def test_evidence_and_messages_are_used_unchanged() -> None:
    given = Evidence(text="x", tool_calls=(ToolCall(name="t"),), duration_ms=7.0)
    evidence = drive(lambda message: given, attempt("hi"))
    assert (evidence.tool_calls, evidence.duration_ms, evidence.case) == (given.tool_calls, 7.0, "case-1")
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "from messages"}]
    assert drive(lambda message: messages, attempt("hi")).text == "from messages"


def test_a_returned_awaitable_is_awaited() -> None:
    assert drive(lambda message: functions.whisper(message, context={}, history=[]), attempt("HI")).text == "hi"


def test_an_object_with_an_async_call_is_awaited() -> None:
    class Agent:
        async def __call__(self, message: str) -> str:
            return f"object {message}"

    assert drive(Agent(), attempt("hi")).text == "object hi"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned null, expected text, a mapping of plain evidence"),
        (5, "returned number, expected text"),
        ({"tool_calls": [{"arguments": {}}]}, r"is not evidence: \$\.tool_calls\[0\]"),
        ([1, 2], "is not evidence: no known form of evidence"),
    ],
)
def test_a_value_that_is_no_answer_is_a_fault(returned: Any, message: str) -> None:
    with pytest.raises(TargetFault, match=message) as caught:
        drive(lambda _: returned, attempt("hi"))
    assert caught.value.code == "bad_answer"


class _Unusual(BaseException):
    """An exception that no library catches by accident."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such order"),
        StopIteration(),
        TimeoutError("upstream"),
        SystemExit(3),
        KeyError("k"),
        KeyboardInterrupt(),
        GeneratorExit(),
        _Unusual("x"),
    ],
)
def test_an_exception_is_a_fault_with_its_message_and_place(error: BaseException) -> None:
    def agent(message: str) -> str:
        raise error

    async def later(message: str) -> str:
        raise error

    for function in (agent,) if isinstance(error, StopIteration) else (agent, later):
        with pytest.raises(TargetFault, match=rf"{function.__name__}\(\)") as caught:
            drive(function, attempt("hi"))
        assert caught.value.code == "agent_failed"
    if isinstance(error, ValueError):
        assert "ValueError: no such order (test_callable.py:" in str(caught.value)


class _StrandsLike:
    """An agent like those of Strands: callable, with its own keyword arguments, and with the conversation in it."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.got: list[dict[str, Any]] = []

    def __call__(self, prompt: str, *, invocation_state: Any = None, **kwargs: Any) -> str:
        self.got.append(kwargs)
        self.messages.append(prompt)
        return "done"


def test_a_framework_agent_object_gets_no_keywords_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    own = _StrandsLike()
    drive(own, attempt("hi"))
    assert set(own.got[0]) == {"context", "session_id", "request_id", "turn", "history"}, "a class of the user's gets them all"
    assert CallableTarget("shop", own).describe_risk() is None
    monkeypatch.setattr(_StrandsLike, "__module__", "strands.agent.agent")
    agent = _StrandsLike()
    drive(agent, attempt("hi"))
    assert agent.got == [{}]
    warning = CallableTarget("shop", agent).describe_risk()
    assert (
        warning is not None
        and "target 'shop' is one strands _StrandsLike for all cases" in warning
        and "docs/how-to/frameworks/strands.md" in warning
    )


def test_an_exception_in_a_package_is_reported_with_the_users_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "their_agents"
    package.mkdir(parents=True)
    (package / "agent.py").write_text("def ask(message):\n    raise RuntimeError('Agent is already processing a request')\n")
    monkeypatch.syspath_prepend(str(package.parent))
    from their_agents.agent import ask  # pyright: ignore

    def agent(message: str) -> str:
        return ask(message)

    with pytest.raises(TargetFault) as caught:
        drive(agent, attempt("hi"))
    assert re.search(r"\(test_callable\.py:\d+, in their_agents/agent\.py:2\); the agent answers one message at a time", str(caught.value))
    assert "or run one case at a time with -j 1" in str(caught.value)


def test_changes_to_context_and_history_affect_only_that_message() -> None:
    seen: list[Any] = []

    def agent(message: str, context: dict[str, Any], history: list[dict[str, Any]]) -> str:
        seen.append((list(context["CART"]), [dict(one) for one in history]))
        context["CART"].append(message)
        for one in history:
            one["text"] = "changed"
        return message

    go = attempt("one", "two", "three", context={"CART": []})
    drive(agent, go)
    drive(agent, go)
    assert [cart for cart, _ in seen] == [[]] * 6
    assert [one["text"] for one in seen[2][1]] == ["one", "two"]


@pytest.mark.parametrize("returned", ["", " \n", "\u200b", {"text": ""}, {"text": "", "tool_calls": []}, Evidence(text="")])
def test_an_empty_answer_is_a_fault(returned: Any) -> None:
    with pytest.raises(TargetFault) as caught:
        drive(lambda _: returned, attempt("hi"))
    assert caught.value.code == "empty_answer"


def test_calls_without_text_are_recorded_and_the_answer_is_unknown() -> None:
    evidence = drive(lambda _: {"text": "", "tool_calls": [{"name": "look"}]}, attempt("hi"))
    assert evidence.account is not None and evidence.account.unknown.keys() == {"answer"}
    assert [call.name for call in evidence.tool_calls or ()] == ["look"]


def test_a_turn_without_tool_information_has_unknown_calls() -> None:
    answers = iter([{"text": "done"}, {"text": "bye", "tool_calls": []}])
    seen = drive(lambda message: next(answers), attempt("refund it", "thanks"))
    assert seen.turns is not None and [turn.tool_calls for turn in seen.turns] == [None, ()]
    assert seen.account is not None and "turns[0]" in seen.account.unknown["tool_calls"]


def test_an_envelope_of_messages_is_read_as_messages() -> None:
    request = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    earlier = [{"role": "user", "content": "hi"}, request, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    state = {"messages": [*earlier, {"role": "assistant", "content": "done"}]}
    evidence = drive(lambda _: state, attempt("hi"))
    assert (evidence.text, [call.name for call in evidence.tool_calls or ()]) == ("done", ["f"])
    with pytest.raises(TargetFault) as caught:
        drive(lambda _: {"messages": [{"kind": "nobody knows"}]}, attempt("hi"))
    assert caught.value.code == "bad_answer"


def test_the_reader_of_a_returned_value_is_recorded() -> None:
    evidence = drive(functions.shout, attempt("hi"))
    assert evidence.account is not None and (evidence.account.reader, evidence.account.unknown) == ("callable", {})


def test_a_hanging_function_is_abandoned_at_its_time_limit() -> None:
    release, ended = threading.Event(), threading.Event()

    def hangs(message: str) -> str:
        release.wait(10)
        ended.set()
        return message

    try:
        with pytest.raises(TargetFault, match=r"0\.05 s") as caught:
            drive(hangs, attempt("hi"), timeout_s=0.05)
        assert caught.value.code == "timeout"
    finally:
        # It ends after its loop is closed, which must have no effect.
        release.set()
        assert ended.wait(5)


def test_a_hanging_async_function_is_cancelled() -> None:
    ended: list[str] = []

    async def hangs(message: str) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(message)
        return ""

    with pytest.raises(TargetFault, match=r"0\.05 s") as caught:
        drive(hangs, attempt("hi"), timeout_s=0.05)
    assert caught.value.code == "timeout"
    assert ended == ["hi"]


def test_functions_run_concurrently() -> None:
    barrier = threading.Barrier(3, timeout=5)

    def meets(message: str) -> str:
        barrier.wait()
        return message

    async def run() -> list[Evidence]:
        target = CallableTarget("agent", meets)
        return await asyncio.gather(*(target.run(attempt(text, marker=text), LIVE) for text in "abc"))

    assert [evidence.text for evidence in asyncio.run(run())] == ["a", "b", "c"]


# --- naming a function ------------------------------------------------------------------------------------------------------


def test_a_function_is_found_by_module_and_name() -> None:
    assert load_function("tests.targets.functions:shout") is functions.shout
    assert load_function("tests.targets.functions:Holder.answer")("x") == "held x"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("functions", "cannot import 'functions'"),
        ("functions-of", "expected module:function, found 'functions-of'"),
        ("tests.targets.functions", "marks no function with @proctor.agent; write tests.targets.functions:function"),
        ("tests.targets.functions:", "expected module:function"),
        ("tests.targets.functions:a b", "expected module:function"),
        ("../evil:x", "expected module:function"),
        ("tests.targets.functions:shot", "has no 'shot'"),
        ("tests.targets.functions:NOT_A_FUNCTION", "is number, not a function"),
        ("no_such_module_at_all:x", "cannot import 'no_such_module_at_all'"),
    ],
)
def test_an_unresolvable_reference_is_refused(reference: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_function(reference)


def test_signatures_that_no_case_can_satisfy_are_refused() -> None:
    with pytest.raises(InputError, match=r"without_message\(\) takes no message"):
        build_target("agent", {"type": "callable", "function": "tests.targets.functions:without_message"})
    with pytest.raises(InputError, match="nearest: 'session_id'"):
        build_target("agent", {"type": "callable", "function": "tests.targets.functions:with_stranger"})


def test_a_module_next_to_the_workspace_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_shop_agent.py").write_text("def answer(message):\n    return 'mine ' + message\n", encoding="utf-8")
    (tmp_path / "my_broken_agent.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    target = build_target("agent", {"type": "callable", "function": "my_shop_agent:answer"}, base=tmp_path)
    try:
        assert asyncio.run(target.run(attempt("x"), LIVE)).text == "mine x"
        with pytest.raises(InputError, match="importing 'my_broken_agent' raised ZeroDivisionError"):
            build_target("agent", {"type": "callable", "function": "my_broken_agent:answer"}, base=tmp_path)
    finally:
        sys.modules.pop("my_shop_agent", None)


def test_a_suite_may_name_functions_of_its_own_folder_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))

    def of_suite(function: str) -> Section:
        return Section.of({"type": "callable", "function": function}, file=str(tmp_path / "suite.yaml"), trusted=False)

    with pytest.raises(InputError, match="the module 'os' is not in the folder of the suite"):
        build_target("agent", of_suite("os:system"))
    (tmp_path / "os.py").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="'os' is an installed module"):
        build_target("agent", of_suite("os:system"))
    own = "import os\nfrom os import system\ndef answer(message):\n    return message\n"
    (tmp_path / "suites_own_agent.py").write_text(own, encoding="utf-8")
    try:
        assert build_target("agent", of_suite("suites_own_agent:answer")).name == "agent"
        for way_out in ("suites_own_agent:os.system", "suites_own_agent:system"):
            with pytest.raises(InputError, match="is not written in the folder of the suite"):
                build_target("agent", of_suite(way_out))
    finally:
        sys.modules.pop("suites_own_agent", None)


def write_agent(folder: Path, word: str) -> Path:
    folder.mkdir()
    (folder / "helper_of_the_agent.py").write_text(f"WORD = {word!r}\n")
    (folder / "agent_of_two.py").write_text("from helper_of_the_agent import WORD\n\n\ndef answer(message: str) -> str:\n    return WORD\n")
    return folder


@pytest.mark.parametrize("trusted", [True, False])
def test_agents_of_the_same_name_in_two_folders_are_separate(tmp_path: Path, trusted: bool) -> None:
    one, other = write_agent(tmp_path / "one", "one"), write_agent(tmp_path / "other", "other")
    functions = [load_function("agent_of_two:answer", base=base, trusted=trusted) for base in (one, other, one)]
    assert [function("?") for function in functions] == ["one", "other", "one"]


def test_an_agent_named_like_an_imported_package_is_reported(tmp_path: Path) -> None:
    # Driven before: an agent in the folder that contains the environment, as in most projects.
    agent_objects._FOLDERS.add(Path(sys.prefix).resolve().parent)
    (tmp_path / "msgspec.py").write_text("def answer(message: str) -> str:\n    return 'mine'\n")
    with pytest.raises(SpecError, match=r"'msgspec' is .* and this process has imported"):
        load_function("msgspec:answer", base=tmp_path)
