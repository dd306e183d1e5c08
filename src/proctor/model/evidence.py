"""What an agent was observed to do: the only thing a check may look at.

One `Evidence` is one observed run of an agent, whether it was driven just now or read from a trace. `None` means *not
recorded*; an empty tuple means *recorded, and there were none*. That difference decides whether a check about tools
can be answered at all, so readers must state what they could observe.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from proctor.model.account import Account

# Values that arrive as JSON. `Any`, not `object`: checks index into them constantly, and every use is guarded.
Json = Any


# Not tracked by the garbage collector (`gc=False`), here and below: values from JSON have no cycles, and a stream creates many.
class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Tokens spent. `total()` prefers the reported total."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_input_tokens: int | None = None
    """Those of the input tokens that were in the provider's cache, if recorded."""
    cache_write_tokens: int | None = None
    """Those of the input tokens that were written into the provider's cache, if recorded."""
    models: tuple[str, ...] = ()
    """The models whose tokens are summed here, where they are several."""

    def total(self) -> int | None:
        """Return the reported total, else input plus output, else nothing."""
        if self.total_tokens is not None:
            return self.total_tokens
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


class Cost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The cost of a run by the prices of the workspace; None is unknown, never zero."""

    agent: float | None = None
    judge: float | None = None
    user: float | None = 0.0
    """The cost of the model that played the user, if there was one."""
    currency: str = "USD"
    why: str = ""
    """Why one of them is unknown."""
    note: str = ""
    """Which price replaced another one."""

    def total(self) -> float | None:
        """Return the total, or None if one is unknown."""
        return None if self.agent is None or self.judge is None or self.user is None else self.agent + self.judge + self.user


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One call of a tool, in the order it was made.

    `arguments` is an object; any other value that the agent produced is stored unchanged (text, list, number). `None` means that a reader
    saw the call but not its arguments.
    """

    name: str
    arguments: Json = {}
    result: Json = None
    error: Json = None
    """What went wrong, if the call failed; any value other than null, false or empty text means it did."""
    error_kind: str | None = None
    """`content-error` (the tool answered that it failed) or `protocol-error` (the call itself failed)."""
    duration_ms: float | None = None
    node: str | None = None
    """The node this call belongs to, where calls are nested in the steps of a workflow."""
    server: str | None = None
    id: str | None = None
    aliases: tuple[str, ...] = ()
    """Other names of the same tool (an n8n tool has its node's name and its own)."""

    def goes_by(self, name: str) -> bool:
        """Return whether the tool has this name or alias."""
        return self.name == name or name in self.aliases

    def failure(self) -> Json:
        """Return the error, or the one in the result; None for a call that succeeded."""
        if self.error is not None and self.error is not False and self.error != "":
            return self.error
        return find_result_error(self.result)

    def failure_kind(self) -> str | None:
        """Return the kind of failure of a failed call, or None if it is unknown."""
        return self.error_kind or ("content-error" if not self.error and find_result_error(self.result) is not None else None)

    def failed(self) -> bool:
        """Return whether the call ended in an error."""
        return self.failure() is not None


_NO_ERROR = frozenset(("", "none", "null", "no", "false", "ok"))


