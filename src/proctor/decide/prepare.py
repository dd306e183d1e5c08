"""Prepares the checks of cases once, decides evidence with them, and lists the questions of a case for a judge."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from proctor.checks.missing_evidence import MISSING, decide_with_caution, find_reads
from proctor.checks.registry import Decide, Registry, default_registry
from proctor.decide.broken_off import RUN_ERROR, SERVER_GONE, cut_short, is_broken, is_refusal, mark_missing_turns, may_claim_refusal
from proctor.decide.judging import Deliberation, add_input, prepare_check, settle_all
from proctor.decide.matching import CaseIndex, list_messages
from proctor.decide.quick import Clock, DecideCase, make_quick_decision, needs_clock
from proctor.errors import CheckFault, EvidenceError, InputError, SpecError
from proctor.evidence.unknowns.account import find_known, turn_evidence, with_break
from proctor.model.account import UNSEEN_IN_A_PAGE, Account, Part
from proctor.model.case import UNSEEN_TOOLS, Assertion, Capture, Case, Scoring, Suite
from proctor.model.cost import PriceList
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.json_values import JAVASCRIPT_BLANKS, is_finite, to_whole_number
from proctor.model.judgement import Opinion, PendingVerdict, Question
from proctor.model.lazy_cases import is_lazy, map_sequence
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict, errored, missing, skipped
from proctor.scoring.score import score_case
from proctor.work import begin_counting, end_counting

if TYPE_CHECKING:
    from proctor.patterns.engine import Pattern


class PreparedCase:
    """One case with its checks compiled."""

    def __init__(self, case: Case, registry: Registry, prices: PriceList | None = None) -> None:
        self.case = case
        self.prices = prices
        self._registry = registry
        entries = [registry.get_for(a.check, a.spec) for a in case.assertions]
        reads = [find_reads(entry.reads, a.spec) for entry, a in zip(entries, case.assertions, strict=True)]
        # Prepared once for both ways of deciding: if every row of a large file is a case, preparing costs more than deciding.
        self._raw_checks = tuple(prepare_check(entry, a, case) for entry, a in zip(entries, case.assertions, strict=True))
        self._checks: tuple[Decide, ...] = tuple(map(decide_with_caution, self._raw_checks, reads))
        self._uses_clock = any(needs_clock(a.spec) for a in case.assertions)
        self._unseen_agents = frozenset(map(str, case.settings.get(UNSEEN_TOOLS) or ()))
        self._needs_no_scope = not self._uses_clock and not case.context and case.timezone is None and not self._unseen_agents
        # The common case needs no bookkeeping between assertions: no dependencies, no turns.
        self._is_independent = all(not a.depends_on and a.turn is None for a in case.assertions)
        self._order = _sort_by_dependency(case.assertions)
        self._captures = prepare_captures(case.captures) if case.captures else None
        # Captures, prices, turns and judges need the complete evidence.
        reads_all = self._captures is not None or prices is not None or any(a.turn is not None for a in case.assertions)
        reads_all = reads_all or any(entry.judged for entry in entries)
        self.parts: frozenset[Part] | None = None if reads_all else frozenset(part for read_part in reads for part in read_part.parts)
        """The parts of the evidence that the checks read; None means all of them."""
        self._refusals = tuple(decide for a, decide in zip(case.assertions, self._checks, strict=True) if may_claim_refusal(a))
        self.judged = any(entry.judged for entry in entries)
        """Whether deciding may need a judge."""
        self.only_presence = all(read_part.parts and read_part.claim == "presence" for read_part in reads)
        """Whether every claim requires that something is present; a measured value (a status, a duration) does not count as such."""

    def decide(self, evidence: Evidence, source: Source | None = None, attempt: int = 0, clock: Clock | None = None) -> CaseResult:
        """Decide every assertion of the case on `evidence`."""
        evidence, now, result = self._begin(evidence, source, attempt, clock)
        if result is None:
            verdicts = self._decide_all(evidence)
            result = self._make_result(verdicts, evidence, source, attempt, now)
        # Fast path for long streams: no account is needed.
        plain = evidence.account is None and evidence.error is None and not any(verdict.code for verdict in result.verdicts)
        return result if plain else with_account(result, evidence)

    def deliberate(
        self, evidence: Evidence, source: Source | None = None, attempt: int = 0, clock: Clock | None = None, *, fail_fast: bool = False
    ) -> Deliberation:
        """Decide like `decide`, but with a judge: yields questions and expects opinions.

        With `fail_fast`, no further questions are yielded once the verdict of the case is final.
        """
        evidence, now, result = self._begin(evidence, source, attempt, clock)
        if result is None:
            verdicts = yield from self._decide_with_judge(evidence, fail_fast)
            result = self._make_result(verdicts, evidence, source, attempt, now)
        return with_account(result, evidence)

    def _begin(
        self, evidence: Evidence, source: Source | None, attempt: int, clock: Clock | None
    ) -> tuple[Evidence, str | None, CaseResult | None]:
        """Return the evidence for the assertions, the clock of the case, and the result if there is nothing left to decide."""
        case = self.case
        if case.skip is not None:
            return evidence, None, skip_case(case, case.skip.code, case.skip.reason, source=source, attempt=attempt)
        # Evidence that is not a run of an agent proves neither that a tool was called nor that none was.
        if evidence.no_run is not None:
            return evidence, None, skip_case(case, "no_run", f"no run of an agent: {evidence.no_run}", source=source, attempt=attempt)
        if self.prices is not None:
            from proctor.decide.cost import with_agent_cost  # few suites have prices

            evidence = with_agent_cost(evidence, self.prices)
        if evidence.error is not None and not case.assertions:
            # A case without assertions passes in some dialects, but a run that broke off is no success.
            code = SERVER_GONE if evidence.metadata.get("code") == SERVER_GONE else RUN_ERROR
            reason = f"the run ended in an error: {evidence.error}"
            result = CaseResult(case, "error", None, (), source, attempt=attempt, code=code, reason=reason)
            return evidence, None, self.add_cost(result, evidence)
        if case.turns:
            evidence = mark_missing_turns(evidence, case)
        now: str | None = None
        if not self._needs_no_scope:
            evidence, now = self._set_scope(evidence, clock)
        if evidence.error is not None and not self._claims_refusal(evidence):
            evidence = with_break(evidence)
        return evidence, now, None

    def _claims_refusal(self, evidence: Evidence) -> bool:
        return is_refusal(evidence) and any(decide_guarded(decide, evidence).outcome == "pass" for decide in self._refusals)

    def _make_result(
        self, verdicts: tuple[Verdict, ...], evidence: Evidence, source: Source | None, attempt: int, now: str | None
    ) -> CaseResult:
        case = self.case
        score = score_case(case.assertions, verdicts, case.scoring)
        reason = f"{score.undecided} of {len(verdicts)} assertions could not be decided and count 0" if score.undecided else None
        result = CaseResult(case, score.outcome, score.score, verdicts, source, score.verdict, score.axes, attempt, {}, None, reason, now)
        if self._captures is not None:
            captured = self._captures(evidence)
            # Captures do not affect the outcome: a failed case keeps the code of its failure.
            code = captured.code if score.outcome == "pass" else None
            result = msgspec.structs.replace(result, extracted=captured.values, code=code, reason=captured.reason or reason)
        if is_broken(evidence) and not self._claims_refusal(evidence):
            result = cut_short(result, evidence)
        return result if result.outcome == "skip" else self.add_cost(result, evidence)

    def decide_unanswered(self, evidence: Evidence | None, attempt: int, code: str, reason: str) -> CaseResult:
        """Return the result of an attempt without an answer, with its partial `evidence`.

        Claims about the HTTP status are decided, claims that depend on them are skipped, and every other claim is an error.
        """
        error = errored(code, reason)
        assertions = self.case.assertions
        if evidence is None or evidence.http_status is None or not any(a.check == "http_status" for a in assertions):
            # One for each assertion, as readers pair them by position; `left_nothing` recognises such an attempt by their codes.
            result = CaseResult(self.case, "error", None, (error,) * len(assertions), None, None, None, attempt, {}, code, reason)
            return result if evidence is None else self.add_cost(result, evidence)
        checks = [check if a.check == "http_status" else lambda _: error for a, check in zip(assertions, self._checks, strict=True)]
        state = _Deciding(assertions, checks, evidence, unseen=error)
        for index in self._order:
            state.decide(index)
        score = score_case(assertions, state.list_verdicts(), self.case.scoring)
        result = CaseResult(self.case, score.outcome, score.score, state.list_verdicts(), None, score.verdict, score.axes, attempt)
        return self.add_cost(cut_short(result, evidence), evidence)

    def add_cost(self, result: CaseResult, evidence: Evidence) -> CaseResult:
        """Return an undecided result with the cost of its evidence, if there are prices."""
        if self.prices is None:
            return result
        from proctor.decide.cost import with_cost  # few suites have prices

        return with_cost(result, evidence, self.prices)

    def make_quick_decision(self) -> DecideCase:
        """Return a function equivalent to `decide`, with the fewest steps if the case is boolean with independent assertions.

        Over a stream, the code around the checks dominates, so everything known about the case is computed here, once.
        """
        case = self.case
        counts_equally = case.scoring.mode == "boolean" and all(
            not a.advisory and a.weight == case.assertions[0].weight and a.when_missing is None for a in case.assertions
        )
        if case.turns or case.skip is not None or self._captures is not None or self.prices is not None:
            return self.decide
        multiplies = (self._registry.get_for(a.check, a.spec).multiplies_work(a.spec) for a in case.assertions)
        if not (counts_equally and case.assertions and self._is_independent and self._needs_no_scope) or any(multiplies):
            return self.decide
        # Raw checks skip the handling of unknown parts; evidence with unknown parts is decided by `decide`.
        return make_quick_decision(case, self._raw_checks, self.decide, with_account, only_presence=self.only_presence)

    def _decide_all(self, evidence: Evidence) -> tuple[Verdict, ...]:
        if self._is_independent:
            pairs = zip(self.case.assertions, self._checks, strict=True)
            return tuple([_apply_when_missing(assertion, decide_guarded(decide, evidence)) for assertion, decide in pairs])
        state = _Deciding(self.case.assertions, self._checks, evidence)
        for index in self._order:
            state.decide(index)
        return state.list_verdicts()

    def _decide_with_judge(
        self, evidence: Evidence, fail_fast: bool
    ) -> Generator[tuple[Question, ...], Sequence[Opinion], tuple[Verdict, ...]]:
        """Decide everything that needs no judge, then yield the questions, then decide the claims that waited for their answers."""
        state = _Deciding(self.case.assertions, self._checks, evidence)
        waiting = list(self._order)
        while waiting:
            later: list[int] = []
            asking: list[tuple[int, PendingVerdict]] = []
            unsure: set[str | None] = set()
            for index in waiting:
                assertion = self.case.assertions[index]
                # A claim that depends on an open question waits for the next round, so that a round has all questions for the judge.
                if not unsure.isdisjoint(assertion.depends_on):
                    later.append(index)
                    unsure.add(assertion.id)
                elif isinstance(verdict := state.decide(index), PendingVerdict):
                    asking.append((index, verdict))
                    unsure.add(assertion.id)
            if not asking:
                break
            # Questions cost money, and no answer would change the verdict.
            if fail_fast and state.has_final_verdict(asking, self.case.scoring):
                for index, _ in asking:
                    state.settle(index, skipped("fail_fast", "not judged: the verdict of the case is final"))
            else:
                verdicts = yield from settle_all(asking, self.case.assertions)
                for index, verdict in verdicts.items():
                    state.settle(index, verdict)
            waiting = later
        return state.list_verdicts()

    def _set_scope(self, evidence: Evidence, clock: Clock | None) -> tuple[Evidence, str | None]:
        """Return the evidence with the variables, zone and clock of this case, and the clock if it differs from the evidence's."""
        changes: dict[str, Json] = {}
        now: str | None = None
        if self.case.context or evidence.context:
            # The agent's trace cannot override values that the case sets.
            changes["context"] = {**(evidence.context or {}), **self.case.context}
        zone = changes.get("context", {}).get("timezone")
        if isinstance(zone, str) and zone:
            changes["timezone"] = zone
        elif self.case.timezone is not None:
            changes["timezone"] = self.case.timezone
        if self._uses_clock and evidence.now is None and clock is not None:
            changes["now"] = now = clock()
        if self._unseen_agents and not evidence.tool_calls and evidence.metadata.get("agent") in self._unseen_agents:
            # A recording without calls means nothing if calls are never recorded.
            known = evidence.account or Account()
            changes["tool_calls"] = None
            changes["account"] = msgspec.structs.replace(known, unknown={"tool_calls": UNSEEN_IN_A_PAGE, **known.unknown})
        return (msgspec.structs.replace(evidence, **changes) if changes else evidence), now


