"""An examination of an MCP server: its options with the files they name, and its form as a run.

As a run, each check of the doctor is a case, and the examined server is the target. The suite depends on the options alone, so that two
runs have the same cases whatever the server speaks. The examination is made once, when the run opens its target; each case then gets the
findings of its check, one for each examined revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec
import yaml

from proctor.cassettes.ports import Tape
from proctor.checks.run.server_conforms import ServerConforms
from proctor.doctor.catalogue import CHECKS, VERSION, find_profile, parse_profile, read_expected
from proctor.doctor.lock import Lock, read_lock, write_lock
from proctor.doctor.model import HANDSHAKE, Area, Check, Examination
from proctor.errors import InputError, MissingExtra, TargetError
from proctor.model.attempt import Attempt
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.show import shorten
from proctor.model.typed import convert_to
from proctor.network.addresses import AddressRefused
from proctor.targets.mcp.settings import ServerFault, ServerSettings, read_servers
from proctor.targets.shared.wire import MakeTransport

try:
    from proctor.doctor.calls import read_calls
    from proctor.doctor.examine import DEFAULT, Options, examine
    from proctor.doctor.login import Login
except ModuleNotFoundError:
    raise MissingExtra("The doctor", "mcp") from None
if find_spec("mcp") is None:  # it is loaded with the first server over stdio
    raise MissingExtra("The doctor", "mcp")

EXPECTED: Final = "expected-failures"
LOCKED: Final = "locked-definitions"
_LONGEST_NAME: Final = 150


def make_options(
    *,
    calls: str | Mapping[str, Json] | None,
    fuzz: int,
    profiles: Sequence[str],
    areas: Sequence[str],
    expected: str | Sequence[str],
    lock: str | None,
    timeout_s: float,
    authorization: bool | None = None,
    other_tools: Sequence[str] = (),
    login: Login | None = None,
) -> Options:
    """Read the files that options name. Raises `InputError`."""
    if fuzz and calls is None:
        raise InputError("`fuzz` needs `calls`: only declared tools are called")
    document: Any = yaml.safe_load(_read(calls)) if isinstance(calls, str) else calls
    entries = read_expected(_read(expected), expected) if isinstance(expected, str) else read_expected("\n".join(expected), "expected")
    return Options(
        profiles=tuple(profiles),
        areas=tuple(areas),
        calls=None if document is None else read_calls(document, calls if isinstance(calls, str) else "calls"),
        fuzz=fuzz,
        authorization=authorization,
        expected=entries,
        lock=None if lock is None else read_lock(_read(lock).encode(), lock),
        other_tools=frozenset(other_tools),
        login=login,
        timeout_s=timeout_s,
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}") from None


def describe_lock(examination: Examination) -> str:
    """Return the lock file of an examined server. Raises `InputError` if it offers nothing."""
    if not any(part.score is not None for part in examination.examined):
        raise InputError("the server could not be examined, so there is nothing to lock")
    return write_lock(convert_to(examination.snapshot, Lock))


def make_suite(settings: ServerSettings, options: Options) -> Suite:
    """Return the cases of an examination. Raises `InputError` for a server that cannot be examined."""
    if settings.transport not in ("stdio", "http"):
        raise InputError(f"the doctor examines servers over stdio and streamable HTTP, not {settings.transport}")
    name = settings.id if settings.id != "server" else settings.describe_place()
    cases = [
        _make_case(check.id, check.claim, {"area": check.area, "level": check.level}, check.find_page(check.revisions[-1]))
        for check in _list_checks(settings, options)
    ]
    if options.expected:
        cases.append(_make_case(EXPECTED, "Every expected failure still occurs.", {"area": "expected", "level": "MUST"}))
    if options.lock is not None:
        cases.append(_make_case(LOCKED, "No locked definition was removed, broken or reworded.", {"area": "lock", "level": "MUST"}))
    return Suite(name=f"doctor {shorten(name, _LONGEST_NAME)}", cases=tuple(cases))


def _make_case(rule: str, claim: str, tags: dict[str, Json], clause: str = "") -> Case:
    assertion = Assertion(check="server_conforms", spec=ServerConforms(rule=rule))
    return Case(id=rule, name=claim, description=clause, tags=tags, assertions=(assertion,))


def _list_checks(settings: ServerSettings, options: Options) -> list[Check]:
    """Return every check that may be examined. A server may choose an older revision with a handshake than the one it is offered."""
    profiles = [parse_profile(name) for name in options.profiles] or [(revision, VERSION) for revision in DEFAULT]
    optional = {"calls": options.calls is not None, "authorization": options.authorization is not False}
    parts = frozenset(name for name, is_wanted in optional.items() if is_wanted)
    checks: set[str] = set()
    for revision, version in profiles:
        for each in HANDSHAKE if revision in HANDSHAKE else (revision,):
            checks |= {check.id for check in find_profile(each, version, settings.transport, parts).checks}
    return [check for check in CHECKS if check.id in checks and (not options.areas or check.area in options.areas)]


class ExaminedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An examined server as the target of a run, in the settings of a request; secrets are resolved."""

    type: Literal["mcp_server"]
    server: dict[str, Json]
    """Its settings, as below `servers` of an agent, with its `id`."""
    profiles: tuple[str, ...] = ()
    areas: tuple[Area, ...] = ()
    calls: Json = None
    fuzz: int = 0
    expected: tuple[str, ...] = ()
    lock: Json = None
    timeout_s: float = 10.0


