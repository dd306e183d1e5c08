"""Accepts proposals into a suite. Comments, order and all other lines of the suite stay; what was rejected is remembered.

Every change is read again before it is written: the other cases must be unchanged, and the accepted one must be as proposed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from proctor.actions.checking.draft_case import read_existing_suite, replace_file, write_head
from proctor.actions.generating.generate_traces import make_writer
from proctor.actions.generating.pending_file import add_rejections, find_suite_path, read_pending, read_rejections, write_pending
from proctor.actions.workspace.run_history import open_run
from proctor.checks.registry import default_registry
from proctor.decide.selection import select
from proctor.errors import InputError
from proctor.formats.native.editing import append_cases, edit_claims
from proctor.formats.native.text import build_native_document
from proctor.formats.suites import read_suite
from proctor.generation.claims import make_claims
from proctor.generation.observations import GroupFacts
from proctor.generation.proposals import Proposal, Rejection, compare_with_suite, write_key
from proctor.generation.trace_cases import filter_satisfied, find_unusable
from proctor.generation.trace_paths import EffectNames
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json
from proctor.mutation.call_edits import list_calls
from proctor.store.files.run_files import RunFiles

GOLDEN = "golden run"
"""Begins the reason of claims that were made from a run."""
Decision = Literal["accept", "reject", "skip"]
_YES = frozenset(("1", "true", "yes", "on"))


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """Proposals for a suite, and where they come from."""

    suite_path: Path
    proposals: tuple[Proposal, ...]
    path: Path | None = None
    """The file of proposals; None if they were made from a run."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What was done with the proposals."""

    accepted: tuple[Proposal, ...] = ()
    rejected: tuple[Proposal, ...] = ()
    left: tuple[Proposal, ...] = ()


