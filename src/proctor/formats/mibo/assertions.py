"""Converts the assertions of Mibo test cases to our checks.

Defaults that Mibo's documentation does not mention: `condition` is `MUST_CALL` (`CALL_COUNT` with `expected_count`), `should_match` is
true, a semantic threshold is 0.8. Our extensions: `EQUALS`, `EXISTS`, `NOT_EXISTS` in `json_match`, `flags` in `response_regex`, `count:
items` in `node_call`, and on every assertion `label`, `weight`, `axis`, `required`, `advisory`, `when_missing`. An object whose keys all
begin with `$` is a plain literal in Mibo, so it is read as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import get_args

import msgspec

from proctor.checks.answer.json_field import JsonField
from proctor.checks.answer.json_schema import JsonSchema
from proctor.checks.answer.text_pattern import ResponseMatches
from proctor.checks.judged.semantic import Judged
from proctor.checks.run.limits import HttpStatus, RespondedWithin, TokensWithin
from proctor.checks.run.nodes import NestedCall, NodeCalled
from proctor.errors import SpecError
from proctor.expressions.expression import is_bare_call
from proctor.expressions.functions import FUNCTIONS
from proctor.formats.native.drafting import draft_assertion
from proctor.formats.text.located import Located, Reading
from proctor.matchers.compile import compile_expected
from proctor.model.case import Assertion, WhenMissing
from proctor.model.evidence import Json
from proctor.model.show import nearest, shorten, show

_COMMON = ("id", "depends_on", "label", "weight", "axis", "required", "advisory", "when_missing")
_CALL = ("condition", "expected_name", "expected_arguments", "expected_index", "expected_count", "strict", "forbidden_arguments")
CALL_CONDITIONS = {"MUST_CALL": "called", "MUST_NOT_CALL": "not_called", "CALL_COUNT": "count"}
FIELD_CONDITIONS = {"EQUALS": "equals", "NOT_EQUALS": "not_equals", "EXISTS": "exists", "NOT_EXISTS": "not_exists"}
LIMITS = {"max_total_tokens": "total", "max_input_tokens": "input", "max_output_tokens": "output"}
_SEMANTIC = ("criteria", "threshold", "type", "negative_constraints", "target_node", "output_key")
SEMANTIC_TYPES = {"quality_check": "quality", "hallucination_check": "hallucination"}
DEFAULT_THRESHOLD = 0.8
"""The default passing score of a judged assertion, as in Mibo."""

Fields = dict[str, Located]


class PlainTarget(msgspec.Struct, frozen=True):
    """A target whose keys are fields of one spec."""

    check: str
    spec: type[msgspec.Struct]
    fields: dict[str, str]
    """Its keys with the fields of the spec."""
    read: Callable[[Reading, Located | None, str], Json]
    """Reads the first key."""
    label: Callable[[Json], str]
    more: tuple[Callable[[Reading, Located | None, str], Json], ...] = ()
    """Reads the other keys, which are optional."""


def _read_schema(reading: Reading, node: Located | None, what: str) -> Json:
    if node is not None and isinstance(node.value, bool):
        return node.value
    schema = reading.require_object(node, what)
    return None if schema is None else schema.plain()


def _read_limit(reading: Reading, node: Located | None, what: str) -> int | None:
    return reading.require_integer(node, what, at_least=0)


def _label_tokens(spec: Json) -> str:
    return f"at most {', '.join(f'{limit} {kind}' for kind in LIMITS.values() if (limit := getattr(spec, kind)) is not None)} tokens"


PLAIN_TARGETS: dict[str, PlainTarget] = {
    "response_regex": PlainTarget(
        "response_matches",
        ResponseMatches,
        {"pattern": "pattern", "should_match": "should_match", "flags": "flags"},
        Reading.require_text,
        lambda spec: f"answer {'matches' if spec.should_match else 'does not match'} {shorten(spec.pattern, 60)}",
        (Reading.require_boolean, Reading.require_text),
    ),
    "json_schema": PlainTarget(
        "json_schema",
        JsonSchema,
        {"schema": "schema", "field": "field"},
        _read_schema,
        lambda spec: f"{spec.field or 'answer'} fits its schema",
        (Reading.require_text,),
    ),
    "http_status": PlainTarget(
        "http_status", HttpStatus, {"expected_status": "status"}, Reading.require_integer, lambda spec: f"HTTP status {spec.status}"
    ),
    "response_time": PlainTarget(
        "responded_within", RespondedWithin, {"max_ms": "ms"}, Reading.number, lambda spec: f"answers within {spec.ms:g} ms"
    ),
    "token_limit": PlainTarget("tokens_within", TokensWithin, LIMITS, _read_limit, _label_tokens, (_read_limit, _read_limit)),
}
"""Targets that are read and written key by key."""
_TARGETS = ("node_call", "json_match", *PLAIN_TARGETS)


class AssertionReader:
    """Reads the assertions of one place: a turn, or the whole case."""

    def __init__(self, reading: Reading, context: dict[str, Json], turn: int | None) -> None:
        self._reading = reading
        self._context = context
        self._turn = turn

    def read_procedural(self, node: Located) -> Assertion | None:
        """Return a deterministic assertion, by its `target`."""
        place = node.get("target")
        hint = "a semantic assertion has no target and belongs in the list 'semantic'" if place and place.value == "semantic" else None
        target = self._reading.require_choice(
            node,
            "target",
            _TARGETS,
            "an assertion",
            lambda word: f"unknown target {word!r}",
            named="target",
            hint=hint,
            code="unknown_target",
        )
        if target is None:
            return None
        if target in PLAIN_TARGETS:
            return self._read_plain(node, target, PLAIN_TARGETS[target])
        return self._read_node_call(node) if target == "node_call" else self._read_json_match(node)

    def _read_plain(self, node: Located, target: str, plain: PlainTarget) -> Assertion | None:
        reading = self._reading
        reading.check_keys(node, ("target", *plain.fields, *_COMMON), target)
        values: dict[str, Json] = {}
        fields: Fields = {}
        needed = None if target == "token_limit" else next(iter(plain.fields))
        for (key, field), read in zip(plain.fields.items(), (plain.read, *plain.more), strict=True):
            place = reading.require_member(node, key, target) if key == needed else node.get(key)
            value = read(reading, place, key)
            if place is not None and value is not None:
                values[field], fields[field] = value, place
        if needed is None and not any(node.get(key) is not None for key in plain.fields):
            reading.error(node, f"{target} needs at least one limit", expected=", ".join(plain.fields), code="missing_key")
        if not values or (needed is not None and plain.fields[needed] not in values):
            return None
        spec = plain.spec(**values)
        return self._draft(node, plain.check, spec, plain.label(spec), fields)

    def read_semantic(self, node: Located) -> Assertion | None:
        """Return an assertion for a judge."""
        reading = self._reading
        problem_count = len(reading.problems)
        reading.check_keys(node, (*_SEMANTIC, *_COMMON), "a semantic assertion")
        criteria = reading.need_text(node, "criteria", "a semantic assertion", "criteria")
        threshold = reading.number(node.get("threshold"), "threshold")
        kind = self._read_word(node, "type", SEMANTIC_TYPES, "quality_check")
        constraints = self._read_texts(node, "negative_constraints")
        target = reading.require_text(node.get("target_node"), "target_node")
        key = reading.require_text(node.get("output_key"), "output_key")
        if criteria is None or kind is None or self._reading.has_errors_since(problem_count):
            return None
        spec = Judged(
            criteria=criteria,
            threshold=DEFAULT_THRESHOLD if threshold is None else float(threshold),
            kind=kind,
            negative_constraints=constraints,
            target_node=target,
            output_key=key,
            # A criterion such as "answers the question" is meaningless without the question.
            show_prompt=True,
            show_conversation=True,
        )
        return self._draft(node, "judged", spec, shorten(criteria, 80), None, find_word(SEMANTIC_TYPES, kind))

    def _read_node_call(self, node: Located) -> Assertion | None:
        problem_count = len(self._reading.problems)
        self._reading.check_keys(node, ("target", *_CALL, "expected_tool_calls", "count", *_COMMON), "node_call")
        fields: Fields = {}
        claim = self._call(node, "node_call", "", fields)
        count = self._read_word(node, "count", {"runs": False, "items": True}, "runs")
        nested: list[NestedCall] = []
        for index, entry in enumerate(self._reading.list_items(node.get("expected_tool_calls"), "expected_tool_calls")):
            if self._reading.require_object(entry, "an expected tool call") is None:
                continue
            entry = drop_nulls(entry)
            self._reading.check_keys(entry, _CALL, "an expected tool call")
            fields[f"tool_calls.{index}"] = entry
            inner = self._call(entry, "an expected tool call", f"tool_calls.{index}.", fields)
            if inner is not None:
                nested.append(NestedCall(**inner))
        if claim is None or self._reading.has_errors_since(problem_count):
            return None
        if nested and claim["condition"] == "not_called":
            message = "a node that must not run calls no tools: this forbids only runs in which the expected tool calls hold"
            self._reading.warn(node, message, code="odd_claim")
        spec = NodeCalled(**claim, count_items=bool(count), tool_calls=tuple(nested))
        words = {"called": "calls", "not_called": "never calls", "count": f"calls {spec.count} times:"}
        inner = ", ".join(("not " if call.condition == "not_called" else "") + shorten(call.name, 40) for call in nested[:4])
        label = f"{words[spec.condition]} {shorten(spec.name, 60)}" + (f" with {inner}" if nested else "")
        return self._draft(node, "node_called", spec, label, fields, find_word(CALL_CONDITIONS, spec.condition), spec.name)

    def _call(self, node: Located, what: str, prefix: str, fields: Fields) -> dict[str, Json] | None:
        """Return the fields common to claims about a node and about a nested tool."""
        reading = self._reading
        name = reading.need_text(node, "expected_name", what, "expected_name")
        default = "CALL_COUNT" if node.get("expected_count") is not None else "MUST_CALL"
        condition = self._read_word(node, "condition", CALL_CONDITIONS, default)
        count = reading.require_integer(node.get("expected_count"), "expected_count", at_least=0)
        if condition == "count" and node.get("expected_count") is None:
            reading.error(node.get("condition") or node, "CALL_COUNT needs 'expected_count'", code="missing_key")
        elif condition != "count" and count is not None:
            reading.warn_at_key(node, "expected_count", "'expected_count' has an effect only with CALL_COUNT", code="no_effect")
            count = None
        arguments = reading.require_object(node.get("expected_arguments"), "expected_arguments")
        strict = reading.require_boolean(node.get("strict"), "strict")
        index = reading.require_integer(node.get("expected_index"), "expected_index")
        for key, ours in (("expected_name", "name"), ("expected_count", "count"), ("condition", "condition")):
            place = node.get(key)
            if place is not None:
                fields[prefix + ours] = place
        if name is None or condition is None:
            return None
        return {
            "name": name,
            "condition": condition,
            "arguments": {} if arguments is None else read_members(arguments, f"{prefix}arguments", fields),
            "index": index,
            "count": count,
            "strict": bool(strict),
            "forbidden_arguments": self._read_texts(node, "forbidden_arguments"),
        }

    def _read_json_match(self, node: Located) -> Assertion | None:
        reading = self._reading
        problem_count = len(reading.problems)
        reading.check_keys(node, ("target", "field", "expected_value", "condition", *_COMMON), "json_match")
        field = reading.need_text(node, "field", "json_match", "field")
        condition = self._read_word(node, "condition", FIELD_CONDITIONS, "EQUALS")
        fields: Fields = {}
        value: Json = None
        if condition in ("equals", "not_equals"):
            place = reading.require_member(node, "expected_value", "json_match")
            value = None if place is None else read_expected_value(place, "value", fields)
        elif node.get("expected_value") is not None:
            reading.warn_at_key(node, "expected_value", "'expected_value' has no effect with this condition", code="no_effect")
        if field is None or condition is None or self._reading.has_errors_since(problem_count):
            return None
        listed = {
            "equals": f"is {show(value, 60)}",
            "not_equals": f"is not {show(value, 60)}",
            "exists": "exists",
            "not_exists": "does not exist",
        }
        spec = JsonField(field=field, value=value, condition=condition)
        return self._draft(node, "json_field", spec, f"{field} {listed[condition]}", fields, find_word(FIELD_CONDITIONS, condition), field)

    def _draft(
        self, node: Located, check: str, spec: msgspec.Struct, label: str, fields: Fields | None = None, *subject: str
    ) -> Assertion | None:
        """Return the assertion; `named` are its condition and its subject, in Mibo's words."""
        reading = self._reading
        before = len(reading.problems)
        target = node.get("target")
        rule = zip(("target", "condition", "name"), ("semantic" if target is None else target.value, *subject), strict=False)
        place = node.get("depends_on")
        if place is not None and place.is_list:
            dependencies = self._read_texts(node, "depends_on")
        else:
            dependency = reading.require_text(place, "depends_on")
            dependencies = () if dependency is None else (dependency,)
        more: dict[str, Json] = {"rule": dict(rule), "depends_on": dependencies, "turn": self._turn}
        for key, ask in (
            ("id", reading.require_text),
            ("axis", reading.require_text),
            ("required", reading.require_boolean),
            ("advisory", reading.require_boolean),
        ):
            value = ask(node.get(key), key)
            if value is not None:
                more[key] = value
        more["label"] = reading.require_text(node.get("label"), "label") or label
        if (weight := reading.require_weight(node.get("weight"))) is not None:
            more["weight"] = weight
        when = self._read_word(node, "when_missing", {word: word for word in get_args(WhenMissing)}, None)
        if self._reading.has_errors_since(before):
            return None
        assertion = draft_assertion(reading, node, check, spec, fields=fields, when_missing=when, **more)
        # Only for a valid spec: its expressions are compiled again to list their names.
        if not self._reading.has_errors_since(before):
            self._verify_variables(node, spec, fields or {})
        return assertion

    def _read_texts(self, node: Located, key: str) -> tuple[str, ...]:
        items = enumerate(self._reading.list_items(node.get(key), key))
        texts = [self._reading.require_text(item, f"{key} [{index}]") for index, item in items]
        return tuple(text for text in texts if text is not None)

    def _read_word(self, node: Located, key: str, words: dict[str, Json], default: str | None) -> Json:
        """Return the value of one of some words; None after a problem."""
        place = node.get(key)
        if place is None:
            return None if default is None else words[default]
        word = self._reading.require_text(place, key)
        if word is None:
            return None
        if word not in words:
            self._reading.error_unknown(place, f"unknown {key} {word!r}", word, words)
            return None
        return words[word]

    def _verify_variables(self, node: Located, spec: msgspec.Struct, fields: Fields) -> None:
        """Report names that the context lacks, and warn about those that hide a function."""
        for value, field in _iterate_expected_values(spec):
            for use in compile_expected(value, field=field).uses:
                known = use.name in self._context
                if known and use.name.upper() in FUNCTIONS:
                    message = f"{use.name!r} is a variable of the context here, not the function; write {use.name}() for the function"
                    self._reading.warn(fields.get(use.field, node), message, code="hidden_function")
                elif not known and not is_bare_call(use.name):
                    function = FUNCTIONS.get(use.name.upper())
                    error = SpecError(
                        f"unknown variable {use.name!r} in the expression"
                        + (f"; write {function.signature}" if function is not None else ""),
                        field=use.field,
                        offset=use.offset,
                        nearest=nearest(use.name, (*self._context, *FUNCTIONS)),
                        hint=None if self._context else "the test case has no context",
                    )
                    self._reading.report_spec_error(node, error, fields)


