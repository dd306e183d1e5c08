"""Calls the tools that the user declared as safe.

    calls:
      - tool: find_order
        arguments: {id: "17"}
      - tool: find_order
        arguments: {id: "no such order"}
        error: true                      # the tool itself reports an error
      - tool: long_report
        arguments: {days: 30}
        cancel: true                     # it takes at least a second: it is also cancelled
      - tool: long_report
        arguments: {days: 30}
        task: true                       # made as a task, if the server has tasks; a second one is cancelled
      - tool: place_order
        arguments: {product: tea}
        answers: {elicitation/create: {action: accept, content: {sure: true}}}
    prompts:
      complain: {order: "17"}            # requested with these arguments, and without them

With `--fuzz N`, the arguments of each declared call are replaced, one at a time, by boundary values of the input schema.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from proctor.doctor.client import META, Reply, Session
from proctor.doctor.http_link import HttpLink
from proctor.doctor.inspect import LISTS, Surface, is_base64
from proctor.doctor.model import Verdicts
from proctor.doctor.recording import Frame
from proctor.doctor.surface import list_parameters
from proctor.errors import InputError
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.model.typed import convert_to

_CANCEL_AFTER_S: Final = 0.2
_CANCEL_WAIT_S: Final = 1.5
_MOST_AT_ONCE: Final = 8
_MOST_ROUNDS: Final = 5
"""The maximum number of rounds in which one call may request input."""
_TASK_S: Final = 30.0
"""Seconds for a task to end."""
_TASK_CHECKS: Final = ("task-created", "task-shape", "task-result", "task-listed", "task-cancel", "task-cancel-ended")
_SIMPLE_TYPES: Final = ("string", "number", "integer", "boolean")
_FUZZ: Final = ("call-wrong-arguments", "call-fuzz-survives", "call-fuzz-internal")


class DeclaredCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call that may be made."""

    tool: str
    arguments: dict[str, Json] = {}
    error: bool = False
    """Whether the tool reports an error."""
    cancel: bool = False
    """Whether it takes long enough to be cancelled."""
    task: bool = False
    """Whether it is also made as a task."""
    answers: dict[str, Json] = {}
    """Results for requests of the server during the call, by method."""


class CallPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `calls.yaml`."""

    calls: tuple[DeclaredCall, ...] = ()
    prompts: dict[str, dict[str, str]] = {}
    """Prompts that may be requested, with their arguments: some servers run a command for one."""


def read_calls(document: Json, name: str) -> CallPlan:
    """Read declared calls. Raises `InputError`."""
    try:
        plan = convert_to(document, CallPlan)
    except msgspec.ValidationError as error:
        raise InputError(f"{name}: {error}; expected `calls:` with a list of tool, arguments, error, cancel, task, answers") from None
    if not plan.calls and not plan.prompts:
        raise InputError(f"{name}: declares no calls")
    return plan


async def make_calls(session: Session, v: Verdicts, surface: Surface, plan: CallPlan, fuzz: int) -> int:
    """Make the declared calls, judge their results, and return the number of calls."""
    tools = {str(tool.get("name")): tool for tool in surface.tools}
    for call in plan.calls:
        if call.tool not in tools:
            close = nearest(call.tool, tools)
            raise InputError(f"calls: the server has no tool {call.tool!r}" + (f"; nearest: {', '.join(close)}" if close else ""))
    caller = _Caller(session, v, tools)
    for call in plan.calls:
        await caller.make_call(call)
    await caller.call_at_once([call for call in plan.calls if not call.cancel and not call.answers])
    for call in plan.calls:
        if call.cancel:
            await caller.cancel_call(call)
    for call in plan.calls:
        if call.task and session.link.is_open():
            await caller.make_task(call)
    caller.judge_questions()
    await caller.get_prompts(plan.prompts, surface)
    v.skip("no call is declared", "call-works")
    v.skip("no call is declared with `cancel: true`", "call-cancel")
    v.skip("no call is declared with `task: true`", *_TASK_CHECKS)
    v.skip("no result has structured content", "call-structured-text", "call-output-schema")
    v.skip("no declared tool has `readOnlyHint`", "call-read-only")
    if fuzz:
        for call in plan.calls:
            if session.link.is_open():
                await caller.fuzz_call(call, fuzz)
    v.skip("without --fuzz" if not fuzz else "no parameter has boundary values", *_FUZZ)
    v.ok("call-content", "call-progress-increases", "call-progress-stops")
    return caller.count


class _Caller:
    def __init__(self, session: Session, v: Verdicts, tools: Mapping[str, Mapping[str, Any]]) -> None:
        self._session = session
        self._v = v
        self._tools = tools
        self._tokens = itertools.count(1)
        self.count = 0

    async def _call(self, call: DeclaredCall, arguments: Mapping[str, Json] | None = None, token: str | None = None) -> Reply:
        """Call the tool, and give the declared input if it asks for more."""
        self.count += 1
        self._session.link.answers = call.answers
        params: dict[str, Json] = {"name": call.tool, "arguments": dict(call.arguments if arguments is None else arguments)}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        reply = await self._session.request("tools/call", params, timeout_s=max(self._session.timeout_s, 30.0))
        for _ in range(_MOST_ROUNDS):
            result = reply.result
            if not (isinstance(result, dict) and result.get("resultType") == "input_required"):
                break
            questions = result.get("inputRequests") or {}
            responses = {key: call.answers.get(str(each.get("method")), {}) for key, each in questions.items() if isinstance(each, dict)}
            again = {**params, "inputResponses": responses}
            if "requestState" in result:
                again["requestState"] = result["requestState"]
            reply = await self._session.request("tools/call", again, timeout_s=max(self._session.timeout_s, 30.0))
        return reply

    async def make_call(self, call: DeclaredCall) -> None:
        """Make one call and judge its result."""
        tool, v = self._tools[call.tool], self._v
        reads_only = (tool.get("annotations") or {}).get("readOnlyHint") is True
        before = await self._take_state() if reads_only else None
        token = f"proctor-{next(self._tokens)}"
        began = len(self._session.recording.frames)
        reply = await self._call(call, token=token)
        result = reply.result
        if reply.response is None and not self._session.link.is_open():
            return
        is_error = reply.is_error_result
        expected = "an error" if call.error else "a result without error"
        holds = (is_error or reply.error is not None) if call.error else (isinstance(result, dict) and not is_error)
        v.require(
            "call-works",
            holds,
            f"{call.tool}: expected {expected}, got {reply.describe()}{_quote_text(result)}",
            *self._session.show(reply),
        )
        if isinstance(result, dict):
            self._judge_result(call.tool, tool, result, reply, is_error=is_error)
        await self._session.link.wait(0.2)
        self._judge_progress(token, reply, self._session.recording.frames[began:])
        if before is not None and await self._take_state() != before:
            v.broken("call-read-only", f"{call.tool} has `readOnlyHint`, and a list or a resource changed", *self._session.show(reply))
        elif before is not None:
            v.ok("call-read-only")

    def _judge_result(self, name: str, tool: Mapping[str, Any], result: Mapping[str, Any], reply: Reply, *, is_error: bool) -> None:
        v, shown = self._v, self._session.show(reply)
        structured, schema = result.get("structuredContent"), tool.get("outputSchema")
        blocks = [block for block in result.get("content") or [] if isinstance(block, dict)]
        if isinstance(schema, dict) and not is_error:
            fault = "there is none" if "structuredContent" not in result else find_nonconformity(schema, structured)
            v.require("call-output-schema", not fault, f"{name}: {fault}", *shown)
        if structured is not None:
            has_text = any(block.get("type") == "text" for block in blocks)
            v.require("call-structured-text", has_text, f"{name}: structured content without a text", *shown)
        for block in blocks:
            if block.get("type") in ("image", "audio"):
                good = is_base64(str(block.get("data") or "")) and "/" in str(block.get("mimeType"))
                v.require("call-content", good, f"{name}: {block.get('type')} without base64 data or MIME type", *shown)

    def _judge_progress(self, token: str, reply: Reply, frames: list[Frame]) -> None:
        v = self._v
        reports = [
            frame
            for frame in frames
            if frame.direction == "received"
            and frame.fields.get("method") == "notifications/progress"
            and isinstance(params := frame.fields.get("params"), dict)
            and params.get("progressToken") == token
        ]
        values = [frame.fields["params"].get("progress") for frame in reports]
        numbers = [value for value in values if isinstance(value, (int, float))]
        rising = all(low < high for low, high in itertools.pairwise(numbers))
        v.require("call-progress-increases", rising, f"progress was {show(numbers, 80)}", *self._session.show(reply))
        late = [frame for frame in reports if reply.response is not None and frame.number > reply.response.number]
        v.require("call-progress-stops", not late, "progress came after the response", *self._session.show(reply))

    async def call_at_once(self, calls: list[DeclaredCall]) -> None:
        """Make several calls at once."""
        chosen = list(itertools.islice(itertools.cycle(calls), min(_MOST_AT_ONCE, 2 * len(calls)))) if calls else []
        if not chosen:
            self._v.skip("all declared calls are cancelled or ask for input", "call-concurrent")
            return
        replies = await asyncio.gather(*(self._call(call) for call in chosen))
        for call, reply in zip(chosen, replies, strict=True):
            schema, result = self._tools[call.tool].get("outputSchema"), reply.result
            fits = reply.response is not None
            structured = result.get("structuredContent") if isinstance(result, dict) else None
            if fits and isinstance(schema, dict) and structured is not None and not self._v.is_broken("call-output-schema"):
                fits = not find_nonconformity(schema, structured)
            what = f"{call.tool}: {reply.describe()} among {len(chosen)} calls at once"
            self._v.require("call-concurrent", fits, what, *self._session.show(reply))

    async def cancel_call(self, call: DeclaredCall) -> None:
        """Cancel a call while it runs."""
        session, v = self._session, self._v
        if isinstance(session.link, HttpLink):
            v.skip("over HTTP a call is cancelled by closing its stream", "call-cancel")
            return
        self.count += 1
        message = session.make_request("tools/call", {"name": call.tool, "arguments": call.arguments})
        running = asyncio.create_task(session.send(message, timeout_s=_CANCEL_AFTER_S + _CANCEL_WAIT_S))
        await asyncio.sleep(_CANCEL_AFTER_S)
        if running.done():
            v.obstruct(f"{call.tool} ended before it could be cancelled", "call-cancel")
            return
        await session.notify("notifications/cancelled", {"requestId": message["id"], "reason": "a probe"})
        reply = await running
        v.require(
            "call-cancel", reply.response is None, f"{call.tool}: {reply.describe()} after the cancellation", *self._session.show(reply)
        )

    async def make_task(self, call: DeclaredCall) -> None:
        """Make the call as a task, follow it to its end, and cancel a second one."""
        session, v = self._session, self._v
        support = (self._tools[call.tool].get("execution") or {}).get("taskSupport")
        if not session.has_tasks or (not session.is_stateless and support not in ("optional", "required")):
            v.skip(f"the server declares no tasks of {call.tool}", *_TASK_CHECKS)
            return
        task, reply = await self._create_task(call)
        if not task:
            if session.is_stateless:
                v.skip(f"the server made no task of {call.tool}, as it may", *_TASK_CHECKS)
            else:
                v.broken("task-created", f"{call.tool}: expected a task, got {reply.describe()}", *self._session.show(reply))
                v.skip("there is no task", *_TASK_CHECKS)
            return
        v.ok("task-created", "task-shape")
        if not session.is_stateless and "list" in session.capabilities["tasks"]:
            listed = await session.list_all("tasks/list", "tasks")
            is_listed = any(each.get("taskId") == task["taskId"] for each in listed.items)
            v.require("task-listed", is_listed, "`tasks/list` lacks a task that was just made", *self._session.show(listed.first))
        else:
            v.skip("`tasks.list` is not declared", "task-listed")
        await self._follow_task(call, task["taskId"])
        await self._cancel_tasks(call, task["taskId"])

    async def _create_task(self, call: DeclaredCall) -> tuple[Mapping[str, Any], Reply]:
        self.count += 1
        self._session.link.answers = call.answers
        params: dict[str, Json] = {"name": call.tool, "arguments": call.arguments, **self._session.declare_tasks()}
        if not self._session.is_stateless:
            params["task"] = {"ttl": 60_000}
        reply = await self._session.request("tools/call", params, timeout_s=max(self._session.timeout_s, 30.0))
        result = reply.result if isinstance(reply.result, dict) else {}
        task = result if self._session.is_stateless else result.get("task")
        return (task if isinstance(task, dict) and isinstance(task.get("taskId"), str) else {}), reply

    async def _ask_task(self, method: str, task: str, timeout_s: float | None = None) -> Reply:
        return await self._session.request(method, {"taskId": task, **self._session.declare_tasks()}, timeout_s=timeout_s)

    async def _follow_task(self, call: DeclaredCall, task: str) -> None:
        """Wait until the task has ended, and judge its result."""
        v, until = self._v, time.monotonic() + _TASK_S
        status: Json = None
        reply = Reply()
        while time.monotonic() < until and status in (None, "working"):
            reply = await self._ask_task("tasks/get", task)
            status = reply.result.get("status") if isinstance(reply.result, dict) else "unknown"
            if status == "working":
                await asyncio.sleep(0.1)
        if status == "unknown":
            v.broken("task-result", f"{call.tool}: `tasks/get` gave {reply.describe()}", *self._session.show(reply))
        elif status not in ("completed", "failed"):
            v.obstruct(f"the task of {call.tool} is {status} after {_TASK_S:g} s", "task-result")
        elif self._session.is_stateless:
            result = reply.result if isinstance(reply.result, dict) else {}
            holds = isinstance(result.get("result" if status == "completed" else "error"), dict)
            v.require("task-result", holds, f"{call.tool}: the task is {status}, without its outcome", *self._session.show(reply))
        else:
            reply = await self._ask_task("tasks/result", task, max(self._session.timeout_s, 30.0))
            meta = reply.result.get("_meta") if isinstance(reply.result, dict) else None
            related = meta.get(f"{META}related-task") if isinstance(meta, dict) else None
            names_task = isinstance(related, dict) and related.get("taskId") == task
            good = reply.error is not None if status == "failed" and reply.result is None else names_task
            what = f"{call.tool}: expected the result with its `related-task`, got {reply.describe()}"
            v.require("task-result", good, what, *self._session.show(reply))

    async def _cancel_tasks(self, call: DeclaredCall, ended: str) -> None:
        session, v = self._session, self._v
        if not session.is_stateless and "cancel" not in session.capabilities["tasks"]:
            v.skip("`tasks.cancel` is not declared", "task-cancel", "task-cancel-ended")
            return
        if not session.is_stateless:
            reply = await self._ask_task("tasks/cancel", ended)
            v.require(
                "task-cancel-ended", reply.code == -32602, f"expected error -32602, got {reply.describe()}", *self._session.show(reply)
            )
        task, reply = await self._create_task(call)
        if not task:
            v.obstruct("there is no second task to cancel", "task-cancel")
            return
        reply = await self._ask_task("tasks/cancel", task["taskId"])
        if reply.code == -32602:
            v.obstruct(f"the task of {call.tool} ended before it could be cancelled", "task-cancel")
            return
        status = reply.result.get("status") if isinstance(reply.result, dict) else None
        holds = isinstance(reply.result, dict) if session.is_stateless else status == "cancelled"
        v.require("task-cancel", holds, f"{call.tool}: {reply.describe()} with the status {show(status)}", *self._session.show(reply))

    async def get_prompts(self, prompts: Mapping[str, Mapping[str, str]], surface: Surface) -> None:
        """Request declared prompts, also without the arguments they need."""
        v, known = self._v, {str(each.get("name")): each for each in surface.prompts}
        v.skip("no prompt is declared in `prompts:`", "prompts-get")
        for name, arguments in prompts.items():
            if name not in known:
                close = nearest(name, known)
                raise InputError(f"prompts: the server has no prompt {name!r}" + (f"; nearest: {', '.join(close)}" if close else ""))
            reply = await self._session.request("prompts/get", {"name": name, "arguments": dict(arguments)})
            what = f"{name}: expected messages, got {reply.describe()}"
            v.require("prompts-get", isinstance(reply.result, dict), what, *self._session.show(reply))
            if any(isinstance(each, dict) and each.get("required") is True for each in known[name].get("arguments") or ()):
                reply = await self._session.request("prompts/get", {"name": name})
                what = f"expected error -32602 for `{name}` without arguments, got {reply.describe()}"
                v.require("prompts-required-arguments", reply.code == -32602, what, *self._session.show(reply))
        v.skip("no declared prompt has required arguments", "prompts-required-arguments")

    def judge_questions(self) -> None:
        """Judge the schemas of all questions to the user, in either era."""
        v, recording = self._v, self._session.recording
        v.skip("no question was sent", "call-elicitation")
        for frame in recording.list_received():
            result = frame.fields.get("result")
            requests = result.get("inputRequests") or {} if isinstance(result, dict) and "inputRequests" in result else {"": frame.fields}
            for question in requests.values():
                params = question.get("params") if isinstance(question, dict) and question.get("method") == "elicitation/create" else None
                if isinstance(params, dict) and params.get("mode", "form") == "form":
                    fault = _find_nesting(params.get("requestedSchema"))
                    v.require("call-elicitation", not fault, fault, recording.show(frame))

    async def fuzz_call(self, call: DeclaredCall, most: int) -> None:
        """Make the call with boundary values."""
        v, tool = self._v, self._tools[call.tool]
        schema = tool.get("inputSchema")
        for name, value in itertools.islice(list_boundary_values(tool), most):
            arguments = {**call.arguments, name: value}
            fault = find_nonconformity(schema, arguments) if isinstance(schema, dict) else ""
            reply = await self._call(call, arguments)
            at = f"{call.tool}({name}={show(value, 40)})"
            alive = reply.response is not None or self._session.link.is_open()
            v.require("call-fuzz-survives", alive, f"{at}: {self._session.link.explain_end()}", *self._session.show(reply))
            if not alive:
                return
            refused = reply.error is not None or reply.is_error_result
            if fault:
                v.require("call-wrong-arguments", refused, f"{at} is accepted, although {fault}", *self._session.show(reply))
            else:
                v.require("call-fuzz-internal", reply.code != -32603, f"{at}: error -32603", *self._session.show(reply))

    async def _take_state(self) -> Json:
        """Return all lists and the contents of the first resources, for a comparison."""
        state: list[Json] = []
        for capability, method, key in LISTS.values():
            if self._session.capabilities.get(capability) is not None:
                listed = await self._session.list_all(method, key)
                state.append([dict(item) for item in listed.items])
                if key == "resources":
                    reads = [await self._session.request("resources/read", {"uri": item.get("uri")}) for item in listed.items[:5]]
                    state.append([read.result.get("contents") if isinstance(read.result, dict) else None for read in reads])
        return state


def _find_nesting(schema: Json) -> str:
    """Return why the schema of a question is not flat; "" if it is."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return f"the schema of a question is {show(schema, 60)}"
    for name, each in properties.items():
        kind = each.get("type") if isinstance(each, dict) else None
        # A list of fixed choices is simple, too.
        chooses = kind == "array" and isinstance(each.get("items"), dict) and bool({"enum", "anyOf"} & set(each["items"]))
        if kind not in _SIMPLE_TYPES and not chooses:
            return f"the field {show(name, 40)} of a question has the type {show(kind, 40)}"
    return ""


