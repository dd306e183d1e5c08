"""Claims about the requests that were made to simulated systems.

A request fits where everything that is named does: its system, its method, its path (a pattern: `*` stays inside a part of it, `**` crosses
parts; the query is left out) and the status it was answered with. `then` lists what must come after, each later than the one before.
Requests inside of another one, the entries of a FHIR batch, are requests as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.checks.caution import Reads
from proctor.checks.registry import Decide, check
from proctor.codecs.query import decode_percent
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence, State, StateRequest
from proctor.model.show import nearest, show
from proctor.model.verdict import Verdict, failed, missing, passed
from proctor.patterns.globs import LONGEST_PATH, compile_glob, matches_glob
from proctor.work import spend

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBHOOK")
"""Methods of requests; by the last one a system goes on by itself."""
_PER_REQUEST = 5
"""Steps that looking at one request counts, beside those of its path."""
_SHOWN = 3
"""Requests that a reason names."""


class RequestPattern(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which requests are meant."""

    method: str | None = None
    """GET, POST, PUT, PATCH or DELETE; left out: any."""
    path: str | None = None
    """A path below the root of the system, or a pattern: `/Appointment/*`; left out: any."""
    system: str | None = None
    """The name of the system in the suite; left out: any."""
    status: int | None = None
    """The status of the answer; left out: any."""


class RequestMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request was made to a simulated system, so often and in this order."""

    method: str | None = None
    """GET, POST, PUT, PATCH or DELETE; left out: any."""
    path: str | None = None
    """A path below the root of the system, or a pattern: `/Appointment/*`; left out: any."""
    system: str | None = None
    """The name of the system in the suite; left out: any."""
    status: int | None = None
    """The status of the answer; left out: any."""
    at_least: int = 1
    """How often at least."""
    at_most: int | None = None
    """How often at most."""
    then: tuple[RequestPattern, ...] = ()
    """Requests that must come after the first one that fits, each later than the one before."""


class RequestNotMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """No such request was made to a simulated system."""

    method: str | None = None
    """GET, POST, PUT, PATCH or DELETE; left out: any."""
    path: str | None = None
    """A path below the root of the system, or a pattern: `/Appointment/*`; left out: any."""
    system: str | None = None
    """The name of the system in the suite; left out: any."""
    status: int | None = None
    """The status of the answer; left out: any."""


class _Seen(msgspec.Struct, frozen=True, gc=False):
    """One request that was made, by itself or inside of another."""

    index: int
    """Of the request that it is, or that holds it."""
    system: str
    method: str
    path: str
    status: int

    @classmethod
    def list_all(cls, requests: Sequence[StateRequest]) -> list[_Seen]:
        """Return all requests in order, what one holds behind it."""
        return [
            cls(index, request.system, one.method, one.path, one.status)
            for index, request in enumerate(requests)
            for one in (request, *request.inside)
        ]


class _Pattern:
    """A pattern of requests, prepared."""

    def __init__(self, spec: RequestPattern | RequestMade | RequestNotMade, field: str = "") -> None:
        self._spec = spec
        self._method = spec.method.upper() if spec.method is not None else None
        if self._method is not None and self._method not in _METHODS:
            near = nearest(self._method, _METHODS)
            raise SpecError(f"unknown method {show(spec.method)}; there are {', '.join(_METHODS)}", field=f"{field}method", nearest=near)
        self._glob = None if spec.path is None else compile_glob(_normalize_path(spec.path) if spec.path else "")

    def require_system(self, state: State) -> None:
        """Refuse to tell of a system that is not there: no request to it was ever made."""
        name = self._spec.system
        if name is not None and state.systems is not None and name not in state.systems:
            near = nearest(name, state.systems)
            more = f"; nearest: {', '.join(near)}" if near else ""
            raise CheckFault("unknown_system", f"there is no system {show(name, 80)}; there are {', '.join(state.systems) or 'none'}{more}")

    def fits(self, request: _Seen) -> bool:
        spend(_PER_REQUEST)
        spec = self._spec
        return (
            self._method in (None, request.method)
            and spec.system in (None, request.system)
            and spec.status in (None, request.status)
            and (self._glob is None or self._fits_path(self._glob, request.path.partition("?")[0]))
        )

    def _fits_path(self, glob: tuple[str, ...], path: str) -> bool:
        spend(len(path) // 16)
        path = _normalize_path(path)
        if len(path) > LONGEST_PATH:
            raise CheckFault("path_limit", f"a request has a path of {len(path)} characters, and {LONGEST_PATH} are compared")
        return matches_glob(glob, path, spend)

    def describe(self) -> str:
        spec = self._spec
        told = " ".join(part for part in (self._method or "request", spec.path) if part)
        return told + (f" to {spec.system}" if spec.system else "") + (f" answered {spec.status}" if spec.status is not None else "")


def _normalize_path(path: str) -> str:
    """Return a path as all who mean the same write it: `//Patient/%61nn/` is `/Patient/ann`; a slash that was encoded stays so."""
    parts = (decode_percent(part.replace("%2f", "%2F").replace("%2F", "%252F")) for part in path.split("/"))
    return "/" + "/".join(part for part in parts if part)


def _describe(requests: list[_Seen]) -> str:
    more = f" and {len(requests) - _SHOWN} more" if len(requests) > _SHOWN else ""
    return ", ".join(f"{one.method} {show(one.path, 80)[1:-1]} ({one.status})" for one in requests[:_SHOWN]) + more


def _point_at(requests: list[_Seen]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"$.state.requests[{one.index}]" for one in requests[:10]))


@check(
    "request_made",
    shorthand="path",
    example="request_made: {method: POST, path: /Appointment, system: clinic, at_most: 1}",
    # How often and in which order: nothing of that is certain where some requests were not seen.
    reads=Reads(("state",), "exact", "fail"),
    product=True,
)
def request_made(spec: RequestMade) -> Decide:
    """A request was made to a simulated system, so often and in this order."""
    if spec.at_least < 0 or (spec.at_most is not None and spec.at_most < spec.at_least):
        raise SpecError(f"expected 0 <= at_least <= at_most, found {spec.at_least} and {spec.at_most}", field="at_least")
    pattern, following = _Pattern(spec), tuple(_Pattern(one, f"then.{index}.") for index, one in enumerate(spec.then))
    what = pattern.describe()

    def decide(evidence: Evidence) -> Verdict:
        state = evidence.state
        if state is None or state.requests is None:
            return missing("requests to simulated systems")
        for one in (pattern, *following):
            one.require_system(state)
        requests = _Seen.list_all(state.requests)
        found = [one for one in requests if pattern.fits(one)]
        details = {"requests": len(requests), "matches": len(found)}
        if len(found) < spec.at_least or (spec.at_most is not None and len(found) > spec.at_most):
            bound = f"at least {spec.at_least}" if len(found) < spec.at_least else f"at most {spec.at_most}"
            told = f": {_describe(found)}" if found else f" among {len(requests)} requests"
            return failed(f"expected {bound} {what}, found {len(found)}{told}", details=details, pointers=_point_at(found))
        position = requests.index(found[0]) if found else -1
        for after in following:
            later = next((index for index in range(position + 1, len(requests)) if after.fits(requests[index])), None)
            if later is None:
                before = f"{requests[position].method} {requests[position].path}" if position >= 0 else "the beginning"
                return failed(
                    f"expected {after.describe()} after {show(before)[1:-1]}, found none",
                    code="wrong_order",
                    details=details,
                    pointers=_point_at(found),
                )
            position = later
        return passed(f"{what} was made {len(found)} times: {_describe(found)}", details=details, pointers=_point_at(found))

    return decide


@check(
    "request_not_made",
    shorthand="path",
    example="request_not_made: {method: DELETE, system: clinic}",
    reads=Reads(("state",), "absence"),
    product=True,
)
def request_not_made(spec: RequestNotMade) -> Decide:
    """No such request was made to a simulated system."""
    pattern = _Pattern(spec)
    what = pattern.describe()

    def decide(evidence: Evidence) -> Verdict:
        state = evidence.state
        if state is None or state.requests is None:
            return missing("requests to simulated systems")
        pattern.require_system(state)
        requests = _Seen.list_all(state.requests)
        found = [one for one in requests if pattern.fits(one)]
        if found:
            return failed(f"expected no {what}, found {_describe(found)}", details={"matches": len(found)}, pointers=_point_at(found))
        return passed(f"no {what} among {len(requests)} requests")

    return decide
