"""Receives traces: parses them, chooses the agent of each, redacts them, and prepares them for storage.

Bodies in one piece, of every generation of Mibo: `{"spans": [...]}`, `{"data": ...}`, and a node map with `status` and `data`. OTLP: spans
are grouped by trace and agent; unusable ones are counted. An OTLP trace is complete when its root has ended and nothing has arrived for
`quiet_period_s`; one without a root is evaluated after a longer time. `run` executes slow work for large requests.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from proctor.cassettes.redaction import may_hold_a_secret, names_a_secret, redact, redact_text
from proctor.errors import EvidenceError
from proctor.evidence.otlp.groups import Received
from proctor.evidence.otlp.spans import Span, SpanGroup, read_span
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import kind_of
from proctor.service.access.agents import load_agents, reload_agents
from proctor.service.access.callers import Caller
from proctor.service.access.transactions import Transaction, writing
from proctor.service.caches import Agent
from proctor.service.field_checks import LONGEST_NAME
from proctor.service.hub import Hub, new_id
from proctor.service.refusals import Place, Refusal
from proctor.store.accounts.tenants import query_owned
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.pages import Row, fetch_all
from proctor.store.sql.queries import clean_json, clean_text
from proctor.store.sql.tables import agents, organizations, projects
from proctor.store.traces.traces import Arrival

PLATFORM_ATTRIBUTE = "mibo.platform_id"
_PAUSE_S = 0.2
"""Seconds between two reads for unknown agents: a flood of unknown names costs five queries a second."""
_HINT = (
    "set the agent with platformId, with metadata.mibo.platform_id, or with a key that is restricted to one agent; "
    "for OTLP also with the resource attribute service.name, which must be the service_name of an agent"
)


class NoAgentFound(Refusal):
    """Raised for a trace whose agent cannot be found."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a trace that name its agent."""

    platform_id: str | None = None
    service_name: str | None = None
    external_ref: str | None = None
    generation: Literal["second", "current"] = "current"


def require_sender(caller: Caller) -> None:
    """Reject callers that may not send traces."""
    if caller.kind not in ("organization", "project"):
        raise Refusal("FORBIDDEN", f"a {caller.kind} key cannot send traces")


async def require_agent(hub: Hub, caller: Caller, address: Address, *, since: int | None = None) -> Agent:
    """Return the agent of a trace. Raises `Refusal`.

    `since` is the value of `AgentCache.begun` when the trace arrived, for a request with many traces.
    """
    require_sender(caller)
    agent = _choose_agent(await load_agents(hub, caller.organization_id), caller, address)
    if isinstance(agent, Refusal):
        # Another server may have created the agent. Rejected traces are not sent again, so that the cache alone does not decide.
        agent = _choose_agent(await reload_agents(hub, caller.organization_id, since=since, pause_s=_PAUSE_S), caller, address)
    if isinstance(agent, Refusal):
        raise agent
    if agent.paused:
        raise Refusal("FORBIDDEN", "the agent is paused and accepts no traces")
    return agent


