"""Verial documents: a task with criteria, a benchmark with tasks, or criteria alone.

Read are `{"task": {...}, "criteria": [...]}`, a task or a list of tasks with `criteria` inside, a benchmark with `tasks`, criteria as a
list (grouped by `task_id`), one criterion, the `{"data": [...]}` of a list call, and the arguments of a `create` call of the MCP tools.
All names may be in snake_case or camelCase. `evals` and a text `assert` belong to earlier generations: JSON in that text is the
typed assertion, English is for a judge, which sees the state. A document with its environment (`systems.py`) can be run:
every attempt gets the simulated systems, and the criteria are decided on their final content.

An invalid criterion fails with its full weight and a warning at its position; the rest of the file is still
read. A weight that is not above zero, and FHIRPath (our extension) that cannot be read, are errors of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from proctor.checks.judged.semantic import Judged
from proctor.checks.registry import default_registry
from proctor.checks.run.unsupported import Unsupported
from proctor.errors import SpecError
from proctor.formats.native.drafting import make_unique
from proctor.formats.text.located import Located, Reading, replace_value
from proctor.formats.verial.assertions import KINDS, find_kind, translate
from proctor.formats.verial.parts import (
    Entity,
    Malformed,
    Translated,
    decode_text,
    list_members,
    list_stated,
    refuse_repeated,
    report,
    to_snake_case,
    warn_unknown,
)
from proctor.formats.verial.systems import PLACES, SystemsReader, write_task_item
from proctor.model.case import Assertion, Case, Scoring, Suite
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import nearest, show

# --- from scores to verdicts as in Verial: by fixed bounds today, by a threshold of the benchmark in the first generation

SCORING = Scoring(mode="weighted", pass_at=0.9, partial_above=0.0, when_empty="fail")
"""Verial's rule: pass from 0.9 on, partial above 0."""


def make_scoring(threshold: float | None) -> Scoring:
    """Return the scoring of a benchmark: with its own threshold pass from there on, else fail."""
    return SCORING if threshold is None else msgspec.structs.replace(SCORING, pass_at=threshold, partial_above=threshold)


def read_threshold(reading: Reading, node: Located | None) -> float | None:
    """Return the threshold of a benchmark; an invalid share is an error of the file."""
    if node is None:
        return None
    value = node.plain()
    if not is_number(value) or not 0 < value <= 1:
        reading.error(node, f"threshold: expected a number above 0 and at most 1, found {show(value)}", code="wrong_value")
        return None
    return value


_ROW = ("id", "organization_id", "created_at", "updated_at", "action")
_CRITERION = (
    *_ROW,
    *("task_id", "benchmark_id", "label", "name", "description", "assertion", "assert", "weight", "axis", "input_entity_id"),
    *("when_missing", "required", "advisory"),
)
_TASK = (
    *_ROW,
    *("benchmark_id", "name", "description", "task_item", "instruction", "scenario", "entities", "tags", "timeout", "criteria", "evals"),
    *PLACES,
)
_BENCHMARK = (
    *_ROW,
    *("name", "description", "environment_id", "timeout", "concurrency", "slug", "version", "published", "visibility", "threshold"),
    *("tasks", "criteria", "evals", "entities", "benchmark", "task"),
    *PLACES,
)
_CALLS_WITHOUT_CRITERION = ("list", "get", "update", "delete")


def sniff(document: Located) -> bool:
    """Return whether a document looks like Verial's."""
    if document.is_list:
        return any(_is_criterion(entry) or _has_criteria(entry) for entry in document.items())
    if not document.is_object or document.get("proctor") is not None:
        return False
    data, tasks, task = document.get("data"), document.get("tasks"), document.get("task")
    if data is not None and data.is_list:
        return sniff(data)
    if tasks is not None and tasks.is_list:
        return any(_has_criteria(entry) for entry in tasks.items()) or _has_criteria(document)
    return _is_criterion(document) or _has_criteria(document) or (task is not None and _has_criteria(task))


