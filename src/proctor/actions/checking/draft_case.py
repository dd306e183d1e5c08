"""Makes a case from one exchange and appends it to a suite, without changing the existing text.

Claims are drafted from what was seen: the tools with their arguments, their order, that none was called, that something was answered.
Each is decided on the evidence it was drafted from, and left out if it does not hold (an argument may look like a matcher). An agent may
act differently next time: a comment in the draft warns of that.

The new case is appended as text, then the file is read again: the earlier cases must be unchanged, and the new one must be the last. If
that fails (the list is written in one line, or something follows it), nothing is written, and the user gets the text to paste.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor.actions.checking.check_stream import prepare_once
from proctor.checks.registry import default_registry
from proctor.errors import InputError
from proctor.evidence.unknowns.account import find_part_states
from proctor.formats.native.drafting import make_slug, make_unique
from proctor.formats.native.editing import append_blocks, write_case_lines
from proctor.formats.native.text import build_native_document
from proctor.formats.suites import read_suite
from proctor.formats.text.yaml_text import to_yaml
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import escape_unseen, shorten
from proctor.sources.texts import read_suite_text

REMARK = "# Drafted from one answer: review it. Keep what the agent must do, drop what it happened to do."
_MOST_CALLS = 20
"""Calls that are claimed one by one."""
_MOST_ARGUMENT_CHARACTERS = 2_000


class SavedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case that was added to a suite."""

    path: Path
    id: str
    text: str
    created: bool


def save_case(path: Path, message: str, evidence: Evidence, *, top: str = "") -> SavedCase:
    """Add a drafted case to a native suite, or create one that starts with `top`. Raises `InputError` before anything is written."""
    existing = read_existing_suite(path)
    before, suite = existing or (top + write_head(_name_suite(path)), None)
    id = make_unique(make_slug(message), {case.id for case in suite.cases} if suite is not None else set[str]())
    lines = _write_case(draft_case(id, message, evidence), evidence)
    after = append_blocks(before, suite, [lines])
    _check_added(path, suite, after, id, "\n".join(lines))
    replace_file(path, after)
    return SavedCase(path=path, id=id, text=after[len(before) :], created=existing is None)


def write_draft(message: str, evidence: Evidence) -> str:
    """Return a suite with one drafted case as text."""
    id = make_slug(message)
    return append_blocks(write_head(id), None, [_write_case(draft_case(id, message, evidence), evidence)])


def read_existing_suite(path: Path) -> tuple[str, Suite] | None:
    """Return the text of the suite to extend, and the suite; None if there is none yet. Raises `InputError`."""
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder; name a suite file, such as {str(path / 'suite.yaml')!r}")
    if not path.exists():
        return None
    text = read_suite_text(path)
    suite = read_suite(text, file=str(path), name=path.stem)
    if suite.dialect != "native":
        fix = "name another file, or convert it with `proctor convert`"
        raise InputError(f"{str(path)!r} is a suite of {suite.dialect}; cases are added to native ones: {fix}")
    return text, suite


def write_head(name: str) -> str:
    """Return the first lines of a native suite; cases follow."""
    return f"proctor: 1\nname: {to_yaml(name).strip()}\n\ncases:\n"


def draft_case(id: str, message: str, evidence: Evidence) -> dict[str, Json]:
    """Return a case that this evidence passes, in the native shape."""
    claims = [claim for claim in _draft_claims(evidence) if _holds(claim, message, evidence)]
    return {"id": id, "input": message, "expect": claims or ["response_not_empty"]}


def _draft_claims(evidence: Evidence) -> list[Json]:
    states = find_part_states(evidence)
    calls = _list_calls(evidence)
    claims: list[Json] = []
    if states["tool_calls"].status == "none":
        claims.append("no_tools_called")
    for call in calls[:_MOST_CALLS]:
        claim: Json = {"tool_called": _write_call(call)}
        if claim not in claims:
            claims.append(claim)
    if len(calls) > 1:
        claims.append({"tools_in_order": [call.name for call in calls[:_MOST_CALLS]]})
    if calls and states["tool_results"].status == "recorded":
        claims.append("no_tool_errors")
    if states["answer"].status == "recorded":
        claims.append("response_not_empty")
    return claims


def _list_calls(evidence: Evidence) -> Sequence[ToolCall]:
    if evidence.tool_calls is not None:
        return evidence.tool_calls
    return [call for node in evidence.nodes or () for call in node.tool_calls]


def _write_call(call: ToolCall) -> Json:
    arguments = call.arguments
    if not isinstance(arguments, dict) or not arguments or not _is_short_json(arguments):
        return call.name
    return {"name": call.name, "arguments": arguments}


def _is_short_json(value: dict[str, Json]) -> bool:
    try:
        return len(msgspec.json.encode(value)) <= _MOST_ARGUMENT_CHARACTERS
    except UnicodeEncodeError:
        # Half of a surrogate pair would be read back as another character.
        return False


def _holds(claim: Json, message: str, evidence: Evidence) -> bool:
    document = {"proctor": 1, "cases": [{"id": "draft", "input": message, "expect": [claim]}]}
    try:
        suite = read_suite(to_yaml(document), name="draft")
    except InputError:
        return False
    return prepare_once(suite).cases[0].decide(evidence).outcome == "pass"


def _write_case(document: dict[str, Json], evidence: Evidence) -> list[str]:
    lines = [REMARK, *write_case_lines(document)]
    if find_part_states(evidence)["tool_calls"].is_unknown:
        lines.insert(1, "# Which tools were called is not recorded, so nothing is claimed of them.")
    if evidence.text:
        answer = escape_unseen(shorten(" ".join(evidence.text.split()), 90))
        lines += [f"    # it answered: {answer}", "    # - response_contains: what the answer must say"]
    return lines


def _check_added(path: Path, suite: Suite | None, text: str, id: str, case: str) -> None:
    """Reject a text that is not the old suite followed by the new case."""
    after: Suite | None = None
    with suppress(InputError):
        after = read_suite(text, file=str(path), name=path.stem)
    before = [] if suite is None else build_native_document(suite, default_registry())["cases"]
    cases = [] if after is None else build_native_document(after, default_registry())["cases"]
    if len(cases) != len(before) + 1 or cases[: len(before)] != before or cases[-1]["id"] != id:
        raise InputError(
            f"a case cannot be appended to {str(path)!r}: its list of cases is not the last thing in it, or not written line by line.\n"
            f"  Nothing was written; place this by hand, or save elsewhere (--save another.yaml):\n\n{case}"
        )


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, and keep its permissions."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The text already has the line ends of the file, which must not change.
        partial.write_text(text, encoding="utf-8", newline="")
        if path.exists():
            partial.chmod(path.stat().st_mode)
        # The target of a link is replaced, not the link.
        partial.replace(path.resolve())
    except OSError as error:
        # Fails again in a folder that is read-only.
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _name_suite(path: Path) -> str:
    stem = path.stem.removesuffix(".proctor")
    folder = path.resolve().parent.name
    return f"Cases of {folder}" if stem == "suite" and folder else stem
