"""The reference pages, from the same descriptions that `proctor describe` prints."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import textwrap
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import inspect as mi

from proctor.actions.help import describe
from proctor.actions.help.description import Description, Field, kind_words
from proctor.checks.registry import default_registry
from proctor.cli.main import COMMANDS, run, write_usage
from proctor.formats.native.schema import build_native_schema, read_field_docs
from proctor.formats.text.building import describe_struct_type
from proctor.model import evidence as model
from proctor.model.account import Account

NOTICE = "<!-- Generated from the code by `python -m docs.generate`. Do not edit: change the code and run `make docs`. -->"
_WIDTH = 100

FAMILIES = {
    "Which tools were called, and their errors": ("tool_calls",),
    "The order of tool calls": ("tool_order",),
    "What was passed to a tool": ("tool_arguments", "data_flow"),
    "Steps of a workflow": ("nodes",),
    "The text of the answer": ("text",),
    "The wording of the answer": ("similar_to", "language_is", "readable", "pii"),
    "JSON answers": ("json_field", "json_path", "json_schema", "json_similar"),
    "Status, time, tokens, cost, turns, models": ("limits", "model"),
    "Anything, in one line": ("that",),
    "End state of health systems": ("fhir", "segments", "portal", "files", "voice", "entries"),
    "What was done to simulated systems": ("effects",),
    "Widgets": ("widget",),
    "Judged in plain language": ("semantic",),
    "Rubrics": ("rubrics", "sql_equivalent"),
    "Context": ("context",),
    "Metrics": ("statements", "pairwise", "scale"),
    "Other": ("unsupported",),
}
"""Sections of the page of checks: the files of `proctor/checks/` in each."""


def checks_page() -> str:
    """Every check, by family, with its fields and an example."""
    lines = [
        NOTICE,
        "",
        "# Checks",
        "",
        "A check is a claim about one observed run. An assertion in a [native suite](native-format.md) names a check and gives it its",
        "fields. Some checks have a *shorthand*: one bare value for one field. `proctor describe check NAME` prints",
        "the same in a terminal. Fields that say *value or matcher* also take [matchers](matchers.md).",
        "",
        describe.ASSERTION_KEYS_NOTE + " [Native format](native-format.md) explains them.",
        "",
        "| section | checks |",
        "|---|---|",
    ]
    described = {entry.name: entry for entry in describe.checks()}
    specs = {entry.name: entry.spec for entry in default_registry()}
    owners = {entry.name: entry.owner for entry in default_registry()}
    families = list(_families())
    for title, names in families:
        lines.append(f"| [{title}](#{_anchor(title)}) | {', '.join(f'[`{name}`](#{name})' for name in names)} |")
    for title, names in families:
        lines += ["", f"## {title}", *_rules_of({owners[name] for name in names})]
        for name in names:
            lines += ["", *_check_section(described[name], specs[name])]
    return "\n".join(lines) + "\n"


def _rules_of(modules: Iterable[str]) -> Iterator[str]:
    """What files of checks say about the rules they decide by: all of their docstring but its first line."""
    for module in sorted(modules, key=_place_in_families):
        text = (importlib.import_module(module).__doc__ or "").strip()
        rules = text.partition("\n\n")[2]
        if rules:
            yield from ("", rules)


def _place_in_families(module: str) -> tuple[int, str]:
    listed = [name for modules in FAMILIES.values() for name in modules]
    name = module.rsplit(".", 1)[-1]
    return listed.index(name) if name in listed else len(listed), name


def _families() -> Iterator[tuple[str, list[str]]]:
    """Sections and the names in each, sorted; a file that is in no section is among the others."""
    names: dict[str, list[str]] = {}
    for entry in default_registry():
        if entry.owner.startswith("proctor.checks."):
            names.setdefault(entry.owner.rsplit(".", 1)[-1], []).append(entry.name)
    listed = {module for modules in FAMILIES.values() for module in modules}
    for title, modules in FAMILIES.items():
        if title == "Other":
            modules = (*modules, *sorted(set(names) - listed))
        found = sorted(name for module in modules for name in names.pop(module, []))
        if found:
            yield title, found


def _check_section(entry: Description, spec: type[msgspec.Struct]) -> list[str]:
    lines = [f"### {entry.name}", "", entry.summary]
    if entry.fields:
        lines += ["", *_field_table(entry.fields)]
    for name, inner in _inner_structs(spec):
        docs = read_field_docs(inner)
        lines += ["", f"Each of `{name}`: {(inner.__doc__ or '').strip()}", "", "| field | kind | meaning |", "|---|---|---|"]
        for field in describe_struct_type(inner).fields:
            need = "; required" if field.required else ""
            lines.append(f"| `{field.encode_name}` | {_cell(kind_words(field.type))}{need} | {_cell(docs.get(field.name, ''))} |")
    if entry.example:
        example = f"- {entry.example}".replace("\n", "\n  ")
        lines += ["", "```yaml", *example.splitlines(), "```"]
    for note in entry.notes:
        lines += ["", note]
    return lines


def _inner_structs(spec: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Fields that are lists of structs, with the struct."""
    for field in describe_struct_type(spec).fields:
        info = field.type
        if isinstance(info, mi.VarTupleType) and isinstance(info.item_type, mi.StructType):
            yield field.encode_name, info.item_type.cls


