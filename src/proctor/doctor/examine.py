"""Examines one server: by default in both eras of the protocol, each by its own connection, side by side.

Nothing is called unless `calls` declares it. Every wait is bounded, and so is the whole examination.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from proctor.doctor.authorization import AuthorizationProbe
from proctor.doctor.calls import CallPlan, make_calls
from proctor.doctor.catalogue import VERSION, find_profile, parse_profile
from proctor.doctor.client import Session
from proctor.doctor.http_link import HttpLink
from proctor.doctor.inspect import Surface, check_wire, connect, initialize, read_surface
from proctor.doctor.lock import Lock, compare_locks, make_lock
from proctor.doctor.login import LOGIN_CHECKS, Login, log_in
from proctor.doctor.model import BROKEN, HANDSHAKE, NO_TOKEN, STATELESS, Examination, Probed, Profile, Verdicts
from proctor.doctor.probe import Prober, probe_http
from proctor.doctor.recording import Recording
from proctor.doctor.stdio_link import StdioLink
from proctor.doctor.surface import lint
from proctor.errors import InputError
from proctor.model.show import show
from proctor.targets.mcp.auth import FetchedToken
from proctor.targets.mcp.settings import ServerFault, ServerSettings
from proctor.targets.shared.wire import MakeTransport

DEFAULT: Final = (HANDSHAKE[-1], STATELESS[-1])
_UNKNOWN_VERSION: Final = "2099-01-01"
_ENDING: Final = ("survives-malformed-json", "survives-non-request", "unknown-notification", "cancel-unknown", "call-fuzz-survives")
"""Checks that report the end of the process themselves."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is examined."""

    profiles: tuple[str, ...] = ()
    """Profiles such as `mcp-2025-11-25@1`; empty: the newest of each era that the server supports."""
    areas: tuple[str, ...] = ()
    """Only checks of these areas."""
    calls: CallPlan | None = None
    fuzz: int = 0
    """Boundary values per declared tool."""
    authorization: bool | None = None
    """Whether authorization is examined; None: if the server demands it."""
    login: Login | None = None
    """How to log in for a token, over HTTP."""
    expected: tuple[str, ...] = ()
    """Checks that are expected to fail."""
    lock: Lock | None = None
    other_tools: frozenset[str] = frozenset()
    """Names of tools of other servers; texts must not give instructions about them."""
    timeout_s: float = 10.0
    """Seconds for one response."""
    start_s: float = 30.0
    """Seconds for the first response."""
    total_s: float = 120.0
    """Seconds for one revision."""
    transport: MakeTransport | None = None
    """Makes the HTTP connections, if given: the transport of a service refuses some addresses."""
    quiet_s: float = 0.3
    """Seconds to wait for a message that must not arrive."""


class _Part(msgspec.Struct, kw_only=True):
    """The examination of one revision, while it runs."""

    session: Session
    verdicts: Verdicts
    surface: Surface
    is_supported: bool = False
    ending: str = ""
    """Why the rest could not run."""
    calls: int = 0
    metadata: tuple[Probed, ...] = ()
    demands_token: bool = False


async def examine(settings: ServerSettings, options: Options | None = None) -> Examination:
    """Examine a server. Raises `TargetError` if it cannot be started at all, `InputError` for unusable options."""
    chosen = options or Options()
    settings.check()
    if settings.transport not in ("stdio", "http"):
        raise InputError(f"the doctor examines servers over stdio and streamable HTTP, not {settings.transport}")
    profiles = [parse_profile(name) for name in chosen.profiles] or [(revision, VERSION) for revision in DEFAULT]
    logged = Verdicts(find_profile(*profiles[0]))
    if chosen.login is not None:
        settings = await _log_in(settings, chosen, profiles[0][0], logged)
    began = time.monotonic()
    numbers, fetched = itertools.count(1), FetchedToken()
    tasks = [asyncio.create_task(_examine_revision(settings, each, chosen, numbers, fetched, logged)) for each in profiles]
    try:
        parts = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    # A closed link of a process is no sign: it was closed by us unless the process was noted to have ended.
    ended = [part.verdicts.is_broken("stdio-stays") if settings.transport == "stdio" else not part.session.link.is_open() for part in parts]
    unheard = not any(part.session.recording.list_received() or part.session.link.overflow for part in parts)
    if all(ended) and unheard:
        # A server that is not there cannot be judged: it lacks a key, a package or a process more often than it has a defect.
        reason = parts[0].session.link.explain_end()
        if settings.transport == "stdio":
            raise ServerFault("server_exited", settings.id, f"did not start: {reason}", permanent=True)
        raise ServerFault("unreachable", settings.id, f"is not there: {reason}", permanent=True)
    return _join(settings, chosen, parts, time.monotonic() - began)