def _choose_agent(known: Mapping[str, Agent], caller: Caller, address: Address) -> Agent | Refusal:
    # The same rule as in `access/permissions.py`: objects of other projects do not exist for the key.
    of_project = [agent for agent in known.values() if caller.project_id is None or agent.project_id == caller.project_id]
    if caller.agent_ids is not None and len(caller.agent_ids) == 1:
        only = next((agent for agent in of_project if agent.id == caller.agent_ids[0]), None)
        return only or Refusal("NOT_FOUND", "the agent of this key was deleted")
    of_key = of_project if caller.agent_ids is None else [agent for agent in of_project if agent.id in caller.agent_ids]
    if address.platform_id is not None:
        # Searched in the whole project, so that a restricted key gets 403 instead of 404.
        by_platform_id = next((agent for agent in of_project if agent.id == address.platform_id), None)
        if by_platform_id is None:
            return Refusal("NOT_FOUND", f"unknown agent {address.platform_id[:100]!r}")
        return by_platform_id if by_platform_id in of_key else Refusal("FORBIDDEN", "the key has no access to this agent")
    for field, value in (("service_name", address.service_name), ("external_ref", address.external_ref)):
        matching = [agent for agent in of_key if getattr(agent, field) == value] if value else []
        if len(matching) == 1:
            return matching[0]
        if matching:
            return Refusal("VALIDATION_ERROR", f"several agents have the {field} {str(value)[:100]!r}", hint=_HINT)
    if address.generation == "second":
        return Refusal("NOT_FOUND", "the trace names no known agent", hint=_HINT)
    suffix = f" (service.name is {address.service_name[:100]!r})" if address.service_name else ""
    reasons = ["no agent found for this trace" + suffix]
    hint = f"{_HINT}; with --unknown-agents create the service creates it" if address.service_name else _HINT
    return NoAgentFound("VALIDATION_ERROR", "the trace has no known agent" + suffix, fields={"platformId": reasons}, hint=hint)


# --- creates agents for unknown service names, where that is allowed

MOST_MADE = 100
"""Agents of an organization that may be created this way."""
DEFAULT_PROJECT = "default"
MADE_BY: dict[str, Json] = {"made_by": "trace"}
"""In the settings of such an agent. Removing it adopts the agent, which is then no longer counted."""


async def resolve_or_make(hub: Hub, caller: Caller, address: Address, *, since: int) -> Agent:
    """Return the agent of a trace, created if needed; `since` as for `require_agent`. Raises `Refusal`."""
    try:
        return await require_agent(hub, caller, address, since=since)
    except NoAgentFound:
        if address.service_name is None or not _may_make(hub, caller):
            raise
    await _make_agent(hub, caller, address.service_name)
    # Resolved by the usual rules: another server may have created it, or it may be paused.
    return await require_agent(hub, caller, address)


def _may_make(hub: Hub, caller: Caller) -> bool:
    policy = hub.settings.unknown_agents or ("create" if caller.key_id is None else "refuse")
    return policy == "create" and caller.agent_ids is None


async def _make_agent(hub: Hub, caller: Caller, name: str) -> None:
    """Create the agent of a service name, unless another server has."""
    if not name.strip() or len(name) > LONGEST_NAME or clean_text(name) != name:
        raise Refusal("VALIDATION_ERROR", f"service.name cannot be the name of an agent: expected 1 to {LONGEST_NAME} characters")
    # One request may name thousands of services: the cache is checked before the database.
    known = await load_agents(hub, caller.organization_id)
    if sum(MADE_BY.items() <= agent.settings.items() for agent in known.values()) >= MOST_MADE:
        raise _refuse_too_many(name)
    async with writing(hub, caller) as tx:
        connection = tx.connection
        await tx.ensure_organization()
        # Locked, so that only one of two servers creates an agent. SQLite has one writer.
        await connection.execute(sa.select(organizations.c.id).where(organizations.c.id == tx.owner).with_for_update())
        conditions = {"service_name": name} if caller.project_id is None else {"service_name": name, "project_id": caller.project_id}
        if (await connection.execute(query_owned(agents, caller.organization_id, **conditions).limit(1))).first() is None:
            # Counted again under the lock: the cache may be stale.
            created = query_owned(agents, caller.organization_id).where(
                *(agents.c.settings[key].as_string() == value for key, value in MADE_BY.items())
            )
            if (await connection.execute(sa.select(sa.func.count()).select_from(created.subquery()))).scalar_one() >= MOST_MADE:
                raise _refuse_too_many(name)
            project = await _find_project(tx)
            values: dict[str, Json] = {"project_id": project["id"], "name": name, "kind": "otlp", "service_name": name, "settings": MADE_BY}
            await tx.insert_row(agents, "agent", "agent", {**values, "external_ref": None}, {"name": name})
    hub.agent_cache.forget(caller.organization_id)


