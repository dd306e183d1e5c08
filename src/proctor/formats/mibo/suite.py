"""Mibo test cases: one, a list, or a list under `test_cases` or `data`; flat, or as a record with `content` and `context` side by side.

Records and lists may carry keys of the service that wrote them, such as `platformId` and `createdAt`; each is ignored with a warning.

A case has one input (`input_utterance`, `turns` or `custom_body`) and assertions, at the top and on turns. Its id is `id`, else
`name`, else made of `scenario`, and unique in the file. `test_dimension`, `optimization_target` and `state` become tags.
"""

from __future__ import annotations

from collections.abc import Sequence

from proctor.checks.run.unsupported import Unsupported
from proctor.errors import CheckFault
from proctor.expressions.moments import find_zone
from proctor.formats.mibo.assertions import AssertionReader, drop_nulls
from proctor.formats.native.drafting import make_slug, make_unique, verify_dependencies
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Assertion, Case, Scoring, Suite, Turn
from proctor.model.evidence import Json
from proctor.model.json_values import is_integer

_INPUTS = ("input_utterance", "turns", "custom_body")
_CONTENT = ("scenario", *_INPUTS, "context", "optimization_target", "test_dimension", "assertions", "id", "name", "description", "state")
_RECORD = ("content", "context", "id", "name", "description", "state")
_STATES = ("active", "paused", "draft")
_MARKS = ("scenario", "assertions", *_INPUTS)


def sniff(document: Located) -> bool:
    """Return whether this looks like Mibo."""
    if document.is_list:
        # The first few are enough to recognise the dialect; a file may have thousands.
        return any(_looks_like_case(item) for item in list(document.items())[:5])
    cases = document.get("test_cases")
    if cases is not None and cases.is_list:
        return True
    data = document.get("data")
    return _looks_like_case(document) or (data is not None and sniff(data))


def _looks_like_case(node: Located) -> bool:
    content = node.get("content")
    if content is not None and content.is_object:
        return any(content.get(key) is not None for key in _MARKS)
    if node.get("input_utterance") is not None or node.get("custom_body") is not None:
        return True
    assertions = node.get("assertions")
    if assertions is not None and (assertions.get("procedural") is not None or assertions.get("semantic") is not None):
        return True
    turns = node.get("turns")
    return turns is not None and any(turn.get("input_utterance") is not None for turn in turns.items())


def read(document: Located, reading: Reading, *, name: str) -> Suite:
    """Return the suite in `document`; problems go into `reading`."""
    description = ""
    nodes: Sequence[Located] = [document]
    if document.is_list:
        nodes = list(document.items())
    elif document.get("data") is not None and not _looks_like_case(document):
        reading.check_record_keys(document, ("data",), "a list of test cases")
        return read(document.value["data"], reading, name=name)
    elif document.get("test_cases") is not None:
        reading.check_record_keys(document, ("test_cases", "name", "description"), "a set of test cases")
        nodes = reading.list_items(document.get("test_cases"), "test_cases")
        name = reading.require_text(document.get("name"), "name") or name
        description = reading.require_text(document.get("description"), "description") or ""
    if not nodes:
        reading.warn(document, "there are no test cases here", code="no_cases")
    cases: list[Case] = []
    # One growing set: a new one for each case would take quadratic time.
    taken: set[str] = set()
    for node in nodes:
        case = _CaseReader(reading, node).read(taken) if reading.require_object(node, "a test case") is not None else None
        if case is not None:
            cases.append(case)
            taken.add(case.id)
    return Suite(name=name, dialect="mibo", description=description, cases=tuple(cases))


