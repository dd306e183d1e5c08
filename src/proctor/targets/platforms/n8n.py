"""A workflow of n8n: triggered by its webhook, observed through its executions.

The webhook is sent the message with `x-request-id` and `x-session-id`. With an API key, the executions are then polled for a bounded time
until one has finished that was started with our request id: in that header, or in the body, because a Chat Trigger keeps no headers. It
shows nodes, tools and tokens. Status and time are those of the webhook; where a Respond to Webhook node gives the answer, so are text and
body, because the execution shows the input of that node and not its output. Without a key, only the webhook's answer is known; a trace
inside that answer is read.

On a tape the search is one exchange, whose response is the found execution only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec

from proctor.cassettes.ports import Tape
from proctor.errors import EvidenceError, SpecError
from proctor.evidence.platforms import n8n
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.evidence.values.text import NODE_KEYS, find_text
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import decode_embedded
from proctor.targets.answers.account import is_blank, mark_empty_answer, mark_unknown
from proctor.targets.answers.http_answers import evidence_of, with_account
from proctor.targets.answers.json_answers import read_trace
from proctor.targets.answers.no_answer import make_fault, make_unanswered, refuse_empty, refuse_failure, refuse_status
from proctor.targets.platforms.http import Auth, Requests, WireTarget, check_positive, secret_headers
from proctor.targets.shared.conversation import Message
from proctor.targets.shared.faults import TargetFault
from proctor.targets.shared.masking import Ids, show_settings
from proctor.targets.shared.wire import HttpAnswer, HttpRequest, MakeTransport, Wire, check_address

DEFAULT_TEMPLATE: dict[str, Json] = {"chatInput": "{user_message}", "sessionId": "{session_id}", "requestId": "{request_id}"}
_UNFINISHED = ("new", "running", "waiting", "unknown")
# The workflow has already run; one failed poll is no reason to give up.
_PASSING = ("unreachable", "transport", "timeout")
_PAGE = 20
_MOST_PAGES = 5
"""Maximum pages to search for an execution: ours is among the newest."""
_LONGEST_PAUSE_S = 2.0


class N8nSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow of n8n."""

    type: Literal["n8n"] = "n8n"
    webhook: str
    """The address of its webhook: `http://127.0.0.1:5678/webhook/agent`."""
    method: str = "POST"
    auth: Auth = Auth()
    """The authentication of the webhook."""
    headers: dict[str, str] = {}
    """Additional headers for the webhook."""
    template: Json = msgspec.field(default_factory=lambda: DEFAULT_TEMPLATE)
    """The body for the webhook, with placeholders."""
    response_path: str | None = None
    """The path of the text in the webhook's answer, if the executions are not read."""
    api: str | None = None
    """The address of n8n's API: `http://127.0.0.1:5678`."""
    api_key: str | None = None
    """A key of n8n's API, as `${NAME}`; with it the execution is read."""
    workflow_id: str | None = None
    """Search only executions of this workflow."""
    poll_every_s: float = 0.25
    """The first pause between two polls; pauses grow up to two seconds."""
    poll_for_s: float = 30.0
    """Seconds to search for the execution after the webhook answered."""
    timeout_s: float = 120.0
    """Maximum seconds for the webhook, or for one poll."""

    def __repr__(self) -> str:
        return show_settings(self)


