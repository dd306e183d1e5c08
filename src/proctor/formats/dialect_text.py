"""Writes a suite in a dialect: MCPLab, MCPJam, Mibo or Verial.

The written text is read again and compared with the suite. A part that differs cannot be expressed in the dialect and is an error with its
position. Rules that a dialect always reads in its own way (`_QUIRKS`) are written, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, cast

import msgspec

from proctor.checks.answer.json_field import JsonField
from proctor.errors import InputError
from proctor.formats.mcpjam.predicates import PLAIN
from proctor.formats.mcplab.text import build_mcplab
from proctor.formats.mibo.assertions import CALL_CONDITIONS, FIELD_CONDITIONS, PLAIN_TARGETS, SEMANTIC_TYPES, find_word
from proctor.formats.suites import read_suite
from proctor.formats.text.yaml_text import to_yaml
from proctor.formats.verial.assertions import BY_FIELDS, SYSTEM_CLAIMS
from proctor.formats.verial.suite import SCORING
from proctor.formats.workspace_file import WORKSPACE_KEYS
from proctor.model.case import Assertion, Case, Scoring, Suite
from proctor.model.evidence import Json
from proctor.model.json_values import to_whole_numbers
from proctor.model.problem import Origin, Problem

Fragment = dict[str, Json]
_QUIRKS: Final = frozenset(
    (
        *("server_prefix", "syntax", "source", "unfence", "scalars_only", "falsy_is_empty", "silent_calls", "on_invalid", "max_length"),
        *("refuse_nested_quantifiers", "drop_inline_flags", "show_prompt", "show_conversation", "show_tool_names", "show_tool_inputs"),
    )
)
"""Spec fields that depend on the dialect, and not on the author's claim."""
_DECIDING: Final = ("input", "custom_body", "timezone", "captures", "user", "systems", "skip", "repetitions", "pass_threshold")
_COUNTING: Final = ("depends_on", "turn", "required", "advisory", "when_missing")


def write_dialect(suite: Suite, dialect: str) -> tuple[str, list[Problem]]:
    """Return the suite as text of a dialect, and its omitted parts. Raises `InputError` with every part that cannot be expressed."""
    build, text_of = _WRITERS[dialect]
    whole = Origin(file=suite.path)
    document, dropped = build(suite)
    text = text_of(to_whole_numbers(document))
    try:
        back = read_suite(text, dialect=dialect, name=suite.name)
    except InputError as error:
        refused = [each for each in error.problems if each.level == "error"]
        errors = [_refuse(f"{dialect} refuses what would be written at {each.origin.path}: {each.message}", whole) for each in refused]
        raise InputError(f"the suite cannot be written as {dialect}", errors) from None
    problems = [_refuse(message, whole, "warning") for message in dropped]
    if suite.evidence is not None:
        problems.append(_refuse(f"{dialect} cannot express `evidence`, how records are read", whole))
    cases = {case.id: case for case in back.cases}
    for case in suite.cases:
        reread = cases.get(case.id)
        problems += [_refuse(f"the case {case.id!r} is lost", case.origin)] if reread is None else _compare_case(case, reread, dialect)
    if any(problem.level == "error" for problem in problems):
        count = sum(problem.level == "error" for problem in problems)
        raise InputError(f"{count} part{'s' if count > 1 else ''} of the suite cannot be written as {dialect}", problems)
    return text, problems


def _refuse(message: str, origin: Origin, level: Literal["error", "warning"] = "error") -> Problem:
    if level == "warning":
        return Problem(message=message, origin=origin, level=level, code="not_written")
    return Problem(message=message, origin=origin, code="not_expressible")


