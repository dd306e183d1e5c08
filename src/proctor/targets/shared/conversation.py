"""Sends the messages of a case in order, and joins the evidence of their answers.

A case is one message, several turns, or one body that is sent unchanged. Every message has an id (the attempt's id, plus the number of
the turn if there are several), and all of them share one session. A turn that cannot be sent or is not answered (`no_answer.py`) ends the
attempt, unless the case has a claim about the status of that turn.

With a simulated user (`Attempt.speaker`), each message is requested once the previous one is answered; the user only sees the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import quote

import msgspec

from proctor.checks.run.limits import HttpStatus
from proctor.errors import TargetError
from proctor.evidence.plain.record import with_turn_defaults
from proctor.evidence.values.text import as_text
from proctor.model.account import Account, Part
from proctor.model.attempt import Attempt
from proctor.model.case import Case
from proctor.model.evidence import Evidence, EvidenceTurn, Json
from proctor.model.show import show, suggest
from proctor.model.typed import convert_to
from proctor.targets.shared.faults import TargetFault

# --- tool calls that a case makes itself, without a model: the `toolCall` steps of MCPJam


class DirectCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as the reader of the dialect stores it."""

    server: str
    tool: str
    arguments: dict[str, Json] = {}
    after_prompts: int = 0
    id: str | None = None
    server_id: str | None = None

    def find_server(self, known: tuple[str, ...]) -> str | None:
        """Return the server of the call: by its name, else by its id."""
        return next((name for name in (self.server, self.server_id) if name in known), None)

    def describe_unknown_server(self, known: tuple[str, ...]) -> str:
        """Return the message for a target without such a server."""
        hint = suggest(self.server, known)
        return f"a toolCall step: there is no MCP server {show(self.server, 80)}{hint}; known: {', '.join(known) or 'none'}"


