"""Settings of a service, read once from flags and the environment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

MAIL_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
"""An e-mail address without a name: nothing in it can begin another header or another recipient."""


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a service runs; `rest/settings.py` describes each setting."""

    home: Path
    quiet_period_s: float = 5.0
    largest_body: int = 10_000_000
    deepest_body: int = 200
    waiting_bytes: int = 64_000_000
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    body_stall_s: float = 10.0
    body_pieces: int = 1_000
    write_stall_s: float = 30.0
    unsent_bytes: int = 64_000_000
    connections: int = 1_000
    connections_per_address: int = 256
    streams_per_key: int = 20
    gzip_members: int = 16
    compression_ratio: int = 200
    json_objects: int = 250_000
    json_values: int = 1_000_000
    protobuf_messages: int = 250_000
    protobuf_fields: int = 2_000_000
    requests_per_minute: int = 6_000
    queue_size: int = 1_000
    evaluators: int = 2
    workers: int = 1
    lease_s: float = 30.0
    sandboxes: int = 2_000
    sandbox_rows: int = 200_000
    sandbox_bytes: int = 200_000_000
    sandbox_hours: float = 24.0
    sandbox_requests_per_minute: int = 6_000
    allowed_addresses: tuple[str, ...] = ()
    allowed_commands: tuple[str, ...] = ()
    export_otlp_endpoint: str | None = None
    export_otlp_headers: tuple[tuple[str, str], ...] = ()
    retention_days: float | None = None
    retention_bytes: int | None = None
    metrics_organization: str | None = None
    unknown_agents: Literal["create", "refuse"] | None = None
    public_url: str | None = None
    smtp_host: str | None = None
    smtp_port: int = 587
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    smtp_from: str | None = None
    smtp_user: str | None = None
    smtp_password: str | None = None
