"""A Python function as the agent: the quickest way to test what runs in the same process.

The function is called with the message. Where its signature has them it also gets `context`, `session_id`, `request_id`, `turn` (from 0)
and `history` (the exchanges before, as `{"input", "text"}`), each call copies of its own. It answers with a text, with plain evidence as a
mapping, with a list of provider messages or an envelope of them (`{"messages": [...]}`), or with an `Evidence`; what else it returns, what
JSON cannot hold inside of these (`returned.py`), and a text with nothing in it are the error of that case. So is whatever it raises: only
the user's own Ctrl-C ends the run. An `async` function is awaited; any other runs in a thread of its own, which is left alone when
the time is up, since a thread cannot be ended. A function has no wire: nothing of it is on a tape, it is called again on replay.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from proctor.cassettes.ports import Tape
from proctor.errors import EvidenceError, SpecError
from proctor.evidence.plain import CARRYING
from proctor.evidence.reading import read_document
from proctor.model.account import Account
from proctor.model.attempt import Attempt
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json
from proctor.model.problem import Problem
from proctor.model.show import exception_text, kind_of, nearest, shorten
from proctor.targets.answer_account import doubt_silence, said_nothing
from proctor.targets.conversation import Message, converse
from proctor.targets.faults import TargetFault
from proctor.targets.interrupts import is_interrupt
from proctor.targets.returned import Unreadable, plain_evidence, plain_value, type_name

Function = Callable[..., Any]
READER = "callable"
OFFERED = ("context", "session_id", "request_id", "turn", "history")
"""What a function may ask for by the names of its parameters."""


class CallableSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Python function as the agent."""

    type: Literal["callable"] = "callable"
    function: str
    """`module:function`; the module is found where Python finds modules, or in the folder of the workspace."""
    timeout_s: float = 120.0
    """How long one call may take."""


