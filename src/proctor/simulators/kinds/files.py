"""A drop of files, such as a payer's SFTP folder, over HTTP and, for those who ask, over SFTP.

    GET /                 every file; `?prefix=inbox/` those below a folder
    GET /inbox            the files that arrived (as `?prefix=inbox/`)
    GET /path/to/file     its content
    PUT /path/to/file     write it (201, or 204 where it was there)
    DELETE /path/to/file  remove it
    MOVE /path?to=path    give it another path (SFTP alone has this)

UTF-8 content is stored as text, other content in base64. A path that leaves the drop, is empty or has invalid characters is
refused with 400, a file beyond 50 MB with 413. A scenario may let a file arrive: `drop_file_inbox: {path: referral.json, content: ...}`.

With `sftp: true` in the seed the files of a local run are also reached over SFTP, on a port of their own with the token as password; what
is done there are the same requests.
"""

from __future__ import annotations

import base64
from typing import cast

import msgspec

from proctor.codecs.http import decode_percent, encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import Json, State, StateFile
from proctor.model.show import kind_of, show
from proctor.simulators.exchange import Refused, Request, Response, answer_json, refuse
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import read_flag

MOST_BYTES = 50_000_000
"""Bytes of one file."""
MOST_PATH = 1_000
"""Characters of a path."""
_FILES = ""
"""The only collection: a file is identified by its path."""
_INBOX = "inbox/"


