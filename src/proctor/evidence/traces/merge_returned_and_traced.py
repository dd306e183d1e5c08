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
    return _Merger(returned, traced, inner or InnerWork()).merge()


class _Merger:
    def __init__(self, returned: Evidence, traced: Evidence, inner: InnerWork) -> None:
        self._returned, self._traced, self._inner = returned, traced, inner
        self._accounts = {_RETURNED: returned.account or Account(), _TRACED: traced.account or Account()}
        self._fields: dict[str, Json] = {}
        self._unknowns = Unknowns()
        self._disputed: list[ToolCall] = []
        """Calls of the spans whose arguments differ from the returned ones."""
        self._sources: dict[str, list[Part]] = {_TRACED: [], _RETURNED: [], "both": []}

    def merge(self) -> Evidence:
        returned, traced, unknowns = self._returned, self._traced, self._unknowns
        self._merge_calls()
        if returned.text is None and returned.body is None and "answer" not in self._accounts[_RETURNED].unknown:
            self._fields |= {"text": traced.text, "body": traced.body}
            self._take("answer", _TRACED, recorded=traced.text is not None or traced.body is not None)
        else:
            self._take("answer", _RETURNED, recorded=True)
            if returned.text is not None and traced.text is not None and returned.text.strip() != traced.text.strip():
                unknowns.note(f"the answer is {_RETURNED}; the last one in {_TRACED} differs: {show(traced.text, 100)}")
        self._merge_usage()
        if returned.nodes is None and traced.nodes is not None:
            self._fields["nodes"] = tuple(
                msgspec.structs.replace(node, tool_calls=tuple(map(self._without_disputed, node.tool_calls))) for node in traced.nodes
            )
        self._take(
            "nodes",
            _TRACED if returned.nodes is None else _RETURNED,
            recorded=bool(traced.nodes if returned.nodes is None else returned.nodes),
        )
        for part in ("input", "turns", "state"):
            self._copy_unknown(part, _RETURNED)
        sources = [f"from {source}: {', '.join(PART_NAMES[part] for part in parts)}" for source, parts in self._sources.items() if parts]
        if sources:
            unknowns.note("; ".join(sources))
        for account in self._accounts.values():
            for note in account.notes:
                unknowns.note(note)
            for name in account.ignored:
                unknowns.ignore(name)
        return msgspec.structs.replace(
            returned,
            **self._fields,
            model=returned.model or traced.model,
            available_tools=returned.available_tools if returned.available_tools is not None else traced.available_tools,
            account=unknowns.close_account(" and ".join(account.reader for account in self._accounts.values() if account.reader)),
            metadata={**traced.metadata, **returned.metadata},
        )

    def _take(self, part: Part, source: str, *, recorded: bool) -> None:
        """Note the source of a part, and copy why it is unknown there."""
        self._copy_unknown(part, source)
        if recorded:
            self._sources[source].append(part)

    def _copy_unknown(self, part: Part, source: str) -> None:
        account = self._accounts[source]
        why = account.unknown.get(part)
        if why is not None and part == "tool_calls" and account.seen_tools:
            self._unknowns.mark_other_tools(why, account.seen_tools)
        elif why is not None:
            (self._unknowns.mark_unrecognised if part in account.overridable else self._unknowns.mark_parts)((part,), why)

    def _merge_usage(self) -> None:
        returned, traced, outer = self._returned.usage, self._traced.usage, self._inner.outer_usage
        if returned is not None and traced is not None and outer is not None and returned.total() == outer.total():
            returned = None  # These are the tokens of the outer agent only.
        self._fields["usage"] = returned or traced
        self._take("usage", _TRACED if returned is None else _RETURNED, recorded=returned is not None or traced is not None)
        # Only a complete sum is compared.
        is_complete = "usage" not in self._accounts[_TRACED].unknown
        if is_complete and returned is not None and traced is not None and returned.total() != traced.total():
            self._unknowns.mark("usage", f"{_RETURNED} reports {returned.total()} tokens, {_TRACED} report {traced.total()}")

    def _without_disputed(self, call: ToolCall) -> ToolCall:
        return msgspec.structs.replace(call, arguments=None) if call in self._disputed else call

    def _merge_calls(self) -> None:
        returned, traced = _list_calls(self._returned), _list_calls(self._traced)
        if returned is None or traced is None:
            self._take_calls_of_one(returned, traced)
            return
        pairs = pair_calls(returned, traced)
        self._disputed = [pair.second for pair in pairs if pair.second is not None and not pair.agrees]
        self._mark_calls(pairs)
        for pair in pairs:
            name = show(pair.first.name, 60) if pair.first is not None else ""
            if name and not pair.agrees:
                self._unknowns.mark("tool_arguments", f"{_RETURNED} and {_TRACED} have different arguments of {name}")
            if name and pair.has_two_results():
                self._unknowns.note(f"{_RETURNED} and {_TRACED} have different results of {name}")
            for part in CALL_PARTS[1:]:
                missing = self._explain_missing(pair, part)
                if missing is not None:
                    self._unknowns.mark(part, missing)
        self._sources["both" if returned and traced else _TRACED if traced else _RETURNED].append("tool_calls")
        # If the spans have all calls, they also have their order. Only spans record when the calls inside a tool were made.
        is_traced_only = "tool_calls" in self._accounts[_RETURNED].unknown and "tool_calls" not in self._unknowns.unknown
        if is_traced_only or (self._inner.calls and all(pair.second is not None for pair in pairs)):
            pairs = [pair for call in traced for pair in pairs if pair.second is call]
        if self._returned.tool_calls is not None or any(pair.first is None for pair in pairs):
            self._fields["tool_calls"] = tuple(pair.merge() for pair in pairs)

    def _take_calls_of_one(self, returned: tuple[ToolCall, ...] | None, traced: tuple[ToolCall, ...] | None) -> None:
        source, other = (_RETURNED, _TRACED) if returned is not None else (_TRACED, _RETURNED)
        known, why = self._accounts[source], self._accounts[other].unknown.get("tool_calls")
        if returned is None:
            self._fields["tool_calls"] = traced
        if returned is None and traced is None and why is not None:
            reasons = dict.fromkeys((known.unknown.get("tool_calls"), why))
            self._unknowns.mark("tool_calls", "; ".join(one for one in reasons if one is not None))
        elif why is not None:
            self._unknowns.note(f"{other}: tool calls unknown: {why}")
        self._take("tool_calls", source, recorded=returned is not None or traced is not None)
        for part in CALL_PARTS[1:]:
            self._copy_unknown(part, source)

    def _mark_calls(self, pairs: Sequence[Pair]) -> None:
        """Mark the calls unknown if the records differ, or neither is complete."""
        known = {source: account.unknown["tool_calls"] for source, account in self._accounts.items() if "tool_calls" in account.unknown}
        unpaired = [pair.second for pair in pairs if pair.first is None and pair.second is not None]
        nested = [call for call in unpaired if any(call is one for one in self._inner.calls)]
        if nested:
            names = dict.fromkeys(show(call.name, 60) for call in nested)
            self._unknowns.note(f"only in {_TRACED}, inside a tool: {', '.join(names)}")
        differ = f"{_RETURNED} and {_TRACED} have different calls"
        unsure = next((pair.first for pair in pairs if pair.second is not None and pair.first is not None and not pair.is_one_call), None)
        if unsure is not None:
            self._unknowns.mark("tool_calls", f"{differ}: {show(unsure.name, 60)} has other arguments in each")
        traced_only = next((call for call in unpaired if not any(call is one for one in nested)), None)
        returned_only = next((pair.first for pair in pairs if pair.second is None), None)
        for source, call, other in ((_TRACED, traced_only, _RETURNED), (_RETURNED, returned_only, _TRACED)):
            if call is not None and other not in known:
                self._unknowns.mark("tool_calls", f"{differ}: {show(call.name, 60)} is only in {source}")
        if len(known) == 2:
            self._unknowns.mark("tool_calls", "; ".join(dict.fromkeys(known.values())))
        for source, why in known.items() if "tool_calls" not in self._unknowns.unknown else ():
            self._unknowns.note(f"{source}: tool calls unknown: {why}")

    def _explain_missing(self, pair: Pair, part: Part) -> str | None:
        """Explain why the arguments or results of a call are unknown, or return None if one of the records has them."""
        why: str | None = None
        for call, account in zip((pair.first, pair.second), self._accounts.values(), strict=True):
            if call is not None and part in account.unknown:
                why = account.unknown[part]
            elif call is not None and (
                call.arguments is not None if part == "tool_arguments" else call.result is not None or call.failed()
            ):
                return None
        return why


def _list_calls(evidence: Evidence) -> tuple[ToolCall, ...] | None:
    """Return the calls of an evidence, at its root or in its nodes, or None if none were recorded."""
    if evidence.tool_calls is not None or evidence.nodes is None:
        return evidence.tool_calls
    # A trace has nodes even if its calls are unknown.
    nested = tuple(call for node in evidence.nodes for call in node.tool_calls)
    return nested or None if "tool_calls" in (evidence.account or Account()).unknown else nested
