"""The values of an examination: checks, messages as evidence, findings, profiles and the score.

A check has a level of the specification. A broken MUST fails; a broken SHOULD or MAY is advice. A check that does not apply (the
capability is not declared) leaves the count. A check that could not run stays in it, and makes the examination incomplete.

The score: 95 points for the share of MUST checks that passed, 5 for advice (a broken SHOULD costs 2, a MAY 1). An examination that
failed or is incomplete has at most 94, so 95 and more always means that no violation was found.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from proctor.model.evidence import Json

Level = Literal["MUST", "SHOULD", "MAY"]
Verdict = Literal["pass", "fail", "advice", "not_applicable", "could_not_run"]
Area = Literal[
    "transport",
    "wire",
    "lifecycle",
    "errors",
    "paging",
    "tools",
    "resources",
    "prompts",
    "utilities",
    "caching",
    "subscriptions",
    "http",
    "authorization",
    "surface",
    "security",
    "calls",
]

HANDSHAKE: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS: Final = ("2026-07-28",)
REVISIONS: Final = (*HANDSHAKE, *STATELESS)
"""The published revisions of the protocol, oldest first."""

_PAGES: Final = {
    "basic/lifecycle": "server/discover",
    **{f"basic/utilities/{name}": f"basic/patterns/{name}" for name in ("cancellation", "progress", "subscriptions")},
}
"""Pages of the handshake revisions, and where the stateless one has their rules."""
_REPOSITORY: Final = "https://github.com/modelcontextprotocol/modelcontextprotocol/blob/main"

BROKEN: Final = ("fail", "advice")
NO_TOKEN: Final = "the server demands a token"
"""Why the rest could not run, if no token was given."""
FULL, CAPPED = 100, 94
_MOST_REASONS: Final = 6
"""Reasons of one finding; the rest is counted."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One claim about a server, with its clause of the specification."""

    id: str
    area: Area
    level: Level
    claim: str
    """What is true of a correct server."""
    clause: str
    """The page of the specification, below its revision."""
    revisions: tuple[str, ...] = REVISIONS
    transports: tuple[str, ...] = ("stdio", "http")
    part: Literal["base", "calls", "authorization"] = "base"
    """`calls` and `authorization` apply only if that part was requested."""
    since: int = 1
    """The version of the profiles that the check was added in."""

    def find_page(self, revision: str) -> str:
        """Return the address of its clause; a revision without such a page has its rules elsewhere."""
        clause = self.clause
        if revision in STATELESS:
            if clause.endswith("/tasks"):
                return "https://modelcontextprotocol.io/seps/2663-tasks-extension"
            one = {"stdio": "/stdio", "http": "/streamable-http"}[self.transports[0]] if len(self.transports) == 1 else ""
            clause = f"basic/transports{one}" if self.area in ("transport", "http") else _PAGES.get(clause, clause)
        elif clause == "schema" and revision < "2025-06-18":
            return f"{_REPOSITORY}/schema/{revision}/schema.ts"
        elif clause == "basic/authorization":
            revision = max(revision, "2025-03-26")
        return f"https://modelcontextprotocol.io/specification/{revision}/{clause}"


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that was sent or received, as evidence."""

    number: int
    """Its position among all messages of the examination."""
    direction: Literal["sent", "received"]
    text: str
    """The message, shortened, without secrets."""
    http: str = ""
    """Over HTTP: the request line or the status, and the headers that matter."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was found for one check."""

    check: str
    area: Area
    level: Level
    verdict: Verdict
    reason: str = ""
    evidence: tuple[Message, ...] = ()


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The checks of one revision of the protocol, frozen under a version: two scores of one profile can be compared."""

    revision: str
    version: int
    checks: tuple[Check, ...]

    @property
    def name(self) -> str:
        """The name under which `--profile` selects it."""
        return f"mcp-{self.revision}@{self.version}"


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one revision."""

    revision: str
    profile: str
    findings: tuple[Finding, ...]
    score: int | None
    """None if no check applied."""
    incomplete: bool


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """One address of the authorization metadata, as it was tried."""

    url: str
    what: str
    status: str