def find_nonconformity(schema: Mapping[str, Any], value: Json) -> str:
    """Return why a value does not conform to a schema; "" if it does."""
    import jsonschema_rs  # slow to load

    try:
        validator = jsonschema_rs.validator_for(dict(schema), offline=True, validate_formats=False)
        error = next(iter(validator.iter_errors(value)), None)
    except (jsonschema_rs.ValidationError, ValueError):
        return ""
    return "" if error is None else f"{'.'.join(map(str, error.instance_path)) or 'it'}: {str(error.message)[:200]}"


def list_boundary_values(tool: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """Yield a parameter and a boundary value of its schema, one value of each parameter in turn."""
    each = [[(name, value) for value in _boundaries(schema)] for name, schema in list_parameters(tool)]
    for row in itertools.zip_longest(*each):
        yield from (pair for pair in row if pair is not None)


def _boundaries(schema: Mapping[str, Any]) -> list[Json]:
    kind = schema.get("type")
    values: list[Json]
    match kind:
        case "string":
            longest = int(schema.get("maxLength", 2_000))
            values = ["", "x" * min(longest, 5_000), "x" * (min(longest, 5_000) + 1), "é\U0001f600\n\"'<>", 7, None]
        case "integer" | "number":
            low, high = schema.get("minimum", -(2**31)), schema.get("maximum", 2**53)
            values = [0, low, high, -1, "7", None] if kind == "integer" else [0, low, high, 0.1, "7", None]
        case "boolean":
            values = [True, False, "true", None]
        case "array":
            values = [[], [None], "x", None]
        case "object":
            values = [{}, [], "x", None]
        case _:
            values = [None, "", 0]
    return [*(schema.get("enum") or [])[-1:], *values]


def _quote_text(result: Json) -> str:
    blocks = result.get("content") if isinstance(result, dict) else None
    texts = [str(block.get("text")) for block in blocks or () if isinstance(block, dict) and block.get("type") == "text"]
    return f": {show(texts[0], 120)}" if texts else ""
