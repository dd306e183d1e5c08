"""Removes data that identifies the machine from a recording."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

_PUBLIC_ATTRIBUTES = ("service.name", "telemetry.", "mastra.", "langfuse.", "gen_ai.", "openinference.", "deployment.")
_LOCAL = re.compile(r"(127\.0\.0\.1|localhost):\d{4,5}")


def scrub_documents(document: Any, root: Path) -> Any:
    """Return the document without resource attributes of the machine and without its paths, host name and ports."""
    places = [str(root / ".frameworks" / "js"), str(root)]
    return _scrub(document, places, socket.gethostname())


def _scrub(value: Any, places: list[str], host: str) -> Any:
    if isinstance(value, dict):
        made = {key: _scrub(one, places, host) for key, one in value.items()}
        if made.get("key") in ("server.port", "net.peer.port"):
            made["value"] = {"intValue": 8080}
        if isinstance(made.get("resource"), dict) and ("scopeSpans" in made or "scopeLogs" in made):
            public = [one for one in made["resource"].get("attributes", []) if one["key"].startswith(_PUBLIC_ATTRIBUTES)]
            made["resource"] = {"attributes": public}
        return made
    if isinstance(value, list):
        return [_scrub(one, places, host) for one in value]
    if isinstance(value, str):
        for place in places:
            value = value.replace(place, "/app")
        return "host" if value == host else _LOCAL.sub("127.0.0.1:8080", value)
    return value