def find_result_error(result: Json) -> Json:
    """Return the error in what a tool returned: of an MCP result with `isError: true`, or an object with nothing but an `error`.

    The result may be JSON text.
    """
    if isinstance(result, str) and result.startswith("{") and ('"isError"' in result or '"error"' in result[:20]):
        try:
            result = msgspec.json.decode(result)
        except (msgspec.MsgspecError, RecursionError):
            return None
    if not isinstance(result, dict):
        return None
    if len(result) == 1 and (error := result.get("error")):
        is_none = isinstance(error, str) and error.strip().lower() in _NO_ERROR
        return None if is_none else (error.get("message") or error) if isinstance(error, dict) else error
    if result.get("isError") is not True:
        return None
    content: Json = result.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n".join(texts) or "the tool reported an error"


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One run of a step of a workflow; a step that ran three times is three nodes."""

    name: str
    type: str | None = None
    status: str = "success"
    """`success`, `error` or `skipped`; a skipped node did not run, one that ended in an error did."""
    input: Json = None
    output: Json = None
    parameters: Json = None
    more_parameters: tuple[Json, ...] = ()
    """The parameters of the other items the step ran for, if expressions in them gave other values."""
    tool_calls: tuple[ToolCall, ...] = ()
    duration_ms: float | None = None
    error: Json = None
    items: int = 1
    """How many items the run produced (n8n)."""
    usage: Usage | None = None
    notes: tuple[str, ...] = ()
    """Notes of a reader for verdicts about this node, for example an unresolved expression."""

    def ran(self) -> bool:
        """Return whether the step was executed at all."""
        return self.status != "skipped"


class EvidenceTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One exchange of a conversation: the input and what the agent did."""

    input: str | None = None
    text: str | None = None
    body: Json = None
    tool_calls: tuple[ToolCall, ...] | None = None
    nodes: tuple[Node, ...] | None = None
    http_status: int | None = None
    duration_ms: float | None = None
    usage: Usage | None = None
    metadata: dict[str, Json] = {}


UserEnd = Literal["done", "gave_up", "turn_limit"]
"""Why a simulated user stopped: its condition was met, it gave up, or it had no turn left."""


class UserEnding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Who played the user of a conversation, and why it ended."""

    played_by: str
    """`script`, or the provider and name of the model."""
    turns: int = 0
    ended: UserEnd | None = None
    """None if the conversation broke off."""
    by: Literal["stop_when", "script", "model", "limit"] | None = None
    """What ended it: a claim about the agent's answer, a line of the script, the model, or the number of turns."""
    reason: str = ""
    model_calls: int = 0
    usage: Usage | None = None
    """The usage of the user's model; never part of the agent's usage."""

    def describe(self) -> str:
        """Return in a few words how it ended: `gave up after 3 turns`."""
        how = {"done": "done", "gave_up": "gave up", "turn_limit": "turn limit reached", None: "broke off"}[self.ended]
        return f"{how} after {self.turns} turn{'' if self.turns == 1 else 's'}"


