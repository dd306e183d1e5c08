"""Keyword options: all of them are in the signature, and an unknown one is rejected with the nearest valid name.

An option with a default is a parameter; one that is None by default is a field of a `TypedDict` in `**options: Unpack[...]`.
Type checkers and `inspect.signature` see both.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ForwardRef, TypeVar

from proctor.model.show import suggest_one

F = TypeVar("F", bound=Callable[..., Any])


def show_options(options: type[Any]) -> Callable[[F], F]:
    """Return a decorator: `inspect.signature` then shows the fields of a `TypedDict` instead of `**options`."""

    def mark(function: F) -> F:
        signature = inspect.signature(function)
        parameters = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        fields = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_get_written_type(kind))
            for name, kind in options.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=[*parameters, *fields])
        return function

    return mark


def refuse_unknown_options(function: Callable[..., Any], options: Mapping[str, object]) -> None:
    """Raise `TypeError` for a name that a function marked with `show_options` does not take."""
    known = _list_names(function)
    for name in options:
        if name not in known:
            suggestion = suggest_one(name, known)
            raise TypeError(f"{function.__qualname__.removesuffix('.__init__')}() has no option {name!r}{suggestion}")


@functools.cache
def _list_names(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(name for name in inspect.signature(function).parameters if name != "self")


def _get_written_type(kind: object) -> object:
    """Return a type as written in the source: a `TypedDict` wraps string annotations, which other signatures do not show."""
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind


def to_camel(name: str) -> str:
    """Return a name in the original's spelling: `toolCalls` for `tool_calls`."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
