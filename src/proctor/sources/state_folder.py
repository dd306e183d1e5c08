"""Reads evidence stored as a folder: `evidence.json` for the run, and one folder or file per system the agent worked in.

fhir/*.json      resources or bundles
hl7/*.hl7        messages, in the order of their names
portal.json      collections of rows
files/**         the files the agent left, paths relative to `files/`
voice/*          a transcript as .json, .vtt or .srt
x12/*.edi        interchanges, in the order of their names
evidence.json    everything else, as in plain evidence

A file in one of these folders that is not read (another suffix, a link) may be what a claim declares absent: the end state is then
partly unknown.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.codecs.transcript import TranscriptKind, read_transcript
from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from proctor.model.account import Account, Part
from proctor.model.evidence import Evidence, Json, VoiceTurn
from proctor.model.json_values import NotJson, read_json
from proctor.model.show import kind_of

FAMILIES = ("fhir", "hl7", "files", "voice", "x12")
_KINDS: dict[str, TranscriptKind] = {".json": "json", ".vtt": "vtt", ".srt": "srt"}
MAX_FILE_BYTES = 64 * 1024 * 1024
"""The largest file of an end state that is read."""
MAX_FILES = 10_000
"""Maximum files of an end state, so that a wrong folder is not read for minutes."""


def is_state_folder(folder: Path) -> bool:
    """Return whether the folder is one piece of evidence rather than a collection of them."""
    if (folder / "evidence.json").is_file() or (folder / "portal.json").is_file():
        return True
    return any((folder / family).is_dir() for family in FAMILIES)


def read_state_folder(folder: Path) -> Evidence:
    """Return the folder as one piece of evidence."""
    document: dict[str, Json] = {}
    if (folder / "evidence.json").is_file():
        transcript = _read_json(folder / "evidence.json")
        if not isinstance(transcript, dict):
            raise EvidenceError("evidence.json: expected an object")
        document = transcript
    stated: Json = document.get("state") or {}
    if not isinstance(stated, dict):
        raise EvidenceError(f"evidence.json: $.state: expected an object, found {kind_of(stated)}")
    state: dict[str, Json] = {**stated}
    unread: list[Path] = []
    if (folder / "fhir").is_dir():
        state["fhir"] = {"resources": [_read_json(path) for path in _list_files(folder / "fhir", (".json",), unread)]}
    if (folder / "hl7").is_dir():
        state["hl7"] = {"outbound": [_read_text(path) for path in _list_files(folder / "hl7", (".hl7", ".txt"), unread)]}
    if (folder / "portal.json").is_file():
        state["portal"] = _read_json(folder / "portal.json")
    if (folder / "files").is_dir():
        # A PDF among the files must not make the folder unreadable; then only its path can be checked.
        state["files"] = [
            {"path": path.relative_to(folder / "files").as_posix(), "content": _read_bytes(path).decode("utf-8", errors="replace")}
            for path in _list_files(folder / "files", None, unread)
        ]
    if (folder / "voice").is_dir():
        turns: list[VoiceTurn] = []
        for path in _list_files(folder / "voice", tuple(_KINDS), unread):
            transcript = read_transcript(_read_text(path), _KINDS[path.suffix.lower()])
            # Each file is a separate call.
            turns.extend(msgspec.structs.replace(turn, call=turn.call or path.stem) for turn in transcript)
        state["voice"] = {"turns": msgspec.to_builtins(turns)}
    if (folder / "x12").is_dir():
        state["x12"] = {"responses": [_read_text(path) for path in _list_files(folder / "x12", (".edi", ".x12", ".txt"), unread)]}
    evidence = read_document({**document, "state": state}, format="plain")[0]
    return evidence if not unread else _mark_state_unknown(evidence, unread[0].relative_to(folder).as_posix())


def _mark_state_unknown(evidence: Evidence, unread: str) -> Evidence:
    account = evidence.account or Account("plain")
    # The reader's own entry about the state wins.
    unknown: dict[Part, str] = {"state": f"{unread} was not read", **account.unknown}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown))


def _list_files(folder: Path, suffixes: tuple[str, ...] | None, unread: list[Path]) -> list[Path]:
    """Return the files to read in the order of their names, and add the others to `unread`."""
    files: list[Path] = []
    # By name: file systems list in any order, and the order of messages is part of the evidence.
    for path in sorted(folder.rglob("*")):
        # A link could lead out of the folder to anything the user can read.
        if path.is_symlink() or (path.is_file() and suffixes is not None and path.suffix.lower() not in suffixes):
            if not path.name.startswith("."):
                unread.append(path)
            continue
        if not path.is_file():
            continue
        files.append(path)
        if len(files) > MAX_FILES:
            raise EvidenceError(f"{folder.name}/ holds more than {MAX_FILES} files", code="too_large")
    return files


def _read_bytes(path: Path) -> bytes:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise EvidenceError(f"{path.name} is larger than {MAX_FILE_BYTES // 2**20} MB", code="too_large")
    return path.read_bytes()


def _read_text(path: Path) -> str:
    try:
        return _read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise EvidenceError(f"{path.name} is not UTF-8 text (byte {error.start})") from error


def _read_json(path: Path) -> Json:
    try:
        return read_json(_read_bytes(path))
    except NotJson as error:
        raise EvidenceError(f"{path.name} is not JSON: {error}") from error
