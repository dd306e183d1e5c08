"""Reads one case of the native format: its input, its claims and its settings."""

from __future__ import annotations

import msgspec

from proctor.checks.registry import CheckEntry, Registry
from proctor.checks.vacuous import find_vacuous, find_vacuous_scoring
from proctor.errors import CheckFault, SpecError
from proctor.expressions.moments import find_zone
from proctor.formats.native.drafting import draft_assertion, make_default_label, make_slug, make_unique, verify_dependencies
from proctor.formats.native.matrix import Shared
from proctor.formats.native.systems import join_systems, refuse_unknown_systems
from proctor.formats.native.user import UserReader
from proctor.formats.text.building import UNUSABLE, build, build_struct, describe_struct_type
from proctor.formats.text.foreign_names import find_counterpart
from proctor.formats.text.located import Located, Reading
from proctor.model.case import MOST_REPEATS, Assertion, Capture, Case, Scoring, Skip, Turn
from proctor.model.evidence import Json
from proctor.model.scratch import TakenNames
from proctor.model.show import nearest, show

CASE_KEYS = (
    *("id", "name", "description", "input", "turns", "user", "body", "context", "systems", "timezone", "tags"),
    *("expect", "extract", "scoring", "skip", "repeat", "pass_rate", "settings"),
)
ASSERTION_KEYS = ("id", "label", "weight", "axis", "required", "advisory", "when_missing", "depends_on", "because")


