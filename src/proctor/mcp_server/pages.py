"""Resources: reference pages for a model that writes suites, and results as pages.

proctor://docs/{path}               the documentation, if it is installed
proctor://describe/{kind}           every check, matcher, ... with fields and examples, from the code itself
proctor://schema/native.json        the JSON Schema of the native format
proctor://runs/{id}                 a run as a page
proctor://task-runs/{id}            a verified task run as a page
"""

from __future__ import annotations

import asyncio
import re
from urllib.parse import unquote

import msgspec

from proctor.actions.help.describe import KINDS, describe
from proctor.actions.help.description import Description
from proctor.checks.registry import default_registry
from proctor.formats.native.schema import build_native_schema
from proctor.mcp_server.protocol import JSON, MARKDOWN, SCHEME, Page, load_docs
from proctor.mcp_server.tool import Desk
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.report.words.neutral import to_one_line
from proctor.service.refusals import Refusal
from proctor.service.verification.runs.task_runs import get_task_run

_URI = re.compile(r"proctor://([a-z-]+)/(.{1,400})")


TEMPLATES = (
    Page(uri=SCHEME + "runs/{id}", title="A run", about="A run as a page: outcome, score, and every assertion that did not pass."),
    Page(uri=SCHEME + "task-runs/{id}", title="A task run", about="A verified task run as a page: verdict, score, axes, every criterion."),
    Page(uri=SCHEME + "describe/{kind}", title="What exists", about=f"All of a kind, with fields and examples: {', '.join(KINDS)}."),
)


FIXED = (
    *(
        Page(uri=f"{SCHEME}describe/{kind}", title=f"All {kind}", about=f"With fields and examples: {about}.")
        for kind, (about, _) in KINDS.items()
    ),
    Page(uri=f"{SCHEME}schema/native.json", title="JSON Schema of the native format", kind=JSON),
)
"""Every page with a fixed address, except the documentation."""


async def read_page(desk: Desk, uri: str) -> tuple[str, str]:
    """Return the kind and the text of a page that is not of the documentation. Raises `Refusal`."""
    match = _URI.fullmatch(uri)
    place, rest = (match[1], unquote(match[2])) if match is not None else ("", "")
    match place:
        case "docs":
            close = nearest(rest, load_docs())
            raise Refusal("NOT_FOUND", f"there is no page {rest!r}" + (f"; nearest: {', '.join(close)}" if close else ""))
        case "describe":
            kind, _, name = rest.partition("/")
            entries = await asyncio.to_thread(describe, kind, name or None)
            return MARKDOWN, "\n".join(_describe_entry(entry) for entry in entries)
        case "schema" if rest == "native.json":
            return JSON, msgspec.json.encode(build_native_schema(default_registry())).decode()
        case "runs":
            return MARKDOWN, await desk.runs.page(desk.caller, rest)
        case "task-runs":
            return MARKDOWN, _write_task_run(await get_task_run(desk.hub, desk.caller, rest))
        case _:
            raise Refusal(
                "NOT_FOUND", f"there is nothing at {uri[:200]!r}; addresses begin with {SCHEME}docs/, describe/, runs/, task-runs/"
            )


def _describe_entry(entry: Description) -> str:
    lines = [f"## {entry.name}", "", entry.summary]
    for field in entry.fields:
        mark = ", required" if field.required else f", default {field.default}" if field.default is not None else ""
        lines.append(f"- `{field.name}`{f' ({field.kind})' if field.kind else ''}{mark}: {field.about}")
    if entry.example:
        lines += ["", "```yaml", entry.example, "```"]
    return "\n".join([*lines, *(f"\n{note}" for note in entry.notes)]) + "\n"


def _write_task_run(run: dict[str, Json]) -> str:
    lines = [
        f"# {to_one_line(str(run['name']), 200)}",
        "",
        f"Task run `{run['id']}` of benchmark run `{run['benchmark_run_id']}`: {run['status']}.",
        "",
        f"- verdict: {run['verdict'] or 'none yet'}",
        f"- score: {run['score'] if run['score'] is not None else 'none yet'}",
        *(f"- axis {to_one_line(name, 100)}: {axis['score']} (weight {axis['weight']})" for name, axis in run["axes"].items()),
    ]
    labels = {criterion["id"]: criterion.get("label") for criterion in (run.get("snapshot") or {}).get("criteria") or ()}
    for criterion in run["criterion_runs"]:
        label = labels.get(criterion["criterion_id"]) or criterion["criterion_id"]
        lines += ["", f"## {'passed' if criterion['passed'] else 'FAILED'}: {to_one_line(str(label), 200)}", ""]
        lines += [f"Score {criterion['score']}. {to_one_line(criterion['details'] or '', 1000)}"]
        evidence = criterion["evidence"] or {}
        for result in [*evidence.get("field_results", ()), *evidence.get("assertion_results", ())]:
            difference = f"expected {show(result.get('expected'), 200)}, found {show(result.get('actual'), 200)}"
            lines.append(f"- {'ok' if result.get('passed') else 'WRONG'} `{to_one_line(str(result.get('path')), 200)}`: {difference}")
    return "\n".join(lines) + "\n"
