"""Shared checks of request fields: names, texts, times, settings, and plain secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from proctor.cassettes.redaction import redact
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.service.hub import stamp
from proctor.service.refusals import Refusal
from proctor.store.sql.compressed_json import to_json

_REFERENCES = re.compile(r"(?:[A-Za-z]+ )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_MOST = 20
_REASON = "looks like a secret; add it as a secret of the project and write ${NAME} here"


def refuse_secrets_in_suite(suite: Suite, field: str) -> None:
    """Reject a suite whose targets, models or servers contain a secret. Inputs and expected values are not searched."""
    listed: Json = suite.settings.get("servers")
    # MCPLab servers are shared objects: each is searched once.
    searched = {id(server) for server in listed} if isinstance(listed, list) else set[int]()
    of_cases = {case.id: _drop_seen_servers(case.settings, searched) for case in suite.cases if case.settings}
    refuse_plain_secrets({**suite.settings, **({"cases": of_cases} if of_cases else {})}, field)


def _drop_seen_servers(settings: dict[str, Json], searched: set[int]) -> dict[str, Json]:
    """Return the settings of a case without servers that were already searched."""
    servers: Json = settings.get("mcp_servers")
    if not isinstance(servers, list):
        return settings
    remaining: list[Json] = []
    for server in servers:
        remaining.append(None if id(server) in searched else server)
        searched.add(id(server))
    return {**settings, "mcp_servers": remaining}


def refuse_plain_secrets(value: Json, field: str) -> None:
    """Reject a value with a plain secret, which should be a `${NAME}`."""
    wrong = list_plain_secrets(value, field)
    if wrong:
        raise Refusal("VALIDATION_ERROR", "plain secret", fields={path: [_REASON] for path in sorted(wrong)})


def list_plain_secrets(value: Json, field: str) -> list[str]:
    """Return the paths of plain secrets in a value at `field`."""
    wrong: list[str] = []
    waiting: list[tuple[Json, Json, str]] = [(value, redact(value), field)]
    # Redaction marks secrets, so that both use the same rules.
    while waiting and len(wrong) < _MOST:
        ours, clean, path = waiting.pop()
        if isinstance(ours, dict) and isinstance(clean, dict):
            waiting.extend((member, clean[name], f"{path}.{name}") for name, member in ours.items())
        elif isinstance(ours, list) and isinstance(clean, list):
            waiting.extend((member, clean[at], f"{path}[{at}]") for at, member in enumerate(ours))
        elif (type(ours) is not type(clean) or ours != clean) and not (isinstance(ours, str) and _REFERENCES.fullmatch(ours)):
            wrong.append(path)
    return wrong


LONGEST_NAME = 200
LARGEST_SETTINGS = 100_000


def check_settings(settings: Json) -> None:
    """Reject settings that are large or contain secrets."""
    if settings is not None:
        if len(to_json(settings)) > LARGEST_SETTINGS:
            reason = f"expected at most {LARGEST_SETTINGS} bytes"
            raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"settings": [reason]})
        refuse_plain_secrets(settings, "settings")


def refuse_emptying(changes: Mapping[str, object], *names: str) -> None:
    """Reject a change that empties a required field."""
    empty = {name: ["cannot be empty"] for name in names if name in changes and changes[name] is None}
    if empty:
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields=empty)


def read_moment(text: str, field: str) -> str:
    """Return a time in the stored format; UTC unless it has a zone."""
    try:
        at = datetime.fromisoformat(text)
        return stamp((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        reasons = [f"expected a time such as 2031-01-31T12:00:00Z, got {text[:80]!r}"]
        raise Refusal("VALIDATION_ERROR", "the time cannot be read", fields={field: reasons}) from None