async def _find_project(tx: Transaction) -> Row:
    """Return the project for a new agent: that of the key, the only one, or the default one, which is created if needed."""
    if tx.caller.project_id is not None:
        several = [await tx.require_row(projects, "project", tx.caller.project_id)]
    else:
        query = query_owned(projects, tx.owner).order_by(projects.c.created_at, projects.c.id)
        several = await fetch_all(tx.connection, query.limit(2))
        if len(several) != 1:
            several = await fetch_all(tx.connection, query.where(projects.c.name == DEFAULT_PROJECT).limit(1))
    if not several:
        values = {"name": DEFAULT_PROJECT, "description": None, "settings": {}}
        return await tx.insert_row(projects, "project", "proj", values, {"name": DEFAULT_PROJECT})
    if several[0]["paused"]:
        raise Refusal("FORBIDDEN", "the project is paused and accepts no traces")
    return several[0]


def _refuse_too_many(name: str) -> Refusal:
    reason = f"{MOST_MADE} agents were already created from service names of traces (service.name is {name[:100]!r})"
    return Refusal("VALIDATION_ERROR", reason, hint="create the agent with POST /api/agents, or delete unused agents")


LONGEST_EXTERNAL_ID = 255
LONGEST_WAIT_S = 300.0
"""Seconds to wait for a trace without an ended root."""
_MOST_METADATA = 20_000
_AT_ONCE = 200


class Intake(msgspec.Struct, kw_only=True):
    """The traces of one request, ready for storage."""

    arrivals: list[Arrival]
    spans_of: list[int] = []
    """Number of OTLP spans or log records of each trace."""
    refused_spans: int = 0
    reasons: list[str] = []

    @property
    def spans(self) -> int:
        """Number of OTLP spans or log records."""
        return sum(self.spans_of)


Run = Callable[..., Awaitable[Any]]
"""Calls a function with arguments in some thread, and returns its result."""