class CaseReader:
    """Reads the cases of one suite."""

    def __init__(self, reading: Reading, registry: Registry, known: dict[int, Assertion | None] | None = None) -> None:
        self.reading = reading
        self.registry = registry
        self._known = known or {}
        """Claims that were already read, by the identity of their node: those that all rows of a file share."""
        self.users = UserReader(reading, registry, self.read_assertion)

    def with_reading(self, reading: Reading, known: dict[int, Assertion | None]) -> CaseReader:
        """Return a reader that reports to `reading`, and that already has the claims at some nodes."""
        return CaseReader(reading, self.registry, known)

    def read_case(self, node: Located, given_id: str | None, taken: TakenNames, shared: Shared) -> Case | None:
        """Return the case; None after a problem."""
        reading = self.reading
        if reading.require_object(node, "a case") is None:
            return None
        reading.check_keys(node, CASE_KEYS, "a case")
        name = reading.require_text(node.get("name"), "name") or ""
        case_id = given_id or self._read_id(node.get("id"))
        id_node = node.get("id")
        if case_id is None and id_node is None:
            case_id = make_unique(make_slug(name), taken) if name else make_unique(f"case-{len(taken) + 1}", taken)
        case_id = case_id or make_unique("case", taken)
        if case_id in taken:
            reading.error(
                id_node or node, f"duplicate case id {case_id!r}", code="duplicate_id", hint="every case of a suite has its own id"
            )
        inputs = [key for key in ("input", "turns", "body") if node.get(key) is not None]
        if len(inputs) > 1:
            message = f"a case has one input, but this one has {' and '.join(map(repr, inputs))}"
            reading.error_at_key(node, inputs[1], message, code="two_inputs")
        turns, turn_assertions = self._read_turns(node.get("turns"))
        user, opening = self.users.read(node)
        claims = [*turn_assertions, *self._read_assertions(node.get("expect"), None)]
        entries = [(self.users.complete_claim(assertion, item, user), item) for assertion, item in claims]
        verify_dependencies(reading, entries)
        rate_node = node.get("pass_rate")
        pass_rate = self._read_share(rate_node, "pass_rate")
        if rate_node is not None and pass_rate == 0:
            message = "pass_rate: 0 lets a case pass that never passes"
            reading.warn(rate_node, message, hint="give a number above 0", code="vacuous_claim")
        systems = join_systems(shared.systems, node.get("systems"), reading)
        refuse_unknown_systems(entries, systems, reading)
        return Case(
            id=case_id,
            name=name,
            description=reading.require_text(node.get("description"), "description") or "",
            input=opening or reading.require_text(node.get("input"), "input"),
            turns=turns,
            user=user,
            custom_body=member.plain() if (member := node.get("body")) is not None else None,
            context={**shared.context, **self.read_object(node.get("context"), "context")},
            systems=systems,
            timezone=self.read_zone(node.get("timezone")) or shared.timezone,
            tags={**shared.tags, **self.read_tags(node.get("tags"))},
            assertions=tuple(assertion for assertion, _ in entries),
            captures=self._read_captures(node.get("extract")),
            scoring=self.read_scoring(node.get("scoring"), shared.scoring),
            skip=self._read_skip(node.get("skip")),
            repetitions=reading.require_integer(node.get("repeat"), "repeat", at_least=1, at_most=MOST_REPEATS),
            pass_threshold=pass_rate,
            settings=self.read_object(node.get("settings"), "settings"),
            origin=reading.origin(node),
        )

    def _read_turns(self, node: Located | None) -> tuple[tuple[Turn, ...], list[tuple[Assertion, Located]]]:
        turns: list[Turn] = []
        entries: list[tuple[Assertion, Located]] = []
        for index, item in enumerate(self.reading.list_items(node, "turns")):
            if isinstance(item.value, str):
                turns.append(Turn(input=item.value, origin=self.reading.origin(item)))
                continue
            if self.reading.require_object(item, "a turn") is None:
                continue
            self.reading.check_keys(item, ("input", "expect"), "a turn")
            text = self.reading.need_text(item, "input", "a turn", "input")
            turns.append(Turn(input=text or "", origin=self.reading.origin(item)))
            entries.extend(self._read_assertions(item.get("expect"), index))
        return tuple(turns), entries

    def _read_assertions(self, node: Located | None, turn: int | None) -> list[tuple[Assertion, Located]]:
        single = node is not None and (node.is_object or isinstance(node.value, str))
        items = [node] if node is not None and single else self.reading.list_items(node, "expect")
        built = [(self.read_assertion(item, turn), item) for item in items]
        return [(assertion, item) for assertion, item in built if assertion is not None]

    def read_assertion(self, node: Located, turn: int | None) -> Assertion | None:
        """Return one claim of a case; None after a problem."""
        reading = self.reading
        if id(node) in self._known:
            return self._known[id(node)]
        # `- no_tool_errors` is `- no_tool_errors: {}`
        is_bare_name = isinstance(node.value, str)
        if not is_bare_name and reading.require_object(node, "an assertion") is None:
            return None
        names = [node.value] if is_bare_name else [key for key, _ in node.members() if key not in ASSERTION_KEYS]
        if len(names) != 1:
            self._report_not_one_check(node, names)
            return None
        try:
            entry = self.registry.get(names[0])
        except SpecError as error:
            name, other = names[0], find_counterpart(names[0])
            elsewhere = f"what is {name!r} elsewhere is `{other}` here: `proctor describe check {other}`"
            expected, hint = f"one of {len(self.registry.list_names())} checks", error.hint if other is None else elsewhere
            reading.error_at_key(node, name, error.message, nearest=error.nearest, expected=expected, hint=hint, code="unknown_check")
            return None
        value = Located(value={}, line=node.line, column=node.column, path=node.path) if is_bare_name else node.get(names[0])
        assert value is not None
        return self._draft(node, entry, value, turn, {} if is_bare_name else self._read_common(node))

    def _report_not_one_check(self, node: Located, names: list[str]) -> None:
        if not names:
            self.reading.error(node, "an assertion needs the name of a check as a key", hint="`proctor describe checks` lists them all")
            return
        known = [name for name in names if name in self.registry]
        for name in names:
            if name not in self.registry or name != known[0]:
                near = nearest(name, (*ASSERTION_KEYS, *self.registry.list_names()))
                message = (
                    f"an assertion makes one claim, but {name!r} is a second one"
                    if name in self.registry
                    else f"unknown key {name!r} in an assertion"
                )
                self.reading.error_at_key(node, name, message, nearest=near, expected="one check name and " + ", ".join(ASSERTION_KEYS))

    def _draft(self, node: Located, entry: CheckEntry, value: Located, turn: int | None, common: dict[str, Json]) -> Assertion | None:
        fields: dict[str, Located] = {}
        spec = self._build_spec(entry, value, fields)
        if spec is UNUSABLE:
            return None
        nothing = find_vacuous(entry.name, spec)
        if nothing is not None:
            self.reading.warn(fields.get(nothing.field, value), nothing.why, hint=nothing.hint, code="vacuous_claim")
        common["label"] = common.get("label") or make_default_label(entry, spec)
        return draft_assertion(self.reading, node, entry.name, spec, fields=fields, registry=self.registry, turn=turn, **common)

    def _build_spec(self, entry: CheckEntry, value: Located, fields: dict[str, Located]) -> Json:
        what = entry.name
        info = describe_struct_type(entry.spec)
        if value.value is None and not any(field.required for field in info.fields):
            return entry.spec()
        # A bare value sets the shorthand field; an object always has the fields by name.
        if entry.shorthand is not None and (entry.takes_whole or not value.is_object):
            field = next(field for field in info.fields if field.name == entry.shorthand)
            built = build(field.type, value, self.reading, what)
            if built is UNUSABLE:
                return UNUSABLE
            absent = [f.name for f in info.fields if f.required and f.name != field.name]
            if absent:
                self.reading.error(
                    value, f"{what} needs {' and '.join(repr(name) for name in absent)} too", hint=f"write it as {what}: {{...}}"
                )
                return UNUSABLE
            fields[entry.shorthand] = value
            return entry.spec(**{entry.shorthand: built})
        fields.update(value.members())
        return build_struct(entry.spec, value, self.reading, what)

    def _read_common(self, node: Located) -> dict[str, Json]:
        reading = self.reading
        common: dict[str, Json] = {}
        types = {field.name: field.type for field in describe_struct_type(Assertion).fields}
        for key in ASSERTION_KEYS:
            member = node.get(key)
            if member is None:
                continue
            if key == "id":
                value = self._read_id(member)
            elif key == "weight":
                value = reading.require_weight(member)
            else:
                value = build(types[key], member, reading, key)
            if value is not None and value is not UNUSABLE:
                common[key] = value
        if common.get("required") and common.get("advisory"):
            reading.error_at_key(node, "advisory", "an assertion is required or advisory, not both", code="required_and_advisory")
        return common

    def _read_captures(self, node: Located | None) -> tuple[Capture, ...]:
        if node is None:
            return ()
        if node.is_object:  # {total: 'total: (\d+)'}
            patterns = [(key, self.reading.require_text(self._check_pattern(member), f"extract {key!r}")) for key, member in node.members()]
            return tuple(Capture(name=key, pattern=pattern) for key, pattern in patterns if pattern is not None)
        items = self.reading.list_items(node, "extract")
        for item in items:
            self._check_pattern(item.get("pattern"))
        built = [build_struct(Capture, item, self.reading, "extract") for item in items]
        return tuple(item for item in built if item is not UNUSABLE)

    def _check_pattern(self, node: Located | None) -> Located | None:
        """Warn about an invalid pattern; it only gives null, since `extract` never affects the outcome."""
        if node is not None and isinstance(node.value, str):
            try:
                from proctor.patterns.engine import compile_pattern  # few suites extract

                compile_pattern(node.value)
            except SpecError as error:
                self.reading.report_spec_warning(node, error, {"pattern": node}, hint="the value will be null")
        return node

    def read_scoring(self, node: Located | None, default: Scoring) -> Scoring:
        """Return the scoring of a suite or a case."""
        if node is None:
            return default
        if isinstance(node.value, str):
            field = next(f for f in describe_struct_type(Scoring).fields if f.name == "mode")
            mode = build(field.type, node, self.reading, "scoring")
            return default if mode is UNUSABLE else msgspec.structs.replace(default, mode=mode)
        # Checked before the struct is built, while the position of each is known.
        for key in ("pass_at", "partial_above"):
            bound = node.get(key)
            if bound is not None and isinstance(bound.value, (int, float)):
                self._read_share(bound, key)
        built = build_struct(Scoring, node, self.reading, "scoring")
        if built is UNUSABLE:
            return default
        if built.partial_above > built.pass_at and 0 <= built.pass_at <= 1 and built.partial_above <= 1:
            self.reading.error(node, f"partial_above {show(built.partial_above)} is above pass_at {show(built.pass_at)}")
        nothing = find_vacuous_scoring(built, [key for key, _ in node.members()])
        if nothing is not None:
            self.reading.warn(node.get(nothing.field) or node, nothing.why, hint=nothing.hint, code="vacuous_claim")
        return built

    def read_zone(self, node: Located | None) -> str | None:
        """Return the name of a time zone, with a warning if it does not exist."""
        name = self.reading.require_text(node, "timezone")
        if name is None or node is None:
            return None
        try:
            find_zone(name)
        except CheckFault as fault:
            # A dialect's suite may have one too, and its conversion must still be readable: only the date functions will not work.
            self.reading.warn(node, f"{fault.message}; date functions will not work", code="unknown_zone")
        return name

    def _read_id(self, node: Located | None) -> str | None:
        name = self.reading.require_text(node, "id")
        if name == "" and node is not None:
            self.reading.error(node, "id: expected a name, found empty text")
        return name

    def _read_skip(self, node: Located | None) -> Skip | None:
        if node is None or node.value is False:
            return None
        if isinstance(node.value, str) or node.value is True:
            return Skip(code="skipped_by_author", reason=node.value if isinstance(node.value, str) else "the author skipped this case")
        built = build_struct(Skip, node, self.reading, "skip")
        return None if built is UNUSABLE else built

    def read_tags(self, node: Located | None) -> dict[str, Json]:
        """Return tags: an object, or names that are true."""
        if node is None:
            return {}
        if isinstance(node.value, str):
            return {node.value: True}
        if node.is_list:
            return dict.fromkeys(self.reading.list_texts(node, "tags", "a tag"), True)
        return self.read_object(node, "tags")

    def read_object(self, node: Located | None, what: str) -> dict[str, Json]:
        """Return an object as plain data; empty if it is absent, or after a problem."""
        object_node = self.reading.require_object(node, what)
        return object_node.plain() if object_node is not None else {}

    def _read_share(self, node: Located | None, what: str) -> float | None:
        value = self.reading.number(node, what)
        if value is not None and node is not None and not 0 <= value <= 1:
            self.reading.error(node, f"{what}: expected a number from 0 to 1, found {show(value)}")
            return None
        return value
