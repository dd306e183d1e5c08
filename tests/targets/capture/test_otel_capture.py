"""Spans that OpenTelemetry records while a function runs become evidence of its own case only."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, TraceIdRatioBased
from opentelemetry.util._once import Once

from proctor.actions.running.run import RunOptions, drive, read_run_options
from proctor.cassettes.ports import LIVE
from proctor.checks.tools.tool_calls import ToolNotCalled
from proctor.errors import InputError
from proctor.evidence.unknowns.account import declare_complete
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Evidence
from proctor.targets.build import build_target
from proctor.targets.capture import otel_capture
from proctor.targets.capture.processor import CallSpans, explain_sampling
from proctor.targets.local.callable import CallableTarget
from proctor.targets.shared.faults import TargetFault
from tests.targets.loopback import attempt
from tests.targets.traced_agent import ask_for_tool, chat, look_up, run_tool, say, tracer

AT_ONCE = 20


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    """A provider of the user, set for the process."""
    own = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", own)
    yield own


def capture(function: Any, *messages: str, **more: Any) -> Evidence:
    return asyncio.run(CallableTarget("agent", function, capture="otel", **more).run(attempt(*(messages or ("go",))), LIVE))


def unknown(evidence: Evidence) -> dict[Any, str]:
    assert evidence.account is not None
    return evidence.account.unknown


def names(evidence: Evidence) -> list[str]:
    return [call.name for call in evidence.tool_calls or ()]


# --- two hundred cases, twenty at once ----------------------------------------------------------------------------------------


def drive_many(function: Any, home: Path, cases: int = 200) -> dict[int, Evidence]:
    """Drive the cases through the runner; return the evidence by the number in each message."""
    suite = Suite(name="many", cases=tuple(Case(id=f"case-{number}", input=str(number)) for number in range(cases)))
    options = read_run_options({"concurrency": AT_ONCE, "capture": "otel"})
    run = asyncio.run(drive(suite, options, target=function, home=home))
    found = {int(case.removeprefix("case-")): entry.evidence for (case, _), entry in run.entries.items()}
    assert len(found) == cases and None not in found.values(), [entry.reason for entry in run.entries.values() if entry.evidence is None][
        :3
    ]
    return found  # type: ignore[return-value]


def in_its_thread(meet: threading.Barrier) -> Any:
    def agent(message: str) -> str:
        meet.wait()
        return look_up(int(message))

    return agent


def in_threads_with_its_context(meet: threading.Barrier) -> Any:
    def agent(message: str) -> str:
        def in_thread(*call: Any) -> None:
            thread = threading.Thread(target=contextvars.copy_context().run, args=(run_tool, *call))
            thread.start()
            meet.wait()
            thread.join()

        return look_up(int(message), in_thread)

    return agent


def in_threads_with_the_context_of_opentelemetry_alone(meet: threading.Barrier) -> Any:
    def agent(message: str) -> str:
        def in_thread(*call: Any) -> None:
            current = otel_context.get_current()

            def work() -> None:
                token = otel_context.attach(current)
                meet.wait()
                run_tool(*call)
                otel_context.detach(token)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

        return look_up(int(message), in_thread)

    return agent


def in_a_pool_that_all_cases_share(meet: threading.Barrier) -> Any:
    pool = ThreadPoolExecutor(AT_ONCE)

    def agent(message: str) -> str:
        meet.wait()
        return look_up(int(message), lambda *call: pool.submit(contextvars.copy_context().run, run_tool, *call).result())

    return agent


def in_a_loop_of_its_own(meet: threading.Barrier) -> Any:
    async def answer(message: str) -> str:
        await asyncio.to_thread(meet.wait)
        return look_up(int(message))

    def agent(message: str) -> str:
        return asyncio.run(answer(message))

    return agent


def in_a_trace_of_its_own(meet: threading.Barrier) -> Any:
    def agent(message: str) -> str:
        meet.wait()
        return look_up(int(message), lambda *call: run_tool(*call, context=otel_context.Context()))

    return agent


def below_one_parent_that_all_cases_share(meet: threading.Barrier) -> Any:
    shared = trace.SpanContext(0x5EED, 0xFEED, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED))
    parent = trace.set_span_in_context(trace.NonRecordingSpan(shared), otel_context.Context())

    def agent(message: str) -> str:
        meet.wait()
        return look_up(int(message), lambda *call: run_tool(*call, context=parent))

    return agent


WAYS = [in_its_thread, in_threads_with_its_context, in_a_pool_that_all_cases_share]
"""How functions run their tools, each driven through two hundred cases."""
ODD_WAYS = [
    in_threads_with_the_context_of_opentelemetry_alone,
    in_a_loop_of_its_own,
    in_a_trace_of_its_own,
    below_one_parent_that_all_cases_share,
]
"""Unusual ways to run tools, driven through three rounds of cases."""


async def in_its_task(message: str, meet: asyncio.Barrier) -> str:
    await meet.wait()
    return look_up(int(message))


async def in_tasks_of_its_own(message: str, meet: asyncio.Barrier) -> str:
    order = int(message)
    ask_for_tool("lookup_order", {"id": order}, f"call-{order}")

    async def tool() -> None:
        await meet.wait()
        run_tool("lookup_order", {"id": order}, f"call-{order}", f"shipped {order}")

    async with asyncio.TaskGroup() as group:
        group.create_task(tool())
    await asyncio.sleep(0)
    say(f"order {order}")
    return f"order {order}"


async def in_threads_of_asyncio(message: str, meet: asyncio.Barrier) -> str:
    await meet.wait()
    return await asyncio.to_thread(look_up, int(message))


def check_apart(seen: dict[int, Evidence]) -> None:
    for number, evidence in seen.items():
        assert evidence.text == f"order {number}"
        assert [(call.name, call.arguments, call.result) for call in evidence.tool_calls or ()] == [
            ("lookup_order", {"id": number}, f"shipped {number}")
        ], number
        assert unknown(evidence) == {}, number
        assert evidence.usage is not None and evidence.usage.total() == 30
    traces = {evidence.metadata["trace_id"] for evidence in seen.values()}
    assert len(traces) == len(seen)


@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
def test_two_hundred_concurrent_cases_never_mix_their_spans(make: Any, tmp_path: Path) -> None:
    check_apart(drive_many(make(threading.Barrier(AT_ONCE, timeout=30)), tmp_path))


@pytest.mark.parametrize("make", ODD_WAYS, ids=lambda make: make.__name__)
def test_cases_with_unusual_threading_never_mix_their_spans(make: Any, tmp_path: Path) -> None:
    check_apart(drive_many(make(threading.Barrier(AT_ONCE, timeout=30)), tmp_path, 3 * AT_ONCE))


@pytest.mark.parametrize("answer", [in_its_task, in_tasks_of_its_own, in_threads_of_asyncio], ids=lambda answer: answer.__name__)
def test_two_hundred_asynchronous_cases_never_mix_their_spans(answer: Any, tmp_path: Path) -> None:
    meet: list[asyncio.Barrier] = []

    async def agent(message: str) -> str:
        if not meet:
            meet.append(asyncio.Barrier(AT_ONCE))
        return await answer(message, meet[0])

    check_apart(drive_many(agent, tmp_path))


def test_tools_in_bare_threads_leave_calls_unknown_and_mix_no_spans(tmp_path: Path) -> None:
    meet = threading.Barrier(AT_ONCE, timeout=30)

    def bare(*call: Any) -> None:
        thread = threading.Thread(target=run_tool, args=call)
        thread.start()
        meet.wait()
        thread.join()

    for number, evidence in drive_many(lambda message: look_up(int(message), bare), tmp_path, 3 * AT_ONCE).items():
        # The requested calls are known; which tools ran, and how often, is not.
        assert [(call.name, call.arguments, call.result) for call in evidence.tool_calls or ()] == [
            ("lookup_order", {"id": number}, None)
        ], number
        assert "may be of this case or of another" in unknown(evidence)["tool_calls"]


# --- which case a span belongs to ----------------------------------------------------------------------------------------------


async def run_together(*agents: Any) -> list[Evidence]:
    runs = [
        CallableTarget("agent", agent, capture="otel").run(attempt("go", marker=str(place)), LIVE) for place, agent in enumerate(agents)
    ]
    return await asyncio.gather(*runs)


def test_a_span_with_a_parent_of_another_case_is_unknown_in_both() -> None:
    contexts: list[Any] = []
    lent, used = asyncio.Event(), asyncio.Event()

    async def lends(message: str) -> str:
        say("lent")
        contexts.append(otel_context.get_current())
        lent.set()
        await used.wait()
        return "lent"

    async def borrows(message: str) -> str:
        await lent.wait()
        say("borrowed")
        run_tool("pay", {}, "c", "paid", context=contexts[0])
        used.set()
        return "borrowed"

    async def run() -> list[Evidence]:
        return await run_together(lends, borrows)

    for evidence in asyncio.run(run()):
        assert evidence.tool_calls in (None, ()) and "pay" in unknown(evidence)["tool_calls"]


def test_a_worker_that_outlives_its_case_adds_no_spans_to_the_next() -> None:
    work: asyncio.Queue[asyncio.Event] = asyncio.Queue()
    workers: list[asyncio.Task[None]] = []

    async def serve() -> None:
        while True:
            done = await work.get()
            run_tool("pay", {}, "c", "paid")
            done.set()

    async def agent(message: str) -> str:
        if not workers:
            workers.append(asyncio.create_task(serve()))
        done = asyncio.Event()
        work.put_nowait(done)
        await done.wait()
        say(message)
        return message

    async def run() -> tuple[Evidence, Evidence]:
        target = CallableTarget("agent", agent, capture="otel")
        return await target.run(attempt("one"), LIVE), await target.run(attempt("two"), LIVE)

    first, second = asyncio.run(run())
    assert names(first) == ["pay"]
    assert second.tool_calls in (None, ()) and "by a case that had ended" in unknown(second)["tool_calls"]


def test_unrelated_spans_may_come_from_anywhere() -> None:
    def agent(message: str) -> str:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: tracer().start_span("GET /health", attributes={"http.request.method": "GET"}).end()).result()
        return look_up(17)

    evidence = capture(agent)
    assert names(evidence) == ["lookup_order"] and unknown(evidence) == {}


def test_spans_of_proctor_itself_belong_to_no_case() -> None:
    async def run() -> list[Evidence]:
        judging, answered = asyncio.Event(), asyncio.Event()
        target = CallableTarget("agent", lambda message: look_up(1), capture="otel")

        async def judge() -> Evidence:
            seen = await target.run(attempt("one", marker="1"), LIVE)
            await judging.wait()
            say("the judge agrees")
            answered.set()
            return seen

        async def slow(message: str) -> str:
            judging.set()
            await answered.wait()
            return look_up(2)

        second = CallableTarget("agent", slow, capture="otel").run(attempt("two", marker="2"), LIVE)
        return list(await asyncio.gather(judge(), second))

    for evidence in asyncio.run(run()):
        assert names(evidence) == ["lookup_order"] and unknown(evidence) == {}


def test_attributes_set_on_the_enclosing_span_are_read() -> None:
    def agent(message: str) -> str:
        trace.get_current_span().set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay"})
        return "done"

    assert names(capture(agent)) == ["pay"]


# --- late spans -----------------------------------------------------------------------------------------------------------------


def test_spans_that_end_after_the_function_are_awaited() -> None:
    returned = threading.Event()

    def agent(message: str) -> str:
        open_one = chat([{"type": "text", "content": "streamed"}], finish="stop")
        threading.Thread(target=lambda: (returned.wait(5), open_one.end())).start()
        return "streamed"

    async def run() -> Evidence:
        asyncio.get_running_loop().call_later(0.02, returned.set)
        return await CallableTarget("agent", agent, capture="otel").run(attempt("go"), LIVE)

    evidence = asyncio.run(run())
    assert evidence.tool_calls == () and unknown(evidence) == {}


def test_a_span_that_does_not_end_leaves_the_calls_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel_capture, "WAIT_S", 0.01)
    spans: list[Any] = []

    def agent(message: str) -> str:
        say("done")
        spans.append(
            tracer().start_span("execute_tool pay", attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay"})
        )
        return "done"

    evidence = capture(agent)
    assert names(evidence) == ["pay"]
    assert '1 span had not ended when the function had returned, such as "execute_tool pay"' in unknown(evidence)["tool_calls"]
    spans[0].end()  # ended long after the run, without effect


def test_each_turn_has_its_own_spans() -> None:
    evidence = capture(lambda message: look_up(int(message)), "1", "2")
    assert evidence.turns is not None
    assert [[call.arguments for call in turn.tool_calls or ()] for turn in evidence.turns] == [[{"id": 1}], [{"id": 2}]]


def test_a_failing_function_keeps_its_captured_spans() -> None:
    def agent(message: str) -> str:
        look_up(17)
        raise ValueError("no such order")

    with pytest.raises(TargetFault, match="no such order") as caught:
        capture(agent)
    assert caught.value.evidence is not None and names(caught.value.evidence) == ["lookup_order"]
    assert caught.value.evidence.error is not None


def test_a_hanging_function_leaves_no_watcher() -> None:
    release = threading.Event()

    def hangs(message: str) -> str:
        look_up(17)
        release.wait(10)
        return message

    try:
        with pytest.raises(TargetFault) as caught:
            capture(hangs, timeout_s=0.05)
    finally:
        release.set()
    assert caught.value.code == "timeout" and caught.value.evidence is not None and names(caught.value.evidence) == ["lookup_order"]
    assert names(capture(lambda message: look_up(18))) == ["lookup_order"]


# --- no pass without spans ----------------------------------------------------------------------------------------------------


def test_without_spans_the_calls_are_unknown_and_a_remedy_is_named() -> None:
    evidence = capture(lambda message: "hi")
    assert evidence.tool_calls is None
    assert "no span was recorded while the function ran: install an OpenTelemetry instrumentation" in unknown(evidence)["tool_calls"]
    assert "docs/how-to/capture-traces-in-process.md" in unknown(evidence)["tool_calls"]


def test_without_spans_returned_calls_count() -> None:
    evidence = capture(lambda message: {"text": "hi", "tool_calls": [{"name": "pay"}]})
    assert names(evidence) == ["pay"] and unknown(evidence) == {}


MESSAGES = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "hi"}]


def test_without_spans_returned_messages_do_not_prove_that_nothing_was_called() -> None:
    evidence = capture(lambda message: MESSAGES)
    assert evidence.account is not None and "no span was recorded" in unknown(evidence)["tool_calls"]
    assert "tool_calls" in evidence.account.overridable and "answer" not in unknown(evidence)
    assert "tool_calls" not in unknown(declare_complete(evidence, ("tool_calls",), "suite.yaml:1"))


@pytest.mark.parametrize(("returned", "outcome"), [(MESSAGES, "error"), ("hi", "error"), ({"text": "hi", "tool_calls": []}, "pass")])
def test_a_run_without_spans_warns_once_and_passes_no_claim_of_absence(returned: Any, outcome: str, tmp_path: Path) -> None:
    warnings: list[str] = []
    checks = (Assertion(check="tool_not_called", spec=ToolNotCalled(name="refund")),)
    suite = Suite(name="two", cases=tuple(Case(id=name, input="go", assertions=checks) for name in ("a", "b")))
    options = RunOptions(capture="otel", announce=warnings.append)
    run = asyncio.run(drive(suite, options, target=lambda message: returned, home=tmp_path))
    assert [case.outcome for case in run.result.cases] == [outcome, outcome]
    (warning,) = [line for line in warnings if "capture: otel" in line]
    assert "in 2 of 2 calls" in warning and "docs/how-to/capture-traces-in-process.md" in warning


def test_a_run_with_spans_does_not_warn(tmp_path: Path) -> None:
    warnings: list[str] = []
    suite = Suite(name="one", cases=(Case(id="a", input="17"),))
    options = RunOptions(capture="otel", announce=warnings.append)
    asyncio.run(drive(suite, options, target=lambda message: look_up(int(message)), home=tmp_path))
    assert not [line for line in warnings if "capture" in line]


def test_unrelated_spans_count_as_none() -> None:
    def agent(message: str) -> str:
        tracer().start_span("GET /", attributes={"http.request.method": "GET"}).end()
        return "hi"

    assert "no span of this call is of a model or a tool: install" in unknown(capture(agent))["tool_calls"]


def test_a_call_missing_from_the_returned_calls_is_a_contradiction() -> None:
    def agent(message: str) -> dict[str, Any]:
        return {"text": look_up(17), "tool_calls": []}

    evidence = capture(agent)
    assert names(evidence) == ["lookup_order"]
    assert '"lookup_order" is only in the spans' in unknown(evidence)["tool_calls"]


def desk_agent(*calls: dict[str, Any]) -> Any:
    """An agent with a tool that runs another agent, which cancels an order."""

    def agent(message: str) -> dict[str, Any]:
        ask_for_tool("desk", {"query": "cancel"}, "call-1")
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "desk",
            "gen_ai.tool.call.id": "call-1",
            "gen_ai.tool.call.arguments": '{"query": "cancel"}',
            "gen_ai.tool.call.result": "cancelled",
        }
        with tracer().start_as_current_span("execute_tool desk", attributes=attributes):
            ask_for_tool("cancel_order", {"id": 17}, "call-2")
            run_tool("cancel_order", {"id": 17}, "call-2", "cancelled")
            say("cancelled")
        say("done")
        return {"text": "done", "tool_calls": list(calls), "usage": {"input_tokens": 20, "output_tokens": 10}}

    return agent


def test_calls_of_an_agent_inside_a_tool_are_added() -> None:
    evidence = capture(desk_agent({"name": "desk", "arguments": {"query": "cancel"}, "id": "call-1", "result": "cancelled"}))
    assert names(evidence) == ["desk", "cancel_order"]
    assert not {"tool_calls", "tool_arguments", "tool_results", "usage"} & unknown(evidence).keys(), unknown(evidence)
    # The function counts the outer agent's tokens, the spans those of both.
    assert evidence.usage is not None and evidence.usage.total() == 60
    assert evidence.account is not None
    assert any('inside a tool: "cancel_order"' in note for note in evidence.account.notes)


def test_a_missing_tool_with_an_inner_agent_is_a_contradiction() -> None:
    evidence = capture(desk_agent())
    assert names(evidence) == ["desk", "cancel_order"]
    assert '"desk" is only in the spans' in unknown(evidence)["tool_calls"]


def test_spans_of_another_provider_leave_the_calls_unknown() -> None:
    elsewhere = TracerProvider(shutdown_on_exit=False)

    def agent(message: str) -> str:
        elsewhere.get_tracer("x").start_span("chat", attributes={"gen_ai.operation.name": "chat"}).end()
        return "hi"

    assert "no span was recorded" in unknown(capture(agent))["tool_calls"]


@pytest.mark.parametrize(
    ("sampler", "reason"),
    [
        (ALWAYS_OFF, "the tracer provider records no spans"),
        (ParentBased(ALWAYS_OFF), "the tracer provider records no spans"),
        (TraceIdRatioBased(0.999999), "may have dropped spans: run with OTEL_TRACES_SAMPLER=always_on"),
        (ParentBased(TraceIdRatioBased(0.999999)), "may have dropped spans"),
        (ALWAYS_ON, None),
        (ParentBased(ALWAYS_ON), None),
        (ParentBased(TraceIdRatioBased(1.0)), None),
    ],
)
def test_a_sampler_that_may_drop_spans_leaves_the_calls_unknown(sampler: Any, reason: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(sampler=sampler, shutdown_on_exit=False))
    found = unknown(capture(lambda message: look_up(17))).get("tool_calls")
    assert found is None if reason is None else found is not None and reason in found


def test_an_unknown_sampler_is_not_reported() -> None:
    assert explain_sampling(None) is None and explain_sampling(object()) is None


def test_a_disabled_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(shutdown_on_exit=False))
    assert "OTEL_SDK_DISABLED" in unknown(capture(lambda message: look_up(17)))["tool_calls"]


def test_spans_beyond_the_limit_leave_the_calls_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallSpans.__init__, "__kwdefaults__", {"max_spans": 3, "max_bytes": 10**6})
    assert "3 spans over the limit" in unknown(capture(lambda message: look_up(17) + look_up(18)))["tool_calls"]
    monkeypatch.setattr(CallSpans.__init__, "__kwdefaults__", {"max_spans": 100, "max_bytes": 1500})
    assert "spans over the limit" in unknown(capture(lambda message: look_up(17)))["tool_calls"]


# --- the provider -------------------------------------------------------------------------------------------------------------


def test_a_missing_provider_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    early = trace.get_tracer("made before there was a provider")

    def agent(message: str) -> str:
        # More attributes than an SDK stores per span by default.
        early.start_span("step", attributes={f"gen_ai.x{number}": "y" for number in range(200)}).end()
        return look_up(17)

    evidence = capture(agent)
    assert names(evidence) == ["lookup_order"]
    assert isinstance(trace.get_tracer_provider(), TracerProvider)
    assert evidence.account is not None and "gen_ai.x0" in evidence.account.ignored, "the early tracer was heard"
    assert unknown(evidence) == {}, "nothing was dropped"


def test_spans_of_a_provider_that_the_agent_shuts_down_are_captured(provider: TracerProvider) -> None:
    def agent(message: str) -> str:
        try:
            return look_up(17)
        finally:
            provider.shutdown()

    for _ in range(2):
        evidence = capture(agent)
        assert names(evidence) == ["lookup_order"] and unknown(evidence) == {}


def test_spans_of_an_exchanged_provider_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exchanged(trace.TracerProvider):
        inner = TracerProvider(shutdown_on_exit=False)

        def get_tracer(self, *given: Any, **more: Any) -> trace.Tracer:
            return self.inner.get_tracer(*given, **more)

        def add_span_processor(self, processor: SpanProcessor) -> None:
            self.inner.add_span_processor(processor)

    exchanged = Exchanged()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", exchanged)
    for _ in range(2):
        assert names(capture(lambda message: look_up(17))) == ["lookup_order"]
        exchanged.inner = TracerProvider(shutdown_on_exit=False)


def test_spans_of_a_provider_with_threaded_processors_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = TracerProvider(active_span_processor=ConcurrentMultiSpanProcessor(), shutdown_on_exit=False)  # type: ignore[arg-type]
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", elsewhere)
    evidence = capture(lambda message: look_up(17))
    assert names(evidence) == ["lookup_order"] and unknown(evidence) == {}
    # Those threads do not have our context: a trace that begins there belongs to no known case, which is reported.
    alone = capture(lambda message: look_up(17, lambda *calls: run_tool(*calls, context=otel_context.Context())))
    assert "may be of this case or of another" in unknown(alone)["tool_calls"]


def test_a_provider_without_span_processors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", trace.NoOpTracerProvider())
    with pytest.raises(InputError, match="NoOpTracerProvider: it takes no span processors"):
        asyncio.run(CallableTarget("agent", lambda message: "hi", capture="otel").open())


def test_changes_by_another_processor_never_break_the_agent(provider: TracerProvider) -> None:
    class Translator(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            span._attributes = {**(span.attributes or {}), "gen_ai.translated": object()}  # type: ignore[assignment]

    provider.add_span_processor(Translator())
    evidence = capture(lambda message: look_up(17))
    assert evidence.text == "order 17" and "gen_ai.translated" in unknown(evidence)["tool_calls"]


def test_invalid_unicode_in_texts_is_replaced() -> None:
    def agent(message: str) -> str:
        run_tool("pay", {}, "c", "half \ud83d of a pair")
        say("done")
        return "done"

    evidence = capture(agent)
    assert [call.result for call in evidence.tool_calls or ()] == ["half � of a pair"]


# --- the setting --------------------------------------------------------------------------------------------------------------


def test_the_setting_is_read_from_a_file_and_unknown_values_are_refused() -> None:
    target = build_target("agent", {"type": "callable", "function": "tests.targets.functions:shout", "capture": "otel"})
    evidence = asyncio.run(target.run(attempt("hi"), LIVE))
    assert "no span was recorded" in unknown(evidence)["tool_calls"]
    with pytest.raises(InputError, match="capture"):
        build_target("agent", {"type": "callable", "function": "tests.targets.functions:shout", "capture": "otlp"})
    with pytest.raises(InputError, match="capture: expected otel, found 'spans'"):
        CallableTarget("agent", len, capture="spans")  # type: ignore[arg-type]


def test_without_the_sdk_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(InputError, match="pip install opentelemetry-sdk"):
        build_target("agent", {"type": "callable", "function": "tests.targets.functions:shout", "capture": "otel"})


def test_capture_is_for_functions(tmp_path: Path) -> None:
    suite = Suite(name="one", cases=(Case(id="a", input="hi"),))
    for target in (None, "shop", CallableTarget("agent", str.upper)):
        with pytest.raises(InputError, match="capture is for a Python function"):
            asyncio.run(drive(suite, read_run_options({"capture": "otel"}), target=target, home=tmp_path))
    mapping = {"type": "callable", "function": "tests.targets.functions:shout"}
    run = asyncio.run(drive(suite, read_run_options({"capture": "otel"}), target=mapping, home=tmp_path))
    evidence = run.entries["a", 0].evidence
    assert evidence is not None and "no span was recorded" in unknown(evidence)["tool_calls"]
