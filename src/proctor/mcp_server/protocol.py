"""The lists of the server and its description of itself, without the code of the tools, which takes most of a second to load."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from proctor import __version__
from proctor.model.evidence import Json
from proctor.model.typed import decode_json

SERVER: Final[dict[str, str]] = {
    "name": "proctor",
    "version": __version__,
    "title": "proctor",
    "description": "Examine AI agents: suites, evidence, runs, criteria.",
}
INSTRUCTIONS: Final = """\
proctor examines AI agents: a suite states what an agent must do, evidence is what it did, every assertion is decided with a reason.
To write a suite: `describe` what there is, write, `validate_suite`, try it with `check_evidence`, then `run_suite` and `get_run`.
To author a benchmark: `benchmarks` create, `tasks` create, `criteria` create; then `benchmark_runs` start, `task-runs` putState and
complete, and read `criterion-runs`. Results with isError say what is wrong (path, nearest right word) and what to do next.
"""
HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions that begin with `initialize`."""
STATELESS_VERSIONS: Final = ("2026-07-28",)
"""Versions that every request names."""
_FIXED = {"listChanged": False}
OFFERED: Final[dict[str, Json]] = {
    "capabilities": {"tools": _FIXED, "prompts": _FIXED, "resources": {**_FIXED, "subscribe": False}},
    "instructions": INSTRUCTIONS,
}
DISCOVERED: Final[dict[str, Json]] = {"supportedVersions": [*STATELESS_VERSIONS, *HANDSHAKE_VERSIONS], **OFFERED}
CALLS: Final = ("tools/call", "resources/read", "prompts/get")
PARSE_ERROR, INVALID_REQUEST, NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
UNSUPPORTED_VERSION: Final = -32022
NO_RESOURCE: Final = -32002
"""The code of an unknown resource before 2026-07-28."""
_LISTS_LAST_MS = 300_000
"""They do not change while the process runs."""
LISTS: Final = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
Lists = Mapping[str, dict[str, Json]]
"""The result of each list by its method; `resources/list` without the documentation."""


class ProtocolError(Exception):
    """A request that is answered with an error of the protocol."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


@functools.cache
def load_lists() -> Lists:
    """Return the lists of a server on the caller's machine, which `make docs` writes from the tools."""
    return decode_json(Path(__file__).with_name("lists.json").read_bytes(), dict[str, dict[str, Json]])


def read_list(lists: Lists, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
    """Return the result of a list request. Raises `ProtocolError` for a position: every list has one page."""
    if params.get("cursor") is not None:
        raise ProtocolError(INVALID_PARAMS, "unknown cursor: the list has one page")
    if method != "resources/list":
        return lists[method]
    return {"resources": [*map(Page.describe, list_docs()), *lists[method]["resources"]]}


def complete_result(method: str, result: dict[str, Json]) -> dict[str, Json]:
    """Return a result with what stateless versions add."""
    lasts: dict[str, Json] = {"ttlMs": _LISTS_LAST_MS if method in LISTS else 0, "cacheScope": "private"}
    return {"resultType": "complete", **({} if method in ("tools/call", "prompts/get") else lasts), **result}


SCHEME: Final = "proctor://"
MARKDOWN, JSON = "text/markdown", "application/json"
_TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One resource, or a template of some."""

    uri: str
    title: str
    about: str = ""
    kind: str = MARKDOWN

    def describe(self) -> dict[str, Json]:
        """Return it as an entry of its list."""
        described: dict[str, Json] = {"title": self.title, "mimeType": self.kind, **({"description": self.about} if self.about else {})}
        if "{" in self.uri:
            return {"name": self.title, "uriTemplate": self.uri, **described}
        return {"name": self.uri.removeprefix(SCHEME), "uri": self.uri, **described}


def list_docs() -> list[Page]:
    """Return the pages of the documentation."""
    titles = {path: _TITLE.search(text) for path, text in load_docs().items()}
    return [Page(uri=f"{SCHEME}docs/{path}", title=path if title is None else title[1].strip()) for path, title in titles.items()]


@functools.cache
def load_docs() -> dict[str, str]:
    """Return the documentation pages by path, from the installed package or the source tree."""
    package = Path(__file__).parents[1]
    if (packed := package / "docs.json.bz2").is_file():
        import bz2  # only in an installed package

        return decode_json(bz2.decompress(packed.read_bytes()), dict[str, str])
    folder = package.parent.parent / "docs"
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.md"))}


def find_doc(params: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return the result of reading a page of the documentation, if that is what is read."""
    from urllib.parse import unquote  # slow to load

    uri: Json = params.get("uri")
    text = load_docs().get(unquote(uri).removeprefix(f"{SCHEME}docs/")) if isinstance(uri, str) else None
    return None if text is None else {"contents": [{"uri": uri, "mimeType": MARKDOWN, "text": text}]}