def build_examined_server(settings: Json, transport: MakeTransport | None) -> ExaminedServer:
    """Return the target that settings describe; `transport` makes its connections over HTTP. Raises `InputError`."""
    examined_settings = read_settings(settings)
    return ExaminedServer(read_server(examined_settings.server), read_options(examined_settings, transport))


def read_settings(settings: Json) -> ExaminedSettings:
    """Return the settings of an examined server. Raises `InputError`."""
    try:
        return convert_to(settings, ExaminedSettings)
    except msgspec.ValidationError as error:
        raise InputError(f"an examination: {error}") from None


def read_server(settings: Mapping[str, Json]) -> ServerSettings:
    """Return the settings of a server with its `id`. Raises `InputError`."""
    return read_servers({str(settings.get("id", "server")): {key: value for key, value in settings.items() if key != "id"}})[0]


def read_options(settings: ExaminedSettings, transport: MakeTransport | None = None) -> Options:
    """Return the options of a request. Raises `InputError`."""
    options = make_options(
        calls=cast("Mapping[str, Json] | None", settings.calls),
        fuzz=settings.fuzz,
        profiles=settings.profiles,
        areas=settings.areas,
        expected=settings.expected,
        lock=None,
        timeout_s=settings.timeout_s,
    )
    lock = None if settings.lock is None else read_lock(msgspec.json.encode(settings.lock), "lock")
    return msgspec.structs.replace(options, lock=lock, transport=transport)


class ExaminedServer:
    """An MCP server as the target of a run."""

    def __init__(self, settings: ServerSettings, options: Options) -> None:
        self._settings = settings
        self._options = options
        self.examination: Examination | None = None
        """The findings, after `open`."""

    @property
    def name(self) -> str:
        """The command or the address, without secrets."""
        return self._settings.describe_place()

    async def open(self) -> None:
        """Examine the server. Raises `TargetError` if it cannot be started."""
        try:
            self.examination = await examine(self._settings, self._options)
        except InputError as error:
            # Such as a declared call of a tool that the server lacks: the run did not begin, and must not look interrupted.
            raise TargetError(str(error), code="bad_request") from None
        except AddressRefused as error:
            raise ServerFault("address_refused", self._settings.id, f"may not be reached: {error}", permanent=True) from None

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Return the findings of the check that a case is about."""
        assert self.examination is not None, "it is opened before"
        return describe_findings(self.examination, attempt.case.id)

    async def close(self) -> None:
        """Do nothing: an examination closes its connections itself."""

    def list_snapshots(self) -> dict[str, bytes]:
        """Return what is stored with the run: the definitions of the server, and the whole examination."""
        examination = self.examination
        if examination is None:
            return {}
        return {"servers": msgspec.json.encode({self._settings.id: examination.snapshot}), "examination": msgspec.json.encode(examination)}


def describe_findings(result: Examination, rule: str) -> Evidence:
    """Return the findings of one check as evidence: for readers as text, for the claim as metadata."""
    if rule == EXPECTED:
        rows = [_make_row(rule, "fail", f"{', '.join(result.stale)}: no such failure any more; remove the entry" if result.stale else "")]
        return _make_evidence(rows if result.stale else [_make_row(rule, "pass")], [])
    if rule == LOCKED:
        return _make_evidence(*_describe_changes(result))
    rows: list[dict[str, Json]] = []
    lines: list[str] = []
    for part in result.examined:
        for finding in part.findings:
            if finding.check == rule:
                rows.append(_make_row(rule, finding.verdict, finding.reason, part.revision, finding.level, result.expects(finding, part)))
                reason = f": {finding.reason}" if finding.reason else ""
                lines.append(f"{part.revision}: {finding.verdict.replace('_', ' ')}{reason}")
                lines += [f"  {each.direction} #{each.number}: {f'{each.http} {each.text}'.strip()}" for each in finding.evidence]
    return _make_evidence(rows, lines)


def _make_row(
    rule: str, verdict: str, reason: str = "", revision: str = "", level: str = "MUST", expected: bool = False
) -> dict[str, Json]:
    return {"check": rule, "verdict": verdict, "reason": reason, "revision": revision, "level": level, "expected": expected}


def _make_evidence(rows: list[dict[str, Json]], lines: list[str]) -> Evidence:
    return Evidence(text="\n".join(lines) or "; ".join(str(row["verdict"]) for row in rows) or "not examined", metadata={"findings": rows})


def _describe_changes(examination: Examination) -> tuple[list[dict[str, Json]], list[str]]:
    changes: list[Mapping[str, Any]] = [change for change in examination.changes if isinstance(change, dict)]
    lines = [f"{change['kind']}: {change['item']} {change['what']}" for change in changes]
    failing = [line for change, line in zip(changes, lines, strict=True) if change.get("fails")]
    if failing:
        return [_make_row(LOCKED, "fail", "; ".join(failing[:6]) + (f" (and {len(failing) - 6} more)" if len(failing) > 6 else ""))], lines
    if not any(finding.verdict == "pass" for finding in examination.findings):
        return [_make_row(LOCKED, "could_not_run", "the definitions could not be read")], lines
    return [_make_row(LOCKED, "pass")], lines