class Render(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The result of rendering a tool's widget."""

    tool: str
    status: str
    elapsed_ms: float | None = None
    console_errors: tuple[str, ...] = ()


class FhirState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The resources in the record system after the run, in store order."""

    resources: tuple[dict[str, Json], ...] = ()
    served: bool = False
    """Whether these are the rows of a server, where a Bundle is an ordinary resource; elsewhere a Bundle means its entries."""


class Hl7State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """HL7 v2 messages the agent sent, oldest first."""

    outbound: tuple[str, ...] = ()


class StateFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One file that the agent wrote."""

    path: str
    content: Json = ""
    """Text; a JSON value is accepted for content that is JSON."""


class VoiceTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One utterance of a phone call."""

    speaker: str = ""
    text: str = ""
    call: str = ""
    """The id of the call; like the numbers, empty if it was not recorded."""
    to: str = ""
    """The number that was called."""
    sender: str = msgspec.field(default="", name="from")
    """The number that called."""


class VoiceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The transcripts of calls, call by call."""

    turns: tuple[VoiceTurn, ...] = ()


class X12State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """X12 interchanges answered to the agent, oldest first."""

    responses: tuple[str, ...] = ()


class FaxState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Faxes that were sent and received, oldest first."""

    documents: tuple[dict[str, Json], ...] = ()
    """Each with `direction`, `to`, `from`, `pages`, `text` and whatever else was recorded."""


class MessagesState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Short messages, e-mails and chats, oldest first."""

    messages: tuple[dict[str, Json], ...] = ()
    """Each with `channel`, `direction`, `to`, `from`, `subject`, `text` and whatever else was recorded."""


class CdsState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cards that services of CDS Hooks answered, oldest first."""

    cards: tuple[dict[str, Json], ...] = ()
    """Each with `hook`, `service`, `summary`, `detail`, `indicator`, `source`, `suggestions` and whatever else was recorded."""


class InnerRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request inside of another one: an entry of a batch or a transaction."""

    method: str
    path: str
    status: int


class StateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One request that was made to a simulated system, and how it was answered."""

    system: str
    """The name of the system in its suite."""
    method: str
    path: str
    """Below the root of the system, with its query: `/Appointment?patient=17`."""
    status: int
    body: Json = None
    """The request body: JSON, or else text; cut if it is long."""
    response: Json = None
    at: str | None = None
    duration_ms: float | None = None
    inside: tuple[InnerRequest, ...] = ()
    """The requests inside it, of a batch or a transaction."""
    cut: tuple[Literal["body", "response"], ...] = ()
    """Which of the two are not stored completely; nothing is decided on a part of them."""


class StateChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One difference of a simulated system from its initial state."""

    system: str
    change: Literal["added", "changed", "removed"]
    place: str
    """`Appointment/17`, `orders/7`, `outbox/claim.json`."""
    before: Json = None
    after: Json = None


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end state of the systems the agent worked in; a family that is `None` was not captured."""

    fhir: FhirState | None = None
    hl7: Hl7State | None = None
    portal: dict[str, list[dict[str, Json]]] | None = None
    files: tuple[StateFile, ...] | None = None
    voice: VoiceState | None = None
    x12: X12State | None = None
    fax: FaxState | None = None
    messages: MessagesState | None = None
    cds: CdsState | None = None
    records: dict[str, list[dict[str, Json]]] | None = None
    """Rows of a records API by collection."""
    requests: tuple[StateRequest, ...] | None = None
    """Every request to the systems, oldest first."""
    changes: tuple[StateChange, ...] | None = None
    """All differences of the systems from their initial state."""
    systems: tuple[str, ...] | None = None
    """The names of the systems, including those without requests."""


class Source(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where evidence was read from."""

    file: str | None = None
    line: int | None = None
    id: str | None = None
    format: str | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One observed run of an agent."""

    case: str | None = None
    """The id or name of the case this run answers; `None`: the cases with the same input, or every case where none has one."""
    input: Json = None
    text: str | None = None
    body: Json = None
    tool_calls: tuple[ToolCall, ...] | None = None
    nodes: tuple[Node, ...] | None = None
    http_status: int | None = None
    duration_ms: float | None = None
    usage: Usage | None = None
    turns: tuple[EvidenceTurn, ...] | None = None
    context: dict[str, Json] | None = None
    available_tools: tuple[str, ...] | None = None
    renders: tuple[Render, ...] | None = None
    now: str | None = None
    """The clock of this run, ISO 8601."""
    timezone: str | None = None
    state: State | None = None
    error: str | None = None
    """Why the run itself broke off, if it did."""
    no_run: str | None = None
    """Why this is not a run of an agent, if so: it is stored and not judged."""
    model: str | None = None
    """The name of the model that answered, if recorded."""
    cost: Cost | None = None
    """What the agent cost by the prices of the workspace; set when a case is decided, never read from a recording."""
    simulated_user: UserEnding | None = None
    """How the conversation of the simulated user ended, if there was one."""
    account: Account | None = None
    """What the reader knows and does not know; `None`: everything that is here was understood, and what is not here was not recorded."""
    metadata: dict[str, Json] = {}

    def is_recorded(self, field: str) -> bool:
        """Return whether a field was recorded at all: `evidence.is_recorded("tool_calls")`."""
        return getattr(self, field) is not None


get_stored_account: Callable[[Evidence], Account | None] = Evidence.__dict__["account"].__get__
"""Returns the account that a reader stored; reading the attribute of a plain record may search the record first."""
