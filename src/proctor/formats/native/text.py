"""Writes a suite of any dialect in our own format.

Every dialect is read into the same specs, so this only writes them out; the written file gives the same verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    document: dict[str, Json] = {"proctor": VERSION, "name": suite.name}
    if suite.description:
        document["description"] = suite.description
    if shared != Scoring():
        document["scoring"] = _write_scoring(shared)
    if suite.evidence is not None:
        document["evidence"] = write_declared(suite.evidence)
    known = {key: value for key, value in suite.settings.items() if key in SETTINGS_KEYS}
    document.update(known)
    others = {key: value for key, value in suite.settings.items() if key not in SETTINGS_KEYS}
    if others:
        document["settings"] = others
    document["cases"] = [_write_case(case, shared, registry) for case in suite.cases]
    return document


def _write_case(case: Case, shared: Scoring, registry: Registry) -> dict[str, Json]:
    out: dict[str, Json] = {"id": case.id}
    for key in ("name", "description"):
        if getattr(case, key):
            out[key] = getattr(case, key)
    if case.input is not None:
        out["input"] = case.input
    if case.user is not None:
        out["user"] = write_user(case.user, lambda assertion: _write_assertion(assertion, registry))
    # Only null means no body: `{}`, `false` and an empty text are sent.
    if case.custom_body is not None:
        out["body"] = case.custom_body
    for key, value in (("context", case.context), ("timezone", case.timezone), ("tags", case.tags)):
        if value:
            out[key] = value
    if case.systems:
        out["systems"] = write_systems(case.systems)
    if case.scoring != shared:
        out["scoring"] = _write_scoring(case.scoring)
    if case.skip is not None:
        out["skip"] = {"code": case.skip.code, "reason": case.skip.reason}
    if case.repetitions is not None:
        out["repeat"] = case.repetitions
    if case.pass_threshold is not None:
        out["pass_rate"] = case.pass_threshold
    if case.turns:
        out["turns"] = [_write_turn(case, index, registry) for index in range(len(case.turns))]
    whole = [_write_assertion(a, registry) for a in case.assertions if a.turn is None or a.turn >= len(case.turns)]
    if whole:
        out["expect"] = whole
    if case.captures:
        out["extract"] = {capture.name: capture.pattern for capture in case.captures}
    if case.settings:
        out["settings"] = case.settings
    return out


def _write_turn(case: Case, index: int, registry: Registry) -> dict[str, Json]:
    out: dict[str, Json] = {"input": case.turns[index].input}
    expect = [_write_assertion(a, registry) for a in case.assertions if a.turn == index]
    if expect:
        out["expect"] = expect
    return out


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
    common: dict[str, Json] = {}
    if assertion.id is not None:
        common["id"] = assertion.id
    if assertion.label and assertion.label != make_default_label(entry, assertion.spec):
        common["label"] = assertion.label
    for name, default in (("axis", None), ("required", False), ("advisory", False), ("when_missing", None)):
        if getattr(assertion, name) != default:
            common[name] = getattr(assertion, name)
    if assertion.weight != 1.0:
        common["weight"] = int(assertion.weight) if assertion.weight.is_integer() else assertion.weight
    if assertion.depends_on:
        common["depends_on"] = assertion.depends_on[0] if len(assertion.depends_on) == 1 else list(assertion.depends_on)
    if assertion.because:
        common["because"] = assertion.because
    if value == {} and not common:
        return assertion.check
    return {assertion.check: value, **common}