class N8nTarget(WireTarget):
    """Triggers a workflow of n8n and reads its execution."""

    def __init__(
        self, name: str, settings: N8nSettings, *, secrets: frozenset[str] = frozenset(), transport: MakeTransport | None = None
    ) -> None:
        """Raises `SpecError` for settings that cannot be used."""
        for field, value in (("timeout_s", settings.timeout_s), ("poll_for_s", settings.poll_for_s)):
            check_positive(value, field)
        if (settings.api is None) != (not settings.api_key):
            raise SpecError("reading executions needs both `api` and `api_key`", field="api" if settings.api is not None else "api_key")
        if settings.api is not None:
            check_address(settings.api, "api")
        self._settings = settings
        self._requests = Requests(
            method=settings.method,
            url=settings.webhook,
            field="webhook",
            headers=settings.headers,
            credentials=settings.auth.make_headers(),
            template=settings.template,
        )
        key = frozenset((settings.api_key,)) if settings.api_key else frozenset[str]()
        super().__init__(
            name,
            Wire(secrets=secrets | key | settings.auth.list_secrets() | secret_headers(settings.headers), transport=transport),
            placeholders=self._requests.placeholders,
        )

    async def say(self, message: Message, tape: Tape, ids: Ids) -> Evidence:
        """Trigger the workflow with one message."""
        request = self._requests.make(message, {"x-session-id": message.session_id})
        answer = await self._wire.exchange(request, tape=tape, ids=ids, timeout_s=self._settings.timeout_s)
        if self._settings.api is None:
            return _read_answer(answer, self._settings.response_path, message)
        # A workflow that answers 401 or 403 itself does not use this realm, which is n8n's own.
        if answer.status == 404 or (answer.status in (401, 403) and answer.headers.get("www-authenticate") == 'Basic realm="Webhook"'):
            return _read_answer(answer, None, message)
        # All polls together are one exchange on the tape: their number differs from run to run.
        found = await self._wire.exchange_over_tape(
            self._make_search(),
            lambda: self._wait_for_execution(message.request_id),
            tape=tape,
            ids=ids,
            note=f"until {message.request_id} is finished",
        )
        try:
            evidence = n8n.read(found.body)[0]
        except EvidenceError as error:
            raise TargetFault("bad_answer", f"the execution cannot be read: {error.message}") from None
        content = answer.body if answer.body is not None else answer.text
        evidence = msgspec.structs.replace(
            evidence, http_status=answer.status, duration_ms=answer.duration_ms, metadata={**evidence.metadata, "webhook_answer": content}
        )
        refusal = refuse_status(answer)
        if refusal is not None and not message.claims_status(answer.status):
            # The execution is stored along with the error.
            raise make_fault(refusal, answer, evidence)
        if n8n.is_answered_by_webhook(evidence):
            with_text = _read_answer(answer, None, message)
            evidence = msgspec.structs.replace(evidence, text=with_text.text, body=with_text.body)
            why = with_text.account.unknown.get("answer") if with_text.account is not None else None
            if why is not None:
                evidence = mark_unknown(evidence, ("answer",), why, is_cause=True)
        return mark_empty_answer(evidence)

    # --- executions -------------------------------------------------------------------------------------------------

    def _make_search(self, cursor: str | None = None) -> HttpRequest:
        settings = self._settings
        query = {"includeData": "true", "limit": str(_PAGE)}
        if settings.workflow_id:
            query["workflowId"] = settings.workflow_id
        if cursor:
            query["cursor"] = cursor
        url = f"{(settings.api or '').rstrip('/').removesuffix('/api/v1')}/api/v1/executions?{urlencode(query)}"
        return HttpRequest(method="GET", url=url, headers={"x-n8n-api-key": settings.api_key or ""})

    async def _wait_for_execution(self, request_id: str) -> HttpAnswer:
        settings = self._settings
        state = "n8n lists none that received it"
        pause = settings.poll_every_s
        bound = asyncio.timeout(settings.poll_for_s)
        try:
            async with bound:
                while True:
                    try:
                        answer, execution = await self._find_execution(request_id)
                    except TargetFault as fault:
                        if fault.code not in _PASSING:
                            raise
                        state = fault.message
                    else:
                        is_stopped = execution is not None and execution.get("stoppedAt") is not None
                        if execution is not None and (
                            execution.get("finished") is True or (is_stopped and execution.get("status") not in _UNFINISHED)
                        ):
                            return msgspec.structs.replace(answer, body=execution)
                        if execution is not None:
                            state = f"execution {execution.get('id')} is still {execution.get('status')}"
                    await asyncio.sleep(pause)
                    # Doubled each time: a quick workflow is found at once, and a slow one is not polled four times a second.
                    pause = min(max(pause, 0.01) * 2, _LONGEST_PAUSE_S)
        except TimeoutError:
            if not bound.expired():
                raise
            raise TargetFault(
                "no_execution",
                f"no finished execution with x-request-id {request_id!r} at {self._wire.show_url(settings.api or '')} "
                f"after {settings.poll_for_s:g} s: {state}; does the workflow save its executions, is workflow_id right, "
                "and if it starts with a Chat Trigger, does the template send {request_id}?",
            ) from None

    async def _find_execution(self, request_id: str) -> tuple[HttpAnswer, dict[str, Any] | None]:
        """Return the execution that received this id, newest pages first."""
        cursor: str | None = None
        answer = HttpAnswer(status=0)
        for _ in range(_MOST_PAGES):
            answer = await self._wire.send(self._make_search(cursor), timeout_s=self._settings.timeout_s)
            source = f"n8n's API at {self._wire.show_url(self._settings.api or '')}"
            if answer.status in (401, 403):
                raise TargetFault("unauthorized", f"{source} refused the key (status {answer.status}); it needs the scope execution:list")
            if answer.status >= 300 or not isinstance(answer.body, dict):
                raise TargetFault("bad_answer", f"{source} answered status {answer.status} without a list of executions")
            page = answer.body
            for execution in list_of(page.get("data")):
                if isinstance(execution, dict) and request_id in _received_ids(execution):
                    return answer, execution
            cursor = page.get("nextCursor") if isinstance(page.get("nextCursor"), str) else None
            if cursor is None:
                break
        return answer, None