class Examination(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of examining one server."""

    target: str
    """The command or the address, without secrets."""
    transport: str
    server: str = ""
    """Its name and version, as it reports them."""
    seconds: float = 0.0
    examined: tuple[Examined, ...] = ()
    notes: tuple[str, ...] = ()
    metadata: tuple[Probed, ...] = ()
    snapshot: Json = None
    """The definitions of tools, resources and prompts, as a lock file stores them."""
    messages: int = 0
    tool_calls: int = 0
    """Calls of tools that were declared in `calls.yaml`; without it, 0."""
    stale: tuple[str, ...] = ()
    """Expected failures that did not occur."""
    expected: tuple[str, ...] = ()
    """Expected failures that did occur."""
    changes: tuple[Json, ...] = ()
    """Differences from the lock file."""
    run_id: str = ""
    """The stored run, if it was stored."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all revisions."""
        return tuple(finding for part in self.examined for finding in part.findings)

    @property
    def score(self) -> int | None:
        """The lowest score of the revisions."""
        return min((part.score for part in self.examined if part.score is not None), default=None)

    @property
    def incomplete(self) -> bool:
        """Whether a check could not run."""
        return not self.examined or any(part.incomplete for part in self.examined)

    def list_failures(self) -> list[Finding]:
        """Return the failures that were not expected."""
        return [
            finding for part in self.examined for finding in part.findings if finding.verdict == "fail" and not self.expects(finding, part)
        ]

    def expects(self, finding: Finding, part: Examined) -> bool:
        """Return whether a failure is listed as expected, in every revision or in this one."""
        return finding.check in self.expected or f"{finding.check}@{part.revision}" in self.expected

    @property
    def failed(self) -> bool:
        """Whether a MUST is broken, an expected failure did not occur, or a locked definition changed in a way that breaks or misleads."""
        return bool(self.list_failures() or self.stale or any(isinstance(change, dict) and change.get("fails") for change in self.changes))


class Verdicts:
    """Collects what is found for the checks of one profile. A violation wins over everything, an obstacle over a pass."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._broken: dict[str, list[str]] = {}
        self._evidence: dict[str, tuple[Message, ...]] = {}
        self._obstacles: dict[str, str] = {}
        self._passed: set[str] = set()
        self._skipped: dict[str, str] = {}

    def ok(self, *checks: str) -> None:
        """Note that these checks held so far."""
        self._passed.update(checks)

    def broken(self, check: str, reason: str, *evidence: Message | None) -> None:
        """Note a violation. Several of one check are joined."""
        reasons = self._broken.setdefault(check, [])
        if reason not in reasons:
            reasons.append(reason)
            self._evidence.setdefault(check, tuple(message for message in evidence if message is not None))

    def require(self, check: str, holds: bool, reason: str, *evidence: Message | None) -> bool:
        """Note a pass or a violation, and return which."""
        if holds:
            self.ok(check)
        else:
            self.broken(check, reason, *evidence)
        return holds

    def skip(self, reason: str, *checks: str) -> None:
        """Note that checks do not apply."""
        for check in checks:
            self._skipped.setdefault(check, reason)

    def obstruct(self, reason: str, *checks: str) -> None:
        """Note that checks could not run."""
        for check in checks:
            self._obstacles.setdefault(check, reason)

    def take_over(self, other: Verdicts, *checks: str) -> None:
        """Note what another collection found for these checks."""
        self._broken |= {check: other._broken[check] for check in checks if check in other._broken}
        self._obstacles |= {check: other._obstacles[check] for check in checks if check in other._obstacles}
        self._skipped |= {check: other._skipped[check] for check in checks if check in other._skipped}
        self._passed |= other._passed & set(checks)

    def is_broken(self, check: str) -> bool:
        """Return whether a violation was noted."""
        return check in self._broken

    def finish(self, reason: str) -> Examined:
        """Return the findings; a check without any could not run, for this reason."""
        findings = tuple(self._decide(check, reason) for check in self.profile.checks)
        score, incomplete = compute_score(findings)
        return Examined(revision=self.profile.revision, profile=self.profile.name, findings=findings, score=score, incomplete=incomplete)

    def _decide(self, check: Check, reason: str) -> Finding:
        verdict: Verdict
        if check.id in self._broken:
            reasons = self._broken[check.id]
            rest = f" (and {len(reasons) - _MOST_REASONS} more)" if len(reasons) > _MOST_REASONS else ""
            verdict, why = ("fail" if check.level == "MUST" else "advice"), "; ".join(reasons[:_MOST_REASONS]) + rest
        elif check.id in self._obstacles:
            verdict, why = "could_not_run", self._obstacles[check.id]
        elif check.id in self._passed:
            verdict, why = "pass", ""
        elif check.id in self._skipped:
            verdict, why = "not_applicable", self._skipped[check.id]
        else:
            verdict, why = "could_not_run", reason
        evidence = self._evidence.get(check.id, ())
        return Finding(check=check.id, area=check.area, level=check.level, verdict=verdict, reason=why, evidence=evidence)


def compute_score(findings: tuple[Finding, ...]) -> tuple[int | None, bool]:
    """Return the score of these findings, and whether they are incomplete."""
    applicable = [finding for finding in findings if finding.verdict != "not_applicable"]
    if not applicable:
        return None, False
    required = [finding for finding in applicable if finding.level == "MUST"]
    incomplete = any(finding.verdict == "could_not_run" for finding in applicable)
    passed = sum(finding.verdict == "pass" for finding in required)
    deducted = sum(2 if finding.level == "SHOULD" else 1 for finding in applicable if finding.verdict == "advice")
    score = 95 * passed // len(required) if required else 95
    if score:
        score += max(0, FULL - 95 - deducted)
    if incomplete or passed < len(required):
        score = min(score, CAPPED)
    return score, incomplete
