"""Options by keyword: an unknown one is rejected with the nearest valid name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from proctor.model.show import suggest_one

F = TypeVar("F", bound=Callable[..., Any])


def suggest_options(function: F) -> F:
    """Return the function, which names the nearest option in the `TypeError` for an unknown one."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        for name in options:
            if name not in known:
                raise TypeError(f"{function.__qualname__.removesuffix('.__init__')}() has no option {name!r}{suggest_one(name, known)}")
        return function(*arguments, **options)

    return cast("F", call)


def to_camel(name: str) -> str:
    """Return a name in the original's spelling: `toolCalls` for `tool_calls`."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
