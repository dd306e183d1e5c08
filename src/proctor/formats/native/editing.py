"""Changes the text of a native suite: appends cases, and adds and removes claims of a case. All other lines stay as they are.

Only lists that are written line by line are changed. The caller reads the result and compares it before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from proctor.errors import InputError
from proctor.formats.text.yaml_text import to_yaml
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json

_ITEM = re.compile(r"( *)- ")


def write_case_lines(document: dict[str, Json]) -> list[str]:
    """Return a case as an item of a list, each claim on lines of its own."""
    head = to_yaml({key: value for key, value in document.items() if key not in ("expect", "settings")}).rstrip("\n").split("\n")
    claims = [f"  {line}" for claim in document.get("expect", ()) for line in write_claim_lines(claim)]
    settings = to_yaml({"settings": document["settings"]}).rstrip("\n").split("\n") if document.get("settings") else []
    first, *others = [*head, *(["expect:"] if claims else []), *claims, *settings]
    return [f"- {first}", *(f"  {line}" for line in others)]


def write_claim_lines(claim: Json) -> list[str]:
    """Return a claim as an item of a list."""
    return to_yaml([claim]).rstrip("\n").split("\n")


def append_cases(text: str, suite: Suite | None, documents: Sequence[dict[str, Json]]) -> str:
    """Return the text of a suite with further cases at the end."""
    return append_blocks(text, suite, [write_case_lines(document) for document in documents])


def append_blocks(text: str, suite: Suite | None, blocks: Iterable[Sequence[str]]) -> str:
    """Return the text of a suite with further cases at the end, each given by its lines."""
    end = find_line_end(text)
    line = suite.cases[-1].origin.line if suite is not None and suite.cases else None
    item = _ITEM.match(text.splitlines()[line - 1]) if line else None
    indent = item[1] if item is not None else "  "
    written = ["".join(f"{indent}{each}{end}" if each else end for each in block) for block in blocks]
    start = text if not text or text.endswith(("\n", "\r")) else text + end
    return start + (end if line else "") + end.join(written)


def edit_claims(text: str, case: Case, remove: Collection[int], add: Sequence[Json]) -> str:
    """Return the text of a suite in which a case lacks some claims, by position, and has others. Comments stay."""
    lines = text.splitlines(keepends=True)
    end = find_line_end(text)
    whole = [(at, each) for at, each in enumerate(case.assertions) if each.turn is None]
    blocks = {at: _find_block(lines, each.origin.line or 0, case) for at, each in whole}
    last = max((stop for _, stop in blocks.values()), default=None)
    if last is None:
        start, last = _find_block(lines, case.origin.line or 0, case)
        indent = _indent_of(lines[start]) + "  "
        head, indent = [f"{indent}expect:{end}"], indent + "  "
    else:
        head, indent = [], _indent_of(lines[next(iter(blocks.values()))[0]])
    added = [f"{indent}{line}{end}" for claim in add for line in write_claim_lines(claim)]
    if added and last and not lines[last - 1].endswith(("\n", "\r")):
        lines[last - 1] += end
    lines[last:last] = [*head, *added] if added else []
    for at in sorted(remove, key=lambda each: -blocks[each][0]):
        start, stop = blocks[at]
        del lines[start:stop]
    return "".join(lines)


def find_line_end(text: str) -> str:
    """Return the line end of a text."""
    return "\r\n" if "\r\n" in text else "\n"


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]


def _find_block(lines: Sequence[str], line: int, case: Case) -> tuple[int, int]:
    """Return the first line of an item of a list, and the one after its last; comments before the next item belong to that."""
    start = line - 1
    item = _ITEM.match(lines[start]) if 0 <= start < len(lines) else None
    if item is None:
        raise InputError(
            f"the claims of case {case.id!r} cannot be changed: write each on its own line under `expect`, beginning with `- `"
        )
    indent, stop = len(item[1]), start + 1
    for at in range(start + 1, len(lines)):
        content = lines[at].strip()
        if not content or content.startswith("#"):
            continue
        if len(_indent_of(lines[at])) <= indent:
            break
        stop = at + 1
    return start, stop