async def run_here(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in this thread."""
    return work(*arguments)


async def read_body(hub: Hub, caller: Caller, document: Json, *, request_id: str | None = None, run: Run = run_here) -> Intake:
    """Return the trace of a Mibo body of any generation; `run` executes slow work. Raises `Refusal`."""
    external_id, address = await run(_check_body, document, request_id)
    agent = await require_agent(hub, caller, address)
    return Intake(arrivals=[await run(_make_arrival, caller, agent, external_id, document, hub.clock())])


def _check_body(document: Json, request_id: str | None) -> tuple[str, Address]:
    """Return the external id of a body, and the fields that name its agent."""
    if not isinstance(document, dict):
        raise _refuse_field("", f"expected an object, found {kind_of(document)}")
    second = "spans" not in document
    if second and not isinstance(document.get("data"), (dict, list, str)):
        raise _refuse_field("spans", "expected `spans` (a list), `data` (a body of the second generation) or `resourceSpans` (OTLP)")
    if not second:
        _check_spans(document["spans"])
    external_id = _read_external_id(request_id, document)
    metadata = _read_object(document, "metadata")
    _read_object(document, "externalMetadata")
    return external_id, _read_address(document, metadata, second=second)


def _make_arrival(caller: Caller, agent: Agent, external_id: str, document: dict[str, Json], now: float) -> Arrival:
    clean = redact(document)
    return Arrival(
        id=new_id("trc"),
        organization_id=caller.organization_id,
        project_id=agent.project_id,
        agent_id=agent.id,
        external_id=external_id,
        format="mibo",
        body=pack(clean),
        metadata=_shorten_metadata(clean.get("metadata")),
        # A body in one piece is complete.
        due_at=now,
        quiet_due_at=now,
    )


async def read_spans(
    hub: Hub, caller: Caller, received: Received, *, request_id: str | None = None, flush: bool = False, run: Run = run_here
) -> Intake:
    """Return the traces of an OTLP request; `flush` marks them complete. Raises `Refusal` if nothing is usable.

    With a request id and one trace, the request is that trace in one piece, with that id. `run` executes slow work.
    """
    agents_of_groups = await _resolve_groups(hub, caller, received)
    agents = [agent for agent in agents_of_groups if isinstance(agent, Agent)]
    refusals = [refusal for refusal in agents_of_groups if isinstance(refusal, Refusal)]
    if not agents and refusals:
        raise refusals[-1]
    if not agents and received.refused:
        raise Refusal("VALIDATION_ERROR", f"none of {received.refused} {received.noun} can be used: {'; '.join(received.reasons)}")
    return await run(_make_intake, hub, caller, received, agents_of_groups, request_id, flush)


async def _resolve_groups(hub: Hub, caller: Caller, received: Received) -> list[Agent | Refusal | None]:
    """Return the agent of every group of spans, or why there is none; None for a group without spans."""
    known: dict[Address, Agent | Refusal] = {}
    # With many unknown names in a request, only the first waits for the database.
    since = hub.agent_cache.begun
    agents_of_groups: list[Agent | Refusal | None] = []
    for number, group in enumerate(received.groups):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)  # let other requests run
        if not group.spans:
            agents_of_groups.append(None)
            continue
        address = _read_resource_address(group.resource)
        # A request may have thousands of groups of a few services. Refusals are cached as well.
        agent = known.get(address)
        if agent is None:
            try:
                agent = await resolve_or_make(hub, caller, address, since=since)
            except Refusal as refused:
                agent = refused
            known[address] = agent
        agents_of_groups.append(agent)
        if isinstance(agent, Refusal):
            received.refuse(
                agent.message if agent.hint is None else f"{agent.message}; {agent.hint}", sum(map(received.count, group.spans))
            )
    return agents_of_groups


def _make_intake(
    hub: Hub, caller: Caller, received: Received, agents_of_groups: Sequence[Agent | Refusal | None], request_id: str | None, flush: bool
) -> Intake:
    buckets: dict[tuple[str, str], _Bucket] = {}
    for agent, group in zip(agents_of_groups, received.groups, strict=True):
        if not isinstance(agent, Agent):
            continue
        resource = redact(group.resource)
        for span in group.spans:
            key = (agent.id, span.trace_id)
            bucket = buckets.get(key)
            if bucket is None:
                bucket = buckets[key] = _Bucket(agent)
            bucket.add(resource, span, received.count(span))
    # One id cannot name several traces: then each has its own, and the header is ignored.
    given_id = _read_external_id(request_id, {}) if request_id is not None and len(buckets) == 1 else None
    now = hub.clock()
    arrivals = [bucket.make_arrival(hub, caller, given_id or trace_id, now, flush) for (_, trace_id), bucket in buckets.items()]
    if given_id is not None:
        # As Mibo defines it: the same `x-request-id` replaces the trace.
        arrivals[0].replaces = True
    counts = [bucket.count for bucket in buckets.values()]
    return Intake(arrivals=arrivals, spans_of=counts, refused_spans=received.refused, reasons=received.reasons)


class _Bucket:
    """The spans of one trace of one agent."""

    __slots__ = ("agent", "count", "ended", "groups", "last")

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.groups: list[SpanGroup] = []
        self.last: dict[str, Json] | None = None
        self.count = 0
        self.ended = False

    def add(self, resource: dict[str, Json], span: Span, count: int) -> None:
        # By identity: the spans of a group share one object, and comparing contents is slow.
        if resource is not self.last:
            self.groups.append(SpanGroup(resource, []))
            self.last = resource
        self.groups[-1].spans.append(span)
        self.count += count
        # A span known only from a log record has no parent either. Only an ended root means that the run is over.
        if span.parent_id is None and span.end_ns:
            self.ended = True

    def make_arrival(self, hub: Hub, caller: Caller, external_id: str, now: float, flush: bool) -> Arrival:
        quiet = 0.0 if flush else _get_quiet_period_s(self.agent, hub)
        ended = self.ended or flush
        groups = [SpanGroup(group.resource, redact_spans(group.spans)) for group in self.groups]
        return Arrival(
            id=new_id("trc"),
            organization_id=caller.organization_id,
            project_id=self.agent.project_id,
            agent_id=self.agent.id,
            external_id=clean_text(external_id),
            format="otlp",
            replaces=False,
            body=pack(groups),
            metadata=_shorten_metadata(_gather_metadata(groups)),
            ended=ended,
            # Without an ended root the run may continue; but a trace without a root must not wait forever.
            due_at=now + quiet if ended else now + max(LONGEST_WAIT_S, quiet),
            quiet_due_at=now + quiet,
        )


def _get_quiet_period_s(agent: Agent, hub: Hub) -> float:
    agent_period = read_quiet_period_s(agent.settings)
    return hub.settings.quiet_period_s if agent_period is None else agent_period


def read_quiet_period_s(settings: Mapping[str, Json]) -> float | None:
    """Return the quiet period in an agent's settings, or None if it is missing or invalid."""
    period = settings.get("quiet_period_s")
    # `True` is an `int` in Python, and would be one second.
    return float(period) if is_number(period) and 0 <= period <= 86_400 else None


def redact_spans(spans: list[Span]) -> list[Span]:
    """Return spans without secrets. Most have none, so that all texts are searched together first, which is several times as fast."""
    texts: list[str] = []
    note = texts.append
    clean = True
    for span in spans:
        note(span.name)
        if span.message is not None:
            note(span.message)
        for key, value in span.attributes.items():
            if type(value) is str:
                note(value)
            # Nested values and events are not collected here: they are redacted one by one.
            elif isinstance(value, (dict, list)):
                clean = False
            if names_a_secret(key):
                clean = False
        if span.events:
            clean = False
    # Joining can only match too much, across two texts, which leads to redaction one by one.
    if clean and not may_hold_a_secret("\n".join(texts)):
        return spans
    return [_redact_span(span) for span in spans]


def _redact_span(span: Span) -> Span:
    return msgspec.structs.replace(
        span,
        name=redact_text(span.name),
        message=None if span.message is None else redact_text(span.message),
        attributes=redact(span.attributes),
        events=tuple(
            msgspec.structs.replace(event, name=redact_text(event.name), attributes=redact(event.attributes)) for event in span.events
        ),
    )


def _read_resource_address(resource: dict[str, Json]) -> Address:
    return Address(platform_id=_read_text(resource.get(PLATFORM_ATTRIBUTE)), service_name=_read_text(resource.get("service.name")))


def _read_address(document: dict[str, Json], metadata: dict[str, Json], *, second: bool) -> Address:
    platform = document.get("platformId")
    if platform is not None and not isinstance(platform, str):
        raise _refuse_field("platformId", f"expected text, found {kind_of(platform)}")
    nested = metadata.get("mibo")
    platform_name = (
        _read_text(platform)
        or _read_text(metadata.get(PLATFORM_ATTRIBUTE))
        or _read_text(nested.get("platform_id") if isinstance(nested, dict) else None)
    )
    if not second:
        return Address(platform_id=platform_name)
    external = document.get("externalMetadata")
    places = (metadata, external if isinstance(external, dict) else {})
    ref = next(
        # Mibo's second generation routes by platform ids: Flowise sends `chatflowId`, n8n sends `workflowId`.
        (text for place in places for key in ("chatflowId", "workflowId", "workflow_id") if (text := _read_text(place.get(key)))),
        None,
    )
    return Address(platform_id=platform_name, external_ref=ref, generation="second")


def _read_external_id(request_id: str | None, document: dict[str, Json]) -> str:
    external_id: Json = request_id if request_id is not None else document.get("externalId")
    where, place = ("x-request-id", "headers") if request_id is not None else ("externalId", "body")
    # A new id, never an empty one: bodies with the same id replace each other.
    if external_id is None or external_id == "":
        return str(uuid.uuid4())
    if not isinstance(external_id, str):
        raise _refuse_field(where, f"expected text, found {kind_of(external_id)}", place)
    if len(external_id) > LONGEST_EXTERNAL_ID:
        raise _refuse_field(where, f"expected at most {LONGEST_EXTERNAL_ID} characters, found {len(external_id)}", place)
    return clean_text(external_id)


def _check_spans(spans: Json) -> None:
    if not isinstance(spans, list):
        raise _refuse_field("spans", f"expected a list, found {kind_of(spans)}")
    if not spans:
        raise _refuse_field("spans", "expected at least one span")
    span_ids: set[str] = set()
    for index, span in enumerate(spans):
        place = f"spans[{index}]"
        if not isinstance(span, dict):
            raise _refuse_field(place, f"expected an object, found {kind_of(span)}")
        for field, of_otlp in (("span_id", "spanId"), ("name", "name")):
            value = span.get(field, span.get(of_otlp))
            if not isinstance(value, str) or not value:
                raise _refuse_field(f"{place}.{field}", f"expected text, found {kind_of(value)}")
        _check_span(span, place)
        id = str(span.get("span_id", span.get("spanId")))
        if id in span_ids:
            raise _refuse_field(f"{place}.span_id", "another span of this trace has the same id")
        span_ids.add(id)


def _check_span(span: dict[str, Any], place: str) -> None:
    attributes = span.get("attributes")
    if attributes is not None and not isinstance(attributes, (dict, list)):
        raise _refuse_field(f"{place}.attributes", f"expected an object, found {kind_of(attributes)}")
    parent = span.get("parent_span_id", span.get("parentSpanId"))
    if parent is not None and not isinstance(parent, str):
        raise _refuse_field(f"{place}.parent_span_id", f"expected text or null, found {kind_of(parent)}")
    try:
        # Parsed only to reject invalid spans now; the body is stored as received.
        read_span(span, place)
    except EvidenceError as error:
        raise _refuse_field(place, error.message) from None


def _read_object(document: dict[str, Json], name: str) -> dict[str, Json]:
    value = document.get(name)
    if value is not None and not isinstance(value, dict):
        raise _refuse_field(name, f"expected an object, found {kind_of(value)}")
    return value or {}


def _refuse_field(path: str, message: str, place: Place = "body") -> Refusal:
    return Refusal("VALIDATION_ERROR", "the trace is invalid", fields={path: [message]}, places={path: place})


def _read_text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


_IDENTITIES = frozenset(("user.id", "enduser.id", "customer.id", "session.id", "gen_ai.conversation.id"))
"""Attributes of spans that name whom a run was for."""


def _gather_metadata(groups: Sequence[SpanGroup]) -> dict[str, Json]:
    """Return the attributes of the first resource, and whom the run was for, as the first span with each attribute has it."""
    metadata: dict[str, Json] = dict(groups[0].resource)
    for group in groups:
        for span in group.spans:
            if not _IDENTITIES.isdisjoint(span.attributes):
                for name in _IDENTITIES & span.attributes.keys():
                    metadata.setdefault(name, span.attributes[name])
    return metadata


def _shorten_metadata(metadata: Json) -> dict[str, Json] | None:
    """Return the first 20,000 characters of the metadata, for `when` and for search; the body has all of it."""
    if not isinstance(metadata, dict) or not metadata:
        return None
    bytes_left = _MOST_METADATA
    shortened: dict[str, Json] = {}
    for name, value in metadata.items():
        bytes_left -= len(name) + (
            len(value) if isinstance(value, str) else 20 if not isinstance(value, (dict, list)) else len(str(value)[: bytes_left + 1])
        )
        if bytes_left < 0:
            break
        shortened[clean_text(name)] = clean_json(value)
    return shortened