def _compare_case(case: Case, back: Case, dialect: str) -> Iterator[Problem]:
    lost_fields = [name for name in _DECIDING if getattr(case, name) != getattr(back, name)]
    if {**case.context, "timezone": None} != {**back.context, "timezone": None}:
        lost_fields.append("context")
    if [turn.input for turn in case.turns] != [turn.input for turn in back.turns]:
        lost_fields.append("turns")
    if _describe_scoring(case.scoring, case) != _describe_scoring(back.scoring, case):
        lost_fields.append("scoring")
    if lost_fields:
        yield _refuse(f"the case {case.id!r}: {dialect} cannot express its {', '.join(lost_fields)}", case.origin)
    left_out = [name for name in ("name", "description", "tags") if getattr(case, name) and getattr(case, name) != getattr(back, name)]
    left_out += [f"settings.{key}" for key, value in case.settings.items() if key != "mcp_servers" and back.settings.get(key) != value]
    if left_out:
        yield _refuse(f"the case {case.id!r}: not written as they are: {', '.join(left_out)}", case.origin, "warning")
    names = (*_COUNTING, "weight", "axis") if case.scoring.mode == "weighted" else _COUNTING
    rest = list(back.assertions)
    for assertion in case.assertions:
        mine = _normalise(assertion.spec)
        differing: list[tuple[frozenset[str], Assertion]] = []
        for other in rest:
            if other.check == assertion.check:
                theirs = _normalise(other.spec)
                specs = {name for name in mine.__struct_fields__ if getattr(mine, name) != getattr(theirs, name)}
                differing.append((frozenset(specs | {name for name in names if getattr(assertion, name) != getattr(other, name)}), other))
        fields, other = min(differing, key=lambda found: (not found[0] <= _QUIRKS, len(found[0])), default=(frozenset(("check",)), None))
        title = f"the case {case.id!r}: {assertion.check} ({assertion.label or assertion.id})"
        if other is None:
            yield _refuse(f"{title}: {dialect} has no such rule", assertion.origin)
        elif not fields <= _QUIRKS:
            yield _refuse(f"{title}: {dialect} cannot express its {', '.join(sorted(fields - _QUIRKS))}", assertion.origin)
        else:
            rest.remove(other)
            if fields:
                yield _refuse(f"{title}: {dialect} decides {', '.join(sorted(fields))} in its own way", assertion.origin, "warning")


def _describe_scoring(scoring: Scoring, case: Case) -> tuple[Json, ...]:
    bounds = (scoring.pass_at, scoring.partial_above) if scoring.mode == "weighted" else ()
    return (scoring.mode, *bounds, None if case.assertions else scoring.when_empty)


def _normalise(spec: msgspec.Struct) -> msgspec.Struct:
    if isinstance(spec, JsonField) and spec.equals is not msgspec.UNSET:
        return msgspec.structs.replace(spec, value=spec.equals, equals=msgspec.UNSET)
    return spec


def _list_unwritten(suite: Suite, place: str) -> list[str]:
    """Return warnings about targets, models and the judge, which a dialect cannot express."""
    keys = [f"`{key}`" for key in WORKSPACE_KEYS if suite.settings.get(key) is not None]
    return [f"not written: {', '.join(keys)}; {place}"] if keys else []


def _pick(values: dict[str, Json]) -> Fragment:
    return {key: value for key, value in values.items() if value not in (None, "", (), [], {}, False)}


def _write_counting(assertion: Assertion) -> Fragment:
    written = _pick({key: getattr(assertion, key) for key in ("id", "depends_on", "required", "advisory", "when_missing")})
    if assertion.depends_on:
        written["depends_on"] = assertion.depends_on[0] if len(assertion.depends_on) == 1 else list(assertion.depends_on)
    return written


_MIBO_TARGETS: Final = {plain.check: (target, plain.fields) for target, plain in PLAIN_TARGETS.items()}


def _build_mibo(suite: Suite) -> tuple[Json, list[str]]:
    cases: list[Json] = []
    for case in suite.cases:
        written: Fragment = {"id": case.id, **_pick({"name": case.name, "scenario": case.description or case.name})}
        written |= _pick({"input_utterance": case.input, "custom_body": case.custom_body, "context": case.context})
        written |= {key: value for key, value in case.tags.items() if key in ("test_dimension", "optimization_target", "state")}
        if case.timezone is not None:
            written["context"] = {**case.context, "timezone": case.timezone}
        if case.turns:
            turns = [{"input_utterance": turn.input, **_write_mibo_claims(case, index)} for index, turn in enumerate(case.turns)]
            written["turns"] = turns
        cases.append(written | (_write_mibo_claims(case, None) or {"assertions": {"procedural": []}}))
    document = {**_pick({"name": suite.name, "description": suite.description}), "test_cases": cases}
    return document, _list_unwritten(suite, "Mibo describes agents on its platform")


def _write_mibo_claims(case: Case, turn: int | None) -> Fragment:
    lists: dict[str, list[Json]] = {}
    for assertion in case.assertions:
        fragment = _write_mibo(assertion) if assertion.turn == turn else None
        if fragment is not None:
            lists.setdefault("procedural" if "target" in fragment else "semantic", []).append(fragment | _write_counting(assertion))
    return {"assertions": lists} if lists else {}


