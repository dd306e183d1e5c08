"""One run told twice: by what its function returned, and by the spans that were recorded meanwhile.

The answer is what was returned; of everything else, each part comes from whoever knows it, and the account says from whom. Calls that both
tell of are one call (`call_pairs`). A call that only one of them tells of is kept, and the calls are doubted where the other claims to know
them all; not so a call that only the spans tell of and that was made inside of another one, by an agent that a tool runs: what is returned
of the outer agent does not show it. Where the two say different things of one call's arguments, these are unknown: nothing may pass on
either of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.evidence.shared.pair_calls import Pair, pair_calls
from proctor.evidence.traces.nested_work import InnerWork
from proctor.evidence.unknowns.account import Unknowns
from proctor.model.account import CALL_PARTS, PART_NAMES, Account, Part
from proctor.model.evidence import Evidence, Json, Node, ToolCall
from proctor.model.show import show

_RETURNED, _TRACED = "what the function returned", "the spans"


def join_tellings(returned: Evidence, traced: Evidence, inner: InnerWork | None = None) -> Evidence:
    """Return what was returned and what was traced as one evidence; `inner` is what of the traced was done inside of tools."""
    joined = _Joined(returned, traced, inner or InnerWork())
    joined.join_calls()
    joined.join_answer()
    joined.join_usage()
    joined.join_nodes()
    return joined.close()


class _Joined:
    """The one evidence while it is made."""

    def __init__(self, returned: Evidence, traced: Evidence, inner: InnerWork) -> None:
        self._returned, self._traced, self._inner = returned, traced, inner
        self._own, self._seen = returned.account or Account(), traced.account or Account()
        self._fields: dict[str, Json] = {}
        self._unknowns = Unknowns()
        self._disputed: list[ToolCall] = []
        """Calls of the spans of whose arguments something else was returned."""
        self._sources: dict[str, list[Part]] = {_TRACED: [], _RETURNED: [], "both": []}

    def close(self) -> Evidence:
        """Return the evidence with its account."""
        returned, traced, unknowns = self._returned, self._traced, self._unknowns
        for part in ("input", "turns", "state"):
            self._carry_doubt(part, self._own)
        told = [f"from {source}: {', '.join(PART_NAMES[part] for part in parts)}" for source, parts in self._sources.items() if parts]
        if told:
            unknowns.note("; ".join(told))
        for note in (*self._own.notes, *self._seen.notes):
            unknowns.note(note)
        return msgspec.structs.replace(
            returned,
            **self._fields,
            model=returned.model or traced.model,
            available_tools=returned.available_tools if returned.available_tools is not None else traced.available_tools,
            account=unknowns.close_account(" and ".join(reader for reader in (self._own.reader, self._seen.reader) if reader)),
            metadata={**traced.metadata, **returned.metadata},
        )

    def join_answer(self) -> None:
        """Take the answer that was returned; where none was, the one of the spans."""
        returned, traced = self._returned, self._traced
        if returned.text is None and returned.body is None and "answer" not in self._own.unknown:
            self._fields |= {"text": traced.text, "body": traced.body}
            self._carry_doubt("answer", self._seen)
            if traced.text is not None or traced.body is not None:
                self._sources[_TRACED].append("answer")
            return
        self._carry_doubt("answer", self._own)
        self._sources[_RETURNED].append("answer")
        if returned.text is not None and traced.text is not None and returned.text.strip() != traced.text.strip():
            self._unknowns.note(f"the answer is {_RETURNED}; the last one in {_TRACED} is another: {show(traced.text, 100)}")

    def join_usage(self) -> None:
        """Take the tokens that were returned, else those of the spans; doubt them where the two differ."""
        told, seen, outer = self._returned.usage, self._traced.usage, self._inner.outer_usage
        if told is not None and seen is not None and outer is not None and told.total() == outer.total():
            # What was returned counts the outer agent only.
            told = None
        self._fields["usage"] = told or seen
        self._carry_doubt("usage", self._own if told is not None else self._seen)
        if told is not None or seen is not None:
            self._sources[_RETURNED if told is not None else _TRACED].append("usage")
        # Tokens of a part of the spans are no contradiction: only a whole sum is compared.
        if told is not None and seen is not None and "usage" not in self._seen.unknown and told.total() != seen.total():
            self._unknowns.mark("usage", f"{_RETURNED} tells of {told.total()} tokens, and {_TRACED} of {seen.total()}")

    def join_nodes(self) -> None:
        """Take the steps that were returned, else those of the spans."""
        from_spans = self._returned.nodes is None
        if from_spans and self._traced.nodes is not None:
            self._fields["nodes"] = tuple(self._without_disputed(node) for node in self._traced.nodes)
        self._carry_doubt("nodes", self._seen if from_spans else self._own)
        if self._returned.nodes or (from_spans and self._traced.nodes):
            self._sources[_TRACED if from_spans else _RETURNED].append("nodes")

    def _without_disputed(self, node: Node) -> Node:
        if not any(call in self._disputed for call in node.tool_calls):
            return node
        bare = (msgspec.structs.replace(call, arguments=None) if call in self._disputed else call for call in node.tool_calls)
        return msgspec.structs.replace(node, tool_calls=tuple(bare))

    def join_calls(self) -> None:
        """Take the calls of both, each once."""
        told, seen = _list_calls(self._returned), _list_calls(self._traced)
        if told is None or seen is None:
            self._take_calls_of_one(told, seen)
            return
        pairs = pair_calls(told, seen)
        self._disputed = [pair.second for pair in pairs if pair.second is not None and not pair.agrees]
        self._mark_calls(pairs)
        self._mark_inside(pairs)
        self._sources["both" if told and seen else _TRACED if seen else _RETURNED].append("tool_calls")
        if "tool_calls" in self._own.unknown and "tool_calls" not in self._unknowns.unknown:
            # The spans know all calls, so they know their order, too.
            pairs = _order_as(seen, pairs)
        elif self._inner.calls and all(pair.second is not None for pair in pairs):
            # Only the spans know when the calls inside of a tool were made.
            pairs = _order_as(seen, pairs)
        if self._returned.tool_calls is not None or any(pair.first is None for pair in pairs):
            self._fields["tool_calls"] = tuple(pair.merge() for pair in pairs)

    def _take_calls_of_one(self, told: tuple[ToolCall, ...] | None, seen: tuple[ToolCall, ...] | None) -> None:
        known, other = (self._own, self._seen) if told is not None else (self._seen, self._own)
        why = other.unknown.get("tool_calls")
        if told is None:
            self._fields["tool_calls"] = seen
        if told is None and seen is None and why is not None:
            both = dict.fromkeys((known.unknown.get("tool_calls"), why))
            self._unknowns.mark("tool_calls", "; ".join(one for one in both if one is not None))
        elif why is not None:
            self._unknowns.note(f"{_TRACED if known is self._own else _RETURNED}: tool calls unknown: {why}")
        for part in CALL_PARTS:
            self._carry_doubt(part, known)
        if told is not None or seen is not None:
            self._sources[_RETURNED if told is not None else _TRACED].append("tool_calls")

    def _mark_calls(self, pairs: Sequence[Pair]) -> None:
        """Doubt which calls were made where the two tell of different ones, or neither knows all of them."""
        why_told, why_seen = self._own.unknown.get("tool_calls"), self._seen.unknown.get("tool_calls")
        differ = f"{_RETURNED} and {_TRACED} tell of different calls"
        unpaired = [pair.second for pair in pairs if pair.first is None and pair.second is not None]
        only_seen = next((call for call in unpaired if not self._is_inner(call)), None)
        inside = dict.fromkeys(show(call.name, 60) for call in unpaired if self._is_inner(call))
        if inside:
            self._unknowns.note(f"only in {_TRACED}, as made inside of a tool: {', '.join(inside)}")
        only_told = next((pair.first for pair in pairs if pair.second is None), None)
        unsure = next((pair.first for pair in pairs if pair.second is not None and pair.first is not None and not pair.is_one_call), None)
        if unsure is not None:
            self._unknowns.mark("tool_calls", f"{differ}: {show(unsure.name, 60)} has other arguments in each")
        if only_seen is not None and why_told is None:
            self._unknowns.mark("tool_calls", f"{differ}: {show(only_seen.name, 60)} is only in {_TRACED}")
        if only_told is not None and why_seen is None:
            self._unknowns.mark("tool_calls", f"{differ}: {show(only_told.name, 60)} is only in {_RETURNED}")
        if why_told is not None and why_seen is not None:
            self._unknowns.mark("tool_calls", "; ".join(dict.fromkeys((why_told, why_seen))))
        for why, where in ((why_told, _RETURNED), (why_seen, _TRACED)):
            if why is not None and "tool_calls" not in self._unknowns.unknown:
                self._unknowns.note(f"{where}: tool calls unknown: {why}")

    def _is_inner(self, call: ToolCall) -> bool:
        return any(call is one for one in self._inner.calls)

    def _mark_inside(self, pairs: Sequence[Pair]) -> None:
        """Doubt arguments and results that neither telling knows, or of which the two say different things."""
        for pair in pairs:
            if not pair.agrees and pair.first is not None:
                why = f"{_RETURNED} and {_TRACED} tell of different arguments of {show(pair.first.name, 60)}"
                self._unknowns.mark("tool_arguments", why)
            if pair.tells_two_results() and pair.first is not None:
                self._unknowns.note(f"{_RETURNED} and {_TRACED} tell of different results of {show(pair.first.name, 60)}")
            for part in ("tool_arguments", "tool_results"):
                why = self._explain_inside(pair, part)
                if why is not None:
                    self._unknowns.mark(part, why)

    def _explain_inside(self, pair: Pair, part: Part) -> str | None:
        """Explain why the arguments or results of a call are unknown, or return None if one of the tellings knows them."""
        reasons: list[str | None] = []
        for call, account in ((pair.first, self._own), (pair.second, self._seen)):
            if call is None:
                continue
            tells = call.arguments is not None if part == "tool_arguments" else call.result is not None or call.failed()
            if tells and part not in account.unknown:
                return None
            reasons.append(account.unknown.get(part))
        return next((why for why in reversed(reasons) if why is not None), None)

    def _carry_doubt(self, part: Part, account: Account) -> None:
        why = account.unknown.get(part)
        if why is None:
            return
        if part == "tool_calls" and account.seen_tools:
            self._unknowns.mark_other_tools(why, account.seen_tools)
        else:
            self._unknowns.mark(part, why)


def _order_as(calls: Sequence[ToolCall], pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for call in calls for pair in pairs if pair.second is call]


def _list_calls(evidence: Evidence) -> tuple[ToolCall, ...] | None:
    """Return the calls of an evidence, at its root or in its nodes, or None if none were recorded."""
    if evidence.tool_calls is not None or evidence.nodes is None:
        return evidence.tool_calls
    # A trace has nodes whether its calls are known or not.
    nested = tuple(call for node in evidence.nodes for call in node.tool_calls)
    return nested or None if "tool_calls" in (evidence.account or Account()).unknown else nested
