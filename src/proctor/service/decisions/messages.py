"""Messages between a decision process and its callers: plain data.

`record_verdicts.py` does the work; `suite_verdicts.py` makes requests and reads results.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

from proctor.decide.selection import select
from proctor.formats.suites import read_suite
from proctor.model.case import Case, Suite
from proctor.model.cost import PriceList
from proctor.model.evidence import Source
from proctor.model.judgement import Opinion
from proctor.model.mapping import DeclaredEvidence
from proctor.model.result import CaseResult
from proctor.model.typed import convert_to, decode_json, make_msgpack_decoder
from proctor.service.decisions.trace_verdicts import CaseText, Finding
from proctor.store.sql.compressed_json import from_json

TIME_LIMIT = "time_limit"
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


_PACKED = tuple(
    name for name in CaseResult.__struct_fields__ if name not in ("case", "source", "evidence", "exchange", "simulated_user", "ranges")
)
_Outcome = msgspec.defstruct("_Outcome", [(name, get_type_hints(CaseResult)[name]) for name in _PACKED], frozen=True, array_like=True)
"""A result without its case, which the caller already has."""


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
    packed: msgspec.Struct = unpack_plain(data, _Outcome)
    return CaseResult(case=case, source=source, **msgspec.structs.asdict(packed))


def pack_result(result: CaseResult) -> bytes:
    """Return a result as bytes, with rendered reasons."""
    result = msgspec.structs.replace(result, verdicts=tuple(verdict.with_words() for verdict in result.verdicts))
    return pack_plain(_Outcome(*(getattr(result, name) for name in _PACKED)))