class FilesSimulator(Simulator):
    """A drop of files."""

    kind = "files"
    summary = "A drop of files: list, read, write and delete over HTTP and SFTP, with an inbox."
    steps = ("drop_file_inbox",)
    access = {"files_url": "{url}", "inbox_url": "{url}/inbox"}  # noqa: RUF012 - never changed
    endpoints = {"files_inbox": "/inbox"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Store files: an object of paths and contents; `sftp: true` requests an SFTP port."""
        if not isinstance(seed, dict):
            raise SpecError(f"expected an object of paths and contents, found {kind_of(seed)}")
        # Never a file: `sftp: yes`, a text in YAML, would silently become one, and there would be no port.
        read_flag(seed.get("sftp"), "sftp")
        for path, content in cast("dict[str, Json]", seed).items():
            if path != "sftp":
                self._seed_file(path, content, desk)

    def perform(self, step: str, content: Json, desk: Desk) -> None:
        """Let a file arrive in the inbox."""
        if not isinstance(content, dict) or not isinstance(content.get("path"), str) or content.keys() - {"path", "content"}:
            raise SpecError("expected an object with path and content")
        path = content["path"].lstrip("/")
        self._seed_file(path if path.startswith(_INBOX) else _INBOX + path, content.get("content", ""), desk)

    def _seed_file(self, path: str, content: Json, desk: Desk) -> None:
        try:
            name = _check_path(path)
        except Refused as refused:
            raise SpecError(msgspec.json.decode(refused.response.body)["error"]["message"], field=path) from None
        data = content.encode("utf-8", "replace") if isinstance(content, str) else msgspec.json.encode(content)
        desk.rows.put(_FILES, name, _make_row(data, "", desk.around.now()))

    def answer(self, request: Request, desk: Desk) -> Response:
        """Answer a request. Raises `Refused`."""
        path = decode_percent(request.path.lstrip("/"))
        if request.method in ("GET", "HEAD"):
            return self._get(path, request, desk.rows)
        if request.method == "MOVE":
            name, target = _check_path(path), _check_path(dict(request.query).get("to", ""))
            if (row := desk.rows.get(_FILES, name)) is None:
                raise refuse(404, "not_found", f"there is no file {show(name)}")
            known = desk.rows.get(_FILES, target) is not None
            desk.rows.remove(_FILES, name)
            desk.rows.put(_FILES, target, row)
            return Response(status=204) if known else answer_json(201, {"path": target, "size": row["size"]})
        if request.method not in ("PUT", "DELETE"):
            raise refuse(405, "method_not_allowed", f"files take GET, PUT and DELETE, not {request.method}")
        name = _check_path(path)
        known = desk.rows.get(_FILES, name) is not None
        if request.method == "PUT":
            if len(request.body) > MOST_BYTES:
                raise refuse(413, "too_large", f"a file has at most {MOST_BYTES} bytes, this one has {len(request.body)}")
            desk.rows.put(_FILES, name, _make_row(request.body, request.headers.get("content-type", ""), desk.around.now()))
            return Response(status=204) if known else answer_json(201, {"path": name, "size": len(request.body)})
        if not known:
            raise refuse(404, "not_found", f"there is no file {show(name)}")
        desk.rows.remove(_FILES, name)
        return Response(status=204)

    def _get(self, path: str, request: Request, rows: Draft) -> Response:
        row = rows.get(_FILES, path)
        if path and path != "inbox" and not path.endswith("/") and row is None:
            raise refuse(404, "not_found", f"there is no file {show(_check_path(path))}")
        if row is not None:
            kind = row["type"] or ("text/plain; charset=utf-8" if "text" in row else "application/octet-stream")
            return Response(
                status=200, body=row["text"].encode() if "text" in row else base64.b64decode(row["base64"]), headers={"content-type": kind}
            )
        prefix = _INBOX if path == "inbox" else path or dict(request.query).get("prefix", "")
        listed = [
            {"path": name, "size": row["size"], "modified": row["modified"]}
            for name, row in rows.list(_FILES).items()
            if name.startswith(prefix)
        ]
        return answer_json(200, {"files": listed})

    def read_state(self, desk: Desk) -> State:
        """Return every file with its content; binary content as a `data:` address."""
        return State(
            files=tuple(
                StateFile(path=path, content=row["text"] if "text" in row else f"data:application/octet-stream;base64,{row['base64']}")
                for path, row in desk.rows.list(_FILES).items()
            )
        )

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for the drop."""
        path: dict[str, Json] = {"type": "string", "description": "The path of the file, such as outbox/claim.json."}
        path_schema = {"type": "object", "properties": {"path": path}, "required": ["path"]}
        schema = {"type": "object", "properties": {"path": path, "content": {"type": "string"}}, "required": ["path", "content"]}
        folder = {"type": "object", "properties": {"prefix": {"type": "string", "description": "Only files below this folder."}}}
        return (
            Tool(
                name="files_list",
                description="List the files of the drop.",
                schema=folder,
                make_request=lambda args: Request(method="GET", query=(("prefix", str(args.get("prefix", ""))),)),
            ),
            Tool(name="files_read", description="Read a file.", schema=path_schema, make_request=lambda args: _ask("GET", args)),
            Tool(name="files_write", description="Write a file.", schema=schema, make_request=lambda args: _ask("PUT", args)),
            Tool(name="files_delete", description="Delete a file.", schema=path_schema, make_request=lambda args: _ask("DELETE", args)),
        )


def _ask(method: str, arguments: dict[str, Json]) -> Request:
    path = "/" + encode_percent(str(arguments.get("path", "")), "/")
    return Request(method=method, path=path, body=str(arguments.get("content", "")).encode("utf-8", "replace"))


def _check_path(path: str) -> str:
    """Return the normalised path of a file. Raises `Refused` for one that leaves the drop or names no file."""
    name = path.lstrip("/")
    parts = name.split("/")
    # Backslashes and control characters have special meanings on other systems.
    if not name or len(name) > MOST_PATH or any(part in ("", ".", "..") for part in parts) or not name.isprintable() or "\\" in name:
        raise refuse(400, "bad_path", f"not a path inside the drop: {show(path, 200)}")
    return name


def _make_row(data: bytes, kind: str, now: str) -> dict[str, Json]:
    row: dict[str, Json] = {"size": len(data), "type": kind, "modified": now}
    try:
        row["text"] = data.decode()
    except UnicodeDecodeError:
        row["base64"] = base64.b64encode(data).decode()
    return row


SIMULATOR = FilesSimulator()