class _Deciding:
    """The state of deciding the assertions of one case on one evidence."""

    def __init__(
        self, assertions: Sequence[Assertion], checks: Sequence[Decide], evidence: Evidence, unseen: Verdict | None = None
    ) -> None:
        self._unseen = unseen
        """The verdict for a missing turn."""
        self._assertions = assertions
        self._checks = checks
        self._evidence = evidence
        self._verdicts: dict[int, Verdict] = {}
        self._outcome_of: dict[str, str] = {}
        self._turns: dict[int, Evidence | None] = {}

    def decide(self, index: int) -> Verdict:
        """Decide one assertion whose dependencies are decided."""
        assertion = self._assertions[index]
        # Any verdict but a pass breaks a dependency, including an error and a skip.
        broken = next((dependency for dependency in assertion.depends_on if self._outcome_of.get(dependency) != "pass"), None)
        if broken is not None:
            outcome = self._outcome_of.get(broken, "not decided")
            verdict = skipped("dependency_failed", f"skipped: {broken!r} did not pass ({outcome})")
        else:
            scope: Evidence | None = self._evidence
            if assertion.turn is not None:
                if assertion.turn not in self._turns:
                    self._turns[assertion.turn] = turn_evidence(self._evidence, assertion.turn)
                scope = self._turns[assertion.turn]
            if scope is None:
                verdict = self._unseen or missing(f"turn {(assertion.turn or 0) + 1}")
            else:
                verdict = decide_guarded(self._checks[index], scope)
            verdict = _apply_when_missing(assertion, verdict)
        return self.settle(index, verdict)

    def settle(self, index: int, verdict: Verdict) -> Verdict:
        """Store the verdict of an assertion."""
        self._verdicts[index] = verdict
        name = self._assertions[index].id
        if name is not None:
            self._outcome_of[name] = verdict.outcome
        return verdict

    def has_final_verdict(self, asking: Sequence[tuple[int, PendingVerdict]], scoring: Scoring) -> bool:
        """Return whether the verdict of the case no longer depends on the judge."""
        open_ones = {index for index, _ in asking}
        decided = [(self._assertions[index], verdict.outcome) for index, verdict in self._verdicts.items() if index not in open_ones]
        gating = [(assertion.required, outcome) for assertion, outcome in decided if not assertion.advisory]
        if scoring.mode == "boolean":
            return any(outcome == "fail" for _, outcome in gating)
        # A mean may still change; a failed required assertion or an error settles a scored case.
        return any(outcome == "error" or (outcome == "fail" and required) for required, outcome in gating)

    def list_verdicts(self) -> tuple[Verdict, ...]:
        """Return every verdict, in the order of the file."""
        return tuple(self._verdicts[index] for index in range(len(self._assertions)))


