"""Measures a suite: it plants faults in records that pass, decides each again, and finds claims that detect the survivors.

Claims that need a judge are left out. An error counts as detected, since it does not pass either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from proctor.cassettes.redaction import redact_text
from proctor.checks.registry import default_registry
from proctor.decide.prepare import PreparedCase
from proctor.errors import InputError
from proctor.formats.native.drafting import make_default_label
from proctor.formats.suites import read_suite
from proctor.formats.text.yaml_text import to_yaml, write_flow
from proctor.model.case import Assertion, Case, Scoring, Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.mutation import KIND_NAMES, FaultCounts, FaultStatus, MutationResult, PlantedFault, ProposedClaim
from proctor.model.show import nearest
from proctor.mutation.call_edits import list_calls
from proctor.mutation.faults import plant_faults
from proctor.mutation.proposals import is_tailored, propose_claims

VARIES = "varies"
"""In the settings of a case: kinds of faults, `KIND:TOOL` or `TOOL.ARGUMENT`, that are free variation."""
_COPIED = "argument_copied"
"""The check that restricts an argument to values of the input or of earlier results."""
_MOST_TOOLS = 200
_MOST_COVERED = 400
"""Survivors of a case for which claims are chosen."""
_LONGEST_LINE = 600
"""Characters of a claim that a person can review."""


class _Survivor(msgspec.Struct):
    fault: PlantedFault
    planted: Evidence
    original: Evidence
    claims: tuple[Json, ...]


class Measurement:
    """Collects the faults of a suite record by record."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._registry = default_registry()
        self._cases: dict[str, PreparedCase] = {}
        self._faults: list[PlantedFault] = []
        self._survivors: dict[str, list[_Survivor]] = {}
        self._uses: Counter[tuple[str, int]] = Counter()
        self._used: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._tools: dict[str, None] = {}
        self._claims: dict[str, PreparedCase | None] = {}
        self._judged = 0
        for case in suite.cases:
            decided = [assertion for assertion in case.assertions if not self._registry.get_for(assertion.check, assertion.spec).judged]
            self._judged += len(case.assertions) - len(decided)
            self._cases[case.id] = PreparedCase(drop_assertions(case, decided), self._registry)

    def note_tools(self, evidence: Evidence) -> None:
        """Remember the tools of a recording, since faults use tools of other recordings."""
        if len(self._tools) < _MOST_TOOLS:
            self._tools.update(dict.fromkeys((*(evidence.available_tools or ()), *(call.name for call in list_calls(evidence)))))

    def skip(self, why: str) -> None:
        """Count a record that is not used."""
        self._skipped[why] += 1

    def is_usable(self, case: Case, evidence: Evidence) -> bool:
        """Return whether a record passes its case; if not, count why."""
        prepared = self._cases[case.id]
        if not prepared.case.assertions:
            self.skip("the case has no claim that is decided without a judge" if case.assertions else "the case has no claim")
            return False
        if prepared.decide(evidence).outcome != "pass":
            self.skip("the record does not pass its case")
            return False
        return True

    def add(self, case: Case, evidence: Evidence, record: str) -> None:
        """Plant every fault in a usable record of a case."""
        prepared = self._cases[case.id]
        self._used[case.id] += 1
        free = find_free(case)
        for fault in plant_faults(evidence, tuple(self._tools)):
            result = prepared.decide(fault.evidence)
            status: FaultStatus = "detected"
            if result.outcome == "pass":
                status = "free" if free.intersection(fault.list_subjects()) else "survived"
            for position, verdict in enumerate(result.verdicts):
                if verdict.outcome in ("fail", "error"):
                    self._uses[case.id, position] += 1
            planted = PlantedFault(case=case.id, record=record, kind=fault.kind, place=fault.place, status=status)
            if status == "survived":
                claims = tuple(propose_claims(fault, evidence))
                self._survivors.setdefault(case.id, []).append(_Survivor(planted, fault.evidence, evidence, claims))
            else:
                self._faults.append(planted)

    def finish(self) -> MutationResult:
        """Return the result, with claims that detect the survivors."""
        proposals: list[ProposedClaim] = []
        for case_id, survivors in self._survivors.items():
            proposals += self._propose(case_id, survivors)
        order = {case.id: at for at, case in enumerate(self._suite.cases)}
        survived = [survivor.fault for survivors in self._survivors.values() for survivor in survivors]
        faults = sorted([*self._faults, *survived], key=lambda fault: order[fault.case])
        kinds = dict.fromkeys(fault.kind for fault in faults)
        return MutationResult(
            suite_name=self._suite.name,
            suite_path=self._suite.path,
            dialect=self._suite.dialect,
            records=sum(self._used.values()),
            total=count_faults(faults),
            kinds={kind: count_faults(fault for fault in faults if fault.kind == kind) for kind in kinds},
            cases={case: count_faults(fault for fault in faults if fault.case == case) for case in self._used},
            faults=tuple(faults),
            proposals=tuple(sorted(proposals, key=lambda fault: (order[fault.case], -fault.survivors))),
            unused=tuple(self._list_unused()),
            claims=sum(len(self._cases[case].case.assertions) for case in self._used),
            skipped=dict(self._skipped),
            judged=self._judged,
        )

    def _propose(self, case_id: str, survivors: Sequence[_Survivor]) -> list[ProposedClaim]:
        """Return a small set of claims that detect as many survivors as possible, and note for each survivor the claim that detects it.

        A claim must pass on every record of the case, so that all of them can be added to the case.
        """
        originals = list({id(survivor.original): survivor.original for survivor in survivors}.values())
        candidates: dict[str, PreparedCase] = {}
        for survivor in survivors:
            for claim in survivor.claims:
                line = write_claim(claim)
                prepared = self._prepare_claim(case_id, claim, line) if line not in candidates else candidates[line]
                if prepared is None or len(line) > _LONGEST_LINE or redact_text(line) != line or _passes(prepared, survivor.planted):
                    continue
                if line in candidates or all(_passes(prepared, original) for original in originals):
                    candidates[line] = prepared
        detects = {
            line: {at for at, survivor in enumerate(survivors[:_MOST_COVERED]) if not _passes(prepared, survivor.planted)}
            for line, prepared in candidates.items()
        }
        ranks = {line: at for at, line in enumerate(candidates)}
        chosen: list[ProposedClaim] = []
        left = set(range(min(len(survivors), _MOST_COVERED)))
        while left and candidates:
            line = min(candidates, key=lambda candidate: (is_tailored(candidate), -len(detects[candidate] & left), ranks[candidate]))
            covered = sorted(detects[line] & left)
            if not covered:
                del candidates[line]
                continue
            for at in covered:
                survivors[at].fault = msgspec.structs.replace(survivors[at].fault, claim=line)
            kinds = tuple(dict.fromkeys(survivors[at].fault.kind for at in covered))
            chosen.append(ProposedClaim(case=case_id, line=f"- {line}", survivors=len(covered), kinds=kinds))
            left -= set(covered)
        return chosen

    def _prepare_claim(self, case_id: str, claim: Json, key: str) -> PreparedCase | None:
        at = f"{case_id}\0{key}"
        if at not in self._claims:
            assertion = read_claim(claim)
            case = self._cases[case_id].case
            added = msgspec.structs.replace(case, assertions=(assertion,), scoring=Scoring(), captures=()) if assertion else None
            self._claims[at] = PreparedCase(added, self._registry) if added is not None else None
        return self._claims[at]

    def _list_unused(self) -> Iterable[tuple[str, str]]:
        for case_id in self._used:
            for position, assertion in enumerate(self._cases[case_id].case.assertions):
                if not self._uses[case_id, position]:
                    entry = self._registry.get_for(assertion.check, assertion.spec)
                    yield case_id, assertion.label or make_default_label(entry, assertion.spec)