def _iterate_expected_values(spec: msgspec.Struct) -> Iterable[tuple[Json, str]]:
    if isinstance(spec, JsonField) and spec.condition in ("equals", "not_equals"):
        yield spec.value, "value"
    elif isinstance(spec, NodeCalled):
        for key, value in spec.arguments.items():
            yield value, f"arguments.{key}"
        for index, call in enumerate(spec.tool_calls):
            for key, value in call.arguments.items():
                yield value, f"tool_calls.{index}.arguments.{key}"


def find_word(words: dict[str, Json], ours: Json) -> str:
    """Return Mibo's word for a value of our specs."""
    return next(word for word, meaning in words.items() if meaning == ours)


def drop_nulls(node: Located) -> Located:
    """Return an object without null members, which exports write for unset fields. An expected value may be null."""
    if not node.is_object or not any(member.value is None for _, member in node.members()):
        return node
    members = {key: member for key, member in node.members() if member.value is not None or key == "expected_value"}
    return msgspec.structs.replace(node, value=members)


def read_expected_value(node: Located, field: str, fields: Fields) -> Json:
    """Return an expected value without positions; `fields` receives the position of each part.

    Mibo does not know our short spelling of matchers: there an object such as `{"$gt": 5}` is a literal, and stays one.
    """
    fields[field] = node
    if node.is_list:
        return [read_expected_value(item, f"{field}.{index}", fields) for index, item in enumerate(node.items())]
    if not node.is_object:
        return node.value
    if node.value and all(key.startswith("$") for key in node.value):
        return {"matcher": "object", "value": read_members(node, f"{field}.value", fields)}
    return read_members(node, field, fields)


def read_members(node: Located, field: str, fields: Fields) -> dict[str, Json]:
    """Return an object of expected values."""
    fields[field] = node
    return {key: read_expected_value(item, f"{field}.{key}", fields) for key, item in node.members()}
