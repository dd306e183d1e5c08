"""Merges two records of one run: the return value of its function, and the spans recorded while it ran.

The answer is the returned one; every other part comes from the record that has it, and the account names the source. Calls in both records
are one call (`pair_calls`). If only one record has a call, the calls are unknown if the other one claims to have all of them. The exception
is a call inside another one, made by an agent that a tool runs: what the outer agent returns does not show it. Arguments of a call that
differ between the two are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.call_identity import Pair, pair_calls
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.unknowns.account import Unknowns
from proctor.model.account import CALL_PARTS, PART_NAMES, Account, Part
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.model.show import show

_RETURNED, _TRACED = "the returned value", "the spans"


class InnerWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work inside tools: a tool may run its own agent, whose spans are below the span of the tool."""

    calls: tuple[ToolCall, ...] = ()
    outer_usage: Usage | None = None


def find_inner_work(spans: Sequence[Span], evidence: Evidence) -> InnerWork | None:
    """Return the work inside tools in the evidence of these spans, or None if there is none."""
    tree = SpanTree(spans)
    nested = [step for step in tree.steps if "tool" in step.above]
    if not any(step.kind in ("agent", "model", "tool") for step in nested):
        return None
    hidden = {step.span.id for step in nested}
    # Spans of a framework and of MCP for one call nest as well, so calls are compared and not spans.
    outer = build_evidence([span for span in spans if span.id not in hidden])
    pairs = pair_calls(evidence.tool_calls or (), outer.tool_calls or ())
    inner = tuple(pair.first for pair in pairs if pair.first is not None and pair.second is None)
    return InnerWork(calls=inner, outer_usage=outer.usage)


def merge_returned_and_traced(returned: Evidence, traced: Evidence, inner: InnerWork | None = None) -> Evidence:
    """Merge both records into one evidence; `inner` is the traced work inside tools."""
    return _Merged(returned, traced, inner or InnerWork()).merge()


