"""Converts the assertions of Mibo test cases to our checks.

Defaults that Mibo's documentation does not mention: `condition` is `MUST_CALL` (`CALL_COUNT` with `expected_count`), `should_match` is
true, a semantic threshold is 0.8. Our extensions: `EQUALS`, `EXISTS`, `NOT_EXISTS` in `json_match`, `flags` in `response_regex`, `count:
items` in `node_call`, and on every assertion `label`, `weight`, `axis`, `required`, `advisory`, `when_missing`. An object whose keys all
begin with `$` is a plain literal in Mibo, so it is read as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast, get_args

import msgspec

from proctor.checks.answer.json_field import JsonField
from proctor.checks.answer.json_schema import JsonSchema
from proctor.checks.answer.text import ResponseMatches
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


class AssertionReader:
    """Reads the assertions of one place: a turn, or the whole case."""

    def __init__(self, reading: Reading, context: dict[str, Json], turn: int | None) -> None:
        self._reading = reading
        self._context = context
        self._turn = turn
        self._targets: dict[str, Callable[[Located], Assertion | None]] = {
            "node_call": self._read_node_call,
            "json_match": self._read_json_match,
            "response_regex": self._read_response_regex,
            "json_schema": self._read_json_schema,
            "http_status": self._read_http_status,
            "response_time": self._read_response_time,
            "token_limit": self._read_token_limit,
        }

    def read_procedural(self, node: Located) -> Assertion | None:
        """Return a deterministic assertion, by its `target`."""
        place = self._reading.require_member(node, "target", "an assertion")
        target = self._reading.require_text(place, "target")
        if place is None or target is None:
            return None
        known = self._targets.get(target)
        if known is not None:
            return known(node)
        self._reading.error_unknown(
            place,
            f"unknown target {target!r}",
            target,
            self._targets,
            hint="a semantic assertion has no target and belongs in the list 'semantic'" if target == "semantic" else None,
            code="unknown_target",
        )
        return None

    def read_semantic(self, node: Located) -> Assertion | None:
        """Return an assertion for a judge."""
        reading = self._reading
        problem_count = len(reading.problems)
        reading.check_keys(node, (*_SEMANTIC, *_COMMON), "a semantic assertion")
        criteria = reading.require_text(reading.require_member(node, "criteria", "a semantic assertion"), "criteria")
        threshold = reading.number(node.get("threshold"), "threshold")
        kind = self._read_word(node, "type", SEMANTIC_TYPES, "quality_check")
        constraints = self._read_texts(node, "negative_constraints")
        target = reading.require_text(node.get("target_node"), "target_node")
        key = reading.require_text(node.get("output_key"), "output_key")
        if criteria is None or kind is None or self._has_errors_since(problem_count):
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
        listed = self._reading.require_list(node.get("expected_tool_calls"), "expected_tool_calls")
        for index, entry in enumerate(listed.items() if listed is not None else ()):
            if self._reading.require_object(entry, "an expected tool call") is None:
                continue
            entry = drop_nulls(entry)
            self._reading.check_keys(entry, _CALL, "an expected tool call")
            fields[f"tool_calls.{index}"] = entry
            inner = self._call(entry, "an expected tool call", f"tool_calls.{index}.", fields)
            if inner is not None:
                nested.append(NestedCall(**inner))
        if claim is None or self._has_errors_since(problem_count):
            return None
        if nested and claim["condition"] == "not_called":
            self._reading.warn(
                node,
                "a node that must not run calls no tools: this forbids only runs in which the expected tool calls hold",
                code="odd_claim",
            )
        spec = NodeCalled(**claim, count_items=bool(count), tool_calls=tuple(nested))
        words = {"called": "calls", "not_called": "never calls", "count": f"calls {spec.count} times:"}
        inner = ", ".join(("not " if call.condition == "not_called" else "") + shorten(call.name, 40) for call in nested[:4])
        label = f"{words[spec.condition]} {shorten(spec.name, 60)}" + (f" with {inner}" if nested else "")
        return self._draft(node, "node_called", spec, label, fields, find_word(CALL_CONDITIONS, spec.condition), spec.name)

    def _call(self, node: Located, what: str, prefix: str, fields: Fields) -> dict[str, Json] | None:
        """Return the fields common to claims about a node and about a nested tool."""
        reading = self._reading
        name = reading.require_text(reading.require_member(node, "expected_name", what), "expected_name")
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
            "arguments": {} if arguments is None else self._read_expected_members(arguments, f"{prefix}arguments", fields),
            "index": index,
            "count": count,
            "strict": bool(strict),
            "forbidden_arguments": self._read_texts(node, "forbidden_arguments"),
        }

    def _read_json_match(self, node: Located) -> Assertion | None:
        reading = self._reading
        problem_count = len(reading.problems)
        reading.check_keys(node, ("target", "field", "expected_value", "condition", *_COMMON), "json_match")
        field = reading.require_text(reading.require_member(node, "field", "json_match"), "field")
        condition = self._read_word(node, "condition", FIELD_CONDITIONS, "EQUALS")
        fields: Fields = {}
        value: Json = None
        if condition in ("equals", "not_equals"):
            place = reading.require_member(node, "expected_value", "json_match")
            value = None if place is None else read_expected_value(place, "value", fields)
        elif node.get("expected_value") is not None:
            reading.warn_at_key(node, "expected_value", "'expected_value' has no effect with this condition", code="no_effect")
        if field is None or condition is None or self._has_errors_since(problem_count):
            return None
        listed = {
            "equals": f"is {show(value, 60)}",
            "not_equals": f"is not {show(value, 60)}",
            "exists": "exists",
            "not_exists": "does not exist",
        }
        spec = JsonField(field=field, value=value, condition=condition)
        return self._draft(node, "json_field", spec, f"{field} {listed[condition]}", fields, find_word(FIELD_CONDITIONS, condition), field)

    def _read_response_regex(self, node: Located) -> Assertion | None:
        reading = self._reading
        problem_count = len(reading.problems)
        reading.check_keys(node, ("target", "pattern", "should_match", "flags", *_COMMON), "response_regex")
        pattern = reading.require_text(reading.require_member(node, "pattern", "response_regex"), "pattern")
        wanted = reading.require_boolean(node.get("should_match"), "should_match")
        flags = reading.require_text(node.get("flags"), "flags")
        if pattern is None or self._has_errors_since(problem_count):
            return None
        spec = ResponseMatches(pattern=pattern, flags=flags or "", should_match=wanted is not False)
        label = f"answer {'matches' if spec.should_match else 'does not match'} {shorten(pattern, 60)}"
        return self._draft(node, "response_matches", spec, label)

    def _read_json_schema(self, node: Located) -> Assertion | None:
        reading = self._reading
        problem_count = len(reading.problems)
        reading.check_keys(node, ("target", "schema", "field", *_COMMON), "json_schema")
        schema = reading.require_member(node, "schema", "json_schema")
        if schema is not None and not isinstance(schema.value, bool):
            schema = reading.require_object(schema, "schema")
        field = reading.require_text(node.get("field"), "field")
        if schema is None or self._has_errors_since(problem_count):
            return None
        return self._draft(node, "json_schema", JsonSchema(schema=schema.plain(), field=field), f"{field or 'answer'} fits its schema")

    def _read_http_status(self, node: Located) -> Assertion | None:
        self._reading.check_keys(node, ("target", "expected_status", *_COMMON), "http_status")
        status = self._reading.require_integer(self._reading.require_member(node, "expected_status", "http_status"), "expected_status")
        if status is None:
            return None
        return self._draft(
            node, "http_status", HttpStatus(status=status), f"HTTP status {status}", _locate_only(node, "expected_status", "status")
        )

    def _read_response_time(self, node: Located) -> Assertion | None:
        self._reading.check_keys(node, ("target", "max_ms", *_COMMON), "response_time")
        limit = self._reading.number(self._reading.require_member(node, "max_ms", "response_time"), "max_ms")
        if limit is None:
            return None
        spec = RespondedWithin(ms=float(limit))
        return self._draft(node, "responded_within", spec, f"answers within {limit:g} ms", _locate_only(node, "max_ms", "ms"))

    def _read_token_limit(self, node: Located) -> Assertion | None:
        self._reading.check_keys(node, ("target", *LIMITS, *_COMMON), "token_limit")
        limits: dict[str, Json] = {}
        fields: Fields = {}
        for key, ours in LIMITS.items():
            place = node.get(key)
            limit = self._reading.require_integer(place, key, at_least=0)
            if place is not None and limit is not None:
                limits[ours], fields[ours] = limit, place
        if not any(node.get(key) is not None for key in LIMITS):
            self._reading.error(node, "token_limit needs at least one limit", expected=", ".join(LIMITS), code="missing_key")
        if not limits:
            return None
        listed = ", ".join(f"{limit} {kind}" for kind, limit in limits.items())
        return self._draft(node, "tokens_within", TokensWithin(**limits), f"at most {listed} tokens", fields)

    def _draft(
        self, node: Located, check: str, spec: msgspec.Struct, label: str, fields: Fields | None = None, *named: str
    ) -> Assertion | None:
        """Return the assertion; `named` are its condition and its subject, in Mibo's words."""
        reading = self._reading
        before = len(reading.problems)
        target = node.get("target")
        rule = zip(("target", "condition", "name"), ("semantic" if target is None else target.value, *named), strict=False)
        more: dict[str, Json] = {"rule": dict(rule), "depends_on": self._read_dependencies(node), "turn": self._turn}
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
        if self._has_errors_since(before):
            return None
        assertion = draft_assertion(reading, node, check, spec, fields=fields, when_missing=when, **more)
        # Only for a valid spec: its expressions are compiled again to list their names.
        if not self._has_errors_since(before):
            self._verify_variables(node, spec, fields or {})
        return assertion

    def _read_dependencies(self, node: Located) -> tuple[str, ...]:
        place = node.get("depends_on")
        if place is not None and place.is_list:
            return self._read_texts(node, "depends_on")
        wanted = self._reading.require_text(place, "depends_on")
        return () if wanted is None else (wanted,)

    def _read_texts(self, node: Located, key: str) -> tuple[str, ...]:
        listed = self._reading.require_list(node.get(key), key)
        found = [
            self._reading.require_text(item, f"{key} [{index}]") for index, item in enumerate(listed.items() if listed is not None else ())
        ]
        return tuple(text for text in found if text is not None)

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

    def _has_errors_since(self, before: int) -> bool:
        # Only problems of this assertion: earlier ones must not prevent it from being read and checked.
        return any(problem.level == "error" for problem in self._reading.problems[before:])

    def _read_expected_members(self, node: Located, prefix: str, fields: Fields) -> dict[str, Json]:
        fields[prefix] = node
        return {key: read_expected_value(item, f"{prefix}.{key}", fields) for key, item in node.members()}

    def _verify_variables(self, node: Located, spec: msgspec.Struct, fields: Fields) -> None:
        """Report names that the context lacks, and warn about those that hide a function."""
        for value, field in _iterate_expected_values(spec):
            for use in compile_expected(value, field=field).uses:
                known = use.name in self._context
                if known and use.name.upper() in FUNCTIONS:
                    self._reading.warn(
                        fields.get(use.field, node),
                        f"{use.name!r} is a variable of the context here, not the function; write {use.name}() for the function",
                        code="hidden_function",
                    )
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
    """Return every expected value of a spec, with its field."""
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


def _locate_only(node: Located, key: str, ours: str) -> Fields:
    place = node.get(key)
    return {} if place is None else {ours: place}


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
    members = cast(dict[str, Located], node.value)
    if members and all(key.startswith("$") for key in members):
        return {
            "matcher": "object",
            "value": {key: read_expected_value(item, f"{field}.value.{key}", fields) for key, item in members.items()},
        }
    return {key: read_expected_value(item, f"{field}.{key}", fields) for key, item in members.items()}