def direct_calls(case: Case) -> tuple[DirectCall, ...]:
    """Return the calls that a case makes itself, in order. Raises `TargetError` for an entry that is not a call."""
    found = case.settings.get("direct_calls")
    if found is None:
        return ()
    prompts = len(case.turns) or int(case.input is not None)
    try:
        calls = convert_to(found, tuple[DirectCall, ...])
    except msgspec.ValidationError as error:
        raise TargetError(f"case {case.id!r}: settings.direct_calls cannot be used: {error}", code="bad_request") from None
    for number, call in enumerate(calls):
        if not 0 <= call.after_prompts <= prompts:
            field = f"settings.direct_calls[{number}].after_prompts"
            raise TargetError(f"case {case.id!r}: {field}: expected 0 to {prompts}, found {call.after_prompts}", code="bad_request")
    return calls


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message to an agent."""

    attempt: Attempt
    turn: int
    """From 0."""
    request_id: str
    session_id: str
    text: str | None = None
    body: Json = None
    """Sent exactly as written, instead of a text."""
    earlier: tuple[dict[str, Json], ...] = ()
    """The conversation so far, as alternating messages of user and assistant."""

    @property
    def content(self) -> Json:
        """The text, or the body that replaces it."""
        return self.body if self.text is None else self.text

    def list_messages(self) -> list[dict[str, Json]]:
        """Return the conversation so far including this message, for a stateless agent."""
        return [*self.earlier, {"role": "user", "content": as_text(self.content)}]

    def claims_status(self, status: int) -> bool:
        """Return whether the case itself claims this HTTP status for this message.

        An `advisory` assertion is no such claim, and neither is one that may be skipped (`depends_on`).
        """
        return any(
            isinstance(each.spec, HttpStatus)
            and each.spec.status == status
            and not each.advisory
            and not each.depends_on
            and each.turn in (None, self.turn)
            for each in self.attempt.case.assertions
        )


def ids_of(attempt: Attempt) -> tuple[str, str]:
    """Return the request and session id of an attempt in a form that fits a header: a case name may be in any script."""
    request_id, session_id = (
        text if text.isascii() and text.isprintable() else quote(text, safe=" :;,.!?*()[]/-_", errors="replace")
        for text in (attempt.request_id, attempt.session_id)
    )
    return request_id, session_id


def messages_of(attempt: Attempt) -> list[dict[str, Json]]:
    """Return the text or the body of every message of the case. Raises `TargetFault` if there is none."""
    case = attempt.case
    if case.settings.get("direct_calls"):
        why = "calls tools itself (toolCall steps), which needs a target of type mcp_agent: this one reaches no MCP server"
        raise TargetFault("unsupported_step", f"case {case.id!r} {why}")
    if case.custom_body is not None:
        return [{"body": case.custom_body}]
    texts = [turn.input for turn in case.turns] if case.turns else [case.input] if case.input is not None else []
    if not texts:
        raise TargetFault("bad_request", f"case {case.id!r} has no input, no turns and no body: there is nothing to say to the agent")
    return [{"text": text} for text in texts]


class _Messages:
    """The messages of one attempt in order: those of the case, or of its simulated user."""

    def __init__(self, attempt: Attempt) -> None:
        """Raises `TargetFault` if there is no message."""
        self._attempt = attempt
        self._fixed = messages_of(attempt) if attempt.speaker is None else []
        self.sent: list[Message] = []

    async def get_next(self, answer: Evidence | None) -> Message | None:
        """Return the next message, or None after the last one. Raises `TargetError` if the user cannot continue."""
        turn, speaker = len(self.sent), self._attempt.speaker
        earlier: list[dict[str, Json]] = []
        if answer is not None:
            text = answer.text if answer.text is not None else as_text(answer.body) or ""
            earlier = [*self.sent[-1].list_messages(), {"role": "assistant", "content": text}]
        content: dict[str, Json] | None = self._fixed[turn] if turn < len(self._fixed) else None
        if speaker is not None and (next_text := await speaker.say_next(answer)) is not None:
            content = {"text": next_text}
        if content is None:
            return None
        request_id, session_id = ids_of(self._attempt)
        if speaker is not None or len(self._fixed) > 1:
            request_id = f"{request_id}-{turn + 1}"
        message = Message(attempt=self._attempt, turn=turn, request_id=request_id, session_id=session_id, earlier=tuple(earlier), **content)
        self.sent.append(message)
        return message

    def name_turn(self) -> str:
        """Return the current turn as text; empty if there is only one."""
        if self._attempt.speaker is not None:
            return f"turn {len(self.sent)}"
        return f"turn {len(self.sent)} of {len(self._fixed)}" if len(self._fixed) > 1 else ""


async def converse(attempt: Attempt, say: Callable[[Message], Awaitable[Evidence]], *, target: str) -> Evidence:
    """Send every message of the case in order, within the time of the attempt, and join the observations."""
    messages = _Messages(attempt)
    observations: list[Evidence] = []
    # A little less than our own limit, so that the caller still gets the observations.
    bound = asyncio.timeout(attempt.timeout_s - min(1.0, attempt.timeout_s / 20))
    try:
        async with bound:
            while (message := await messages.get_next(observations[-1] if observations else None)) is not None:
                observations.append(await say(message))
    except TimeoutError:
        # A `TimeoutError` of the target is not our timeout.
        if not bound.expired():
            raise
        turn_note = f" (in {messages.name_turn()})" if messages.name_turn() else ""
        fault = TargetFault("timeout", f"{target}: not finished after {attempt.timeout_s:g} s{turn_note}")
        raise with_conversation(fault, _join_seen(messages.sent, observations)) from None
    except TargetError as fault:
        turn_note = messages.name_turn()
        if not turn_note:
            raise
        # A failure of the user already names its turn.
        message = f"{turn_note}: {fault.message}" if len(messages.sent) > len(observations) else fault.message
        # Earlier turns did reach the agent; a rate-limited attempt repeats all of them.
        safe = fault.safe and (not observations or fault.code == "rate_limited")
        located = TargetFault(fault.code, message, safe=safe, retry_after_s=fault.retry_after_s)
        if fault.evidence is not None:
            observations.append(fault.evidence)
        raise with_conversation(located, _join_seen(messages.sent, observations)) from None
    return with_user(join_evidence(messages.sent, observations), attempt)


def with_conversation(fault: TargetFault, evidence: Evidence | None) -> TargetFault:
    """Return the fault with the earlier observations as evidence of an aborted run."""
    if evidence is not None:
        metadata = evidence.metadata if "code" in evidence.metadata else {**evidence.metadata, "code": fault.code}
        fault.evidence = msgspec.structs.replace(evidence, error=evidence.error or fault.message, metadata=metadata)
    return fault


def join_evidence(messages: Sequence[Message], seen: Sequence[Evidence]) -> Evidence:
    """Return the observations of one message, or of a conversation, as one evidence."""
    attempt = messages[0].attempt
    request_id, session_id = ids_of(attempt)
    ids: dict[str, Json] = {"request_id": request_id, "session_id": session_id}
    if len(messages) == 1 and attempt.speaker is None:
        only = seen[0]
        return msgspec.structs.replace(
            only, case=attempt.case.id, input=messages[0].content if only.input is None else only.input, metadata={**ids, **only.metadata}
        )
    # Not strict: an aborted conversation has fewer observed turns than messages.
    models = tuple(dict.fromkeys(evidence.model for evidence in seen if evidence.model is not None))
    turns = [_make_turn(message, evidence, several=len(models) > 1) for message, evidence in zip(messages, seen, strict=False)]
    offered = [name for evidence in seen for name in evidence.available_tools or ()]

    code = next((evidence.metadata["code"] for evidence in seen if evidence.error is not None and "code" in evidence.metadata), None)
    return with_turn_defaults(
        Evidence(
            case=attempt.case.id,
            turns=tuple(turns),
            available_tools=tuple(dict.fromkeys(offered)) or None,
            renders=tuple(render for evidence in seen for render in evidence.renders or ()) or None,
            now=next((evidence.now for evidence in seen if evidence.now is not None), None),
            state=next((evidence.state for evidence in reversed(seen) if evidence.state is not None), None),
            error=next((evidence.error for evidence in seen if evidence.error is not None), None),
            model=models[0] if len(models) == 1 else None,
            account=_join_accounts(seen),
            metadata=ids if code is None else {**ids, "code": code},
        )
    )


def _join_accounts(seen: Sequence[Evidence]) -> Account | None:
    """Return the unknowns of a conversation: those of every turn, and for the answer those of the last turn."""
    accounts = [evidence.account for evidence in seen if evidence.account is not None]
    if not accounts:
        return None
    # Reversed: if a part is unknown in several turns, the first one gives the reason.
    unknown: dict[Part, str] = {part: why for account in reversed(accounts) for part, why in account.unknown.items() if part != "answer"}
    if any(evidence.usage is None for evidence in seen) and any(evidence.usage is not None for evidence in seen):
        unknown.setdefault("usage", "a turn has no token counts")
    last = seen[-1].account
    if last is not None and "answer" in last.unknown:
        unknown["answer"] = last.unknown["answer"]
    return Account(
        accounts[0].reader,
        unknown,
        tuple(dict.fromkeys(note for account in accounts for note in account.notes)),
        ignored=tuple(dict.fromkeys(name for account in accounts for name in account.ignored)),
        # A declaration of completeness must cover every turn in which the part is unknown.
        overridable=tuple(
            part for part in unknown if all(part not in account.unknown or part in account.overridable for account in accounts)
        ),
    )


def _join_seen(messages: Sequence[Message], seen: Sequence[Evidence]) -> Evidence | None:
    return with_user(join_evidence(messages, seen), messages[0].attempt) if seen else None


def _make_turn(message: Message, evidence: Evidence, *, several: bool) -> EvidenceTurn:
    usage = evidence.usage
    if several and usage is not None and evidence.model is not None and not usage.models:
        # A turn has no model of its own, and its tokens are priced by the model that answered it.
        usage = msgspec.structs.replace(usage, models=(evidence.model,))
    return EvidenceTurn(
        input=as_text(message.content),
        text=evidence.text,
        body=evidence.body,
        tool_calls=evidence.tool_calls,
        nodes=evidence.nodes,
        http_status=evidence.http_status,
        duration_ms=evidence.duration_ms,
        usage=usage,
        metadata={"request_id": message.request_id, **evidence.metadata},
    )


# --- who speaks ---------------------------------------------------------------------------------------------------------


def with_user(evidence: Evidence, attempt: Attempt) -> Evidence:
    """Return the evidence with how the simulated user's conversation ended, which an agent cannot report."""
    ending = attempt.speaker.describe_ending() if attempt.speaker is not None else None
    if ending is None:
        return evidence if evidence.simulated_user is None else msgspec.structs.replace(evidence, simulated_user=None)
    account = evidence.account or Account()
    account = msgspec.structs.replace(account, notes=(*account.notes, f"the user was simulated ({ending.played_by}): {ending.describe()}"))
    return msgspec.structs.replace(evidence, simulated_user=ending, account=account)