async def _log_in(settings: ServerSettings, options: Options, revision: str, v: Verdicts) -> ServerSettings:
    """Return the settings with the credentials of a login."""
    if settings.transport != "http" or settings.auth is not None:
        raise InputError("a login is for a server over HTTP, without a token in its settings")
    assert options.login is not None
    probe = AuthorizationProbe(settings, revision, Verdicts(v.profile), Recording(), options.timeout_s)
    try:
        return await log_in(options.login, settings, probe, v)
    finally:
        await probe.close()


def _join(settings: ServerSettings, options: Options, parts: list[_Part], seconds: float) -> Examination:
    supported = [part for part in parts if part.is_supported]
    _compare_eras(supported)
    if options.profiles:
        chosen_parts = parts
    else:
        chosen_parts = supported or parts[:1]
    notes = [f"{part.session.offered} is not spoken" for part in parts if supported and part not in chosen_parts]
    examined = tuple(part.verdicts.finish(part.ending or "the examination ended before it") for part in chosen_parts)
    best = next((part for part in reversed(chosen_parts) if part.surface.tools), chosen_parts[-1])
    lock = make_lock(best.surface)
    changes = compare_locks(options.lock, lock) if options.lock is not None and best.is_supported else ()
    server = next((lock.server for part in chosen_parts if (lock := make_lock(part.surface)).server), "")
    examination = Examination(
        target=settings.describe_place(),
        transport=settings.transport,
        server=server,
        seconds=round(seconds, 1),
        examined=examined,
        notes=tuple(notes),
        metadata=next((part.metadata for part in chosen_parts if part.metadata), ()),
        snapshot=msgspec.to_builtins(make_lock(best.surface)),
        messages=sum(len(part.session.recording.frames) for part in parts),
        tool_calls=sum(part.calls for part in parts),
        changes=tuple({**msgspec.to_builtins(change), "fails": change.fails} for change in changes),
    )
    return apply_expected(examination, options.expected)


def _compare_eras(supported: list[_Part]) -> None:
    """Note whether the server offers the same in both eras."""
    stateless = next((part for part in supported if part.session.is_stateless), None)
    handshake = next((part for part in supported if not part.session.is_stateless), None)
    if stateless is None:
        return
    v = stateless.verdicts
    if handshake is None:
        v.skip("the server speaks one era only", "eras-agree", "discover-all-versions")
        return
    differences: list[str] = []
    for what in ("tools", "resources", "prompts"):
        names = [{str(item.get("uri") or item.get("name")) for item in getattr(part.surface, what)} for part in (handshake, stateless)]
        if names[0] != names[1]:
            differences.append(f"{what}: only one has {show(sorted(names[0] ^ names[1]), 80)}")
    declared = [
        {name for name in part.surface.capabilities if name in ("tools", "resources", "prompts", "completions")}
        for part in (handshake, stateless)
    ]
    if declared[0] != declared[1]:
        differences.append(f"capabilities: only one has {show(sorted(declared[0] ^ declared[1]), 80)}")
    v.require("eras-agree", not differences, "; ".join(differences))
    results = (frame.fields.get("result") for frame in stateless.session.recording.frames)
    listed = next((result for result in results if "supportedVersions" in str(result)), {})
    versions = listed.get("supportedVersions") if isinstance(listed, dict) else None
    missing = handshake.session.revision not in (versions or [])
    v.require("discover-all-versions", not missing, f"{handshake.session.revision} is spoken, and missing in it")


async def _examine_revision(
    settings: ServerSettings, profile: tuple[str, int], options: Options, numbers: Iterator[int], fetched: FetchedToken, logged: Verdicts
) -> _Part:
    revision, version = profile
    recording = Recording(numbers, settings.list_secrets())
    link = _make_link(settings, recording, fetched, options)
    session = Session(link, revision, timeout_s=options.timeout_s, quiet_s=options.quiet_s)
    if options.calls is not None and any("elicitation/create" in call.answers for call in options.calls.calls):
        session.declared["elicitation"] = {}
    part = _Part(session=session, verdicts=Verdicts(_choose_profile(revision, version, settings, options)), surface=Surface())
    part.verdicts.take_over(logged, *LOGIN_CHECKS)
    part.verdicts.skip("no login was requested", *LOGIN_CHECKS)
    if isinstance(link, StdioLink):
        await link.open()
    try:
        async with asyncio.timeout(options.total_s):
            await _examine_parts(settings, part, options, fetched)
    except TimeoutError:
        part.ending = f"the examination was stopped after {options.total_s:g} s"
    finally:
        ended = not link.is_open()
        if ended:
            # The finding has the end of standard error; what could not run need not repeat it.
            part.ending = part.ending or link.explain_end().partition("; ")[0]
            if not any(map(part.verdicts.is_broken, _ENDING)) and not link.overflow:
                last = next((frame for frame in reversed(recording.frames) if frame.direction == "sent"), None)
                part.verdicts.broken("stdio-stays", link.explain_end(), recording.show(last))
        with suppress(asyncio.TimeoutError):
            await link.close()
    check_wire(session, part.verdicts)
    if isinstance(link, StdioLink):
        if ended:
            part.verdicts.obstruct("the process had ended before", "stdio-shutdown")
        else:
            part.verdicts.ok("stdio-stays")
            signal = link.needed_signal
            part.verdicts.require("stdio-shutdown", not signal, f"it needed {signal}")
    part.verdicts.profile = _choose_profile(
        session.revision if part.is_supported else revision, version, settings, options, part.demands_token
    )
    return part


