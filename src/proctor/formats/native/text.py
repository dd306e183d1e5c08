"""Writes a suite of any dialect in our own format.

Every dialect is read into the same specs, so this only writes them out; the written file gives the same verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from proctor.checks.registry import Registry, default_registry
from proctor.formats.native.declared_evidence import write_declared
from proctor.formats.native.drafting import make_default_label
from proctor.formats.native.suite import SETTINGS_KEYS, VERSION
from proctor.formats.native.systems import write_systems
from proctor.formats.native.user import write_user
from proctor.formats.text.yaml_text import to_yaml
from proctor.model.case import Assertion, Case, Scoring, Suite
from proctor.model.evidence import Json


def write_native(suite: Suite, registry: Registry | None = None) -> str:
    """Return the suite as YAML text."""
    return to_yaml(build_native_document(suite, registry or default_registry()))


def write_native_head(suite: Suite, cases: Json, registry: Registry | None = None) -> str:
    """Return the suite as YAML text with `cases` instead of its own cases."""
    document = build_native_document(msgspec.structs.replace(suite, cases=()), registry or default_registry())
    return to_yaml({**document, "cases": cases})


def write_case_lines(suite: Suite, registry: Registry | None = None) -> Iterator[bytes]:
    """Yield every case as one line of JSON, to be read with the head that `write_native_head` writes."""
    known = registry or default_registry()
    for case in suite.cases:
        yield msgspec.json.encode(_write_case(case, Scoring(), known)) + b"\n"


def build_native_document(suite: Suite, registry: Registry) -> dict[str, Json]:
    """Return the suite as plain data in the native shape."""
    shared = suite.cases[0].scoring if suite.cases and all(c.scoring == suite.cases[0].scoring for c in suite.cases) else Scoring()
    others = {key: value for key, value in suite.settings.items() if key not in SETTINGS_KEYS}
    return {
        "proctor": VERSION,
        "name": suite.name,
        **({"description": suite.description} if suite.description else {}),
        **({"scoring": _write_scoring(shared)} if shared != Scoring() else {}),
        **({"evidence": write_declared(suite.evidence)} if suite.evidence is not None else {}),
        **{key: value for key, value in suite.settings.items() if key in SETTINGS_KEYS},
        **({"settings": others} if others else {}),
        "cases": [_write_case(case, shared, registry) for case in suite.cases],
    }


def _write_case(case: Case, shared: Scoring, registry: Registry) -> dict[str, Json]:
    def write_claims(chosen: Callable[[Assertion], bool]) -> list[Json] | None:
        return [_write_assertion(each, registry) for each in case.assertions if chosen(each)] or None

    turns = [
        _drop_missing({"input": turn.input, "expect": write_claims(lambda each, index=index: each.turn == index)})
        for index, turn in enumerate(case.turns)
    ]
    return _drop_missing(
        {
            "id": case.id,
            "name": case.name or None,
            "description": case.description or None,
            "input": case.input,
            "user": write_user(case.user, lambda assertion: _write_assertion(assertion, registry)) if case.user is not None else None,
            # Only null means no body: `{}`, `false` and an empty text are sent.
            "body": case.custom_body,
            "context": case.context or None,
            "timezone": case.timezone or None,
            "tags": case.tags or None,
            "systems": write_systems(case.systems) or None,
            "scoring": _write_scoring(case.scoring) if case.scoring != shared else None,
            "skip": {"code": case.skip.code, "reason": case.skip.reason} if case.skip is not None else None,
            "repeat": case.repetitions,
            "pass_rate": case.pass_threshold,
            "turns": turns or None,
            "expect": write_claims(lambda each: each.turn is None or each.turn >= len(case.turns)),
            "extract": {capture.name: capture.pattern for capture in case.captures} or None,
            "settings": case.settings or None,
        }
    )


def _drop_missing(document: dict[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in document.items() if value is not None}


def _write_scoring(scoring: Scoring) -> Json:
    default = Scoring()
    changed = {name: getattr(scoring, name) for name in scoring.__struct_fields__ if getattr(scoring, name) != getattr(default, name)}
    return changed["mode"] if list(changed) == ["mode"] else changed


def _write_assertion(assertion: Assertion, registry: Registry) -> Json:
    entry = registry.get_for(assertion.check, assertion.spec)
    fields: dict[str, Json] = msgspec.to_builtins(assertion.spec)
    value: Json = fields
    # An object under the name of a check always has its fields, so a main value that is an object is written by name.
    plain = entry.takes_whole or not isinstance(fields.get(entry.shorthand or ""), dict)
    if entry.shorthand is not None and list(fields) == [entry.shorthand] and plain:
        value = fields[entry.shorthand]
    weight = int(assertion.weight) if assertion.weight.is_integer() else assertion.weight
    dependencies = assertion.depends_on
    common = _drop_missing(
        {
            "id": assertion.id,
            "label": assertion.label if assertion.label and assertion.label != make_default_label(entry, assertion.spec) else None,
            "axis": assertion.axis,
            "required": assertion.required or None,
            "advisory": assertion.advisory or None,
            "when_missing": assertion.when_missing,
            "weight": weight if weight != 1 else None,
            "depends_on": (dependencies[0] if len(dependencies) == 1 else list(dependencies)) if dependencies else None,
            "because": assertion.because or None,
        }
    )
    return assertion.check if value == {} and not common else {assertion.check: value, **common}
