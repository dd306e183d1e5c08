"""Messages between a decision process and its callers: plain data.

`record_verdicts.py` does the work; `suite_verdicts.py` makes requests and reads results.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec

from proctor.decide.selection import select
from proctor.formats.suites import read_suite
from proctor.model.account import Known
from proctor.model.case import Case, Suite
from proctor.model.cost import PriceList
from proctor.model.evidence import Cost, Json, Source
from proctor.model.judgement import Opinion
from proctor.model.mapping import DeclaredEvidence
from proctor.model.result import AxisScore, CaseResult, CaseVerdict
from proctor.model.typed import convert_to, decode_json, make_msgpack_decoder
from proctor.model.verdict import Outcome, Verdict, errored
from proctor.service.decisions.trace_verdicts import CaseText, Finding
from proctor.store.sql.compressed_json import from_json

TIME_LIMIT = "time_limit"
MEMORY_LIMIT = "memory_limit"
CRASHED = "evaluation_crashed"

T = TypeVar("T")
Opinions = tuple[tuple[Opinion, ...], ...]
"""The judge's opinions so far, by round."""


class SuiteSource(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Everything needed to read a suite again in another process."""

    text: str
    dialect: str | None = None
    name: str | None = None
    library: bytes | None = None
    """JSON: the library of an MCPLab suite, from the settings of its project."""
    in_project: bool = False
    """Whether it may have references."""
    selection: str | None = None
    own_agents: bool = False
    """Whether every case runs once with each of the suite's own agents."""
    prices: bytes | None = None
    """JSON: model prices, from the settings of the project."""

    @property
    def make_key(self) -> str:
        """A hash of the content."""
        # By content: requests with the same suite share its preparation in a process.
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()

    def read(self) -> Suite:
        """Read the suite. Raises `InputError`."""
        from proctor.service.suites.mcplab import ALONE, library_of  # only MCPLab suites need it

        described = None if self.library is None else from_json(self.library)
        suite = read_suite(
            self.text, dialect=self.dialect, name=self.name, library=lambda: library_of(described) if self.in_project else ALONE
        )
        suite = select(suite, self.selection)
        if self.own_agents:
            from proctor.service.suites.mcplab import plan_sent_suite  # imports everything that runs agents

            suite = plan_sent_suite(suite).suite
        if self.prices is not None:
            suite = msgspec.structs.replace(suite, prices=decode_json(self.prices, PriceList))
        return suite


class CaseAsk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One case to decide."""

    position: int
    id: str
    opinions: bytes | None = None
    """The judge's opinions so far, packed."""


class CaseWork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="case"):
    """One record and its cases."""

    suite: str
    evidence: bytes
    asks: Sequence[CaseAsk]
    attempt: int = 0
    clock: str | None = None
    judging: bool = False
    fail_fast: bool = False


class TraceWork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="trace"):
    """One trace and one document, of which only the judged cases are left."""

    pieces: Sequence[bytes]
    response_path: str | None
    declared: DeclaredEvidence | None = None
    """The agent's `evidence` declaration."""
    clock: str
    position: int
    text: CaseText
    opinions: dict[str, bytes] = {}
    """By case, packed."""


class ReadWork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="read"):
    """Evidence as sent."""

    sent: bytes
    """Packed."""
    format: str | None = None
    declared: DeclaredEvidence | None = None


class MutationWork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="mutation"):
    """Passing attempts of a run, in which faults are planted."""

    suite: str
    entries: Sequence[bytes]
    """Packed."""


Work = CaseWork | TraceWork | ReadWork | MutationWork


class Job(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="job"):
    """Work that is sent together."""

    works: Sequence[Work]
    suites: dict[str, SuiteSource] = {}
    """Suites that the process does not have yet."""
    forget: Sequence[str] = ()


class Step(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome of one case: a result, or questions for the judge."""

    id: str
    result: bytes | None = None
    questions: bytes | None = None
    finding: Finding | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome of one piece of work."""

    steps: Sequence[Step] = ()
    evidence: Sequence[bytes] = ()
    """Evidence that was read; for planted faults the packed result."""
    error: tuple[str, str] | None = None
    """Why there is no result: a code and a message."""
    blames: Literal["evidence", "suite", "work"] = "work"
    undone: bool = False
    """Not started."""
    spent_s: float = 0.0
    last: bool = False
    """Whether the process ends after this answer."""


class _Outcome(msgspec.Struct, frozen=True, array_like=True):
    """A result without its case, which the caller already has."""

    outcome: Outcome
    score: float | None
    verdicts: tuple[Verdict, ...]
    verdict: CaseVerdict | None
    axes: dict[str, AxisScore] | None
    attempt: int
    extracted: dict[str, Json]
    code: str | None
    reason: str | None
    now: str | None
    account: Known | None
    cost: Cost | None


def pack_plain(value: object) -> bytes:
    """Return a value as MessagePack, or as JSON for lone surrogates and numbers that MessagePack does not support."""
    try:
        return b"m" + msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return b"j" + json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def unpack_plain(data: bytes, type: type[T] | Any) -> T:
    """Return the value given to `pack_plain`."""
    if data[:1] == b"m":
        return _get_decoder(type).decode(data[1:])
    return convert_to(json.loads(data[1:]), type)


@functools.cache
def _get_decoder(type: Any) -> msgspec.msgpack.Decoder[Any]:
    return make_msgpack_decoder(type)


def unpack_result(data: bytes, case: Case, source: Source | None = None) -> CaseResult:
    """Return the result of `case`."""
    packed: _Outcome = unpack_plain(data, _Outcome)
    return CaseResult(
        case=case,
        outcome=packed.outcome,
        score=packed.score,
        verdicts=packed.verdicts,
        source=source,
        verdict=packed.verdict,
        axes=packed.axes,
        attempt=packed.attempt,
        extracted=packed.extracted,
        code=packed.code,
        reason=packed.reason,
        now=packed.now,
        account=packed.account,
        cost=packed.cost,
    )


def make_undecided_result(case: Case, code: str, reason: str, *, attempt: int = 0, source: Source | None = None) -> CaseResult:
    """Return the result of a case that could not be decided: every assertion is an error with the same reason."""
    verdicts = (errored(code, reason),) * len(case.assertions)
    return CaseResult(case, "error", None, verdicts, source, attempt=attempt, code=code, reason=reason)


def pack_result(result: CaseResult) -> bytes:
    """Return a result as bytes, with rendered reasons."""
    return pack_plain(
        _Outcome(
            result.outcome,
            result.score,
            tuple(verdict.with_words() for verdict in result.verdicts),
            result.verdict,
            result.axes,
            result.attempt,
            result.extracted,
            result.code,
            result.reason,
            result.now,
            result.account,
            result.cost,
        )
    )
