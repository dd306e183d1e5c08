"""The files of proposals next to a suite: `suite.pending.yaml` has the proposed cases, `suite.rejected.jsonl` what was rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from proctor.actions.checking.draft_case import replace_file
from proctor.cassettes.entries import REDACTED
from proctor.checks.registry import default_registry
from proctor.errors import InputError
from proctor.formats.native.editing import write_case_lines
from proctor.formats.native.text import build_native_document
from proctor.formats.suites import read_suite
from proctor.formats.text.yaml_text import to_yaml
from proctor.generation.proposals import Rejection
from proctor.generation.volatile import RULES
from proctor.model.evidence import Json
from proctor.model.show import escape_unseen
from proctor.model.typed import decode_json
from proctor.sources.texts import read_suite_text

PENDING = ".pending"


def find_pending_path(suite: Path) -> Path:
    """Return the file of proposals for a suite."""
    return suite.with_name(f"{suite.stem}{PENDING}.yaml")


def find_suite_path(pending: Path) -> Path:
    """Return the suite that a file of proposals belongs to: the existing file with its name, else a YAML file."""
    stem = pending.stem.removesuffix(PENDING)
    choices = [pending.with_name(stem + suffix) for suffix in (".yaml", ".yml")]
    return next((path for path in choices if path.exists()), choices[0])


def find_rejected_path(suite: Path) -> Path:
    """Return the file of rejections for a suite."""
    return suite.with_name(f"{suite.stem}.rejected.jsonl")


def write_pending(path: Path, name: str, cases: Sequence[dict[str, Json]], notes: Sequence[str]) -> None:
    """Write proposed cases, with the rules for volatile values and notes as comments."""
    rules = [f"#   {rule}: {about}" for rule, (_, about) in RULES.items()]
    head = [
        "# Proposed cases. Review them with `proctor accept --review`; nothing here is checked until it is accepted.",
        f"# Secrets are replaced by {REDACTED}, volatile values by patterns:",
        *rules,
        *(f"# {escape_unseen(note)}" for note in notes),
        "proctor: 1",
        f"name: {to_yaml(name).strip()}",
        "",
        "cases:",
    ]
    blocks = ["\n".join(f"  {line}" for line in write_case_lines(case)) for case in cases]
    if not blocks:
        head[-1] = "cases: []"
    replace_file(path, "\n".join(head) + "\n" + "\n\n".join(blocks) + ("\n" if blocks else ""))


def read_pending(path: Path) -> tuple[list[dict[str, Json]], list[str], str]:
    """Return the proposed cases in the native shape, the notes, and the name. Raises `InputError`."""
    text = read_suite_text(path)
    suite = read_suite(text, file=str(path), name=path.stem)
    if suite.dialect != "native":
        raise InputError(f"{str(path)!r} is not a file of proposals but a suite of {suite.dialect}")
    comments = [line[2:] for line in text.splitlines() if line.startswith("# ")]
    # `write_pending` puts two lines and the rules for volatile values before the notes.
    notes = comments[2 + len(RULES) :]
    return build_native_document(suite, default_registry())["cases"], notes, suite.name


def read_rejections(suite: Path) -> list[Rejection]:
    """Return what was rejected for a suite."""
    path = find_rejected_path(suite)
    if not path.exists():
        return []
    try:
        return [decode_json(line, Rejection) for line in path.read_bytes().splitlines() if line.strip()]
    except msgspec.MsgspecError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from error


def add_rejections(suite: Path, rejected: Iterable[Rejection]) -> None:
    """Remember what was rejected."""
    known = read_rejections(suite)
    merged = {each.key: each for each in [*known, *rejected]}
    replace_file(find_rejected_path(suite), "".join(msgspec.json.encode(each).decode() + "\n" for each in merged.values()))
