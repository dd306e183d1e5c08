"""Makes cases from recorded runs: groups them by path, and writes a case for each group that is large enough."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

import msgspec

from proctor.cassettes.entries import REDACTED
from proctor.cassettes.redaction import redact
from proctor.checks.registry import default_registry
from proctor.decide.prepare import PreparedCase
from proctor.formats.native.drafting import add_id, make_slug
from proctor.generation.claims import Claim, make_claims
from proctor.generation.observations import GroupFacts
from proctor.generation.trace_paths import FAILED, EffectNames, TracePath, reduce_trace
from proctor.model.case import Case
from proctor.model.evidence import Evidence, EvidenceTurn, Json
from proctor.mutation.call_edits import list_calls, list_steps
from proctor.mutation.measure import VARIES, read_claim
from proctor.report.words.wording import count_noun

LEAST_RUNS = 3
"""The minimum number of runs of a group for a case."""
_MOST_GROUPS = 2_000
"""Paths that are followed; further ones are counted as rare."""
_MOST_TOOLS = 500
_LONGEST_NAME = 50


class GeneratedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case in the native shape, and the group it was made from."""

    document: dict[str, Json]
    path: TracePath
    runs: int
    samples: tuple[Evidence, ...] = ()
    """Some runs of the group."""


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of generating from recorded runs."""

    cases: tuple[GeneratedCase, ...]
    rare: tuple[tuple[str, int], ...]
    """Paths with too few runs, and the number of runs of each."""
    runs: int
    left_out: dict[str, int]
    """The number of unused records by reason."""


class TraceGrouping:
    """Collects recorded runs one by one, in bounded memory."""

    def __init__(self, effects: EffectNames = EffectNames()) -> None:  # noqa: B008 - immutable
        self._effects = effects
        self._groups: dict[TracePath, GroupFacts] = {}
        self._tools: dict[str, None] = {}
        self._nodes: dict[str, None] = {}
        self._left_out: Counter[str] = Counter()
        self._runs = self._beyond = 0

    def add(self, evidence: Evidence, source: str) -> None:
        """Add a run, or count why it cannot be used."""
        why = find_unusable(evidence)
        if why is not None:
            self._left_out[why] += 1
            return
        self._runs += 1
        if len(self._tools) < _MOST_TOOLS:
            self._tools.update(dict.fromkeys((*(evidence.available_tools or ()), *(call.name for call in list_calls(evidence)))))
        if len(self._nodes) < _MOST_TOOLS:
            self._nodes.update(dict.fromkeys(node.name for node in list_steps(evidence)))
        path = reduce_trace(evidence, self._effects)
        group = self._groups.get(path)
        if group is None:
            if len(self._groups) >= _MOST_GROUPS:
                self._beyond += 1
                return
            group = self._groups[path] = GroupFacts()
        group.add(evidence, source)

    def skip(self, why: str) -> None:
        """Count a record that could not be read."""
        self._left_out[why] += 1

    def finish(self, *, least: int = LEAST_RUNS) -> Generated:
        """Return a case for each group of at least `least` runs, the largest group first."""
        groups = sorted(self._groups.items(), key=lambda pair: (-pair[1].runs, pair[0]))
        used: set[str] = set()
        cases: list[GeneratedCase] = []
        rare = [
            (f"{describe_path(path, list(group.nodes))} (a case needs {least})", group.runs) for path, group in groups if group.runs < least
        ]
        if self._beyond:
            rare.append(("further paths", self._beyond))
        for path, group in groups:
            if group.runs >= least:
                cases.append(make_case(path, group, list(self._tools), self._effects, used, list(self._nodes)))
        return Generated(cases=tuple(cases), rare=tuple(rare), runs=self._runs, left_out=dict(self._left_out))


def find_unusable(evidence: Evidence) -> str | None:
    """Return why no case can be made of a run, if so."""
    if evidence.no_run is not None:
        return "no run of an agent"
    if evidence.error is not None:
        return "the run did not finish"
    if evidence.input is None and not any(turn.input for turn in evidence.turns or ()):
        return "the input was not recorded"
    unknown = evidence.account.unknown if evidence.account is not None else {}
    is_recorded = evidence.tool_calls is not None or evidence.nodes is not None or evidence.turns
    if not is_recorded or "tool_calls" in unknown or "tool_arguments" in unknown:
        return "the tool calls are not known completely"
    return "the answer is not known completely" if "answer" in unknown else None


def make_case(
    path: TracePath, group: GroupFacts, catalogue: Sequence[str], effects: EffectNames, used: set[str], nodes: Sequence[str]
) -> GeneratedCase:
    """Return the case of a group, with the claims that every stored run satisfies."""
    example, has_secret = group.choose_example()
    claims = filter_satisfied(make_claims(group, catalogue, effects, nodes), group.samples)
    document: dict[str, Json] = {
        "id": add_id(name_path(path, list(group.nodes)), used),
        "description": f"{count_noun(group.runs, 'trace')}, such as {', '.join(group.sources)}: {describe_path(path, list(group.nodes))}",
    }
    turns = example.turns or ()
    if len(turns) > 1:
        document["turns"] = _write_turns(turns, group)
    else:
        inputs = (example.input, *(turn.input for turn in turns))
        first_input = redact(next((each for each in inputs if each is not None), ""))
        messages = first_input if isinstance(first_input, list) and all(isinstance(each, str) for each in first_input) else [first_input]
        if len(messages) > 1:
            document["turns"] = [{"input": each} for each in messages]
        else:
            document["input" if isinstance(messages[0], str) else "body"] = messages[0]
    if has_secret:
        document["description"] += f"; a secret of the input was replaced by {REDACTED}"
    reads = [name for name in sorted(group.tools) if effects.find(name) == "reads"]
    order = group.order or set()
    has_free_order = any(pair not in order and pair[::-1] not in order for pair in combinations(sorted(group.tools), 2))
    has_several_reads = len(reads) > 1 or any(group.tools[name].most > 1 for name in reads)
    varies: list[Json] = [f"call_repeated:{name}" for name in reads]
    varies += [f"call_dropped:{name}" for name in reads if group.tools[name].least < group.tools[name].most]
    if has_free_order or has_several_reads:
        varies.append("calls_swapped")
    document["expect"] = [claim.write() for claim in claims]
    if varies:
        document["settings"] = {VARIES: varies}
    return GeneratedCase(document=document, path=path, runs=group.runs, samples=tuple(group.samples))


def _write_turns(messages: Sequence[EvidenceTurn], group: GroupFacts) -> list[Json]:
    """Return the messages of a conversation, with claims about each answer that every stored run satisfies."""
    turns = [evidence.turns or () for evidence in group.samples]
    because = f"so in each of {len(turns)} traces" + (f" out of {group.runs:,}" if group.runs > len(turns) else "")
    written: list[Json] = []
    for at, turn in enumerate(messages):
        answers = [Evidence(text=each[at].text or "") if len(each) > at else Evidence() for each in turns]
        claims = filter_satisfied([Claim(body, because) for body in ("response_not_empty", "no_pii")], answers)
        written.append({"input": redact(turn.input) or "", **({"expect": [claim.write() for claim in claims]} if claims else {})})
    return written


def filter_satisfied(claims: Iterable[Claim], samples: Sequence[Evidence]) -> list[Claim]:
    """Return the claims that each of these runs satisfies."""
    satisfied: list[Claim] = []
    for claim in claims:
        assertion = read_claim(claim.body)
        if assertion is not None:
            prepared = PreparedCase(Case(id="claim", assertions=(assertion,)), default_registry())
            if all(prepared.decide(evidence).outcome == "pass" for evidence in samples):
                satisfied.append(claim)
    return satisfied


def name_path(path: TracePath, order: Sequence[str]) -> str:
    """Return the name of a path, from which the id of its case is made, with the steps in this order. No other path gets the same."""
    name = "-".join(step.replace(FAILED, "-failed") for step in (*path.steps, *_sort_nodes(path, order))) or "answer without tools"
    name = f"{name}-in-{path.turns}-messages" if path.turns > 1 else name
    digest = hashlib.sha256(repr(path).encode()).hexdigest()[:6]
    # Whole words of its end, where paths differ.
    return name if len(name) <= _LONGEST_NAME else f"{make_slug(name)[-_LONGEST_NAME:].partition('-')[2]} {digest}"


def describe_path(path: TracePath, order: Sequence[str]) -> str:
    """Return a path in words, with the steps in this order."""
    words = " → ".join(path.steps) or "no tool"
    words += f" in the steps {', '.join(_sort_nodes(path, order))}" if path.nodes else ""
    return words.replace(FAILED, " (failed)") + (f", {path.turns} messages" if path.turns > 1 else "")


def _sort_nodes(path: TracePath, order: Sequence[str]) -> list[str]:
    return sorted(path.nodes, key=lambda name: order.index(name.removesuffix(FAILED)))
