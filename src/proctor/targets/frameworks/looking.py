"""Inspects foreign objects: reads members that may raise, and finds the package of a class.

No framework is imported here. An object is recognised by the names of its classes and their modules, so users' subclasses are recognised
too. A missing member is None; one that raises makes the whole value unreadable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from proctor.targets.answers.plain_values import Unreadable, type_name

_BUILT_IN = frozenset((dict, list, tuple, str, int, float, bool, type(None)))
MAX_ITEMS = 100_000
"""How many messages, events or steps of one answer are looked at."""


def is_instance_of(value: object, package: str, *names: str) -> bool:
    """Return whether the type of a value, or a class it inherits from, has one of these names and is defined in this package."""
    if type(value) in _BUILT_IN:  # what most agents return, and every framework asks in turn
        return False
    for kind in type(value).__mro__:
        module = cast(object, kind.__module__)
        if kind.__name__ in names and isinstance(module, str) and (module == package or module.startswith(f"{package}.")):
            return True
    return False


def find_package(value: object) -> str:
    """Return the package that defines the type of a value, in full: `google.adk.events.event`."""
    try:
        module = cast(object, type(value).__module__)
    except Exception:  # a foreign class may raise anything; then it belongs to no package
        return ""
    return module if isinstance(module, str) else ""


def read_member(value: object, name: str) -> Any:
    """Return a member of an object, None where it has none. Raises `Unreadable` where asking for it raises."""
    try:
        return getattr(value, name, None)
    except Exception as error:
        raise Unreadable(f"{type_name(value)}.{name} raised {type(error).__name__}") from None


def call_member(value: object, name: str, *arguments: object, **options: object) -> Any:
    """Return what a method of an object returns. Raises `Unreadable` where there is none, or where it raises."""
    method = read_member(value, name)
    if not callable(method):
        raise Unreadable(f"{type_name(value)} has no method {name}")
    try:
        return method(*arguments, **options)
    except Exception as error:
        raise Unreadable(f"{type_name(value)}.{name}() raised {type(error).__name__}") from None


def list_members(value: object, name: str) -> list[Any]:
    """Return a member that is a list or a tuple as a list; an empty list where it is None."""
    found = read_member(value, name)
    if found is None:
        return []
    if not isinstance(found, (list, tuple)):
        raise Unreadable(f"{type_name(value)}.{name} is of the type {type_name(found)}, expected a list")
    return take_items(cast("Iterable[object]", found))


def take_items(items: Iterable[object]) -> list[Any]:
    """Return the items as a list. Raises `Unreadable` where there are too many."""
    found = list(items)
    if len(found) > MAX_ITEMS:
        raise Unreadable(f"it holds {len(found)} items, more than {MAX_ITEMS}")
    return found


def find_entry(value: object, key: str) -> Any:
    """Return an entry of a mapping, None where it has none or the value is no mapping."""
    if not isinstance(value, Mapping):
        return None
    try:
        return cast("Mapping[object, object]", value).get(key)
    except Exception as error:
        raise Unreadable(f"a {type_name(value)} raised {type(error).__name__} when reading {key!r}") from None
