"""Refuses settings that hold a secret where they should name one.

What is stored is shown again to everybody who may read it, so a key written out in the settings of a project, an agent or a suite is
refused; `${NAME}` stands in its place, and the secret itself is kept encrypted.
"""

from __future__ import annotations

import re

from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.service.redaction import redact
from proctor.service.refusals import Refusal

_REFERENCES = re.compile(r"(?:[A-Za-z]+ )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_MOST = 20
_TOLD = "looks like a secret; keep it as a secret of the project and write ${NAME} here"


def refuse_secrets_in_suite(suite: Suite, field: str) -> None:
    """Refuse a suite whose targets, models or servers hold a secret. What is asked and expected is not searched."""
    listed: Json = suite.settings.get("servers")
    # Those of MCPLab are the same objects for everybody that names them: looked through once, however often they are named.
    seen = {id(server) for server in listed} if isinstance(listed, list) else set[int]()
    of_cases = {case.id: _drop_seen_servers(case.settings, seen) for case in suite.cases if case.settings}
    refuse_plain_secrets({**suite.settings, **({"cases": of_cases} if of_cases else {})}, field)


def _drop_seen_servers(settings: dict[str, Json], seen: set[int]) -> dict[str, Json]:
    """Return the settings of a case without the servers that were seen before, and remember those of this case."""
    servers: Json = settings.get("mcp_servers")
    if not isinstance(servers, list):
        return settings
    left: list[Json] = []
    for server in servers:
        left.append(None if id(server) in seen else server)
        seen.add(id(server))
    return {**settings, "mcp_servers": left}


def refuse_plain_secrets(value: Json, field: str) -> None:
    """Refuse a value in which something looks like a secret and is no `${NAME}`."""
    wrong = list_plain_secrets(value, field)
    if wrong:
        raise Refusal("VALIDATION_ERROR", "a secret stands here in plain", fields={path: [_TOLD] for path in sorted(wrong)})


def list_plain_secrets(value: Json, field: str) -> list[str]:
    """Return where something in a value looks like a secret and is no `${NAME}`; `field` is where the value itself stands."""
    wrong: list[str] = []
    waiting: list[tuple[Json, Json, str]] = [(value, redact(value), field)]
    # What redacting changes is what looks like a secret, so both walks go by one set of rules.
    while waiting and len(wrong) < _MOST:
        ours, clean, path = waiting.pop()
        if isinstance(ours, dict) and isinstance(clean, dict):
            waiting.extend((member, clean[name], f"{path}.{name}") for name, member in ours.items())
        elif isinstance(ours, list) and isinstance(clean, list):
            waiting.extend((member, clean[at], f"{path}[{at}]") for at, member in enumerate(ours))
        elif (type(ours) is not type(clean) or ours != clean) and not (isinstance(ours, str) and _REFERENCES.fullmatch(ours)):
            wrong.append(path)
    return wrong
