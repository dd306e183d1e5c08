"""The lock file: every definition of a server in readable form, and what changed since it was written.

The definitions are stored whole, since a hash alone cannot be reviewed. A change is

* `removed` or `breaking`: callers fail (a parameter is gone, became required, has another type or fewer values; a result lost a field);
* `reworded`: a text or hint that the model reads is different. The tool may behave as before, but this is how a server that was trusted
  starts to give orders, so it is never merely information;
* `added` or `compatible`: callers work as before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from proctor.doctor.inspect import Surface
from proctor.errors import InputError
from proctor.model.evidence import Json
from proctor.model.show import shorten, show
from proctor.model.typed import decode_json
from proctor.targets.mcp.results import Listing

VERSION: Final = 1
Kind = Literal["added", "removed", "breaking", "reworded", "compatible"]
FAILING: Final = ("removed", "breaking", "reworded")
_FIELDS: Final = {
    "tools": ("name", ("title", "description", "inputSchema", "outputSchema", "annotations", "execution")),
    "prompts": ("name", ("title", "description", "arguments")),
    "resources": ("uri", ("name", "title", "description", "mimeType")),
    "templates": ("uriTemplate", ("name", "title", "description", "mimeType")),
}
"""By kind: the field that names an item, and the fields that are locked."""
_TEXTS: Final = ("description", "title", "$comment", "examples", "default")
_BOUNDS: Final = ("pattern", "format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "const", "multipleOf")


class Lock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The definitions of one server."""

    version: int = VERSION
    server: str = ""
    instructions: str = ""
    tools: dict[str, dict[str, Json]] = {}
    prompts: dict[str, dict[str, Json]] = {}
    resources: dict[str, dict[str, Json]] = {}
    templates: dict[str, dict[str, Json]] = {}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between two locks."""

    kind: Kind
    item: str
    """Such as `tool refund`."""
    what: str

    @property
    def fails(self) -> bool:
        """Whether it must be looked at before the new lock is accepted."""
        return self.kind in FAILING

    def __str__(self) -> str:
        return f"{self.item} {self.what}"


def make_lock(surface: Surface) -> Lock:
    """Return the definitions that a server offers, as a lock file stores them."""

    def lock_items(kind: str) -> dict[str, dict[str, Json]]:
        key, fields = _FIELDS[kind]
        items = {str(item.get(key)): {field: item[field] for field in fields if field in item} for item in getattr(surface, kind)}
        return {name: {"hash": _hash_definition(item), **item} for name, item in sorted(items.items())}

    return Lock(
        server=" ".join(str(surface.server.get(name) or "") for name in ("name", "version")).strip(),
        instructions=surface.instructions,
        tools=lock_items("tools"),
        prompts=lock_items("prompts"),
        resources=lock_items("resources"),
        templates=lock_items("templates"),
    )


def lock_listing(listing: Listing) -> Lock:
    """Return the lock of the tools that an agent's server offered."""
    tools: list[Mapping[str, Any]] = []
    for tool in listing.tools:
        fields: dict[str, Any] = {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}
        fields |= {"annotations": tool.annotations, "title": tool.title, "outputSchema": tool.output_schema}
        tools.append({key: value for key, value in fields.items() if value not in ("", None)})
    return make_lock(Surface(server={"name": listing.name, "version": listing.version}, tools=tuple(tools)))


