"""An examination as a document for terminals, Markdown and HTML. JSON, JUnit XML and SARIF are those of its run.

The same finding in several revisions is shown once, with its revisions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from proctor.doctor.catalogue import CHECKS
from proctor.doctor.model import BROKEN, NO_TOKEN, Examination, Finding
from proctor.model.evidence import Json
from proctor.model.show import shorten
from proctor.report.document.model import (
    Block,
    Column,
    Document,
    Facts,
    Item,
    Items,
    Line,
    Listing,
    Mark,
    Output,
    Paragraph,
    Rest,
    Row,
    Section,
    Table,
    Text,
    Tone,
    Value,
)
from proctor.report.words.wording import count_noun

_MOST_ITEMS: Final[Mapping[Output, int]] = {"terminal": 8, "markdown": 40, "html": 500}
_MOST_ROWS: Final[Mapping[Output, int]] = {"terminal": 16, "markdown": 100, "html": 500}
_REASON: Final[Mapping[Output, int]] = {"terminal": 160, "markdown": 400, "html": 1_000}
_BY_ID: Final = {check.id: check for check in CHECKS}
_ORDER: Final = {check: number for number, check in enumerate(_BY_ID)}
_WITH_TOKEN: Final = "--token, --login, or --client-id and --client-secret"
_WORDS: Final[Mapping[str, str]] = {"pass": "passed", "fail": "failed", "error": "incomplete"}


class _Group(msgspec.Struct, frozen=True):
    """One finding, with the revisions it was made in."""

    finding: Finding
    revisions: tuple[str, ...]


def describe_verdict(result: Examination) -> tuple[Tone, str]:
    """Return the verdict of an examination, and its reason."""
    failures = result.list_failures()
    score = "" if result.score is None else f"; score {result.score} of 100"
    if result.failed:
        parts = [f"{count_noun(len({each.check for each in failures}), 'check')} failed"] if failures else []
        parts += [f"{count_noun(len(result.stale), 'expected failure')} did not occur"] if result.stale else []
        changed = sum(bool(_field(change, "fails")) for change in result.changes)
        parts += [f"{count_noun(changed, 'locked definition')} changed"] if changed else []
        return "fail", f"{', '.join(parts)}{score}"
    if result.incomplete:
        unable = {finding.check for finding in result.findings if finding.verdict == "could_not_run"}
        return "error", f"{count_noun(len(unable), 'check')} could not run{score}"
    return "pass", f"no violation found{score}"


def build_document(result: Examination, output: Output) -> Document:
    """Return the report for one kind of output."""
    tone, reason = describe_verdict(result)
    blocks: list[Block] = [_list_facts(result)]
    for verdict in BROKEN:
        groups = _group(result, verdict)
        if groups and verdict == "fail":
            items = tuple(_make_item(each, result, output) for each in groups)
            most = _MOST_ITEMS[output]
            rest = Rest("and {rows} more, which the JSON report lists", max(0, len(items) - most))
            blocks.append(Section((Mark("fail"), f" Failed ({len(groups)})"), (Items(items[:most], rest, spaced=output != "terminal"),)))
        elif groups:
            blocks.append(Section((f"Advice ({len(groups)})",), (_make_table(groups, output),)))
    blocks += _list_obstacles(result, output)
    if result.changes:
        lines = tuple(
            (Text(f"{_field(each, 'kind')}: ", "strong"), f"{_field(each, 'item')} {_field(each, 'what')}") for each in result.changes
        )
        most = _MOST_ROWS[output]
        rest = Rest("and {rows} more", max(0, len(lines) - most))
        blocks.append(Section(("Changes since the lock file",), (Listing(lines[:most], rest=rest),)))
    if result.stale:
        lines = tuple((entry, ": no such failure any more; remove the entry") for entry in result.stale)
        blocks.append(Section((Mark("fail"), " Expected failures that did not occur"), (Listing(lines),)))
    if result.metadata:
        # No table: in a terminal it would cut the addresses.
        lines = tuple((f"{each.status}  ", Text(each.url, "code", limit=300), Text(f"  {each.what}", "muted")) for each in result.metadata)
        blocks.append(Section(("Metadata addresses, in the order clients try them",), (Listing(lines),)))
    return Document(name=f"Doctor: {result.server or result.target}", verdict=(tone, _WORDS[tone]), headline=reason, blocks=tuple(blocks))


def _list_facts(result: Examination) -> Facts:
    scores = [
        f"{part.profile}: {'-' if part.score is None else part.score}{' (incomplete)' if part.incomplete else ''}"
        for part in result.examined
    ]
    calls = "no tool was called" if not result.tool_calls else f"{result.tool_calls} declared calls"
    rows: list[tuple[str, Line]] = [("server", (Text(result.target, "code", limit=160),))]
    rows += [("name", (result.server,))] if result.server else []
    rows += [("scores", (", ".join(scores),)), ("traffic", (f"{result.messages:,} messages in {result.seconds:g} s; {calls}",))]
    rows += [("notes", ("; ".join(result.notes),))] if result.notes else []
    return Facts(tuple(rows))


def _group(result: Examination, verdict: str) -> list[_Group]:
    groups: dict[tuple[str, str], list[tuple[Finding, str]]] = {}
    for part in result.examined:
        for finding in part.findings:
            if finding.verdict == verdict:
                groups.setdefault((finding.check, finding.reason), []).append((finding, part.revision))
    return [_Group(entries[0][0], tuple(revision for _, revision in entries)) for entries in groups.values()]


def _make_item(group: _Group, result: Examination, output: Output) -> Item:
    finding, check = group.finding, _BY_ID[group.finding.check]
    expected = "  expected" if not any(each.check == finding.check for each in result.list_failures()) else ""
    title: Line = (Text(finding.check, "strong"), f"  {finding.level}, {', '.join(group.revisions)}{expected}")
    rows: list[tuple[str, Line]] = [("found", (Text(finding.reason, limit=_REASON[output]),)), ("expected", (check.claim,))]
    rows.append(("clause", (Text(check.find_page(group.revisions[-1]), "muted"),)))
    for message in finding.evidence if output != "terminal" else finding.evidence[-1:]:
        text = f"{message.http} {message.text}".strip()
        rows.append((f"{message.direction} #{message.number}", (Value(shorten(text, 200 if output == "terminal" else 2_000)),)))
    return Item(title, (Facts(tuple(rows)),), "fail")


def _make_table(groups: Sequence[_Group], output: Output) -> Table:
    most = _MOST_ROWS[output]
    ordered = sorted(groups, key=lambda each: (each.finding.level != "SHOULD", _ORDER[each.finding.check]))
    rows = tuple(
        Row(((Text(each.finding.check, "code"),), (each.finding.level,), (Text(_name_revision(each, groups), limit=_REASON[output]),)))
        for each in ordered[:most]
    )
    return Table((Column("check"), Column("level"), Column("found")), rows, Rest("and {rows} more", max(0, len(groups) - most)))


def _name_revision(group: _Group, groups: Sequence[_Group]) -> str:
    """Return the reason, with its revision if another one has another reason."""
    several = sum(each.finding.check == group.finding.check for each in groups) > 1
    return f"in {', '.join(group.revisions)}: {group.finding.reason}" if several else group.finding.reason


def _list_obstacles(result: Examination, output: Output) -> Iterator[Section]:
    groups = _group(result, "could_not_run")
    if not groups:
        return
    reasons: dict[str, list[str]] = {}
    for group in groups:
        reasons.setdefault(group.finding.reason, []).append(group.finding.check)
    lines: list[Line] = []
    for reason, checks in itertools.islice(reasons.items(), 10):
        shown = ", ".join(checks[:6]) + (f" and {len(checks) - 6} more" if len(checks) > 6 else "")
        lines.append((Text(reason, limit=300), Text(f" ({shown})", "muted", limit=300)))
    hint = f" With {_WITH_TOKEN}, the rest is examined." if NO_TOKEN in reasons and output == "terminal" else ""
    remark = Paragraph((f"The result is incomplete.{hint}",), muted=True)
    yield Section((Mark("error"), f" Could not run ({len(groups)})"), (Listing(tuple(lines)), remark))


def _field(change: Json, name: str) -> Any:
    return change.get(name) if isinstance(change, dict) else None