def _write_mibo(assertion: Assertion) -> Fragment | None:
    spec: Json = assertion.spec
    match assertion.check:
        case "node_called":
            more = {"expected_tool_calls": [_write_mibo_call(call) for call in spec.tool_calls]} if spec.tool_calls else {}
            return {"target": "node_call", **_write_mibo_call(spec), **({"count": "items"} if spec.count_items else {}), **more}
        case "json_field":
            value = spec.value if spec.equals is msgspec.UNSET else spec.equals
            expected = {} if spec.condition.endswith("exists") else {"expected_value": _write_literal(value)}
            return {"target": "json_match", "field": spec.field, "condition": find_word(FIELD_CONDITIONS, spec.condition), **expected}
        case check if check in _MIBO_TARGETS:
            target, keys = _MIBO_TARGETS[check]
            members = {key: getattr(spec, ours) for key, ours in keys.items()}
            return {"target": target, **{key: value for key, value in members.items() if value not in (None, "")}}
        case "judged" if spec.kind in SEMANTIC_TYPES.values():
            more = _pick({key: getattr(spec, key) for key in ("negative_constraints", "target_node", "output_key")})
            return {"criteria": spec.criteria, "type": find_word(SEMANTIC_TYPES, spec.kind), "threshold": spec.threshold, **more}
        case _:
            return None


def _write_mibo_call(call: Json) -> Fragment:
    written = _pick({"expected_count": call.count, "strict": call.strict, "forbidden_arguments": list(call.forbidden_arguments)})
    if call.count == 0:
        written["expected_count"] = 0
    if call.arguments:
        written["expected_arguments"] = {key: _write_literal(value) for key, value in call.arguments.items()}
    if call.index is not None:
        written["expected_index"] = call.index
    return {"condition": find_word(CALL_CONDITIONS, call.condition), "expected_name": call.name, **written}