def _field_table(fields: Iterable[Field]) -> list[str]:
    lines = ["| field | kind | default | meaning |", "|---|---|---|---|"]
    for field in fields:
        default = "required" if field.required else f"`{field.default}`" if field.default is not None else "–"
        lines.append(f"| `{field.name}` | {_cell(field.kind)} | {_cell(default)} | {_cell(field.about)} |")
    return lines


def matchers_page() -> str:
    """Every matcher with its keys, in both spellings."""
    lines = [
        NOTICE,
        "",
        "# Matchers",
        "",
        "Wherever a check takes an expected value, the value may be a literal or a matcher, at any depth.",
        "",
        "* A **literal** matches an equal value, with two additions: the text `*` matches any present value (null included), and lists",
        "  are equal in any order, each element counted. Numbers, booleans and text never equal one another; `1` equals `1.0`.",
        "* A **matcher** is an object, in one of two spellings that mean the same. *Short*: every key begins with `$`, the matcher's",
        "  value after its name (`{$gte: 1}`); several in one object must all hold (`{$gte: 1, $lt: 5}`). *Words*: the key",
        "  `matcher` has the name and the other keys are next to it, as Mibo writes it.",
        "* `optional: true` (short: `$optional: true`) next to any matcher accepts a value that is missing or null.",
        "* Matchers that take a `value` to compare with mostly take an `expression` instead ([functions](functions.md)); the short",
        '  spelling is `{$date: {$expr: "TODAY()"}}`, and `{$expr: NAME}` alone is `exact` on an expression.',
        "* An object that only looks like a matcher is written `{$object: {...}}`.",
        "",
        "An unknown matcher or key is a problem of the suite, reported at its place with the nearest name.",
        "",
        "| matcher | accepts |",
        "|---|---|",
    ]
    found = list(describe.matchers())
    lines += [f"| [`{entry.name}`](#{entry.name}) | {_cell(entry.summary)} |" for entry in found]
    for entry in found:
        short, _, words = entry.example.partition("\n")
        lines += ["", f"## {entry.name}", "", entry.summary]
        if entry.fields:
            lines += ["", "| key | meaning |", "|---|---|", *(f"| `{field.name}` | {_cell(field.about)} |" for field in entry.fields)]
        lines += ["", "```yaml", "# short", f"argument: {short}", "# in words", f"argument: {words}", "```"]
    return "\n".join(lines) + "\n"


def functions_page() -> str:
    """Every function of the expression language."""
    lines = [
        NOTICE,
        "",
        "# Functions of expressions",
        "",
        'An expression follows `$expr` (or `expression` in the word spelling) of a [matcher](matchers.md): `{$expr: "TODAY()"}`.',
        "",
        "```",
        "expression = call | literal | variable ;",
        'call       = NAME "(" [ expression { "," expression } ] ")" ;',
        "variable   = NAME ;",
        "literal    = STRING | NUMBER | true | false | null ;",
        "```",
        "",
        "* A variable is a name out of `context` (of the case, else of the suite, else of the evidence), with its own type.",
        "* Text is written in single or double quotes with backslash escapes. Function names may be written in any case of letters.",
        "* There are no operators, and nothing here can run code: the expression is read into a tree, bounded in length, depth and",
        "  work, and walked.",
        "* The clock is the one of the run: `--now`, else `now` of the evidence, else the start of its trace, else the moment of the",
        "  check, which is then written into the result. The zone is `timezone` of the context, else of the suite, else UTC.",
        "* Units of dates: `second(s)`, `minute(s)`, `hour(s)`, `day(s)`, `week(s)`, `month(s)`, `year(s)`.",
        "* An unknown function or a wrong number of arguments is a problem of the suite with its column. An undefined",
        "  variable is an `error` of that assertion.",
        "",
        "| function | gives |",
        "|---|---|",
    ]
    found = list(describe.functions())
    lines += [f"| [`{entry.name}`](#{entry.name.lower()}) | {_cell(entry.summary)} |" for entry in found]
    for entry in found:
        lines += ["", f"## {entry.name}", "", *entry.notes, "", entry.summary, "", "```", entry.example, "```"]
    return "\n".join(lines) + "\n"


