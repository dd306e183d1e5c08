"""Changes to a JSON document: JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386). The document itself is never changed."""

from __future__ import annotations

import copy
from typing import cast

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import equal
from proctor.model.show import kind_of, show

_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
MOST_OPERATIONS = 1_000
"""The maximum number of operations of one patch: a `copy` may double a document each time, so its volume is limited too."""
MOST_COPIED = 1_000_000
"""The maximum number of values that all `copy` operations of one patch may copy."""


def merge_patch(document: Json, patch: Json) -> Json:
    """Return the document with a merge patch applied: null removes a member, everything else replaces it."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged: dict[str, Json] = dict(document) if isinstance(document, dict) else {}
    for name, value in cast("dict[str, Json]", patch).items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def apply_patch(document: Json, patch: Json) -> Json:
    """Return the document with a JSON Patch applied. Raises `SpecError`, without any change, if an operation cannot be applied."""
    if not isinstance(patch, list):
        raise SpecError(f"a JSON Patch is a list of operations, found {kind_of(patch)}")
    if len(cast("list[Json]", patch)) > MOST_OPERATIONS:
        raise SpecError(f"{len(patch)} operations in a JSON Patch; the maximum is {MOST_OPERATIONS}")
    # Operations change this copy; if a later one fails, the caller's document is unchanged.
    patched, copied = copy.deepcopy(document), 0
    for index, operation in enumerate(cast("list[Json]", patch)):
        if isinstance(operation, dict) and operation.get("op") == "copy":
            # The whole document is at least as large as the copied part, and can be counted before that part is found.
            copied += _count_values(patched)
            if copied > MOST_COPIED:
                raise SpecError("the copies of this JSON Patch are too large", field=f"{index}")
        patched = _apply(patched, operation, f"{index}")
    return patched


def _apply(document: Json, operation: Json, at: str) -> Json:
    name = operation.get("op") if isinstance(operation, dict) else None
    if name not in _OPERATIONS:
        raise SpecError(f"op: expected one of {', '.join(_OPERATIONS)}, found {show(name)}", field=at)
    path = _split_pointer(operation.get("path"), f"{at}.path")
    if name in ("add", "replace", "test") and "value" not in operation:
        raise SpecError(f"{name} needs a value", field=at)
    match name:
        case "add":
            return _add(document, path, copy.deepcopy(operation["value"]), at)
        case "remove":
            return _remove(document, path, at)
        case "replace":
            # The replaced member must exist: `_add` alone would create a new one.
            _find(document, path, at)
            # A copy, even of the root: later operations change it, and the patch belongs to the caller.
            value = copy.deepcopy(operation["value"])
            return _add(_remove(document, path, at), path, value, at) if path else value
        case "test":
            if not equal(_find(document, path, at), operation["value"]):
                raise SpecError(f"test: {operation['path']} is not {show(operation['value'])}", field=at)
            return document
        case _:
            source = _split_pointer(operation.get("from"), f"{at}.from")
            if name == "move" and path[: len(source)] == source and path != source:
                raise SpecError("move: a value cannot be moved into itself", field=at)
            value = _find(document, source, at)
            if name == "copy":
                return _add(document, path, copy.deepcopy(value), at)
            return _add(_remove(document, source, at), path, value, at)


def _split_pointer(pointer: Json, field: str) -> list[str]:
    """Return the steps of a JSON pointer (RFC 6901)."""
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise SpecError(f"expected a JSON pointer such as /status, found {show(pointer)}", field=field)
    # In this order, as RFC 6901 requires: otherwise `~01`, which means `~1`, would become a slash.
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _find(document: Json, path: list[str], at: str) -> Json:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_read_index(step, len(cast("list[Json]", document)) - 1, at)]
        else:
            raise SpecError(f"there is no {show(step)} at /{'/'.join(path)}", field=at)
    return document


def _add(document: Json, path: list[str], value: Json, at: str) -> Json:
    if not path:
        return value
    holder = _find(document, path[:-1], at)
    if isinstance(holder, dict):
        holder[path[-1]] = value
    elif isinstance(holder, list):
        items = cast("list[Json]", holder)
        items.insert(len(items) if path[-1] == "-" else _read_index(path[-1], len(items), at), value)
    else:
        raise SpecError(f"nothing can be added at /{'/'.join(path)}", field=at)
    return document


def _remove(document: Json, path: list[str], at: str) -> Json:
    if not path:
        raise SpecError("the whole document cannot be removed", field=at)
    # Also reads the last step: the list position is checked here, so that `int` and `del` below cannot fail.
    _find(document, path, at)
    holder = _find(document, path[:-1], at)
    del holder[path[-1] if isinstance(holder, dict) else int(path[-1])]
    return document


def _read_index(step: str, most: int, at: str) -> int:
    # RFC 6901 has no leading zeros. At most nine digits, since `int` raises an error for thousands of them.
    if not (step.isascii() and step.isdigit()) or (len(step) > 1 and step[0] == "0") or len(step) > 9 or int(step) > most:
        raise SpecError(f"expected a position from 0 to {most}, found {show(step)}", field=at)
    return int(step)


def _count_values(value: Json) -> int:
    count, waiting = 0, [value]
    while waiting:
        count += 1
        inner = waiting.pop()
        if isinstance(inner, dict):
            waiting.extend(cast("dict[str, Json]", inner).values())
        elif isinstance(inner, list):
            waiting.extend(cast("list[Json]", inner))
    return count