class _CaseReader:
    def __init__(self, reading: Reading, node: Located) -> None:
        self._reading = reading
        self._node = drop_nulls(node)
        self._content = self._node
        self._entries: list[tuple[Assertion, Located]] = []

    def read(self, taken: set[str]) -> Case | None:
        reading, node = self._reading, self._node
        if node.get("content") is not None:
            reading.check_record_keys(node, _RECORD, "a test case record")
            content = reading.require_object(node.get("content"), "content")
            if content is None:
                return None
            self._content = drop_nulls(content)
            reading.check_keys(self._content, _CONTENT, "the content of a test case")
        else:
            reading.check_record_keys(node, _CONTENT, "a test case")
        scenario = reading.require_text(self._content.get("scenario"), "scenario") or ""
        places = [self._content.get("context"), self._node.get("context") if self._content is not self._node else None]
        contexts = (self._reading.require_object(place, "context") for place in places)
        context = {key: value for each in contexts if each is not None for key, value in each.plain().items()}
        message, turns, body = self._read_input(context)
        self._read_assertions(self._content.get("assertions"), context, None)
        # Turns may come before or after the assertions; results follow the file.
        self._entries.sort(key=lambda entry: (entry[1].line, entry[1].column))
        verify_dependencies(reading, self._entries)
        if not self._entries:
            reading.warn(node, "this test case asserts nothing, so it is skipped", code="no_assertions")
        label = self._read_text("name")
        return Case(
            id=make_unique(self._make_id(label, scenario, message), taken),
            name=label or scenario,
            description=self._read_text("description") or (scenario if label else ""),
            input=message,
            turns=turns,
            custom_body=body,
            context=context,
            timezone=self._read_zone(context),
            tags=self._read_tags(),
            assertions=tuple(assertion for assertion, _ in self._entries),
            scoring=Scoring(mode="boolean", when_empty="skip"),
            origin=reading.origin(node),
        )

    def _find_member(self, key: str) -> Located | None:
        """Return a key of the record, else of its content."""
        member = self._node.get(key)
        return member if member is not None else self._content.get(key)

    def _read_text(self, key: str) -> str:
        return self._reading.require_text(self._find_member(key), key) or ""

    def _make_id(self, name: str, scenario: str, message: str | None) -> str:
        id_node = self._find_member("id")
        if id_node is not None:
            if (isinstance(id_node.value, str) or is_integer(id_node.value)) and str(id_node.value):
                return str(id_node.value)
            self._reading.error(id_node, f"id: expected text, found {id_node.kind}", code="wrong_type")
        return name or make_slug(scenario or message or "case")

    def _read_tags(self) -> dict[str, Json]:
        tags: dict[str, Json] = {}
        for key in ("test_dimension", "optimization_target"):
            if (value := self._reading.require_text(self._content.get(key), key)) is not None:
                tags[key] = value
        node = self._find_member("state")
        state = self._reading.require_text(node, "state")
        if node is not None and state is not None:
            if state not in _STATES:
                self._reading.error_unknown(node, f"unknown state {state!r}", state, _STATES)
            tags["state"] = state
        return tags

    def _read_zone(self, context: dict[str, Json]) -> str | None:
        zone = context.get("timezone")
        if not isinstance(zone, str) or not zone:
            return None
        try:
            find_zone(zone)
        except CheckFault as fault:
            place = self._find_member("context")
            zone_node = place.get("timezone") if place is not None else None
            self._reading.warn(zone_node or self._node, f"{fault.message}; date functions will not work in this case", code="unknown_zone")
        return zone

    def _read_input(self, context: dict[str, Json]) -> tuple[str | None, tuple[Turn, ...], Json]:
        input_keys = [key for key, _ in self._content.members() if key in _INPUTS]
        for key in input_keys[1:]:
            self._reading.error_at_key(
                self._content, key, f"a test case has one input, but here are {input_keys[0]!r} and {key!r}", code="several_inputs"
            )
        if not input_keys:
            self._reading.warn(self._node, "no input, so this case can only be checked against recorded evidence", code="no_input")
        message = self._reading.require_text(self._content.get("input_utterance"), "input_utterance")
        body = self._content.get("custom_body")
        if body is not None and not body.is_list:
            body = self._reading.require_object(body, "custom_body")
        return message, self._read_turns(context), None if body is None else body.plain()

    def _read_turns(self, context: dict[str, Json]) -> tuple[Turn, ...]:
        listed = self._reading.require_list(self._content.get("turns"), "turns")
        if listed is None:
            return ()
        if not listed.value:
            self._reading.error(listed, "turns: expected at least one turn")
        turns: list[Turn] = []
        for index, node in enumerate(listed.items()):
            if self._reading.require_object(node, f"turn {index + 1}") is None:
                continue
            node = drop_nulls(node)
            self._reading.check_keys(node, ("input_utterance", "assertions"), f"turn {index + 1}")
            message = self._reading.need_text(node, "input_utterance", f"turn {index + 1}", "input_utterance")
            self._read_assertions(node.get("assertions"), context, index)
            turns.append(Turn(input=message or "", origin=self._reading.origin(node)))
        return tuple(turns)

    def _read_assertions(self, node: Located | None, context: dict[str, Json], turn: int | None) -> None:
        reading = self._reading
        if node is None or reading.require_object(node, "assertions") is None:
            return
        node = drop_nulls(node)
        reading.check_keys(node, ("procedural", "semantic"), "assertions")
        reader = AssertionReader(reading, context, turn)
        for kind, read_one in (("procedural", reader.read_procedural), ("semantic", reader.read_semantic)):
            for entry in reading.list_items(node.get(kind), kind):
                if reading.require_object(entry, f"a {kind} assertion") is not None:
                    # One with problems gets a placeholder, so that its dependents are not reported as well.
                    known = entry.get("id")
                    name = known.value if known is not None and isinstance(known.value, str) else None
                    placeholder = Assertion(check="unsupported", spec=Unsupported(reason="it has problems"), id=name, turn=turn)
                    self._entries.append((read_one(drop_nulls(entry)) or placeholder, entry))