def _write_literal(value: Json) -> Json:
    """Return an expected value for Mibo, where an object of `$` keys is a plain literal."""
    if isinstance(value, list):
        return [_write_literal(item) for item in cast("list[Json]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Json]", value)
    inner = members.get("value")
    if members.get("matcher") == "object" and len(members) == 2 and isinstance(inner, dict) and all(key[:1] == "$" for key in inner):
        members = cast("dict[str, Json]", inner)
    return {key: _write_literal(item) for key, item in members.items()}


def _build_mcpjam(suite: Suite) -> tuple[Json, list[str]]:
    dropped = _list_unwritten(suite, "MCPJam names servers of its project: `target: {servers: [{name: ...}]}`")
    # A suite file needs a target and cannot hold expected calls, tags and descriptions; a list of cases can.
    listed = "target" not in suite.settings or any(
        case.tags
        or case.description
        or any(a.check == "tools_called" or (a.check == "tool_calls_match" and not cast(Json, a.spec).negative) for a in case.assertions)
        for case in suite.cases
    )
    cases = [_write_mcpjam_case(case) for case in suite.cases]
    if listed:
        return {"name": suite.name, **_pick({"description": suite.description}), "cases": cases}, dropped
    head = {"id": suite.name, "name": suite.name, **_pick({"description": suite.description})}
    document: Fragment = {"schemaVersion": "1", "mode": "agentWorkflow", "reportingMode": "standard", "suite": head}
    for key in ("suite", "target", "defaults", "provenance"):
        if key in suite.settings:
            document[key] = suite.settings[key]
    return {**document, "cases": cases}, dropped


def _write_mcpjam_case(case: Case) -> Fragment:
    steps: list[Json] = []
    calls = [call for call in case.settings.get("direct_calls") or () if isinstance(call, dict)]
    inputs = [turn.input for turn in case.turns] or ([] if case.input is None else [case.input])
    for index in range(len(inputs) + 1):
        if index:
            steps.append({"id": f"step-{len(steps) + 1}", "kind": "prompt", "prompt": inputs[index - 1]})
            claims = filter(None, (_write_predicate(a) for a in case.assertions if a.turn == index - 1))
            steps += [{"id": f"step-{len(steps) + number}", "kind": "assert", "assertion": p} for number, p in enumerate(claims, 1)]
        for call in [call for call in calls if call.get("after_prompts") == index]:
            optional = _pick({"serverId": call.get("server_id"), "renderTimeoutMs": call.get("render_timeout_ms")})
            call_members = {"serverName": call["server"], "toolName": call["tool"], "arguments": call["arguments"]}
            steps.append({"id": call.get("id") or f"step-{len(steps) + 1}", "kind": "toolCall", **call_members, **optional})
    predicates = [predicate for a in case.assertions if a.turn is None and (predicate := _write_predicate(a)) is not None]
    written: Fragment = {"id": case.id, **_pick({"title": case.name, "steps": steps, "assertions": predicates})}
    written |= _pick({"repetitions": case.repetitions, "tags": case.tags, "description": case.description})
    if case.pass_threshold is not None:
        written["passThreshold"] = case.pass_threshold
    if case.skip is not None and case.skip.code == "disabled":
        written["disabled"] = True
    for assertion in case.assertions:
        spec: Json = assertion.spec
        if assertion.check == "tools_called":
            written["expectedTools"] = list(spec.names)
        elif assertion.check == "tool_calls_match" and spec.negative:
            written["isNegativeTest"] = True
        elif assertion.check == "tool_calls_match":
            options = {"toolCallOrder": spec.order, "argumentMatching": spec.arguments, "maxExtraToolCalls": spec.max_extra}
            written["expectedToolCalls"] = [{"toolName": call.name, "arguments": call.arguments} for call in spec.calls]
            written |= {"matchOptions": options, **({"isNegativeTest": False} if spec.positive_only else {})}
    return written | {key: value for key, value in case.settings.items() if key != "direct_calls"}


def _write_predicate(assertion: Assertion) -> Fragment | None:
    spec: Json = assertion.spec
    if assertion.check == "tool_called" and spec.values == "placeholders":
        arguments = {"args": spec.arguments, "argumentMatching": spec.match}
        return {"type": "toolCalledWith", "toolName": spec.name, "args": arguments, "minCount": spec.at_least}
    if assertion.check == "response_contains":
        return {"type": "responseContains", "needle": spec.text, "caseSensitive": not spec.ignore_case}
    if assertion.check == "response_matches":
        return {"type": "responseMatches", "pattern": spec.pattern}
    kind = next((kind for kind, plain in PLAIN.items() if plain.check == assertion.check), None)
    return None if kind is None else {"type": kind, **_pick({key: getattr(spec, ours) for key, ours in PLAIN[kind].fields.items()})}


_KINDS: Final = {
    "portal_record": "portal-state-match",
    **{reader.check: kind for kind, reader in BY_FIELDS.items()},
    **{check: kind for kind, (check, _) in SYSTEM_CLAIMS.items()},
}


def _build_verial(suite: Suite) -> tuple[Json, list[str]]:
    tasks: list[Json] = []
    for case in suite.cases:
        task: Fragment = {"id": case.id, **_pick({"name": case.name, "description": case.description, "tags": case.tags})}
        task |= {key: case.settings[key] for key in ("task_item", "scenario", "timeout", "environment_id") if key in case.settings}
        if case.input is not None:
            task.setdefault("task_item", case.context.get("task_item") or {"instruction": case.input})
        if case.systems:
            datasets = [{"type": s.kind, "data": data} for s in case.systems for data in (s.seed, *s.datasets) if data is not None]
            task["environment"] = {"simulators": [{"type": system.kind} for system in case.systems], "datasets": datasets}
        criteria = [(assertion, _write_verial(assertion)) for assertion in case.assertions]
        task["criteria"] = [
            {"label": a.label, **_pick({"weight": a.weight, "axis": a.axis}), **_write_counting(a), "assertion": written}
            for a, written in criteria
            if written is not None
        ]
        tasks.append(task)
    thresholds = [case.scoring.pass_at for case in suite.cases if case.scoring.mode == "weighted" and case.scoring != SCORING]
    document: Fragment = {"name": suite.name, **_pick({"description": suite.description}), "tasks": tasks}
    document |= {key: value for key, value in suite.settings.items() if key in ("id", "slug", "version", "timeout", "concurrency")}
    if thresholds:
        document["threshold"] = thresholds[0]
    return document, _list_unwritten(suite, "Verial has no place for them")


def _write_verial(assertion: Assertion) -> Json:
    if assertion.check == "judged":
        return cast(Json, assertion.spec).criteria
    kind = _KINDS.get(assertion.check)
    if kind is None:
        return None
    fields: Fragment = msgspec.to_builtins(assertion.spec)
    if assertion.check == "portal_record":
        words = ("resource", "key", "value")
        fields = {"correlate_by": {key: fields.pop(key) for key in words if key in fields}, **fields}
    return {"assert": kind, **fields}


def _to_json(document: Json) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


_WRITERS: Final[dict[str, tuple[Callable[[Suite], tuple[Json, list[str]]], Callable[[Json], str]]]] = {
    "mcplab": (build_mcplab, to_yaml),
    "mcpjam": (_build_mcpjam, to_yaml),
    "mibo": (_build_mibo, _to_json),
    "verial": (_build_verial, _to_json),
}
WRITTEN_DIALECTS: Final = tuple(_WRITERS)