def is_frozen(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether nothing may be written, because this is a CI job."""
    return environment.get("CI", "").strip().lower() in _YES


def open_pending(path: Path) -> Pending:
    """Return the proposals of a file, compared with its suite as it is now."""
    suite_path = find_suite_path(path)
    existing = read_existing_suite(suite_path)
    suite = existing[1] if existing is not None else None
    documents = read_pending(path)[0] if path.exists() else []
    rejected = {each.key for each in read_rejections(suite_path)}
    return Pending(suite_path=suite_path, proposals=tuple(compare_with_suite(documents, suite, make_writer(suite), rejected)), path=path)


def select_proposals(pending: Pending, *, kind: str | None = None, expression: str | None = None) -> set[str]:
    """Return the cases of the proposals of a kind that an expression selects, as `-k` selects cases."""
    cases = tuple(Case(id=each.case) for each in pending.proposals if kind is None or each.kind == kind)
    return {case.id for case in select(Suite(name="pending", cases=cases), expression).cases}


def settle_proposals(pending: Pending, decide: Callable[[Proposal], Decision], *, reason: str = "") -> Accepted:
    """Accept, reject or leave each proposal. Raises `InputError` before anything is written if the suite cannot be changed."""
    groups: dict[Decision, list[Proposal]] = {"accept": [], "reject": [], "skip": []}
    for proposal in pending.proposals:
        groups[decide(proposal)].append(proposal)
    if groups["accept"]:
        replace_file(pending.suite_path, apply_proposals(pending.suite_path, groups["accept"]))
    if groups["reject"]:
        rejected = ((each.case, key) for each in groups["reject"] for key in ([""] if each.kind == "new" else map(write_key, each.added)))
        add_rejections(pending.suite_path, [Rejection(case=case, claim=key, reason=reason) for case, key in rejected])
    if pending.path is not None and pending.path.exists() and len(groups["skip"]) < len(pending.proposals):
        left = groups["skip"]
        if left:
            _, notes, name = read_pending(pending.path)
            write_pending(pending.path, name, [each.document for each in left], notes)
        else:
            pending.path.unlink()
    return Accepted(accepted=tuple(groups["accept"]), rejected=tuple(groups["reject"]), left=tuple(groups["skip"]))


def apply_proposals(suite_path: Path, proposals: Sequence[Proposal]) -> str:
    """Return the text of the suite with these proposals. Raises `InputError` if it cannot be changed."""
    text, suite = read_existing_suite(suite_path) or (write_head(suite_path.stem), None)
    return edit_suite(text, suite, proposals, suite_path)


def edit_suite(text: str, suite: Suite | None, proposals: Sequence[Proposal], suite_path: Path) -> str:
    """Return the text of a suite with these proposals; `suite_path` is its name in errors. Raises `InputError` if it cannot be changed."""
    before = _write_cases(suite)
    for proposal in (each for each in proposals if each.kind == "changed"):
        assert suite is not None
        case = next(case for case in suite.cases if case.id == proposal.case)
        text = edit_claims(text, case, proposal.removed, proposal.added)
        # Read again, because the lines of later cases have moved.
        suite = _read_edited(text, suite_path)
    added = [each.document for each in proposals if each.kind == "new"]
    if added:
        text = append_cases(text, suite, added)
    _check_result(suite_path, before, proposals, _read_edited(text, suite_path))
    return text


def _read_edited(text: str, suite_path: Path) -> Suite:
    try:
        return read_suite(text, file=str(suite_path), name=suite_path.stem)
    except InputError as error:
        raise InputError(f"{str(suite_path)!r} cannot be changed line by line; nothing was written: {error}") from error


def _write_cases(suite: Suite | None) -> dict[str, dict[str, Json]]:
    cases = build_native_document(suite, default_registry())["cases"] if suite is not None else []
    return {case["id"]: case for case in cases}


def _check_result(suite_path: Path, before: dict[str, dict[str, Json]], proposals: Sequence[Proposal], suite: Suite) -> None:
    """Reject a result that is not the previous suite with exactly the accepted changes."""
    after, changed = _write_cases(suite), {each.case: each for each in proposals}
    problems = [name for name, case in before.items() if name not in changed and after.get(name) != case]
    for name, proposal in changed.items():
        expected = {write_key(claim) for claim in proposal.document.get("expect", ())}
        claims_after = {write_key(claim) for claim in after.get(name, {}).get("expect", ())}
        wrong = expected != claims_after if proposal.kind == "new" else not {write_key(claim) for claim in proposal.added} <= claims_after
        problems += [name] if wrong else []
    if problems or len(after) != len(before) + sum(each.kind == "new" for each in proposals):
        names = ", ".join(problems[:5]) or "the list of cases"
        raise InputError(f"{str(suite_path)!r} cannot be changed line by line ({names}); nothing was written: edit it by hand")


def make_golden(home: Path, run: str) -> Pending:
    """Return the claims of a passing run as proposals for its suite. Raises `InputError` if the run did not pass, or has no native file."""
    result, _ = open_run(home, run)
    if not result.passed:
        raise InputError(f"run {result.run_id!r} did not pass ({result.outcome}), so it cannot become golden")
    path = Path(result.suite_path) if result.suite_path is not None else None
    existing = read_existing_suite(path) if path is not None and path.is_file() else None
    if path is None or existing is None:
        place = result.suite_path or "it has no path"
        raise InputError(f"the suite of run {result.run_id!r} cannot be changed, since it is not a file: {place}")
    groups: dict[str, GroupFacts] = {}
    tools: dict[str, None] = {}
    for entry in RunFiles(home).open(run).entries():
        if entry.evidence is not None and find_unusable(entry.evidence) in (None, "the input was not recorded"):
            groups.setdefault(entry.case, GroupFacts()).add(entry.evidence, result.run_id)
            tools.update(dict.fromkeys((*(entry.evidence.available_tools or ()), *(call.name for call in list_calls(entry.evidence)))))
    documents: list[dict[str, Json]] = []
    for case, group in groups.items():
        claims = filter_satisfied(make_claims(group, list(tools), EffectNames()), group.samples)
        golden = [{**claim.write(), "because": f"{GOLDEN}: {claim.because.replace('trace', 'attempt')}"} for claim in claims]
        documents.append({"id": case, "expect": golden})
    known = {case.id for case in existing[1].cases}
    rejected = {each.key for each in read_rejections(path)}
    chosen = [document for document in documents if document["id"] in known]
    proposals = compare_with_suite(chosen, existing[1], make_writer(existing[1]), rejected, replaces=(GOLDEN,))
    return Pending(suite_path=path, proposals=tuple(proposals))