class PreparedSuite:
    """The prepared cases of a suite, found by the name or input of a record.

    Which case a record answers does not depend on the selection, so unselected cases are found too.
    """

    def __init__(self, suite: Suite, registry: Registry | None = None) -> None:
        self.suite = suite
        known = registry or default_registry()
        self.cases: Sequence[PreparedCase] = map_sequence(suite.cases, lambda case: PreparedCase(case, known, suite.prices))
        self.decides: Sequence[DecideCase] = map_sequence(self.cases, PreparedCase.make_quick_decision)
        """The decision function of each case."""
        self._index = CaseIndex(suite.cases, suite.unselected)
        self.lookup: dict[str | None, Sequence[DecideCase]] = {}
        """Decision functions by case name, for cases without an input that could differ from the record's; empty for an unselected case."""
        for name in () if is_lazy(self._index.cases) else self.list_names():
            positions = self._index.names.find(name)
            if len(positions) == 1 and not list_messages(self._index.cases[positions[0]]):
                self.lookup[name] = tuple(self.decides[position] for position in self._choose(positions))
        if self._index.answers_all and not self._index.has_inputs:
            self.lookup[None] = self.decides

    def find(self, evidence: Evidence) -> tuple[int, ...] | None:
        """Return the positions of the selected cases that `evidence` answers, or None if it names an unknown case.

        Raises `EvidenceError` with the choices if it could answer several cases.
        """
        positions = self._index.find(evidence)
        return None if positions is None else self._choose(positions)

    def cases_for_trace(self, name: str | None) -> Iterable[tuple[DecideCase, PreparedCase]]:
        """Return the cases for a trace that arrived without a run: those it names, else all; its input is not compared."""
        chosen = range(len(self.cases)) if name is None else self._choose(self._index.names.find(name))
        return [(self.decides[position], self.cases[position]) for position in chosen]

    @functools.cached_property
    def parts(self) -> frozenset[Part] | None:
        """The parts of the evidence that the checks of all cases read; None means all of them."""
        all_parts: set[Part] = set()
        for case in self.cases:
            if case.parts is None:
                return None
            all_parts |= case.parts
        return frozenset(all_parts)

    def list_names(self) -> Iterable[str]:
        """Return every name that a record may use for a case."""
        return self._index.names.every

    def _choose(self, positions: Iterable[int]) -> tuple[int, ...]:
        return tuple(position for position in positions if position < len(self.cases))