class CallableTarget:
    """Calls a Python function."""

    def __init__(self, name: str, function: Function, *, timeout_s: float = 120.0) -> None:
        """Raises `SpecError` for a function that cannot be called with a message."""
        self._name = name
        self._function = function
        self._timeout_s = timeout_s
        self._wanted = _list_wanted_arguments(function)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - asks for the method's own kind

    @property
    def name(self) -> str:
        """The name that reports show."""
        return self._name

    def problems_with(self, cases: Iterable[Case]) -> list[Problem]:
        """Return no problems: a function takes any case."""
        return []

    async def open(self) -> None:
        """Do nothing: there is nothing to connect."""

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Call the function with every message of the case."""
        history: list[dict[str, Json]] = []

        async def say(message: Message) -> Evidence:
            started = time.perf_counter()
            answer = await self._call(message, history)
            passed = round((time.perf_counter() - started) * 1000, 3)
            evidence = _with_reader(self._read_evidence(answer))
            if said_nothing(evidence):
                told = f"{_describe_call(self._function)} returned an answer with nothing in it"
                raise TargetFault("empty_answer", told, evidence=evidence)
            evidence = doubt_silence(evidence)
            history.append({"input": message.said, "text": evidence.text})
            return evidence if evidence.duration_ms is not None else msgspec.structs.replace(evidence, duration_ms=passed)

        return await converse(attempt, say, target=self._name)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def _call(self, message: Message, history: list[dict[str, Json]]) -> Any:
        offered: dict[str, Json] = {
            "context": copy.deepcopy(dict(message.attempt.case.context)),
            "session_id": message.session_id,
            "request_id": message.request_id,
            "turn": message.turn,
            "history": copy.deepcopy(history),
        }
        arguments = {name: offered[name] for name in self._wanted}
        bound = asyncio.timeout(self._timeout_s)
        try:
            async with bound:
                try:
                    if self._is_async:
                        return await self._function(message.said, **arguments)
                    answer, raised = await _run_in_thread(lambda: self._function(message.said, **arguments))
                    if raised is not None:
                        raise self._describe_exception(raised) from raised
                    return await answer if inspect.isawaitable(answer) else answer
                except TimeoutError as error:  # the function's own; ours shows outside of the bound
                    raise self._describe_exception(error) from error
        except TimeoutError:
            raise TargetFault("timeout", f"{_describe_call(self._function)} did not answer within {self._timeout_s:g} s") from None
        except (TargetFault, asyncio.CancelledError):
            raise
        except BaseException as error:  # an agent that calls `sys.exit` ends its answer, not the run
            if is_interrupt(error):
                raise
            raise self._describe_exception(error) from error

    def _describe_exception(self, error: BaseException) -> TargetFault:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        return TargetFault(
            "agent_failed", f"{_describe_call(self._function)} raised {type(error).__name__}: {exception_text(error)}{place}"
        )

    def _read_evidence(self, answer: object) -> Evidence:
        """Return what the function returned as evidence; whatever goes wrong while reading it is the fault of the function."""
        try:
            if isinstance(answer, Evidence):
                return plain_evidence(answer)
            if isinstance(answer, str):
                return read_document({"text": plain_value(answer)}, format="plain")[0]
            if isinstance(answer, (Mapping, list)):
                given = plain_value(answer)
                found = read_document(given, format="plain" if isinstance(given, dict) and not _is_envelope(given) else None)
                if len(found) == 1:
                    return found[0]
        except (EvidenceError, Unreadable) as error:
            raise self._refuse_answer(answer, exception_text(error)) from None
        except Exception as error:
            # A mapping of somebody else's may do anything when it is asked for its members.
            raise self._refuse_answer(answer, f"looking at it raised {type(error).__name__}: {exception_text(error)}") from error
        raise TargetFault(
            "bad_answer",
            f"{_describe_call(self._function)} returned {_describe_kind(answer)}, "
            "expected text, a mapping of plain evidence, messages or an Evidence",
        )

    def _refuse_answer(self, answer: object, why: str) -> TargetFault:
        return TargetFault("bad_answer", f"what {_describe_call(self._function)} returned ({_describe_kind(answer)}) is no evidence: {why}")


def load_function(reference: str, *, base: Path | None = None, trusted: bool = True) -> Function:
    """Return the function that `module:function` names; raises `SpecError` where there is none.

    Where the reference is not to be trusted (a suite may be anybody's), only modules that lie in the folder `base` are taken: the
    library of Python has functions that must not be called with a message out of a suite.
    """
    module_name, colon, path = reference.partition(":")
    if not colon or not path or not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise SpecError(f"function: expected module:function, found {reference!r}", field="function")
    module = _import(module_name, base, trusted)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            names = [name for name in dir(found) if not name.startswith("_") and callable(getattr(found, name, None))]
            raise SpecError(f"function: {module_name} has no {path!r}", field="function", nearest=nearest(part, names))
        found = getattr(found, part)
    if not callable(found):
        raise SpecError(f"function: {reference} is {kind_of(found)}, not a function", field="function")
    if not trusted and not _lies_in(sys.modules.get(getattr(found, "__module__", None) or ""), base):
        # `agent:subprocess.run` goes through a module of the folder, and leaves it.
        raise SpecError(f"function: {reference} is not written in the folder of the suite", field="function")
    return found


def _import(name: str, base: Path | None, trusted: bool) -> object:
    import importlib  # only a function named in a file needs it

    top = name.partition(".")[0]
    local = base is not None and ((base / f"{top}.py").is_file() or (base / top).is_dir())
    if not trusted and not local:
        raise SpecError(
            f"function: the module {name!r} is not in the folder of the suite",
            field="function",
            hint="a suite may name functions of its own folder only; describe the target in proctor.yaml instead",
        )
    if local and str(base) not in sys.path:
        # Where anybody may have written the folder, nothing in it may stand in for a module of Python's own.
        sys.path.insert(0 if trusted else len(sys.path), str(base))
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise SpecError(f"function: cannot import {name!r}: {error}", field="function") from error
    except Exception as error:
        raise SpecError(f"function: importing {name!r} raised {type(error).__name__}: {shorten(str(error))}", field="function") from error
    if not trusted and not _lies_in(module, base):
        raise SpecError(f"function: {name!r} is an installed module, not the one beside the suite", field="function")
    return module


def _lies_in(module: object, base: Path | None) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and base is not None and Path(file).resolve().is_relative_to(base.resolve())


def _describe_kind(answer: object) -> str:
    """Return the user's word for this kind of value, else its type."""
    word = kind_of(answer)
    return type_name(answer) if word == type(answer).__name__ else word


def _describe_call(function: Function) -> str:
    return f"{getattr(function, '__qualname__', type(function).__name__)}()"


def _list_wanted_arguments(function: Function) -> tuple[str, ...]:
    """Return the names of the offered values that the function takes."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a built-in without a signature
        return ()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return OFFERED
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    has_message = bool(positional) or any(one.kind is one.VAR_POSITIONAL for one in parameters)
    rest = [one for one in parameters if one not in positional[:1] and one.kind is not one.VAR_POSITIONAL]
    if not has_message:
        raise SpecError(
            f"function: {_describe_call(function)} takes no message", field="function", hint="its first parameter is the message"
        )
    for one in rest:
        if one.name not in OFFERED and one.default is one.empty:
            raise SpecError(
                f"function: {_describe_call(function)} needs {one.name!r}, which no case gives; "
                f"beside the message there are {', '.join(OFFERED)}",
                field="function",
                nearest=nearest(one.name, OFFERED),
            )
    return tuple(one.name for one in rest if one.name in OFFERED and one.kind is not one.POSITIONAL_ONLY)


def _is_envelope(given: dict[str, Json]) -> bool:
    """Return whether a mapping is an envelope of messages, as the state of an agent graph is, rather than plain evidence."""
    return isinstance(given.get("messages"), list) and CARRYING.isdisjoint(given)


def _with_reader(evidence: Evidence) -> Evidence:
    account = evidence.account or Account()
    if account.reader not in ("", "plain"):
        return evidence
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, reader=READER))


async def _run_in_thread(work: Callable[[], object]) -> tuple[Any, BaseException | None]:
    """Run `work` in a thread and return what it returns and what it raises; nobody waits for the thread once the time is up.

    What it raises is handed over as a value: an exception that ends generators or programs would end more than this call on its way.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(answer: object, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((answer, error))

    def body() -> None:
        answer, failure = None, None
        try:
            answer = context.run(work)
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, answer, failure)
        except RuntimeError:
            pass  # the run is over and its loop closed; nobody waits for this answer

    # The threads of an executor are waited for when the loop ends; a function that hangs would hold up everything.
    threading.Thread(target=body, name="proctor-callable", daemon=True).start()
    return await done