class _Merged:
    def __init__(self, returned: Evidence, traced: Evidence, inner: InnerWork) -> None:
        self._returned, self._traced, self._inner = returned, traced, inner
        self._own, self._seen = returned.account or Account(), traced.account or Account()
        self._fields: dict[str, Json] = {}
        self._unknowns = Unknowns()
        self._disputed: list[ToolCall] = []
        """Calls of the spans whose arguments differ from the returned ones."""
        self._sources: dict[str, list[Part]] = {_TRACED: [], _RETURNED: [], "both": []}

    def merge(self) -> Evidence:
        self._join_calls()
        self._join_answer()
        self._join_usage()
        from_spans = self._returned.nodes is None
        if from_spans and self._traced.nodes is not None:
            self._fields["nodes"] = tuple(
                msgspec.structs.replace(node, tool_calls=tuple(map(self._without_disputed, node.tool_calls))) for node in self._traced.nodes
            )
        self._take("nodes", from_spans=from_spans, recorded=bool(self._traced.nodes if from_spans else self._returned.nodes))
        returned, traced, unknowns = self._returned, self._traced, self._unknowns
        for part in ("input", "turns", "state"):
            self._copy_unknown(part, self._own)
        sources = [f"from {source}: {', '.join(PART_NAMES[part] for part in parts)}" for source, parts in self._sources.items() if parts]
        for note in (*(["; ".join(sources)] if sources else []), *self._own.notes, *self._seen.notes):
            unknowns.note(note)
        for name in (*self._own.ignored, *self._seen.ignored):
            unknowns.ignore(name)
        return msgspec.structs.replace(
            returned,
            **self._fields,
            model=returned.model or traced.model,
            available_tools=returned.available_tools if returned.available_tools is not None else traced.available_tools,
            account=unknowns.close_account(" and ".join(reader for reader in (self._own.reader, self._seen.reader) if reader)),
            metadata={**traced.metadata, **returned.metadata},
        )

    def _take(self, part: Part, *, from_spans: bool, recorded: bool) -> None:
        """Note the source of a part, and copy why it is unknown there."""
        self._copy_unknown(part, self._seen if from_spans else self._own)
        if recorded:
            self._sources[_TRACED if from_spans else _RETURNED].append(part)

    def _join_answer(self) -> None:
        returned, traced = self._returned, self._traced
        if returned.text is None and returned.body is None and "answer" not in self._own.unknown:
            self._fields |= {"text": traced.text, "body": traced.body}
            self._take("answer", from_spans=True, recorded=traced.text is not None or traced.body is not None)
            return
        self._take("answer", from_spans=False, recorded=True)
        if returned.text is not None and traced.text is not None and returned.text.strip() != traced.text.strip():
            self._unknowns.note(f"the answer is {_RETURNED}; the last one in {_TRACED} differs: {show(traced.text, 100)}")

    def _join_usage(self) -> None:
        returned, traced, outer = self._returned.usage, self._traced.usage, self._inner.outer_usage
        if returned is not None and traced is not None and outer is not None and returned.total() == outer.total():
            returned = None  # These are the tokens of the outer agent only.
        self._fields["usage"] = returned or traced
        self._take("usage", from_spans=returned is None, recorded=returned is not None or traced is not None)
        # Only a complete sum is compared.
        if returned is not None and traced is not None and "usage" not in self._seen.unknown and returned.total() != traced.total():
            self._unknowns.mark("usage", f"{_RETURNED} reports {returned.total()} tokens, {_TRACED} report {traced.total()}")

    def _without_disputed(self, call: ToolCall) -> ToolCall:
        return msgspec.structs.replace(call, arguments=None) if call in self._disputed else call

    def _join_calls(self) -> None:
        returned, traced = _list_calls(self._returned), _list_calls(self._traced)
        if returned is None or traced is None:
            self._take_calls_of_one(returned, traced)
            return
        pairs = pair_calls(returned, traced)
        self._disputed = [pair.second for pair in pairs if pair.second is not None and not pair.agrees]
        self._mark_calls(pairs)
        for pair in pairs:
            if pair.first is not None and not pair.agrees:
                why = f"{_RETURNED} and {_TRACED} have different arguments of {show(pair.first.name, 60)}"
                self._unknowns.mark("tool_arguments", why)
            if pair.first is not None and pair.has_two_results():
                self._unknowns.note(f"{_RETURNED} and {_TRACED} have different results of {show(pair.first.name, 60)}")
            for part in ("tool_arguments", "tool_results"):
                missing = self._explain_inside(pair, part)
                if missing is not None:
                    self._unknowns.mark(part, missing)
        self._sources["both" if returned and traced else _TRACED if traced else _RETURNED].append("tool_calls")
        # If the spans have all calls, they also have their order. Only spans record when the calls inside a tool were made.
        if ("tool_calls" in self._own.unknown and "tool_calls" not in self._unknowns.unknown) or (
            self._inner.calls and all(pair.second is not None for pair in pairs)
        ):
            pairs = [pair for call in traced for pair in pairs if pair.second is call]
        if self._returned.tool_calls is not None or any(pair.first is None for pair in pairs):
            self._fields["tool_calls"] = tuple(pair.merge() for pair in pairs)

    def _take_calls_of_one(self, returned: tuple[ToolCall, ...] | None, seen: tuple[ToolCall, ...] | None) -> None:
        known, other = (self._own, self._seen) if returned is not None else (self._seen, self._own)
        why = other.unknown.get("tool_calls")
        if returned is None:
            self._fields["tool_calls"] = seen
        if returned is None and seen is None and why is not None:
            reasons = dict.fromkeys((known.unknown.get("tool_calls"), why))
            self._unknowns.mark("tool_calls", "; ".join(one for one in reasons if one is not None))
        elif why is not None:
            self._unknowns.note(f"{_TRACED if known is self._own else _RETURNED}: tool calls unknown: {why}")
        self._take("tool_calls", from_spans=returned is None, recorded=returned is not None or seen is not None)
        for part in CALL_PARTS[1:]:
            self._copy_unknown(part, known)

    def _mark_calls(self, pairs: Sequence[Pair]) -> None:
        """Mark the calls unknown if the records differ, or neither is complete."""
        reasons = {_RETURNED: self._own.unknown.get("tool_calls"), _TRACED: self._seen.unknown.get("tool_calls")}
        unpaired = [pair.second for pair in pairs if pair.first is None and pair.second is not None]
        nested = [call for call in unpaired if any(call is one for one in self._inner.calls)]
        if nested:
            names = dict.fromkeys(show(call.name, 60) for call in nested)
            self._unknowns.note(f"only in {_TRACED}, inside a tool: {', '.join(names)}")
        only = {
            _TRACED: next((call for call in unpaired if not any(call is one for one in nested)), None),
            _RETURNED: next((pair.first for pair in pairs if pair.second is None), None),
        }
        differ = f"{_RETURNED} and {_TRACED} have different calls"
        unsure = next((pair.first for pair in pairs if pair.second is not None and pair.first is not None and not pair.is_one_call), None)
        if unsure is not None:
            self._unknowns.mark("tool_calls", f"{differ}: {show(unsure.name, 60)} has other arguments in each")
        for source, other in ((_TRACED, _RETURNED), (_RETURNED, _TRACED)):
            call = only[source]
            if call is not None and reasons[other] is None:
                self._unknowns.mark("tool_calls", f"{differ}: {show(call.name, 60)} is only in {source}")
        known = {source: why for source, why in reasons.items() if why is not None}
        if len(known) == 2:
            self._unknowns.mark("tool_calls", "; ".join(dict.fromkeys(known.values())))
        for source, why in known.items() if "tool_calls" not in self._unknowns.unknown else ():
            self._unknowns.note(f"{source}: tool calls unknown: {why}")

    def _explain_inside(self, pair: Pair, part: Part) -> str | None:
        """Explain why the arguments or results of a call are unknown, or return None if one of the records has them."""
        reasons: list[str] = []
        for call, account in ((pair.first, self._own), (pair.second, self._seen)):
            if call is None:
                continue
            has_part = call.arguments is not None if part == "tool_arguments" else call.result is not None or call.failed()
            if part in account.unknown:
                reasons.append(account.unknown[part])
            elif has_part:
                return None
        return reasons[-1] if reasons else None

    def _copy_unknown(self, part: Part, account: Account) -> None:
        why = account.unknown.get(part)
        if why is None:
            return
        if part == "tool_calls" and account.seen_tools:
            self._unknowns.mark_other_tools(why, account.seen_tools)
        elif part in account.overridable:
            self._unknowns.mark_unrecognised((part,), why)
        else:
            self._unknowns.mark(part, why)


def _list_calls(evidence: Evidence) -> tuple[ToolCall, ...] | None:
    """Return the calls of an evidence, at its root or in its nodes, or None if none were recorded."""
    if evidence.tool_calls is not None or evidence.nodes is None:
        return evidence.tool_calls
    # A trace has nodes even if its calls are unknown.
    nested = tuple(call for node in evidence.nodes for call in node.tool_calls)
    return nested or None if "tool_calls" in (evidence.account or Account()).unknown else nested
