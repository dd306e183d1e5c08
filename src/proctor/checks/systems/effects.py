"""Claims about what was done to simulated systems: requests, and changes of their state.

Claims about the requests that were made to simulated systems.

A request matches if everything that the claim names matches: system, method, path (a pattern: `*` stays inside a segment, `**` crosses
segments; the query is ignored) and response status. The path matches as sent or decoded: `%50atient` is `Patient`, and empty parts do not
count. A request inside a batch or a transaction counts like any other request. `then` lists what must come after, each later than the one
before. For a system that the run did not have, the requests are unknown.

Claims that nothing changed in simulated systems except what is listed.

Every difference from the initial state is examined. It is allowed if its place is in `besides`, or if an entry of `allowed` accepts it, up
to the entry's count. A place is `SYSTEM/PLACE`: `clinic/Appointment/17`, `shop/orders/7`, `drop/outbox/a.json`, or a pattern, in which `*`
stays inside a segment and `**` crosses segments.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.codecs.http import decode_percent
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, StateChange, StateRequest
from proctor.model.show import count_rest, nearest, show
from proctor.model.verdict import Verdict, errored, failed, missing, passed
from proctor.patterns.globs import LONGEST_PATH, compile_address, matches_glob
from proctor.work import spend

_PER_REQUEST = 5
"""The number of steps for comparing one request, apart from its path."""
_SHOWN = 3
"""The maximum number of requests in a reason."""
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "MOVE", "WEBHOOK")
"""HTTP methods, `MOVE` for SFTP, and `WEBHOOK` for a request from a system to the agent."""


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


class RequestMade(RequestPattern, frozen=True, kw_only=True, omit_defaults=True):
    """A request was made to a simulated system, so often and in this order."""

    at_least: int = 1
    """How often at least."""
    at_most: int | None = None
    """How often at most."""
    then: tuple[RequestPattern, ...] = ()
    """Requests that must come after the first one that fits, each later than the one before."""


class RequestNotMade(RequestPattern, frozen=True, kw_only=True, omit_defaults=True):
    """No such request was made to a simulated system."""


class _Pattern:
    """A pattern of requests, prepared."""

    def __init__(self, spec: RequestPattern, at: str = "") -> None:
        self._spec = spec
        self.system = spec.system
        word = spec.method.upper() if spec.method is not None else None
        if word is not None and word not in _METHODS:
            message = f"method: expected one of {', '.join(_METHODS)}, found {show(spec.method)}"
            raise SpecError(message, field=f"{at}method", nearest=nearest(word, _METHODS))
        self._method = word
        self._glob = compile_address(spec.path, f"{at}path") if spec.path is not None else None
        self._folded = compile_address(spec.path.lower(), f"{at}path") if spec.path is not None else None
        if spec.status is not None and not 100 <= spec.status <= 599:
            raise SpecError(f"status: expected a number from 100 to 599, found {spec.status}", field=f"{at}status")

    def fits(self, request: StateRequest) -> bool:
        spend(_PER_REQUEST)
        return self._fits_apart_from_path(request) and (
            self._glob is None or any(matches_glob(self._glob, path, spend) for path in _list_paths(request.path))
        )

    def fits_in_other_case(self, request: StateRequest) -> bool:
        """Return whether an answered request matches except for case, which means that the pattern is wrong."""
        paths = _list_paths(request.path.lower()) if self._folded is not None and request.status < 400 else ()
        return self._fits_apart_from_path(request) and any(matches_glob(self._folded or (), path, spend) for path in paths)

    def is_unclear(self, request: StateRequest) -> bool:
        """Return whether a request cannot be compared because its path is too long for a pattern."""
        return self._glob is not None and len(request.path) > LONGEST_PATH and self._fits_apart_from_path(request)

    def _fits_apart_from_path(self, request: StateRequest) -> bool:
        spec = self._spec
        return (
            self._method in (None, request.method.upper())
            and spec.system in (None, request.system)
            and spec.status in (None, request.status)
        )

    def describe(self) -> str:
        spec = self._spec
        text = " ".join(part for part in (self._method or "request", spec.path) if part)
        return text + (f" to {spec.system}" if spec.system else "") + (f" answered {spec.status}" if spec.status is not None else "")


def _list_paths(target: str) -> set[str]:
    """Return a path as it was sent, and as systems interpret it."""
    sent = target.partition("?")[0]
    # An encoded slash stays encoded: it is part of a segment.
    parts = (decode_percent(part.replace("%2f", "%2F").replace("%2F", "%252F")) for part in sent.split("/"))
    read = "/".join(part for part in parts if part)
    return {sent, read}


def _list_requests(evidence: Evidence, patterns: tuple[_Pattern, ...]) -> list[tuple[int, StateRequest]] | Verdict:
    """Return all requests with their positions, inner requests after their outer one; a verdict if requests are unknown."""
    state = evidence.state
    if state is None or state.requests is None:
        return missing("requests to simulated systems")
    for name in (pattern.system for pattern in patterns):
        if name is not None and state.systems is not None and name not in state.systems:
            near = nearest(name, state.systems) or state.systems
            hint = f" (there are {', '.join(map(show, near))})" if near else ""
            return missing(f"requests to the system {show(name)}, which is not part of this run{hint},")
    found: list[tuple[int, StateRequest]] = []
    for index, request in enumerate(state.requests):
        found.append((index, request))
        for one in request.inside:
            found.append((index, StateRequest(system=request.system, method=one.method, path=one.path, status=one.status)))
    return found


def _report_wrong_case(requests: list[tuple[int, StateRequest]], pattern: _Pattern) -> Verdict | None:
    """Return the error for a pattern that matches no request, but matches one without case."""
    for _, other in requests:
        if pattern.fits_in_other_case(other):
            paths = f"no {pattern.describe()}, but {show(other.path, 80)[1:-1]}"
            return errored("wrong_case", f"{paths}: upper and lower case differ in paths")
    return None


def _report_unclear(requests: list[tuple[int, StateRequest]], pattern: _Pattern) -> Verdict | None:
    """Return the verdict for a request that may or may not match."""
    for index, one in requests:
        if pattern.is_unclear(one):
            path = f"whose path has more than {LONGEST_PATH} characters"
            return missing(f"whether $.state.requests[{index}], {path}, is a {pattern.describe()} is")
    return None


def _describe(requests: list[tuple[int, StateRequest]]) -> str:
    more = count_rest(len(requests), _SHOWN)
    return ", ".join(f"{one.method} {show(one.path, 80)[1:-1]} ({one.status})" for _, one in requests[:_SHOWN]) + more


def _point_at(requests: list[tuple[int, StateRequest]]) -> tuple[str, ...]:
    return tuple(f"$.state.requests[{index}]" for index, _ in requests[:10])


@check(
    "request_made",
    shorthand="path",
    example="request_made: {method: POST, path: /Appointment, system: clinic, at_most: 1}",
    # At most N requests with no minimum is a claim of absence: unseen requests can only break it.
    reads=lambda spec: Reads(("state",), "absence") if spec.at_least == 0 and not spec.then else Reads(("state",), "exact", "fail"),
    product=True,
)
def request_made(spec: RequestMade) -> Decide:
    """A request was made to a simulated system, so often and in this order."""
    if spec.at_least < 0 or (spec.at_most is not None and spec.at_most < spec.at_least):
        raise SpecError(f"expected 0 <= at_least <= at_most, found {spec.at_least} and {spec.at_most}", field="at_least")
    pattern = _Pattern(spec)
    following = tuple(_Pattern(one, f"then.{index}.") for index, one in enumerate(spec.then))
    what = pattern.describe()

    def decide(evidence: Evidence) -> Verdict:
        if isinstance(requests := _list_requests(evidence, (pattern, *following)), Verdict):
            return requests
        positions = [position for position, (_, one) in enumerate(requests) if pattern.fits(one)]
        found = [requests[position] for position in positions]
        details = {"requests": len(requests), "matches": len(found)}
        if not found and (unclear := _report_wrong_case(requests, pattern)):
            return unclear
        if len(found) < spec.at_least or (spec.at_most is not None and len(found) > spec.at_most):
            bound = f"at least {spec.at_least}" if len(found) < spec.at_least else f"at most {spec.at_most}"
            text = f": {_describe(found)}" if found else f" among {len(requests)} requests"
            return failed(f"expected {bound} {what}, found {len(found)}{text}", details=details, pointers=_point_at(found))
        # One more could be too many.
        if spec.at_most is not None and (unclear := _report_unclear(requests, pattern)):
            return unclear
        position = positions[0] if positions else -1
        for after in following:
            later = next((index for index in range(position + 1, len(requests)) if after.fits(requests[index][1])), None)
            if later is None:
                previous = f"{requests[position][1].method} {requests[position][1].path}" if position >= 0 else "the beginning"
                return failed(
                    f"expected {after.describe()} after {show(previous)[1:-1]}, found none",
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
        if isinstance(requests := _list_requests(evidence, (pattern,)), Verdict):
            return requests
        found = [entry for entry in requests if pattern.fits(entry[1])]
        if found:
            return failed(f"expected no {what}, found {_describe(found)}", details={"matches": len(found)}, pointers=_point_at(found))
        if unclear := _report_wrong_case(requests, pattern) or _report_unclear(requests, pattern):
            return unclear
        return passed(f"no {what} among {len(requests)} requests")

    return decide


_PER_CHANGE = 5
"""The number of steps for comparing one change, apart from its path."""


class AllowedChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Changes that are meant to be there."""

    place: str
    """A place or a pattern: `clinic/Appointment/*`."""
    change: Literal["added", "changed", "removed"] | None = None
    """What happened there; left out: anything."""
    at_most: int | None = None
    """How many such changes; left out: any number."""


class Unchanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nothing differs in the simulated systems but what is named."""

    besides: tuple[str, ...] = ()
    """Places that may differ: `clinic/Appointment/*`."""
    allowed: tuple[AllowedChange, ...] = ()
    """Changes that may be there, of one kind or so many."""


@check(
    "unchanged",
    shorthand="besides",
    example="unchanged: {allowed: [{place: clinic/Appointment/*, change: added, at_most: 1}]}",
    reads=Reads(("state",), "absence"),
    product=True,
)
def unchanged(spec: Unchanged) -> Decide:
    """Nothing differs in the simulated systems but what is named."""
    besides = tuple(compile_address(place, f"besides.{index}") for index, place in enumerate(spec.besides))
    allowed = tuple((entry, compile_address(entry.place, f"allowed.{index}.place")) for index, entry in enumerate(spec.allowed))
    for index, entry in enumerate(spec.allowed):
        if entry.at_most is not None and entry.at_most < 0:
            raise SpecError(f"at_most: expected 0 or more, found {entry.at_most}", field=f"allowed.{index}.at_most")

    def decide(evidence: Evidence) -> Verdict:
        changes = evidence.state.changes if evidence.state is not None else None
        if changes is None:
            return missing("changes of simulated systems")
        left = [entry.at_most for entry, _ in allowed]
        unexpected: list[tuple[int, StateChange]] = []
        for index, change in enumerate(changes):
            spend(_PER_CHANGE)
            place = f"{change.system}/{change.place}"
            # Before `allowed`: changes in `besides` must not use up the count of an entry.
            if any(matches_glob(glob, place, spend) for glob in besides):
                continue
            if not _use_allowance(change, place, allowed, left):
                unexpected.append((index, change))
        details = {"changes": len(changes), "unexpected": [describe_change(change) for _, change in unexpected[:100]]}
        if not unexpected:
            return passed(f"nothing else changed in the systems ({len(changes)} changes in all)", details=details)
        more = count_rest(len(unexpected), _SHOWN)
        listed = ", ".join(describe_change(change) for _, change in unexpected[:_SHOWN])
        pointers = tuple(f"$.state.changes[{index}]" for index, _ in unexpected[:10])
        return failed(f"expected no other change, found {listed}{more}", details=details, pointers=pointers)

    return decide


def _use_allowance(
    change: StateChange, place: str, allowed: tuple[tuple[AllowedChange, tuple[str, ...]], ...], left: list[int | None]
) -> bool:
    """Return whether an entry accepts the change, and decrease its remaining count."""
    for position, (entry, glob) in enumerate(allowed):
        remaining = left[position]
        if entry.change in (None, change.change) and remaining != 0 and matches_glob(glob, place, spend):
            left[position] = None if remaining is None else remaining - 1
            return True
    return False


def describe_change(change: StateChange) -> str:
    """Return a change in a few words: `clinic/Appointment/17 added`."""
    return f"{show(f'{change.system}/{change.place}', 100)[1:-1]} {change.change}"