def _make_link(settings: ServerSettings, recording: Recording, fetched: FetchedToken, options: Options) -> StdioLink | HttpLink:
    if settings.transport == "stdio":
        return StdioLink(settings, recording)
    return HttpLink(settings, recording, fetched, transport=options.transport)


def _choose_profile(revision: str, version: int, settings: ServerSettings, options: Options, demands_token: bool = False) -> Profile:
    authorization = options.authorization is True or (demands_token and options.authorization is None)
    optional = {"calls": options.calls is not None, "authorization": authorization}
    parts = frozenset(name for name, wanted in optional.items() if wanted)
    profile = find_profile(revision, version, settings.transport, parts)
    if not options.areas:
        return profile
    return msgspec.structs.replace(profile, checks=tuple(check for check in profile.checks if check.area in options.areas))


async def _examine_parts(settings: ServerSettings, part: _Part, options: Options, fetched: FetchedToken) -> None:
    if settings.transport == "stdio" or options.authorization is False:
        await _examine_base(settings, part, options, fetched)
        return
    session = part.session
    authorization = AuthorizationProbe(
        settings, session.offered, part.verdicts, session.recording, options.timeout_s, transport=options.transport
    )
    try:
        part.demands_token = await authorization.is_demanded()
        if part.demands_token or options.authorization:
            part.verdicts.profile = _choose_profile(session.offered, part.verdicts.profile.version, settings, options, part.demands_token)
            await authorization.probe()
            part.metadata = tuple(authorization.probed)
        await _examine_base(settings, part, options, fetched)
        authorization.judge_access(session, connected=part.is_supported)
    finally:
        await authorization.close()


async def _examine_base(settings: ServerSettings, part: _Part, options: Options, fetched: FetchedToken) -> None:
    session, v, surface = part.session, part.verdicts, part.surface
    link = session.link
    part.is_supported = await connect(session, v, surface, timeout_s=options.start_s)
    if not part.is_supported:
        heard = bool(session.recording.list_received())
        refusal = f"the server does not speak {session.offered}" if heard else f"no response within {options.start_s:g} s"
        refusal = NO_TOKEN if part.demands_token else refusal
        part.ending = refusal if link.is_open() else ""
        return
    other_version = asyncio.create_task(_probe_other_version(settings, options, fetched)) if not session.is_stateless else None
    try:
        await read_surface(session, v, surface)
        lint(surface, v, options.other_tools)
        if options.calls is not None and link.is_open():
            part.calls = await make_calls(session, v, surface, options.calls, options.fuzz)
        if link.is_open():
            await Prober(session, v, surface).probe()
        if isinstance(link, HttpLink) and link.is_open():
            await probe_http(session, link, v)
    finally:
        if other_version is not None:
            answer = await other_version
            holds = answer in HANDSHAKE or v.is_broken("initialize-known-version")
            v.require("initialize-other-version", holds, f"expected a result with a supported version, got {answer}")
            if isinstance(link, HttpLink) and session.session_id is not None:
                await link.fetch("DELETE", headers=session.make_headers({}), timeout_s=2.0)


async def _probe_other_version(settings: ServerSettings, options: Options, fetched: FetchedToken) -> str:
    """Return the version that a server offers for a request with an unknown one, or what else came back."""
    recording = Recording(secrets=settings.list_secrets())
    link = _make_link(settings, recording, fetched, options)
    if isinstance(link, StdioLink):
        await link.open()
    try:
        session = Session(link, HANDSHAKE[-1], timeout_s=options.timeout_s)
        reply = await initialize(session, _UNKNOWN_VERSION, timeout_s=options.start_s)
        if isinstance(link, HttpLink) and session.session_id is not None:
            await link.fetch("DELETE", headers=session.make_headers({}), timeout_s=2.0)
    finally:
        await link.close()
    result: Any = reply.result
    return str(result.get("protocolVersion")) if isinstance(result, Mapping) else reply.describe()


def apply_expected(examination: Examination, entries: tuple[str, ...]) -> Examination:
    """Return the examination with its expected failures marked; one that does not fail any more is stale, and fails itself."""
    occurred: list[str] = []
    stale: list[str] = []
    for entry in entries:
        check, _, revision = entry.partition("@")
        hits = [
            finding
            for part in examination.examined
            if not revision or part.revision == revision
            for finding in part.findings
            if finding.check == check
        ]
        if any(finding.verdict in BROKEN for finding in hits):
            occurred.append(entry)
        elif any(finding.verdict == "pass" for finding in hits):
            stale.append(entry)
    return msgspec.structs.replace(examination, expected=tuple(dict.fromkeys(occurred)), stale=tuple(stale))
