"""Settings of a service: what was read from flags and the environment, once."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a service runs. Read once at the door (flags, environment) and passed down."""

    home: Path
    """The workspace: the database file, the key file for secrets, the judge's memory."""
    quiet_period_s: float = 5.0
    """How long after its last span an OTLP trace with an ended root counts as complete."""
    largest_body: int = 10_000_000
    """Bytes of one request, before and after decompression."""
    deepest_body: int = 200
    """How deeply JSON of one request may be nested."""
    waiting_bytes: int = 64_000_000
    """Bytes of all requests that are held at one moment; what comes then is answered 503 with Retry-After."""
    header_timeout_s: float = 10.0
    """How long the head of a request may take."""
    body_timeout_s: float = 60.0
    """How long the body of a request may take."""
    body_stall_s: float = 10.0
    """How long nothing of a body may come."""
    body_pieces: int = 1_000
    """From how many pieces on those of a body must not be tiny."""
    write_stall_s: float = 30.0
    """How long nothing of an answer may be read."""
    unsent_bytes: int = 64_000_000
    """Bytes of all answers that wait to be read; the slowest readers of the greediest address are cut off."""
    connections: int = 1_000
    """Open at one moment."""
    connections_per_address: int = 256
    """The same from one address; 0 does not limit."""
    streams_per_key: int = 20
    """Event streams that are followed at one moment."""
    gzip_members: int = 16
    """Files of gzip one behind the other in one body."""
    compression_ratio: int = 200
    """How many times as large a body may become once it is decompressed, from a megabyte on."""
    json_objects: int = 250_000
    """Lists and objects in the JSON of one request: each is many times as large once it is decoded."""
    json_values: int = 1_000_000
    """Values in the JSON of one request: elements of lists and members of objects."""
    protobuf_messages: int = 250_000
    """Messages in one request in protobuf: each is many times as large once it is decoded."""
    protobuf_fields: int = 2_000_000
    """Fields in one request in protobuf."""
    requests_per_minute: int = 6_000
    """Per key; 0 does not limit."""
    queue_size: int = 1_000
    """Requests with traces that may wait for the disk; what comes then is answered 503 with Retry-After."""
    evaluators: int = 2
    """How many traces are judged at once; 0 leaves evaluating traces to other processes."""
    workers: int = 1
    """How many runs are driven at once; 0 leaves that to other processes."""
    lease_s: float = 30.0
    """How long a worker may be silent before another one takes over."""
    sandboxes: int = 2_000
    """Active at one moment, of one organization."""
    sandbox_rows: int = 200_000
    """Rows in one sandbox."""
    sandbox_bytes: int = 200_000_000
    """Bytes that one sandbox takes: what it began with, what happened in it, and what was changed."""
    sandbox_hours: float = 24.0
    """How long a sandbox lives that nobody tears down."""
    sandbox_requests_per_minute: int = 6_000
    """To all sandboxes of one organization; 0 does not limit."""
    allowed_addresses: tuple[str, ...] = ()
    """Hosts, addresses and networks that uploaded suites and webhooks may reach although they are private."""
    allowed_commands: tuple[str, ...] = ()
    """Commands that uploaded suites may start (stdio servers)."""
    export_otlp_endpoint: str | None = None
    """Where verdicts are sent as OpenTelemetry events; none: nowhere."""
    export_otlp_headers: tuple[tuple[str, str], ...] = ()
    """What is sent along, such as a key of the receiver."""
    retention_days: float | None = None
    retention_bytes: int | None = None
    metrics_organization: str | None = None
    """Whose keys may read what the process measures of itself, by name or id; none: the only organization there is."""
    unknown_agents: Literal["create", "refuse"] | None = None
    """What becomes of spans whose service name no agent has; none: an agent for them is created for the local user only."""
    log_content: bool = False
    """Whether logs may show what was sent."""
