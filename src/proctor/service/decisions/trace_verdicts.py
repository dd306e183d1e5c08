"""Decides which traces are for a case (`when`, `sample`), and evaluates them against prepared cases, one at a time.

Input and output are plain data, so that it can run in a separate process (`process.py`) without a database. A case is prepared once per
version. Judged cases are returned undecided. An error of one trace does not affect others.

Time is limited per case, trace, agent in a batch, and batch. Traces of an agent without time left are returned undone.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import msgspec

from proctor.decide.prepare import PreparedSuite
from proctor.decide.quick import DecideCase
from proctor.errors import CheckFault, EvidenceError, InputError, SpecError, StoreError
from proctor.evidence.values.text import as_text
from proctor.formats.suites import read_suite
from proctor.model.account import Part
from proctor.model.case import Case
from proctor.model.cost import PriceList, price_usage
from proctor.model.evidence import Evidence, Json, Source, Usage
from proctor.model.json_values import equal
from proctor.model.mapping import DeclaredEvidence
from proctor.model.result import CaseResult
from proctor.model.typed import convert_to, make_json_decoder
from proctor.model.verdict import errored
from proctor.paths.dotted import find_dotted
from proctor.patterns.engine import compile_pattern
from proctor.report.data.json_text import CaseEncoder
from proctor.service.decisions.trace_evidence import read_evidence
from proctor.store.sql.compressed_json import compress_bytes, from_json, pack


class ActiveCase(msgspec.Struct, frozen=True, kw_only=True):
    """An active case, without its document."""

    id: str
    version: int
    project_id: str
    agent_id: str | None
    name: str
    when: dict[str, Json] | None
    sample: float


def is_selected(case: ActiveCase, trace_id: str, evidence: Evidence, metadata: Mapping[str, Json]) -> bool:
    """Return whether a trace is evaluated against a case."""
    if case.sample < 1:
        # By hash, so that every worker selects the same traces. The id of the case makes samples of two cases independent.
        digest = hashlib.sha256(f"{case.id}\0{trace_id}".encode()).digest()
        if int.from_bytes(digest[:8], "big") >= case.sample * 2**64:
            return False
    when = case.when or {}
    pattern = when.get("input")
    if isinstance(pattern, str) and not _matches_input(pattern, evidence):
        return False
    metadata_wanted = when.get("metadata")
    if isinstance(metadata_wanted, dict) and not all(equal(value, _look_up(metadata, name)) for name, value in metadata_wanted.items()):
        return False
    tags, own = when.get("tags"), metadata.get("tags")
    own_tags = [part.strip() for part in own.split(",")] if isinstance(own, str) else own if isinstance(own, (list, dict)) else ()
    return not isinstance(tags, list) or set(map(str, tags)) <= set(map(str, own_tags))


def _matches_input(pattern: str, evidence: Evidence) -> bool:
    text = as_text(evidence.input)
    if text is None:
        return False
    try:
        return compile_pattern(pattern).search(text) is not None
    except (SpecError, CheckFault):
        # A pattern that fails does not exclude a trace: a superfluous result is noticed, a missing one is not.
        return True


def _look_up(metadata: Mapping[str, Json], name: str) -> Json:
    # A name with dots, as in OpenTelemetry, is a name first and a path second.
    if name in metadata:
        return metadata[name]
    return find_dotted(dict(metadata), name)


LONGEST_INPUT = 2_000
"""Characters of the input that are stored with a trace, for search."""
CASE_S = 3.0
"""Seconds of one case on one trace."""
TRACE_S = 6.0
"""Seconds of all cases on one trace."""
READ_S = 30.0
"""Seconds to read one trace."""
AGENT_S = 2.0
"""Seconds after which an agent has to wait for the next batch."""
# Results are written at the end of a batch, so that it must be short.
BATCH_S = 10.0

_MOST_CACHED_BODIES, _LONGEST_CACHED_BODY = 32, 16_384
"""Number and bytes of cached result bodies of a document, half a megabyte together."""

CaseKey = tuple[str, int]
"""Id and version of a case."""
Limit = Callable[[float], AbstractContextManager[object]]
"""Raises `OutOfTime` in its block after some seconds."""


class OutOfTime(BaseException):
    """Raised when something takes too long. Not an `Exception`, so that interrupted code does not handle it."""


class CaseText(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a case, as written."""

    id: str
    version: int
    name: str
    text: str
    dialect: str