def _hash_definition(item: Mapping[str, Json]) -> str:
    return hashlib.sha256(json.dumps(item, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def write_lock(lock: Lock) -> str:
    """Return the lock as text, sorted, so that a review shows what changed."""
    return json.dumps(msgspec.to_builtins(lock), indent=2, ensure_ascii=False) + "\n"


def read_lock(text: bytes, name: str) -> Lock:
    """Read a lock file. Raises `InputError`."""
    try:
        lock = decode_json(text, Lock)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name} is not a lock file: {error}; `proctor doctor lock` writes one") from None
    if lock.version != VERSION:
        raise InputError(f"{name} has lock version {lock.version}; this version of proctor reads {VERSION}")
    return lock


def compare_locks(before: Lock, after: Lock) -> tuple[Change, ...]:
    """Return every difference, the failing ones first."""
    changes = list(_compare(before, after))
    return tuple(sorted(changes, key=lambda change: not change.fails))


def _compare(before: Lock, after: Lock) -> Iterator[Change]:
    if before.instructions != after.instructions:
        yield Change(
            kind="reworded", item="the instructions", what=f"were {show(before.instructions, 80)}, are {show(after.instructions, 80)}"
        )
    for kind in _FIELDS:
        old, new = getattr(before, kind), getattr(after, kind)
        word = kind.removesuffix("s")
        for name in sorted(old.keys() | new.keys()):
            item = f"{word} `{shorten(name, 80)}`"
            if name not in new:
                yield Change(kind="removed", item=item, what="is gone")
            elif name not in old:
                yield Change(kind="added", item=item, what="is new")
            elif old[name].get("hash") != new[name].get("hash"):
                yield from (Change(kind=change, item=item, what=what) for change, what in _compare_items(old[name], new[name]))


def _compare_items(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[Kind, str]]:
    for field in ("name", "title", "description", "mimeType"):
        if old.get(field) != new.get(field):
            yield "reworded", f"has another {field}: {show(old.get(field), 100)} → {show(new.get(field), 100)}"
    hints, now = (each.get("annotations") or {} for each in (old, new))
    for name in sorted(hints.keys() | now.keys()):
        if hints.get(name) != now.get(name):
            yield "reworded", f"changed the hint {name}: {show(hints.get(name))} → {show(now.get(name))}"
    if old.get("execution") != new.get("execution"):
        yield "breaking", "changed how it supports tasks"
    yield from compare_schemas(old.get("inputSchema") or {}, new.get("inputSchema") or {}, "parameter", is_input=True)
    if "outputSchema" in old and "outputSchema" not in new:
        yield "breaking", "lost its output schema"
    elif "outputSchema" in new:
        yield from compare_schemas(old.get("outputSchema") or {}, new["outputSchema"], "result field", is_input=False)
    arguments, current = ({str(arg.get("name")): arg for arg in each.get("arguments") or ()} for each in (old, new))
    as_schemas = [
        {"properties": each, "required": [name for name, arg in each.items() if arg.get("required")]} for each in (arguments, current)
    ]
    yield from compare_schemas(as_schemas[0], as_schemas[1], "argument", is_input=True)


def compare_schemas(old: Any, new: Any, what: str, *, is_input: bool, path: str = "") -> Iterator[tuple[Kind, str]]:
    """Yield the differences of two schemas, with `what` they are differences of."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield "breaking", f"changed the schema of {what} `{path}`"
        return
    at = f"{what} `{path}`" if path else "the schema"
    if old.get("type") != new.get("type") and (path or "type" in old):
        yield "breaking", f"{at} changed its type: {show(old.get('type'))} → {show(new.get('type'))}"
    yield from _compare_values(old, new, at, is_input=is_input)
    for text in _TEXTS:
        if path and old.get(text) != new.get(text):
            yield "reworded", f"{at} has another {text}: {show(old.get(text), 80)} → {show(new.get(text), 80)}"
    for bound in _BOUNDS:
        if old.get(bound) != new.get(bound):
            loosened = bound not in new
            yield "compatible" if loosened == is_input else "breaking", f"{at}: {bound} {show(old.get(bound))} → {show(new.get(bound))}"
    before, after = (_read_properties(each) for each in (old, new))
    needed, needs = (set(map(str, each.get("required") or ())) for each in (old, new))
    for name in [*before, *(name for name in after if name not in before)]:
        place = f"{path}.{name}".lstrip(".")
        if name not in after:
            yield "breaking", f"lost the {what} `{place}`"
        elif name not in before:
            yield (
                "breaking" if is_input and name in needs else "compatible",
                f"has a new {what} `{place}`" + (", required" if name in needs else ""),
            )
        else:
            if (name in needed) != (name in needs):
                harder = (name in needs) == is_input
                how = "became required" if name in needs else "became optional"
                yield "breaking" if harder else "compatible", f"{what} `{place}` {how}"
            yield from compare_schemas(before[name], after[name], what, is_input=is_input, path=place)
    if "items" in old or "items" in new:
        yield from compare_schemas(old.get("items") or {}, new.get("items") or {}, what, is_input=is_input, path=f"{path}[]")
    rest = {key for key in old.keys() | new.keys() if key not in ("type", "enum", "properties", "required", "items", *_TEXTS, *_BOUNDS)}
    for key in sorted(rest):
        if old.get(key) != new.get(key):
            yield "breaking", f"{at}: {key} {show(old.get(key), 60)} → {show(new.get(key), 60)}"


def _read_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _compare_values(old: Mapping[str, Any], new: Mapping[str, Any], at: str, *, is_input: bool) -> Iterator[tuple[Kind, str]]:
    before, after = old.get("enum"), new.get("enum")
    if before == after:
        return
    removed = [value for value in before or () if value not in (after or before or ())]
    gained = [value for value in after or () if value not in (before or after or ())]
    narrowed = removed or (before is None and after is not None)
    widened = gained or (after is None and before is not None)
    breaks = narrowed if is_input else widened
    words = [f"lost {show(removed, 60)}" if removed else "", f"gained {show(gained, 60)}" if gained else ""]
    yield "breaking" if breaks else "compatible", f"{at}: its values {' and '.join(filter(None, words)) or 'changed'}"