def decide_guarded(decide: Decide, evidence: Evidence) -> Verdict:
    """Decide one check within its work limit; any exception becomes an `error` verdict."""
    counting = begin_counting()
    try:
        return decide(evidence)
    except CheckFault as fault:
        return errored(fault.code, fault.message)
    except EvidenceError as error:
        return errored(error.code, error.message)
    except InputError as error:
        return errored("unusable_spec", str(error))
    except RecursionError:
        return errored("too_deep", "the evidence is nested too deeply to be checked")
    except MemoryError:
        return errored("memory_limit", "deciding this needed more memory than there is")
    except Exception as error:
        import traceback  # only a bug needs it

        reason = f"a bug in this check: {type(error).__name__}: {error}"
        return errored("internal_error", reason, details={"traceback": traceback.format_exc(limit=8)})
    finally:
        end_counting(counting)


def with_account(result: CaseResult, evidence: Evidence, reader: str = "plain") -> CaseResult:
    """Return the result with the account of its evidence; `reader` is used if the account has no reader."""
    if result.account is not None and result.account.reader != "plain":
        return result
    return msgspec.structs.replace(result, account=find_known(evidence, reader), simulated_user=evidence.simulated_user)


def skip_case(case: Case, code: str, reason: str, *, source: Source | None = None, attempt: int = 0) -> CaseResult:
    """Return a skipped case: every assertion is skipped for the same reason."""
    verdict = skipped(code, reason)
    return CaseResult(case, "skip", None, (verdict,) * len(case.assertions), source, None, None, attempt, {}, code, reason)