class Task(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One trace to decide."""

    id: str
    agent_id: str
    created_at: str
    response_path: str | None
    declared: DeclaredEvidence | None = None
    """The agent's `evidence` declaration."""
    metadata: bytes | None
    """JSON."""
    pieces: Sequence[bytes]
    cases: Sequence[int]
    """Positions of its cases in the batch."""
    judging: bool = False
    """Whether a judge decides its judged cases later."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="batch"):
    """Traces that are decided together."""

    cases: bytes
    """JSON: a list of `ActiveCase`."""
    tasks: Sequence[Task]
    texts: Sequence[CaseText] = ()
    """Cases that the process does not have yet."""
    forget: Sequence[CaseKey] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The result of one case on one trace."""

    case: int
    key: str
    """The id of the case inside its document."""
    outcome: str
    score: float | None
    verdict: str | None
    code: str | None
    body: bytes


class Decision(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The results of one trace."""

    error: str | None = None
    """Why it cannot be decided: a code and a message."""
    no_run: str | None = None
    """Why it is not a run of an agent, so that nothing was decided."""
    input_text: str | None = None
    """The beginning of the input."""
    digest: str | None = None
    """A `TraceDigest` as JSON."""
    findings: Sequence[Finding] = ()
    undecided: Sequence[int] = ()
    """Cases for the judge."""
    undone: bool = False
    """Not started; for a later batch."""


def describe_failure(error: BaseException, what: str) -> tuple[str, str]:
    """Return why something cannot be decided: a code and a message."""
    match error:
        case OutOfTime():
            return "time_limit", f"reading {what} took more than {READ_S:g} s"
        case EvidenceError():
            return error.code, error.message
        case StoreError():
            return "unreadable_evidence", str(error)
        case MemoryError():
            return "memory_limit", f"{what} exceeded the memory limit"
        case RecursionError():
            return "too_deep", f"{what} is nested too deeply"
        case _:
            return "internal_error", f"{type(error).__name__}: {str(error)[:500]}"


def make_failed(code: str, message: str) -> Decision:
    """Return the decision of a trace that cannot be decided."""
    return Decision(error=_replace_surrogates(f"{code}: {message}"))


class PreparedDocument:
    """One version of a case, ready to decide, or the reason why it cannot be used."""

    def __init__(self, text: CaseText) -> None:
        self.problem: str | None = None
        self.suite: PreparedSuite | None = None
        self._encoder = CaseEncoder()
        self._clean: dict[int, tuple[Any, Any, bytes]] = {}
        self._packed: dict[bytes, bytes] = {}
        try:
            self.suite = PreparedSuite(read_suite(text.text, dialect=text.dialect, name=text.name))
        except InputError as error:
            self.problem = str(error)
        except Exception as error:
            # It was valid when it was written; an error must not block traces.
            self.problem = f"a bug while reading the case: {type(error).__name__}: {error}"

    def make_finding(self, position: int, result: CaseResult) -> Finding:
        """Return a result in its stored form."""
        return Finding(
            case=position,
            key=_replace_surrogates(result.case.id),
            outcome=result.outcome,
            score=result.score,
            verdict=result.verdict,
            code=_choose_code(result),
            body=self._pack_body(result),
        )

    def _pack_body(self, result: CaseResult) -> bytes:
        # A clean pass has the same verdicts as the one before it, and so the same body. The suite holds its cases, so that ids are stable.
        known = self._clean.get(id(result.case))
        if known is not None and known[0] is result.verdicts and known[1] is result.account and result.now is None:
            return known[2]
        packed = self._compress(self._encoder.encode(result))
        if result.outcome == "pass" and result.now is None and not result.extracted:
            self._clean[id(result.case)] = (result.verdicts, result.account, packed)
        return packed

    def _compress(self, text: bytes) -> bytes:
        """Return a compressed body, cached: a healthy agent has few different ones, and compression costs as much as deciding."""
        packed = self._packed.get(text)
        if packed is None:
            packed = compress_bytes(text)
            if len(text) <= _LONGEST_CACHED_BODY:
                if len(self._packed) >= _MOST_CACHED_BODIES:
                    self._packed.clear()
                self._packed[text] = packed
        return packed


class TraceDecider:
    """Decides batches. It caches cases until it is requested to forget them."""

    def __init__(self, limit: Limit = nullcontext, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._texts: dict[CaseKey, CaseText] = {}
        self._prepared: dict[CaseKey, PreparedDocument] = {}

    def decide(self, batch: Batch) -> Iterator[Decision]:
        """Decide every trace, in order. The first of a batch is always decided."""
        for id, version in batch.forget:
            self._texts.pop((id, version), None)
            self._prepared.pop((id, version), None)
        self._texts.update({(text.id, text.version): text for text in batch.texts})
        cases = convert_to(from_json(batch.cases), list[ActiveCase])
        spent: dict[str, float] = {}
        started = self._clock()
        for task in batch.tasks:
            begun = self._clock()
            used = spent.get(task.agent_id, 0.0)
            if used > AGENT_S or begun - started > BATCH_S:
                # Not omitted: decisions are matched to traces by order, and a missing one means that the process has ended.
                yield Decision(undone=True)
                continue
            decision = self._decide_task(task, cases)
            spent[task.agent_id] = used + self._clock() - begun
            yield decision

    def _decide_task(self, task: Task, cases: Sequence[ActiveCase]) -> Decision:
        try:
            with self._limit(READ_S):
                evidence = read_evidence(task.pieces, task.response_path, task.declared, self._find_parts(task, cases))
            return self._decide_cases(task, evidence, cases)
        except (OutOfTime, Exception) as error:
            # Also a bug in a reader, which must not block other traces.
            return make_failed(*describe_failure(error, "the trace"))

    def _find_parts(self, task: Task, cases: Sequence[ActiveCase]) -> frozenset[Part] | None:
        """Return the parts of evidence that the cases of a trace read; None: all."""
        needed_parts: set[Part] = set()
        for position in task.cases:
            case = cases[position]
            document = self._get_document((case.id, case.version))
            parts = document.suite.parts if document is not None and document.suite is not None else None
            if parts is None:
                return None
            needed_parts |= parts
        return frozenset(needed_parts)

    def _decide_cases(self, task: Task, evidence: Evidence, cases: Sequence[ActiveCase]) -> Decision:
        text = as_text(evidence.input)
        input_text = None if text is None else _replace_surrogates(text[:LONGEST_INPUT])
        if evidence.no_run is not None:
            return Decision(no_run=_replace_surrogates(evidence.no_run), input_text=input_text)
        findings: list[Finding] = []
        undecided: list[int] = []
        metadata: Mapping[str, Json] | None = None
        deadline = self._clock() + TRACE_S
        for position in task.cases:
            case = cases[position]
            if case.sample < 1 or case.when is not None:
                if metadata is None:
                    # Only for cases with a condition. Metadata of the request wins over that of spans.
                    metadata = {**evidence.metadata, **(from_json(task.metadata) if task.metadata is not None else {})}
                # Like a pattern that fails, one that takes too long does not exclude the trace.
                with suppress(OutOfTime), self._limit(CASE_S):
                    if not is_selected(case, task.id, evidence, metadata):
                        continue
            document = self._get_document((case.id, case.version))
            if document is None:
                continue
            if document.suite is None:
                findings.append(make_undecided_finding(position, "unusable_spec", document.problem or ""))
                continue
            for decide, prepared in document.suite.cases_for_trace(evidence.case):
                if task.judging and prepared.judged:
                    undecided.append(position)
                else:
                    findings.append(
                        document.make_finding(position, self._decide_case(decide, prepared.case, evidence, task.created_at, deadline))
                    )
        # Each document once: the judge decides all of its judged cases.
        digest = make_digest(evidence)
        return Decision(input_text=input_text, digest=digest, findings=findings, undecided=sorted(set(undecided)))

    def _get_document(self, key: CaseKey) -> PreparedDocument | None:
        document = self._prepared.get(key)
        if document is None and key in self._texts:
            # Prepared when it is first needed, and charged to that trace.
            document = self._prepared[key] = PreparedDocument(self._texts.pop(key))
        return document

    def _decide_case(self, decide: DecideCase, case: Case, evidence: Evidence, received: str, deadline: float) -> CaseResult:
        if self._clock() > deadline:
            return make_undecided_result(case, "time_limit", f"not decided: the cases before it took {TRACE_S:g} s on this trace")
        try:
            with self._limit(CASE_S):
                # The time of receipt, so that a re-evaluation decides claims about time as before.
                return decide(evidence, None, 0, lambda: received)
        except OutOfTime:
            return make_undecided_result(case, "time_limit", f"the case took more than {CASE_S:g} s on this trace")


def make_undecided_result(case: Case, code: str, reason: str, *, attempt: int = 0, source: Source | None = None) -> CaseResult:
    """Return the result of a case that could not be decided: every assertion is an error with the same reason."""
    verdicts = (errored(code, reason),) * len(case.assertions)
    return CaseResult(case, "error", None, verdicts, source, attempt=attempt, code=code, reason=reason)


def make_undecided_finding(position: int, code: str, reason: str) -> Finding:
    """Return the finding of a document that could not be decided."""
    body = {"id": None, "outcome": "error", "code": code, "reason": reason, "assertions": []}
    return Finding(case=position, key="", outcome="error", score=None, verdict=None, code=code, body=pack(body))


def _choose_code(result: CaseResult) -> str | None:
    """Return the code of a case: its own, else `missing_evidence` if an assertion has it, else the first code of an assertion."""
    if result.code is not None or result.outcome == "pass":
        return result.code
    codes = [verdict.code for verdict in result.verdicts if verdict.code is not None and verdict.outcome != "pass"]
    return "missing_evidence" if "missing_evidence" in codes else codes[0] if codes else None


def _replace_surrogates(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", errors="replace").decode()


_LONGEST_ANSWER = 400
"""Characters of the answer in a list."""
_MOST_TOOLS = 20


class TraceDigest(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, duration, tokens and model of one trace; None: not recorded."""

    answer: str | None = None
    duration_ms: float | None = None
    usage: Usage | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()
    """Names of called tools, each once; the first twenty."""

    def find_cost(self, prices: PriceList | None) -> float | None:
        """Return the cost of its tokens, if it is known."""
        cost = "no prices" if prices is None else price_usage(self.usage, self.model, prices)
        return None if isinstance(cost, str) else cost


_DIGEST = make_json_decoder(TraceDigest)


def make_digest(evidence: Evidence) -> str:
    """Return the digest of some evidence as JSON."""
    answer = evidence.text or as_text(evidence.body)
    if answer is not None:
        answer = answer[:_LONGEST_ANSWER].encode("utf-8", errors="replace").decode()
    names = dict.fromkeys(call.name[:100].encode("utf-8", errors="replace").decode() for call in evidence.tool_calls or ())
    tools = tuple(names)[:_MOST_TOOLS]
    digest = TraceDigest(tools=tools, answer=answer, duration_ms=evidence.duration_ms, usage=evidence.usage, model=evidence.model)
    return msgspec.json.encode(digest).decode()


def read_digest(text: str | None) -> TraceDigest:
    """Return a stored digest; an empty one for a trace of an earlier version."""
    return TraceDigest() if text is None else _DIGEST.decode(text)
