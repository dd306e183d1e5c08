"""Describes every check, matcher, target and so on in one form: a name, a sentence, fields, an example.

The `describe` command and the reference pages are both written from here, so they always match the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

from proctor.actions.help.description import Description, Field, struct_fields
from proctor.checks.registry import Registry, default_registry
from proctor.errors import InputError
from proctor.evidence.recognise import FORMATS
from proctor.expressions.functions import FUNCTIONS
from proctor.formats.native.cases import ASSERTION_KEYS
from proctor.matchers.compile import MATCHERS
from proctor.model.show import nearest, show

DIALECT_SUMMARIES = {
    "native": "Our own format: `proctor: 1` at the top; the superset of the four dialects.",
    "mcplab": "MCPLab evaluation configs, test-case files and workspace folders (YAML).",
    "mibo": "Mibo test cases: one, a list, or `{test_cases: [...]}`; flat or record form (JSON).",
    "verial": "Verial tasks with criteria, benchmarks with tasks, or a list of criteria (JSON).",
    "mcpjam": "MCPJam suite files, or cases with `expectedToolCalls`, `matchOptions` and predicates (YAML or JSON).",
}


def checks(registry: Registry | None = None) -> Iterable[Description]:
    """Every check: built in, from a plugin, or from the files that the workspace file names."""
    for entry in registry or default_registry():
        notes = [f"`{entry.name}: value` is short for `{entry.name}: {{{entry.shorthand}: value}}`."] if entry.shorthand else []
        if entry.judged:
            notes.append("May need a judge.")
        if entry.owner.endswith(".py"):
            notes.append(f"From {entry.owner}.")
        elif not entry.owner.startswith("proctor."):
            notes.append(f"From the plugin `{entry.owner}`.")
        yield Description(
            kind="checks",
            name=entry.name,
            summary=entry.summary,
            fields=struct_fields(entry.spec),
            example=entry.example,
            notes=tuple(notes),
        )


def matchers() -> Iterable[Description]:
    """Every matcher."""
    for entry in sorted(MATCHERS.values(), key=lambda m: m.name):
        fields = tuple(Field(name=name, about=about) for name, about in entry.keys.items())
        example = f"{show(entry.short, 200)}\n{show(entry.example, 200)}"
        yield Description(kind="matchers", name=entry.name, summary=entry.summary, fields=fields, example=example)


def functions() -> Iterable[Description]:
    """Every function of the expression language."""
    for entry in sorted(FUNCTIONS.values(), key=lambda f: f.name):
        yield Description(kind="functions", name=entry.name, summary=entry.summary, example=entry.example, notes=(f"`{entry.signature}`",))


def formats() -> Iterable[Description]:
    """Every suite dialect."""
    for name, summary in DIALECT_SUMMARIES.items():
        yield Description(kind="formats", name=name, summary=summary, notes=(f"`--dialect {name}`",))


def evidence() -> Iterable[Description]:
    """Every shape of evidence."""
    for entry in FORMATS.values():
        yield Description(kind="evidence", name=entry.name, summary=entry.summary, notes=(f"`--evidence-format {entry.name}`",))


def _describe_live(kind: Literal["targets", "models", "judge"]) -> Iterable[Description]:
    from proctor.actions.help import describe_live  # imports packages that only runs need

    yield from {"targets": describe_live.targets, "models": describe_live.models, "judge": describe_live.judge}[kind]()


KINDS: dict[str, tuple[str, Callable[[], Iterable[Description]]]] = {
    "checks": ("the claims a suite can make", checks),
    "matchers": ("how an expected value is compared", matchers),
    "functions": ("what an expression can compute", functions),
    "formats": ("the suite dialects that can be read", formats),
    "evidence": ("the shapes of recorded runs that can be read", evidence),
    "targets": ("the agents that can be driven", partial(_describe_live, "targets")),
    "models": ("the models that an agent loop or a judge can talk to", partial(_describe_live, "models")),
    "judge": ("the settings of a judge, and its prompts", partial(_describe_live, "judge")),
}

ASSERTION_KEYS_NOTE = "An assertion may also have: " + ", ".join(f"`{key}`" for key in ASSERTION_KEYS) + "."


def describe(kind: str, name: str | None = None, *, registry: Registry | None = None) -> list[Description]:
    """Return all of a kind, or the one called `name`; raises `InputError` with the nearest name. `registry` has further checks."""
    known = KINDS.get(kind) or KINDS.get(f"{kind}s")
    if known is None:
        raise _make_unknown_error("kind", kind, KINDS)
    descriptions = list(checks(registry) if known[1] is checks else known[1]())
    if name is None:
        return descriptions
    for entry in descriptions:
        if entry.name.lower() == name.lower():
            return [entry]
    raise _make_unknown_error(kind.removesuffix("s"), name, [entry.name for entry in descriptions])


def _make_unknown_error(what: str, word: str, known: Iterable[str]) -> InputError:
    names = list(known)
    near = nearest(word, names)
    hint = f"; nearest: {', '.join(near)}" if near else f"; there are {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
    return InputError(f"unknown {what} {word!r}{hint}")