def _apply_when_missing(assertion: Assertion, verdict: Verdict) -> Verdict:
    if verdict.code != MISSING or assertion.when_missing in (None, verdict.outcome):
        return verdict
    return msgspec.structs.replace(verdict, outcome=assertion.when_missing)


def _sort_by_dependency(assertions: Sequence[Assertion]) -> tuple[int, ...]:
    """Return indexes with every dependency before its dependents, else in file order.

    Readers reject cycles and unknown ids; in a suite built in code, assertions that cannot be ordered stay in place and are skipped.
    """
    at = {a.id: index for index, a in enumerate(assertions) if a.id is not None}
    done: list[int] = []
    placed: set[int] = set()
    for start in range(len(assertions)):
        stack = [start]
        entered: set[int] = set()
        while stack:
            index = stack[-1]
            if index in placed:
                stack.pop()
                continue
            dependencies = [at[id] for id in assertions[index].depends_on if id in at]
            unplaced = [each for each in dependencies if each not in placed and each not in entered]
            if index in entered or not unplaced:
                placed.add(index)
                done.append(index)
                stack.pop()
            else:
                entered.add(index)
                stack.extend(unplaced)
    return tuple(done)


class PosedClaim(msgspec.Struct, frozen=True):
    """A claim that a judge decides, its evidence, and its questions."""

    assertion: Assertion
    evidence: Evidence
    questions: tuple[Question, ...]