def _received_ids(execution: dict[str, Any]) -> Iterator[str]:
    """Yield every text that may be the request id with which a node of this execution was started."""
    run_data = dict_or_empty(dict_or_empty(dict_or_empty(execution.get("data")).get("resultData")).get("runData"))
    for records in run_data.values():
        for record in list_of(records):
            if any(list_of(dict_or_empty(record).get("source"))):
                continue  # fed by another node, so it did not start the execution
            for outputs in dict_or_empty(dict_or_empty(record).get("data")).values():
                for item in (item for branch in list_of(outputs) for item in list_of(branch)):
                    # A webhook's item has headers and a body, a Chat Trigger's item is the body.
                    received = dict_or_empty(dict_or_empty(item).get("json"))
                    headers = dict_or_empty(received.get("headers"))
                    yield from (value for name, value in headers.items() if name.lower() == "x-request-id" and isinstance(value, str))
                    yield from (
                        value
                        for part in (received, dict_or_empty(received.get("body")))
                        for value in part.values()
                        if isinstance(value, str)
                    )


def _read_stream(answer: HttpAnswer, text: str | None, error: str | None, message: Message) -> Evidence:
    evidence = Evidence(text=text, http_status=answer.status, duration_ms=answer.duration_ms)
    evidence = with_account(evidence, answer)
    refusal = refuse_status(answer)
    if refusal is not None and not message.claims_status(answer.status):
        raise make_fault(refusal, answer)
    if error is not None:
        raise TargetFault("agent_failed", f"the workflow failed while it answered: {error}", evidence=evidence)
    if is_blank(evidence) and not message.claims_status(answer.status):
        raise make_fault(refuse_empty(answer, "a stream with nothing in it"), answer, evidence)
    return evidence


def _read_answer(answer: HttpAnswer, response_path: str | None, message: Message) -> Evidence:
    pieces = _read_pieces(answer.text) if answer.body is None else None
    if pieces is not None:
        return _read_stream(answer, *pieces, message)
    evidence = evidence_of(answer, response_path=response_path, status_claimed=message.claims_status(answer.status))
    body = answer.body
    if response_path is None and isinstance(body, list) and len(body) == 1:
        # A webhook that answers with its items wraps the only one in a list.
        run = None
        with suppress(EvidenceError):
            # An item that looks like a trace but is not readable as one is still an answer.
            run = read_trace(body[0])
        if run is not None:
            return with_account(msgspec.structs.replace(run, http_status=answer.status, duration_ms=answer.duration_ms), answer)
        item = body[0]
        unwrapped = msgspec.structs.replace(answer, body=item)
        refusal = refuse_failure(unwrapped, None)
        with_text = msgspec.structs.replace(evidence, text=find_text(item, NODE_KEYS))
        if refusal is None and is_blank(with_text):
            refusal = refuse_empty(answer, "an item with nothing in it")
        if refusal is not None and not message.claims_status(answer.status):
            raise make_fault(refusal, answer)
        if refusal is not None:
            return make_unanswered(answer, refusal.reason, body=answer.body)
        return with_account(with_text, unwrapped)
    return evidence


# --- streams --------------------------------------------------------------------------------------------------------


_KINDS = ("begin", "item", "end", "error", "keepalive")


def _read_pieces(answer: str | None) -> tuple[str | None, str | None] | None:
    """Return the text of a streamed answer, and its error; None if the text is something else.

    One line of JSON is one piece (`begin`, `item`, `end`, `error`).

    An agent begins and ends once for every round with its model. The answer is the text of the last round that has any. A stream that
    stops before the last round has ended was cut off.
    """
    # n8n writes its pieces without blanks. The lines distinguish an agent's answer that only begins like this.
    if answer is None or not answer.startswith('{"type":"'):
        return None
    rounds: list[list[str]] = []
    error: str | None = None
    unfinished = 0
    for line in filter(None, map(str.strip, answer.split("\n"))):
        piece = decode_embedded(line)
        if not isinstance(piece, dict) or piece.get("type") not in _KINDS:
            return None
        content = text_or_none(piece.get("content"))
        if piece["type"] == "begin" or not rounds:
            rounds.append([])
        if piece["type"] == "item" and content is not None:
            rounds[-1].append(content)
        unfinished += {"begin": 1, "end": -1}.get(piece["type"], 0)
        if piece["type"] == "error":
            error = content or "n8n reported an error"
    if unfinished > 0:
        error = error or "the stream stopped before the agent had ended"
    with_text = next((words for words in reversed(rounds) if words), None)
    return None if with_text is None else "".join(with_text), error
