"""Claims about files that the agent wrote.

With `fields` the content is read as JSON, and one file that satisfies all of them is enough; else the file with the most matching fields
is reported. Content that is not JSON fails with that reason.
"""

from __future__ import annotations

import re

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import (
    FieldResult,
    PreparedRows,
    RowField,
    decide_absence,
    decide_fields,
    declare_state_reads,
    fail_no_match,
    find_scope,
    prepare_rows,
    refuse_contradictions,
)
from proctor.errors import CheckFault
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Evidence, Json, StateFile
from proctor.model.show import count_rest, nearest, show
from proctor.model.verdict import Verdict, missing
from proctor.paths.dotted import find_dotted
from proctor.patterns.globs import LONGEST_PATH, compile_glob, matches_glob
from proctor.work import spend

_DIVIDERS = re.compile(r"[/\\]+")
_PER_FILE = 20
"""The number of steps for examining one file of any size."""
_PER_FIELD = 10
"""The number of steps for a verdict on one file, and for each of its fields."""


class FilePresent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file matching a pattern is there, optionally JSON with the given values."""

    path: str
    """A path or pattern: `*` stays inside a folder, `**` crosses folders."""
    fields: tuple[RowField, ...] = ()
    """The values to compare, the content read as JSON."""
    absent: bool = False
    """The claim is that no file matches."""


@check(
    "file_present",
    shorthand="path",
    example="file_present: {path: 'outbound/*.json', fields: [{path: claim.id, expected: C-17}]}",
    reads=declare_state_reads,
    product=True,
)
def file_present(spec: FilePresent) -> Decide:
    """A file matching a pattern is there, optionally JSON with the given values."""
    refuse_contradictions(spec.absent, spec.fields)
    glob = compile_glob(spec.path)
    fields = prepare_rows(spec.fields)
    what = f"file {show(spec.path)}"

    def decide(evidence: Evidence) -> Verdict:
        files = evidence.state.files if evidence.state is not None else None
        if files is None:
            return missing("files")
        matched = [(index, file) for index, file in enumerate(files) if _is_at(file, glob)]
        paths = [file.path for _, file in matched]
        if spec.absent:
            # A path that is too long for the pattern may be the forbidden one.
            too_long = next((index for index, file in enumerate(files) if len(file.path) > LONGEST_PATH), None)
            if not matched and too_long is not None:
                return missing(f"whether $.state.files[{too_long}], whose path has more than {LONGEST_PATH} characters, is the {what} is")
            listed = ", ".join(map(show, paths[:3])) + count_rest(len(paths), 3)
            return decide_absence(listed if matched else None, what, pointers=tuple(f"$.state.files[{index}]" for index, _ in matched[:10]))
        if not matched:
            near = nearest(spec.path, [file.path for file in files])
            listed = f"; nearest: {', '.join(map(show, near))}" if near else f" ({len(files)} files recorded)"
            return fail_no_match(f"no {what}{listed}", [(path, comparison.expected) for path, comparison in fields], matched_paths=[])
        scope = find_scope(evidence, (comparison for _, comparison in fields))
        best: Verdict | None = None
        for index, file in matched:
            results = _look(file, fields, scope) if fields else []
            verdict = decide_fields(show(file.path), results, pointers=(f"$.state.files[{index}]",), matched_paths=paths)
            if verdict.passed:
                return verdict
            if best is None or verdict.score > best.score:
                best = verdict
        assert best is not None, "called with at least one file"
        return best

    return decide


def _is_at(file: StateFile, glob: tuple[str, ...]) -> bool:
    """Return whether the path of a file fits a pattern, as written or as other systems write it, with two slashes or backslashes."""
    if matches_glob(glob, file.path, spend):
        return True
    plain = _DIVIDERS.sub("/", file.path) if "//" in file.path or "\\" in file.path else file.path
    return plain != file.path and matches_glob(glob, plain, spend)


def _look(file: StateFile, fields: PreparedRows, scope: Scope) -> list[FieldResult]:
    spend(_PER_FILE + _PER_FIELD * len(fields) + (len(file.content) // 64 if isinstance(file.content, str) else 0))
    document = _read(file)
    if isinstance(document, str):
        why = f"the content is not JSON ({document})"
        return [
            FieldResult(path, comparison.expected, None, False, why if position == 0 else f"{path} cannot be read")
            for position, (path, comparison) in enumerate(fields)
        ]
    return [comparison.compare(path, find_dotted(document[0], path), scope) for path, comparison in fields]


def _read(file: StateFile) -> tuple[Json] | str:
    """Return the content as JSON in a one-element tuple, or the problem as text."""
    if file.content is None:
        return "there is no content"
    try:
        # In a tuple, since the document may itself be a text.
        return (msgspec.json.decode(file.content) if isinstance(file.content, str) else file.content,)
    except RecursionError:
        raise CheckFault("json_limit", f"{show(file.path)} is nested too deeply to be read") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        return str(error)
