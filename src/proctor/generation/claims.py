"""Turns what the runs of a group have in common into claims, each with its reason.

The rules, in this order: which tools, with which arguments, how often, in which order, which tools never; then the answer, the end state,
time and tokens. A property that chance explains is not claimed: it needs a number of runs, or of different inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proctor.checks.tools.data_flow import read_input_text
from proctor.generation.observations import (
    MOST_VALUES,
    NEGATION,
    ArgumentFacts,
    Flow,
    GroupFacts,
    Repeated,
    ToolFacts,
    is_secret,
    list_repeated_values,
)
from proctor.generation.trace_paths import EffectNames
from proctor.generation.volatile import find_rule, make_matcher
from proctor.model.evidence import Json
from proctor.mutation.call_edits import list_calls
from proctor.mutation.proposals import LEAST_LIMIT, cut_value, quote, round_up

ENOUGH_RUNS = 20
"""The minimum number of runs for claims about words of answers and about tools that are never called."""
_ENOUGH_INPUTS = 3
"""The minimum number of different inputs for which a value that never changed counts as a constant."""
_MOST_WORDS = 2
_MOST_FORBIDDEN = 10
_MOST_STEPS = 20
_MOST_REPEATED = 3
_MOST_NAME_WORDS = 3
_LONGEST_VALUE = 600
"""The maximum number of characters of a list or an object in a claim."""
_HEADROOM = 3
"""A limit is this many times the largest value that was seen."""
_COMMON_WORDS = frozenset(
    """about after again already always another anything because before being below between could further however everything please
    should something still within thank thanks their there these thing things those today until using where which while would your
    yours hello sorry""".split()  # noqa: SIM905 - a list of words
)


class Claim(msgspec.Struct, frozen=True):
    """A claim of the native format and its reason."""

    body: Json
    because: str

    def write(self) -> Json:
        """Return the claim as a suite writes it."""
        name, value = (self.body, {}) if isinstance(self.body, str) else next(iter(self.body.items()))
        return {name: value, "because": self.because}


def make_claims(group: GroupFacts, catalogue: Sequence[str], effects: EffectNames, steps: Iterable[str] = ()) -> Iterator[Claim]:
    """Yield every claim about a group; `catalogue` are the tools that all recordings know, `steps` the steps of their workflow."""
    always = [name for name, facts in group.tools.items() if facts.runs == group.runs]
    for name in always:
        yield from _claim_tool(name, group, effects)
    yield from _claim_order(always, group, effects)
    yield from _claim_other_tools(group, catalogue, effects)
    working = [name for name, facts in group.tools.items() if not facts.failed]
    if group.tools and len(working) == len(group.tools):
        yield Claim("no_tool_errors", _count(group, "no call failed"))
    for name in working if len(working) < len(group.tools) else ():
        claim = f"all(tool_calls[*].name != {quote(name)} or tool_calls[*].error == null)"
        yield Claim({"that": claim}, _count(group, f"no call of {name} failed"))
    yield from _claim_steps(group, steps)
    yield from _claim_answer(group)
    yield from _claim_state(group)
    if group.timed == group.runs and group.slowest_ms:
        limit = round_up(max(group.slowest_ms * _HEADROOM, LEAST_LIMIT))
        yield Claim({"responded_within": limit}, _explain_limit(group, f"{group.slowest_ms:.0f} ms", limit))
    if group.counted == group.runs and group.most_tokens:
        yield Claim({"tokens_within": round_up(group.most_tokens * _HEADROOM)}, _explain_limit(group, f"{group.most_tokens:,} tokens"))


def _explain_limit(group: GroupFacts, most: str, limit: int = 0) -> str:
    least = f"at least {LEAST_LIMIT:,} ms, and " if limit == LEAST_LIMIT else ""
    return _count(group, f"{least}{_HEADROOM} times the most that was seen, {most},")


def _count(group: GroupFacts, what: str) -> str:
    return f"{what} in {f'all {group.runs:,} traces' if group.runs > 1 else 'the only trace'}"


def _claim_tool(name: str, group: GroupFacts, effects: EffectNames) -> Iterator[Claim]:
    facts = group.tools[name]
    arguments: dict[str, Json] = {}
    reasons: list[str] = []
    copied: list[Claim] = []
    for key, argument in facts.arguments.items() if facts.only_objects else ():
        optional = argument.calls < facts.calls
        flow = None if optional else _choose_flow(argument, group)
        if flow is not None:
            # A date that was copied from elsewhere is still matched as a date.
            is_volatile = argument.rule is not None and argument.kinds == {"text"}
            arguments[key] = (_match_argument(argument, group) if is_volatile else _match_type(argument))[0]
            copied.append(_claim_flow(name, key, flow, group))
            continue
        matcher, why = _match_argument(argument, group)
        reasons.append(f"{key} {why}")
        arguments[key] = _make_optional(matcher) if optional else matcher
    claim: dict[str, Json] = {"name": name}
    if facts.only_objects:
        # No further argument was ever given.
        claim |= {"arguments": arguments, "strict": True} if arguments else {"arguments": {}, "match": "exact"}
        reasons.append("no other argument")
    counts = facts.least == facts.most
    if facts.most > 1 and facts.only_objects:
        claim["every"] = True
    if counts and facts.least > 1:
        claim["at_least"] = facts.least
    why = "; ".join((f"called {_times(facts)}", *reasons))
    yield Claim({"tool_called": claim if len(claim) > 1 else name}, _count(group, why))
    yield from copied
    if effects.find(name) == "reads":
        return
    if counts:
        yield Claim({"tool_call_count": {"name": name, "count": facts.least}}, _count(group, f"effects count: called {_times(facts)}"))
    elif facts.least_succeeded == facts.most_succeeded:
        worked = facts.least_succeeded
        why = _count(group, f"effects count: {_write_times(worked)} without an error")
        yield Claim({"tool_call_count": {"name": name, "count": worked, "succeeded": True}}, why)


def _times(facts: ToolFacts) -> str:
    return _write_times(facts.least) if facts.least == facts.most else f"{facts.least} to {facts.most} times"


def _write_times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _make_optional(matcher: Json) -> Json:
    if isinstance(matcher, dict) and matcher and all(key.startswith("$") for key in matcher):
        return {**matcher, "$optional": True}
    return {"$exact": matcher, "$optional": True}


def _choose_flow(argument: ArgumentFacts, group: GroupFacts) -> Flow | None:
    """Return the source of an argument: a place in an earlier result, else the input; none for a value that never changed."""
    if not argument.flows or argument.kinds & {"boolean", "null"}:
        return None
    if argument.values is not None and len(argument.values) == 1 and len(group.inputs) >= _ENOUGH_INPUTS:
        return None
    return min(argument.flows, key=lambda flow: (not flow.path, flow.tool is not None, len(flow.path), flow.tool or "", flow.path))


def _claim_flow(tool: str, argument: str, flow: Flow, group: GroupFacts) -> Claim:
    claim = {"tool": tool, "argument": argument}
    if flow.tool is None:
        return Claim({"argument_copied": claim}, _count(group, f"{argument} was in the input"))
    claim |= {"result_of": flow.tool, **({"path": flow.path} if flow.path else {})}
    place = f"an earlier result of {flow.tool}" + (f" at {flow.path}" if flow.path else "")
    return Claim({"argument_copied": claim}, _count(group, f"{argument} was in {place}"))


def _match_argument(argument: ArgumentFacts, group: GroupFacts) -> tuple[Json, str]:
    """Return the narrowest matcher for an argument, and the rule."""
    kinds = sorted(argument.kinds - {"null"})
    values = None if argument.values is None else list(argument.values.values())
    if argument.secret:
        return _match_type(argument)[0], "a secret, redacted"
    if argument.rule is not None and len(kinds) == 1:
        return make_matcher(argument.rule, kinds[0]), f"volatile, redacted: {argument.rule}"
    if values is not None and len(values) == 1:
        value = values[0]
        if isinstance(value, (dict, list)) and len(msgspec.json.encode(value)) > _LONGEST_VALUE:
            return _match_type(argument)[0], "always the same, too long to repeat"
        plain = not isinstance(value, (dict, list)) and value != "*"
        return (cut_value(value) if plain else {"$literal": value}), "always the same"
    is_closed = values is not None and argument.calls >= 3 * len(values) and len(group.inputs) > MOST_VALUES
    if values is not None and is_closed and kinds != ["boolean"] and all(isinstance(value, (str, int, float)) for value in values):
        return {"$one_of": sorted(values, key=lambda value: msgspec.json.encode(value))}, f"one of {len(values)} values"
    if argument.shape is not None and kinds == ["text"]:
        return {"$regex": f"^{argument.shape}$"}, "always of this form"
    return _match_type(argument)


def _match_type(argument: ArgumentFacts) -> tuple[Json, str]:
    # An amount that was whole so far may have a fraction next time.
    kinds = {"number" if kind == "integer" else kind for kind in argument.kinds}
    if len(kinds) > 1:
        return {"$any": True}, "of several types"
    kind = next(iter(kinds))
    return {"$type": kind}, f"always of the type {kind}"


def _claim_order(always: Sequence[str], group: GroupFacts, effects: EffectNames) -> Iterator[Claim]:
    """Claim the longest found list of tools in which each was always called before the next; the order of two reads does not count."""
    order = {pair for pair in group.order or () if not all(effects.find(name) == "reads" for name in pair)}
    chain: list[str] = []
    followers = Counter(first for first, _ in order)
    for name in sorted(always, key=lambda each: (-followers[each], each)):
        if all((earlier, name) in order for earlier in chain):
            chain.append(name)
    if len(chain) > 1:
        yield Claim({"tools_in_order": chain}, _count(group, "called in this order"))


def _claim_other_tools(group: GroupFacts, catalogue: Sequence[str], effects: EffectNames) -> Iterator[Claim]:
    if not group.tools:
        yield Claim("no_tools_called", _count(group, "no tool was called"))
        return
    unused = [name for name in catalogue if name not in group.tools and effects.find(name) == "changes"]
    for name in unused[:_MOST_FORBIDDEN]:
        yield Claim({"tool_not_called": name}, _count(group, "a tool with effects, never called"))
    if group.runs >= ENOUGH_RUNS or len(unused) > _MOST_FORBIDDEN:
        names = ", ".join(map(quote, sorted(group.tools)))
        yield Claim({"that": f"all(tool_calls[*].name in [{names}])"}, _count(group, "no other tool was called"))


def _claim_steps(group: GroupFacts, steps: Iterable[str]) -> Iterator[Claim]:
    always = [name for name, runs in group.nodes.items() if runs == group.runs]
    for name in always[:_MOST_STEPS]:
        yield Claim({"node_called": name}, _count(group, "the step ran"))
    for name in [name for name in steps if name not in group.nodes][:_MOST_FORBIDDEN] if group.nodes else ():
        yield Claim({"node_called": {"name": name, "condition": "not_called"}}, _count(group, "a step of other traces, never run"))


def _claim_members(group: GroupFacts) -> Iterator[Claim]:
    """Claim the members of answers that are a JSON object."""
    if not group.members or group.objects < group.runs:
        return
    properties: dict[str, Json] = {}
    for name, member in group.members.items():
        # Few inputs do not show whether a value that they have is constant.
        is_copied = bool(member.flows) and len(group.inputs) < _ENOUGH_INPUTS
        matcher, _ = _match_type(member) if is_copied else _match_argument(member, group)
        properties[name] = _write_schema(matcher)
    required = [name for name, member in group.members.items() if member.calls == group.runs]
    schema: dict[str, Json] = {"type": "object", "required": required, "properties": properties}
    if group.runs >= ENOUGH_RUNS:
        schema["additionalProperties"] = False
    yield Claim({"json_schema": {"schema": schema}}, _count(group, "the members of the answer and their values or types"))


def _write_schema(matcher: Json) -> Json:
    """Return a matcher of `_match_argument` as JSON Schema."""
    if not isinstance(matcher, dict):
        return {"const": matcher}
    names = {"text": "string", "list": "array"}
    if "$type" in matcher:
        return {"type": names.get(matcher["$type"], matcher["$type"])}
    if "$regex" in matcher:
        return {"type": "string", "pattern": matcher["$regex"]}
    if "$one_of" in matcher:
        return {"enum": matcher["$one_of"]}
    return {"const": matcher["$literal"]} if "$literal" in matcher else {"type": "string"} if "$starts_with" in matcher else {}


def _claim_answer(group: GroupFacts) -> Iterator[Claim]:
    if group.answers < group.runs:
        return
    yield Claim("response_not_empty", _count(group, "answered"))
    yield from _claim_members(group)
    for each in _choose_repeated(group):
        value = {"argument": each.argument} if each.argument is not None else {"path": each.path}
        what = f"the argument {each.argument}" if each.argument is not None else f"{each.path} of the result" if each.path else "the result"
        yield Claim({"answer_repeats": {"tool": each.tool, **value}}, _count(group, f"the answer had {what} of {each.tool}"))
    # A word from the input or a result is data of this run; `answer_repeats` claims that.
    data = "\n".join(text for each in group.samples for text in (read_input_text(each), str(list_calls(each)).lower()))
    longest_first = sorted(group.words or (), key=lambda each: (-len(each), each))
    words = [word for word in longest_first if word not in _COMMON_WORDS and word not in data]
    failed = any(facts.failed for facts in group.tools.values())
    if failed and group.negates:
        # A word such as "refunded" would also be in an answer that is wrong about it.
        why = _count(group, "a call failed, and the answer has a negation")
        yield Claim({"response_matches": {"pattern": NEGATION, "flags": "i"}}, why)
    # A JSON answer is claimed by its members, not by words.
    for word in words[:_MOST_WORDS] if group.runs >= ENOUGH_RUNS and not failed and group.objects < group.runs else ():
        yield Claim({"response_contains": word}, _count(group, "a word of the answer"))
    if group.ends and group.runs >= ENOUGH_RUNS:
        yield Claim({"response_matches": "[.!?…)\\]]\\W*$"}, _count(group, "the answer ended like a sentence"))
    yield Claim("no_pii", _count(group, "no personal data in the answer"))


def _choose_repeated(group: GroupFacts) -> list[Repeated]:
    """Return the repeated values to claim: numbers first, and none that is part of another one."""
    calls = list_calls(group.samples[0])
    written = {each: list_repeated_values(each, calls) for each in group.repeated or ()}
    if group.runs < ENOUGH_RUNS:
        # With few runs, a longer text is probably a phrase that they share by chance.
        is_short = {each: all(len(value.split()) <= _MOST_NAME_WORDS for value in values) for each, values in written.items()}
        written = {each: values for each, values in written.items() if is_short[each]}

    def rank(each: Repeated) -> tuple[bool, bool, str, str, str]:
        has_number = any(char.isdigit() for value in written[each] for char in value)
        return not has_number, each.argument is None, each.tool, each.argument or "", each.path or ""

    def is_part_of(each: Repeated, other: Repeated) -> bool:
        return all(any(value in text for text in written[other]) for value in written[each])

    chosen: list[Repeated] = []
    for each in sorted(written, key=rank):
        if not any(is_part_of(each, other) for other in chosen):
            chosen.append(each)
    return chosen[:_MOST_REPEATED]


def _claim_state(group: GroupFacts) -> Iterator[Claim]:
    if not group.stated or group.stated < group.runs:
        return
    allowed: list[Json] = [
        {"place": f"{system}/{folder}/*" if folder else f"{system}/*", "change": change, "at_most": facts.most}
        for (system, folder, change), facts in sorted(group.changes.items())
    ]
    why = _count(group, "nothing else changed in the simulated systems")
    yield Claim({"unchanged": {"allowed": allowed}} if allowed else "unchanged", why)
    for (system, folder, change), facts in sorted(group.changes.items()):
        if facts.runs < group.runs or facts.least < 1 or change == "removed":
            continue
        for name, value in sorted((facts.fields or {}).items()):
            is_repeatable = find_rule(value) is None and not is_secret(name, value) and not isinstance(value, bool)
            if is_repeatable and name.isidentifier() and name != "id":
                why = _count(group, f"{name} after a change of {system}/{folder}")
                yield Claim({"that": f"{quote(value)} in state.changes[*].after.{name}"}, why)
