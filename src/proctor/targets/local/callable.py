"""A Python function as the agent: the quickest way to test code in the same process.

The function is called with the message. If its signature has them, it also gets `context`, `session_id`, `request_id`, `turn` (from 0) and
`history` (the exchanges before, as `{"input", "text"}`), each call copies of its own. It answers with a text, with plain evidence as a
mapping, with a list of provider messages or an envelope of them (`{"messages": [...]}`), with what an agent framework returns
(`frameworks/`), with a stream of these, or with an `Evidence`; anything else, values that JSON cannot represent (`plain_values.py`), an
empty text and every exception are the error of that case; only the user's own Ctrl-C ends the run. An `async` function is awaited; any
other runs in its own thread, which is abandoned at the time limit, since a thread cannot be ended. A function cannot be recorded on a tape:
a replay calls it again.

With `capture: otel` the spans that OpenTelemetry records during the call are read together with what was returned (`otel_capture.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import importlib
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from proctor.cassettes.ports import Tape
from proctor.errors import EvidenceError, SpecError
from proctor.evidence.plain.record import read_plain
from proctor.evidence.shared.usage import add_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS, PLAIN_READERS
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence, Json
from proctor.model.show import exception_text, kind_of, nearest
from proctor.processes.threads import is_interrupt, run_in_thread
from proctor.targets.answers.account import AGENT_FAILED, add_account, is_blank, mark_empty_answer, mark_missing_answer, mark_unknown
from proctor.targets.answers.json_answers import read_json_answer, replace_answer
from proctor.targets.answers.plain_values import Unreadable, plain_evidence, plain_value, type_name
from proctor.targets.capture.otel_capture import NEXT_STEP, Capture, Captured, capture_call, check_capture, prepare_capture
from proctor.targets.frameworks.base import mark_stand_in
from proctor.targets.frameworks.providers import unpack_answers
from proctor.targets.frameworks.recognise import find_page, read_returned, read_streamed
from proctor.targets.frameworks.simplify import Budget
from proctor.targets.frameworks.streams import Streamed, drain, drain_async, is_blocking_stream
from proctor.targets.local.agent_objects import (
    describe_exception,
    describe_shared_agent,
    find_agent_object,
    find_inner_agents,
    find_known_tools,
    import_local_module,
    lies_in,
)
from proctor.targets.shared.conversation import Message, converse
from proctor.targets.shared.faults import TargetFault
from proctor.targets.shared.marks import AgentMark, find_mark, list_marked
from proctor.targets.shared.wire import Stopwatch

# --- turns the return value of an agent's function into evidence

_MAX_KINDS = 5
"""Kinds of items named in a message about a stream."""


def read_returned_value(value: object) -> Evidence | None:
    """Return the evidence in a returned value; None for a value that is not evidence. Raises `EvidenceError` or `Unreadable`."""
    if isinstance(value, Streamed):
        return _read_stream(value.items)
    if isinstance(value, Evidence):
        return plain_evidence(value)
    if isinstance(value, str):
        return _read_text(value)
    found = read_returned(value)
    if found is None and type(value) is dict:
        # Messages of a framework next to the text of the answer.
        entry: dict[str, Any] = value
        run = read_returned(entry["messages"]) if entry.keys() == {"text", "messages"} and isinstance(entry["text"], str) else None
        found = None if run is None else replace_answer(run, _read_text(entry["text"]))
    if found is not None or not isinstance(value, (Mapping, list)):
        return found
    found = read_json_answer(plain_value(unpack_answers(cast(object, value), Budget())))
    return None if found is None else mark_stand_in(found)


def _read_text(text: str) -> Evidence:
    return mark_stand_in(read_plain({"text": plain_value(text)}))


def _read_stream(items: list[object]) -> Evidence | None:
    if all(isinstance(item, str) for item in items):
        return _read_text("".join(cast("list[str]", items)))
    found = read_streamed(items)
    if found is not None:
        return found
    *pieces, last = items
    if isinstance(last, (Evidence, Mapping, list)) and all(isinstance(piece, str) for piece in pieces):
        run = read_returned_value(cast(object, last))
        # Pieces before an answer with its own text are that text as it was generated, or progress messages.
        text = _read_text("".join(cast("list[str]", pieces))) if run is not None and run.text is None and pieces else None
        return run if run is None or text is None else replace_answer(run, text)
    kinds = ", ".join(dict.fromkeys(describe_kind(item) for item in items[:_MAX_KINDS]))
    raise Unreadable(f"its stream held {kinds}")


def describe_kind(value: object) -> str:
    """Return the user's term for this kind of value, else its type."""
    word = kind_of(value)
    return type_name(value) if isinstance(value, tuple) or word == type(value).__name__ else word