def _is_criterion(node: Located) -> bool:
    members = list_members(node)
    kind = members.get("assert")
    assertion = members.get("assertion")
    if assertion is not None:
        return (assertion.is_object and assertion.get("assert") is not None) or isinstance(assertion.value, str)
    if kind is None or not isinstance(kind.value, str):
        return False
    return find_kind(kind.value) is not None or any(key in members for key in ("label", "task_id", "weight"))


def _has_criteria(node: Located) -> bool:
    return any(isinstance(member := node.get(key), Located) and member.is_list for key in ("criteria", "evals"))


def read(document: Located, reading: Reading, *, name: str) -> Suite:
    """Return the suite in a document; problems go to `reading`."""
    return _Reader(reading, name).read_suite(document)


class _Reader:
    def __init__(self, reading: Reading, name: str) -> None:
        self.reading = reading
        self.name = name
        self.scoring = SCORING
        self.cases: list[Case] = []
        self.systems = SystemsReader(reading)
        self._taken: set[str] = set()

    def read_suite(self, document: Located) -> Suite:
        members = list_members(document)
        if "data" in members and members["data"].is_list:
            document, members = members["data"], {}
        if document.is_list:
            loose: list[Located] = []
            for entry in list(document.items()):
                if not entry.is_object:
                    self.reading.error(entry, f"expected a task or a criterion, found {entry.kind}", code="wrong_type")
                elif _has_criteria(entry):
                    self._read_task(entry, [])
                else:
                    loose.append(entry)
            self._read_loose_criteria(loose)
        elif not document.is_object:
            self._report_not_verial(document)
        elif "tasks" in members or "benchmark" in members:
            return self._read_benchmark(document, members)
        elif _is_criterion(document):
            self._read_loose_criteria([document])
        elif "task" in members:
            warn_unknown(self.reading, document, ("task", "criteria", "evals", "entities", *PLACES, *_ROW), "this document")
            self.systems.around = [document]
            self._read_task(members["task"], _find_criteria(members), entities=members.get("entities"))
        elif _has_criteria(document):
            self._read_task(document, [])
        else:
            self._report_not_verial(document)
        return Suite(name=self.name, dialect="verial", cases=tuple(self.cases))

    def _report_not_verial(self, document: Located) -> None:
        self.reading.error(
            document,
            "this is not a Verial document",
            expected="a task with criteria, a benchmark with tasks, or a list of criteria",
            code="not_verial",
        )

    def _read_loose_criteria(self, criteria: Sequence[Located]) -> None:
        """Read criteria without their task: one case per `task_id`, in order."""
        groups: dict[str, list[Located]] = {}
        for node in criteria:
            members = list_members(node)
            action = members.get("action")
            if action is not None and action.value in _CALLS_WITHOUT_CRITERION:
                self.reading.warn(action, f"a call of {show(action.value)} states no criterion and is left out", code="no_criterion")
                continue
            task = members.get("task_id")
            groups.setdefault(task.value if task is not None and isinstance(task.value, str) else self.name, []).append(node)
        for task_id, nodes in groups.items():
            self._add(
                Case(
                    id=task_id,
                    name=task_id,
                    assertions=tuple(self._read_criteria(nodes, [])),
                    scoring=self.scoring,
                    origin=self.reading.origin(nodes[0]),
                )
            )

    def _read_benchmark(self, document: Located, members: dict[str, Located]) -> Suite:
        warn_unknown(self.reading, document, _BENCHMARK, "a benchmark")
        head = members["benchmark"] if "benchmark" in members and members["benchmark"].is_object else document
        if head is not document:
            warn_unknown(self.reading, head, _BENCHMARK, "a benchmark")
        stated = {**list_stated(head), **{key: value for key, value in list_stated(document).items() if key != "benchmark"}}
        self.systems.around = [document, head]
        by_task: dict[str, list[Located]] = {}
        for node in _find_criteria(stated):
            task = list_members(node).get("task_id")
            by_task.setdefault(str(task.value) if task is not None else "", []).append(node)
        self.scoring = make_scoring(read_threshold(self.reading, stated.get("threshold")))
        tasks = self.reading.require_list(stated.get("tasks"), "tasks")
        # Next to `benchmark` there may be a single `task`: criteria and entities without a task belong to it.
        loose_criteria = stated["task"] if "task" in stated and stated["task"].is_object and tasks is None else None
        for node in [loose_criteria] if loose_criteria is not None else tasks.items() if tasks is not None else ():
            key = list_members(node).get("id")
            own = by_task.pop(str(key.value), []) if key is not None else []
            if node is loose_criteria:
                own += by_task.pop("", [])
            entities = stated.get("entities") if node is loose_criteria else None
            self._read_task(node, own, entities=entities, timeout=stated.get("timeout"))
        # Each task has taken its own by now; the remaining ones name no known task.
        for nodes in by_task.values():
            for node in nodes:
                self.reading.error(node, "the criterion names no task of this benchmark", code="unknown_task")
        name = stated.get("name")
        description = stated.get("description")
        stated_keys = ("id", "slug", "version", "environment_id", "timeout", "concurrency", "visibility", "published", "threshold")
        return Suite(
            name=name.value if name is not None and isinstance(name.value, str) and name.value else self.name,
            dialect="verial",
            description=description.value if description is not None and isinstance(description.value, str) else "",
            cases=tuple(self.cases),
            settings={key: stated[key].plain() for key in stated_keys if key in stated},
        )

    def _read_task(
        self, node: Located, criteria: list[Located], *, entities: Located | None = None, timeout: Located | None = None
    ) -> None:
        if self.reading.require_object(node, "a task") is None:
            return
        warn_unknown(self.reading, node, _TASK, "a task")
        members = list_stated(node)
        listed = [*_find_criteria(members), *criteria]
        for key in ("criteria", "evals"):
            self.reading.require_list(members.get(key), key)
        if not listed:
            self.reading.warn(node, "the task has no criteria: it fails", code="no_assertions")
        entity_nodes = [entry for node in (members.get("entities"), entities) for entry in self.reading.list_items(node, "entities")]
        bound: list[Entity] = [each.plain() for each in entity_nodes if self.reading.require_object(each, "an entity") is not None]
        tags = members.get("tags")
        name = self.reading.require_text(members.get("name"), "name") or ""
        item = members.get("task_item")
        stated = item.get("instruction") if item is not None and item.is_object else None
        if stated is None or stated.value is None:
            # The first generation wrote it on the task itself.
            stated = members.get("instruction")
        systems = self.systems.read(node)
        settings = {key: members[key].plain() for key in ("task_item", "scenario", "timeout") if key in members}
        # The timeout of the task overrides that of its benchmark.
        if not systems and (named_environment := self.systems.find_named(node)) is not None:
            settings["environment_id"] = named_environment
        if timeout is not None:
            settings.setdefault("timeout", timeout.plain())
        case_id = self.reading.require_text(members.get("id"), "id") or name or self.name
        if case_id in self._taken:
            place = members.get("id") or members.get("name") or node
            hint = "evidence that names it answers the first one only"
            self.reading.warn(place, f"a second task is called {show(case_id)}", hint=hint, code="duplicate_id")
        self._add(
            Case(
                id=case_id,
                name=name,
                description=self.reading.require_text(members.get("description"), "description") or "",
                input=self.reading.require_text(stated, "instruction") or (write_task_item(item) if systems else None),
                systems=systems,
                context={"task_item": item.plain()} if systems and item is not None else {},
                tags=tags.plain()
                if tags is not None and tags.is_object
                else dict.fromkeys(self.reading.list_texts(tags, "tags", "a tag"), True),
                assertions=tuple(self._read_criteria(listed, bound)),
                scoring=self.scoring,
                settings=settings,
                origin=self.reading.origin(node),
            )
        )

    def _add(self, case: Case) -> None:
        case = msgspec.structs.replace(case, id=make_unique(case.id, self._taken))
        self._taken.add(case.id)
        self.cases.append(case)

    def _read_criteria(self, nodes: Sequence[Located], entities: list[Entity]) -> Iterator[Assertion]:
        for node in nodes:
            if self.reading.require_object(node, "a criterion") is not None:
                yield self._read_criterion(node, entities)

    def _read_criterion(self, node: Located, entities: list[Entity]) -> Assertion:
        members = list_stated(node)
        label = self.reading.require_text(members.get("label"), "label") or self.reading.require_text(members.get("name"), "name")
        missing = members.get("when_missing")
        when_missing: Json = None if missing is None else missing.value
        if missing is not None and when_missing not in ("fail", "error", "skip"):
            self.reading.error(missing, f"when_missing: expected fail, error or skip, found {show(missing.plain())}")
            when_missing = "fail"
        try:
            refuse_repeated(node)
            entity = self._find_entity(members.get("input_entity_id"), entities)
            translated = self._read_assertion(node, members, entity)
        except Malformed as problem:
            report(self.reading, problem)
            near = f"; nearest: {', '.join(problem.near)}" if problem.near else ""
            translated = Translated("unsupported", Unsupported(reason=problem.message + near), {})
        return Assertion(
            check=translated.check,
            spec=translated.spec,
            id=self.reading.require_text(members.get("id"), "id"),
            label=label or translated.check.replace("_", " "),
            weight=self.reading.require_weight(members.get("weight")) or 1.0,
            axis=self.reading.require_text(members.get("axis"), "axis"),
            required=bool(self.reading.require_boolean(members.get("required"), "required")),
            advisory=bool(self.reading.require_boolean(members.get("advisory"), "advisory")),
            when_missing=when_missing,
            origin=self.reading.origin(node),
        )

    def _find_entity(self, node: Located | None, entities: list[Entity]) -> Entity | None:
        """Return the entity of a criterion: the one it names, else the only one of its task."""
        if node is None:
            return entities[0] if len(entities) == 1 else None
        for entity in entities:
            if entity.get("id") == node.value:
                return entity
        known = [str(entity.get("id")) for entity in entities]
        if not entities:
            # Criteria exported alone: a placeholder will show whether the entity is needed.
            self.reading.warn(node, f"the entity {show(node.value)} is not in this document", code="unknown_entity")
            return None
        raise Malformed(f"input_entity_id: the task has no entity {show(node.value)}", node, nearest(str(node.value), known))

    def _read_assertion(self, node: Located, members: dict[str, Located], entity: Entity | None) -> Translated:
        stated = members.get("assertion", members.get("assert"))
        if "assertion" not in members and stated is not None and isinstance(stated.value, str) and find_kind(stated.value) is not None:
            # The assertion itself, mixed with the keys of a criterion.
            own = {key: value for key, value in node.members() if to_snake_case(key) not in _CRITERION or to_snake_case(key) == "assert"}
            stated = replace_value(node, own)
        else:
            warn_unknown(self.reading, node, _CRITERION, "a criterion")
        if stated is None:
            raise Malformed("a criterion needs an assertion", node)
        if isinstance(stated.value, str):
            text = stated.value.strip()
            if not text:
                raise Malformed("the assertion is empty", stated)
            if not text.startswith("{"):
                return self._verify(Translated("judged", Judged(criteria=text, subject="state"), {}), stated)
            stated = decode_text(text, stated)
        if not stated.is_object:
            raise Malformed(f"assertion: expected an object, found {stated.kind}", stated)
        kind = stated.get("assert")
        if kind is None or not isinstance(kind.value, str):
            raise Malformed("an assertion needs 'assert', its kind", stated if kind is None else kind)
        kind_name = find_kind(kind.value)
        if kind_name is None:
            raise Malformed(f"unknown assertion {show(kind.value)}", kind, nearest(kind.value, KINDS) or tuple(KINDS))
        return self._verify(translate(stated, kind_name, entity), stated)

    def _verify(self, translated: Translated, node: Located) -> Translated:
        try:
            default_registry().prepare(translated.check, translated.spec)
        except SpecError as error:
            at = translated.find_place(error.field, node)
            if error.field is not None and error.field.endswith(".fhirpath"):
                self.reading.report_spec_error(node, error, translated.fields)
            else:
                raise Malformed(error.message, at, error.nearest) from None
        return translated


def _find_criteria(members: dict[str, Located]) -> list[Located]:
    return [entry for key in ("criteria", "evals") if key in members for entry in members[key].items()]