def drop_assertions(case: Case, decided: Sequence[Assertion]) -> Case:
    """Return a case with some of its assertions, which no longer depend on the others."""
    ids = {assertion.id for assertion in decided}
    left = (msgspec.structs.replace(each, depends_on=tuple(id for id in each.depends_on if id in ids)) for each in decided)
    return msgspec.structs.replace(case, assertions=tuple(left), captures=())


def write_claim(claim: Json) -> str:
    """Return a claim as one line of YAML."""
    if isinstance(claim, str):
        return claim
    name, value = next(iter(claim.items()))
    return f"{name}: {write_flow(value)}"


def read_claim(claim: Json) -> Assertion | None:
    """Return a claim of the native format; None if it cannot be read."""
    document = {"proctor": 1, "cases": [{"id": "claim", "expect": [claim]}]}
    try:
        suite = read_suite(to_yaml(document), name="claim")
    except InputError:
        return None
    return suite.cases[0].assertions[0] if not suite.warnings else None


def count_faults(faults: Iterable[PlantedFault]) -> FaultCounts:
    """Count faults by status."""
    counts = Counter(fault.status for fault in faults)
    return FaultCounts(detected=counts["detected"], survived=counts["survived"], free=counts["free"])


def _passes(case: PreparedCase, evidence: Evidence) -> bool:
    return case.decide(evidence).outcome == "pass"


def find_free(case: Case) -> set[str]:
    """Return the subjects that vary freely: those that the case lists, and arguments that a claim compares with a matcher."""
    listed = case.settings.get(VARIES)
    free = set(map(str, listed)) if isinstance(listed, list) else set[str]()
    for entry in sorted(free):
        kind = entry.partition(":")[0]
        if "." not in entry and kind not in KIND_NAMES:
            close = ", ".join(map(repr, nearest(kind, KIND_NAMES)))
            hint = f"; nearest: {close}" if close else ""
            raise InputError(
                f"settings.{VARIES} of the case {case.id!r}: expected a kind of fault, KIND:TOOL or TOOL.ARGUMENT, found {entry!r}{hint}"
            )
    copied = {(getattr(each.spec, "tool", ""), getattr(each.spec, "argument", "")) for each in case.assertions if each.check == _COPIED}
    for assertion in case.assertions:
        spec = assertion.spec
        tool, arguments = getattr(spec, "name", None), getattr(spec, "arguments", None)
        if assertion.check == "tool_argument":
            tool, arguments = getattr(spec, "tool", None), {getattr(spec, "argument", ""): getattr(spec, "value", None)}
        if assertion.check in ("tool_called", "tool_argument") and isinstance(arguments, dict):
            matchers = (key for key, value in arguments.items() if value == "*" or (isinstance(value, dict) and _is_matcher(value)))
            free.update(f"{tool}.{key}" for key in matchers if (tool, key) not in copied)
    return free


def _is_matcher(value: dict[str, Json]) -> bool:
    return "matcher" in value or (bool(value) and all(str(key).startswith("$") for key in value) and "$literal" not in value)