def list_claims(case: Case, evidence: Evidence) -> dict[int, PosedClaim]:
    """Return the claims of the case that a judge decides, with their positions. Other claims are not decided."""
    known = default_registry()
    if case.context or evidence.context:
        # The values of the case override those of a trace.
        evidence = msgspec.structs.replace(evidence, context={**(evidence.context or {}), **case.context})
    claims: dict[int, PosedClaim] = {}
    for position, assertion in enumerate(case.assertions):
        entry = known.get_for(assertion.check, assertion.spec)
        if not entry.judged:
            continue
        scope = evidence if assertion.turn is None else turn_evidence(evidence, assertion.turn)
        if scope is None:
            continue
        scope = add_input(scope, assertion, case)
        verdict = decide_guarded(entry.prepare(assertion.spec), scope)
        if isinstance(verdict, PendingVerdict):
            claims[position] = PosedClaim(assertion, scope, verdict.questions)
    return claims


# Values read from the final text by regular expression (MCPLab's `extract`).
# First match only, no flags. The value is the group named `value`, else group 1, else the whole match; a group that did not take part
# counts as absent. No match, an unreadable pattern or one that takes too long gives null; the result mentions the timeout. A captured
# text that JavaScript would read as a number or boolean becomes one, a double beyond 2^53; anything else stays as written.

# StrNumericLiteral of ECMAScript; `007` is decimal there.
_DECIMAL = lazy_pattern(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_PREFIXED = lazy_pattern(r"0(?:[xX][0-9a-fA-F]+|[bB][01]+|[oO][0-7]+)")


class Captured(msgspec.Struct, frozen=True):
    """The values captured from one text."""

    values: dict[str, Json]
    code: str | None = None
    """The fault of the first search that was abandoned."""
    reason: str | None = None


def prepare_captures(captures: Sequence[Capture]) -> Callable[[Evidence], Captured]:
    """Return a function that reads all captures of a case from evidence."""
    prepared = [(capture.name, _compile_pattern(capture.pattern)) for capture in captures]

    def read(evidence: Evidence) -> Captured:
        values: dict[str, Json] = {}
        faults: list[tuple[str, CheckFault]] = []
        for name, pattern in prepared:
            try:
                values[name] = _capture_value(pattern, evidence.text or "")
            except CheckFault as fault:
                # Null, as without a match; the result also mentions the abandoned search.
                values[name] = None
                faults.append((name, fault))
        if not faults:
            return Captured(values)
        reason = "; ".join(f"extract {name!r} could not be read: {fault.message}" for name, fault in faults)
        return Captured(values, faults[0][1].code, reason)

    return read


def _compile_pattern(source: str) -> Pattern | None:
    from proctor.patterns.engine import compile_pattern  # most cases capture nothing

    try:
        return compile_pattern(source)
    except SpecError:
        # MCPLab gives null for a pattern that JavaScript cannot read, and continues.
        return None


def _capture_value(pattern: Pattern | None, text: str) -> Json:
    match = pattern.search(text) if pattern is not None else None
    if match is None:
        return None
    candidates = (match.named.get("value"), *match.groups[:1], match.text)
    return coerce_like_javascript(next(candidate for candidate in candidates if candidate is not None))


def coerce_like_javascript(text: str) -> Json:
    """Return a captured text as the value that JavaScript would convert it to; an infinite number is null, as in the original."""
    trimmed = text.strip(JAVASCRIPT_BLANKS)
    if trimmed in ("true", "false"):
        return trimmed == "true"
    if _PREFIXED.fullmatch(trimmed):
        number: float = int(trimmed, 0)
    elif _DECIMAL.fullmatch(trimmed):
        number = float(trimmed)
    else:
        return text
    return to_whole_number(float(number)) if is_finite(number) else None