# --- the current exchange -----------------------------------------------------------------------------------------------


def keep_current_exchange(evidence: Evidence, message: Message) -> Evidence:
    """Return the evidence from the last occurrence of the message; after the first turn, it is unknown if the message is not found.

    Many frameworks return the whole conversation after every message: a call of the first turn must not count for the second.
    """
    turns = evidence.turns
    sent, recorded = as_text(message.content) or "", evidence.input
    if turns is None or len(turns) < 2:
        # After the first turn, the only returned exchange may repeat an earlier message or reword this one, which cannot be distinguished.
        is_other = message.turn > 0 and isinstance(message.content, str) and isinstance(recorded, str)
        return _mark_other_exchange(evidence, 1) if is_other and sent.strip() and sent.strip() not in recorded else evidence
    exact = [index for index, turn in enumerate(turns) if (turn.input or "").strip() == sent.strip()]
    # An agent may wrap the message in its own prompt.
    wrapped = [index for index, turn in enumerate(turns) if sent.strip() in (turn.input or "")]
    if not sent.strip() or not wrapped:
        return evidence if message.turn == 0 else _mark_other_exchange(evidence, len(turns))
    at = exact[-1] if exact else wrapped[-1]
    if not at:
        return evidence
    turns = turns[at:]
    last = next((turn for turn in reversed(turns) if turn.text is not None or turn.body is not None), turns[-1])
    current = msgspec.structs.replace(
        evidence,
        input=turns[0].input,
        text=last.text,
        body=last.body,
        tool_calls=tuple(call for turn in turns for call in turn.tool_calls or ()),
        usage=add_usage(turn.usage for turn in turns),
        turns=turns if len(turns) > 1 else None,
    )
    return mark_missing_answer(current)


def _mark_other_exchange(evidence: Evidence, count: int) -> Evidence:
    found = "the returned exchange does not begin" if count == 1 else f"{count} exchanges were returned, and none begins"
    return mark_unknown(evidence, (*CALL_PARTS, "answer"), f"{found} with the message of this turn")


Function = Callable[..., Any]
READER = "callable"
DEFAULT_TIMEOUT_S = 120.0
OFFERED = ("context", "session_id", "request_id", "turn", "history")


class CallableSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Python function as the agent."""

    type: Literal["callable"] = "callable"
    function: str
    """`module:function`, or `module` for its only function marked `@proctor.agent`; the module is found where Python finds modules, or in
    the folder of the workspace."""
    timeout_s: float | None = None
    """Limit of one call; by default that of `@proctor.agent`, else 120 seconds."""
    capture: Literal["otel"] | None = None
    """`otel`: the spans that OpenTelemetry records while the function runs are evidence, too. Needs `opentelemetry-sdk`."""


class CallableTarget:
    """Calls a Python function."""

    takes_speakers = True
    has_wire = False

    def __init__(self, name: str, function: Function, *, timeout_s: float | None = None, capture: Capture | None = None) -> None:
        """Raises `SpecError` for a function that cannot be called with a message, and for an unavailable capture."""
        mark = find_mark(function) or AgentMark()
        self._capture: Capture | None = capture if capture is not None else mark.capture
        check_capture(self._capture)
        self.name = name
        self._function = function
        chosen_s = timeout_s if timeout_s is not None else mark.timeout_s
        self._timeout_s = chosen_s if chosen_s is not None else DEFAULT_TIMEOUT_S
        self._wanted = _list_wanted_arguments(function)
        self._calls = self._calls_without_spans = 0
        self._inner_agents: dict[str, str] = {}
        """Tools that use an agent whose calls were not recorded, and that agent."""
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - asks for the method's own kind

    def describe_risk(self) -> str | None:
        """Return a warning if all cases share an agent that stores its conversation."""
        return describe_shared_agent(self._function, self.name)

    def describe_forgetting(self) -> str | None:
        """Return why the function cannot identify the conversation of a message; None if it receives that."""
        if {"session_id", "history"}.intersection(self._wanted):
            return None
        page = "docs/how-to/test-a-python-function.md#one-conversation-for-each-case"
        return f"{_describe_call(self._function)} takes neither session_id nor history ({page})"

    def find_tools(self) -> frozenset[str] | None:
        """Return the names of the agent's tools; None if they are unknown."""
        return find_known_tools(self._function)

    def uses_variable(self, name: str) -> bool:
        """Return whether the function receives a variable of the case: it takes `context`."""
        return "context" in self._wanted

    async def open(self) -> None:
        """Check that spans can be captured, if requested, and load the readers of answers; there is nothing to connect."""
        # Takes a tenth of a second, which would delay the answers to other cases.
        importlib.import_module("proctor.evidence.recognise")
        prepare_capture(self._capture)

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Call the function with every message of the case."""
        history: list[dict[str, Json]] = []

        async def say(message: Message) -> Evidence:
            async def answer() -> Evidence:
                watch = Stopwatch()
                returned = await self._call(message, history, watch)
                passed = watch.read_ms()
                evidence = keep_current_exchange(add_account(self._read_evidence(returned), Unknowns(), READER), message)
                return evidence if evidence.duration_ms is not None else msgspec.structs.replace(evidence, duration_ms=passed)

            evidence = await self._observe(answer, f"proctor {attempt.case.id}")
            if evidence.error is not None and evidence.metadata.get("code") == AGENT_FAILED:
                raise TargetFault(AGENT_FAILED, f"{_describe_call(self._function)}: {evidence.error}", evidence=evidence)
            if is_blank(evidence):
                problem = f"{_describe_call(self._function)} returned an empty answer"
                raise TargetFault("empty_answer", problem, evidence=evidence)
            is_alone = len(attempt.case.turns or ()) < 2 and attempt.speaker is None
            if not is_alone and evidence.tool_calls is None and evidence.nodes is None and evidence.body is None:
                # Whatever other turns record, the calls of this one are unknown.
                evidence = mark_unknown(evidence, ("tool_calls",), f"$.turns[{message.turn}] records text and no calls")
            evidence = mark_empty_answer(evidence)
            history.append({"input": message.content, "text": evidence.text})
            return evidence

        return await converse(attempt, say, target=self.name)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def list_warnings(self) -> list[str]:
        """Return warnings about the target that the run revealed."""
        found: list[str] = []
        if self._calls_without_spans:
            found.append(
                f"warning: target {self.name!r} has capture: otel, and no span of a model or a tool was recorded in "
                f"{self._calls_without_spans} of {self._calls} calls: that a tool was not called is unknown; {NEXT_STEP}"
            )
        found += [
            f"warning: tool {tool!r} of target {self.name!r} uses a {agent} that is not instrumented: which tools that agent called is "
            "unknown (docs/how-to/capture-traces-in-process.md)"
            for tool, agent in self._inner_agents.items()
        ]
        return found

    async def _observe(self, answer: Callable[[], Awaitable[Evidence]], name: str) -> Evidence:
        """Return the evidence of one call, including its captured spans, with the parts that no capture can show marked."""
        captured = Captured(await answer()) if self._capture is None else await capture_call(answer, name=name)
        evidence = captured.evidence
        self._calls += 1
        self._calls_without_spans += not captured.has_work
        # A list of calls written by the function is complete.
        if captured.has_inner_work or evidence.account is None or evidence.account.reader in PLAIN_READERS:
            return evidence
        inner = find_inner_agents(self._function, [call.name for call in evidence.tool_calls or ()])
        self._inner_agents |= inner
        for tool, agent in inner.items():
            why = f"the tool {tool} uses a {agent} that is not instrumented, so its calls are missing"
            evidence = mark_unknown(evidence, CALL_PARTS, why, is_overridable=True)
        return evidence

    async def _call(self, message: Message, history: list[dict[str, Json]], watch: Stopwatch) -> Any:
        offered: dict[str, Json] = {
            "context": copy.deepcopy(dict(message.attempt.case.context)),
            "session_id": message.session_id,
            "request_id": message.request_id,
            "turn": message.turn,
            "history": copy.deepcopy(history),
        }
        arguments = {name: offered[name] for name in self._wanted}
        bound = asyncio.timeout(self._timeout_s)
        given_up = threading.Event()
        try:
            async with bound:
                try:
                    if self._is_async:
                        with watch:
                            answer = await self._function(message.content, **arguments)
                    else:
                        answer = await self._run_blocking(lambda: drain(self._function(message.content, **arguments), given_up), watch)
                    if inspect.isawaitable(answer):
                        with watch:
                            answer = await answer
                    if is_blocking_stream(answer):
                        return await self._run_blocking(lambda: drain(answer, given_up), watch)
                    with watch:
                        return await drain_async(answer)
                except TimeoutError as error:  # the function's own timeout; ours is raised outside
                    raise self._describe_exception(error) from error
        except TimeoutError:
            raise TargetFault("timeout", f"{_describe_call(self._function)} did not answer within {self._timeout_s:g} s") from None
        except (TargetFault, asyncio.CancelledError):
            raise
        except Unreadable as error:
            raise TargetFault("bad_answer", f"what {_describe_call(self._function)} returned cannot be read: {error}") from None
        except BaseException as error:  # an agent that calls `sys.exit` ends its answer, not the run
            if is_interrupt(error):
                raise
            raise self._describe_exception(error) from error
        finally:
            given_up.set()

    async def _run_blocking(self, work: Callable[[], object], watch: Stopwatch) -> Any:
        # The thread sees its caller's context variables, like an awaited function.
        answer, raised = await run_in_thread(lambda: watch.call(work), contextvars.copy_context(), "proctor-callable")
        if isinstance(raised, Unreadable):
            raise raised
        if raised is not None:
            raise self._describe_exception(raised) from raised
        return answer

    def _describe_exception(self, error: BaseException) -> TargetFault:
        return TargetFault("agent_failed", f"{_describe_call(self._function)} raised {describe_exception(error)}")

    def _read_evidence(self, answer: object) -> Evidence:
        """Return the function's result as evidence; an error while reading it is the function's fault."""
        try:
            found = read_returned_value(answer)
        except (EvidenceError, Unreadable) as error:
            raise self._refuse_answer(answer, exception_text(error)) from None
        except Exception as error:
            # A user's mapping may raise anything when it is read.
            raise self._refuse_answer(answer, f"reading it raised {type(error).__name__}: {exception_text(error)}") from error
        if found is not None:
            return found
        raise TargetFault(
            "bad_answer",
            f"{_describe_call(self._function)} returned {describe_kind(answer)}, "
            "expected text, a mapping of plain evidence, messages or an Evidence, or what an agent framework returns; "
            f"see {find_page(answer)}",
        )

    def _refuse_answer(self, answer: object, why: str) -> TargetFault:
        last_value = answer.items[-1] if isinstance(answer, Streamed) and answer.items else answer
        # Names of formats are useful on the command line, not for a function.
        why = why.partition("\n  known forms")[0]
        message = f"what {_describe_call(self._function)} returned ({describe_kind(last_value)}) is not evidence: {why}"
        return TargetFault("bad_answer", f"{message}; see {find_page(last_value)}")


def load_function(reference: str, *, base: Path | None = None, trusted: bool = True) -> Function:
    """Return the function that `module:function` names; raises `SpecError` if there is none.

    If the reference is not trusted (the suite may come from anyone), only modules in the folder `base` are accepted: Python's standard
    library has functions that must not be called with text from a suite.
    """
    module_name, colon, path = reference.partition(":")
    if (colon and not path) or not all(part.isidentifier() for part in (*module_name.split("."), *(path.split(".") if colon else ()))):
        raise SpecError(f"function: expected module:function, found {reference!r}", field="function")
    module = import_local_module(module_name, base, trusted)
    if not path:
        marked = list_marked(module)
        if len(marked) != 1:
            message = f"marks {', '.join(marked)} with @proctor.agent" if marked else "marks no function with @proctor.agent"
            example = f"{module_name}:{marked[0] if marked else 'function'}"
            raise SpecError(f"function: {module_name} {message}; write {example}", field="function")
        path = marked[0]
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            names = [name for name in dir(found) if not name.startswith("_") and callable(getattr(found, name, None))]
            raise SpecError(f"function: {module_name} has no {path!r}", field="function", nearest=nearest(part, names))
        found = getattr(found, part)
    if not callable(found):
        raise SpecError(f"function: {reference} is {kind_of(found)}, not a function", field="function")
    if not trusted and not lies_in(sys.modules.get(getattr(found, "__module__", None) or ""), base):
        # `agent:subprocess.run` would leave the folder through one of its modules.
        raise SpecError(f"function: {reference} is not written in the folder of the suite", field="function")
    return found


def _describe_call(function: Function) -> str:
    return f"{getattr(function, '__qualname__', type(function).__name__)}()"


def _list_wanted_arguments(function: Function) -> tuple[str, ...]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a built-in without a signature
        return ()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        if find_agent_object(function) is None:
            return OFFERED
        # A framework agent may treat unknown names in its own way.
        parameters = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    positional = [parameter for parameter in parameters if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    rest = [parameter for parameter in parameters if parameter not in positional[:1] and parameter.kind is not parameter.VAR_POSITIONAL]
    if not positional and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        message = f"function: {_describe_call(function)} takes no message"
        raise SpecError(message, field="function", hint="its first parameter is the message")
    for parameter in rest:
        if parameter.name not in OFFERED and parameter.default is parameter.empty:
            message = f"{_describe_call(function)} needs {parameter.name!r}, which no case gives; apart from the message there are"
            raise SpecError(f"function: {message} {', '.join(OFFERED)}", field="function", nearest=nearest(parameter.name, OFFERED))
    return tuple(parameter.name for parameter in rest if parameter.name in OFFERED and parameter.kind is not parameter.POSITIONAL_ONLY)
