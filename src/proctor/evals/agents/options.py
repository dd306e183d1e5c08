"""Options that are given by name: all of them are shown, and one that does not exist is refused with the nearest right word.

An option with a default is in the signature; one that is None by default is a field of a `TypedDict` and comes as `**options: Unpack[...]`.
Type checkers and `inspect.signature` see both.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ForwardRef, TypeVar

from proctor.model.show import nearest

F = TypeVar("F", bound=Callable[..., Any])


def show_options(options: type[Any]) -> Callable[[F], F]:
    """Return a decorator: `inspect.signature` then shows the fields of a `TypedDict` in the place of `**options`."""

    def mark(function: F) -> F:
        signature = inspect.signature(function)
        named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        fields = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_get_written_type(kind))
            for name, kind in options.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=[*named, *fields])
        return function

    return mark


def refuse_unknown_options(function: Callable[..., Any], options: Mapping[str, object]) -> None:
    """Raise `TypeError` for a name that a function marked with `show_options` does not take."""
    known = _list_names(function)
    for name in options:
        if name not in known:
            close = nearest(name, known)
            suggestion = f"; nearest: {close[0]!r}" if close else ""
            raise TypeError(f"{function.__qualname__.removesuffix('.__init__')}() has no option {name!r}{suggestion}")


@functools.cache
def _list_names(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(name for name in inspect.signature(function).parameters if name != "self")


def _get_written_type(kind: object) -> object:
    """Return a type as it was written: in a `TypedDict` a text is wrapped up, which other signatures do not show."""
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