def evidence_fields() -> str:
    """The typed values of plain evidence and their fields."""
    lines: list[str] = []
    for title, struct in (
        ("Evidence", model.Evidence),
        ("ToolCall", model.ToolCall),
        ("Node", model.Node),
        ("EvidenceTurn", model.EvidenceTurn),
        ("Usage", model.Usage),
        ("Render", model.Render),
        ("State", model.State),
        ("Account", Account),
    ):
        docs = read_field_docs(struct)
        lines += ["", f"### {title}", "", (struct.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")]
        lines += ["", "| field | kind | meaning |", "|---|---|---|"]
        for field in describe_struct_type(struct).fields:
            lines.append(f"| `{field.encode_name}` | {_cell(kind_words(field.type))} | {_cell(docs.get(field.name, ''))} |")
    return "\n".join(lines)


def evidence_formats() -> str:
    """Every shape of evidence that is recognised."""
    lines = ["| name | what it is |", "|---|---|"]
    lines += [f"| `{entry.name}` | {_cell(entry.summary)} |" for entry in describe.evidence()]
    return "\n".join(lines)


def assertion_keys() -> str:
    """The keys allowed next to a check, from the published schema."""
    schema = build_native_schema(default_registry())
    properties = schema["$defs"]["assert_tool_called"]["properties"]
    lines = ["| key | meaning |", "|---|---|"]
    lines += [f"| `{key}` | {_cell(value['description'])} |" for key, value in properties.items() if key != "tool_called"]
    return "\n".join(lines)


def checks_in_short() -> str:
    """One line per check, linked."""
    lines = ["| check | claim |", "|---|---|"]
    lines += [f"| [`{entry.name}`](checks.md#{entry.name}) | {_cell(entry.summary)} |" for entry in describe.checks()]
    return "\n".join(lines)


def native_schema_text() -> str:
    """The JSON Schema of the native format."""
    return msgspec.json.format(msgspec.json.encode(build_native_schema(default_registry())), indent=2).decode() + "\n"


def command_line_page() -> str:
    """Every command's own help."""
    lines = [
        NOTICE,
        "",
        "# Command line",
        "",
        "Results go to standard output; progress, warnings and messages go to standard error.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | everything that was decided passed |",
        "| 1 | something failed, or could not be decided (`error`) |",
        "| 2 | interrupted, or a run that is incomplete |",
        "| 3 | internal error: a bug in proctor; `PROCTOR_DEBUG=1` shows where |",
        "| 4 | usage or input error: an unknown option, a suite with problems, a path that is not there |",
        "| 5 | nothing selected, or everything skipped |",
        "",
        "Environment: `NO_COLOR` (no colours), `PROCTOR_DISABLE_PLUGINS=1` (only the built-in checks), `PROCTOR_DEBUG=1` (a traceback",
        "for an internal error), `PROCTOR_SUITE_CACHE=0` (suites that `check` has read are not remembered in the user's cache folder).",
        "",
        "```",
        write_usage(),
        "```",
    ]
    for command in COMMANDS:
        lines += ["", f"## proctor {command.name}", "", "```", *_help_of(command.name), "```"]
    return "\n".join(lines) + "\n"


def _help_of(command: str) -> list[str]:
    """What `proctor COMMAND --help` prints, wrapped by us: the option parser wraps differently in every Python."""
    output = io.StringIO()
    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update(COLUMNS="2000", NO_COLOR="1")
    try:
        with contextlib.redirect_stdout(output):
            run([command, "--help"])
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    lines: list[str] = []
    for line in output.getvalue().rstrip().splitlines():
        hanging = 24 if line.startswith("  ") else 7
        wrapped = textwrap.wrap(line, _WIDTH, subsequent_indent=" " * hanging, break_on_hyphens=False, break_long_words=False)
        lines += wrapped or [""]
    return lines


def _anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")


def _cell(text: str) -> str:
    """Text inside a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
