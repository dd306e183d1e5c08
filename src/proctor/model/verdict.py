"""The answer to one assertion: what was decided, why, and where to look.

`pass` and `fail` are decisions. `error` means that no decision could be made (a bad spec, a judge that is down). `skip` means that none was
wanted (a dependency failed, or the author chose so). Missing instrumentation has the code `missing_evidence` and never passes: a claim of
presence fails, any other claim is an `error`, unless the assertion sets `when_missing`.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from proctor.model.evidence import Json

Outcome = Literal["pass", "fail", "error", "skip"]
OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "error", "skip")


class TextRange(msgspec.Struct, frozen=True, gc=False):
    """A piece of a text in the evidence: `path` leads to the text, `start` and `end` count its characters.

    Characters are Unicode code points, from 0; `end` is the first one after the piece. A claim about one turn has paths into that turn,
    as its pointers are.
    """

    path: str
    start: int
    end: int


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The decision about one assertion.

    `code` is a stable word for machines when the outcome is not a plain pass or fail. `pointers` are paths into the
    evidence (`$.tool_calls[2].arguments.id`) that a report can highlight.
    """

    outcome: Outcome
    score: float
    reason: str
    code: str | None = None
    details: dict[str, Json] = {}
    pointers: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the outcome is `pass`."""
        return self.outcome == "pass"

    def with_words(self) -> "Verdict":
        """Return the verdict with its explanation; itself, unless the explanation was deferred."""
        return self


class DeferredVerdict(Verdict, frozen=True, gc=False):
    """A verdict whose reason is written only when it is read.

    Deciding takes a microsecond, explaining takes ten: over a stream of failures that are never read, that would be
    most of the work. Behaves and compares like any other verdict.
    """

    explain: Callable[[], Verdict] | Verdict | None = None

    def with_words(self) -> "Verdict":
        """Return the verdict with its explanation."""
        known = self.explain
        if not isinstance(known, Verdict):
            assert known is not None
            known = known()
            # The only change to a frozen value: the explanation is built once. Two threads that build it at once get the same.
            msgspec.structs.force_setattr(self, "explain", known)
        return known

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Verdict) or other.outcome != self.outcome:
            return False
        return self.with_words() == other.with_words()

    def __hash__(self) -> int:
        # Without the explanation, so that a set of verdicts does not build all of them.
        return hash((self.outcome, self.score, self.code))

    def __repr__(self) -> str:
        return repr(self.with_words())

    def __reduce__(self) -> tuple[object, ...]:
        # A pickle contains the explanation, not the function that builds it.
        whole = self.with_words()
        return (Verdict, (whole.outcome, whole.score, whole.reason, whole.code, whole.details, whole.pointers))


# The explanation of a deferred verdict replaces the empty fields it was created with.
for _name in ("reason", "details", "pointers"):
    setattr(DeferredVerdict, _name, property(lambda self, name=_name: getattr(self.with_words(), name)))


def defer_verdict(explain: Callable[[], Verdict]) -> Verdict:
    """Return a failed verdict with score 0 and no code; `explain` builds its explanation when it is read."""
    return DeferredVerdict("fail", 0.0, "", None, {}, (), explain)


def passed(reason: str, *, details: dict[str, Json] | None = None, pointers: tuple[str, ...] = (), score: float = 1.0) -> Verdict:
    """Return a verdict that the claim holds."""
    return Verdict("pass", score, reason, None, details or {}, pointers)


def failed(
    reason: str,
    *,
    code: str | None = None,
    details: dict[str, Json] | None = None,
    pointers: tuple[str, ...] = (),
    score: float = 0.0,
) -> Verdict:
    """Return a verdict that the claim does not hold; `reason` has the expected and the actual value."""
    return Verdict("fail", score, reason, code, details or {}, pointers)


def errored(code: str, reason: str, *, details: dict[str, Json] | None = None) -> Verdict:
    """Return a verdict that no decision could be made."""
    return Verdict("error", 0.0, reason, code, details or {})


def skipped(code: str, reason: str) -> Verdict:
    """Return a verdict that no decision was wanted."""
    return Verdict("skip", 0.0, reason, code)


def missing(what: str) -> Verdict:
    """Fail a claim because the evidence lacks its subject; `proctor.checks.registry` may turn that into an `error`."""
    return lacking(f"{what} not recorded in this evidence")


def lacking(why: str) -> Verdict:
    """Fail a claim like `missing`, for a reason given by the caller."""
    return Verdict("fail", 0.0, why, "missing_evidence")
