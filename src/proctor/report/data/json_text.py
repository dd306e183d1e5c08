"""Results as JSON: one object for a run, or one line per case as it ends.

The names and their order are a contract. Results of one suite repeat labels, origins and passing verdicts, so these are encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from proctor.evidence.unknowns.account import write_known
from proctor.model.account import Known
from proctor.model.case import Assertion, Case
from proctor.model.cost import TotalCost
from proctor.model.evidence import Cost, Evidence, Json, Source
from proctor.model.json_values import encode_any_json, indent_json
from proctor.model.problem import Origin, Problem
from proctor.model.result import SCHEMA, AxisScore, CaseResult, CaseSummary, Incomplete, RunResult
from proctor.model.verdict import TextRange, Verdict

_REMEMBERED = 64
"""Encoded verdicts cached per assertion, and accounts per run."""
_NOWHERE = Source()


_MOST_FRAMES = 2_000
"""Cases whose constant parts are cached as bytes."""


class CaseEncoder:
    """Case results as JSON bytes. One encoder per run, with caches."""

    def __init__(self) -> None:
        self._cases: dict[int, _CaseFrame] = {}
        self._last: _CaseFrame | None = None
        """The frame of the previous result, which is mostly of the same case."""
        self._accounts: dict[int, tuple[Known, bytes]] = {}

    def encode(self, result: CaseResult) -> bytes:
        """Return one result, without a line break."""
        parts: list[bytes] = []
        self.encode_into(parts, result)
        return b"".join(parts)

    def encode_into(self, parts: list[bytes], result: CaseResult, end: bytes = b"") -> None:
        """Append the pieces of one result and `end`, to be joined by the caller."""
        source, frame = result.source, self._last
        if frame is None or frame.case is not result.case:
            frame = self._last = self._find_frame(result.case)
        is_plain = result.attempt == 0 and result.account is None and result.exchange is None
        if source is not None and source.id is None and source.line is not None and is_plain:
            # In a long file only the line number differs. A clean pass has the same verdicts as the one before it
            # (by identity: `decide/quick.py` reuses the tuple of the last clean pass), so the same bytes surround the number.
            if result.verdicts is frame.clean and source.file is frame.file and not result.ranges:
                parts += (frame.before_line, b"%d" % source.line, frame.clean_tail)
            else:
                parts += (frame.encode_before_line(source.file), b"%d" % source.line, frame.encode_after_line(result, end))
            return
        evidence = self._encode_evidence(result)
        parts += (frame.head, str(result.attempt).encode(), b',"evidence":', evidence, frame.encode_tail(result), end)

    def _find_frame(self, case: Case) -> _CaseFrame:
        frame = self._cases.get(id(case))
        if frame is None:
            # Only some cases are cached: a suite over a data file has very many.
            if len(self._cases) >= _MOST_FRAMES:
                self._cases.clear()
            # The frame references the case, so its id is not reused.
            frame = self._cases[id(case)] = _CaseFrame(case)
        return frame

    def _encode_evidence(self, result: CaseResult) -> bytes:
        source, known = result.source, result.account
        if source is None and known is None:
            return b"null"
        place = source or _NOWHERE
        source = _encode({"file": place.file, "line": place.line, "id": place.id})
        if known is None:
            return source
        encoded = b"" if result.evidence is None else b',"read":' + encode_any_json(_read(result.evidence))
        # Plain records share their accounts.
        cached = self._accounts.get(id(known))
        if cached is None:
            cached = (known, encode_any_json(write_known(known)))
            if len(self._accounts) < _REMEMBERED:
                self._accounts[id(known)] = cached
        return b"".join((source[:-1], b',"account":', cached[1], encoded, b"}"))


def _read(evidence: Evidence) -> Evidence:
    """Return the evidence in its plain form, without parts that are elsewhere in the result."""
    return msgspec.structs.replace(evidence, case=None, account=None)


_encode = encode_any_json
"""Any text of a result may come from a record."""


class _CaseFrame:
    def __init__(self, case: Case) -> None:
        self.case = case
        # An unreadable record has no case; its id is null.
        self.head = b'{"id":' + _encode(case.id or None) + b',"name":' + _encode(case.name) + b',"attempt":'
        self._tags = b',"tags":' + _encode(case.tags)
        self._assertions = [_AssertionFrame(assertion) for assertion in case.assertions]
        self.file: str | None = None
        self.before_line = b""
        """Bytes before the line number, for the last `file`."""
        self.clean: tuple[Verdict, ...] | None = None
        self.clean_tail = b""
        """Bytes after it for a clean pass."""

    def encode_before_line(self, file: str | None) -> bytes:
        """Return the bytes up to the line number of the evidence."""
        if file is not self.file or not self.before_line:
            self.file = file
            self.before_line = self.head + b'0,"evidence":{"file":' + _encode(file) + b',"line":'
        return self.before_line

    def encode_after_line(self, result: CaseResult, end: bytes) -> bytes:
        """Return the bytes after it, cached for a clean pass."""
        tail = b"".join((b',"id":null}', self.encode_tail(result), end))
        is_plain = result.axes is None and result.now is None and result.code is None and not result.extracted and result.cost is None
        is_plain = is_plain and not result.ranges
        # Not without verdicts: CPython has one empty tuple, which is identical for all such results.
        if result.outcome == "pass" and is_plain and result.verdicts:
            self.clean, self.clean_tail = result.verdicts, tail
        return tail

    def encode_tail(self, result: CaseResult) -> bytes:
        """Return the bytes after the evidence."""
        assertions = b",".join(self._encode_assertions(result))
        parts = [
            self._tags,
            b',"extracted":',
            _encode(result.extracted) if result.extracted else b"{}",
            b',"outcome":"',
            result.outcome.encode(),
            b'","score":',
            _encode_or_null(result.score),
            b',"verdict":',
            _encode_or_null(result.verdict),
            b',"axes":',
            _encode_or_null(axes_document(result.axes)),
            b',"code":',
            _encode_or_null(result.code),
            b',"reason":',
            _encode_or_null(result.reason),
        ]
        if result.now is not None:
            parts += [b',"now":', _encode(result.now)]
        if result.cost is not None:
            parts += [b',"cost":', _encode(write_cost(result.cost))]
        if result.exchange is not None:
            parts += [b',"exchange":', _encode(result.exchange)]
        if result.simulated_user is not None:
            parts += [b',"simulated_user":', _encode(result.simulated_user)]
        return b"".join((*parts, b',"assertions":[', assertions, b"]}"))

    def _encode_assertions(self, result: CaseResult) -> list[bytes]:
        if not result.ranges:
            return [frame.encode(verdict) for frame, verdict in zip(self._assertions, result.verdicts, strict=False)]
        rows = zip(self._assertions, result.verdicts, result.ranges, strict=False)
        return [_add_ranges(frame.encode(verdict), ranges) for frame, verdict, ranges in rows]


def _add_ranges(assertion: bytes, ranges: tuple[TextRange, ...]) -> bytes:
    """Return an encoded assertion with its ranges, if any."""
    if not ranges:
        return assertion
    # Assertions are cached without ranges; these are inserted before the last brace.
    listed = [{"pointer": text_range.path, "start": text_range.start, "end": text_range.end} for text_range in ranges]
    return b"".join((assertion[:-1], b',"ranges":', _encode(listed), b"}"))


def _encode_or_null(value: Json) -> bytes:
    return b"null" if value is None else _encode(value)


class _AssertionFrame:
    def __init__(self, assertion: Assertion) -> None:
        self._head = (
            b'{"id":'
            + _encode(assertion.id)
            + b',"check":'
            + _encode(assertion.check)
            + b',"label":'
            + _encode(assertion.label)
            + b',"outcome":"'
        )
        self._weight = (
            b',"weight":'
            + _encode(assertion.weight)
            + b',"axis":'
            + _encode(assertion.axis)
            + b',"turn":'
            + _encode(assertion.turn)
            + b',"details":'
        )
        flags: dict[str, Json] = {name: True for name in ("required", "advisory") if getattr(assertion, name)}
        if assertion.rule:
            flags["rule"] = assertion.rule
        self._end = b',"origin":' + _encode(origin_document(assertion.origin)) + (b"," + _encode(flags)[1:] if flags else b"}")
        self._seen: dict[int, tuple[Verdict, bytes]] = {}

    def encode(self, verdict: Verdict) -> bytes:
        known = self._seen.get(id(verdict))
        if known is not None:
            return known[1]
        worded = verdict.with_words()
        encoded = b"".join(
            (
                self._head,
                worded.outcome.encode(),
                b'","score":',
                _encode(worded.score),
                b',"reason":',
                _encode(worded.reason),
                b',"code":',
                _encode_or_null(worded.code),
                self._weight,
                _encode(worded.details) if worded.details else b"{}",
                b',"pointers":',
                _encode(worded.pointers) if worded.pointers else b"[]",
                self._end,
            )
        )
        if worded.outcome == "pass" and len(self._seen) < _REMEMBERED:
            # The verdict is stored with its bytes, so that its id is not reused.
            self._seen[id(verdict)] = (verdict, encoded)
        return encoded


def origin_document(origin: Origin) -> dict[str, Json]:
    """Return a place with its four keys."""
    return {"file": origin.file, "line": origin.line, "column": origin.column, "path": origin.path}


def axes_document(axes: dict[str, AxisScore] | None) -> Json:
    """Return axes as plain data; null in boolean suites."""
    return None if axes is None else {name: {"score": axis.score, "weight": axis.weight} for name, axis in axes.items()}


def summary_document(summary: CaseSummary) -> dict[str, Json]:
    """Return one case over its attempts, as plain data."""
    return {
        "id": summary.id or None,
        "name": summary.name,
        "outcome": summary.outcome,
        "statistics": _write_statistics(summary) if summary.runs > 1 else None,
    }


def _write_statistics(summary: CaseSummary) -> dict[str, Json]:
    from proctor.scoring.statistics import count_outcomes, summarize  # only repeated cases have any

    statistics = summarize(count_outcomes(summary.counts))
    return {
        "runs": summary.runs,
        "counts": summary.counts,
        "pass_rate": statistics.rate,
        "interval": [statistics.interval.low, statistics.interval.high],
        "pass_at": {str(k): value for k, value in statistics.pass_at.items()},
        "pass_hat": {str(k): value for k, value in statistics.pass_hat.items()},
        "flaky": statistics.flaky,
    }


def problem_document(problem: Problem) -> dict[str, Json]:
    """Return a finding as plain data."""
    return {
        "level": problem.level,
        "message": problem.message,
        "code": problem.code,
        "nearest": list(problem.nearest),
        "hint": problem.hint,
        "origin": origin_document(problem.origin),
    }


def incomplete_document(incomplete: Incomplete | None) -> Json:
    """Return how much of an incomplete run exists, as plain data; None for a complete one."""
    if incomplete is None:
        return None
    missing = [{"id": each.case.id, "attempts_finished": each.finished, "attempts_planned": each.planned} for each in incomplete.missing]
    figures = {name: getattr(incomplete, name) for name in incomplete.__struct_fields__ if name != "missing"}
    return {**figures, "missing": missing}


def write_cost(cost: Cost | TotalCost) -> dict[str, Json]:
    """Return costs as plain data: null is unknown, with the reason in `why`."""
    document: dict[str, Json] = {"agent": cost.agent, "judge": cost.judge}
    if cost.user != 0:
        document["user"] = cost.user
    document["currency"] = cost.currency
    if isinstance(cost, TotalCost):
        document |= {"known": cost.known, "cases_not_known": cost.cases_not_known}
    return document | ({"why": cost.why} if cost.why else {}) | ({"note": cost.note} if cost.note else {})


def render_json(run: RunResult) -> str:
    """Return the whole run as one object."""
    encoder = CaseEncoder()
    return b"".join(iterate_document(run, (indent_item(encoder.encode(result)) for result in run.cases))).decode()


def iterate_document(run: RunResult, cases: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the run as one object, in pieces; `cases` are its results from `indent_item`."""
    head: dict[str, Json] = {
        "schema": SCHEMA,
        "run_id": run.run_id,
        "started_at": run.started_at,
        "suite": {"name": run.suite_name, "path": run.suite_path, "dialect": run.dialect},
        "outcome": run.outcome,
        "score": run.score,
        "counts": run.counts,
        **({"cost": write_cost(run.cost)} if run.cost is not None else {}),
    }
    tail: dict[str, Json] = {
        "unmatched_evidence": list(run.unmatched_evidence),
        "unmet": run.unmet,
        "incomplete": incomplete_document(run.incomplete),
        **({"let_through": run.let_through} if run.let_through else {}),
        "warnings": [problem_document(problem) for problem in run.warnings],
    }
    yield indent_json(encode_any_json(head)).removesuffix(b"\n}") + b',\n  "cases": '
    yield from _iterate_list(cases)
    yield b',\n  "summary": '
    yield from _iterate_list(indent_item(encode_any_json(summary_document(summary))) for summary in run.summary)
    yield b"," + indent_json(encode_any_json(tail)).removeprefix(b"{") + b"\n"


def indent_item(data: bytes) -> bytes:
    """Return JSON indented as a list item."""
    return b"    " + indent_json(data).replace(b"\n", b"\n    ")


def _iterate_list(items: Iterable[bytes]) -> Iterator[bytes]:
    before = b"[\n"
    for item in items:
        yield before
        yield item
        before = b",\n"
    yield b"[]" if before == b"[\n" else b"\n  ]"
